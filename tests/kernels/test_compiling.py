"""Every kernel compiled for GPUs that are not here: no spills, no local memory, wide accesses."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

import attrs
import triton
import triton.language as tl

from kvlife.kernels import KernelError
from kvlife.kernels.assembly import (
    Usage,
    Widths,
    usage_of_gcn,
    widths_of_gcn,
    widths_of_ptx,
)
from kvlife.kernels.compiling import (
    TARGETS,
    Specimen,
    compile_specimen,
    flaws_of,
    operations,
    specimens_of,
)

KERNELS = Path(sys.modules["kvlife.kernels"].__path__[0])


@triton.jit
def copying(source, target, n, BLOCK: tl.constexpr):  # noqa: N803
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + lane, tl.load(source + lane, mask=lane < n), mask=lane < n)


COPYING = Specimen(
    name="copying",
    kernel=copying,
    signature={"source": "*i32", "target": "*i32", "n": "i32"},
    constexprs={"BLOCK": 1024},
    aligned=("source", "target", "n"),
    widest=16,
)


@triton.jit
def hoarding(source, target, BLOCK: tl.constexpr):  # noqa: N803
    lane = tl.arange(0, BLOCK)
    held = tl.load(source + lane)
    tl.debug_barrier()
    tl.store(target + lane, held)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operation", operations())
def test_no_kernel_spills_or_uses_local_memory(operation, target):
    """Each way to launch an operation's kernels keeps to registers, and is wide where it can be."""
    specimens = specimens_of(operation)
    assert specimens
    found = {
        specimen.name: flaws_of(specimen, compile_specimen(specimen, target))
        for specimen in specimens
    }
    assert {name: flaws for name, flaws in found.items() if flaws} == {}


def test_every_operation_has_specimens():
    """Each folder with a kernel says how it is launched."""
    with_kernels = {path.parent.name for path in KERNELS.glob("*/contract.py")}
    assert set(operations()) == with_kernels
    assert len(with_kernels) >= 15


@pytest.mark.parametrize("target", TARGETS)
def test_a_copy_is_seen_to_be_wide(target):
    """A plain copy of aligned words moves 16 bytes at a time, without a flaw; unaligned, 4."""
    compiled = compile_specimen(COPYING, target)
    assert (compiled.widest_load, compiled.widest_store) == (16, 16)
    assert compiled.registers > 0
    assert flaws_of(COPYING, compiled) == []
    narrow = attrs.evolve(COPYING, aligned=())
    compiled = compile_specimen(narrow, target)
    assert (compiled.widest_load, compiled.widest_store) == (4, 4)
    assert flaws_of(narrow, compiled) == ["no load of 16 bytes", "no store of 16 bytes"]


def test_spills_are_seen():
    """A warp of 32 that must hold 16,384 words in 255 registers a thread spills half of them."""
    specimen = Specimen(
        name="hoarding",
        kernel=hoarding,
        signature={"source": "*i32", "target": "*i32"},
        constexprs={"BLOCK": 16384},
        num_warps=1,
    )
    compiled = compile_specimen(specimen, "sm_90")
    assert compiled.spills > 0
    assert compiled.local_bytes > 0
    assert len(flaws_of(specimen, compiled)) == 2


def test_widths_are_read_from_ptx():
    """Vectors, cache hints, 8-byte words and asynchronous copies count; shared memory does not."""
    text = """
        ld.shared.v4.b32 { %r1, %r2, %r3, %r4 }, [ %r9 ];
        @%p1 ld.global.nc.L1::evict_last.L2::cache_hint.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ], %rd2;
        @%p2 st.global.v4.b64 [ %rd3 + 0 ], { %rd4, %rd5, %rd6, %rd7 };
    """
    assert widths_of_ptx(text) == Widths(load=8, store=32)
    copied = "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, 0x10;"
    assert widths_of_ptx(copied) == Widths(load=16, store=0)


def test_amd_code_is_read():
    """Widths of global and buffer accesses, and the numbers of the metadata."""
    text = """
        global_load_dwordx2 v[4:5], v[4:5], off
        buffer_load_ubyte v1, v2, s[0:3], 0 offen
        global_store_dwordx4 v[0:1], v[4:7], off
        scratch_store_dwordx4 off, v[0:3], s32
        .private_segment_fixed_size: 48
        .sgpr_spill_count: 2
        .vgpr_count:     18
        .vgpr_spill_count: 5
    """
    assert widths_of_gcn(text) == Widths(load=8, store=16)
    assert usage_of_gcn(text) == Usage(registers=18, spills=7, local_bytes=48)


def test_what_cannot_be_compiled_is_named():
    """An unknown operation, target or argument is an error that says what there is."""
    with pytest.raises(KernelError, match="bind_pages"):
        specimens_of("bind_page")
    with pytest.raises(KernelError, match="sm_90"):
        compile_specimen(COPYING, "sm_75")
    with pytest.raises(KernelError, match="disagree about n"):
        compile_specimen(
            attrs.evolve(COPYING, signature={"source": "*i32", "target": "*i32"}), "sm_80"
        )
