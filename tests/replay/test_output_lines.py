"""Lines on a terminal: what a log holds is shown, and never sent as it is."""

import recorded_runs as made

from kvlife.replay.output.columns import counted, print_lines


def test_lines_send_nothing_to_the_terminal(capsys):
    """Control characters, a half of a pair, and markup are signs like others."""
    print_lines([("red", "a\x1b[2Jb\udc80 [bold]c[/bold]\x07"), ("", "x" * 300)])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "a\\x1b[2Jb\\udc80 [bold]c[/bold]\\x07"
    assert second == "x" * 300


def test_an_id_cannot_reach_the_terminal_through_a_replay(tmp_path, capsys):
    """The evidence of a violation, and the events behind it, name a request with an escape."""
    rid = "r\x1b[2J"
    made.observe(
        tmp_path,
        [
            [made.admitted(rid, 1)],
            [made.allocated([1], [8], [1, 2])],
            [made.released(rid, 1, [1, 2], "aborted")],
            [made.released(rid, 1, [1, 2], "aborted")],
        ],
    )
    status, out, err = made.shown(capsys, tmp_path)
    assert status == 1
    assert "r\\x1b[2J" in out
    assert "\x1b" not in out + err


def test_no_message_sends_an_escape(tmp_path, capsys):
    """A path that is no run stands in the complaint, with its escape spelt out."""
    status, out, err = made.ran(capsys, "log", tmp_path / "no\x1b[2J")
    assert (status, out) == (2, "")
    assert "no\\x1b[2J" in err
    assert "\x1b" not in err


def test_numbers_of_things():
    """One, several, and several of another form."""
    assert [counted(num, "row") for num in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [counted(num, "touch", "touches") for num in (1, 2)] == ["1 touch", "2 touches"]
