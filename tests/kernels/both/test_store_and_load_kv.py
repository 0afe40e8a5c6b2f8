"""`store_kv` and `load_kv` by hand, and what they refuse: by torch, and by Triton's interpreter."""

import pytest
import torch

from kvlife.kernels import KernelError, Violations
from kvlife.kernels.load_kv import load_kv
from kvlife.kernels.store_kv import store_kv
from kvlife.pools.layouts import Latent, MultiHead

PAGE_SIZE, NUM_PAGES = 2, 3
ONE, TWO = 0x3F80, 0x4000  # bf16


def small(dtype="bf16", order="layer"):
    """Two layers of two heads, K of 16 and V of 32 values wide; 3 pages of 2 tokens."""
    width = 32 if dtype == "mxfp8" else 16
    return MultiHead(num_layers=2, num_kv_heads=2, k_dim=width, v_dim=32, dtype=dtype, order=order)


def arena_and_target(layout):
    target = layout.target(PAGE_SIZE, NUM_PAGES)
    return torch.full((target.num_bytes,), 0xEE, dtype=torch.uint8), target


def tokens(target, num=1, value=1.0, dtype=torch.bfloat16):
    return [torch.full((num, *part.shape), value, dtype=dtype) for part in target.parts]


def written(arena):
    """Where an arena of 0xEE was written, as half-open ranges."""
    spots = (arena != 0xEE).nonzero()[:, 0].tolist()
    starts = [at for at in spots if at - 1 not in spots]
    return [
        (at, next(end for end in range(at, len(arena) + 1) if end not in spots)) for at in starts
    ]


@pytest.mark.parametrize(
    ("order", "k_at", "v_at"),
    [
        # K: 2 x 16 values of 2 bytes are 64 a token, 128 a page, 384 a layer, 768 in all. Slot 3 is
        # token 1 of page 1: 384 + 128 + 64. V, twice as wide, begins at 768: 768 + 768 + 256 + 128.
        ("layer", 576, 1920),
        # Page-major: a page has both layers, 256 bytes: 256 + 128 + 64. V: 768 + 512 + 256 + 128.
        ("page", 448, 1664),
    ],
)
def test_a_token_lies_where_the_layout_says(order, k_at, v_at):
    """Slot 3 of layer 1 is 64 and 128 bytes at places worked out on paper."""
    arena, target = arena_and_target(small(order=order))
    store_kv(arena, target, 1, *tokens(target), torch.tensor([3]))
    assert written(arena) == [(k_at, k_at + 64), (v_at, v_at + 128)]
    assert (arena[k_at : k_at + 64].view(torch.int16) == ONE).all()


def test_a_latent_row_is_its_latent_part_and_then_its_rope_part():
    """512 and 64 values of a token are 1,152 bytes in a row: those of slot 1 from 1,152 on."""
    layout = Latent(num_layers=1, latent_dim=512, rope_dim=64)
    arena, target = arena_and_target(layout)
    latent, rope = tokens(target)
    store_kv(arena, target, 0, latent, rope * 2, torch.tensor([1]))
    row = arena[1152:2304].view(torch.int16)
    assert (row[:512] == ONE).all()
    assert (row[512:] == TWO).all()
    assert written(arena) == [(1152, 2304)]


def test_values_and_scales_of_mxfp8_lie_in_planes_of_their_own():
    """1 is stored as 256 (0x78) under 2^-8 (119): 64 bytes of K with 2 of scales, V likewise."""
    arena, target = arena_and_target(small("mxfp8"))
    store_kv(arena, target, 0, *tokens(target), torch.tensor([2]))
    # A plane of values has 2 x 3 x 2 x 64 = 768 bytes, one of scales 24, at a multiple of 256.
    places = [(128, 192), (896, 960), (1536 + 4, 1536 + 6), (1792 + 4, 1792 + 6)]
    assert written(arena) == places
    assert set(arena[128:192].tolist()) == {0x78}
    assert arena[1540:1542].tolist() == [119, 119]


def test_packed_values_have_the_even_one_in_the_low_half():
    """6 and -3 are codes 7 and 13: byte 0xD7, under a scale of 1 (0x38)."""
    arena, target = arena_and_target(small("nvfp4"))
    k, v = tokens(target)
    k[..., 0::2], k[..., 1::2] = 6.0, -3.0
    store_kv(arena, target, 0, k, v, torch.tensor([0]))
    assert set(arena[:16].tolist()) == {0xD7}
    loaded, _ = load_kv(arena, target, 0, torch.tensor([0]))
    assert torch.equal(loaded, k)


@pytest.mark.parametrize("slots", [[0, 0, 0], [4, 0, 1]])
def test_padding_goes_to_the_reserved_page(slots):
    """Several tokens may be written to page 0, which nobody reads."""
    arena, target = arena_and_target(small())
    store_kv(arena, target, 0, *tokens(target, 3), torch.tensor(slots))
    assert (arena[:64].view(torch.int16) == ONE).all()


