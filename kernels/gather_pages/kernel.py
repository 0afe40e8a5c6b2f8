"""`gather_pages` in Triton."""

from functools import partial

from kvlife.kernels.staging_kernel import move_staged

gather_pages_triton = partial(move_staged, gather=True)
