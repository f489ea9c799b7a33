"""Run the tests of files with ArviZ 0.23 and 1.x, each in an environment of its own, where a Python for it is present.

The environments are ``.venv-arviz-3.11`` and the like; they are made again when their requirements change.
"""

from __future__ import annotations

import sys

from environments import find_python, make_environment, run_tests
from readme import ROOT

#: By the Pythons that serve, the first that is present. 0.23 has the functions of 1.x where their libraries are there,
#: and those of that time do not know Matplotlib 3.11.
VERSIONS = {
    ("3.11",): [
        "arviz>=0.23,<1",
        "arviz-base<1",
        "arviz-stats[xarray]<1",
        "arviz-plots[matplotlib]<1",
        "matplotlib<3.11",
    ],
    ("3.13", "3.12"): ["arviz>=1"],
}  # fmt: skip
EXTRAS = "forest,regression,io,arviz"
TESTS = (
    "tests/test_quick.py",
    "tests/files/test_arviz.py",
    "tests/files/test_exports.py",
    "tests/files/test_labels.py",
)


def main() -> int:
    """Run them and return 0 if all passed."""
    failed = False
    for pythons, requirements in VERSIONS.items():
        found = {version: path for version in pythons if (path := find_python(version)) is not None}
        if not found:
            print(f"{requirements[0]} is not tested: there is no Python {' or '.join(pythons)} here.")
            continue
        version, path = next(iter(found.items()))
        print(f"Python {version}, {requirements[0]}:", flush=True)
        python = make_environment(ROOT / f".venv-arviz-{version}", path, ["pytest", "polars", *requirements], EXTRAS)
        failed |= run_tests(python, *TESTS) != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
