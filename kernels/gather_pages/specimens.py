"""`gather_pages` as it is compiled without a GPU."""

from kvlife.kernels.page_specimens import STAGED, page_specimens
from kvlife.kernels.staging_kernel import move_staged_kernel

SPECIMENS = page_specimens(move_staged_kernel, STAGED, absent={"rows": None}, GATHER=True)
