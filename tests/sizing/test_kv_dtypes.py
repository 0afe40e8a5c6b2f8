"""In which dtype KV is kept, and why."""

import pytest

from kvlife.errors import ConfigError
from kvlife.sizing import CPU, CUDA, HIP, checkpoint_quantization, configure_kv_cache_dtype

MODELOPT = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
MODELOPT_NESTED = {"producer": {}, "quantization": {"kv_cache_quant_algo": "FP8"}}
COMPRESSED_TENSORS = {
    "quant_method": "compressed-tensors",
    "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"},
}
QUARK = {
    "quant_method": "quark",
    "kv_cache_quant_config": {
        "*k_proj": {"output_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
        "*v_proj": {"output_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
    },
}
FP8_CHECKPOINTS = [MODELOPT, MODELOPT_NESTED, COMPRESSED_TENSORS, QUARK]
OTHER_CHECKPOINTS = [
    None,
    {},
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
    {"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"},
    {"quant_method": "compressed-tensors", "kv_cache_scheme": None},
    {"kv_cache_scheme": {"num_bits": 8, "type": "int"}},
    {"quant_method": "quark", "kv_cache_quant_config": {}},
]


class TorchDtype:
    """As torch's dtypes: a text with the module's name in front, and an itemsize."""

    def __init__(self, text, itemsize):
        self.text = text
        self.itemsize = itemsize

    def __str__(self):
        return self.text


@pytest.mark.parametrize(
    ("requested", "name", "storage", "bits"),
    [
        ("bf16", "bf16", "bfloat16", 16),
        ("bfloat16", "bf16", "bfloat16", 16),
        ("fp16", "fp16", "float16", 16),
        ("half", "fp16", "float16", 16),
        ("fp8", "fp8_e4m3", "float8_e4m3fn", 8),
        ("fp8_e4m3", "fp8_e4m3", "float8_e4m3fn", 8),
        ("fp8_e5m2", "fp8_e5m2", "float8_e5m2", 8),
        ("mxfp8", "mxfp8", "float8_e4m3fn", 8),
        ("nvfp4", "nvfp4", "uint8", 4),
        ("fp4_e2m1", "nvfp4", "uint8", 4),
    ],
)
def test_each_name_has_a_storage(requested, name, storage, bits):
    """A name that was asked for resolves to one name, held by one torch dtype."""
    dtype = configure_kv_cache_dtype(requested, "bfloat16")
    assert (dtype.name, dtype.storage, dtype.bits) == (name, storage, bits)


def test_block_scales_stand_beside_the_values():
    """mxfp8: a byte (e8m0) for 32 values; nvfp4: a byte (e4m3) for 16; plain fp8: none."""
    scales = configure_kv_cache_dtype("mxfp8", "bfloat16").scale_layout
    assert (scales.block_len, scales.scale_bytes, scales.scale_dtype) == (32, 1, "float8_e8m0fnu")
    scales = configure_kv_cache_dtype("nvfp4", "bfloat16").scale_layout
    assert (scales.block_len, scales.scale_bytes, scales.scale_dtype) == (16, 1, "float8_e4m3fn")
    assert configure_kv_cache_dtype("fp8", "bfloat16").scale_layout is None


@pytest.mark.parametrize("quantization", FP8_CHECKPOINTS)
def test_auto_takes_fp8_where_the_checkpoint_says_so(quantization):
    """Each way of saying that KV is fp8 is understood, and named as the reason."""
    dtype = configure_kv_cache_dtype("auto", "bfloat16", quantization)
    assert dtype.name == "fp8_e4m3"
    assert "the checkpoint's quantisation says kv_cache_" in dtype.why


@pytest.mark.parametrize("quantization", OTHER_CHECKPOINTS)
def test_auto_takes_the_models_dtype_otherwise(quantization):
    """Weights in fp8, or KV in another form, do not make KV fp8."""
    dtype = configure_kv_cache_dtype("auto", "float16", quantization)
    assert dtype.name == "fp16"
    assert "the model's dtype" in dtype.why


@pytest.mark.parametrize("quantization", FP8_CHECKPOINTS)
def test_without_fp4_the_answer_is_that_of_auto_with_its_fp8(quantization):
    """The fallback from fp4 still sees that the checkpoint's KV is fp8, and says what it did."""
    dtype = configure_kv_cache_dtype("nvfp4", "bfloat16", quantization, CPU)
    assert dtype == configure_kv_cache_dtype("auto", "bfloat16", quantization, CPU)
    assert dtype.name == "fp8_e4m3"
    assert dtype.why.startswith("nvfp4 was asked for and cpu has no fp4, so as auto: fp8_e4m3")


def test_without_fp4_and_fp8_the_answer_is_the_models_dtype():
    """With nothing said of the KV, the fallback from fp4 is the compute dtype."""
    dtype = configure_kv_cache_dtype("fp4_e2m1", "bfloat16", None, HIP)
    assert dtype.name == "bf16"
    assert "fp4_e2m1 was asked for and hip has no fp4" in dtype.why


@pytest.mark.parametrize(
    ("text", "itemsize", "name", "bits"),
    [
        ("torch.float8_e8m0fnu", 1, "float8_e8m0fnu", 8),
        ("torch.float64", 8, "float64", 64),
        ("custom", 2, "custom", 16),
        ("", 2, "TorchDtype", 16),
        ("\x00", 1, "TorchDtype", 8),
    ],
)
def test_a_dtype_without_a_name_of_ours_is_named_all_the_same(text, itemsize, name, bits):
    """A dtype that no table has keeps its own name; one without a printable one, its type's."""
    dtype = configure_kv_cache_dtype("auto", TorchDtype(text, itemsize))
    assert (dtype.name, dtype.storage, dtype.bits) == (name, name, bits)


@pytest.mark.parametrize("text", ["torch.bfloat16", "bfloat16", "bf16"])
def test_objects_and_names_of_a_dtype_are_the_same(text):
    """Torch's object and each of its names resolve alike."""
    dtype = configure_kv_cache_dtype("auto", TorchDtype(text, 2))
    assert (dtype.name, dtype.storage) == ("bf16", "bfloat16")


def test_a_dtype_of_unknown_width_is_refused():
    """Without a width there are no bytes to count; the error lists dtypes that have one."""
    with pytest.raises(ConfigError, match=r"width of dtype 'wide' .*bf16.*nvfp4"):
        configure_kv_cache_dtype("auto", "wide")


def test_hip_has_an_fp8_of_its_own():
    """The name stays, the storage is HIP's."""
    for name, storage in (("fp8_e4m3", "float8_e4m3fnuz"), ("fp8_e5m2", "float8_e5m2fnuz")):
        dtype = configure_kv_cache_dtype(name, "bfloat16", None, HIP)
        assert (dtype.name, dtype.storage) == (name, storage)
    assert configure_kv_cache_dtype("auto", "bfloat16", MODELOPT, HIP).storage == "float8_e4m3fnuz"


@pytest.mark.parametrize("requested", ["fp8_e4m3", "nvfp4", "mxfp8", "fp16"])
def test_a_draft_that_reads_only_its_compute_dtype_keeps_it(requested):
    """Whatever the target has, such a draft stays in its own dtype, and says so."""
    dtype = configure_kv_cache_dtype(requested, "bfloat16", is_draft=True, reads=())
    assert dtype.name == "bf16"
    assert f"and not {dtype.name}" not in dtype.why
    assert "reads only bf16" in dtype.why


def test_a_draft_takes_what_it_reads():
    """A draft that reads fp8 takes it, and one of which nothing is said takes all."""
    for reads in (("fp8",), None):
        dtype = configure_kv_cache_dtype("fp8_e4m3", "bfloat16", is_draft=True, reads=reads)
        assert dtype.name == "fp8_e4m3"


def test_a_target_is_not_given_what_it_does_not_read():
    """For a target the same is an error that lists what it reads."""
    with pytest.raises(ConfigError, match=r"'nvfp4' .*it reads bf16, fp8_e4m3"):
        configure_kv_cache_dtype("nvfp4", "bfloat16", platform=CUDA, reads=("fp8_e4m3",))


@pytest.mark.parametrize("requested", ["fp7", "", "FP8", "int8"])
def test_unknown_names_list_the_known(requested):
    """The error lists every name that works."""
    with pytest.raises(ConfigError) as refused:
        configure_kv_cache_dtype(requested, "bfloat16")
    for known in ("auto", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "nvfp4", "bfloat16"):
        assert known in str(refused.value)


def test_the_quantisation_of_a_config_is_found():
    """At the top, inside the language model's part, and under its older name."""
    for config in (
        {"quantization_config": MODELOPT},
        {"text_config": {"quantization_config": MODELOPT}, "quantization_config": {}},
        {"compression_config": MODELOPT},
    ):
        assert checkpoint_quantization(config) == MODELOPT
    assert checkpoint_quantization({"text_config": {}}) == {}
