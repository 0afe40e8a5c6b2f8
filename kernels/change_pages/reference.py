"""`change_pages` in torch."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.change_pages.transitions import Transition
from kvlife.kernels.page_moves import Moved, carry_out, evict, existing, pin, publish, unpin
from kvlife.kernels.violations import Findings


def change_pages_reference(
    state: Tensor,
    refs: Tensor,
    pins: Tensor,
    pages: Tensor,
    transition: Transition,
    findings: Findings,
) -> Tensor:
    """What `change_pages` says, page after page."""

    def move(spots: Tensor) -> Moved:
        match transition:
            case Transition.PUBLISH:
                return publish(state, spots)
            case Transition.EVICT:
                return evict(state, refs, pins, spots)
            case Transition.PIN:
                return pin(state, pins, spots)
            case Transition.UNPIN:
                return unpin(state, pins, spots)

    return carry_out(move, pages, existing(pages, state.numel()), findings, -1)
