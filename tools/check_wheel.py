"""Build the wheel, install it with what it needs and nothing else, and run what a newcomer runs first."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from readme import ROOT, first_block


def main() -> None:
    """Do so in a temporary folder, which is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True)
        programs = Path(folder) / "venv" / "bin"
        subprocess.run([programs / "python", *pip, "install", "--no-compile", wheel], check=True)
        for command in ([programs / "python", "-c", first_block()], [programs / "forestmix", "data", "list"]):
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
