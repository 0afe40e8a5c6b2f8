"""Inputs on which each kernel is held against its reference: made on the CPU, from a seed."""

import itertools

import attrs
import torch
from gpu_pools import Tables, latent, multi_head, random_bytes, random_values

from kvlife.kernels import PageState, Violations
from kvlife.kernels.audit_refs import audit_refs
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.change_pages import change_pages
from kvlife.kernels.change_pages.transitions import Transition
from kvlife.kernels.check_stores import check_stores
from kvlife.kernels.compare_digests import compare_digests
from kvlife.kernels.copy_pages import copy_pages
from kvlife.kernels.decode_step import decode_step
from kvlife.kernels.digest_pages import digest_pages
from kvlife.kernels.expand_tokens import expand_tokens
from kvlife.kernels.fill_pages import fill_pages
from kvlife.kernels.gather_pages import gather_pages
from kvlife.kernels.load_kv import load_kv
from kvlife.kernels.rebind import rebind
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.scatter_pages import scatter_pages
from kvlife.kernels.share_pages import share_pages
from kvlife.kernels.slots_of import slots_of
from kvlife.kernels.store_kv import store_kv

SEQ = 7


@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A call: `operation(*arguments, **options)`, all of its tensors on the CPU."""

    operation: object
    name: str
    arguments: tuple
    options: dict = attrs.field(factory=dict)


def found():
    """Where a call under test puts its findings."""
    return {"violations": Violations.create("cpu", capacity=1 << 16), "seq": SEQ, "group": 1}


def page_move_cases(num, generator):
    """Operations on entries and their pages: `num` of them, among them pages in every state."""
    num_pages = 3 * num + 8
    state = torch.randint(0, 4, (num_pages,), generator=generator, dtype=torch.int32)
    state[0] = int(PageState.RESERVED)
    refs = torch.randint(1, 3, (num_pages,), generator=generator, dtype=torch.int32)
    refs *= (state == int(PageState.PRIVATE)) | (state == int(PageState.CACHED))
    pins = torch.randint(0, 2, (num_pages,), generator=generator, dtype=torch.int32)
    pins *= state != int(PageState.FREE)
    pages = 1 + torch.randperm(num_pages - 1, generator=generator).int()
    own, others = pages[:num], pages[num : 2 * num]
    at = torch.randperm(2 * num + 5, generator=generator)[:num]
    table = torch.zeros(2 * num + 5, dtype=torch.int32)
    table[at] = own
    space = (state, refs, pins)
    for operation, columns, named in (
        (bind_pages, space[:2], (at, others)),
        (share_pages, space[:2], (at, others)),
        (release_pages, space, (at, own)),
        (rebind, space, (at, own, others)),
    ):
        arguments = (table, *columns, *named)
        yield Case(operation=operation, name=f"{num} pages", arguments=arguments, options=found())
    for transition in Transition:
        yield Case(
            operation=change_pages,
            name=f"{transition.name.lower()} {num} pages",
            arguments=(*space, own, transition),
            options=found(),
        )


def table_cases(num, page_size, generator):
    """Operations that read page tables: slots, token tables, audits."""
    pools = Tables.create(max(num, 1), (page_size,), 5 * page_size + 3, 8, 8, generator)
    (group,) = pools.groups
    rows = 1 + torch.randperm(max(num, 1), generator=generator)[:num].int()
    high = pools.lens[rows.long()]
    low = (high * torch.rand(num, generator=generator)).int()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), (high - low).cumsum(0)])
    name = f"{num} rows, pages of {page_size}"
    shape = (pools.tables, group.table_width, page_size, rows)
    yield Case(
        operation=slots_of,
        name=name,
        arguments=(*shape, low, high, offsets),
        options={"total": int(offsets[-1])},
    )
    out = torch.full((num, int(high.max() if num else 0) + 3), -9, dtype=torch.int32)
    yield Case(operation=expand_tokens, name=name, arguments=(*shape, high, out))


def audit_cases(num, page_sizes, generator):
    """Audits of tables that are in order, and of tables with a fault of each kind."""
    pools = Tables.create(num, page_sizes, 5 * max(page_sizes) + 3, 8, 8, generator)
    floor, cursors = torch.zeros_like(pools.lens), torch.zeros((0, num + 1), dtype=torch.int32)
    groups = pools.describe()
    held = torch.nonzero(pools.refs).flatten()
    wrong = [column.clone() for column in (pools.tables, pools.state, pools.refs, pools.pins)]
    wrong[2][held[:1]] += 1
    wrong[1][held[1:2]] = int(PageState.FREE)
    wrong[0][torch.nonzero(wrong[0]).flatten()[-1:]] = 0
    sound = (pools.tables, pools.state, pools.refs, pools.pins)
    for name, (tables, *columns) in (("in order", sound), ("with faults", wrong)):
        yield Case(
            operation=audit_refs,
            name=f"{num} rows, pages of {page_sizes}, {name}",
            arguments=(tables, groups, *columns, pools.lens, floor, cursors),
            options={"violations": found()["violations"], "seq": SEQ},
        )


def decode_cases(num, page_sizes, generator):
    """Three decode steps, one after the other on the same pools: the last with faults."""
    pools = Tables.create(num, page_sizes, 5 * max(page_sizes) + 3, 8, 3 * num + 8, generator)
    steps = pools.steps(3)
    rows = torch.arange(1, num + 1, dtype=torch.int32)
    lens = pools.lens.clone()
    for step in range(3):
        pages = steps[step].clone()
        if step == 2 and num > 2:
            pages[0, 0] = 0 if pages[0, 0] else 1
        yield Case(
            operation=decode_step,
            name=f"{num} rows, pages of {page_sizes}, step {step}",
            arguments=(
                pools.tables.clone(),
                pools.describe(),
                pools.state.clone(),
                pools.refs.clone(),
                lens.clone(),
                rows,
                pages,
            ),
            options={
                "slots_out": torch.full((len(page_sizes), num), -9, dtype=torch.int32),
                "violations": found()["violations"],
                "seq": torch.tensor([SEQ]),
            },
        )
        advance(pools, lens, steps[step])


def advance(pools, lens, pages):
    """What a decode step of all rows leaves behind, so that the next one starts from it."""
    rows = torch.arange(1, lens.numel())
    for idx, group in enumerate(pools.groups):
        taken = pages[idx] > 0
        at = group.table_start + rows * group.table_width + lens[1:] // group.page_size
        pools.tables[at[taken]] = pages[idx][taken]
        page = group.page_start + pages[idx][taken].long()
        pools.state[page] = int(PageState.PRIVATE)
        pools.refs[page] = 1
    lens[1:] += 1


def store_cases(layout, page_size, num, source, generator):
    """Tokens stored to distinct slots and to page 0, and read back from slots of any content."""
    num_pages = -(-num // page_size) + 3
    target = layout.target(page_size, num_pages)
    arena = random_bytes(target.num_bytes, generator)
    slots = page_size + torch.randperm((num_pages - 1) * page_size, generator=generator)[:num]
    if num > 1:
        slots[1] = 0
    parts = [random_values((num, *part.shape), source, generator) for part in target.parts]
    name = f"{layout.name}, pages of {page_size}, {num} tokens, {str(source)[6:]}"
    layer = layout.num_layers - 1
    yield Case(operation=store_kv, name=name, arguments=(arena, target, layer, *parts, slots.int()))
    yield Case(operation=load_kv, name=name, arguments=(arena, target, layer, slots, source))


def content_cases(layout, page_size, num, generator):
    """Operations on whole pages."""
    num_pages = 2 * num + 3
    planes = layout.planes(page_size, num_pages)
    arena = random_bytes(planes.num_bytes, generator)
    order = 1 + torch.randperm(num_pages - 1, generator=generator).int()
    pages, targets = order[:num], order[num : 2 * num]
    sources = pages[torch.randint(0, max(num, 1), (num,), generator=generator)]
    rows = torch.randperm(num + 2, generator=generator)[:num]
    staging = random_bytes((num + 2) * planes.page_bytes, generator).view(num + 2, -1)
    name = f"{layout.name}, {num} pages of {page_size}"
    for operation, what, arguments, options in (
        (copy_pages, "", (sources, targets), {}),
        (gather_pages, "", (sources, staging), {}),
        (gather_pages, ", rows named", (sources, staging), {"rows": rows}),
        (scatter_pages, "", (targets, staging), {}),
        (scatter_pages, ", rows named", (targets, staging), {"rows": rows}),
        (digest_pages, "", (sources,), {}),
        (fill_pages, "", (targets, 0xA5), {}),
    ):
        yield Case(
            operation=operation,
            name=name + what,
            arguments=(arena, planes, *arguments),
            options={**options, **found()},
        )


def content_check_cases(num, generator):
    """Operations that check content, on content that is right and on some that is not."""
    pages = 1 + torch.randperm(num + 3, generator=generator)[:num].int()
    expected = torch.randint(-(2**62), 2**62, (num,), generator=generator)
    digests = expected.clone()
    digests[::3] += 1
    writers = torch.randint(0, 4, (num + 4,), generator=generator, dtype=torch.int32)
    slots = torch.randint(-2, 4 * (num + 5), (num,), generator=generator)
    rows = torch.randint(1, 4, (num,), generator=generator, dtype=torch.int32)
    for operation, arguments in (
        (compare_digests, (digests, expected, pages)),
        (check_stores, (slots, rows, writers, 4)),
        (check_stores, (slots, None, writers, 4)),
    ):
        yield Case(operation=operation, name=f"{num}", arguments=arguments, options=found())


def all_cases(seed, sizes):
    """Cases of every operation; `sizes` are batch sizes, pages and layouts to take them over."""
    generator = torch.Generator().manual_seed(seed)
    for num in sizes.batches:
        yield from page_move_cases(num, generator)
        yield from content_check_cases(num, generator)
    for num, page_size in itertools.product(sizes.batches, sizes.page_sizes):
        yield from table_cases(num, page_size, generator)
    for num in filter(None, sizes.batches):
        yield from audit_cases(num, sizes.page_sizes[:2], generator)
        yield from decode_cases(num, sizes.page_sizes[:2], generator)
    for layout, (num, page_size) in itertools.product(sizes.layouts(), sizes.pages):
        yield from content_cases(layout, page_size, num, generator)
    for layout, source in sizes.stores():
        for num, page_size in sizes.tokens:
            yield from store_cases(layout, page_size, num, source, generator)


@attrs.frozen(kw_only=True)
class Sizes:
    """Over what the cases of an operation are taken."""

    batches: tuple[int, ...]
    page_sizes: tuple[int, ...]
    tokens: tuple[tuple[int, int], ...]
    pages: tuple[tuple[int, int], ...]
    dtypes: tuple[str, ...]
    heads: int
    width: int

    def stores(self):
        """Layouts and dtypes of the KV that comes: each dtype in both layouts and both orders."""
        sources = itertools.cycle((torch.bfloat16, torch.float32, torch.float16))
        for order, kind, dtype in itertools.product(("layer", "page"), (0, 1), self.dtypes):
            yield self._both(dtype, order)[kind], next(sources)

    def layouts(self):
        """Layouts for whole pages: words of 16 bytes, of fewer, and odd sizes."""
        for order in ("layer", "page"):
            yield from self._both("bf16", order)
            yield from self._both("nvfp4", order)
            yield multi_head("fp8_e4m3", 1, 7, 5, order=order)
            yield multi_head("fp16", 3, 2, 4, order=order)

    def _both(self, dtype, order):
        return (
            multi_head(dtype, self.heads, self.width, self.width // 2, order=order),
            latent(dtype, 2 * self.width, self.width // 2, order=order),
        )


DTYPES = ("bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4")
FULL = Sizes(
    batches=(0, 1, 3, 1000),
    page_sizes=(16, 1, 64, 256),
    tokens=((0, 16), (1, 16), (1000, 16), (67, 1)),
    pages=((0, 16), (1, 1), (3, 256), (33, 64)),
    dtypes=DTYPES,
    heads=8,
    width=128,
)
SMALL = Sizes(
    batches=(0, 5),
    page_sizes=(4, 2),
    tokens=((3, 4),),
    pages=((2, 4),),
    dtypes=DTYPES,
    heads=2,
    width=64,
)
