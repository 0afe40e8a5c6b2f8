"""How `share_pages` is launched, for `make kernels`."""

from kvlife.kernels.paging_specimens import specimens_by_stride
from kvlife.kernels.share_pages.kernel import BLOCK, share_pages_kernel

SPECIMENS = specimens_by_stride(share_pages_kernel, ("at_stride", "pages_stride"), BLOCK=BLOCK)
