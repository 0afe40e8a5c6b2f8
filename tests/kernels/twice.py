"""An operation run twice on equal inputs, by Triton's interpreter and by torch, and compared."""

import os
from collections import Counter
from unittest import mock

import attrs
import torch

from kvlife.kernels import Violations

POISON = 0x5A


def poisoned(shape, dtype, device="cpu"):
    """An output in which elements that nobody wrote show."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    tensor.untyped_storage().fill_(POISON)
    return tensor


def strided(tensor, step=3):
    """The same values, each `step` elements apart in the last dimension, gaps poisoned."""
    if not tensor.numel():
        return tensor
    wide = poisoned((*tensor.shape[:-1], tensor.shape[-1] * step), tensor.dtype)
    apart = wide[..., ::step]
    apart.copy_(tensor)
    return apart


def run_by(choice, operation, *arguments, **named):
    """The result of an operation by `torch` or by `triton`."""
    with mock.patch.dict(os.environ, {"KVLIFE_KERNELS": choice}):
        return operation(*arguments, **named)


def assert_same(operation, *arguments, **named):
    """Run it by both; result, tensors, the memory around them, and findings must be equal.

    Tensors (and those of attrs classes) are copied first, storage and all, so that the caller's
    stay as they are. Returns what torch returned, and the arguments that it worked on.
    """
    runs = []
    for choice in ("triton", "torch"):
        copies = copy_of((list(arguments), named))
        result = run_by(choice, operation, *copies[0], **copies[1])
        runs.append((result, copies))
    by_triton, by_torch = runs
    assert_equal(by_triton, by_torch, operation.__name__)
    return by_torch


def copy_of(value):
    """A copy that shares no memory; tensors keep their storage's size, strides and offset."""
    match value:
        case torch.Tensor():
            copy = torch.empty(0, dtype=value.dtype, device=value.device)
            storage = value.untyped_storage().clone()
            return copy.set_(storage, value.storage_offset(), value.size(), value.stride())
        case Violations():
            return Violations(count=copy_of(value.count), entries=copy_of(value.entries))
        case list() | tuple():
            return type(value)(copy_of(one) for one in value)
        case dict():
            return {name: copy_of(one) for name, one in value.items()}
        case _:
            return value


def assert_equal(one, other, where):
    """Bit for bit equal, NaN included, and so the memory around a view; findings in any order."""
    match one:
        case torch.Tensor():
            assert (one.shape, one.dtype) == (other.shape, other.dtype), where
            if not torch.equal(_bits(one), _bits(other)):
                differ = (_bits(one) != _bits(other)).nonzero()
                raise AssertionError(
                    f"{where}: {len(differ)} bytes differ, the first at {differ[0].tolist()}:"
                    f"\n{one}\n{other}"
                )
            same = torch.equal(_memory_of(one), _memory_of(other))
            assert same, f"{where}: memory around the view was written"
        case Violations():
            assert one.count.item() == other.count.item(), where
            if one.count.item() <= one.capacity:
                here, there = Counter(findings_of(one)), Counter(findings_of(other))
                if here != there:
                    raise AssertionError(f"{where}: {here - there} is not {there - here}")
        case list() | tuple():
            for idx, pair in enumerate(zip(one, other, strict=True)):
                assert_equal(*pair, f"{where}[{idx}]")
        case dict():
            for name, value in one.items():
                assert_equal(value, other[name], f"{where}.{name}")
        case _:
            assert one == other, where


def _bits(tensor):
    """The bytes of the elements."""
    packed = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    packed.view(tensor.shape).copy_(tensor)
    return packed.view(torch.uint8)


def _memory_of(tensor):
    """All bytes of the storage that a tensor is a view of."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def findings_of(violations):
    """What the buffer holds, as tuples."""
    return [attrs.astuple(finding) for finding in violations.read()]
