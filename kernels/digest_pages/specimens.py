"""`digest_pages` as it is compiled without a GPU."""

from kvlife.kernels.digest_pages.kernel import digest_pages_kernel
from kvlife.kernels.page_specimens import page_specimens

_OWN = {"arena": "*u8", "pages": "*i32", "pages_stride": "i32", "digests": "*i64"}
SPECIMENS = page_specimens(digest_pages_kernel, _OWN, parts=True, ways=("load",))
