"""Prefill-decode disaggregation: C44, C46."""

import threading

from scenes import (
    admitted,
    allocated,
    broken_by,
    ends_clean,
    in_state,
    pinned,
    prefill,
    refused,
    released,
    row_pages,
    run_engine,
    tell,
    unpinned,
    watch,
)

from kvlife.errors import OutOfPages, PinRefused
from kvlife.events import Marked


def receiving():
    """A of C44 has pages 1-4, and a remote writer fills them."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("a", 1, 16),
        allocated({1: 16}, [1, 2, 3, 4]),
        pinned("writer of a", [1, 2, 3, 4], kind="transfer", writes=True),
    )
    return observer


def test_c44_pages_of_a_late_writer_are_given_to_another():
    """C44: A is aborted, and B gets pages 1-4 while A's remote writer goes on.

    To let the pages go is sound and puts them in quarantine; no event can make them FREE while the
    pin stands. So the fault shows where B gets them.
    """
    observer = receiving()
    tell(observer, released("a", 1, "aborted", [1, 2, 3, 4]))
    assert in_state(observer, "QUARANTINED") == {1, 2, 3, 4}
    tell(observer, admitted("b", 1, 16))
    found = broken_by(observer, allocated({1: 16}, [1, 2, 3, 4]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pages"] == [1, 2, 3, 4]
    assert found.evidence["pins_held"] == ["writer of a"]


def test_c44_the_writers_pin_ends_for_a_part_of_its_pages():
    """C44: a confirmation that frees two of the four pages is not the pin's, and is named."""
    observer = receiving()
    tell(observer, released("a", 1, "aborted", [1, 2, 3, 4]))
    found = broken_by(observer, unpinned("writer of a", [1, 2]))
    assert found.id == "pinned-page-freed"
    assert found.evidence["pages_pinned"] == [1, 2, 3, 4]


def test_c44_quarantine_until_every_sender_has_drained():
    """C44: aborted pages stay in quarantine until both ranks confirm, from their own threads."""
    engine = run_engine(4, 8)
    engine.admit("a", list(range(16)))
    engine.allocate(["a"], [16])
    for rank in (0, 1):
        engine.pin(f"writer of a, rank {rank}", [1, 2, 3, 4], "transfer", writes=True)
    with refused(engine, PinRefused, "is being written"):
        engine.commit(["a"], [16])
    engine.abort("a")
    assert in_state(engine, "QUARANTINED") == {1, 2, 3, 4}
    engine.admit("b", list(range(50, 70)))
    with refused(engine, OutOfPages, "held by pinned 4"):
        engine.allocate(["b"], [20])
    for rank in (0, 1):
        assert in_state(engine, "QUARANTINED") == {1, 2, 3, 4}
        drained = threading.Thread(target=engine.post_unpin, args=(f"writer of a, rank {rank}",))
        drained.start()
        drained.join()
        engine.allocate(["b"], [4])
    assert in_state(engine, "QUARANTINED") == set()
    engine.allocate(["b"], [20])
    assert len(set(row_pages(engine, "b"))) == 5
    engine.abort("b")
    ends_clean(engine)


def loading():
    """R1 of C46 waits for a load into pages 1-8."""
    observer = watch(4, 8)
    tell(
        observer,
        admitted("r1", 1, 32),
        allocated({1: 32}, range(1, 9)),
        pinned("load of r1", range(1, 9), kind="load", writes=True),
    )
    return observer


def test_c46_the_completion_is_filtered_away():
    """C46: the load of a cancelled request ends, its notice is dropped, pages 1-8 stay taken."""
    observer = loading()
    tell(observer, released("r1", 1, "aborted", range(1, 9)))
    found = broken_by(observer, Marked("idle", idle=True))
    assert found.id == "idle-no-leak"
    assert found.evidence["pins"] == ["load of r1"]


def test_c46_the_cancelled_request_is_kept_for_good():
    """C46: where the cancelled request itself is kept, the idle mark names it and its load."""
    found = broken_by(loading(), Marked("idle", idle=True))
    assert found.id == "idle-no-leak"
    assert found.evidence["holders"] == ["request r1"]
    assert found.evidence["pins"] == ["load of r1"]


def test_c46_a_completion_counts_whatever_the_request_is():
    """C46: the load's one completion frees the pages of a request that is long gone."""
    engine = run_engine(4, 8)
    engine.admit("r1", list(range(32)))
    engine.allocate(["r1"], [32])
    engine.pin("load of r1", range(1, 9), "load", writes=True)
    engine.abort("r1")
    assert in_state(engine, "QUARANTINED") == set(range(1, 9))
    engine.post_unpin("load of r1")
    prefill(engine, "r2", [1])
    assert in_state(engine, "QUARANTINED") == set()
    assert engine.stats().pins == 0
    engine.abort("r2")
    with refused(engine, PinRefused, "no pin 'load of r1'"):
        engine.unpin("load of r1")
    ends_clean(engine)
