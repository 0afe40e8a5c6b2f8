"""What `make kernels` compiles of `check_stores`."""

from kvlife.kernels.check_stores.kernel import BLOCK, check_stores_kernel
from kvlife.kernels.compiling import Specimen

_SIGNATURE = {
    "slots": "*i32",
    "slots_stride": "i64",
    "writers": "*i32",
    "num_pages": "i32",
    "page_size": "i32",
    "num": "i64",
    "count": "*i32",
    "entries": "*i64",
    "capacity": "i32",
    "seq": "i64",
    "group": "i32",
}
_POINTERS = ("slots", "rows", "writers", "count", "entries")

SPECIMENS = (
    Specimen(
        name="check_stores",
        kernel=check_stores_kernel,
        signature=_SIGNATURE | {"rows": "*i32", "rows_stride": "i64"},
        constexprs={"BLOCK": BLOCK},
        aligned=_POINTERS,
    ),
    Specimen(
        name="check_stores of any row",
        kernel=check_stores_kernel,
        signature=_SIGNATURE | {"rows_stride": "i64"},
        constexprs={"rows": None, "BLOCK": BLOCK},
        aligned=tuple(name for name in _POINTERS if name != "rows"),
    ),
)
