"""All kernels on the GPU of this machine: are they right, and how fast are they.

Run `python benchmarks/gpu.py`. It holds every kernel against its reference, measures launches and
bandwidth, prints what it finds and writes it as JSON to benchmarks/results/, within four minutes:
what there is no time for is left out, and said. Exit status: 0 all kernels are right, 1 one is not,
2 there is no GPU, or torch or Triton is missing. How fast they are does not change the status.

It imports torch, triton, numpy, attrs and kvlife.kernels, and takes kvlife from the checkout that
it lies in. `--dry-run` rehearses all of it on the CPU in Triton's interpreter, on tiny inputs, and
measures nothing.
"""

import argparse
import os
import sys
import time
from pathlib import Path

BEGUN = time.monotonic()
ROOT = Path(__file__).resolve().parents[1]
SECONDS = 240


def main():
    """Set the environment, run, and exit with the status."""
    arguments = parsed()
    sys.path.insert(0, str(ROOT))
    os.environ.pop("KVLIFE_KERNELS", None)
    if arguments.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    try:
        # Triton and kvlife's dispatch go by the environment as it is from here on.
        from gpu_run import run
    except ImportError as error:
        print(f"gpu.py: torch and Triton are needed: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(arguments, ROOT, BEGUN))


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="the JSON file (default: by card and date)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to be done")
    parser.add_argument("--seed", type=int, help="of the random inputs (default: a new one)")
    parser.add_argument(
        "--dry-run", action="store_true", help="on the CPU, tiny inputs, nothing measured"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