def test_rows_of_heads_may_come_flat():
    """[n, heads x width] is taken for [n, heads, width]."""
    arena, target = arena_and_target(small())
    k, v = tokens(target, 2)
    store_kv(arena, target, 0, k.flatten(1), v.flatten(1), torch.tensor([1, 2]))
    loaded, _ = load_kv(arena, target, 0, torch.tensor([1, 2], dtype=torch.int32))
    assert torch.equal(loaded, k)


def test_nothing_is_stored_and_loaded_of_no_tokens():
    """An empty batch writes nothing, and loads tensors of no tokens."""
    arena, target = arena_and_target(small("nvfp4"))
    none = torch.empty(0, dtype=torch.int64)
    store_kv(arena, target, 0, *tokens(target, 0), none)
    assert written(arena) == []
    assert [list(one.shape) for one in load_kv(arena, target, 0, none)] == [[0, 2, 16], [0, 2, 32]]


def test_infinity_is_stored_as_the_largest_value_and_copied_bits_stay():
    """Narrowing clamps; bf16 into bf16 is no narrowing."""
    for dtype, wanted in (("fp8_e4m3", 448.0), ("bf16", float("inf"))):
        arena, target = arena_and_target(small(dtype))
        store_kv(arena, target, 0, *tokens(target, value=float("inf")), torch.tensor([1]))
        loaded, _ = load_kv(arena, target, 0, torch.tensor([1]), torch.float32)
        assert (loaded == wanted).all()


REFUSED = {
    "a slot above the pool": ({"slots": torch.tensor([1, 6])}, r"slots in \[0, 6\)"),
    "a negative slot": ({"slots": torch.tensor([-1, 1])}, r"1 lie outside: \[-1\]"),
    "slots of floats": ({"slots": torch.tensor([1.0, 2.0])}, "slots is int32 or int64"),
    "too few slots": ({"slots": torch.tensor([1])}, r"k has the shape \[1, 2, 16\]"),
    "a layer that is not there": ({"layer": 2}, "the layout has layers 0 to 1"),
    "a negative layer": ({"layer": -1}, "layer -1"),
    "half a layer": ({"layer": 0.5}, "layer 0.5"),
    "no buffer of findings": ({"violations": 5}, "violations is a buffer"),
    "a buffer elsewhere": ({"violations": Violations.create("meta")}, "count is on meta"),
    "K of a wrong width": ({"k": torch.ones(2, 2, 8).bfloat16()}, r"k has the shape \[2, 2, 16\]"),
    "K of integers": ({"k": torch.ones(2, 2, 16).int()}, "k is bfloat16 or float16 or float32"),
    "K and V of two dtypes": ({"k": torch.ones(2, 2, 16)}, "one dtype for both"),
    "K on another device": (
        {"k": torch.ones(2, 2, 16, device="meta").bfloat16()},
        "device|on meta",
    ),
    "a list for a tensor": ({"k": [[1.0]]}, "k is a tensor"),
    "a small arena": ({"arena": torch.zeros(100, dtype=torch.uint8)}, "the arena has 100 bytes"),
    "an arena of words": ({"arena": torch.zeros(4000)}, "arena is uint8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(name):
    """The error says what was asked and what is the case; the arena is as it was."""
    arena, target = arena_and_target(small())
    k, v = tokens(target, 2)
    given, message = REFUSED[name]
    asked = {"arena": arena, "layer": 0, "k": k, "v": v, "slots": torch.tensor([1, 2])} | given
    with pytest.raises(KernelError, match=message):
        store_kv(asked.pop("arena"), target, **asked)
    assert written(arena) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": torch.tensor([6])}, r"slots in \[0, 6\)"),
        ({"layer": 5}, "layer 5"),
        ({"violations": Violations.create("meta")}, "count is on meta"),
        ({"dtype": torch.int8}, "it is no compute dtype"),
        ({"slots": torch.tensor([[1]])}, "slots has the shape"),
    ],
)
def test_what_cannot_be_loaded_is_refused(given, message):
    """The same for reading."""
    arena, target = arena_and_target(small())
    asked = {"layer": 0, "slots": torch.tensor([1])} | given
    with pytest.raises(KernelError, match=message):
        load_kv(arena, target, **asked)


@pytest.mark.parametrize("target", [None, 7, "layout"])
def test_what_is_no_target_is_refused(target):
    """Storing and loading say what to pass for the target."""
    arena, right = arena_and_target(small())
    k, v = tokens(right, 1)
    with pytest.raises(KernelError, match=r"store_kv: target says where.*layout\.target"):
        store_kv(arena, target, 0, k, v, torch.tensor([1]))
    with pytest.raises(KernelError, match=r"load_kv: target says where.*layout\.target"):
        load_kv(arena, target, 0, torch.tensor([1]))
