"""Pools that cannot be: a clear error before anything is written, and nothing begun."""

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import torch

from kvlife import CacheGroup, CommandRefused, ConfigError, KvEngine, LogWriter, PoolConfig
from kvlife.pools import DevicePools, Latent, MultiHead

ROOT = Path(__file__).resolve().parents[2]
CONFIG = PoolConfig(page_size=4, num_pages=12, max_requests=3, max_context_len=32)
TWO = (CacheGroup("full"), CacheGroup("swa", window=8))
SHARED = (CacheGroup("full", space="one"), CacheGroup("swa", window=8, space="one"))
HEADS = MultiHead(num_layers=1, num_kv_heads=1, k_dim=8)
OTHER = MultiHead(num_layers=2, num_kv_heads=1, k_dim=8)
HUGE = MultiHead(num_layers=4096, num_kv_heads=1 << 12, k_dim=1 << 12, dtype="fp32")


def config(groups, **options):
    sizes = {"page_size": 4, "num_pages": 12, "max_requests": 3, "max_context_len": 32}
    return PoolConfig(**{**sizes, **options}, groups=groups)


@pytest.mark.parametrize(
    ("layouts", "groups", "words"),
    [
        ({"full": HEADS}, TWO, r"one KV layout for each of the groups \['full', 'swa'\]"),
        ({"full": HEADS, "other": HEADS}, TWO, "got .*other"),
        ({"full": "bf16"}, TWO[:1], "no KvLayout: 'bf16'"),
        (["full"], TWO[:1], "got \\['full'\\]"),
        ({"full": HEADS, "swa": OTHER}, SHARED, "lie differently in its memory"),
        (HEADS, (*SHARED[:1], CacheGroup("swa", 8, page_size=2, space="one")), "page sizes"),
        (HUGE, TWO[:1], "lower num_pages"),
    ],
)
def test_layouts_that_do_not_fit_the_groups_are_refused(tmp_path, layouts, groups, words):
    """The error comes before the log has begun, and names what is wrong."""
    with pytest.raises(ConfigError, match=words):
        KvEngine(config(groups), pools=DevicePools(layouts), log=LogWriter(tmp_path / "log"))
    assert not (tmp_path / "log").exists() or not any((tmp_path / "log").iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "cuda:99"}, "no device"),
        ({"device": "abacus"}, "no device"),
        ({"device": 1.5}, "no device"),
        ({"poison": 256}, "one byte"),
        ({"poison": True}, "one byte"),
        ({"content": "all"}, "'check'"),
        ({"content": "check"}, "without KV layouts"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, words):
    """Each error says what was given."""
    with pytest.raises(ConfigError, match=words):
        DevicePools(**options)


def test_groups_of_one_space_share_its_memory():
    """A page is of one group at a time, so its bytes are there once, however they are divided."""
    whole = MultiHead(num_layers=1, num_kv_heads=1, k_dim=8)
    halves = MultiHead(num_layers=1, num_kv_heads=2, k_dim=8)
    groups = (SHARED[0], CacheGroup("swa", 8, page_size=2, space="one"))
    pools = DevicePools({"full": whole, "swa": halves})
    KvEngine(config(groups), pools=pools)
    arenas = [pools.buffers(name).arena for name in ("full", "swa")]
    assert arenas[0] is arenas[1]
    assert arenas[0].numel() == pools.buffers().num_bytes


def test_host_pages_beyond_the_host_s_memory_are_refused():
    """The host's arena is as large as its pages times the largest page of a group."""
    layout = MultiHead(num_layers=512, num_kv_heads=64, k_dim=128)
    with pytest.raises(ConfigError, match="host_pages"):
        KvEngine(config(TWO[:1], num_pages=2, host_pages=1 << 20), pools=DevicePools(layout))


def test_pools_serve_one_engine():
    """A second engine is refused; before any event it may have them, and the first no more."""
    pools = DevicePools(HEADS)
    first, engine = (KvEngine(CONFIG, pools=pools) for _ in range(2))
    with pytest.raises(ConfigError, match="an event of another engine"):
        first.admit("r1", [1, 2, 3])
    assert first.closed
    engine.mark("begun")
    with pytest.raises(ConfigError, match="make new ones"):
        KvEngine(CONFIG, pools=pools)
    engine.close()


def test_buffers_are_asked_for_by_name():
    """Unknown groups, pools without layouts and pools without an engine are told apart."""
    with pytest.raises(ConfigError, match="no engine yet"):
        DevicePools(HEADS).buffers()
    pools = DevicePools()
    KvEngine(CONFIG, pools=pools)
    with pytest.raises(ConfigError, match="no cache group 'swa': the groups are full"):
        pools.buffers("swa")
    with pytest.raises(ConfigError, match="without KV layouts"):
        pools.buffers()


def test_a_resize_that_does_not_fit_changes_nothing():
    """The engine refuses it, and goes on; one that fits keeps what pages hold."""
    layout = MultiHead(num_layers=64, num_kv_heads=64, k_dim=1024)
    pools = DevicePools(layout)
    engine = KvEngine(config(TWO[:1], num_pages=3), pools=pools)
    before = engine.next_seq
    with pytest.raises(CommandRefused, match="lower num_pages"):
        engine.resize(60_000)
    assert (engine.next_seq, pools.buffers().num_pages) == (before, 3)
    engine.close()


@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize("layout", [HEADS, Latent(num_layers=3, latent_dim=32, rope_dim=32)])
def test_a_resize_keeps_what_pages_hold(order, layout):
    """Tokens read back the same after growing and shrinking, wherever pages lie by then."""
    layout = attrs.evolve(layout, order=order)
    pools = DevicePools(layout)
    engine = KvEngine(CONFIG, pools=pools)
    engine.admit("r", list(range(10)))
    slots = engine.allocate(["r"], [10])
    torch.manual_seed(0)
    shape = (10, 1, 8) if isinstance(layout, MultiHead) else (10, 32)
    stored = [torch.randn(shape).bfloat16() for _ in "kv"]
    pools.store(0, *stored, slots)
    for num_pages in (40, 5):
        engine.resize(num_pages)
        assert pools.buffers().num_pages == num_pages
        found = pools.buffers().load(0, slots)
        assert all(torch.equal(one, other) for one, other in zip(found, stored, strict=True))
        assert engine.audit() == []


def test_kvlife_needs_no_torch_until_pools_are_used(tmp_path):
    """Without torch everything else works, and asking for pools says what is missing."""
    program = """
import sys
sys.modules["torch"] = None
import importlib.metadata as metadata
version = metadata.version
def without_torch(name):
    if name == "torch":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without_torch
from kvlife import KvEngine, PoolConfig
import kvlife.pools
engine = KvEngine(PoolConfig(page_size=4, num_pages=12, max_requests=3, max_context_len=32))
engine.admit("r", [1, 2, 3])
engine.close()
try:
    from kvlife.pools import DevicePools
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "needs torch 2.11 or newer" in done.stdout
    assert "kvlife[pools]" in done.stdout
