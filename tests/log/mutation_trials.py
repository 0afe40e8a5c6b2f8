"""Damages logs at random and reads them: `mutation_trials.py DIR NUM SEED`.

Every reading must end in a `LogError`, or give the events that were written: all, or those before a
warned tear, or without what salvage lists. Runs under a limit of 200 MB beyond what importing took.
Prints one line of JSON.
"""

import json
import random
import resource
import shutil
import signal
import struct
import sys
import zlib
from pathlib import Path

from log_samples import (
    CONFIG,
    FakeSnapshot,
    append_all,
    mixed_groups,
    same_state,
    settled,
    start,
    state_of,
)

from kvlife.errors import LogError
from kvlife.events import same_event
from kvlife.log import open_run, runs
from kvlife.log.walk import BadRecord, records
from kvlife.log.wire import CRC, RECORD_HEAD, SEGMENT_HEAD, SEGMENT_HEAD_BYTES

LIMIT_BYTES = 200 << 20
SECONDS = 20


def base_logs(folder):
    """Closed and left open, compressed and raw, with snapshots: each as (files, events)."""
    groups = mixed_groups(220)
    events = [event for group in groups for event in group]
    logs = []
    for compress, close in ((True, True), (False, True), (False, False)):
        path = folder / "base"
        writer = start(path, CONFIG, segment_bytes=8192, compress=compress)
        for first in range(0, len(groups), 40):
            append_all(writer, groups[first : first + 40], step=first)
            writer.snapshot(FakeSnapshot(writer.next_seq, num=30))
            settled(writer)
        if close:
            writer.close(1)
        else:
            writer._run.leave_to_parent()
        run = runs(path)[0]
        files = {p.name: p.read_bytes() for p in run.iterdir() if not p.name.endswith(".tmp")}
        logs.append((files, events))
        shutil.rmtree(path)
    return logs


def record_spans(content):
    """Where the records of a raw segment lie."""
    head = SEGMENT_HEAD.unpack_from(content)
    crc = zlib.crc32(content[: SEGMENT_HEAD.size])
    spans = []
    try:
        for _, _, end, _, _, offset, _ in records(content, SEGMENT_HEAD_BYTES, crc, *head[6:8]):
            spans.append((offset, end))
    except BadRecord:
        pass
    return spans


