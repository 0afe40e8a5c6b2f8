"""`fill_pages` as it is compiled without a GPU."""

from kvlife.kernels.fill_pages.kernel import fill_pages_kernel
from kvlife.kernels.page_specimens import page_specimens

_OWN = {"arena": "*u8", "pages": "*i32", "pages_stride": "i32", "byte": "i32"}
SPECIMENS = page_specimens(fill_pages_kernel, _OWN, ways=("store",))
