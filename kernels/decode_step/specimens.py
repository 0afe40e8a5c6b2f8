"""How `decode_step` is launched, for `make kernels`."""

from kvlife.kernels.decode_step.kernel import BLOCK, NUM_WARPS, decode_step_kernel
from kvlife.kernels.paging_specimens import specimens_by_stride

SPECIMENS = specimens_by_stride(
    decode_step_kernel,
    ("rows_stride", "pages_stride", "slots_stride"),
    num_warps=NUM_WARPS,
    BLOCK=BLOCK,
)
