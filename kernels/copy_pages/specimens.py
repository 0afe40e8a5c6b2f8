"""`copy_pages` as it is compiled without a GPU."""

from kvlife.kernels.copy_pages.kernel import copy_pages_kernel
from kvlife.kernels.page_specimens import page_specimens

_OWN = {"arena": "*u8", "src": "*i32", "src_stride": "i32", "dst": "*i32", "dst_stride": "i32"}
SPECIMENS = page_specimens(copy_pages_kernel, _OWN)
