"""Which rank holds which layers and heads."""

import pytest

from kvlife.errors import ConfigError
from kvlife.sizing import Parallel


def test_layers_are_spread_evenly_and_the_first_stages_have_the_rest():
    """61 layers over 4 stages: 16, 15, 15, 15."""
    stages = [Parallel(pp=4, pp_rank=rank).stage(61) for rank in range(4)]
    assert stages == [range(16), range(16, 31), range(31, 46), range(46, 61)]


def test_stages_can_be_named():
    """`pp_layers` says how many layers each stage has."""
    stages = [Parallel(pp=2, pp_rank=rank, pp_layers=(40, 21)).stage(61) for rank in range(2)]
    assert stages == [range(40), range(40, 61)]


def test_heads_are_shared_by_the_ranks_of_one_copy_of_the_attention():
    """16 ranks, 2 copies, context groups of 4: 8 ranks share states, and heads go in 2 parts."""
    parallel = Parallel(tp=16, attention_dp=2, dcp=4)
    assert parallel.attention_tp == 8
    assert parallel.head_shards == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tp": 0}, "tp must be"),
        ({"tp": -1}, "tp must be"),
        ({"pp": 1.5}, "pp must be"),
        ({"dcp": True}, "dcp must be"),
        ({"pp": 2, "pp_rank": 2}, r"pp_rank must be in \[0, 2\)"),
        ({"pp_rank": -1}, "pp_rank must be"),
        ({"tp": 8, "attention_dp": 3}, "tp is 8.*attention_dp 3.*works with 1, 2, 4, 8"),
        ({"tp": 8, "attention_dp": 2, "dcp": 8}, "4 ranks.*dcp 8.*works with 1, 2, 4"),
        ({"pp": 2, "pp_layers": (1,)}, "names 1 stages, and pp is 2"),
        ({"pp": 2, "pp_layers": (0, 4)}, "each of pp_layers must be"),
    ],
)
def test_ranks_that_cannot_be_are_refused(fields, message):
    """The error says what was asked, what is the case, and what would work."""
    with pytest.raises(ConfigError, match=message):
        Parallel(**fields)


def test_stages_that_do_not_hold_the_layers_are_refused():
    """More stages than layers, or named stages of another model."""
    with pytest.raises(ConfigError, match="pp is 4, and the model has 3 layers: pp works up to 3"):
        Parallel(pp=4).stage(3)
    with pytest.raises(ConfigError, match=r"has 5 layers in all.*the model has 6"):
        Parallel(pp=2, pp_layers=(2, 3)).stage(6)
