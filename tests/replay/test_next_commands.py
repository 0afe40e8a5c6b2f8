"""The commands at the end of a report of a violation, and how names get into a command line."""

import shlex
import subprocess

import held_runs as held
import pytest
import recorded_runs as made

from kvlife.events import Marked, Pinned, Unpinned
from kvlife.replay.cli import COMMANDS
from kvlife.replay.output.quoting import command_line, printable, shell_word

SOUND = [made.admitted("r1", 1), made.allocated([1], [8], [1, 2]), made.committed([1], [8])]


def asked(capsys, path, *options):
    """The commands of a replay of the log, in words, and those of its text."""
    status, seen = made.replayed(capsys, path, *options)
    assert status == 1
    _, out, _ = made.shown(capsys, path, *options)
    assert [line.strip() for line in out.splitlines()[-3:]] == seen["next_commands"]
    return [shlex.split(line) for line in seen["next_commands"]]


def test_a_page_its_holder_and_the_state_before_it(tmp_path, capsys):
    """Page 1, which r1 has, is taken once more at seq 4 by r2."""
    twice = made.allocated([2], [8], [1, 3])
    made.observe(tmp_path, [SOUND, [made.admitted("r2", 2)], [twice]])
    (run,) = map(str, tmp_path.iterdir())
    assert asked(capsys, tmp_path) == [
        ["kvlife", "page", run, "1", "--group", "full"],
        ["kvlife", "request", run, "r2"],
        ["kvlife", "inspect", run, "--at", "3"],
    ]


def test_an_idle_leak_asks_who_holds_it(tmp_path, capsys):
    """What an idle mark finds is a matter of the whole state, at the mark."""
    made.observe(tmp_path, [SOUND, [Marked("idle", True)]])
    (run,) = map(str, tmp_path.iterdir())
    assert asked(capsys, tmp_path) == [
        ["kvlife", "leaks", run, "--at", "3"],
        ["kvlife", "request", run, "r1"],
        ["kvlife", "inspect", run, "--at", "3"],
    ]


def test_an_idle_session_is_inspected(tmp_path, capsys):
    """Where the row is a session's and no request's, the session is shown."""
    over = made.allocated([4], [8], [1])
    made.observe(tmp_path, [*held.EVERY_KIND, [over]], config=held.CONFIG)
    lines = asked(capsys, tmp_path)
    assert any("--session" in line and "s1" in line for line in lines)


def test_a_violation_without_pages_or_rows_has_three_too(tmp_path, capsys):
    """A pin that is not there: the state, and what is held in it."""
    unpinned = Unpinned("p9", 0, made.ints())
    made.observe(tmp_path, [SOUND, [unpinned]])
    names = [line[1] for line in asked(capsys, tmp_path)]
    assert names == ["inspect", "leaks", "why"]


FAULTS = {
    "release-once": [made.released("r9", None, [])],
    "ladder-order": [made.committed([1], [12])],
    "page-double-free": [made.released("r1", 1, [1, 1])],
    "refs-balance": [made.released("r1", 1, [1])],
    "allocated-covers-pages": [made.allocated([1], [12], [])],
    "pinned-page-freed": [Pinned("p1", "copy", False, None, 0, made.ints(9))],
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_command_can_be_typed_as_it_is_printed(tmp_path, capsys, name):
    """All three are told apart, and each of them runs, whatever was broken."""
    made.observe(tmp_path, [SOUND, FAULTS[name]])
    lines = asked(capsys, tmp_path)
    assert len({tuple(line) for line in lines}) == 3
    for line in lines:
        assert line[1] in COMMANDS
        status, out, err = made.ran(capsys, *line[1:])
        assert (status, err) in ((0, ""), (1, ""))
        assert out


def test_salvage_is_asked_for_where_the_replay_needed_it(tmp_path, capsys):
    """A log that the replay read with --salvage is read with it by what it names."""
    made.observe(tmp_path, [SOUND, [made.released("r1", 1, [1])]])
    assert all("--salvage" in line for line in asked(capsys, tmp_path, "--salvage"))


@pytest.mark.parametrize(
    "word", ["r1", "", "a b", "it's", "$HOME `x`", "new\nline", "\x1b[31m", "-x", "\\", "ü\u202e"]
)
def test_a_shell_reads_back_what_was_quoted(word):
    """Whatever an id holds, bash passes it on as it is, and the line holds no control character."""
    line = shell_word(word)
    assert line.isprintable()
    got = subprocess.run(["bash", "-c", f"printf %s {line}"], capture_output=True, check=True)
    assert got.stdout.decode() == word
    assert printable(word).isprintable()


def test_words_that_look_like_options_stand_behind_the_options():
    """An id may begin with a dash, and so may a session's."""
    assert command_line("request", "log", "r1") == "kvlife request log r1"
    line = command_line("request", "log", "-x", options={"at": 3})
    assert line == "kvlife request --at 3 -- log -x"
    line = command_line("inspect", "log", options={"session": "-x", "salvage": None})
    assert line == "kvlife inspect log --session=-x --salvage"


def test_long_names_are_cut():
    """A name that is cut keeps both ends, and a sign stands for the rest."""
    assert printable("chatcmpl-0123456789abcdef", 10) == "chatc…cdef"
    assert printable("chatcmpl-0", 10) == "chatcmpl-0"
