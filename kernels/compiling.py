"""Compiling kernels for GPUs that are not there, to see what the compilers make of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import kvlife.kernels
from kvlife.kernels.assembly import usage_of_cubin, usage_of_gcn, widths_of_gcn, widths_of_ptx
from kvlife.kernels.dispatch import KernelError, require

# Name: Triton's backend, its name of the architecture, and threads of a warp.
TARGETS: dict[str, tuple[str, int | str, int]] = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}


@attrs.frozen(kw_only=True)
class Specimen:
    """One way in which an operation's kernel is launched, to be compiled for each target.

    `specimens.py` in an operation's folder has `SPECIMENS: tuple[Specimen, ...]`. `kernel` is the
    function under `triton.jit`. `signature` maps each argument that is not constexpr to Triton's
    name of its type (`*i32`, `*u8`, `i32`, `i64`, `fp32`, ...), `constexprs` the others to their
    values. `aligned` names the arguments that are multiples of 16 (pointers and sizes), as a launch
    finds out by itself; `fp_fusion` lets multiply and add fuse, as it does. `widest` is the access
    in bytes that the machine code must show at least, in each of its `ways` (a digest only loads, a
    fill only stores), or None.
    """

    name: str
    kernel: Any  # Any: triton has no types
    signature: Mapping[str, str]
    constexprs: Mapping[str, object] = attrs.field(factory=dict)
    aligned: tuple[str, ...] = ()
    num_warps: int = 4
    fp_fusion: bool = True
    widest: int | None = None
    ways: tuple[str, ...] = ("load", "store")


@attrs.frozen(kw_only=True)
class Compiled:
    """What a specimen came to on a target: per thread, but for `shared_bytes`, of a whole program.

    `spills` counts accesses to spilled values on NVIDIA, spilled registers on AMD; `local_bytes` is
    memory of a thread's own. Neither should be needed. `widest_load` and `widest_store` are the
    widest accesses to global memory, in bytes.
    """

    specimen: str
    target: str
    registers: int
    shared_bytes: int
    spills: int
    local_bytes: int
    widest_load: int
    widest_store: int


def operations() -> tuple[str, ...]:
    """The names of the folders that have specimens, in alphabetic order."""
    return tuple(
        module.name
        for module in pkgutil.iter_modules(kvlife.kernels.__path__)
        if module.ispkg and _specimens_file(module.name).is_file()
    )


def _specimens_file(operation: str) -> Path:
    return Path(kvlife.kernels.__path__[0]) / operation / "specimens.py"


def specimens_of(operation: str) -> tuple[Specimen, ...]:
    """What an operation wants compiled; raises `KernelError` where no folder has that name."""
    if not _specimens_file(operation).is_file():
        known = ", ".join(operations())
        raise KernelError(f"{operation} is no operation with specimens; there are {known}")
    module = importlib.import_module(f"kvlife.kernels.{operation}.specimens")
    return tuple(module.SPECIMENS)


def compile_specimen(specimen: Specimen, target: str) -> Compiled:
    """Compile for a target of `TARGETS`; needs no GPU. Raises `KernelError`, or Triton's errors."""
    kernel = _built(specimen, target)
    text = kernel.asm
    if TARGETS[target][0] == "cuda":
        usage, widths = usage_of_cubin(text["cubin"], _cuda_tools()), widths_of_ptx(text["ptx"])
    else:
        usage, widths = usage_of_gcn(text["amdgcn"]), widths_of_gcn(text["amdgcn"])
    return Compiled(
        specimen=specimen.name,
        target=target,
        registers=usage.registers,
        shared_bytes=int(kernel.metadata.shared),
        spills=usage.spills,
        local_bytes=usage.local_bytes,
        widest_load=widths.load,
        widest_store=widths.store,
    )


def flaws_of(specimen: Specimen, compiled: Compiled) -> list[str]:
    """What a kernel must not show, in words: spills, local memory, narrow accesses."""
    flaws = []
    if compiled.spills:
        flaws.append(f"{compiled.spills} spills")
    if compiled.local_bytes:
        flaws.append(f"{compiled.local_bytes} bytes of local memory")
    widths = {"load": compiled.widest_load, "store": compiled.widest_store}
    needed = specimen.widest or 0
    flaws += [f"no {way} of {needed} bytes" for way in specimen.ways if widths[way] < needed]
    return flaws


def _built(specimen: Specimen, target: str) -> Any:  # Any: triton has no types
    require("triton")
    # Triton takes most of a second to load, and only compiling needs it here.
    import triton
    from triton.backends.compiler import GPUTarget  # as above

    if target not in TARGETS:
        raise KernelError(f"{target} is no target to compile for; there are {', '.join(TARGETS)}")
    if not isinstance(specimen.kernel, triton.JITFunction):
        raise KernelError(
            f"{specimen.name} was loaded for Triton's interpreter, which compiles nothing: start "
            f"Python without TRITON_INTERPRET"
        )
    names = specimen.kernel.arg_names
    missing = set(names) ^ (specimen.signature.keys() | specimen.constexprs.keys())
    if missing:
        raise KernelError(
            f"{specimen.name}: its kernel takes {', '.join(names)}; signature and constexprs "
            f"disagree about {', '.join(sorted(missing))}"
        )
    signature = {name: specimen.signature.get(name, "constexpr") for name in names}
    divisible = {(names.index(name),): [["tt.divisibility", 16]] for name in specimen.aligned}
    source = triton.compiler.ASTSource(
        specimen.kernel, signature, dict(specimen.constexprs), divisible
    )
    options = {"num_warps": specimen.num_warps, "enable_fp_fusion": specimen.fp_fusion}
    return triton.compile(source, target=GPUTarget(*TARGETS[target]), options=options)


def _cuda_tools() -> Path:
    # As above.
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
