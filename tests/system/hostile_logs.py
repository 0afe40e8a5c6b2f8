"""Gives damaged and forged logs to the replay: `hostile_logs.py DIR NUM SEED [ONLY]`.

Each must end in an error of kvlife's own, in a violation or difference, or in what the run really
was: its state, or the state it had where the replay says that the log ends. It runs under an alarm,
and under a limit of 200 MB beyond what the header's pools take. Prints one line of JSON; ONLY
names a trial to run alone.
"""

import contextlib
import io
import json
import random
import resource
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import attrs
from damaged_files import Damage
from forged_events import write_forged
from forged_runs import ForgedRun
from small_runs import plan_of, writer_of

from kvlife.config import compile_layout, ledger_bytes, refuse_beyond_memory
from kvlife.errors import KvLifeError
from kvlife.ledger import Ledger
from kvlife.log import open_run
from kvlife.log.header import decode_header
from kvlife.replay.cli import main as command_line
from kvlife.replay.history.chain import explain
from kvlife.replay.history.next_commands import next_commands
from kvlife.replay.output.columns import print_lines
from kvlife.replay.replaying.report import as_json, report_lines
from kvlife.replay.replaying.session import Settings, replay_run
from kvlife.simulation import simulate

LIMIT_BYTES = 200 << 20
SECONDS = 20
# A header may ask for pools that are valid and large; these would take the test's time.
MOST_LEDGER_BYTES = 64 << 20


class TooLong(BaseException):
    """The alarm went off."""


@attrs.frozen(kw_only=True)
class Whole:
    """A run as it was written, and its digest after each group."""

    files: dict
    header: object
    groups: list
    digests: dict
    num_events: int
    digest: int
    closed: bool


def whole_run(folder, kind, *, close, compress):
    """A small simulated run; one that is not closed is taken away while it is written."""
    path = folder / "whole"
    log = writer_of(path, segment_bytes=1 << 12, snapshot_every_bytes=1 << 11, compress=compress)
    if not close:
        log.close = lambda digest=None: log.wait()
    simulate(plan_of(log, kind=kind, num_requests=12, seed=kind))
    (run_path,) = path.iterdir()
    files = {p.name: p.read_bytes() for p in run_path.iterdir() if p.suffix != ".tmp"}
    run = open_run(path)
    groups = list(run.groups())
    ledger, digests = Ledger(run.header.config), {}
    digests[0] = ledger.digest()
    for group in groups:
        for item in group:
            ledger.apply(item.event, item.seq, item.time_ns)
        digests[ledger.next_seq] = ledger.digest()
    if not close:
        type(log).close(log)
    shutil.rmtree(path)
    return Whole(
        files=files,
        header=run.header,
        groups=groups,
        digests=digests,
        num_events=run.next_seq,
        digest=ledger.digest(),
        closed=close,
    )


def whole_runs(folder):
    return [
        whole_run(folder, kind, close=close, compress=compress)
        for kind in range(4)
        for close, compress in ((True, False), (True, True), (False, False))
    ]


class Trial:
    """One hostile log: what was done, its path, and what may be said of it."""

    def __init__(self, folder, wholes, seed, idx):
        self.choice = random.Random(f"{seed} {idx}")
        self.path = folder / "hostile"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        family = self.choice.choice(("damaged", "damaged", "forged", "forged", "events"))
        if family == "damaged":
            self.whole = self.choice.choice(wholes)
            damage = Damage(self.whole.files, self.choice)
            self.what = damage.do()
            # What two damages have in common is not missed by looking at each alone.
            if self.choice.random() < 0.2:
                self.what += " " + damage.do()
            self._write(damage.files)
        elif family == "forged":
            self.whole = self.choice.choice(
                [w for w in wholes if not any("segz" in n for n in w.files)]
            )
            forged = ForgedRun(folder, self.whole.files, self.choice)
            self.what = forged.do()
            self._write(forged.built())
        else:
            self.whole = self.choice.choice([w for w in wholes if w.closed])
            self.what = write_forged(
                self.path, self.whole.header, self.whole.groups, self.whole.digest, self.choice
            )
            (self.path / "run-000001").mkdir(exist_ok=True)
        self.genuine = family == "damaged"
        self.family = family

    def _write(self, files):
        run = self.path / "run-000001"
        run.mkdir()
        for name, content in files.items():
            (run / name).write_bytes(content)

    def settings(self):
        """How the log is replayed: plainly first, and then in some other way."""
        yield Settings()
        snapshots = sorted(int(p.name[:20]) for p in self.path.glob("*/*.snap"))
        other = [Settings(salvage=True), Settings(collect=True), Settings(level="off")]
        if snapshots and snapshots[-1] < 1 << 40:
            other += [Settings(first_seq=self.choice.choice(snapshots))] * 2
            other += [Settings(first_seq=self.choice.choice(snapshots), collect=True)]
        yield self.choice.choice(other)


