"""The command line: which commands there are, and what the exit status says.

A command lives in a module of its own, which is imported when the command runs or shows its own
help, so that `kvlife --help` loads no engine. A command returns its exit status, or None for 0.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from cyclopts import App, CycloptsError, Parameter

from kvlife import __version__
from kvlife.errors import InvariantViolation, KvLifeError
from kvlife.replay.command_words import vet_words
from kvlife.replay.output.aside import say_aside, tell_nobody

FINE = 0
FOUND = 1
UNUSABLE = 2
INTERRUPTED = 130  # 128 and the number of the signal, as shells count
READER_LEFT = 141

# In fewer, what writes the pages of help goes on for ever.
LEAST_COLUMNS = 3

COMMANDS = {
    "simulate": (
        "kvlife.replay.simulating.simulate_command:simulate",
        "Run a workload through the engine, check each event, and write its log.",
    ),
    "plan": (
        "kvlife.replay.planning.plan_command:plan",
        "Say how many tokens and requests of a model fit into a GPU, in which pools, and why.",
    ),
    "import": (
        "kvlife.replay.importing.import_command:app",
        "Read what a real engine recorded, check it, and write it as a log.",
    ),
    "replay": (
        "kvlife.replay.replaying.replay_command:replay",
        "Run a log again under the checker, and compare its state with the recorded one.",
    ),
    "inspect": (
        "kvlife.replay.holding.inspect_command:inspect",
        "Show the state of a log at any event: pages, rows by holder, sessions, pins, steps.",
    ),
    "log": (
        "kvlife.replay.lives.log_command:log",
        "Show the events of a log, filtered by kind, request, page, row, step or time.",
    ),
    "page": (
        "kvlife.replay.lives.page_command:page",
        "Show who owns a page since when, and what happened to it.",
    ),
    "request": (
        "kvlife.replay.lives.request_command:request",
        "Show the life of a request: its events, its lengths and its pages after each.",
    ),
    "leaks": (
        "kvlife.replay.holding.leaks_command:leaks",
        "Tell what is held, by whom and since when, from what is lost, and say who lost it.",
    ),
    "why": (
        "kvlife.replay.holding.why_command:why",
        "Say what stands in the way of a reset, an eviction or an admission, by holder.",
    ),
    "bisect": (
        "kvlife.replay.finding.bisect_command:bisect",
        "Find the first event after which a condition holds, or that breaks an invariant.",
    ),
    "shrink": (
        "kvlife.replay.shrinking.shrink_command:shrink",
        "Find the smallest log that still breaks the same invariant first, and write it as a test.",
    ),
    "report": (
        "kvlife.replay.report_page.report_command:report",
        "Show a run in one HTML file: pages over time, who held what, what went wrong.",
    ),
    "export": (
        "kvlife.replay.exporting.export_command:export",
        "Write a log as a timeline, as tables, or as text that other programs read.",
    ),
    "pack": (
        "kvlife.replay.packing.pack_command:pack",
        "Pack a run into one sealed file to send, under aliases if it must be.",
    ),
    "top": (
        "kvlife.replay.watching.top_command:top",
        "Watch runs while they are written: pages, rows, rates, violations.",
    ),
    "diff": (
        "kvlife.replay.finding.diff_command:diff",
        "Find the first event in which logs differ, with the state on both sides.",
    ),
}


# Where cyclopts would call what comes after the log [ARGS].
USAGES = {
    "why": "kvlife why [OPTIONS] LOG reset | evict PAGES | admit --tokens N",
    "diff": "kvlife diff [OPTIONS] FIRST OTHERS...",
}


def build_app() -> App:
    """The application with every command registered by name, and none of them imported."""
    app = App(
        name="kvlife",
        help=(
            "Follow the life of KV-cache memory: run it, check it, log it, replay it.\n\n"
            "Exit status: 0 fine, 1 a violation or a difference was found, 2 unusable input."
        ),
        help_format="plaintext",
        version=__version__,
        # No option has a twin that takes it back; a flag that is not given needs no word.
        default_parameter=Parameter(negative="", show_default=_default),
        config=vet_words,
        exit_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, (target, summary) in COMMANDS.items():
        usage = {"usage": f"Usage: {USAGES[name]}"} if name in USAGES else {}
        app.command(target, name=name, help=summary, **usage)
    return app


def _default(value: object) -> str | None:
    return None if value is None or value is False or value == () else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit status.

    0: fine. 1: a violation or a difference was found. 2: the input or the arguments are unusable;
    a message on stderr says which, without a traceback. 130: interrupted. 141: whoever read the
    output has gone. Anything else that is raised is a bug of kvlife, and keeps its traceback.
    """
    _widen()
    if not _has_output():
        return _complain("the standard output is closed: there is nowhere to write to", UNUSABLE)
    try:
        status = build_app()(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except CycloptsError:
        return UNUSABLE  # cyclopts has printed what is wrong with the arguments
    except InvariantViolation as violation:
        return _complain(violation, FOUND)
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as stop:
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        return READER_LEFT  # rich answers a closed pipe with an exit of its own
    except (KvLifeError, OSError) as error:
        return _complain(error, UNUSABLE)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return FINE if status is None else int(status)


def _widen() -> None:
    """On the narrowest of terminals write as if it had a few columns."""
    if shutil.get_terminal_size().columns < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(LEAST_COLUMNS)


def _has_output() -> bool:
    """Whether there is a standard output; makes it, and that of complaints, take any name.

    A path may be no text, and an output may have no sign for what an id holds.
    """
    if sys.stderr is None:
        tell_nobody()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def _complain(what: object, status: int) -> int:
    say_aside(what)
    return status


def _reader_left() -> int:
    # Who reads the output has closed it (`kvlife ... | head`). What is still buffered goes nowhere,
    # or the interpreter would complain of the closed pipe once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_LEFT
