"""What a compiled kernel takes, read from machine code: registers, spills, widths of accesses."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import attrs

from kvlife.kernels.dispatch import KernelError

# ld.global.L1::evict_last.v4.b32, st.global.v2.b64, ld.global.nc.b16, ...
PTX_ACCESS = re.compile(
    r"\b(?P<way>ld|st)\.(?:\w+\.)*?global(?:\.[\w:]+?)*?(?:\.v(?P<num>\d))?\.[busf](?P<bits>\d+)\b"
)
PTX_COPY = re.compile(r"\bcp\.async\.\w+\.shared\.global\s+\[[^]]*\],\s*\[[^]]*\],\s*(\w+)")
GCN_ACCESS = re.compile(r"\b(?:global|buffer|flat)_(?P<way>load|store)_(?P<what>\w+)")
GCN_BYTES = {"dword": 4, "short": 2, "byte": 1}
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
LOCAL_ACCESS = re.compile(r"\b(?:LDL|STL)\b")
GCN_NUMBER = r"\.{}:\s+(\d+)"


@attrs.frozen(kw_only=True)
class Usage:
    """Per thread: registers, accesses to spilled values (AMD: spilled registers), local bytes."""

    registers: int
    spills: int
    local_bytes: int


@attrs.frozen(kw_only=True)
class Widths:
    """The widest load and store of global memory, in bytes; 0 where there is none."""

    load: int
    store: int


def usage_of_cubin(cubin: bytes, tools: Path) -> Usage:
    """Of NVIDIA's machine code; `tools` is the folder with cuobjdump and nvdisasm."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        found = USAGE.search(_run(tools / "cuobjdump", "-res-usage", file.name))
        if found is None:
            raise KernelError("cuobjdump -res-usage shows no registers: is it of another CUDA?")
        registers, stack, _, local = map(int, found.groups())
        # What is spilled lies in local memory: without any, the code need not be read.
        code = _run(tools / "nvdisasm", "-c", file.name) if stack + local else ""
    return Usage(
        registers=registers, spills=len(LOCAL_ACCESS.findall(code)), local_bytes=stack + local
    )


def _run(tool: Path, *arguments: str) -> str:
    # Fixed tools of Triton's own wheel, and a file written here.
    done = subprocess.run(  # noqa: S603
        [str(tool), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise KernelError(f"{tool.name} failed: {done.stderr.strip()}")
    return done.stdout


def usage_of_gcn(text: str) -> Usage:
    """Of AMD's assembly, from the metadata at its end."""
    vector, spilled_vector, spilled_scalar, private = (
        _number_of(name, text)
        for name in (
            "vgpr_count",
            "vgpr_spill_count",
            "sgpr_spill_count",
            "private_segment_fixed_size",
        )
    )
    return Usage(registers=vector, spills=spilled_vector + spilled_scalar, local_bytes=private)


def _number_of(name: str, text: str) -> int:
    found = re.search(GCN_NUMBER.format(name), text)
    if found is None:
        raise KernelError(f"the assembly's metadata has no .{name}: is it of another LLVM?")
    return int(found[1])


def widths_of_ptx(text: str) -> Widths:
    """Of NVIDIA's PTX; a predicated access counts as any other."""
    accesses = [
        (found["way"], int(found["num"] or 1) * int(found["bits"]) // 8)
        for found in PTX_ACCESS.finditer(text)
    ]
    accesses += [("ld", int(size, 0)) for size in PTX_COPY.findall(text)]
    return _widest(accesses, "ld", "st")


def widths_of_gcn(text: str) -> Widths:
    """Of AMD's assembly: `global_load_dwordx4` is 16 bytes."""
    accesses = [(found["way"], _gcn_bytes(found["what"])) for found in GCN_ACCESS.finditer(text)]
    return _widest(accesses, "load", "store")


def _gcn_bytes(what: str) -> int:
    found = re.search(r"(dword|short|byte)(?:x(\d))?", what)
    return 0 if found is None else GCN_BYTES[found[1]] * int(found[2] or 1)


def _widest(accesses: Iterable[tuple[str, int]], load: str, store: str) -> Widths:
    widest = {load: 0, store: 0}
    for way, size in accesses:
        widest[way] = max(widest[way], size)
    return Widths(load=widest[load], store=widest[store])
