"""Environments for tests with other versions of Python and of libraries than those of the usual one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from readme import ROOT


def find_python(version: str) -> str | None:
    """Return the Python of a version such as 3.11, or ``None`` if there is none that runs."""
    show = "import sys; print(*sys.version_info[:2], sep='.')"
    for candidate in _candidates(version):
        if subprocess.run([candidate, "-c", show], capture_output=True, text=True).stdout.strip() == version:
            return candidate
    return None


def _candidates(version: str) -> Iterator[str]:
    """Yield this Python, that of the path, and those of pyenv, which puts only chosen ones there."""
    yield sys.executable
    if (found := shutil.which(f"python{version}")) is not None:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))


def make_environment(folder: Path, python: str, requirements: Sequence[str], extras: str = "") -> Path:
    """Make the environment with the package in it, unless it is there with these requirements; return its Python.

    ``extras``: of the package; without them its requirements are those that are given.
    """
    stamp, content = folder / "versions.txt", "\n".join([python, extras, *requirements])
    if not stamp.exists() or stamp.read_text() != content:
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        install = [
            folder / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--disable-pip-version-check",
        ]
        package = ["--editable", f"{ROOT}[{extras}]" if extras else ROOT]
        if not extras:
            subprocess.run([*install, "--no-deps", *package], check=True)
        subprocess.run([*install, *requirements, *(package if extras else [])], check=True)
        stamp.write_text(content)
    return folder / "bin" / "python"


def own_kernels(python: Path) -> dict[str, str]:
    """Return the variables of an environment.

    Numba keeps one version's kernels for each file: those of this environment must not take the place of others.
    """
    return os.environ | {"NUMBA_CACHE_DIR": str(python.parent.parent / "kernels")}


def run_tests(python: Path, *words: str) -> int:
    """Run pytest in an environment and return its code."""
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, env=own_kernels(python)).returncode
