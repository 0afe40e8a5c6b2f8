"""Layouts: their bytes by hand, where planes lie, and what cannot be laid out."""

import pytest

from kvlife.errors import ConfigError
from kvlife.kernels.numerics import STORAGE_FORMATS
from kvlife.pools.layouts import Latent, MultiHead

LLAMA_8B = {"num_layers": 32, "num_kv_heads": 8, "k_dim": 128}
DEEPSEEK_V3 = {"num_layers": 61, "latent_dim": 512, "rope_dim": 64}


@pytest.mark.parametrize(
    ("dtype", "token_bytes"),
    [
        # 32 layers x 2 x 8 heads x 128 values: 65,536 values a token.
        ("bf16", 131_072),
        ("fp16", 131_072),
        ("fp32", 262_144),
        ("fp8_e4m3", 65_536),
        ("fp8_e5m2", 65_536),
        ("mxfp8", 67_584),  # and a byte for every 32
        ("nvfp4", 36_864),  # two values a byte, and a byte for every 16
    ],
)
def test_a_token_of_llama_8b_takes_the_bytes_that_one_works_out(dtype, token_bytes):
    """Values and scales of all layers, with nothing between them."""
    layout = MultiHead(**LLAMA_8B, dtype=dtype)
    assert layout.token_bytes == token_bytes
    assert layout.page_bytes(16) == 16 * token_bytes
    # Each plane of 100 pages is a multiple of 256 bytes here, so nothing is added.
    assert layout.num_bytes(16, 100) == 1600 * token_bytes


def test_a_latent_row_of_deepseek_v3_takes_576_values():
    """61 layers x (512 + 64) values x 2 bytes; in nvfp4 half a byte each and 36 scales a row."""
    assert Latent(**DEEPSEEK_V3).token_bytes == 70_272
    assert Latent(**DEEPSEEK_V3, dtype="nvfp4").token_bytes == 61 * (288 + 36)


def test_k_and_v_may_differ_in_width():
    """8 heads of 192 and of 128: 320 values a head."""
    layout = MultiHead(num_layers=1, num_kv_heads=8, k_dim=192, v_dim=128)
    assert layout.token_bytes == 8 * 320 * 2
    assert layout.token_shapes() == {"k": (8, 192), "v": (8, 128)}


@pytest.mark.parametrize(
    ("order", "layer_stride", "page_stride"), [("layer", 7 * 128, 128), ("page", 128, 3 * 128)]
)
def test_planes_begin_at_multiples_of_256_and_their_order_is_in_the_strides(
    order, layer_stride, page_stride
):
    """3 layers of 7 pages of 4 tokens of 32 bytes: 2,688 bytes of K, then V from 2,816 on."""
    layout = MultiHead(num_layers=3, num_kv_heads=2, k_dim=8, order=order)
    k, v = layout.planes(4, 7).planes
    assert (k.name, k.offset, k.page_bytes) == ("k", 0, 128)
    assert (v.name, v.offset, v.page_bytes) == ("v", 2816, 128)
    assert {(one.layer_stride, one.page_stride) for one in (k, v)} == {(layer_stride, page_stride)}
    assert layout.num_bytes(4, 7) == 2816 + 2688
    assert layout.page_bytes(4) == 3 * 2 * 128


@pytest.mark.parametrize("dtype", STORAGE_FORMATS)
@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize("page_size", [1, 16, 64, 256])
def test_bytes_of_pages_are_bytes_of_planes(dtype, order, page_size):
    """What the layout says of a page is what its planes hold, in both orders, without padding."""
    for layout in (
        MultiHead(num_layers=3, num_kv_heads=3, k_dim=96, v_dim=64, dtype=dtype, order=order),
        Latent(num_layers=3, latent_dim=64, rope_dim=32, dtype=dtype, order=order),
    ):
        planes = layout.planes(page_size, 9)
        assert planes.page_bytes == layout.page_bytes(page_size)
        assert planes.num_bytes == layout.num_bytes(page_size, 9)
        padding = planes.num_bytes - 9 * planes.page_bytes
        assert 0 <= padding < 256 * (len(planes.planes) - 1) or padding == 0
        assert all(plane.offset % 256 == 0 for plane in planes.planes)


def test_scales_of_blocks_have_planes_of_their_own():
    """After the planes of values, a byte for each block of a head or of a row."""
    heads = MultiHead(num_layers=1, num_kv_heads=2, k_dim=64, v_dim=32, dtype="mxfp8")
    assert heads.token_shapes() == {
        "k": (2, 64), "v": (2, 32), "k_scales": (2, 2), "v_scales": (2, 1),
    }  # fmt: skip
    row = Latent(num_layers=1, latent_dim=48, rope_dim=16, dtype="nvfp4")
    assert row.token_shapes() == {"latent": (64,), "latent_scales": (4,)}
    assert [plane.name for plane in row.planes(1, 2).planes] == ["latent", "latent_scales"]


def test_a_tensor_s_scale_is_one_number_or_one_for_each_layer():
    """One number holds for all layers; each is kept as fp32 has it."""
    layout = MultiHead(**LLAMA_8B, dtype="fp8_e4m3", k_scale=0.5, v_scale=[0.25] * 31 + [0.1])
    k, v = layout.target(16, 4).parts
    assert k.tensor_scales == (0.5,) * 32
    assert v.tensor_scales[:2] == (0.25, 0.25)
    assert v.tensor_scales[31] == 0.10000000149011612


REFUSED = {
    "a head width that nvfp4's blocks do not divide": (
        {"dtype": "nvfp4", "k_dim": 72},
        "width of 72",
    ),
    "a head width that mxfp8's blocks do not divide": (
        {"dtype": "mxfp8", "v_dim": 80},
        "width of 80",
    ),
    "an unknown dtype": ({"dtype": "int8"}, "known are bf16"),
    "no name of a dtype": ({"dtype": ["bf16"]}, "known are bf16"),
    "an unknown order": ({"order": "token"}, "order is layer or page"),
    "no layers": ({"num_layers": 0}, "num_layers"),
    "a negative width": ({"k_dim": -128}, "k_dim"),
    "half a head": ({"num_kv_heads": 0.5}, "num_kv_heads"),
    "a scale for a dtype that takes none": ({"k_scale": 2.0}, "takes no scale"),
    "a scale of zero": ({"dtype": "fp8_e4m3", "v_scale": 0.0}, "scale"),
    "too few scales": ({"dtype": "fp8_e4m3", "v_scale": [1.0, 2.0]}, "2 scales given for v of 32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_laid_out_is_refused(name):
    """A `ConfigError` that names the field or says what the dtype needs."""
    given, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        MultiHead(**{**LLAMA_8B, **given})


def test_latent_and_rope_part_are_each_whole_blocks():
    """72 values of rope are no blocks of 16, though the row of 584 would not be either."""
    with pytest.raises(ConfigError, match="width of 72"):
        Latent(num_layers=1, latent_dim=512, rope_dim=72, dtype="nvfp4")


@pytest.mark.parametrize(
    ("page_size", "num_pages", "message"),
    [
        (0, 10, "page_size"),
        (257, 10, "page_size"),
        (16, 0, "num_pages"),
        (256, 1 << 24, r"slots \(num_pages times page_size\)"),
        (True, 10, "page_size"),
    ],
)
def test_a_pool_of_no_size_or_of_too_many_slots_is_refused(page_size, num_pages, message):
    """Pages have 1 to 256 tokens, and slots are 31 bits."""
    with pytest.raises(ConfigError, match=message):
        MultiHead(**LLAMA_8B).planes(page_size, num_pages)
