"""The import order of the design: a file imports only from what stands above it in this list."""

import ast
from pathlib import Path

import pytest

import forestmix

ROOT = Path(forestmix.__file__).parent
ORDER = [
    "errors", "tables", "arrays", "checks", "clock", "memory", "small", "vectors",
    "scales", "families", "weights", "passes", "latents", "partition", "model",
    "engines", "statistics", "problem", "inference", "bounds", "posterior", "run", "builders", "regression",
    "forest", "files",
    "__init__",
    "data", "plots", "paper", "report", "cli",
]  # fmt: skip
#: What uses forestmix as a user would: the public names, and each other in the order above.
OUTSIDE = ("data", "plots", "paper", "report", "cli")
#: Imports against the order, each made when it is called and for a reason.
EXCEPTIONS = {
    ("forest", "plots"),  # model.plot() and selection.plot() likewise
    ("regression", "plots"),  # fit.plot() likewise
    ("model", "files"),  # model.save() is the contract's way to a file
    ("posterior", "files"),  # so are result.save() and posterior.save(),
    ("regression", "files"),  # fit.save()
    ("forest", "files"),  # and that of a forest mixture
    ("posterior", "plots"),  # result.plot_trace() is the contract's way to a plot
}
#: Internals that the outside may use: errors are raised everywhere, a plot of a result names its type.
SHARED = {"errors", "arrays", "checks", "posterior"}
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path):
    """The parts of forestmix that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_order(path):
    part = part_of(path)
    assert part in ORDER, f"{part} has no place in the order yet; see docs/architecture.md"
    for other in imports(path):
        if other == part or (part, other) in EXCEPTIONS:
            continue
        assert ORDER.index(other) < ORDER.index(part), f"{part} must not import {other}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if part_of(p) in OUTSIDE], ids=lambda path: str(path.relative_to(ROOT))
)
def test_plots_experiments_and_command_line_use_the_public_interface(path):
    allowed = {"__init__", *OUTSIDE, *SHARED}
    assert set(imports(path)) <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_in_place_loops_live_in_kernels_only(path):
    """Numba stays in kernels/, so that importing forestmix neither imports nor compiles it."""
    if "compiled" in path.parts:
        return
    names = {n.module for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)}
    assert "numba" not in names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_scipy_loads_its_subpackages_at_first_use(path):
    """``import scipy`` does; ``from scipy import sparse`` takes longer than NumPy, whether it is used or not."""
    nodes = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    assert not [n.lineno for n in nodes if (n.module or "").split(".")[0] == "scipy"]


SCIPY = ("scipy.sparse", "scipy.special", "scipy.linalg")
#: What must not be loaded, and after which code.
HEAVY = {
    "import forestmix": ("numpy", "typer", "rich"),
    "from forestmix import *": (
        "numba", "matplotlib", "rich", "typer", "pooch", "importlib.metadata", "sklearn", "networkx", "pandas", "formulaic", "narwhals",
        *SCIPY,
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
