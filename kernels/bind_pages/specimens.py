"""How `bind_pages` is launched, for `make kernels`."""

from kvlife.kernels.bind_pages.kernel import BLOCK, bind_pages_kernel
from kvlife.kernels.paging_specimens import specimens_by_stride

SPECIMENS = specimens_by_stride(bind_pages_kernel, ("at_stride", "pages_stride"), BLOCK=BLOCK)
