"""How `share_pages` is launched, for `make kernels`."""

from kvlife.kernels.page_entries_kernel import BLOCK, enter_pages_kernel
from kvlife.kernels.paging_specimens import specimens_by_stride

SPECIMENS = specimens_by_stride(
    enter_pages_kernel,
    ("at_stride", "pages_stride"),
    name="share_pages",
    SHARED=True,
    BLOCK=BLOCK,
)
