"""Conditions on a state: what they say of it, and what is said of one that is none."""

import re
from pathlib import Path

import pytest
import recorded_runs as made

from kvlife import CacheGroup, Observer, PoolConfig
from kvlife.errors import ConfigError
from kvlife.events import Pinned, Retracted, SessionSaved, StepDispatched
from kvlife.replay.finding.conditions import MAX_DEPTH, MAX_LENGTH, parse_condition
from kvlife.replay.finding.metrics import METRICS

CONFIG = made.CONFIG


def state_of(*events, config=CONFIG):
    observer = Observer(config, clock=lambda: 0)
    for event in events:
        observer.observe(event)
    return observer.ledger


@pytest.fixture
def ledger():
    """Row 1: request r1 with pages 1 and 2, 8 tokens, 6 committed; row 2: session s1, page 3."""
    return state_of(
        made.admitted("r1", 1),
        made.allocated([1], [8], [1, 2]),
        made.committed([1], [6]),
        made.admitted("r 2", 2, prompt_len=4),
        made.allocated([2], [4], [3]),
        made.committed([2], [4]),
        SessionSaved("s1", "r 2", 2, 4, (made.ints(),)),
        Pinned("p1", "store", False, None, 0, made.ints(1, 2)),
        StepDispatched(5, made.ints(1)),
        made.admitted("r3", 3),
        Retracted("r3", 3, None, (made.ints(),)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "free_pages == 28",  # 32 less page 0 and three pages
        "used_pages == 3 and private_pages == 3 and num_pages == 32",
        "cached_pages == 0 and evictable_pages == 0 and quarantined_pages == 0",
        "pinned_pages == 2 and shared_pages == 0",
        "free_pages(space=full) == 28 and free_pages(group=full) == 28",
        "state(page=1) == PRIVATE and state(page=4) == FREE and state(page=0) == RESERVED",
        "refs(page=1) == 1 and pins(page=1) == 1 and pins(page=3) == 0",
        "pages(row=1) == 2 and pages(request=r1) == 2 and pages(session=s1) == 1",
        "committed(request=r1) == 6 and allocated(request=r1) == 8 and protected(row=1) == 0",
        # What the step in flight writes, [6, 8), is not settled.
        "settled(request=r1) == 6 and in_flight(request=r1) == 1 and open_steps == 1",
        "state(row=1) == HELD and state(row=3) == FREE and state(request=r1) == HELD",
        "state(request=r3) == WAITING and state(request=r9) == ABSENT",
        "state(session=s1) == IDLE and state(session=s9) == ABSENT",
        "rows_held == 2 and rows_draining == 0 and rows_free == 2",
        "num_requests == 1 and num_waiting == 1 and num_sessions == 1 and num_pins == 1",
        "committed_tokens == 10 and allocated_tokens == 12",
        "seq == 10",
        "28 == free_pages",
        "free_pages > rows_held",
        "state(page=1) == state(page=2)",
        "state(page=1) != CACHED",
        "free_pages>=28 and free_pages<=28 and not free_pages!=28",
        "free_pages < 0 or rows_held > 1",
        "not (free_pages < 0 or rows_held > 2)",
        "free_pages > 1 or free_pages > 1 and free_pages < 0",  # `and` binds closer
        "free_pages > -1_000",
        "committed(request='r1') > 0",
        'not committed(request="r 2") > 0',
    ],
)
def test_a_condition_holds(ledger, text):
    """Each of these is true of the one state, by what it is made of."""
    condition = parse_condition(text, ledger.layout)
    assert condition.holds(ledger), condition.values(ledger)


def test_every_metric_has_a_value(ledger):
    """There is no metric that cannot be read, given what it must be given."""
    config = PoolConfig(
        page_size=4,
        num_pages=16,
        max_requests=2,
        max_context_len=32,
        groups=(CacheGroup("full"), CacheGroup("swa", window=8)),
        host_pages=8,
    )
    ledger = Observer(config, clock=lambda: 0).ledger
    for metric in METRICS.values():
        for name in metric.one_of or (None,):
            arguments = {} if name is None else {name: "1"}
            if "group" in metric.optional and metric.name != "pages":
                arguments["group"] = "swa"
            value = metric.bind(ledger.layout, arguments)(ledger)
            if name in ("request", "session") and metric.name != "state":
                assert value is None
            else:
                assert isinstance(value, str if metric.name == "state" else int)


