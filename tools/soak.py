"""`make soak`: the random tests again and again, each round under a new seed, until time is up."""

import argparse
import os
import secrets
import subprocess
import sys
import time


def soak_round(seed: int, options: argparse.Namespace) -> int:
    """Run the random tests once under this seed and return pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(options.workers)]
    command += ["-m", "soak or hypothesis", "--hypothesis-profile=soak", options.tests]
    environment = {**os.environ, "KVLIFE_SEED": str(seed)}
    return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    """Run rounds until the time is up; stop at the first that fails, and say how to repeat it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600, help="start no round after this time")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("tests", nargs="?", default="tests", help="a folder or file of tests")
    options = parser.parse_args()
    start = time.monotonic()
    num_rounds = 0
    while time.monotonic() - start < options.seconds:
        seed = secrets.randbits(32)
        status = soak_round(seed, options)
        if status:
            print(f"round {num_rounds} failed: KVLIFE_SEED={seed} make soak TESTS={options.tests}")
            return status
        num_rounds += 1
    print(f"{num_rounds} rounds in {time.monotonic() - start:.0f} s, none failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
