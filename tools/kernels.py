"""`make kernels`: compiles every kernel for GPUs that need not be here, and says what came out.

Exit status 1 where a kernel spills, uses local memory, or has no access as wide as its layout
allows. `--triton 3.6.0` does it with that Triton, in an environment of its own under .venv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from kvlife.kernels.compiling import (
    TARGETS,
    Compiled,
    Specimen,
    compile_specimen,
    flaws_of,
    operations,
    specimens_of,
)

ROOT = Path(__file__).resolve().parent.parent
HEAD = ("operation", "kernel", "target", "regs", "shared", "spills", "local", "load", "store")
ROW = "{:<15}{:<40}{:<8}{:>5}{:>8}{:>8}{:>7}{:>6}{:>7}"


def compiled_kernels(
    chosen: list[str], targets: list[str]
) -> Iterator[tuple[str, Specimen, Compiled]]:
    """Each specimen of the operations on each target, compiled as it is asked for."""
    for operation in chosen:
        for specimen in specimens_of(operation):
            for target in targets:
                yield operation, specimen, compile_specimen(specimen, target)


def show(chosen: list[str], targets: list[str]) -> int:
    """Print the table; exit status 1 if there is a flaw."""
    # Triton takes a moment to load, and only here its version is told.
    import triton

    print(f"Triton {triton.__version__}; registers, spills and local bytes are per thread")
    print(ROW.format(*HEAD))
    found = []
    num = 0
    for operation, specimen, compiled in compiled_kernels(chosen, targets):
        num += 1
        numbers = (
            compiled.registers,
            compiled.shared_bytes,
            compiled.spills,
            compiled.local_bytes,
            compiled.widest_load,
            compiled.widest_store,
        )
        print(ROW.format(operation, specimen.name, compiled.target, *numbers), flush=True)
        flaws = flaws_of(specimen, compiled)
        found += [f"{operation}: {specimen.name} on {compiled.target}: {flaw}" for flaw in flaws]
    print(f"{num} kernels compiled; {len(found)} flaws", *found, sep="\n  ")
    return 1 if found or not num else 0


def environment_with(version: str) -> Path:
    """Python of an environment with that Triton, and everything else from the one that runs this.

    Made once, under the running environment. Leaves nothing half-made behind.
    """
    folder = Path(sys.prefix) / f"triton-{version}"
    python = folder / "bin" / "python"
    mark = folder / "complete"
    if mark.is_file():
        return python
    print(f"Making an environment with Triton {version} in {folder}", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", f"triton=={version}"]
    if subprocess.run(command, check=False).returncode:
        sys.exit(
            f"pip could not install Triton {version}, see above: is there such a version, and the "
            f"network? Then run the same again."
        )
    # What lies in a site folder of its own is found first; the rest comes from here.
    (site,) = folder.glob("lib/python*/site-packages")
    others = [entry for entry in sys.path if entry.endswith("-packages")]
    (site / "others.pth").write_text("\n".join([*others, str(ROOT)]) + "\n", encoding="utf-8")
    mark.touch()
    return python


def main() -> int:
    """Compile and print; under `--triton`, in the environment of that version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operations", nargs="*", help="only these (all)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only these (all)")
    parser.add_argument("--triton", metavar="VERSION", help="with this Triton, such as 3.6.0")
    options = parser.parse_args()
    if options.triton:
        python = environment_with(options.triton)
        command = [str(python), __file__, *options.operations]
        for target in options.target or ():
            command += ["--target", target]
        return subprocess.run(command, check=False).returncode
    return show(options.operations or list(operations()), options.target or list(TARGETS))


if __name__ == "__main__":
    sys.exit(main())
