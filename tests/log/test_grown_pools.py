"""Reading a run whose pools were resized while it was written."""

import pytest
from golden_v1 import ints
from log_samples import ONE_GROUP, append_all, decode_step, start

from kvlife.errors import LogCorrupt
from kvlife.events import Resized
from kvlife.log import open_run


def test_pages_are_held_to_the_pools_as_they_have_grown(tmp_path):
    """Page 6000 is damage in pools of 5,000; it is read once a resize stands before it."""
    beyond = decode_step(ints(1, 2), ints(3, 4), ints(6000))[0]
    for name, before in (("small", []), ("grown", [[Resized(0, 6001)]])):
        writer = start(tmp_path / name, ONE_GROUP, segment_bytes=4096)
        append_all(writer, [*before, *[beyond] * 300])
        writer.close()
    with pytest.raises(LogCorrupt, match=r"6000, out of \[0, 5000\)"):
        list(open_run(tmp_path / "small").events())
    run = open_run(tmp_path / "grown")
    assert len(list(run.events())) == 301
    # From the middle the pools are what the caller says, or of any size.
    assert len(list(run.groups(290))) == 11
    with pytest.raises(LogCorrupt, match=r"6000, out of \[0, 5000\)"):
        list(run.groups(290, layout=run.layout))
