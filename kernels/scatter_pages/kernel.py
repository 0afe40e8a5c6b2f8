"""`scatter_pages` in Triton."""

from functools import partial

from kvlife.kernels.staging_kernel import move_staged

scatter_pages_triton = partial(move_staged, gather=False)
