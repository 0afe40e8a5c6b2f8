"""Random geometries, dtypes and parallelisms; sizes are such as engines serve."""

import hypothesis.strategies as st

from kvlife.sizing import (
    Compressed,
    CompressorState,
    FullAttention,
    Heads,
    Latent,
    LatentIndexed,
    ModelGeometry,
    Parallel,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
    SparseIndexed,
)

CONTEXT_LEN = 4096
HEADS = st.sampled_from([1, 2, 4, 8, 16])
DIMS = st.sampled_from([32, 64, 96, 128, 256])
WINDOWS = st.sampled_from([1, 100, 1024, CONTEXT_LEN])

keys_and_values = {"num_kv_heads": HEADS, "k_dim": DIMS, "v_dim": DIMS}
full = st.builds(FullAttention, **keys_and_values)
windows = st.builds(SlidingWindow, **keys_and_values, window=WINDOWS)
sparse = st.builds(SparseIndexed, **keys_and_values, index_head_dim=DIMS)
latents = st.builds(
    Latent, kv_lora_rank=st.sampled_from([128, 256, 512]), rope_dim=st.sampled_from([0, 32, 64])
)
indexed_latents = st.builds(
    LatentIndexed,
    kv_lora_rank=st.sampled_from([128, 512]),
    rope_dim=st.sampled_from([0, 64]),
    index_head_dim=st.sampled_from([64, 128, 256]),
)
shared_windows = st.builds(
    SharedWindow,
    dim=st.sampled_from([192, 512]),
    rope_dim=st.sampled_from([64, 128]),
    window=WINDOWS,
)
entries = st.builds(
    Compressed,
    ratio=st.sampled_from([2, 4, 128]),
    dim=st.sampled_from([192, 512]),
    rope_dim=st.sampled_from([64, 128]),
    index_head_dim=st.sampled_from([None, 128]),
)
compressors = st.builds(
    CompressorState, num_tokens=st.integers(1, 128), dim=st.sampled_from([64, 512])
)
# State heads go into any number of parts up to 16.
state_heads = st.builds(Heads, num=st.sampled_from([16, 32, 64]), dim=st.integers(1, 4096))
recurrences = st.builds(
    RecurrentState,
    conv=st.lists(state_heads, max_size=3).map(tuple),
    conv_kernel=st.integers(1, 5),
    state=state_heads,
    state_dtype=st.sampled_from(["float32", "bfloat16"]),
)
# Kinds that every dtype has a form for, and those that only fp8_e4m3 and wider ones have.
any_dtype_caches = st.one_of(full, windows, latents, recurrences, compressors)
fp8_caches = st.one_of(any_dtype_caches, sparse, indexed_latents, shared_windows, entries)


@st.composite
def geometries(draw, caches=any_dtype_caches):
    layers = draw(st.lists(st.lists(caches, max_size=2), min_size=4, max_size=6).filter(any))
    dtype = draw(st.sampled_from(["bfloat16", "float16"]))
    return ModelGeometry(layers=layers, model_dtype=dtype, context_len=CONTEXT_LEN)


@st.composite
def parallels(draw):
    dcp, dp, shards = (draw(st.sampled_from(sizes)) for sizes in ([1, 2], [1, 2], [1, 2, 4]))
    pp = draw(st.integers(1, 4))
    return Parallel(
        tp=dcp * dp * shards,
        dcp=dcp,
        attention_dp=dp,
        pp=pp,
        pp_rank=draw(st.integers(0, pp - 1)),
    )
