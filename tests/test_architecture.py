"""The import order of the design: a file imports only from what stands above it in this list."""

import ast
from functools import cache
from pathlib import Path

import pytest

import forestmix

ROOT = Path(forestmix.__file__).parent
ORDER = [
    "errors", "saving", "tables", "arrays", "checks", "clock", "scales", "families", "weights", "latents", "partition",
    "layer", "model",
    "engines", "problem", "inference", "bounds", "posterior", "run", "builders", "regression", "forest", "files",
    "__init__",
    "data", "plots", "paper", "report", "cli",
]  # fmt: skip
#: What uses forestmix as a user would: the public names, and each other in the order above.
OUTSIDE = ("data", "plots", "paper", "report", "cli")
#: Imports against the order, each made when it is called and for a reason.
EXCEPTIONS = {
    ("forest", "plots"),  # model.plot() and selection.plot() likewise
    ("regression", "plots"),  # fit.plot() likewise
    ("saving", "files"),  # model.save() and result.to_xarray() are the contract's way to files and other libraries
    ("regression", "files"),  # so are fit.to_xarray()
    ("forest", "files"),  # and those of a forest mixture
    ("posterior", "plots"),  # result.plot_trace() is the contract's way to a plot
}
#: Internals that the outside may use: errors are raised everywhere, files are written one way, a plot of a result names
#: its type.
SHARED = {"errors", "saving", "arrays", "checks", "posterior"}
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path):
    """The parts of forestmix that a file imports, wherever in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "forestmix":
                    yield (*alias.name.split("."), "__init__")[1]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = (node.module or "").split(".")
            if names[0] == "forestmix" and len(names) > 1:
                yield names[1]
            elif names[0] == "forestmix":
                for alias in node.names:
                    yield (
                        alias.name
                        if (ROOT / alias.name).is_dir() or (ROOT / f"{alias.name}.py").exists()
                        else "__init__"
                    )


def modules(path):
    """The packages that a file imports, wherever in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


@cache
def nodes(path):
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def every_file(parts=ORDER):
    """Make one test of a rule for the files of some parts; a failure says which file breaks it."""

    def decorate(rule):
        def test():
            for path in FILES:
                if part_of(path) in parts or parts is ORDER:
                    try:
                        rule(path)
                    except AssertionError as error:
                        raise AssertionError(f"{path.relative_to(ROOT)}: {error}") from error

        return test

    return decorate


@every_file()
def test_imports_follow_the_order(path):
    part = part_of(path)
    assert part in ORDER, f"{part} has no place in the order yet; see docs/architecture.md"
    for other in imports(path):
        if other == part or (part, other) in EXCEPTIONS:
            continue
        assert ORDER.index(other) < ORDER.index(part), f"{part} must not import {other}"


@every_file(OUTSIDE)
def test_plots_experiments_and_command_line_use_the_public_interface(path):
    allowed = {"__init__", *OUTSIDE, *SHARED}
    assert set(imports(path)) <= allowed


@every_file()
def test_the_compiler_stays_in_its_folder(path):
    """So that importing forestmix neither imports nor compiles anything, and an engine can do without it."""
    if "compiled" not in path.parts:
        assert not {"numba", "llvmlite"} & set(modules(path))


@every_file()
def test_scipy_loads_its_subpackages_at_first_use(path):
    """``import scipy`` does; ``from scipy import sparse`` takes longer than NumPy, whether it is used or not."""
    found = [node for node in nodes(path) if isinstance(node, ast.ImportFrom)]
    assert not [node.lineno for node in found if (node.module or "").split(".")[0] == "scipy"]


def classes_below(base, folder):
    """The names of the classes of a folder that derive from a name, directly or not."""
    derived, found = {base}, set()
    while found != derived:
        found = set(derived)
        for path in (ROOT / folder).rglob("*.py"):
            for node in nodes(path):
                if isinstance(node, ast.ClassDef) and {last_name(part) for part in node.bases} & derived:
                    derived.add(node.name)
    return derived


def last_name(node):
    return getattr(node, "attr", getattr(node, "id", None))


