"""Run the quick tests and the README's first block with the lowest versions, and Python, that pyproject.toml allows.

The environment is ``.venv-lowest``; it is made again when the versions change. Without that Python nothing is run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

from readme import ROOT, first_block

ENVIRONMENT = ROOT / ".venv-lowest"
#: Beside the package's own requirements: what ForestMixtureModel needs.
EXTRA = "forest"
#: Old libraries call what new ones, which pip takes where pyproject.toml says nothing, no longer like.
QUIET = ["-W", "ignore::DeprecationWarning"]


def lowest_versions(project: dict) -> list[str]:
    """Return the requirements with ``==`` for ``>=``."""
    requirements = project["dependencies"] + project["optional-dependencies"][EXTRA]
    for requirement in requirements:
        if not re.fullmatch(r"[\w-]+>=[\d.]+", requirement):
            raise ValueError(f"a requirement must be a name, >= and a version; got {requirement!r}")
    return [requirement.replace(">=", "==") for requirement in requirements]


def find_python(version: str) -> str | None:
    """Return the Python of a version such as 3.11, or ``None`` if there is none that runs."""
    show = "import sys; print(*sys.version_info[:2], sep='.')"
    for candidate in (sys.executable, shutil.which(f"python{version}")):
        if candidate is None:
            continue
        if subprocess.run([candidate, "-c", show], capture_output=True, text=True).stdout.strip() == version:
            return candidate
    return None


def make_environment(python: str, versions: list[str]) -> None:
    """Make the environment, unless it is there with these versions."""
    stamp, content = ENVIRONMENT / "versions.txt", "\n".join([python, *versions])
    if stamp.exists() and stamp.read_text() == content:
        return
    subprocess.run([python, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    install = [ENVIRONMENT / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "pytest", *versions], check=True)
    subprocess.run([*install, "--no-deps", "--editable", ROOT], check=True)
    stamp.write_text(content)


def main() -> int:
    """Run them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["requires-python"].removeprefix(">=")
    python = find_python(version)
    if python is None:
        print(f"The lowest versions are not tested: there is no Python {version} here.")
        return 0
    make_environment(python, lowest_versions(project))
    # Numba keeps one version's kernels for each file: those of this environment must not take the place of others.
    environment = os.environ | {"NUMBA_CACHE_DIR": str(ENVIRONMENT / "kernels")}
    own = ENVIRONMENT / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([own, "-c", first_block()], check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    tests = [own, "-m", "pytest", "-p", "no:cacheprovider", *QUIET, "tests/test_quick.py"]
    return subprocess.run(tests, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
