"""How `release_pages` is launched, for `make kernels`."""

from kvlife.kernels.paging_specimens import specimens_by_stride
from kvlife.kernels.release_pages.kernel import BLOCK, release_pages_kernel

SPECIMENS = specimens_by_stride(release_pages_kernel, ("at_stride", "pages_stride"), BLOCK=BLOCK)
