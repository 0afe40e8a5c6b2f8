"""What a reference cannot show of a kernel: shapes of a launch, streams, graphs, far addresses.

Each property returns None where it holds, what is wrong in words, or `LeftOut` with the reason.
"""

import attrs
import torch
from gpu_cases import SEQ, decode_cases, found
from gpu_checks import given, kernels, outcome
from gpu_pools import multi_head, random_bytes

from kvlife.kernels import ViolationCode
from kvlife.kernels.copy_pages import copy_pages
from kvlife.kernels.decode_step import decode_step
from kvlife.kernels.digest_pages import digest_pages
from kvlife.kernels.fill_pages import fill_pages
from kvlife.kernels.gather_pages import gather_pages
from kvlife.kernels.planes import Plane, Planes
from kvlife.kernels.scatter_pages import scatter_pages

FAR_PAGE_BYTES = 1 << 20
FAR_PAGES = 5 << 10


@attrs.frozen
class LeftOut:
    """Why a property was not looked at."""

    reason: str


def check_properties(device, cases, seed, budget, say):
    """Look at each property; a record for each. `cases` are calls to look at for stops."""
    generator = torch.Generator().manual_seed(seed)
    records = []
    for name, look in PROPERTIES.items():
        found_out = LeftOut("no time left") if budget.is_over else None
        if found_out is None:
            found_out = _looked(look, device, cases, generator)
        record = {"property": name, "holds": found_out is None}
        if isinstance(found_out, LeftOut):
            record = {"property": name, "skipped": found_out.reason}
        elif found_out is not None:
            record["wrong"] = found_out
        records.append(record)
        verdict = record.get("skipped") or record.get("wrong") or "holds"
        say(f"{name:62s} {verdict}")
    return records


def _looked(look, device, cases, generator):
    try:
        return look(device, cases, generator)
    # What stops one look is a finding, and the others are taken still.
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"


def _digests_ignore_launches(device, _, generator):
    """Digests are the same whatever the tiles and warps."""
    # Triton is loaded where it is used.
    from kvlife.kernels.digest_pages.kernel import digest_pages_triton

    planes = multi_head("nvfp4", 2, 64, 32).planes(4, 6)
    arena = random_bytes(planes.num_bytes, generator).to(device)
    pages = torch.tensor([5, 1, 3, 1], device=device)
    with kernels("torch"):
        expected = digest_pages(arena.cpu(), planes, pages.cpu())
    for lanes, num_warps in ((16, 1), (128, 2), (1024, 8), (8192, 16)):
        digests = digest_pages_triton(arena, planes, pages, None, lanes=lanes, num_warps=num_warps)
        if not torch.equal(digests.cpu(), expected):
            return f"others with {lanes} lanes and {num_warps} warps"
    return None


def _nothing_waits(device, cases, _):
    """No operation stops the stream, once its kernels are compiled."""
    if device.type != "cuda":
        return LeftOut("a CPU has no stream")
    for case in cases:
        outcome(case, device, "triton")
        arguments, options = given(case, device)
        torch.cuda.set_sync_debug_mode("error")
        try:
            case.operation(*arguments, **options)
        except RuntimeError as error:
            return f"{case.operation.__name__}, {case.name}: {error}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return None