def pools_bytes(path):
    """What the pools take that the header names, if it names any; None where they are too large."""
    try:
        content = (path / "run-000001" / "header.json").read_bytes()
        layout = compile_layout(decode_header(content, "header").config)
        refuse_beyond_memory(layout)
    except (KvLifeError, OSError):
        return 0
    taken = ledger_bytes(layout)
    return taken if taken <= MOST_LEDGER_BYTES else None


def replayed(path, settings):
    """The error, or the outcome and the run, of a replay as the command does it."""
    error = None
    try:
        run = open_run(path, salvage=settings.salvage)
        outcome = replay_run(run, settings)
        chain = None if outcome.first is None else explain(run, outcome.first)
        commands = () if outcome.first is None else next_commands(run, outcome.first)
    except KvLifeError as complaint:
        error = complaint
    if error is not None:
        assert 10 < len(str(error)) < 2000, f"no clear error: {error}"
        return error, None, None
    with contextlib.redirect_stdout(io.StringIO()):
        print_lines(report_lines(outcome, chain, commands, 1.0))
    json.dumps(as_json(outcome, chain, commands, 1.0), default=str)
    return None, outcome, run


def judge(trial, settings):
    """What came of one replay, in a word; raises `AssertionError` where it is a silent lie."""
    error, outcome, run = replayed(trial.path, settings)
    if error is not None:
        return "error"
    if outcome.found:
        return "violation"
    if outcome.differences:
        return "difference"
    whole = trial.whole
    if outcome.digest == whole.digest and outcome.next_seq == whole.num_events:
        return "harmless"
    # Nothing was found, and it is another state: the replay must say where the log ends, and why.
    told = outcome.holes or outcome.lost or outcome.notes or not outcome.closed
    told = told or run.closed.digest is None
    assert told, f"a silent lie: {outcome}"
    if trial.genuine and not outcome.lost and not outcome.holes:
        wanted = whole.digests.get(outcome.next_seq)
        assert outcome.digest == wanted, f"a state that the run never had: {outcome}"
    if outcome.digest_ok and outcome.compared:
        assert run.closed.digest == outcome.digest
    return "told"


def run_trial(folder, wholes, seed, idx, found):
    trial = Trial(folder, wholes, seed, idx)
    try:
        if trial.what is None:
            return
        large = pools_bytes(trial.path)
        if large is None:
            found["too large"] += 1
            return
        limit_memory(large)
        for settings in trial.settings():
            signal.alarm(SECONDS)
            word = judge(trial, settings)
            signal.alarm(0)
            found[f"{trial.family} {word}"] += 1
        if idx % 10 == 0:
            try_command(trial)
        found["trials"] += 1
    except BaseException as error:
        error.add_note(f"seed {seed}, trial {idx}: {trial.family} {trial.what}")
        raise
    finally:
        signal.alarm(0)
        shutil.rmtree(trial.path)


def try_command(trial):
    """The same through the command line, whose exit status says how it went."""
    error, outcome, _ = replayed(trial.path, Settings())
    out, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaint):
        status = command_line(["replay", str(trial.path), "--json"])
    if error is not None:
        assert status == 2, status
        assert complaint.getvalue().startswith("kvlife: ")
        assert "Traceback" not in complaint.getvalue()
        return
    assert status == (1 if outcome.found or outcome.differences else 0)
    assert json.loads(out.getvalue())["digest_ok"] == outcome.digest_ok


def limit_memory(pools):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES + pools, resource.RLIM_INFINITY))


def too_long(_number, _frame):
    raise TooLong(f"a replay took more than {SECONDS} s")


def main():
    folder, num, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wholes = whole_runs(folder)
    signal.signal(signal.SIGALRM, too_long)
    found = Counter()
    for idx in [int(sys.argv[4])] if len(sys.argv) > 4 else range(num):
        run_trial(folder, wholes, seed, idx, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
