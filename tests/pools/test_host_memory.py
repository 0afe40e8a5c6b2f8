"""The host's memory behind backups: pinned where that can be, else plain, and said so."""

import pytest
import torch
from toy_attention import Served, ToyLayers, kv_layout

from kvlife import CacheGroup, KvEngine, PoolConfig
from kvlife.events import Pinned
from kvlife.pools import DevicePools, backup
from kvlife.pools.backup import HostBackup, NotPinnedWarning

GROUPS = (CacheGroup("full"), CacheGroup("swa", window=12))
CONFIG = PoolConfig(
    page_size=4,
    num_pages=60,
    max_requests=6,
    max_context_len=100,
    groups=GROUPS,
    host_pages=30,
)


def serving():
    """Groups whose pages have different sizes, and freed pages that read as NaN."""
    layers = {
        "full": ToyLayers(kv_layout("heads", "fp32", "layer", num_layers=3)),
        "swa": ToyLayers(kv_layout("latent", "fp32", "page")),
    }
    pools = DevicePools({name: layer.layout for name, layer in layers.items()}, poison=255)
    return Served(KvEngine(CONFIG, pools=pools, key_seed=1), pools, layers)


class Arriving:
    """An event of a device that comes past when it is waited for."""

    has_passed = False

    def record(self, _stream):
        pass

    def query(self):
        return self.has_passed

    def synchronize(self):
        self.has_passed = True


@pytest.fixture
def as_on_a_device(monkeypatch):
    """Backups do as they do on a GPU whose driver pins nothing; copies end when waited for."""
    monkeypatch.setattr(backup.torch.cuda, "Event", Arriving)
    monkeypatch.setattr(backup.torch.cuda, "current_stream", lambda _device: None)
    monkeypatch.setattr(backup, "_STAGING_BYTES", 1)

    def act(pools):
        pools._backup._is_gpu = True

    return act


def test_backups_in_plain_memory_come_back_too(as_on_a_device):
    """Pages travel by way of the device's memory, a few at a time, to host pages of any group."""
    served = serving()
    as_on_a_device(served.pools)
    served.admit("r1", list(range(30)))
    assert served.engine.retract_with_backup("r1").backup is not None
    served.admit("r2", list(range(7, 50)))
    back = served.engine.resume("r1", served.tokens["r1"])
    assert back.restored_len == 29
    served.fill("r1", back.restored_len)
    served.compare(["r1", "r2"])


def test_a_pin_ends_when_its_copy_has_come_past(as_on_a_device):
    """The engine asks at its next commands, and a command that needs the pages waits."""
    served = serving()
    engine = served.engine
    as_on_a_device(served.pools)
    served.admit("r1", list(range(30)))
    engine.retract_with_backup("r1")
    engine.mark("a command")
    assert len(engine.ledger.pins) == 2, "one a group"
    engine.resume("r1", served.tokens["r1"])
    served.fill("r1", 29)
    assert not engine.ledger.pins
    engine.close()


def test_only_pins_of_copies_are_waited_for():
    """A pin that no copy stands behind is done at once, on a CPU every one is."""
    served = serving()
    kept = served.pools._backup
    kept.note(Pinned("p", "copy", writes=False, owner=None, group=0, pages=None))
    assert kept.is_done("p")
    assert served.pools.copy_done("unknown")


def test_memory_that_cannot_be_pinned_is_said_once(monkeypatch):
    """A warning says why; the arena lies in plain memory then."""
    zeros = torch.zeros

    def refusing(*shape, pin_memory=False, **options):
        if pin_memory:
            raise RuntimeError("no locked memory left")
        return zeros(*shape, **options)

    monkeypatch.setattr(backup.torch, "zeros", refusing)
    kept = serving().pools._backup
    kept._is_gpu = True
    with pytest.warns(NotPinnedWarning, match="no locked memory left"):
        arena = HostBackup._make(kept, 3, 100)
    assert (arena.shape, arena.is_pinned()) == ((3, 100), False)
