"""Buffers: tokens through each layout and dtype, typed views, shared arenas, and refusals."""

import pytest
import torch

from kvlife.errors import ConfigError
from kvlife.kernels import KernelError
from kvlife.kernels.numerics import STORAGE_FORMATS, error_bound
from kvlife.pools.buffers import KvBuffers, free_bytes
from kvlife.pools.layouts import Latent, MultiHead

PAGE_SIZE, NUM_PAGES = 16, 5


def layouts(dtype, order):
    scale = 0.75 if STORAGE_FORMATS[dtype].tensor_scale else 1.0
    shared = {"num_layers": 2, "dtype": dtype, "order": order}
    return [
        MultiHead(num_kv_heads=2, k_dim=64, v_dim=32, k_scale=scale, v_scale=scale, **shared),
        Latent(latent_dim=64, rope_dim=32, scale=scale, **shared),
    ]


def tokens(buffers, num, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(num, *part.shape, generator=generator) * 5 for part in buffers.target.parts]


@pytest.mark.parametrize("dtype", STORAGE_FORMATS)
@pytest.mark.parametrize("order", ["layer", "page"])
def test_what_is_stored_comes_back_within_the_bound_of_its_dtype(dtype, order, seed):
    """Both layers of both layouts keep their own tokens, each value off by the bound at most."""
    slots = torch.arange(1, NUM_PAGES * PAGE_SIZE, 3)
    for layout in layouts(dtype, order):
        buffers = KvBuffers(layout, PAGE_SIZE, NUM_PAGES)
        given = [tokens(buffers, len(slots), seed + layer) for layer in range(2)]
        for layer in range(2):
            buffers.store(layer, *given[layer], slots)
        for layer in range(2):
            loaded = buffers.load(layer, slots, torch.float32)
            for part, one, back in zip(buffers.target.parts, given[layer], loaded, strict=True):
                bound = error_bound(one.flatten(1), layout.storage, part.tensor_scales[layer])
                assert ((back - one).double().abs().flatten(1) <= bound).all()


def test_a_token_leaves_the_slots_beside_it_alone():
    """All that is not the slot's stays zero, in all layers."""
    for layout in layouts("mxfp8", "page"):
        buffers = KvBuffers(layout, PAGE_SIZE, NUM_PAGES)
        buffers.store(1, *tokens(buffers, 1, 0), torch.tensor([37]))
        assert int((buffers.arena != 0).sum()) <= layout.token_bytes // 2
        others = torch.tensor([slot for slot in range(NUM_PAGES * PAGE_SIZE) if slot != 37])
        for layer, slots in ((1, others), (0, torch.arange(NUM_PAGES * PAGE_SIZE))):
            assert not any(part.any() for part in buffers.load(layer, slots))


