"""The house rules that a reader would otherwise have to hold by hand."""

import ast
import os
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("kvlife", "kernels", "invariants", "replay")
CODE_FOLDERS = (*SOURCE_FOLDERS, "tests", "benchmarks", "tools")
TEXT_FOLDERS = (*CODE_FOLDERS, "docs", ".ci")
TEXT_SUFFIXES = {"", ".cfg", ".md", ".py", ".pyi", ".sh", ".toml", ".txt", ".yml"}
MADE = ("__pycache__", ".egg-info")

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_COLUMNS = 100
BANNED_WORDS = {"util", "helper", "common", "manager", "handler", "data", "info"}
ALLOWED_NAMES = {"ReqKvInfo"}
# Each pattern is written so that it does not find itself here.
BANNED_TEXT = {
    "an unfinished mark": re.compile(r"\b(T[O]DO|FIXM[E]|XX[X])\b"),
    "a path of one machine": re.compile(r"(?<![\w.~*])/(wor[k]|hom[e]|roo[t]|User[s])/"),
    "the host of a registry": re.compile(r"\b(pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.org)\b"),
}
# An `__init__` may export lazily: these are the names that this takes.
EXPORT_NAMES = {"__all__", "__version__", "_HOMES"}
EXPORT_FUNCTIONS = {"__getattr__", "__dir__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def real_files(folders):
    """Each real file once: links to folders are not followed."""
    for folder in folders:
        for path, subfolders, names in os.walk(ROOT / folder):
            subfolders[:] = sorted(name for name in subfolders if not name.endswith(MADE))
            files = [Path(path) / name for name in sorted(names)]
            yield from (file for file in files if not file.is_symlink())


def modules_in(folders):
    return [path for path in real_files(folders) if path.suffix == ".py"]


def place(path, line=None):
    return str(path.relative_to(ROOT)) + (f":{line}" if line else "")


def read(path):
    return path.read_text(encoding="utf-8")


def functions_of(tree):
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def words_of(name):
    """The words of a name in snake_case or CamelCase, lower case and without a plural's s."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {re.sub(r"(?<=.)s$", "", word.lower()) for word in words}


def is_banned(name):
    return name not in ALLOWED_NAMES and bool(words_of(name) & BANNED_WORDS)


def reasoned(lines, number):
    """Whether the line (from 1) ends in a comment, or follows one."""
    above = lines[number - 2].strip() if number >= 2 else ""
    return above.startswith("#") or "#" in lines[number - 1]


def public_definitions(body, prefix=""):
    """Public classes, functions and methods, with those inside public classes."""
    for node in body:
        if isinstance(node, Named) and not node.name.startswith("_") and not is_accessor(node):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")


def is_accessor(node):
    """Whether a definition repeats one that has the docstring: an overload or a setter."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(text == "overload" or text.endswith((".setter", ".deleter")) for text in decorators)


def is_guard(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in {
        "TYPE_CHECKING",
        "not TYPE_CHECKING",
    }


def only_exports(node):
    """Whether a statement of an `__init__` does no more than export."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name in EXPORT_NAMES
        case ast.AugAssign(target=ast.Name(id=name)):
            return name in EXPORT_NAMES
        case ast.FunctionDef(name=name):
            return name in EXPORT_FUNCTIONS
        case _:
            return is_guard(node) and all(map(only_exports, node.body + node.orelse))


@pytest.fixture(params=modules_in(CODE_FOLDERS), ids=place)
def module(request):
    """Each module of the project, tests and benchmarks included."""
    return request.param


@pytest.fixture(params=modules_in(SOURCE_FOLDERS), ids=place)
def source(request):
    """Each module that is installed."""
    return request.param


@pytest.fixture(params=[p for p in modules_in(["tests"]) if p.name.startswith("test_")], ids=place)
def tests(request):
    """Each module of tests."""
    return request.param


def test_modules_and_lines_are_short(module):
    """A module has at most 400 lines, and a line at most 100 columns."""
    lines = read(module).splitlines()
    assert len(lines) <= MAX_MODULE_LINES
    long = [place(module, n) for n, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
    assert not long


def test_functions_are_short(module):
    """A function has at most 60 lines, from its `def` to its end."""
    long = {
        place(module, node.lineno): node.end_lineno - node.lineno + 1
        for node in functions_of(ast.parse(read(module)))
        if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert not long


def test_names_say_what_a_thing_is(module):
    """No file, folder, class or function is named after a heap of unrelated things."""
    parts = module.relative_to(ROOT).with_suffix("").parts
    defined = [node.name for node in ast.walk(ast.parse(read(module))) if isinstance(node, Named)]
    assert [name for name in (*parts, *defined) if is_banned(name)] == []


def test_imports_in_functions_give_their_reason(module):
    """An import inside a function stands under, or beside, a comment that says why."""
    lines = read(module).splitlines()
    unexplained = [
        place(module, inner.lineno)
        for function in functions_of(ast.parse(read(module)))
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom) and not reasoned(lines, inner.lineno)
    ]
    assert not unexplained


def test_exceptions_to_a_check_give_their_reason(source):
    """A silenced check and a cast carry a comment: in the line above, or after the code in it."""
    lines = read(source).splitlines()
    bare = [
        place(source, number)
        for number, line in enumerate(lines, 1)
        if re.search(r"# (type: ignore|noqa)|\bcast\(", line)
        and not re.search(r"# (?!type: ignore|noqa)\w", line)
        and not lines[number - 2].strip().startswith("#")
    ]
    assert not bare


def test_packages_only_export(source):
    """An `__init__` exports names and does nothing else."""
    if source.name == "__init__.py":
        tree = ast.parse(read(source))
        assert [place(source, n.lineno) for n in tree.body if not only_exports(n)] == []


def test_public_names_have_docstrings(source):
    """Each module, and each public class, function and method in it, says its contract."""
    tree = ast.parse(read(source))
    assert ast.get_docstring(tree)
    bare = [name for name, node in public_definitions(tree.body) if not ast.get_docstring(node)]
    assert not bare


def test_tests_say_their_intent(tests):
    """Each module of tests, and each test in it, has a docstring."""
    tree = ast.parse(read(tests))
    assert ast.get_docstring(tree)
    found = [node for node in functions_of(tree) if node.name.startswith("test_")]
    assert [node.name for node in found if not ast.get_docstring(node)] == []


def test_texts_hold_no_banned_words():
    """No file of the project has an unfinished mark, a machine's path or a registry's host."""
    texts = [p for p in real_files(TEXT_FOLDERS) if p.suffix in TEXT_SUFFIXES]
    texts += [p for p in sorted(ROOT.iterdir()) if p.is_file() and p.suffix in TEXT_SUFFIXES]
    assert Path(__file__) in texts
    found = [
        f"{place(path, number)}: {what}"
        for path in texts
        for number, line in enumerate(read(path).splitlines(), 1)
        for what, pattern in BANNED_TEXT.items()
        if pattern.search(line)
    ]
    assert not found


def test_test_modules_have_names_of_their_own():
    """No two modules of tests share a name, `conftest` apart; no folder of tests is a package."""
    names = Counter(path.name for path in modules_in(["tests"]) if path.name != "conftest.py")
    assert [name for name, num in names.items() if num > 1 or name == "__init__.py"] == []


def test_every_layer_is_there():
    """Each layer that the contract of the layers requires is a module or a folder of kvlife."""
    tables = tomllib.loads(read(ROOT / "pyproject.toml"))
    (contract,) = tables["tool"]["importlinter"]["contracts"]
    required = [
        name
        for layer in contract["layers"]
        for name in re.split(r"\s*[|:]\s*", layer)
        if not name.startswith("(")
    ]
    assert len(required) >= 8
    present = {path.stem for path in (ROOT / "kvlife").iterdir() if path.exists()}
    assert sorted(set(required) - present) == []


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("page_utils", True),
        ("ReqKvInfo", False),
        ("KvInfo", True),
        ("PoolManager", True),
        ("common", True),
        ("log_handlers", True),
        ("metadata", False),
        ("informed", False),
        ("HTTPData", True),
    ],
)
def test_the_name_rule_finds_words_and_not_letters(name, banned):
    """A banned word counts as a word of a name, in either case style, and not as a part of one."""
    assert is_banned(name) == banned


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("from kvlife.log.reader import LogReader", True),
        ("__all__ = ['LogReader']", True),
        ("if TYPE_CHECKING:\n    from kvlife import log", True),
        ("registry = {}", False),
        ("def open_run(path): ...", False),
        ("if TYPE_CHECKING:\n    registry = {}", False),
        ("register()", False),
    ],
)
def test_the_export_rule_tells_exports_from_work(statement, allowed):
    """Imports and `__all__` are exports; state, functions and calls are work."""
    assert only_exports(ast.parse(statement).body[0]) == allowed