def test_what_is_not_there_makes_every_comparison_false(ledger):
    """A request that holds no row has no committed length: it is neither below nor above."""
    for text in ("committed(request=r9) > 5", "committed(request=r9) <= 5", "refs(page=99) == 0"):
        condition = parse_condition(text, ledger.layout)
        assert not condition.holds(ledger)
        (term,) = condition.terms
        assert term.asked
        assert not term.had_value
    assert parse_condition("not committed(request=r9) > 5", ledger.layout).holds(ledger)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 0, "a metric or a number was expected"),
        ("free_pages <", 12, "a metric or a number was expected"),
        ("free_pages 100", 11, "one of <= >= == != < > was expected"),
        ("free_pages = 100", 11, "compared with =="),
        ("free_page < 100", 0, "did you mean free_pages?"),
        ("ladder-ordr", 0, "did you mean ladder-order?"),
        ("ladder-order and free_pages < 3", 0, "stands alone"),
        ("free_pages < 1.5", 13, "a whole number was expected"),
        ("free_pages < 100 rows_held > 3", 17, "nothing more was expected"),
        ("(free_pages < 100", 17, "`)` was expected"),
        ("refs > 1", 0, "wanted refs(page=N"),
        ("refs(page=12, page=13) > 1", 14, "stands twice"),
        ("refs(row=12) > 1", 5, "refs takes page=, space=, group="),
        ("refs(page=x) > 1", 0, "wanted a whole number"),
        ("committed(row=9) > 1", 0, "the rows are 0 to 4"),
        ("committed(row=1, request=r1) > 1", 0, "with one of them"),
        ("free_pages(space=swa) > 1", 0, "no such page space; there are full"),
        ("free_pages(group=swa) > 1", 0, "no such cache group; there are full"),
        ("cursor(row=1) > 1", 0, "window group"),
        ("rows_held(row=1) > 1", 10, "rows_held takes no arguments"),
        ("state(page=1) == CASHED", 17, "a state is one of FREE, PRIVATE, CACHED"),
        ("state(request=r1) == CACHED", 21, "a state is one of HELD, WAITING, ABSENT"),
        ("state(page=1) < CACHED", 14, "== and !="),
        ("state(page=1) == 2", 17, "not a number"),
        ("FREE == FREE", 0, "no such metric: FREE"),
        ("and free_pages < 3", 0, "a metric or a number was expected"),
        ("free_pages < 3 and", 18, "a metric or a number was expected"),
        ("free_pages(", 11, "free_pages takes space=, group="),
        ("free_pages(space=", 17, "a value was expected"),
        ("__import__('os')", 0, "no such metric: __import__"),
    ],
)
def test_what_does_not_parse_is_shown(text, place, words):
    """The message says what was expected, and a caret stands under the place."""
    with pytest.raises(ConfigError) as caught:
        parse_condition(text, state_of().layout)
    first, shown, caret, known, _ = str(caught.value).split("\n")
    assert words in first
    assert shown == f"  {text}"
    assert caret == " " * (place + 2) + "^"
    assert "free_pages" in known


def test_hostile_conditions_are_refused():
    """Neither depth nor length nor control characters do more than an error."""
    layout = state_of().layout
    deep = "(" * MAX_DEPTH + "seq > 1" + ")" * MAX_DEPTH
    assert parse_condition(deep[1:-1], layout)
    for text in (
        "not " * 2000,
        "(" * 3000,
        deep,
        "x" * (MAX_LENGTH + 1),
        "\x1b[2J < 3",
        "9" * 4000,
    ):
        with pytest.raises(ConfigError) as caught:
            parse_condition(text, layout)
        assert "\x1b" not in str(caught.value)


def test_a_function_that_ends_the_process_is_refused(tmp_path, monkeypatch, ledger):
    """A script that exits where it is imported, or a function that does, is no answer of 0."""
    (tmp_path / "script_that_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be imported \(SystemExit: 0\)"):
        parse_condition("script_that_exits:full", ledger.layout)
    with pytest.raises(ConfigError, match="failed on the state before seq 11: SystemExit"):
        parse_condition("sys:exit", ledger.layout).holds(ledger)


def test_a_function_of_the_current_folder_is_called(tmp_path, monkeypatch, ledger):
    """`module:function` is imported from where one is, and asked about the ledger."""
    (tmp_path / "questions_asked.py").write_text(
        "def full(ledger):\n    return ledger.spaces[0].free.num_free == 28\n"
        "def fails(ledger):\n    return 1 // 0\n"
        "LIMIT = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    condition = parse_condition("questions_asked:full", ledger.layout)
    assert condition.holds(ledger)
    assert not condition.holds(state_of())
    with pytest.raises(ConfigError, match="failed on the state before seq 11: ZeroDivisionError"):
        parse_condition("questions_asked:fails", ledger.layout).holds(ledger)
    for text, words in (
        ("questions_asked:LIMIT", "is no function, but int"),
        ("questions_asked:nothing", "cannot be imported"),
        ("no_such_module:full", "cannot be imported"),
    ):
        with pytest.raises(ConfigError, match=words):
            parse_condition(text, ledger.layout)


def test_in_a_window_group_a_cursor_can_be_compared():
    """The one window group need not be named; a page must say which space it is of."""
    config = PoolConfig(
        page_size=4,
        num_pages=16,
        max_requests=2,
        max_context_len=32,
        groups=(CacheGroup("full"), CacheGroup("swa", window=8)),
    )
    ledger = Observer(config, clock=lambda: 0).ledger
    assert parse_condition("cursor(row=1) == 0", ledger.layout).holds(ledger)
    assert parse_condition("refs(page=1, group=swa) == 0", ledger.layout).holds(ledger)
    assert parse_condition("free_pages == 30", ledger.layout).holds(ledger)
    with pytest.raises(ConfigError, match=r"add space= \(one of full, swa\)"):
        parse_condition("refs(page=1) == 0", ledger.layout)


def test_the_conditions_of_the_docs_parse():
    """Each `kvlife bisect` line of docs/finding.md is a condition."""
    page = Path(__file__).parents[2] / "docs" / "finding.md"
    found = re.findall(r"kvlife bisect LOG '(.*)'", page.read_text(encoding="utf-8"))
    assert len(found) >= 3
    for text in found:
        assert parse_condition(text, state_of().layout).terms
