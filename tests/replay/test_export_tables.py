"""`kvlife export --to parquet`: the tables as pyarrow reads them."""

import numpy as np
import pytest
from recorded_runs import admitted, allocated, answered, crowded_engine, observe, ran
from told_runs import EVENTS, KEYS, told_run

from kvlife import CacheGroup
from kvlife.events import FIELDS, FieldKind
from kvlife.ledger import PageState
from kvlife.log import open_run
from kvlife.replay.history.timeline import Timeline

pq = pytest.importorskip("pyarrow.parquet", reason="the extra arrow is not installed")


def exported(capsys, log, *arguments):
    folder = log.parent / f"{log.name}.tables"
    status, told = answered(capsys, "export", log, "--to", "parquet", "-o", folder, *arguments)
    assert status == 0
    tables = {path.stem: pq.read_table(path) for path in folder.iterdir()}
    assert told["rows"] == {f"{name}.parquet": t.num_rows for name, t in tables.items()}
    assert set(tables) == {"events", "requests", "page_lives"}
    return {name: table.to_pylist() for name, table in tables.items()}


def test_events_table_has_every_event(tmp_path, capsys):
    """A row for each event, in order, with the values that the event was made with."""
    rows = exported(capsys, told_run(tmp_path / "log"))["events"]
    assert [row["seq"] for row in rows] == list(range(29))
    assert [row["time_ns"] for row in rows] == [1000 * (seq + 1) for seq in range(29)]
    assert [row["event"] for row in rows] == [type(event).__name__ for event in EVENTS]
    assert (rows[1]["rows"], rows[1]["allocated_len"], rows[1]["pages_full"]) == ([1], [8], [1, 2])
    assert (rows[3]["pin_id"], rows[3]["pin_kind"], rows[3]["writes"]) == ("p1", "copy", False)
    assert (rows[3]["owner"], rows[3]["group"], rows[3]["pages_full"]) == ("r1", "full", [1])
    assert rows[14]["keys_full"] == list(KEYS)
    assert rows[23]["reason"] == "aborted"
    assert (rows[24]["of_step"], rows[24]["drained"], rows[24]["step"]) == (1, [2], 0)
    assert (rows[26]["text"], rows[26]["idle"]) == ("all quiet", True)
    assert rows[26]["rid"] is rows[26]["pages_full"] is None


def test_requests_table_has_each_turn(tmp_path, capsys):
    """Who ended how, when, at which lengths, after how many retractions and how much waiting."""
    rows = exported(capsys, told_run(tmp_path / "log"))["requests"]
    picked = [
        (r["request"], r["session"], r["begun_seq"], r["ended_seq"], r["ended"], r["committed_len"])
        for r in rows
    ]
    assert picked == [
        ("r1", "s1", 0, 5, "saved", 8),
        ("r2", "s1", 6, 9, "saved", 12),
        ("r3", None, 11, 15, "finished", 8),
        ("r4", None, 16, 23, "aborted", 8),
        ("r5", None, 27, None, "open", 0),
    ]
    r4 = rows[3]
    assert (r4["retractions"], r4["waited_ns"], r4["row"]) == (1, 1000, 2)
    assert (r4["prompt_len"], r4["prefix_len"], r4["allocated_len"]) == (12, 8, 12)
    assert (r4["begun_time_ns"], r4["ended_time_ns"]) == (17_000, 24_000)
    assert rows[4]["allocated_len"] == 4


def test_page_lives_table_has_each_life(tmp_path, capsys):
    """Taken for whom, published, hit and freed by which event; what goes on has no end."""
    rows = exported(capsys, told_run(tmp_path / "log"))["page_lives"]
    lives = {
        (r["page"], r["taken_seq"]): (
            r["request"], r["published_seq"], r["key"], r["hits"], r["freed_seq"], r["freed_by"],
        )
        for r in rows
    }  # fmt: skip
    assert len(lives) == len(rows)
    assert lives == {
        (1, 1): ("r1", None, None, 0, 10, "SessionClosed"),
        (2, 1): ("r1", None, None, 0, 10, "SessionClosed"),
        (3, 7): ("r2", None, None, 0, 10, "SessionClosed"),
        (4, 12): ("r3", 14, KEYS[0], 2, None, None),
        (5, 12): ("r3", 14, KEYS[1], 2, 25, "Evicted"),
        (6, 17): ("r4", None, None, 0, 18, "Retracted"),
        (7, 20): ("r4", None, None, 0, 24, "StepSettled"),
        # Let go at 22 with a step in flight, under which it was pinned.
        (8, 20): ("r4", None, None, 0, 24, "StepSettled"),
        (9, 28): ("r5", None, None, 0, None, None),
    }
    assert [r["last_hit_seq"] for r in rows if r["page"] in (4, 5)] == [19, 19]


