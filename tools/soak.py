"""`make soak`: the random tests again and again, each file of them under a new seed each time.

Goes on until the time is up and each file has run at least once, so that no long product of cases
is left out. A file that fails is not run again; the others are.
"""

import argparse
import os
import random
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

PYTEST = (sys.executable, "-m", "pytest", "-m", "soak or hypothesis", "--hypothesis-profile=soak")
NO_TESTS = 5


def test_files(tests: list[str]) -> list[str]:
    """Return the files under these paths that hold random tests, in order of their names."""
    command = [*PYTEST, "--collect-only", "-q", *tests]
    collected = subprocess.run(command, capture_output=True, text=True, check=False)
    if collected.returncode not in (0, NO_TESTS):
        sys.exit(collected.stdout + collected.stderr)
    return sorted({line.split("::")[0] for line in collected.stdout.splitlines() if "::" in line})


class Soak:
    """The files of random tests, how often each has run, and which of them failed."""

    def __init__(self, files: list[str], seconds: float) -> None:
        self.files = files
        self.end = time.monotonic() + seconds
        self.num_runs = dict.fromkeys(files, 0)
        self.failed: dict[str, int] = {}
        self.waiting = self.turns()
        self.lock = threading.Lock()

    def turns(self) -> Iterator[str]:
        """Give files in rounds, each round in a new order; after the first, until time is up."""
        first = True
        while set(self.files) - set(self.failed):
            for file in random.sample(self.files, len(self.files)):
                if not first and time.monotonic() > self.end:
                    return
                if file not in self.failed:
                    yield file
            first = False

    def work(self) -> None:
        """Run one file after another, beside other workers, until there is none left to run."""
        while True:
            with self.lock:
                file = next(self.waiting, None)
            if file is None:
                return
            self.run(file)

    def run(self, file: str) -> None:
        """Run a file's random tests under a new seed; print what a failure said."""
        seed = secrets.randbits(32)
        environment = {**os.environ, "KVLIFE_SEED": str(seed)}
        start = time.monotonic()
        ran = subprocess.run(
            [*PYTEST, "-q", file], env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - start
        self.num_runs[file] += 1
        if ran.returncode:
            self.failed[file] = seed
            print(ran.stdout + ran.stderr)
        counts = re.findall(r"^[= ]*(\d+ \w+.*?) in \d", ran.stdout, re.MULTILINE)
        said = counts[-1] if counts else f"exit status {ran.returncode}"
        print(f"{file}: {said} in {seconds:.0f} s, KVLIFE_SEED={seed}", flush=True)


def main() -> int:
    """Run the files, then say how often each ran, and how to repeat what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600, help="start no new round after this")
    parser.add_argument("--workers", type=int, default=2, help="files that run side by side")
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders or files of tests")
    options = parser.parse_args()
    start = time.monotonic()
    soak = Soak(test_files(options.tests), options.seconds)
    with ThreadPoolExecutor(options.workers) as threads:
        for worker in [threads.submit(soak.work) for _ in range(options.workers)]:
            worker.result()
    for file, seed in soak.failed.items():
        print(f"failed, to repeat: KVLIFE_SEED={seed} make soak TESTS={file}")
    runs = soak.num_runs.values()
    print(
        f"{sum(runs)} runs of {len(soak.files)} files, each {min(runs, default=0)} to "
        f"{max(runs, default=0)} times, in {time.monotonic() - start:.0f} s; "
        f"{len(soak.failed)} files failed"
    )
    return 1 if soak.failed or not soak.files else 0


if __name__ == "__main__":
    sys.exit(main())
