"""An allocation on the device: FREE pages go into table entries."""

from kvlife.kernels.bind_pages.contract import bind_pages

__all__ = ["bind_pages"]
