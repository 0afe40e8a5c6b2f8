"""What the paging operations refuse, before they write anything."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from paging import buffer, int32
from twice import assert_equal, copy_of

from kvlife.kernels import KernelError, TableGroup, Violations, describe
from kvlife.kernels.audit_refs import audit_refs
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.change_pages import Transition, change_pages
from kvlife.kernels.decode_step import DecodeStep, decode_step
from kvlife.kernels.expand_tokens import expand_tokens
from kvlife.kernels.rebind import rebind
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.share_pages import share_pages
from kvlife.kernels.slots_of import slots_of

GROUP = TableGroup(table_start=0, table_width=2, page_size=4, page_start=0, num_pages=5)


def arguments_of(operation):
    """Arguments that an operation takes, by name; the tests spoil one at a time."""
    table, columns = (
        int32([0] * 8),
        [int32([4, 1, 1, 1, 0]), int32([0, 1, 1, 1, 0]), int32([0] * 5)],
    )
    state, refs, pins = columns
    at, pages = torch.tensor([0, 1]), int32([1, 2])
    found = {"violations": buffer(), "seq": 1}
    rows, lens = int32([1, 2]), int32([3, 4])
    space = {"state": state, "refs": refs}
    arenas = {"tables": table, "groups": describe([GROUP], "cpu"), **space}
    moved = {"table": table, **space, "at": at}
    reading = {"table": table, "width": 2, "page_size": 4, "rows": rows}
    return {
        bind_pages: {**moved, "pages": pages, **found},
        share_pages: {**moved, "pages": pages, **found},
        release_pages: {**moved, "pins": pins, "pages": pages, **found},
        rebind: {**moved, "pins": pins, "own": pages, "canonical": pages, **found},
        change_pages: {
            **space, "pins": pins, "pages": pages, "transition": Transition.PIN, **found
        },
        slots_of: {
            **reading, "low": int32([0, 0]), "high": lens, "offsets": torch.tensor([0, 3, 7]),
            "total": 7,
        },
        expand_tokens: {**reading, "lens": lens, "out": int32([[0] * 4] * 2)},
        decode_step: {
            **arenas, "allocated": int32([0, 1, 1, 1]), "rows": rows,
            "new_pages": int32([[0, 0]]), "slots_out": int32([[0, 0]]),
            "violations": buffer(), "seq": torch.tensor([1]),
        },
        audit_refs: {
            **arenas, "pins": pins, "allocated": int32([0, 1, 1, 1]), "floor": int32([0] * 4),
            "cursors": torch.zeros((0, 4), dtype=torch.int32), **found,
        },
    }[operation]  # fmt: skip


OPERATIONS = [
    bind_pages, share_pages, release_pages, rebind, change_pages,
    slots_of, expand_tokens, decode_step, audit_refs,
]  # fmt: skip
TENSORS = [
    pytest.param(operation, name, id=f"{operation.__name__}-{name}")
    for operation in OPERATIONS
    for name, value in arguments_of(operation).items()
    if isinstance(value, torch.Tensor)
]
IN_PLACE = {"table", "tables", "groups", "state", "refs", "pins", "allocated", "floor", "cursors"}


def assert_refused(operation, arguments, match):
    """A `KernelError` that names the operation, and no argument has changed."""
    before = copy_of(arguments)
    with pytest.raises(KernelError, match=match) as caught:
        operation(**arguments)
    assert str(caught.value).startswith(operation.__name__)
    assert_equal(arguments, before, operation.__name__)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_arguments_that_the_tests_spoil_are_taken(operation):
    """Unspoilt, each operation takes them, so that what is refused below is refused rightly."""
    operation(**arguments_of(operation))


@pytest.mark.parametrize(("operation", "name"), TENSORS)
def test_a_wrong_dtype_is_refused(operation, name):
    """A tensor of float64, and no tensor at all, are refused by name."""
    arguments = arguments_of(operation)
    tensor = arguments[name]
    assert_refused(operation, {**arguments, name: tensor.double()}, f"{name} is .*float64")
    assert_refused(
        operation, {**arguments, name: tensor.tolist()}, f"{name} is a tensor, but .*list"
    )


@pytest.mark.parametrize(("operation", "name"), TENSORS)
def test_a_wrong_shape_is_refused(operation, name):
    """A tensor with one dimension too many is refused by name."""
    arguments = arguments_of(operation)
    wrong = {**arguments, name: arguments[name][None]}
    assert_refused(operation, wrong, "has the shape")


@pytest.mark.parametrize(("operation", "name"), TENSORS)
def test_another_device_is_refused(operation, name):
    """A tensor on a device of its own is refused, with both devices."""
    arguments = arguments_of(operation)
    wrong = {**arguments, name: arguments[name].to("meta")}
    with pytest.raises(KernelError, match="meta"):
        operation(**wrong)


@pytest.mark.parametrize(
    ("operation", "name"), [one for one in TENSORS if one.values[1] in IN_PLACE - {"cursors"}]
)
def test_what_is_changed_in_place_must_be_contiguous(operation, name):
    """State in strides is refused, since a packed copy would be what is changed."""
    arguments = arguments_of(operation)
    tensor = arguments[name]
    apart = torch.stack((tensor, tensor), dim=-1)[..., 0]
    assert_refused(operation, {**arguments, name: apart}, "contiguous")


@pytest.mark.parametrize("operation", [bind_pages, share_pages, release_pages, rebind, audit_refs])
@pytest.mark.parametrize("seq", [-1, 2**63, 1.5, None])
def test_a_seq_that_is_no_count_is_refused(operation, seq):
    """A seq is a number that 63 bits hold."""
    assert_refused(operation, {**arguments_of(operation), "seq": seq}, "seq is a number")


@pytest.mark.parametrize("operation", [slots_of, expand_tokens])
@pytest.mark.parametrize(
    ("width", "page_size"), [(0, 4), (3, 4), (2, 0), (-2, 4), (2.0, 4), (2, None)]
)
def test_a_table_of_other_rows_is_refused(operation, width, page_size):
    """A width that does not divide the table, or a size below 1, or no number, is refused."""
    wrong = {**arguments_of(operation), "width": width, "page_size": page_size}
    assert_refused(operation, wrong, "rows of")


@pytest.mark.parametrize("total", [-1, 2.5, None])
def test_a_total_that_is_no_count_is_refused(total):
    """There are no fewer than no slots, and no halves."""
    assert_refused(slots_of, {**arguments_of(slots_of), "total": total}, f"{total} slots")


def test_an_unknown_transition_is_refused():
    """The known ones are listed."""
    wrong = {**arguments_of(change_pages), "transition": "evict"}
    assert_refused(change_pages, wrong, "PUBLISH, EVICT, PIN, UNPIN")


def test_a_space_without_pages_is_refused():
    """Columns of no page have no reserved page either."""
    wrong = {**arguments_of(bind_pages), "state": int32([]), "refs": int32([])}
    assert_refused(bind_pages, wrong, "it is empty")


def test_a_prepared_step_checks_each_step():
    """Arenas are checked when the step is made, the batch's tensors at each call."""
    arguments = arguments_of(decode_step)
    arenas = {name: arguments[name] for name in ("tables", "groups", "state", "refs", "allocated")}
    step = DecodeStep(**arenas, violations=arguments["violations"])
    batch = {name: arguments[name] for name in ("slots_out", "seq")}
    step(arguments["rows"], arguments["new_pages"], **batch)
    with pytest.raises(KernelError, match="new_pages has the shape"):
        step(arguments["rows"], arguments["new_pages"][:, :1], **batch)
    with pytest.raises(KernelError, match="state has the shape"):
        DecodeStep(**{**arenas, "state": arenas["state"][None]}, violations=arguments["violations"])


def test_the_buffer_is_read_and_cleared():
    """What is read has names and sentences; a cleared buffer takes findings from its start."""
    arguments = arguments_of(bind_pages)
    found = arguments["violations"]
    bind_pages(**arguments)
    assert [finding.page for finding in found.read()] == [1, 2]
    found.clear()
    assert found.read() == []
    bind_pages(**{**arguments, "pages": int32([3, 4])})
    assert [finding.page for finding in found.read()] == [3]


@pytest.mark.parametrize("operation", [bind_pages, change_pages, decode_step, audit_refs])
def test_no_buffer_is_refused(operation):
    """What is found has to go somewhere."""
    wrong = {**arguments_of(operation), "violations": None}
    assert_refused(operation, wrong, "violations is a buffer of findings")


def test_a_buffer_of_another_shape_is_refused():
    """A buffer of other columns is named."""
    wrong = Violations(count=int32([0]), entries=torch.zeros((4, 4), dtype=torch.int64))
    assert_refused(
        bind_pages, {**arguments_of(bind_pages), "violations": wrong}, "violations.entries has"
    )
