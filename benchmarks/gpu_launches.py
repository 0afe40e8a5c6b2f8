"""The time of small kernels against an empty launch, issued from Python and replayed in a graph."""

import functools

import torch
import triton
from gpu_bandwidth import nothing
from gpu_pools import Tables

from kvlife.kernels import PageState, Violations
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.decode_step import decode_step
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.slots_of import slots_of

BATCHES = (1, 256, 1024, 4096)
SMALL_BATCHES = (1, 6)
CALLS, SMALL_CALLS = 64, 2
TOKENS = 16
AIM, AIM_BATCH = 1.3, 1024


@triton.jit
def empty_kernel(pointer):
    """Nothing: what a launch costs."""


def measure_launches(device, clock, batches, num_calls, seed, budget, say):
    """Microseconds of each operation at each batch size, beside those of an empty launch."""
    scratch = torch.zeros(1, dtype=torch.int32, device=device)
    empty = [functools.partial(empty_kernel[(1,)], scratch)] * num_calls
    idle = _times(clock, empty, nothing)
    records = [{"what": "empty launch", "batch": 0, **idle}]
    say(_line(records[0]))
    makers = {
        "decode_step": functools.partial(_decode, page_sizes=(16,)),
        "decode_step, 2 groups": functools.partial(_decode, page_sizes=(16, 64)),
        "bind_pages": _bind,
        "release_pages": _release,
        "slots_of": _slots,
    }
    for batch in batches:
        for name, make in makers.items():
            record = {"what": name, "batch": batch}
            if budget.is_over:
                record["skipped"] = "no time left"
            else:
                record |= _measured(make, batch, num_calls, device, clock, idle, seed)
            records.append(record)
            say(_line(record))
    return records


def _measured(make, batch, num_calls, device, clock, idle, seed):
    try:
        calls, reset, violations = make(batch, num_calls, device, seed)
        times = _times(clock, calls, reset)
    # What stops one measurement is reported with it, and the others are made.
    except Exception as error:  # noqa: BLE001
        return {"failed": f"{type(error).__name__}: {error}"}
    if violations is not None and int(violations.count):
        return {"failed": f"{violations.read()[0]} in a run without faults"}
    for way in ("eager", "replayed"):
        if times[f"{way}_us"] is not None:
            times[f"{way}_of_empty"] = times[f"{way}_us"] / idle[f"{way}_us"]
    if clock.counts and batch == AIM_BATCH:
        times |= {"aim": AIM, "met": times["replayed_of_empty"] <= AIM}
    return times


def _times(clock, calls, reset):
    seconds = {"eager_us": clock.eager(calls, reset), "replayed_us": clock.replayed(calls, reset)}
    return {name: None if value is None else value * 1e6 for name, value in seconds.items()}


def _decode(batch, num_calls, device, seed, page_sizes):
    """Steps one after the other: a sixteenth of the rows comes to a new page in each."""
    generator = torch.Generator().manual_seed(seed)
    spare = batch * sum(num_calls // size + 2 for size in page_sizes)
    pools = Tables.create(batch, page_sizes, 512, num_calls + 1, spare, generator)
    start = [t.to(device) for t in (pools.tables, pools.state, pools.refs, pools.lens)]
    tables, state, refs, lens = now = [t.clone() for t in start]
    pages = pools.steps(num_calls).to(device)
    rows = torch.arange(1, batch + 1, dtype=torch.int32, device=device)
    violations = Violations.create(device)
    options = {
        "slots_out": torch.zeros((len(page_sizes), batch), dtype=torch.int32, device=device),
        "violations": violations,
        "seq": torch.zeros(1, dtype=torch.int64, device=device),
    }
    groups = pools.describe().to(device)
    calls = [
        functools.partial(decode_step, tables, groups, state, refs, lens, rows, page, **options)
        for page in pages
    ]
    return calls, functools.partial(_restore, now, start), violations


def _page_sets(batch, num_calls, device, seed):
    """For each call pages and entries of its own, all in random order."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(batch * num_calls, generator=generator).view(num_calls, batch)
    return order.to(device), (1 + order).int().to(device)


def _bind(batch, num_calls, device, seed):
    at, pages = _page_sets(batch, num_calls, device, seed)
    start = _columns(batch * num_calls, PageState.FREE, device)
    table, state, refs, _ = now = [t.clone() for t in start]
    violations = Violations.create(device)
    calls = [
        functools.partial(bind_pages, table, state, refs, at[i], pages[i], seq=0, **_to(violations))
        for i in range(num_calls)
    ]
    return calls, functools.partial(_restore, now, start), violations


def _release(batch, num_calls, device, seed):
    at, pages = _page_sets(batch, num_calls, device, seed)
    start = _columns(batch * num_calls, PageState.PRIVATE, device)
    start[0][at] = pages
    now = [t.clone() for t in start]
    violations = Violations.create(device)
    calls = [
        functools.partial(release_pages, *now, at[i], pages[i], seq=0, **_to(violations))
        for i in range(num_calls)
    ]
    return calls, functools.partial(_restore, now, start), violations


def _columns(num, page_state, device):
    """A table without entries, and the state, references and pins of `num` pages."""
    state = torch.full((num + 1,), int(page_state), dtype=torch.int32, device=device)
    state[0] = int(PageState.RESERVED)
    refs = (state == int(PageState.PRIVATE)).int()
    table = torch.zeros(num, dtype=torch.int32, device=device)
    return [table, state, refs, torch.zeros_like(refs)]


def _to(violations):
    return {"violations": violations}


def _slots(batch, num_calls, device, seed):
    """The slots of the last tokens of each row."""
    generator = torch.Generator().manual_seed(seed)
    pools = Tables.create(batch, (16,), 512, TOKENS, 8, generator)
    (group,) = pools.groups
    rows = torch.arange(1, batch + 1, dtype=torch.int32, device=device)
    low = (pools.lens[1:] - TOKENS).clamp(min=0)
    offsets = torch.arange(batch + 1, device=device) * TOKENS
    call = functools.partial(
        slots_of,
        pools.tables.to(device),
        group.table_width,
        group.page_size,
        rows,
        low.to(device),
        (low + TOKENS).to(device),
        offsets,
        total=batch * TOKENS,
    )
    return [call] * num_calls, nothing, None


def _restore(now, start):
    for tensor, saved in zip(now, start, strict=True):
        tensor.copy_(saved)


def _line(record):
    name = f"{record['what']}, batch {record['batch']}"
    for state in ("skipped", "failed"):
        if state in record:
            return f"{name:36s} {state}: {record[state]}"
    if record["eager_us"] is None:
        return f"{name:36s} rehearsed"
    text = f"{name:36s} {record['eager_us']:8.1f} us from Python, {record['replayed_us']:7.2f} us"
    text += " in a graph"
    if "replayed_of_empty" in record:
        text += f": {record['eager_of_empty']:.2f} and {record['replayed_of_empty']:.2f} of empty"
    if "met" in record:
        text += f"; aim {record['aim']} in a graph: {'met' if record['met'] else 'NOT met'}"
    return text
