"""`load_kv` as it is compiled without a GPU."""

from kvlife.kernels.compiling import Specimen
from kvlife.kernels.kv_specimens import kv_specimen
from kvlife.kernels.load_kv.kernel import load_kv_kernel
from kvlife.kernels.numerics import storage_format

_HEAD = {"arena": "*u8", "slots": "*i32", "slot_stride": "i32", "num": "i32", "num_slots": "i32"}
_PART = {"": "*{}", "_base": "i64", "_scale_base": "i64", "_scale": "fp32"}
_TAIL = {"count": "*i32", "entries": "*i64", "capacity": "i32", "seq": "i64", "group": "i32"}


def _types(target: str) -> dict[str, str]:
    parts = {part + name: kind.format(target) for part in "kv" for name, kind in _PART.items()}
    return _HEAD | parts | _TAIL


def _load(storage: str, target: str, shape: str = "8 x 128") -> Specimen:
    return kv_specimen(
        load_kv_kernel,
        _types(target),
        storage,
        shape,
        f"{storage} to {target}, {shape}",
        {"TARGET": storage_format(target).values},
        # Of packed values a thread of a warp of 64 has 8 bytes.
        8 if storage == "nvfp4" else 16,
    )


SPECIMENS = (
    _load("bf16", "bf16"),
    _load("fp32", "bf16"),
    _load("fp16", "fp32"),
    _load("fp8_e4m3", "bf16"),
    _load("fp8_e5m2", "fp16"),
    _load("mxfp8", "bf16"),
    _load("nvfp4", "bf16"),
    _load("nvfp4", "fp32", "latent 512 + 64"),
    _load("bf16", "bf16", "4 x 192, 128"),
)