def asked_kinds(path):
    """The classes that a file asks about with isinstance, issubclass or a pattern of match."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and last_name(node.func) in ("isinstance", "issubclass"):
            yield from (last_name(part) for part in ast.walk(node.args[1]))
        elif isinstance(node, ast.MatchClass):
            yield last_name(node.cls)


#: Whose kind nobody asks outside a folder, nor whether something is of it at all: its base classes.
OPAQUE = {"weights": ("Weights",), "problem": ("Problem", "Interface")}


@pytest.mark.parametrize("folder", OPAQUE)
def test_nobody_outside_asks_for_a_kind(folder):
    kinds = set().union(*(classes_below(base, folder) for base in OPAQUE[folder]))
    assert len(kinds) >= 5
    found = {str(path.relative_to(ROOT)): kinds & set(asked_kinds(path)) for path in FILES if part_of(path) != folder}
    assert {name: asked for name, asked in found.items() if asked} == {}


#: What ``is`` may be asked of besides None, True, False, and names of classes and members of enumerations, which begin
#: with a capital: built-in types, and an unknown scale, of which the same object is the same unknown.
COMPARED_BY_IDENTITY = {"int", "float", "str", "bool", "scale"}


def may_be_compared(node):
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool) or node.value is ...
    if isinstance(node, ast.Call) and last_name(node.func) in ("type", "main_thread"):
        return True
    name = last_name(node) or ""
    return name in COMPARED_BY_IDENTITY or name[:1].isupper() or (name.startswith("_") and name[1:2].isupper())


@every_file()
def test_arrays_are_not_told_apart_by_identity(path):
    for node in nodes(path):
        if not isinstance(node, ast.Compare):
            continue
        for sign, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            if isinstance(sign, ast.Is | ast.IsNot):
                assert may_be_compared(right) or may_be_compared(left), f"line {node.lineno}: {ast.unparse(node)}"


LONGEST, MOST_PARAMETERS = 320, 9
#: Public signatures that have more: what users may say by keyword.
LONG_SIGNATURES = {
    ("run.py", "infer"), ("forest/estimator.py", "__init__"), ("regression/regress.py", "regress"),
    ("cli/infer.py", "infer"), ("cli/regress.py", "regress"),
}  # fmt: skip


@every_file()
def test_files_and_signatures_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    relative = str(path.relative_to(ROOT))
    for node in nodes(path):
        if not isinstance(node, ast.FunctionDef) or (relative, node.name) in LONG_SIGNATURES or is_kernel(path, node):
            continue
        names = [part.arg for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        assert len([name for name in names if name not in ("self", "cls")]) <= MOST_PARAMETERS, node.name


def is_kernel(path, node):
    """Whether a function is compiled; kernels are given every array by itself."""
    return "compiled" in path.parts and any(
        last_name(part.func if isinstance(part, ast.Call) else part) == "njit" for part in node.decorator_list
    )


SCIPY = ("scipy.sparse", "scipy.special", "scipy.linalg")
#: What must not be loaded, and after which code.
HEAVY = {
    "import forestmix": ("numpy", "typer", "rich"),
    "from forestmix import *": (
        "numba", "matplotlib", "rich", "typer", "pooch", "importlib.metadata", "sklearn", "networkx", "pandas",
        "formulaic", "narwhals", *SCIPY,
    ),
    "from forestmix.cli import app; app(['--help'], standalone_mode=False)": ("numpy", "matplotlib", "pooch"),
}  # fmt: skip


@pytest.mark.parametrize("code", HEAVY, ids=["import", "names", "help"])
def test_starting_loads_nothing_heavy(code):
    import subprocess
    import sys

    code = f"import sys\n{code}\nprint([m for m in {HEAVY[code]} if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1] == "[]"


#: They need scikit-learn, so ``from forestmix import *`` leaves them out.
ESTIMATORS = ("ForestMixtureModel", "BayesianRegressor", "BayesianClassifier", "LatentEncoder")


def test_public_names_exist():
    assert sorted(forestmix._HOME_OF) == sorted([*forestmix.__all__, *ESTIMATORS])
    for name in forestmix._HOME_OF:
        assert getattr(forestmix, name) is not None
    assert dir(forestmix) == sorted([*forestmix._HOME_OF, "__version__"])
    with pytest.raises(AttributeError, match="nothing"):
        forestmix.nothing  # noqa: B018
