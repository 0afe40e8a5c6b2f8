"""How `audit_refs` is launched, for `make kernels`: all its tensors lie side by side."""

from kvlife.kernels.audit_refs.kernel import BLOCK, audit_entries_kernel, audit_pages_kernel
from kvlife.kernels.paging_specimens import specimens_by_stride

SPECIMENS = tuple(
    specimens_by_stride(kernel, (), BLOCK=BLOCK)[0]
    for kernel in (audit_entries_kernel, audit_pages_kernel)
)