def _decode_replays(device, _, generator):
    """A captured decode step, replayed on other inputs, does what a reference does."""
    if device.type != "cuda":
        return LeftOut("a CPU captures no graphs")
    first, second, _ = decode_cases(9, (16, 4), generator)
    arguments, options = given(first, device)
    decode_step(*arguments, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode_step(*arguments, **options)
    replacement, others = given(second, device)
    for tensor, other in zip(
        [*arguments, options["slots_out"]], [*replacement, others["slots_out"]], strict=True
    ):
        tensor.copy_(other)
    options["violations"].clear()
    graph.replay()
    expected = outcome(second, torch.device("cpu"), "torch")
    for i, tensor in enumerate(arguments):
        if not torch.equal(tensor.cpu(), expected[f"argument {i}"]):
            return f"argument {i} differs after a replay"
    return None if torch.equal(options["slots_out"].cpu(), expected["slots_out"]) else "other slots"


def _pinned_staging(device, _, generator):
    """Pages go to pinned host memory and come back from it."""
    if device.type != "cuda":
        return LeftOut("nothing is pinned for a CPU")
    planes = multi_head("bf16", 2, 64, 32).planes(4, 9)
    arena = random_bytes(planes.num_bytes, generator).to(device)
    staging = torch.zeros((5, planes.page_bytes), dtype=torch.uint8, pin_memory=True)
    pages = torch.tensor([3, 8, 1], device=device)
    rows = torch.tensor([4, 0, 2], device=device)
    gather_pages(arena, planes, pages, staging, rows=rows)
    torch.cuda.synchronize()
    expected = torch.zeros_like(staging)
    with kernels("torch"):
        gather_pages(arena.cpu(), planes, pages.cpu(), expected, rows=rows.cpu())
    if not torch.equal(staging, expected):
        return "other bytes in host memory"
    kept = digest_pages(arena, planes, pages)
    fill_pages(arena, planes, pages, 0)
    scatter_pages(arena, planes, pages, staging, rows=rows)
    return None if torch.equal(digest_pages(arena, planes, pages), kept) else "other bytes back"


def _outside_is_skipped(device, _, generator):
    """A page outside the pool is reported and skipped."""
    if device.type != "cuda":
        return LeftOut("on a CPU it is refused")
    planes = multi_head("bf16", 2, 64, 32).planes(4, 6)
    arena = random_bytes(planes.num_bytes, generator).to(device)
    before = arena.clone()
    pages = torch.tensor([-1, 6, 1 << 30], dtype=torch.int32, device=device)
    staging = torch.zeros((3, planes.page_bytes), dtype=torch.uint8, device=device)
    inside = torch.tensor([1, 2, 3], dtype=torch.int32, device=device)
    for operation, arguments in (
        (copy_pages, (inside, pages)),
        (copy_pages, (pages, inside)),
        (gather_pages, (pages, staging)),
        (scatter_pages, (pages, staging)),
        (digest_pages, (pages,)),
        (fill_pages, (pages, 1)),
    ):
        options = found()
        options["violations"] = type(options["violations"]).create(device)
        operation(arena, planes, *arguments, **options)
        read = sorted(options["violations"].read(), key=lambda one: one.where)
        told = [(one.code, one.page, one.where, one.seq) for one in read]
        wanted = [(ViolationCode.OUTSIDE, page, i, SEQ) for i, page in enumerate((-1, 6, 1 << 30))]
        if told != wanted:
            return f"{operation.__name__} reported {told}"
    return None if torch.equal(arena, before) and not staging.any() else "bytes were written"


def _far_pages(device, *_):
    """Pages beyond 4 GiB are reached: addresses have 64 bits."""
    if device.type != "cuda":
        return LeftOut("it takes 5 GiB; run it on a GPU")
    need = FAR_PAGES * FAR_PAGE_BYTES
    free = torch.cuda.mem_get_info(device)[0]
    if free < 1.1 * need:
        return LeftOut(f"it takes {need / 1e9:.1f} GB, and {free / 1e9:.1f} are free")
    plane = Plane(
        name="far",
        offset=0,
        num_layers=1,
        layer_stride=need,
        page_stride=FAR_PAGE_BYTES,
        page_bytes=FAR_PAGE_BYTES,
    )
    planes = Planes(planes=(plane,), num_pages=FAR_PAGES)
    arena = torch.zeros(need, dtype=torch.uint8, device=device)
    pages = arena.view(FAR_PAGES, FAR_PAGE_BYTES)
    last = FAR_PAGES - 1
    content = torch.randint(0, 256, (FAR_PAGE_BYTES,), dtype=torch.uint8, device=device)
    pages[1] = content
    copy_pages(arena, planes, *torch.tensor([[1], [last]], device=device))
    if not torch.equal(pages[last], content) or int(arena.count_nonzero()) != 2 * int(
        content.count_nonzero()
    ):
        return "a copy to the last page went elsewhere"
    one, other = digest_pages(arena, planes, torch.tensor([1, last], device=device)).tolist()
    return None if one == other else "the last page was read elsewhere"


PROPERTIES = {
    "digests do not depend on the shape of a launch": _digests_ignore_launches,
    "nothing stops the stream": _nothing_waits,
    "a captured decode step replays": _decode_replays,
    "pages go to pinned host memory and back": _pinned_staging,
    "pages outside the pool are reported and skipped": _outside_is_skipped,
    "pages beyond 4 GiB are reached": _far_pages,
}
