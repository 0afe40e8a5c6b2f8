"""`bind_pages` in Triton."""

from functools import partial

from kvlife.kernels.page_entries_kernel import enter_pages

launch = partial(enter_pages, shared=False)
