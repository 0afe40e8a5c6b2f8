"""The log and the engine of this project keep the contracts; what does not keep them is told."""

import re
from pathlib import Path

import pytest

from kvlife import KvEngine, LogWriter, open_run
from kvlife.log import runs
from kvlife.testing import conformance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fuzzing.md"
(ON_THE_PAGE,) = re.findall(
    r"<!-- file: test_contracts.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
)
page = {"__name__": __name__}
exec(compile(ON_THE_PAGE, str(PAGE), "exec"), page)  # noqa: S102  # what the page shows is run

# `KvEngine`, as the page has it.
TestOurEngine = page["TestMyBinding"]


class TestOurLog(page["TestMyStore"]):
    """`LogWriter` and `open_run`, which can be torn."""

    def tear(self, path, num_bytes):
        """Cut the last segment behind its last byte in use, less so many."""
        segment = max(runs(path)[-1].glob("*.seg"))
        content = segment.read_bytes().rstrip(b"\0")
        segment.write_bytes(content[:-num_bytes])


class TestSmallSegments(TestOurLog):
    """Small segments, a snapshot whenever there is something to write, no compression."""

    def writer(self, path):
        return LogWriter(path, segment_bytes=4096, snapshot_every_bytes=256, compress=False)


class ForgetfulWriter(LogWriter):
    """Loses the last event of a larger group."""

    def append(self, seq, step, time_ns, events):
        super().append(seq, step, time_ns, events[:-1] if len(events) > 2 else events)


class HastyEngine(KvEngine):
    """Takes an abort for the end of every step that is in flight."""

    def abort(self, rid):
        for step in list(self.ledger.steps):
            self.settle(step)
        super().abort(rid)


FAULTY = {
    conformance.LogStoreConformance: (
        {"writer": lambda _, path: ForgetfulWriter(path), "reader": lambda _, path: open_run(path)},
        {"test_groups_stay_whole", "test_many_events_come_back"},
    ),
    conformance.EngineConformance: (
        {"engine": lambda _, config, **options: HastyEngine(config, key_seed=1, **options)},
        {"test_pages_in_flight_wait_for_their_step"},
    ),
}


@pytest.mark.parametrize("contract", FAULTY, ids=lambda contract: contract.__name__)
def test_what_breaks_the_contract_is_told(contract):
    """A log that loses events, and an engine that does not wait, fail the tests they should."""
    methods, wanted = FAULTY[contract]
    case = type("Faulty", (contract,), methods)
    failed = set()
    for name in wanted:
        outcome = case(name).run()
        if not outcome.wasSuccessful():
            failed.add(name)
    assert failed == wanted


def test_the_contracts_themselves_are_not_collected():
    """Only a subclass of a user is a set of tests."""
    assert not conformance.LogStoreConformance.__test__
    assert not conformance.EngineConformance.__test__
    assert TestOurLog.__test__
