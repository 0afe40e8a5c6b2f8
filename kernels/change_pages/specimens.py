"""How `change_pages` is launched, for `make kernels`."""

from kvlife.kernels.change_pages.kernel import BLOCK, change_pages_kernel
from kvlife.kernels.change_pages.transitions import Transition
from kvlife.kernels.paging_specimens import specimens_by_stride

SPECIMENS = tuple(
    specimen
    for transition in Transition
    for specimen in specimens_by_stride(
        change_pages_kernel,
        ("pages_stride",),
        name=f"change_pages {transition.name}",
        TRANSITION=int(transition),
        BLOCK=BLOCK,
    )
)
