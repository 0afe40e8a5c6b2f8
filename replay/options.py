"""Parameters that several commands take, so that they read the same in each one's help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

LogPath = Annotated[
    Path, Parameter(help="A run, the folder of its runs (then the newest), or a pack.")
]
At = Annotated[
    int | None, Parameter(help="Look at the state after the event of this seq; else the last.")
]
ListAll = Annotated[
    bool, Parameter(name="--all", negative="", help="List them all, whatever --limit says.")
]
Check = Annotated[str, Parameter(help="What is checked: event, step, sample or off.")]
Salvage = Annotated[
    bool, Parameter(negative="", help="Leave out what is damaged, up to the next snapshot.")
]
AsJson = Annotated[bool, Parameter(negative="", help="Print one JSON object.")]
