"""`gather_pages` as it is compiled without a GPU."""

from kvlife.kernels.gather_pages.kernel import gather_pages_kernel
from kvlife.kernels.page_specimens import page_specimens

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
SPECIMENS = page_specimens(gather_pages_kernel, _OWN, absent={"rows": None})