class Mutator:
    """One random damage to one log's files; `forged` where checksums were made to fit again."""

    def __init__(self, files, choice):
        self.files = dict(files)
        self.choice = choice
        self.forged = False

    def mutate(self):
        damages = [
            self.flip,
            self.flip,
            self.flip,
            self.cut,
            self.zero,
            self.huge,
            self.repeat,
            self.exchange,
            self.lose,
            self.swap,
            self.forge,
            self.forge,
            self.forge_length,
            self.grow,
        ]
        damage = self.choice.choice(damages)
        damage()
        return damage.__name__

    def name(self, suffix=""):
        names = sorted(name for name in self.files if name.endswith(suffix))
        return self.choice.choice(names or sorted(self.files))

    def edit(self, name):
        return bytearray(self.files[name])

    def flip(self):
        name = self.name()
        content = self.edit(name)
        for _ in range(self.choice.choice((1, 1, 1, 3, 20))):
            content[self.choice.randrange(len(content))] ^= 1 << self.choice.randrange(8)
        self.files[name] = bytes(content)

    def cut(self):
        name = self.name()
        self.files[name] = self.files[name][: self.choice.randrange(len(self.files[name]))]

    def grow(self):
        name = self.name()
        self.files[name] += self.choice.randbytes(self.choice.randrange(1, 100))

    def zero(self):
        name = self.name()
        content = self.edit(name)
        start_at = self.choice.randrange(len(content))
        num = min(self.choice.randrange(1, 200), len(content) - start_at)
        content[start_at : start_at + num] = bytes(num)
        self.files[name] = bytes(content)

    def huge(self):
        name = self.name()
        content = self.edit(name)
        at = self.choice.randrange(max(1, len(content) - 8))
        content[at : at + 4] = self.choice.choice((b"\xff" * 4, b"\0\0\0\x7f", b"\xff\xff\0\0"))
        self.files[name] = bytes(content)

    def spans(self, name):
        return record_spans(self.files[name]) if name.endswith(".seg") else []

    def repeat(self):
        name = self.name(".seg")
        spans = self.spans(name)
        if not spans:
            return self.flip()
        low, high = self.choice.choice(spans)
        content = self.files[name]
        self.files[name] = (content[:high] + content[low:high] + content[high:])[: len(content)]
        return None

    def exchange(self):
        name = self.name(".seg")
        spans = self.spans(name)
        if len(spans) < 2:
            return self.flip()
        first, second = sorted(self.choice.sample(spans, 2))
        content = self.files[name]
        self.files[name] = (
            content[: first[0]]
            + content[second[0] : second[1]]
            + content[first[1] : second[0]]
            + content[first[0] : first[1]]
            + content[second[1] :]
        )
        return None

    def lose(self):
        del self.files[self.name()]

    def swap(self):
        first, second = self.name(), self.name()
        self.files[first], self.files[second] = self.files[second], self.files[first]

    def forge(self):
        """Change a record's body, and make its checksum fit."""
        name = self.name(".seg")
        spans = self.spans(name)
        if not spans:
            return self.flip()
        low, high = self.choice.choice(spans)
        content = self.edit(name)
        for _ in range(self.choice.choice((1, 2, 10))):
            content[self.choice.randrange(low + 8, high)] = self.choice.choice(
                (0, 1, 0x20, 0x21, 0x7F, 0x80, 0xFF, self.choice.randrange(256))
            )
        content[low : low + 4] = CRC.pack(zlib.crc32(content[low + 4 : high]))
        self.files[name] = bytes(content)
        self.forged = True
        return None

    def forge_length(self):
        """Give a record another length, and make its checksum fit that."""
        name = self.name(".seg")
        spans = self.spans(name)
        if not spans:
            return self.flip()
        low, _ = self.choice.choice(spans)
        content = self.edit(name)
        length = self.choice.choice((0, 1, 5, 300, 0xFFFF))
        struct.pack_into("<H", content, low + 4, length)
        high = low + RECORD_HEAD.size + length
        content[low : low + 4] = CRC.pack(zlib.crc32(content[low + 4 : high]))
        self.files[name] = bytes(content)
        self.forged = True
        return None


def read(path, *, salvage):
    """The events and whether anything was said to be missing."""
    run = open_run(path, salvage=salvage)
    got = list(run.events())
    for seq in run.snapshots:
        try:
            state = run.snapshot(seq)
        except LogError:
            continue
        assert same_state(state, state_of(seq, num=30)), f"a wrong state of seq {seq}"
    return run, got


def judge(path, events, *, salvage, forged):
    """What reading came to: "error", "told" or "whole"; an `AssertionError` where it is wrong."""
    try:
        run, got = read(path, salvage=salvage)
    except LogError as error:
        place = str(error)
    else:
        place = None
    if place is not None:
        assert str(path) in place, f"no place in: {place}"
        return "error"
    told = bool(run.warnings or run.skipped or run.begins_at)
    if forged:
        return "told"
    for recorded in got:
        assert same_event(recorded.event, events[recorded.seq]), f"seq {recorded.seq} is wrong"
    seqs = [recorded.seq for recorded in got]
    if not run.skipped:
        assert seqs == list(range(run.begins_at, run.begins_at + len(seqs)))
    if seqs == list(range(len(events))):
        return "whole"
    assert told, f"{len(events)} events written, {len(seqs)} read, and nothing said"
    return "told"


def too_long(_number, _frame):
    raise AssertionError(f"a reading took more than {SECONDS} s")


def main():
    folder, num, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    logs = base_logs(folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, too_long)
    found = {"trials": 0, "error": 0, "told": 0, "whole": 0}
    path = folder / "run-000001"
    for idx in range(num):
        choice = random.Random(f"{seed} {idx}")
        files, events = choice.choice(logs)
        mutator = Mutator(files, choice)
        damage = mutator.mutate()
        path.mkdir()
        for name, content in mutator.files.items():
            (path / name).write_bytes(content)
        for salvage in (False, True):
            signal.alarm(SECONDS)
            try:
                outcome = judge(path, events, salvage=salvage, forged=mutator.forged)
            except BaseException as error:
                error.add_note(f"seed {seed}, trial {idx}, {damage}, salvage {salvage}")
                raise
            signal.alarm(0)
            found[outcome] += 1
        found["trials"] += 1
        shutil.rmtree(path)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