@pytest.mark.parametrize("groups", [None, (CacheGroup("full"), CacheGroup("swa", window=8))])
def test_tables_agree_with_the_states(tmp_path, capsys, seed, groups):
    """In a random run the lives that are open at a seq are the pages in use in its state."""
    crowded_engine(tmp_path / "log", seed=seed, groups=groups, num_steps=150)
    tables = exported(capsys, tmp_path / "log")
    run = open_run(tmp_path / "log")
    timeline = Timeline(run)
    lives = tables["page_lives"]
    assert all(life["request"] is not None for life in lives)
    for seq in (0, run.next_seq // 3, run.next_seq // 2, run.next_seq):
        ledger = timeline.state(seq)
        for layout, space in zip(ledger.layout.spaces, ledger.spaces, strict=True):
            there = {
                life["page"]
                for life in lives
                if life["space"] == layout.name
                and life["taken_seq"] < seq
                and (life["freed_seq"] is None or life["freed_seq"] >= seq)
            }
            in_use = np.flatnonzero((space.state > PageState.FREE) & (space.state < 4))
            assert there == set(in_use.tolist())
        cached = sum(int(np.count_nonzero(space.state == 2)) for space in ledger.spaces)
        published = [life for life in lives if (life["published_seq"] or seq) < seq]
        assert cached == sum(
            life["freed_seq"] is None or life["freed_seq"] >= seq for life in published
        )
        open_now = {
            row["request"]
            for row in tables["requests"]
            if row["begun_seq"] < seq and (row["ended_seq"] is None or row["ended_seq"] >= seq)
        }
        assert open_now == set(ledger.requests) | set(ledger.waiting)
    hits = sum(
        pages.size
        for item in run.events()
        if type(item.event).__name__ == "Admitted"
        for pages in item.event.pages
    )
    rebinds = sum(
        len(item.event.rebinds) for item in run.events() if type(item.event).__name__ == "Protected"
    )
    assert sum(life["hits"] for life in lives) == hits + rebinds > 0


def test_table_of_a_part_has_no_beginning_before_it(tmp_path, capsys):
    """What was there when the part begins has no event that began it."""
    tables = exported(capsys, told_run(tmp_path / "log"), "--from", 13, "--until", 18)
    assert [row["seq"] for row in tables["events"]] == [13, 14, 15, 16, 17, 18]
    lives = {life["page"]: life for life in tables["page_lives"]}
    assert (lives[4]["taken_seq"], lives[4]["published_seq"], lives[4]["freed_seq"]) == (
        None, 14, None,
    )  # fmt: skip
    assert (lives[6]["taken_seq"], lives[6]["freed_seq"]) == (17, 18)
    assert [(r["request"], r["begun_seq"], r["ended_seq"]) for r in tables["requests"]] == [
        ("r3", None, 15),
        ("r4", 16, None),
    ]


def test_event_that_ended_the_run_is_there(tmp_path, capsys):
    """What a guard refused stands in the table of events, and did nothing to requests and pages."""
    double = [[admitted("r1", 1)], [allocated([1], [8], [3, 3])]]
    observe(tmp_path / "log", double)
    tables = exported(capsys, tmp_path / "log")
    assert [row["event"] for row in tables["events"]] == ["Admitted", "Allocated", "Violated"]
    assert tables["events"][1]["pages_full"] == [3, 3]
    assert (tables["events"][2]["invariant"], tables["events"][2]["of_seq"]) == (
        "page-double-alloc",
        1,
    )
    assert tables["page_lives"] == []
    assert tables["requests"][0]["allocated_len"] == 0


PER_GROUP = (FieldKind.PAGES, FieldKind.GROUP_PAGES, FieldKind.KEYS, FieldKind.DIGESTS)


def test_columns_have_their_meaning(tmp_path, capsys):
    """Each column of each file says what it holds, and every field of every event has one."""
    exported(capsys, told_run(tmp_path / "log"))
    folder = tmp_path / "log.tables"
    for path in folder.iterdir():
        schema = pq.read_schema(path)
        assert all(len(schema.field(name).metadata[b"doc"]) > 5 for name in schema.names)
    names = set(pq.read_schema(folder / "events.parquet").names)
    renamed = {"step", "seq", "kind"}
    for fields in FIELDS.values():
        for field in fields:
            per_group = field.kind in PER_GROUP
            if field.name not in renamed and field.name != "evicted_len":
                assert (f"{field.name}_full" if per_group else field.name) in names


def test_nothing_is_written_over(tmp_path, capsys):
    """A folder that holds something is left as it is, and a failed export leaves nothing."""
    log = told_run(tmp_path / "log")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("mine")
    status, _, err = ran(capsys, "export", log, "--to", "parquet", "-o", tmp_path / "taken")
    assert status == 2
    assert "name a new or an empty folder" in err
    status, _, _ = ran(capsys, "export", log, "--to", "parquet", "-o", tmp_path / "t", "--from", 99)
    assert status == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "taken"]


def test_empty_log_makes_empty_tables(tmp_path, capsys):
    """A run without events has tables without rows."""
    observe(tmp_path / "log", [])
    assert exported(capsys, tmp_path / "log") == {"events": [], "requests": [], "page_lives": []}
