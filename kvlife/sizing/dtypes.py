"""In which dtype KV is kept: what was asked for, what the checkpoint says, what the device has."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.reading.quantization import fp8_statement
from kvlife.sizing.vetting import quoted


@attrs.frozen(kw_only=True)
class ScaleLayout:
    """Scales that stand beside the values: `scale_bytes` for each `block_len` values of a head."""

    block_len: int
    scale_bytes: int
    scale_dtype: str


@attrs.frozen(kw_only=True)
class KvDtype:
    """A resolved KV dtype: its name, the torch dtype (by name) that holds it, scales, and why.

    `bits` is the width of one value; two values of 4 bits lie in a byte. A scale for a whole
    tensor, as plain fp8 and nvfp4 have one, belongs to the weights and is not counted.
    """

    name: str
    storage: str
    bits: int
    scale_layout: ScaleLayout | None = None
    why: str = attrs.field(default="", eq=False)


@attrs.frozen(kw_only=True)
class Platform:
    """What a device can hold: `has_fp4` for nvfp4, `fp8_fnuz` for HIP's own fp8 (gfx94x)."""

    name: str
    has_fp4: bool = False
    fp8_fnuz: bool = False


CUDA = Platform(name="cuda", has_fp4=True)
HIP = Platform(name="hip", fp8_fnuz=True)
CPU = Platform(name="cpu")

_MX_SCALES = ScaleLayout(block_len=32, scale_bytes=1, scale_dtype="float8_e8m0fnu")
_NV_SCALES = ScaleLayout(block_len=16, scale_bytes=1, scale_dtype="float8_e4m3fn")
FORMATS = {
    dtype.name: dtype
    for dtype in (
        KvDtype(name="fp32", storage="float32", bits=32),
        KvDtype(name="bf16", storage="bfloat16", bits=16),
        KvDtype(name="fp16", storage="float16", bits=16),
        KvDtype(name="fp8_e4m3", storage="float8_e4m3fn", bits=8),
        KvDtype(name="fp8_e5m2", storage="float8_e5m2", bits=8),
        KvDtype(name="mxfp8", storage="float8_e4m3fn", bits=8, scale_layout=_MX_SCALES),
        KvDtype(name="nvfp4", storage="uint8", bits=4, scale_layout=_NV_SCALES),
    )
}
ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fnuz": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "float8_e5m2fnuz": "fp8_e5m2",
    "fp4": "nvfp4",
    "fp4_e2m1": "nvfp4",
    "float4_e2m1fn_x2": "nvfp4",
}
FNUZ = {"fp8_e4m3": "float8_e4m3fnuz", "fp8_e5m2": "float8_e5m2fnuz"}


def configure_kv_cache_dtype(
    requested: str,
    model_dtype: object,
    quant_config: Mapping[str, object] | None = None,
    platform: Platform = CUDA,
    *,
    is_draft: bool = False,
    reads: Collection[str] | None = None,
) -> KvDtype:
    """The dtype that KV is kept in.

    `auto` takes fp8 where `quant_config` (the checkpoint's) says that its KV is fp8, else the
    model's dtype, which may be a name or torch's object. `reads` names the KV dtypes that the
    attention reads beside its compute dtype (None: all): a draft that does not read the one asked
    for keeps its compute dtype, and a target is refused. Where fp4 is not to be had, the answer is
    what `auto` gives, and `why` says so. Raises `ConfigError` for unknown names, listing the known.
    """
    compute = named_dtype(model_dtype)
    found = _resolve(requested, compute, quant_config, platform)
    if reads is None or found.name == compute.name or found.name in _canonical(reads):
        return found
    if is_draft:
        why = f"the draft reads only {compute.name}, its compute dtype, and not {found.name}"
        return attrs.evolve(compute, why=why)
    readable = ", ".join(sorted({compute.name, *_canonical(reads)}))
    raise ConfigError(
        f"KV dtype {requested!r} gives {found.name}, which the attention does not read:"
        f" it reads {readable}"
    )


def _resolve(
    requested: str, compute: KvDtype, quant: Mapping[str, object] | None, platform: Platform
) -> KvDtype:
    if requested == "auto":
        return _auto(compute, quant, platform)
    name = ALIASES.get(requested, requested)
    if name not in FORMATS:
        known = ", ".join(["auto", *FORMATS])
        also = ", ".join(ALIASES)
        raise ConfigError(f"unknown KV dtype {quoted(requested)}: one of {known} (or {also})")
    if name == "nvfp4" and not platform.has_fp4:
        instead = _auto(compute, quant, platform)
        why = f"{requested} was asked for and {platform.name} has no fp4, so as auto: {instead.why}"
        return attrs.evolve(instead, why=why)
    return _on(platform, FORMATS[name], f"{requested} was asked for")


def _auto(compute: KvDtype, quant: Mapping[str, object] | None, platform: Platform) -> KvDtype:
    statement = fp8_statement(quant or {})
    if statement is not None:
        why = f"fp8_e4m3, since the checkpoint's quantisation says {statement}"
        return _on(platform, FORMATS["fp8_e4m3"], why)
    why = f"{compute.name}, the model's dtype, since the checkpoint names no fp8 for its KV"
    return attrs.evolve(compute, why=why)


def _on(platform: Platform, dtype: KvDtype, why: str) -> KvDtype:
    storage = FNUZ.get(dtype.name, dtype.storage) if platform.fp8_fnuz else dtype.storage
    return attrs.evolve(dtype, storage=storage, why=why)


def _canonical(names: Collection[str]) -> set[str]:
    return {ALIASES.get(name, name) for name in names}


def named_dtype(dtype: object) -> KvDtype:
    """A dtype given by name or as an object (torch's, numpy's), known to this module or not.

    One that is not known keeps its own name. Raises `ConfigError` where its width cannot be told.
    """
    text = str(dtype).removeprefix("torch.")
    name = text if text and text.isprintable() else type(dtype).__qualname__
    known = FORMATS.get(ALIASES.get(name, name))
    if known is not None:
        return known
    return KvDtype(name=name, storage=name, bits=_bits(name, dtype))


def _bits(name: str, dtype: object) -> int:
    # A name like float8_e8m0fnu says the width; of a packed dtype it says that of one value.
    said = re.match(r"[a-z]+(\d+)", name)
    itemsize = getattr(dtype, "itemsize", None)
    bits = int(said[1]) if said else itemsize * 8 if isinstance(itemsize, int) else 0
    if bits not in {4, 8, 16, 32, 64}:
        raise ConfigError(
            f"the width of dtype {quoted(name)} is not known: one of {', '.join(FORMATS)}"
            f" (or {', '.join(ALIASES)})"
        )
    return bits
