"""Recurrence: which state a layer keeps of a request, by the keys that describe it."""

from __future__ import annotations

from collections.abc import Callable

from kvlife.errors import ConfigError
from kvlife.sizing.layers import Heads, RecurrentState
from kvlife.sizing.reading.attention import HEAD_DIMS, QUERY_HEADS
from kvlife.sizing.reading.keys import ConfigKeys, MissingKeys, ask
from kvlife.sizing.reading.layer_kinds import ATTENTION_KEYS
from kvlife.sizing.vetting import quoted

STATE_DTYPES = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype", "ssm_cache_dtype", "ssm_state_dtype")
STATE_DIMS = ("mamba_d_state", "mamba_state_dim", "ssm_state_size", "state_size")
KERNELS = ("mamba_d_conv", "conv_kernel", "conv_kernel_size", "d_conv")
SSM_HEADS = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
SSM_HEAD_DIMS = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
GROUPS = ("mamba_n_groups", "mamba_ngroups", "mamba_num_groups", "n_groups")
LIGHTNING_KEYS = (
    "attn_type_list",
    "linear_attn_alpha_factor",
    "layernorm_linear_attention_alpha",
    "layer_group_size",
)


def recurrent_state(keys: ConfigKeys) -> RecurrentState:
    """The state of a recurrent layer."""
    for signs, reader in READERS:
        if keys.has(*signs):
            return reader(keys)
    first = ", ".join(signs[0] for signs, _ in READERS)
    raise MissingKeys([f"what describes a recurrent layer (one of {first}, ...)"])


def _state_dtype(keys: ConfigKeys) -> str:
    found = keys.find(*STATE_DTYPES)
    if found is None:
        return "float32"
    name, dtype = found
    if not isinstance(dtype, str):
        raise ConfigError(f"{name} is {quoted(dtype)}: it must be a name, as float32")
    return dtype.removeprefix("torch.")


def _gated_delta(keys: ConfigKeys) -> RecurrentState:
    key_heads, value_heads, k_dim, v_dim, kernel = ask(
        lambda: keys.whole("linear_num_key_heads"),
        lambda: keys.whole("linear_num_value_heads"),
        lambda: keys.whole("linear_key_head_dim"),
        lambda: keys.whole("linear_value_head_dim"),
        lambda: keys.whole("linear_conv_kernel_dim"),
    )
    query_or_key = Heads(num=key_heads, dim=k_dim)
    return RecurrentState(
        conv=(query_or_key, query_or_key, Heads(num=value_heads, dim=v_dim)),
        conv_kernel=kernel,
        state=Heads(num=value_heads, dim=k_dim * v_dim),
        state_dtype=_state_dtype(keys),
    )


def _kimi_delta(keys: ConfigKeys) -> RecurrentState:
    linear = keys.part("linear_attn_config")
    assert linear is not None
    num_heads, dim, kernel = ask(
        lambda: linear.whole("num_heads"),
        lambda: linear.whole("head_dim"),
        lambda: linear.whole("short_conv_kernel_size"),
    )
    heads = Heads(num=num_heads, dim=dim)
    return RecurrentState(
        conv=(heads, heads, heads),
        conv_kernel=kernel,
        state=Heads(num=num_heads, dim=dim * dim),
        state_dtype=_state_dtype(keys),
    )


def _mamba2(keys: ConfigKeys) -> RecurrentState:
    num_heads, state_dim, groups, kernel = ask(
        lambda: keys.whole(*SSM_HEADS, "num_heads"),
        lambda: keys.whole(*STATE_DIMS),
        lambda: keys.whole(*GROUPS),
        lambda: keys.whole(*KERNELS),
    )
    head_dim = _ssm_head_dim(keys, num_heads)
    group = Heads(num=groups, dim=state_dim)
    return RecurrentState(
        conv=(Heads(num=num_heads, dim=head_dim), group, group),
        conv_kernel=kernel,
        state=Heads(num=num_heads, dim=head_dim * state_dim),
        state_dtype=_state_dtype(keys),
    )


def _ssm_head_dim(keys: ConfigKeys, num_heads: int) -> int:
    # Some configs write "auto" here, for the inner width divided by the heads.
    found = keys.find(*SSM_HEAD_DIMS)
    if found is not None and found[1] != "auto":
        return keys.whole(*SSM_HEAD_DIMS)
    if not keys.has(*SSM_HEADS):
        return keys.whole("head_dim")
    inner = keys.whole("mamba_d_ssm") if keys.has("mamba_d_ssm") else _inner_width(keys)
    if inner % num_heads:
        raise ConfigError(f"{num_heads} state heads do not divide the inner width {inner}")
    return inner // num_heads


def _mamba1(keys: ConfigKeys) -> RecurrentState:
    inner, state_dim, kernel = ask(
        lambda: _inner_width(keys),
        lambda: keys.whole(*STATE_DIMS),
        lambda: keys.whole(*KERNELS),
    )
    return RecurrentState(
        conv=(Heads(num=inner, dim=1),),
        conv_kernel=kernel,
        state=Heads(num=inner, dim=state_dim),
        state_dtype=_state_dtype(keys),
    )


def _inner_width(keys: ConfigKeys) -> int:
    # A model of states alone calls the inner width so; beside attention it is another layer's.
    names = ("d_inner",) if keys.has(*ATTENTION_KEYS) else ("d_inner", "intermediate_size")
    found = None if keys.has("mamba_expand") else keys.whole_or_none(*names)
    if found is not None:
        return found
    expand, hidden = ask(
        lambda: keys.whole("mamba_expand", "expand"), lambda: keys.whole("hidden_size", "d_model")
    )
    return expand * hidden


def _gated_recurrence(keys: ConfigKeys) -> RecurrentState:
    width, kernel = ask(
        lambda: keys.whole("lru_width", "hidden_size"), lambda: keys.whole("conv1d_width")
    )
    channels = Heads(num=width, dim=1)
    return RecurrentState(
        conv=(channels,), conv_kernel=kernel, state=channels, state_dtype=_state_dtype(keys)
    )


def _short_convolution(keys: ConfigKeys) -> RecurrentState:
    width, kernel = ask(lambda: keys.whole("hidden_size"), lambda: keys.whole("conv_L_cache"))
    return RecurrentState(conv=(Heads(num=width, dim=1),), conv_kernel=kernel)


def _lightning(keys: ConfigKeys) -> RecurrentState:
    num_heads, dim = ask(lambda: keys.whole(*QUERY_HEADS), lambda: keys.whole(*HEAD_DIMS))
    return RecurrentState(state=Heads(num=num_heads, dim=dim * dim), state_dtype=_state_dtype(keys))


READERS: tuple[tuple[tuple[str, ...], Callable[[ConfigKeys], RecurrentState]], ...] = (
    (("linear_num_value_heads", "linear_num_key_heads"), _gated_delta),
    (("linear_attn_config",), _kimi_delta),
    ((*SSM_HEADS, *SSM_HEAD_DIMS, *GROUPS), _mamba2),
    (STATE_DIMS, _mamba1),
    (("lru_width", "conv1d_width"), _gated_recurrence),
    (("conv_L_cache",), _short_convolution),
    (LIGHTNING_KEYS, _lightning),
)
