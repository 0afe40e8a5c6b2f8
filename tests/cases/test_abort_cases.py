"""Abort races: C24."""

from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    dispatched,
    ends_clean,
    in_state,
    prefill,
    refused,
    released,
    row_pages,
    run_engine,
    tell,
    watch,
)

from kvlife.errors import UnknownRequest


def last_step(observer):
    """R1 of C24: row 2, pages 5-7."""
    tell(
        observer,
        admitted("r1", 2, 12),
        allocated({2: 12}, [5, 6, 7]),
        committed({2: 11}),
    )


def test_c24_released_by_the_abort_and_by_the_result():
    """C24: R1 is released by its abort, R2 gets its row and pages, its result releases it again."""
    observer = watch(4, 8)
    last_step(observer)
    tell(
        observer,
        released("r1", 2, "aborted", [5, 6, 7]),
        admitted("r2", 2, 8),
        allocated({2: 8}, [5, 6]),
    )
    found = broken_by(observer, released("r1", 2, "finished", [5, 6, 7]))
    assert found.id == "release-once"
    assert found.evidence["holders"] == ["request r2"]
    assert found.also["page-double-free"]["pages"] == [7]


def test_c24_an_allocator_that_reports_its_steps_is_stopped_at_the_abort():
    """C24: where the step in flight is known, the abort that frees under it is named already."""
    observer = watch(4, 8)
    last_step(observer)
    tell(observer, dispatched(1, 2))
    found = broken_by(observer, released("r1", 2, "aborted", [5, 6, 7]))
    assert found.id == "in-flight-fence"
    assert found.evidence["pages"] == [5, 6, 7]
    assert found.evidence["open_steps"] == [1]


def test_c24_the_abort_marks_and_the_result_releases():
    """C24: an aborted row drains, R2 gets another row and other pages, the settle releases once."""
    engine = run_engine(4, 8)
    prefill(engine, "r1", list(range(11)))
    batch = engine.batch(["r1"])
    engine.decode(batch)
    engine.dispatch(1, batch)
    engine.abort("r1")
    admission = engine.admit("r2", [31] * 8)
    engine.allocate(["r2"], [8])
    assert admission.row == 2
    assert row_pages(engine, "r2") == [4, 5]
    assert in_state(engine, "FREE") == {6, 7, 8}
    engine.settle(1)
    assert in_state(engine, "FREE") == {1, 2, 3, 6, 7, 8}
    with refused(engine, UnknownRequest, "no live request 'r1'"):
        engine.finish("r1", list(range(12)))
    assert row_pages(engine, "r2") == [4, 5]
    engine.abort("r2")
    ends_clean(engine)
