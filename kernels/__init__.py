"""Operations on device memory: a folder each, with contract, torch reference and Triton kernel.

Needs torch, triton, numpy and attrs and nothing else that kvlife depends on, so that it runs on a
bare GPU machine. Importing it raises `MissingLibrary` where torch is absent or too old.

    from kvlife.kernels.bind_pages import bind_pages

Each folder holds `contract.py` (the public function: what it takes, checks, and whom it calls),
`reference.py` (torch), `kernel.py` (Triton, imported only when it is used) and `specimens.py` (what
`make kernels` compiles).
"""

from kvlife.kernels.dispatch import KernelError, MissingLibrary, uses_triton
from kvlife.kernels.page_states import PageState
from kvlife.kernels.tables import TableGroup, describe
from kvlife.kernels.violations import Violation, ViolationCode, Violations

__all__ = [
    "KernelError",
    "MissingLibrary",
    "PageState",
    "TableGroup",
    "Violation",
    "ViolationCode",
    "Violations",
    "describe",
    "uses_triton",
]
