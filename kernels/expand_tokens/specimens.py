"""How `expand_tokens` is launched, for `make kernels`."""

from kvlife.kernels.expand_tokens.kernel import BLOCK, expand_tokens_kernel
from kvlife.kernels.paging_specimens import specimens_by_stride

SPECIMENS = specimens_by_stride(
    expand_tokens_kernel,
    ("rows_stride", "lens_stride", "out_col_stride"),
    aligned=("out_row_stride",),
    wide=("store",),
    BLOCK=BLOCK,
)
