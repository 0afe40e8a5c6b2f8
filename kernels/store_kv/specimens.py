"""`store_kv` as it is compiled without a GPU."""

from collections.abc import Mapping

from kvlife.kernels.compiling import Specimen
from kvlife.kernels.kv_specimens import kv_specimen
from kvlife.kernels.numerics import storage_format
from kvlife.kernels.store_kv.kernel import store_kv_kernel

_HEAD = {"arena": "*u8", "slots": "*i32", "slot_stride": "i32", "num": "i32", "num_slots": "i32"}
_PART = {
    "": "*{}",
    "_row_stride": "i32",
    "_head_stride": "i32",
    "_item_stride": "i32",
    "_base": "i64",
    "_scale_base": "i64",
    "_inverse": "fp32",
}
_TAIL = {"count": "*i32", "entries": "*i64", "capacity": "i32", "seq": "i64", "group": "i32"}


def _types(source: str) -> dict[str, str]:
    parts = {part + name: kind.format(source) for part in "kv" for name, kind in _PART.items()}
    return _HEAD | parts | _TAIL


def _store(
    storage: str, source: str, shape: str = "8 x 128", strided: Mapping[str, int] | None = None
) -> Specimen:
    return kv_specimen(
        store_kv_kernel,
        _types(source),
        storage,
        shape,
        f"{source} to {storage}, {shape}{', strided' if strided else ''}",
        {"SOURCE": storage_format(source).values, "K_HEAD": 0, "V_HEAD": 0, **(strided or {})},
        16,
    )


# Heads cut from wider ones: a launch finds out by itself that values lie side by side.
_STRIDED = {"K_HEAD": 192, "V_HEAD": 128, "k_item_stride": 1, "v_item_stride": 1}
SPECIMENS = (
    _store("bf16", "bf16"),
    _store("bf16", "fp32"),
    _store("fp16", "bf16"),
    _store("fp32", "bf16"),
    _store("fp8_e4m3", "bf16"),
    _store("fp8_e4m3", "fp32"),
    _store("fp8_e5m2", "fp16"),
    _store("mxfp8", "bf16"),
    _store("nvfp4", "bf16"),
    _store("bf16", "bf16", "latent 512 + 64"),
    _store("fp8_e4m3", "bf16", "latent 512 + 64"),
    _store("nvfp4", "bf16", "latent 512 + 64"),
    _store("bf16", "bf16", "4 x 192, 128"),
    _store("mxfp8", "bf16", "4 x 192, 128"),
    _store("bf16", "bf16", "4 x 192, 128", _STRIDED),
)
