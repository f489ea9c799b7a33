"""Compiled kernels are those of the sources that are there, wherever Numba keeps them."""

import ast
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

from forestmix.engines.compiled import compiling

KERNELS = Path(compiling.__file__).parent
#: A kernel that inlines a function of another file.
HELPER = """
from forestmix.engines.compiled.compiling import njit
@njit(forceinline=True)
def scaled(x):
    return FACTOR * x
"""
KERNEL = """
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.trial_helper import scaled
@njit(cache=True)
def kernel(x):
    return scaled(x)
"""
RUN = """
import numba
from forestmix.engines.compiled.trial_kernel import kernel
print(kernel(1.0), sum(kernel.stats.cache_hits.values()), repr(numba.config.CACHE_DIR))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, with a kernel and its helper."""
    shutil.copytree(KERNELS.parents[1], tmp_path / "forestmix", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "forestmix/engines/compiled/trial_kernel.py").write_text(KERNEL)
    edit(tmp_path, "2")
    return tmp_path


def edit(package, factor):
    (package / "forestmix/engines/compiled/trial_helper.py").write_text(HELPER.replace("FACTOR", factor))


def start(package, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = kept | {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    command = [sys.executable, "-W", "error", "-c", RUN]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    """Return what the kernel gave, how often it was found in the cache, and where others would be kept."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.split()


def test_tables_that_kernels_hold_are_part_of_the_name(package):
    command = "from forestmix.engines.compiled import compiling; print(compiling._folder())"
    environment = {**os.environ, "PYTHONPATH": str(package)}

    def folder():
        return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=environment).stdout

    before = folder()
    with (package / "forestmix/families/expectations.py").open("a") as file:
        file.write("# edited\n")
    assert folder() != before


def test_an_edited_helper_is_compiled_again(package):
    assert ended(start(package)) == ["2.0", "0", "''"]
    assert ended(start(package)) == ["2.0", "1", "''"]
    edit(package, "3")
    at_once = [start(package), start(package)]
    assert [ended(process)[0] for process in at_once] == ["3.0", "3.0"]


def test_the_folder_that_a_user_chose(package):
    chosen = package / "chosen"
    own = {"NUMBA_CACHE_DIR": str(chosen)}
    assert ended(start(package, **own)) == ["2.0", "0", repr(str(chosen))]
    edit(package, "3")
    assert ended(start(package, **own))[0] == "3.0"
    assert len(list(chosen.glob("*/sources-*/*/*.nbc"))) == 2
    assert not list((package / "forestmix").rglob("*.nb?"))


@pytest.mark.skipif(sys.platform != "linux", reason="the user's cache folder is elsewhere")
def test_a_package_that_cannot_be_written_to(package):
    """A file in the place of the folder: permissions would not stop an administrator."""
    (package / "forestmix/engines/compiled/__pycache__").write_text("")
    users = {"XDG_CACHE_HOME": str(package / "user")}
    assert ended(start(package, **users))[:2] == ["2.0", "0"]
    edit(package, "3")
    assert ended(start(package, **users))[:2] == ["3.0", "0"]
    assert len(list(package.glob("user/numba/*/sources-*/*/*.nbc"))) == 2
    nowhere = {"XDG_CACHE_HOME": str(package / "forestmix/engines/compiled/__pycache__")}
    assert ended(start(package, **nowhere))[:2] == ["3.0", "0"]


def test_folders_of_other_sources_are_removed_in_time(tmp_path):
    current, recent, old, other = (tmp_path / name for name in ("sources-1", "sources-2", "sources-3", "numpy"))
    for folder in (current, recent, old, other):
        folder.mkdir()
        (folder / "code.nbc").write_text("")
        if folder is not recent:
            os.utime(folder, (0, time.time() - 2 * compiling.KEPT))
    compiling.remove_older(current)
    assert sorted(tmp_path.iterdir()) == sorted([current, recent, other])


def imported(path):
    """Yield the module and the names of what a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


#: What is outside the folder: two files that the name of the cache depends on, too, and what is never compiled.
KNOWN = {
    "forestmix.families.expectations", "forestmix.families.primitive",
    "forestmix.arrays", "forestmix.clock", "forestmix.engines", "forestmix.engines.products",
    "forestmix.engines.protocol", "forestmix.engines.reference", "forestmix.engines.rows", "forestmix.model",
    "forestmix.partition",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.name)
def test_kernels_hold_nothing_that_the_cache_does_not_know(path):
    """A kernel made by Numba's own decorator, or of code outside the folder, could be out of date."""
    for module, name in imported(path):
        assert (module, name) != ("numba", "njit"), "take njit from forestmix.engines.compiled.compiling"
        if module.startswith("forestmix") and not module.startswith("forestmix.engines.compiled"):
            assert module in KNOWN or module.startswith("forestmix.weights")


#: What Numba documents: its own names, for extensions, and for events of the compiler.
DOCUMENTED = {"numba", "numba.extending", "numba.core.event"}


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda path: path.name)
def test_kernels_use_what_numba_documents(path):
    for module, name in imported(path):
        whole = f"{module}.{name}" if module == "numba.core" else module
        assert whole.split(".")[0] != "numba" or whole in DOCUMENTED


@pytest.mark.parametrize(("setting", "rows"), [
    ({"NUMBA_CPU_NAME": "generic"}, 4), ({"NUMBA_CPU_FEATURES": "+avx,+avx512f"}, 8), ({"NUMBA_ENABLE_AVX": "0"}, 4),
])  # fmt: skip
def test_tiles_fit_the_processor_that_is_compiled_for(setting, rows):
    code = "from forestmix.engines.compiled.tiles import ROWS; print(ROWS)"
    environment = os.environ | setting
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.split() == [str(rows)]


def test_numba_says_whether_its_threads_run():
    """``compiled.threaded`` depends on it."""
    code = "import numba; numba.threading_layer()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ValueError" in ran.stderr
    numba.get_num_threads()
    assert numba.threading_layer()
