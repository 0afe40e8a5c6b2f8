"""How `slots_of` is launched, for `make kernels`."""

from kvlife.kernels.paging_specimens import specimens_by_stride
from kvlife.kernels.slots_of.kernel import BLOCK, slots_of_kernel

SPECIMENS = specimens_by_stride(
    slots_of_kernel,
    ("rows_stride", "low_stride", "high_stride", "offsets_stride"),
    BLOCK=BLOCK,
)
