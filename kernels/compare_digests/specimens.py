"""What `make kernels` compiles of `compare_digests`."""

from kvlife.kernels.compare_digests.kernel import BLOCK, compare_digests_kernel
from kvlife.kernels.compiling import Specimen

SPECIMENS = (
    Specimen(
        name="compare_digests",
        kernel=compare_digests_kernel,
        signature={
            "found": "*i64",
            "found_stride": "i64",
            "expected": "*i64",
            "expected_stride": "i64",
            "pages": "*i32",
            "pages_stride": "i64",
            "num": "i64",
            "count": "*i32",
            "entries": "*i64",
            "capacity": "i32",
            "seq": "i64",
            "group": "i32",
        },
        constexprs={"BLOCK": BLOCK},
        aligned=("found", "expected", "pages", "count", "entries"),
    ),
)
