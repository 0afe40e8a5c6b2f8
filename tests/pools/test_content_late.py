"""Content checks on a device that is behind: what comes late says the same."""

import pytest
from content_runs import Run, events_of

from kvlife.events import Committed, Digested
from kvlife.pools import DevicePools, agreement, kept_digests

TOKENS = list(range(100, 118))


class Later:
    """An event of a stream that is reached when the host waits for it, and not before."""

    def __init__(self):
        self.reached = False

    def query(self):
        return self.reached

    def synchronize(self):
        self.reached = True


@pytest.fixture
def late(monkeypatch):
    """A run whose pools read findings and digests as from a GPU."""
    run = Run()
    content = run.pools._content
    content._is_late, content._watch._on_host, content._watch._count = True, False, None
    monkeypatch.setattr(agreement, "_to_host", lambda tensor: (tensor.clone(), Later()))
    return run


def test_a_finding_is_at_most_one_step_late(late):
    """The buffer is asked for at the start of a step, and read by the start of the next one."""
    late.admitted("r1", TOKENS)
    late.admitted("r2", [1, 2, 3])
    batch = late.engine.batch(["r2"])
    late.engine.decode(batch)
    late.flip(2)
    late.engine.abort("r1")
    seq = late.last_seq
    late.engine.commit(batch)
    assert not late.found
    late.engine.decode(batch)
    late.engine.commit(batch)
    late.engine.decode(batch)
    assert [(each.id, each.seq) for each in late.found] == [("content-unchanged", seq)]
    assert late.found[0].evidence["completed_for"] == ["request r1"]
    assert late.found[0].evidence["holders"] == ["request r1"]
    for _ in range(4):
        late.engine.commit(batch)
        late.engine.decode(batch)
    # What no finding can be about any more is let go.
    assert len(late.pools._content._looks) < 4
    late.engine.close()
    assert len(late.found) == 1


def test_the_end_of_a_run_waits(late):
    """Whatever was on its way is read before the log is closed."""
    late.admitted("r1", TOKENS)
    late.flip(2)
    late.engine.abort("r1")
    assert not late.found
    late.engine.close()
    assert [each.evidence["pages"] for each in late.found] == [[2]]


@pytest.mark.parametrize("gone", [False, True])
def test_digests_that_come_late_are_recorded_while_they_hold(monkeypatch, gone):
    """Behind a later group, or never where the page has another content by then."""
    run = Run()
    events = events_of(run)
    waiting = []

    def send(seq, group, pages, digests):
        waiting.append(Later())
        return kept_digests.TakenDigests(seq, group, pages, digests, waiting[-1])

    monkeypatch.setattr(kept_digests.TakenDigests, "send", send)
    run.admitted("r1", TOKENS)
    sound = [run.digest(page) for page in (1, 2, 3, 4)]
    assert isinstance(events[-1], Committed)
    if gone:
        run.engine.roll_back(["r1"], [8])
    for event in waiting:
        event.reached = True
    run.engine.mark("the next group")
    assert isinstance(events[-1], Digested)
    num = 2 if gone else 4
    assert events[-1].pages.tolist() == [1, 2, 3, 4][:num]
    assert events[-1].digests.tolist() == sound[:num]


def test_digests_are_recorded_in_the_order_in_which_they_were_taken(monkeypatch):
    """One that is there before an earlier one waits for it."""
    run = Run()
    events = events_of(run)
    waiting = []

    def send(seq, group, pages, digests):
        waiting.append(Later())
        return kept_digests.TakenDigests(seq, group, pages, digests, waiting[-1])

    monkeypatch.setattr(kept_digests.TakenDigests, "send", send)
    run.admitted("r1", TOKENS[:4])
    run.admitted("r2", TOKENS[:9])
    waiting[1].reached = True
    run.engine.mark("the second is there")
    assert Digested not in map(type, events)
    run.engine.close()  # waits
    told = [event.pages.tolist() for event in events if isinstance(event, Digested)]
    assert told == [[1], [2, 3]]


def test_findings_that_come_late_say_the_same(monkeypatch):
    """As on a device that is a step behind: the pages have been freed and taken by then."""
    run = Run()
    run.admitted("r1", TOKENS)
    sound = f"{run.digest(2):016x}"
    run.flip(2)
    drain = DevicePools.drain
    monkeypatch.setattr(DevicePools, "drain", lambda _self, **_more: ())
    run.engine.abort("r1")
    seq = run.last_seq
    run.engine.admit("r2", TOKENS)
    run.compute(["r2"], [8])
    monkeypatch.setattr(DevicePools, "drain", drain)
    run.engine.mark("the device is asked")
    assert [(each.id, each.seq) for each in run.found] == [("content-unchanged", seq)]
    evidence = run.found[0].evidence
    assert (evidence["pages"], evidence["digests"]) == ([2], [sound])
    assert evidence["completed_for"] == ["request r1"]
    assert "request r1" in evidence["holders"]
    run.engine.audit()
    assert len(run.found) == 1  # the page's new digest was left alone
