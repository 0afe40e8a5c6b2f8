"""A toy attention layer through the engine gives what it gives over contiguous KV."""

import numpy as np
import pytest
from toy_attention import VOCABULARY, Served, ToyLayers, kv_layout

from kvlife import CacheGroup, Checker, KvEngine, PoolConfig
from kvlife.pools import DevicePools

DTYPES = ("bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4")
WINDOW = 12
PAGE_SIZE = 4


def serving(kind, dtype, order, **options):
    """An engine with a full group and a sliding window, poisoned pools, and audits all along."""
    groups = (CacheGroup("full"), CacheGroup("swa", window=WINDOW))
    config = PoolConfig(
        page_size=PAGE_SIZE,
        num_pages=60,
        max_requests=6,
        max_context_len=100,
        groups=groups,
        host_pages=30,
    )
    layers = {group.name: ToyLayers(kv_layout(kind, dtype, order)) for group in groups}
    layouts = {name: layer.layout for name, layer in layers.items()}
    pools = DevicePools(layouts, poison=255, **options)
    engine = KvEngine(config, pools=pools, checker=Checker(audit_every=5), key_seed=1)
    return Served(engine, pools, layers)


def tokens_of(length, start=0):
    return [(3 * at + start) % VOCABULARY for at in range(length)]


@pytest.mark.parametrize("order", ["layer", "page"])
@pytest.mark.parametrize("kind", ["heads", "latent"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_are_those_over_contiguous_kv(dtype, kind, order):
    """Over lives with shared prefixes, both retractions, sessions and windows, for each layout.

    K and V that are read are bit for bit those of contiguous KV in the same dtype, so that outputs
    are equal too. Against KV that was never narrowed, outputs may differ by what the format's
    precision allows. Narrowing changes an entry of K by at most e_k and one of V by at most e_v,
    as `error_bound` computes them from the format (half a step at the entry's size, in units of
    its scales). A score q.k / sqrt(d) then moves by at most s = sum |q| e_k / sqrt(d), and a weight
    of the softmax by a factor within exp(+-2s), so that an output moves by at most
    (exp(2s) - 1) max |v| + exp(2s) max e_v. The attention itself is computed in fp64.
    """
    served = serving(kind, dtype, order)
    engine = served.engine
    # A prefix that the second request shares with the first, once that is published.
    served.admit("r1", tokens_of(27))
    engine.protect("r1", tokens_of(27))
    assert served.admit("r2", [*tokens_of(22), 1, 2, 3]).prefix_len == 20
    served.compare(["r1", "r2"])
    for token in range(3):
        served.decode(["r1", "r2"], token)
    served.compare(["r1", "r2"])
    # The window moves on, and others take the pages that it lets go.
    assert engine.evict_window(["r1", "r2"]) > 0
    served.admit("r3", tokens_of(30, 7))
    served.compare(["r1", "r2", "r3"])
    retract_and_resume(served)
    turn_by_turn(served)
    for rid in ("r1", "r2"):
        engine.finish(rid, served.tokens[rid])
    assert served.admit("r9", [*served.tokens["r1"], 5]).prefix_len >= 28
    served.compare(["r9", "r3"])
    assert served.num_compared[0] > 50
    engine.close()


def retract_and_resume(served):
    """One request comes back from the host, another computes again, and others ran meanwhile."""
    engine = served.engine
    kept = len(served.tokens["r1"])
    assert engine.retract_with_backup("r1").backup is not None
    engine.retract("r2")
    served.admit("r4", tokens_of(40, 11))
    served.decode(["r3", "r4"], 4)
    back = engine.resume("r1", np.array(served.tokens["r1"], np.int32))
    # Its last token is computed again, as ever.
    assert (back.why_recomputed, back.prefix_len, back.restored_len) == (None, 24, kept - 1)
    served.fill("r1", back.restored_len)
    again = engine.resume("r2", np.array(served.tokens["r2"], np.int32))
    assert again.restored_len == again.prefix_len
    served.fill("r2", again.restored_len)
    served.compare(["r1", "r2", "r3", "r4"])
    served.decode(["r1", "r2", "r4"], 9)
    served.compare(["r1", "r2", "r4"])


def turn_by_turn(served):
    """A session keeps its row between turns; a rewind computes the rest again."""
    engine = served.engine
    engine.session_save("s", "r4", len(served.tokens["r4"]))
    served.admit("r5", tokens_of(9, 2))
    before = served.tokens.pop("r4")
    turn = engine.session_restore("s", "r6", len(before))
    served.tokens["r6"] = [*before, 8, 6, 4]
    served.fill("r6", turn.kept_len)
    served.decode(["r5", "r6"], 3)
    served.compare(["r5", "r6"])
    engine.session_save("s", "r6", len(served.tokens["r6"]))
    engine.session_close("s")
    engine.abort("r5")
