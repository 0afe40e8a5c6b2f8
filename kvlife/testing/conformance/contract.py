"""What the contracts share: they run as subclasses only, each test in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import ClassVar
from unittest import TestCase


class Contract(TestCase):
    """A set of tests that runs where somebody subclasses it; `path` is a new folder each time."""

    __test__: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """A subclass outside of this package is to be collected."""
        super().__init_subclass__()
        cls.__test__ = not cls.__module__.startswith("kvlife.")

    def setUp(self) -> None:
        """Make the folder."""
        self.path = Path(tempfile.mkdtemp(prefix="kvlife-conformance-"))
        self.addCleanup(shutil.rmtree, self.path)
