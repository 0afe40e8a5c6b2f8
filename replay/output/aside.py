"""What is said on stderr, beside what a command prints."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvlife.replay.output.quoting import printable


def say_aside(what: object) -> None:
    """Print a message on stderr, whatever it quotes; where nobody reads that, nothing happens."""
    message = "\n".join(map(printable, f"kvlife: {what}".split("\n")))
    try:
        print(message, file=sys.stderr)
    except OSError:
        tell_nobody()  # the status says it; what is left of the message would change it at the end


def tell_nobody() -> None:
    """Let what is printed on stderr from here on go nowhere."""
    sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # stays open
