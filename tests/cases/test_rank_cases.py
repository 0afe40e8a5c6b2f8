"""Ranks of one group that decide by themselves: C79."""

import json

from scenes import admitted, allocated, committed, pinned, pools, published, released, unpinned

from kvlife.engine import Observer
from kvlife.invariants import Checker
from kvlife.log import LogWriter
from kvlife.replay.cli import main

NODE = [1, 2, 3, 4]


def rank_of(root, rank, *, host_pages):
    """A rank that backs node N up if its own host pool has room, and hands it to a request."""
    observer = Observer(
        pools(4, 16),
        log=LogWriter(root / str(rank)),
        checker=Checker(),
        clock=lambda: rank,
        group="tensor-parallel",
        rank=rank,
        world_size=2,
    )
    observer.observe(
        admitted("r1", 1, 16),
        allocated({1: 16}, NODE),
        committed({1: 16}),
        published(1, 16, range(101, 105)),
        released("r1", 1, "finished", NODE),
    )
    if host_pages >= len(NODE):
        observer.observe(pinned("backup of N", NODE, kind="store"))
        observer.observe(unpinned("backup of N", NODE))
    observer.observe(admitted("r2", 2, 17, NODE, prefix_len=16))
    observer.observe(allocated({2: 17}, [5]))
    observer.observe(committed({2: 17}))
    observer.observe(released("r2", 2, "finished", [*NODE, 5]))
    observer.close()
    return root / str(rank)


def difference(capsys, *paths):
    status = main(["diff", *map(str, paths), "--json"])
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    return status, comparison


def test_c79_a_backup_decided_from_local_state(tmp_path, capsys):
    """C79: 4 host pages free on rank 0, 3 on rank 1: the logs part at the backup of N, seq 5."""
    ranks = [rank_of(tmp_path, rank, host_pages=room) for rank, room in ((0, 4), (1, 3))]
    status, seen = difference(capsys, *ranks)
    assert status == 1
    assert seen["header"] == []
    assert (seen["first"]["left"]["seq"], seen["first"]["left"]["kind"]) == (5, "Pinned")
    assert seen["first"]["right"]["kind"] == "Admitted"
    # What rank 0 locks and rank 1 does not, for as long as the copy takes.
    assert seen["only_left"] == {"Pinned": 1, "Unpinned": 1}
    assert (seen["only_right"], seen["together_again"]) == ({}, [7, 5])


def test_c79_ranks_that_decide_alike_write_the_same_events(tmp_path, capsys):
    """C79: decided from the smaller of both, neither rank backs N up, and the logs agree."""
    ranks = [rank_of(tmp_path, rank, host_pages=min(4, 3)) for rank in (0, 1)]
    status, seen = difference(capsys, *ranks)
    assert (status, seen["first"], seen["num_same"]) == (0, None, 9)
