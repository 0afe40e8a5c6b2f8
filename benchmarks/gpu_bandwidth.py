"""The bandwidth of kernels that move KV, against a copy of as many bytes on the same device."""

import functools
import math

import torch
from gpu_pools import latent, multi_head

from kvlife.kernels.copy_pages import copy_pages
from kvlife.kernels.digest_pages import digest_pages
from kvlife.kernels.gather_pages import gather_pages
from kvlife.kernels.numerics.formats import storage_format
from kvlife.kernels.scatter_pages import scatter_pages
from kvlife.kernels.store_kv import store_kv

MIB = 1 << 20
SIZES = (64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB)
SMALL_SIZES = (MIB >> 6,)
AIM, QUANTISED_AIM = 0.90, 0.85
CALLS = 5
# Of the size that is moved, the memory that a measurement needs at most: arena, staging, a margin.
NEED = 3.3


def nothing():
    """What is to be reset between rounds of calls that can be repeated."""


def measure_bandwidth(device, clock, sizes, budget, say):
    """All measurements that there is time and memory for; a record for each, done or left out."""
    records = []
    for name, size, measure in _plan(sizes, rehearsed=not clock.counts):
        record = {"what": name, "size_bytes": size}
        free = _free_bytes(device)
        if budget.is_over:
            record["skipped"] = "no time left"
        elif size * NEED > free:
            record["skipped"] = f"takes {size * NEED / 1e9:.1f} GB, and {free / 1e9:.1f} are free"
        else:
            record |= _measured(functools.partial(measure, size, device), clock, device)
        records.append(record)
        say(_line(record))
    return records


def _plan(sizes, *, rehearsed):
    """Name, size and measurement: the usual layout at all sizes, then others at a middle one."""
    num_layers = 2 if rehearsed else 32
    usual = multi_head("bf16", num_layers=num_layers)
    pages = {
        "copy_pages": _copy,
        "gather_pages": _gather,
        "scatter_pages": _scatter,
        "digest_pages": _digest,
    }
    for size in sizes:
        yield "store_kv bf16", size, functools.partial(_store, "bf16")
        for name, make in pages.items():
            yield f"{name}, {usual.name}", size, functools.partial(make, usual, 16)
    middle = sizes[len(sizes) // 2]
    for dtype in ("fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4"):
        yield f"store_kv {dtype}", middle, functools.partial(_store, dtype)
    for layout, page_size in (
        (multi_head("bf16", num_layers=num_layers, order="page"), 16),
        (latent("bf16", num_layers=num_layers), 64),
        (multi_head("bf16", heads=1, num_layers=num_layers), 1),
        (multi_head("mxfp8", num_layers=num_layers), 16),
    ):
        for name, make in pages.items():
            what = f"{name}, {layout.name}, pages of {page_size}"
            yield what, middle, functools.partial(make, layout, page_size)


def _measured(make, clock, device):
    """What a call moves a second, beside what a copy of as many bytes does."""
    try:
        call, num_bytes, aim = make()
        seconds = clock.replayed([call] * CALLS, nothing)
        del call
        copy = _copy_of(num_bytes // 2, device)
        copied = clock.replayed([copy] * CALLS, nothing)
    except torch.cuda.OutOfMemoryError as error:
        return {"skipped": str(error).splitlines()[0]}
    # What stops one measurement is reported with it, and the others are made.
    except Exception as error:  # noqa: BLE001
        return {"failed": f"{type(error).__name__}: {error}"}
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if seconds is None:
        return {"bytes_moved": num_bytes, "rehearsed": True}
    return {
        "bytes_moved": num_bytes,
        "gb_per_s": num_bytes / seconds / 1e9,
        "copy_gb_per_s": num_bytes / copied / 1e9,
        "of_copy": copied / seconds,
        "aim": aim,
        "met": copied / seconds >= aim,
    }


def _copy_of(num_bytes, device):
    """A call that copies so many bytes on the device: as many are read, as many written."""
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return functools.partial(target.copy_, source)


def _pool(layout, page_size, size, device, halves):
    """An arena of `halves` times the size, and its pages in random order."""
    num = max(size // (layout.planes(page_size, 1).page_bytes), 1)
    planes = layout.planes(page_size, halves * num + 1)
    arena = torch.randint(0, 256, (planes.num_bytes,), dtype=torch.uint8, device=device)
    order = 1 + torch.randperm(halves * num, device=device).int()
    return arena, planes, order, num


def _copy(layout, page_size, size, device):
    arena, planes, order, num = _pool(layout, page_size, size, device, 2)
    call = functools.partial(copy_pages, arena, planes, order[:num], order[num:])
    return call, 2 * num * planes.page_bytes, AIM


def _gather(layout, page_size, size, device):
    return _staged(gather_pages, layout, page_size, size, device)


def _scatter(layout, page_size, size, device):
    return _staged(scatter_pages, layout, page_size, size, device)


def _staged(operation, layout, page_size, size, device):
    arena, planes, order, num = _pool(layout, page_size, size, device, 1)
    staging = torch.zeros((num, planes.page_bytes), dtype=torch.uint8, device=device)
    call = functools.partial(operation, arena, planes, order, staging)
    return call, 2 * num * planes.page_bytes, AIM


def _digest(layout, page_size, size, device):
    arena, planes, order, num = _pool(layout, page_size, size, device, 1)
    return functools.partial(digest_pages, arena, planes, order), num * planes.page_bytes, AIM


def _store(dtype, size, device):
    """Tokens of one layer: whole pages in random order, bf16 in but where fp32 or fp16 is kept."""
    source = {"fp32": torch.float32, "fp16": torch.float16}.get(dtype, torch.bfloat16)
    layout, page_size = multi_head(dtype, num_layers=1), 16
    row = layout.target(page_size, 1).parts
    values = sum(part.width for part in row)
    num_pages = max(size // (values * source.itemsize * page_size), 1)
    target = layout.target(page_size, num_pages + 1)
    arena = torch.zeros(target.num_bytes, dtype=torch.uint8, device=device)
    pages = 1 + torch.randperm(num_pages, device=device)
    slots = (pages[:, None] * page_size + torch.arange(page_size, device=device)).flatten().int()
    num = slots.numel()
    k, v = (torch.randn((num, *part.shape), dtype=source, device=device) for part in row)
    storage = storage_format(dtype)
    stored = sum(
        place.num_bytes for part in row for place in (part.values, part.scales) if place is not None
    )
    moved = num * (values * source.itemsize + stored + slots.element_size())
    aim = QUANTISED_AIM if storage.quantises else AIM
    return functools.partial(store_kv, arena, target, 0, k, v, slots), moved, aim


def _free_bytes(device):
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf


def _line(record):
    size = f"{record['size_bytes'] / MIB:7.0f} MiB"
    for state in ("skipped", "failed"):
        if state in record:
            return f"{record['what']:62s} {size}  {state}: {record[state]}"
    if record.get("rehearsed"):
        return f"{record['what']:62s} {size}  rehearsed"
    verdict = "met" if record["met"] else "NOT met"
    return (
        f"{record['what']:62s} {size} {record['gb_per_s']:8.0f} GB/s, {record['of_copy']:.2f} of a"
        f" copy's; aim {record['aim']}: {verdict}"
    )
