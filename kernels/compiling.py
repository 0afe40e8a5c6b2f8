"""Compiling kernels for GPUs that are not there, and reading what the compilers made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Specimen:
    """One way in which an operation's kernel is launched, to be compiled for each target.

    `specimens.py` in an operation's folder has `SPECIMENS: tuple[Specimen, ...]`. `kernel` is the
    function under `triton.jit`. `signature` maps each argument that is not constexpr to Triton's
    name of its type (`*i32`, `*u8`, `i32`, `i64`, `fp32`, ...), `constexprs` the others to their
    values. `aligned` names the arguments that are multiples of 16 (pointers and sizes), as a launch
    finds out by itself. `widest` is the widest access in bytes that the PTX must show, or None.
    """

    name: str
    kernel: Any  # Any: triton has no types
    signature: Mapping[str, str]
    constexprs: Mapping[str, object] = attrs.field(factory=dict)
    aligned: tuple[str, ...] = ()
    num_warps: int = 4
    widest: int | None = None


@attrs.frozen(kw_only=True)
class Compiled:
    """What a specimen came to on a target; bytes are per thread but `shared_bytes`, per program.

    `spill_bytes` and `local_bytes` are memory that a kernel should not need; `widest_load` and
    `widest_store` are the widest accesses to global memory, in bytes.
    """

    specimen: str
    target: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    local_bytes: int
    widest_load: int
    widest_store: int
