"""All kernels on the GPU of this machine: are they right, and how fast are they.

Run `python benchmarks/gpu.py`. It holds every kernel against its reference, measures launches and
bandwidth, prints what it finds and writes it as JSON to benchmarks/results/, within four minutes:
what there is no time for is left out, and said. Exit status: 0 all kernels are right, 1 one is not,
2 there is no GPU, or torch or Triton is missing. How fast they are does not change the status.

It imports torch, triton, numpy, attrs and kvlife.kernels, and takes kvlife from the checkout that
it lies in. `--dry-run` rehearses all of it on the CPU in Triton's interpreter, on tiny inputs, and
measures nothing.
"""

import argparse
import datetime as dt
import os
import platform
import re
import sys
import time
from pathlib import Path

BEGUN = time.monotonic()
ROOT = Path(__file__).resolve().parents[1]
SECONDS = 240
# How the time is shared out: when checks, launches and bandwidth end, the rest being for the exit.
CHECKS_END, LAUNCHES_END, BANDWIDTH_END = 0.5, 0.68, 0.95


def main():
    """Parse the arguments, run, and exit with the status."""
    arguments = parsed()
    sys.path.insert(0, str(ROOT))
    os.environ.pop("KVLIFE_KERNELS", None)
    if arguments.dry_run:
        # Triton reads it when it is imported, which is why all imports come later.
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    try:
        device = found_device(arguments)
    except ImportError as error:
        sys.exit(unusable(f"torch and Triton are needed: {error}"))
    if device is None:
        sys.exit(2)
    sys.exit(run(arguments, device))


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="the JSON file (default: by card and date)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to be done")
    parser.add_argument("--seed", type=int, help="of the random inputs (default: a new one)")
    parser.add_argument(
        "--dry-run", action="store_true", help="on the CPU, tiny inputs, nothing measured"
    )
    return parser.parse_args()


def found_device(arguments):
    """The device to work on, or None where there is none, said on stderr."""
    # Imports wait until the environment is set.
    import torch

    from kvlife.kernels.dispatch import require

    require("triton")
    if arguments.dry_run:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        unusable(
            f"there is no GPU here that torch {torch.__version__} can use, so nothing was run; take"
            " it to a machine with one, or rehearse it on the CPU with --dry-run"
        )
        return None
    return torch.device("cuda", torch.cuda.current_device())


def unusable(message):
    """Say why nothing can be run; the exit status."""
    print(f"gpu.py: {message}", file=sys.stderr)
    return 2


def run(arguments, device):
    """Checks, launches, bandwidth, each until its time is over; the exit status."""
    # As above: the environment is set by now.
    from gpu_report import Report

    seed = arguments.seed if arguments.seed is not None else int(time.time_ns() % 2**32)
    report = Report(machine(device), seed, out_path(arguments, device))
    report.say(f"seed {seed}; repeat with --seed {seed}")
    for part, end in (
        (checks, CHECKS_END),
        (launches, LAUNCHES_END),
        (bandwidth, BANDWIDTH_END),
    ):
        part(device, seed, budget_until(end * arguments.seconds), report)
        report.write(time.monotonic() - BEGUN)
    return report.conclude(rehearsed=arguments.dry_run)


def budget_until(seconds):
    """The time up to so many seconds after the start."""
    # As above.
    from gpu_clock import Budget

    return Budget(seconds, BEGUN)


def clock_of(device):
    """What measures on this device."""
    # As above.
    from gpu_clock import DeviceClock, Rehearsal

    return DeviceClock() if device.type == "cuda" else Rehearsal()


def checks(device, seed, budget, report):
    """Each kernel against its reference, and what only a device shows."""
    # As above.
    from gpu_cases import FULL, SMALL, all_cases
    from gpu_checks import check_all
    from gpu_properties import check_properties

    sizes = FULL if device.type == "cuda" else SMALL
    report.head("each kernel against its reference")
    report.checked = check_all(device, sizes, seed, budget, operations(), report.say)
    report.show_checks()
    report.head("properties")
    few = {}
    for case in all_cases(seed, SMALL):
        few.setdefault(case.operation, case)
    report.properties = check_properties(device, few.values(), seed, budget, report.say)


def operations():
    """The names of all operations of kvlife.kernels: each folder with a contract."""
    folders = (ROOT / "kernels").iterdir()
    return sorted(folder.name for folder in folders if (folder / "contract.py").is_file())


def launches(device, seed, budget, report):
    """Small kernels against an empty launch."""
    # As above.
    from gpu_launches import BATCHES, CALLS, SMALL_BATCHES, SMALL_CALLS, measure_launches

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
    # As above.
    from gpu_bandwidth import SIZES, SMALL_SIZES, measure_bandwidth

    sizes = SIZES if device.type == "cuda" else SMALL_SIZES
    report.head("bandwidth")
    report.bandwidth = measure_bandwidth(device, clock_of(device), sizes, budget, report.say)


def machine(device):
    """What was measured on."""
    # As above.
    import torch
    import triton

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
    # As above.
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "rehearsal"


def out_path(arguments, device):
    """Where the JSON goes; nowhere by default in a rehearsal."""
    if arguments.out is not None or arguments.dry_run:
        return arguments.out
    card = re.sub(r"[^a-z0-9]+", "-", card_of(device).lower()).strip("-")
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return ROOT / "benchmarks" / "results" / f"gpu-{card}-{date}.json"


if __name__ == "__main__":
    main()