@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize(
    ("dtype", "values", "scales"),
    [
        ("bf16", torch.bfloat16, None),
        ("fp32", torch.float32, None),
        ("fp8_e4m3", torch.float8_e4m3fn, None),
        ("fp8_e5m2", torch.float8_e5m2, None),
        ("mxfp8", torch.float8_e4m3fn, torch.float8_e8m0fnu),
        ("nvfp4", torch.uint8, torch.float8_e4m3fn),
    ],
)
def test_views_are_what_attention_kernels_take(dtype, values, scales, order):
    """[pages, page_size, heads, width] in torch's dtype; a store shows in them."""
    layout = layouts(dtype, order)[0]
    buffers = KvBuffers(layout, PAGE_SIZE, NUM_PAGES)
    k = buffers.view("k", 1)
    assert k.dtype == values
    assert k.shape == (NUM_PAGES, PAGE_SIZE, 2, 32 if dtype == "nvfp4" else 64)
    given = [torch.full((1, 2, width), 6 * 0.75) for width in (64, 32)]
    buffers.store(1, *given, torch.tensor([2 * PAGE_SIZE + 3]))
    assert k[2, 3].view(torch.uint8).any()
    assert not k[2, 4].view(torch.uint8).any()
    if scales is None:
        assert torch.equal(k[2, 3].float() * (0.75 if "fp8" in dtype else 1), given[0][0])
    else:
        block = STORAGE_FORMATS[dtype].block
        stand = buffers.view("v_scales", 1)
        assert (stand.dtype, stand.shape[2:]) == (scales, (2, 32 // block))
        assert (stand[2, 3].float() > 0).all()


def test_a_view_that_is_not_there_names_those_that_are():
    """The error lists planes and layers."""
    buffers = KvBuffers(layouts("bf16", "layer")[0], PAGE_SIZE, NUM_PAGES)
    for plane, layer in (("latent", 0), ("k", 2), ("k", -1)):
        with pytest.raises(ConfigError, match="there are planes k, v of layers 0 to 1"):
            buffers.view(plane, layer)


def test_groups_of_one_space_may_share_an_arena():
    """A page of one group is the same memory as that page of the other."""
    layout = layouts("bf16", "page")[0]
    full = KvBuffers(layout, PAGE_SIZE, NUM_PAGES)
    window = KvBuffers(layout, PAGE_SIZE, NUM_PAGES, arena=full.arena, group=1)
    given = tokens(full, 1, 3)
    full.store(0, *given, torch.tensor([20]))
    assert torch.equal(window.load(0, torch.tensor([20]))[0], given[0].bfloat16())


def test_an_arena_that_does_not_serve_is_refused():
    """Too few bytes, words instead of bytes, or bytes with gaps."""
    layout = layouts("bf16", "layer")[0]
    num_bytes = layout.num_bytes(PAGE_SIZE, NUM_PAGES)
    for arena, message in (
        (torch.zeros(num_bytes - 1, dtype=torch.uint8), f"has {num_bytes - 1} bytes"),
        (torch.zeros(num_bytes), "contiguous row of uint8"),
        (torch.zeros(2 * num_bytes, dtype=torch.uint8)[::2], "contiguous row of uint8"),
    ):
        with pytest.raises(ConfigError, match=message):
            KvBuffers(layout, PAGE_SIZE, NUM_PAGES, arena=arena)


def test_a_pool_larger_than_memory_is_refused_before_any_is_taken():
    """The error says how much it takes, how much there is, and what to lower."""
    layout = MultiHead(num_layers=100, num_kv_heads=128, k_dim=256)
    with pytest.raises(ConfigError, match=r"take \d+\.\d GiB, and cpu has .*lower num_pages"):
        KvBuffers(layout, 256, 1 << 22)


@pytest.mark.parametrize("device", ["meta", "cuda:64"])
def test_a_device_that_is_not_there_is_refused(device):
    """The error says where pools can lie, and how many GPUs there are."""
    layout = layouts("bf16", "layer")[0]
    with pytest.raises(ConfigError, match=f"pools on {device} asked for; .* torch sees"):
        KvBuffers(layout, PAGE_SIZE, NUM_PAGES, device)


def test_an_arena_takes_the_bytes_that_its_layout_says():
    """To the byte, so that a plan of memory can be exact."""
    for layout in layouts("nvfp4", "layer"):
        buffers = KvBuffers(layout, 3, 7)
        assert buffers.arena.numel() == layout.num_bytes(3, 7) == buffers.num_bytes


def test_a_slot_outside_the_pool_is_an_error_and_writes_nothing():
    """On the CPU a store checks its slots first."""
    buffers = KvBuffers(layouts("bf16", "layer")[0], PAGE_SIZE, NUM_PAGES)
    with pytest.raises(KernelError, match=r"slots in \[0, 80\)"):
        buffers.store(0, *tokens(buffers, 2, 0), torch.tensor([5, 80]))
    assert not buffers.arena.any()


def test_what_torch_keeps_of_a_gpu_is_free_to_pools(monkeypatch):
    """100 bytes are free to the driver, and of 70 that torch has taken, 50 are in use."""
    answers = {
        "device_count": 1,
        "mem_get_info": (100, 1000),
        "memory_reserved": 70,
        "memory_allocated": 50,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_device, answer=answer: answer)
    assert free_bytes(torch.device("cuda")) == 120


def test_memory_that_is_there_and_not_given_is_a_config_error(monkeypatch):
    """In pieces too small, say, or beyond a limit of the process."""

    def refusing(*_shape, **_options):
        raise torch.OutOfMemoryError("no piece is as large")

    monkeypatch.setattr(torch, "zeros", refusing)
    with pytest.raises(ConfigError, match=r"10 pages of 4.* cpu gave none.*no piece is as large"):
        KvBuffers(MultiHead(num_layers=1, num_kv_heads=1, k_dim=4), 4, 10)
