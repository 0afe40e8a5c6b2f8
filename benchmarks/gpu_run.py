"""What gpu.py runs, part after part, each until its share of the time is over."""

import datetime as dt
import platform
import re
import sys
import time

import torch
import triton
from gpu_bandwidth import SIZES, SMALL_SIZES, measure_bandwidth
from gpu_cases import FULL, SMALL, all_cases
from gpu_checks import check_all
from gpu_clock import Budget, DeviceClock, Rehearsal
from gpu_launches import BATCHES, CALLS, SMALL_BATCHES, SMALL_CALLS, measure_launches
from gpu_properties import check_properties
from gpu_report import Report

from kvlife.kernels.dispatch import require

# When each part ends, as a share of the time; what is left over is for the end.
CHECKS_END, PROPERTIES_END, LAUNCHES_END, BANDWIDTH_END = 0.6, 0.65, 0.75, 0.95


def run(arguments, root, begun):
    """Checks, launches, bandwidth; the exit status."""
    require("triton")
    device = device_for(arguments)
    if device is None:
        print(
            f"gpu.py: there is no GPU here that torch {torch.__version__} can use, so nothing was"
            " run; take it to a machine with one, or rehearse it on the CPU with --dry-run",
            file=sys.stderr,
        )
        return 2
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 2**31
    report = Report(machine(device), seed, out_path(arguments, root, device))
    report.say(f"seed {seed}; repeat with --seed {seed}")
    operations = sorted(path.parent.name for path in (root / "kernels").glob("*/contract.py"))
    for part, end in (
        (lambda *given: checks(*given, operations), CHECKS_END),
        (properties, PROPERTIES_END),
        (launches, LAUNCHES_END),
        (bandwidth, BANDWIDTH_END),
    ):
        try:
            part(device, seed, Budget(end * arguments.seconds, begun), report)
        # A device in ruins must not take with it what was found before.
        except Exception as error:  # noqa: BLE001
            report.broke(error)
        report.write(time.monotonic() - begun)
    return report.conclude(rehearsed=arguments.dry_run)


def device_for(arguments):
    """The device to work on; None where there is no GPU."""
    if arguments.dry_run:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        return None
    return torch.device("cuda", torch.cuda.current_device())


def clock_of(device):
    """What measures on this device."""
    return DeviceClock() if device.type == "cuda" else Rehearsal()


def checks(device, seed, budget, report, operations):
    """Each kernel against its reference."""
    sizes = FULL if device.type == "cuda" else SMALL
    report.head("each kernel against its reference")
    report.checked = check_all(device, sizes, seed, budget, operations, report.say)
    report.show_checks()


def properties(device, seed, budget, report):
    """What only a device shows."""
    report.head("properties")
    cases = {case.operation: case for case in all_cases(seed, SMALL)}
    report.properties = check_properties(device, cases.values(), seed, budget, report.say)


def launches(device, seed, budget, report):
    """Small kernels against an empty launch."""
    real = device.type == "cuda"
    report.head("launches")
    report.launches = measure_launches(
        device,
        clock_of(device),
        BATCHES if real else SMALL_BATCHES,
        CALLS if real else SMALL_CALLS,
        seed,
        budget,
        report.say,
    )


def bandwidth(device, _seed, budget, report):
    """Kernels that move KV against a copy."""
    sizes = SIZES if device.type == "cuda" else SMALL_SIZES
    report.head("bandwidth")
    report.bandwidth = measure_bandwidth(device, clock_of(device), sizes, budget, report.say)


def machine(device):
    """What was measured on."""
    named = {
        "card": card_of(device),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        named["memory_gb"] = round(properties.total_memory / 1e9, 1)
        named["multiprocessors"] = properties.multi_processor_count
        named["runtime"] = torch.version.hip or torch.version.cuda
    return named


def card_of(device):
    """The card's name; `rehearsal` where there is none."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "rehearsal"


def out_path(arguments, root, device):
    """Where the JSON goes; nowhere by default in a rehearsal."""
    if arguments.out is not None or arguments.dry_run:
        return arguments.out
    card = re.sub(r"[^a-z0-9]+", "-", card_of(device).lower()).strip("-")
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return root / "benchmarks" / "results" / f"gpu-{card}-{date}.json"
