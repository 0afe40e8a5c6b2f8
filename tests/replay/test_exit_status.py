"""The exit status of `kvlife`: 0 fine, 1 a violation or a difference, 2 unusable."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvlife.errors import ConfigError, InvariantViolation, LogTruncated
from kvlife.replay import cli

ROOT = Path(__file__).resolve().parents[2]


def command_that(outcome):
    def run(path: str = "") -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return run


@pytest.fixture
def run_with(monkeypatch):
    """Run `kvlife probe` where the command probe returns or raises the outcome given."""

    def run(outcome, *arguments):
        app = cli.build_app()
        app.command(command_that(outcome), name="probe")
        monkeypatch.setattr(cli, "build_app", lambda: app)
        return cli.main(["probe", *arguments])

    return run


@pytest.mark.parametrize(("outcome", "status"), [(None, 0), (0, 0), (1, 1), (2, 2)])
def test_a_command_decides_its_status(run_with, outcome, status):
    """What a command returns is the exit status, and None is 0."""
    assert run_with(outcome) == status


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("page_size must be 1 or more, got 0"),
        LogTruncated("run/segment-0: ends at offset 10"),
        PermissionError(13, "Permission denied", "/nowhere"),
    ],
)
def test_unusable_input_is_2_with_a_message(run_with, capsys, error):
    """An error of the input ends with 2 and its message on stderr, without a traceback."""
    assert run_with(error) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"kvlife: {error}\n")


def test_a_violation_is_1(run_with, capsys):
    """A violation that stops a command ends with 1 and names the invariant."""
    violation = InvariantViolation("refs-balance", 7, object(), {"pages": [3]}, applied=True)
    assert run_with(violation) == 1
    assert "refs-balance broken at seq 7" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--nonsense"], ["a", "b"], ["--path"]])
def test_unusable_arguments_are_2(run_with, capsys, arguments):
    """An unknown option, one argument too many and a missing value end with 2, said on stderr."""
    assert run_with(0, *arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    assert err


def test_an_unknown_command_is_2(capsys):
    """A command that does not exist ends with 2 and is named."""
    assert cli.main(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_an_interrupt_is_130(run_with):
    """Ctrl-C ends with 130, as shells expect."""
    assert run_with(KeyboardInterrupt()) == 130


def test_an_interrupt_while_it_loads_is_130(tmp_path):
    """Ctrl-C before the command line is there ends with 130 too, in silence."""
    interrupt = "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nclass App: pass"
    (tmp_path / "cyclopts.py").write_text(interrupt)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kvlife"].partition(":")
    script = f"import sys; from {module} import {function}; sys.exit({function}())"
    for start in (["-m", "kvlife.replay"], ["-c", script]):
        done = subprocess.run(
            [sys.executable, *start, "--help"],
            env={**os.environ, "PYTHONPATH": path},
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_bug_keeps_its_traceback(run_with):
    """What is no error of the input comes through as it is, so that it can be reported."""
    with pytest.raises(ZeroDivisionError):
        run_with(ZeroDivisionError())


@pytest.mark.parametrize("code", ["cli.main(['--help'])", "cli.main(['probe'])"])
def test_a_reader_that_left_is_141(code):
    """A closed pipe ends a command as shells expect, in silence, whoever was printing."""
    program = (
        "import sys; from kvlife.replay import cli; app = cli.build_app();"
        "app.command(lambda: print('x'), name='probe'); cli.build_app = lambda: app;"
        f"sys.exit({code})"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["nonsense"], ["inspect", "/no/such/run"]])
def test_a_message_that_cannot_be_written_leaves_the_status(arguments):
    """Where nobody can be told what is wrong, 2 says that it is the input, and not a finding."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvlife.replay", *arguments], stderr=full, check=False
        )
    assert done.returncode == 2
