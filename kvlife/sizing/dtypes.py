"""In which dtype KV is kept: what was asked for, what the checkpoint says, what the device has."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs


@attrs.frozen(kw_only=True)
class ScaleLayout:
    """Scales that stand beside the values: `scale_bytes` for each `block_len` values of a head."""

    block_len: int
    scale_bytes: int
    scale_dtype: str


@attrs.frozen(kw_only=True)
class KvDtype:
    """A resolved KV dtype: its name, the torch dtype (by name) that holds it, scales, and why.

    `bits` is the width of one value. A scale of a whole tensor is not counted: it is not KV.
    """

    name: str
    storage: str
    bits: int
    scale_layout: ScaleLayout | None = None
    why: str = ""


@attrs.frozen(kw_only=True)
class Platform:
    """What a device can hold: `fp8_fnuz` for HIP's own fp8, `has_fp4` for nvfp4."""

    name: str
    has_fp4: bool = False
    fp8_fnuz: bool = False


CUDA = Platform(name="cuda", has_fp4=True)
HIP = Platform(name="hip", fp8_fnuz=True)
CPU = Platform(name="cpu")


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
    model's dtype. `reads` names the KV dtypes that the attention reads beside its compute dtype
    (None: all): a draft that does not read the one asked for keeps its compute dtype, and a
    target is refused. Where fp4 is not to be had, the answer is what `auto` gives, and `why` says
    so. Raises `ConfigError` for unknown names, listing the known.
    """
    raise NotImplementedError
