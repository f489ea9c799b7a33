"""Run the quick tests and the README's first block with the lowest versions, and Python, that pyproject.toml allows.

The environment is ``.venv-lowest``; it is made again when the versions change. Without that Python nothing is run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib

from environments import find_python, make_environment, own_kernels, run_tests
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


def main() -> int:
    """Run them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["requires-python"].removeprefix(">=")
    python = find_python(version)
    if python is None:
        print(f"The lowest versions are not tested: there is no Python {version} here.")
        return 0
    own = make_environment(ENVIRONMENT, python, ["pytest", *lowest_versions(project)])
    quiet = {"stdout": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([own, "-c", first_block()], check=True, cwd=folder, env=own_kernels(own), **quiet)
    return run_tests(own, *QUIET, "tests/test_quick.py")


if __name__ == "__main__":
    sys.exit(main())
