"""What a search through a log has found: for people in lines, for machines as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from kvlife.errors import LogError
from kvlife.events import Recorded
from kvlife.ledger import Ledger
from kvlife.log import Gap, Skipped
from kvlife.replay.finding.bisection import Search, Searcher
from kvlife.replay.finding.conditions import Condition
from kvlife.replay.finding.invariant_search import Break
from kvlife.replay.finding.metrics import Value
from kvlife.replay.finding.state_difference import StateDifference, difference_of
from kvlife.replay.history.next_commands import next_commands
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.output.columns import Line, counted
from kvlife.replay.output.event_words import kind_of, words_of
from kvlife.replay.output.quoting import command_line, printable
from kvlife.replay.output.run_notes import run_notes
from kvlife.replay.replaying.outcome import Found


@attrs.frozen(kw_only=True)
class Answer:
    """What was asked and what was found.

    `before` and `after` are the values of the condition's metrics around the event that was found,
    or at the end where none was; `touched` is what the event changed. History `begins` at that
    seq; `lacks` says that events behind it, and before the one that was found, are not to be read.
    """

    path: str
    condition: str
    begins: int
    start: int
    stop: int
    lacks: bool
    search: Search
    way: str
    item: Recorded | None
    words: str
    before: Mapping[str, Value]
    after: Mapping[str, Value]
    touched: StateDifference | None
    found: Break | None
    commands: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        searcher: Searcher,
        found: Search | Break,
        condition: str,
        wanted: Condition | None,
    ) -> Answer:
        """Look at the event that was found, and at the state before it."""
        timeline = searcher.timeline
        broken = found if isinstance(found, Break) else None
        search = found.search if isinstance(found, Break) else found
        item, after = search.item, search.ledger
        before = None if item is None else _state(timeline, item.seq)
        if after is None:
            after = _state(timeline, searcher.stop if search.seq is None else search.seq)
        applied = item is not None and (broken is None or broken.applied)
        touched = difference_of(before, after) if applied and before and after else None
        return cls(
            path=str(timeline.run.path),
            condition=condition.strip(),
            begins=timeline.first_seq,
            start=searcher.start,
            stop=searcher.stop,
            lacks=_lacks(timeline, searcher.start, searcher.stop if item is None else item.seq),
            search=search,
            way=searcher.search if broken is None else broken.by,
            item=item,
            words="" if item is None else words_of(item.event, timeline.run.layout),
            before=wanted.values(before) if wanted and before else {},
            after=wanted.values(after) if wanted and after else {},
            touched=touched,
            found=broken,
            commands=_next(timeline, item, before, touched, broken),
            notes=tuple(_notes(timeline)),
        )


def _state(timeline: Timeline, seq: int) -> Ledger | None:
    try:
        return timeline.state(seq)
    except LogError:
        # Only under salvage, or behind a gap, is a search done where a state is not known.
        return None


def _lacks(timeline: Timeline, start: int, stop: int) -> bool:
    holes: tuple[Gap | Skipped, ...] = (*timeline.run.gaps, *timeline.run.skipped)
    return any(start <= hole.first_seq < stop for hole in holes)


def _notes(timeline: Timeline) -> Iterator[str]:
    if timeline.first_seq:
        yield (
            f"history begins at seq {timeline.first_seq}: what lies before is gone, and was not"
            " looked at"
        )
    yield from run_notes(timeline.run)
    yield from timeline.notes


def _next(
    timeline: Timeline,
    item: Recorded | None,
    before: Ledger | None,
    touched: StateDifference | None,
    broken: Break | None,
) -> tuple[str, ...]:
    if item is None:
        return ()
    if broken is None:
        return tuple(_commands(timeline, item, before, touched))
    found = Found(
        id=broken.id,
        sentence="",
        seq=item.seq,
        step=item.step,
        event=kind_of(item.event),
        evidence=broken.evidence,
        also={},
        applied=broken.applied,
        after_first=False,
    )
    return next_commands(timeline.run, found)


def _commands(
    timeline: Timeline,
    item: Recorded,
    before: Ledger | None,
    touched: StateDifference | None,
) -> Iterator[str]:
    """What shows more of the event: the state, a page it touched, whom it is about."""
    path = str(timeline.run.path)
    yield command_line("inspect", path, options={"at": item.seq})
    if touched is not None and touched.pages:
        space_idx, page = touched.pages[0]
        groups = timeline.run.layout.groups
        group = next(group.name for group in groups if group.space_idx == space_idx)
        yield command_line("page", path, str(page), options={"group": group})
    rid = getattr(item.event, "rid", None)
    if rid is None and before is not None:
        rows = touched.rows if touched is not None else ()
        row = getattr(item.event, "row", None)
        held = [before.rows.rid[each] for each in (*([] if row is None else [row]), *rows)]
        rid = next((name for name in held if name is not None), None)
    if rid is not None:
        yield command_line("request", path, rid)


def answer_lines(answer: Answer, seconds: float) -> Iterator[Line]:
    """The answer in lines."""
    yield "bold", f"bisect of {printable(answer.path)} for {printable(answer.condition)}"
    yield from _finding(answer)
    for name, value in answer.after.items():
        was = f"{answer.before[name]} -> " if name in answer.before else ""
        was = was.replace("None", "nothing")
        yield "", f"value       {name}: {was}{'nothing' if value is None else value}"
    if answer.found is not None:
        for name, fact in answer.found.evidence.items():
            yield "", f"evidence    {name}: {printable(str(fact))}"
    if answer.touched is not None:
        yield from _touched(answer.touched)
    yield from _certainty(answer)
    search = answer.search
    yield (
        "dim",
        (
            f"looked at   {counted(search.num_states, 'known state')},"
            f" {counted(search.num_events, 'event')},"
            f" in {seconds:.1f} s"
        ),
    )
    for note in answer.notes:
        yield "yellow", f"note        {printable(note)}"
    for command in answer.commands:
        yield "", f"next        {command}"


def _finding(answer: Answer) -> Iterator[Line]:
    search, item = answer.search, answer.item
    what = "it is broken" if answer.found is not None else "it holds"
    if item is not None:
        style = "bold red" if answer.found is not None else "bold green"
        yield style, f"found       seq {item.seq}, step {item.step}, time {_seconds(item)}"
        yield style, f"            {answer.words}"
        if answer.found is not None and not answer.found.applied:
            yield "", "            a guard refused it, which ended the run: it was not applied"
    elif search.seq is not None and search.missing_from is not None:
        yield (
            "bold yellow",
            (
                f"found       {what} in the state before seq {search.seq}; the events"
                f" [{search.missing_from}, {search.seq}) that led to it are not in the log"
            ),
        )
    elif search.seq == answer.start:
        yield (
            "bold yellow",
            (
                f"found       {what} already in the state before seq {search.seq}, where"
                f" {_beginning(answer)}; --from begins the search later"
            ),
        )
    elif search.seq is not None:
        yield (
            "bold yellow",
            (
                f"found       {what} in the snapshot of seq {search.seq}, and behind no event"
                " before it: that snapshot is not the state they lead to (see kvlife replay)"
            ),
        )
    elif answer.stop == answer.start:
        yield "bold", f"never       {what} not in the one state there is"
    elif answer.way == "guard":
        yield "bold green", f"never       no event of [{answer.start}, {answer.stop}) breaks it"
    else:
        seqs = f"[{answer.start}, {answer.stop})"
        yield "bold", f"never       {what} in no state before, between and after the events {seqs}"


def _seconds(item: Recorded) -> str:
    return f"{item.time_ns / 1e9:.6f} s"


def _touched(touched: StateDifference) -> Iterator[Line]:
    for entry in touched.entries:
        yield "", f"touched     {entry.what}: {entry.left} -> {entry.right}"
    more = sum(touched.counts.values()) - len(touched.entries)
    if more > 0:
        yield "", f"touched     in all {touched.told}"


def _certainty(answer: Answer) -> Iterator[Line]:
    search = answer.search
    if search.found and search.seq == answer.start:
        return
    if not search.found:
        if search.certain_from > answer.start:
            yield (
                "yellow",
                (
                    f"certain     of the {counted(search.num_states, 'state')} that were looked at;"
                    " between them it may have been broken for a while: --search=events looks there"
                ),
            )
        return
    if answer.found is not None and not search.num_events and not search.num_states:
        yield "green", "certain     the run's own checker asked about every event before it"
    elif search.certain_from <= answer.start:
        yield "green", f"certain     {_first_since(answer)}"
    elif answer.way == "halving":
        yield (
            "yellow",
            (
                f"certain     if it never ceases to hold; else it is the first behind seq"
                f" {search.certain_from}: --search=snapshots or events looks further"
            ),
        )
    else:
        yield (
            "yellow",
            (
                f"certain     from seq {search.certain_from} on; in no known state before does it"
                " hold, but between them it may have, for a while: --search=events looks there"
            ),
        )


def _beginning(answer: Answer) -> str:
    gone = answer.begins > 0 and answer.start == answer.begins
    return "history begins" if gone else "the search began"


def _first_since(answer: Answer) -> str:
    """What a whole look back at the log says, which may not have all that was."""
    every = "every event that can be read" if answer.lacks else "every event"
    if not answer.start:
        return f"{every} before it was looked at: it is the first" + " of these" * answer.lacks
    where = f"seq {answer.start}, where {_beginning(answer)},"
    return f"{every} from {where} was looked at: it is the first since then"


def answer_json(answer: Answer, seconds: float) -> dict[str, object]:
    """The object of `kvlife bisect --json`."""
    search, item, touched = answer.search, answer.item, answer.touched
    return {
        "log": answer.path,
        "condition": answer.condition,
        "found": search.found,
        "seq": None if item is None else item.seq,
        "step": None if item is None else item.step,
        "time_ns": None if item is None else item.time_ns,
        "kind": None if item is None else kind_of(item.event),
        "event": answer.words or None,
        "applied": item is not None and (answer.found is None or answer.found.applied),
        "holds_before_seq": search.seq,
        "missing_from": search.missing_from if item is None else None,
        "before": dict(answer.before),
        "after": dict(answer.after),
        "evidence": {} if answer.found is None else dict(answer.found.evidence),
        "touched": [] if touched is None else [attrs.asdict(entry) for entry in touched.entries],
        "num_touched": {} if touched is None else dict(touched.counts),
        "begins_at": answer.begins,
        "searched": [answer.start, answer.stop],
        "certain_from": search.certain_from,
        "states": search.num_states,
        "events": search.num_events,
        "notes": list(answer.notes),
        "next": list(answer.commands),
        "seconds": round(seconds, 3),
    }
