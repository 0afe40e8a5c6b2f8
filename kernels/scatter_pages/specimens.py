"""`scatter_pages` as it is compiled without a GPU."""

from kvlife.kernels.page_specimens import page_specimens
from kvlife.kernels.scatter_pages.kernel import scatter_pages_kernel

_OWN = {
    "arena": "*u8",
    "pages": "*i32",
    "pages_stride": "i32",
    "staging": "*u8",
    "rows": "*i32",
    "rows_stride": "i32",
    "num_rows": "i32",
    "row_words": "i64",
}
SPECIMENS = page_specimens(scatter_pages_kernel, _OWN, absent={"rows": None})
