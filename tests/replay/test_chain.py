"""The chain of events behind a violation: who had the page, back to where its life began."""

import numpy as np
import recorded_runs as made

from kvlife import Checker, open_run
from kvlife.events import Evicted, Pinned, Protected, StepDispatched, Unpinned
from kvlife.replay.history.chain import MAX_LINKS, explain
from kvlife.replay.replaying.session import Settings, replay_run


def chain_of(path):
    """The chain behind the first violation of a run."""
    run = open_run(path)
    return explain(run, replay_run(run, Settings()).first)


def texts(chain, where):
    return [(link.seq, link.event, link.text) for link in chain.links if link.where == where]


def published(row, num_pages):
    keys = np.arange(1, num_pages + 1, dtype=np.uint64)
    keys.setflags(write=False)
    rebinds = np.empty((0, 4), np.int32)
    rebinds.setflags(write=False)
    return Protected(row, 4 * num_pages, (keys,), rebinds)


def test_a_page_is_followed_from_its_allocation_to_its_second_release(tmp_path):
    """Taken, published, let go by its row, evicted; then released by a row that never had it."""
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1)],
            [made.allocated([1], [8], [1, 2])],
            [made.committed([1], [8])],
            [published(1, 2)],
            [made.released("r1", 1, [1, 2])],
            [Evicted("pressure", (made.ints(2),))],
            [made.admitted("r2", 2)],
            [made.allocated([2], [4], [5])],
            [made.released("r2", 2, [2], "aborted")],
        ],
    )
    chain = chain_of(tmp_path)
    assert texts(chain, "page 2 of full") == [
        (1, "Allocated", "FREE -> PRIVATE, refs 0 -> 1, page 1 of row 1 (request r1)"),
        (
            3,
            "Protected",
            "PRIVATE -> CACHED, published as 0000000000000002, by row 1 (request r1)",
        ),
        (4, "Released", "CACHED, refs 1 -> 0, by row 1 (request r1)"),
        (5, "Evicted", "CACHED -> FREE, for pressure"),
    ]
    assert texts(chain, "row 2") == [
        (
            6,
            "Admitted",
            "bound by request r2, prompt 8, protected 0, committed 0, allocated 0",
        ),
        (7, "Allocated", "allocated 4"),
    ]
    assert chain.complete
    assert chain.links[-1].seq == 8


def test_pins_are_named(tmp_path):
    """A pin that was taken and one that is still held stand in the chain of an eviction."""
    pages = made.ints(1)
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1, 4)],
            [made.allocated([1], [4], [1])],
            [made.committed([1], [4])],
            [published(1, 1)],
            [made.released("r1", 1, [1])],
            [Pinned("p1", "copy", False, None, 0, pages)],
            [Pinned("p2", "copy", False, None, 0, pages)],
            [Unpinned("p1", 0, pages)],
            [Evicted("pressure", (pages,))],
        ],
    )
    told = texts(chain_of(tmp_path), "page 1 of full")
    assert told[-3:] == [
        (5, "Pinned", "CACHED, pins 0 -> 1, by pin p1"),
        (6, "Pinned", "CACHED, pins 1 -> 2, by pin p2"),
        (7, "Unpinned", "CACHED, pins 2 -> 1, by pin p1"),
    ]


def test_the_search_goes_back_over_snapshots(tmp_path):
    """The page was taken before two snapshots; the chain finds it, and the row that has it."""
    other = made.life_of("other", 3, [9])
    other[1] = made.allocated([3], [8], [9, 10])
    other[3] = made.released("other", 3, [9, 10])
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1), made.allocated([1], [8], [1, 2])],
            "snapshot",
            other,
            "snapshot",
            [made.admitted("r2", 2)],
            [made.allocated([2], [4], [1])],
        ],
    )
    chain = chain_of(tmp_path)
    assert chain.complete
    assert [seq for seq, _, _ in texts(chain, "page 1 of full")] == [1]
    assert [seq for seq, _, _ in texts(chain, "row 2")] == [6]


def test_a_chain_is_short_and_keeps_the_beginning(tmp_path):
    """Of a page that 40 requests came and went on, the allocation and the last few are told."""
    lives = []
    for number in range(40):
        came = made.Admitted(f"c{number}", 2, 0, 8, 4, 0, (), (made.ints(1),))
        lives += [[came], [made.released(f"c{number}", 2, [1], "aborted")]]
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1, 4)],
            [made.allocated([1], [4], [1])],
            [made.committed([1], [4])],
            [published(1, 1)],
            *lives,
            [made.admitted("r2", 3)],
            [made.allocated([3], [4], [1])],
        ],
    )
    chain = chain_of(tmp_path)
    assert len(chain.links) <= MAX_LINKS + 1
    seqs = [link.seq for link in chain.links]
    assert seqs == sorted(seqs)
    told = texts(chain, "page 1 of full")
    assert told[0][:2] == (1, "Allocated")
    assert told[-1][:2] == (83, "Released")


def test_history_that_is_gone_is_said(tmp_path):
    """Where the row was bound before the first state that is known, the chain is not complete."""
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1), made.allocated([1], [8], [1, 2])],
            "snapshot",
            [made.committed([1], [12])],
        ],
    )
    run = open_run(tmp_path)
    run.begins_at = 2
    first = replay_run(run, Settings()).first
    assert (first.id, first.seq) == ("ladder-order", 2)
    assert explain(run, first).complete is False


def test_a_step_in_flight_is_told_of_its_row(tmp_path):
    """The row's last dispatch stands before the release that forgot it."""
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1)],
            [made.allocated([1], [8], [1, 2])],
            [StepDispatched(7, made.ints(1))],
            [made.released("r1", 1, [1, 2], "aborted")],
        ],
    )
    told = texts(chain_of(tmp_path), "row 1")
    assert told[-1] == (2, "StepDispatched", "dispatched in step 7")


def test_an_audits_finding_has_a_chain_too(tmp_path):
    """What only an audit finds is explained by the events that touched its pages."""
    checker = Checker(level="step", policy="collect")
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1), made.admitted("r2", 2)],
            [made.allocated([1], [4], [1])],
            [made.allocated([2], [4], [1])],
        ],
        checker=checker,
    )
    run = open_run(tmp_path)
    first = replay_run(run, Settings(level="step")).first
    assert first.event is None
    chain = explain(run, first)
    assert [seq for seq, _, _ in texts(chain, "page 1 of full")][:2] == [2, 3]
