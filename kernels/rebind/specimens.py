"""How `rebind` is launched, for `make kernels`."""

from kvlife.kernels.paging_specimens import specimens_by_stride
from kvlife.kernels.rebind.kernel import BLOCK, rebind_kernel

SPECIMENS = specimens_by_stride(
    rebind_kernel, ("at_stride", "own_stride", "canonical_stride"), BLOCK=BLOCK
)
