"""What the kernels need: torch, triton, numpy and attrs, new enough, and nothing else."""

import importlib.metadata
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import kvlife.kernels
from kvlife.kernels import KernelError, MissingLibrary, dispatch

ROOT = Path(__file__).resolve().parent.parent.parent
ALLOWED = {"torch", "triton", "numpy", "attr", "attrs", "kvlife"}

# Run in a fresh process: an import hook refuses every name that the kernels may not import.
PROBE = """
import importlib, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not there on a machine for kernels")

sys.meta_path.insert(0, Refusing())
for name in MODULES:
    importlib.import_module(name)
print(len(MODULES), "triton" in sys.modules)
"""


def modules_of_kernels():
    found = pkgutil.walk_packages(kvlife.kernels.__path__, "kvlife.kernels.")
    return ["kvlife.kernels", *sorted(module.name for module in found)]


def run_probe(blocked, modules, **variables):
    source = PROBE.replace("BLOCKED", repr(set(blocked))).replace("MODULES", repr(modules))
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def dependencies():
    """What kvlife's installation asks for, extras included, by the names that are imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.match(r"[\w-]+", one)[0].replace("-", "_") for one in asked}
    return names - ALLOWED


def test_every_module_of_kernels_is_imported_without_the_rest():
    """With msgspec, structlog, cyclopts, rich and all other dependencies blocked, all import."""
    blocked = dependencies()
    assert {"msgspec", "structlog", "cyclopts", "rich"} <= blocked
    modules = modules_of_kernels()
    assert len(modules) > 40
    done = run_probe(blocked, modules)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(modules)), "True"]


def test_the_probe_refuses():
    """An import of a blocked library fails in the probe, so that the test above can fail."""
    assert "is not there" in run_probe({"rich"}, ["rich"]).stderr


def test_references_do_without_triton():
    """All that a CPU needs is imported with Triton blocked."""
    modules = [name for name in modules_of_kernels() if name.endswith((".contract", ".reference"))]
    assert len(modules) > 20
    done = run_probe({"triton"}, modules)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(modules)), "False"]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (None, "needs torch 2.11 or newer, and there is none here; install it"),
        ("2.10.1+cu128", "needs torch 2.11 or newer, and 2.10.1+cu128 is installed; install it"),
    ],
)
def test_a_library_that_is_absent_or_old_is_an_error_with_the_remedy(monkeypatch, found, sentence):
    """The message says what is needed, what is there, and what to install."""

    def version(name):
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingLibrary, match=sentence.replace("+", r"\+")):
        dispatch.require("torch")


def test_without_torch_the_import_says_so():
    """`import kvlife.kernels` where torch is absent is an ImportError that names the extra."""
    source = (
        "import importlib.metadata as metadata\n"
        "def version(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = version\n"
        "try:\n    import kvlife.kernels\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("MissingLibrary kvlife.kernels needs torch 2.11 or newer")
    assert "kvlife[pools]" in done.stdout


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.11.0+cu130", (2, 11, 0)), ("3.6.0.post1", (3, 6, 0)), ("2.12.0a0+git1", (2, 12, 0))],
)
def test_versions_are_compared_by_their_numbers(text, numbers):
    """Builds and suffixes do not matter."""
    assert dispatch.version_of(text) == numbers


def test_the_variable_chooses(monkeypatch):
    """KVLIFE_KERNELS=torch and none take torch on the CPU; triton needs the interpreter there."""
    import torch  # after the skip above

    tensor = torch.zeros(1)
    monkeypatch.delenv("KVLIFE_KERNELS", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    dispatch._uses_triton.cache_clear()
    assert not dispatch.uses_triton(tensor)
    monkeypatch.setenv("KVLIFE_KERNELS", "torch")
    assert not dispatch.uses_triton(tensor)
    monkeypatch.setenv("KVLIFE_KERNELS", "triton")
    with pytest.raises(KernelError, match="set TRITON_INTERPRET=1"):
        dispatch.uses_triton(tensor)
    monkeypatch.setenv("KVLIFE_KERNELS", "cuda")
    with pytest.raises(KernelError, match="torch or triton, or unset"):
        dispatch.uses_triton(tensor)


def test_a_kernel_runs_on_the_device_of_its_first_tensor(monkeypatch):
    """Triton launches on the current device, so that the tensor's is made that for the launch."""
    import torch  # after the skip above

    done = []

    class OnDevice:
        def __init__(self, tensor):
            self.device = tensor.device.type

        def __enter__(self):
            done.append(self.device)

        def __exit__(self, *_):
            done.append("back")

    class Kernel:
        def __getitem__(self, grid):
            return lambda first, *others, **more: done.append((grid, first.numel(), others, more))

    monkeypatch.setattr(torch.cuda, "device_of", OnDevice)
    dispatch.run_kernel(Kernel(), (3,), torch.empty(2, device="meta"), 5, BLOCK=8)
    assert done == ["meta", ((3,), 2, (5,), {"BLOCK": 8}), "back"]


def test_every_kernel_is_launched_so():
    """No operation launches a kernel by itself."""
    sources = [path.read_text() for path in (ROOT / "kernels").rglob("*.py")]
    assert sum("run_kernel(" in source for source in sources) > 10
    assert sum(len(re.findall(r"kernel\[.*\]\(", source)) for source in sources) == 1
