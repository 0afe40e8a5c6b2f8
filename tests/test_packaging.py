"""What an installation owns: the name kvlife, with the linked folders inside it."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys; from setuptools import build_meta; print(build_meta.{}(sys.argv[1]))"
NOT_SOURCE = shutil.ignore_patterns(".*", "*.egg-info", "build", "demo-run", "__pycache__")


def build(what, tree, out):
    """Build `what` from the tree and return the archive's path."""
    command = [sys.executable, "-c", BUILD.format(what), str(out)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the source tree with its links, and nothing that a build left behind."""
    if int(metadata.version("setuptools").partition(".")[0]) < 77:
        pytest.skip("setuptools is older than 77 and cannot build this: run `make test`")
    copy = tmp_path_factory.mktemp("source") / "tree"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=NOT_SOURCE)
    if not (copy / "README.md").exists():
        (copy / "README.md").write_text("# kvlife\n")
    return copy


@pytest.fixture(scope="module")
def wheel_names(tree, tmp_path_factory):
    """The names of the files in a wheel built from the tree."""
    wheel = build("build_wheel", tree, tmp_path_factory.mktemp("wheel"))
    return sorted(zipfile.ZipFile(wheel).namelist())


def test_a_wheel_owns_one_name(wheel_names):
    """Everything in the wheel lies in kvlife/ or in the wheel's own metadata folder."""
    version = metadata.version("kvlife")
    owned = {name.partition("/")[0] for name in wheel_names}
    assert owned == {"kvlife", f"kvlife-{version}.dist-info"}


def test_a_wheel_holds_each_source_file(wheel_names):
    """Each module and asset of kvlife, invariants and replay is in the wheel, under kvlife/."""
    expected = {"kvlife/py.typed"}
    for folder, target in (
        ("kvlife", ""),
        ("invariants", "invariants/"),
        ("replay", "replay/"),
    ):
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("assets/*")]:
            expected.add(f"kvlife/{target}{path.relative_to(ROOT / folder).as_posix()}")
    assert {"kvlife/__init__.py", "kvlife/replay/cli.py"} <= expected
    assert expected <= set(wheel_names)


def test_a_source_archive_builds_the_same_wheel(tree, wheel_names, tmp_path):
    """The source archive stands alone: a wheel made from it holds the same files."""
    archive = build("build_sdist", tree, tmp_path)
    # The first releases of Python 3.11 know no filters yet, and later ones ask for one.
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, **options)  # noqa: S202  # an archive that this test made
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    wheel = build("build_wheel", unpacked, tmp_path)
    assert sorted(zipfile.ZipFile(wheel).namelist()) == wheel_names
