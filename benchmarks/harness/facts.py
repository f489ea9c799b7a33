"""What the benchmarks ran on, with nothing in it that names a machine or a person."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: Libraries whose versions matter to the times.
PACKAGES = (
    "forestmix", "numpy", "scipy", "numba", "scikit-learn", "bayespy", "jax", "numpyro", "blackjax", "pymc",
    "pytensor", "viabel",
)  # fmt: skip


def machine_facts() -> dict[str, str]:
    """Return processor, memory, caches, system and versions, as far as the system tells."""
    facts = {"processor": _processor(), "cores used": str(len(os.sched_getaffinity(0)))}
    facts |= {"memory": _memory(), "caches": _caches()}
    facts["system"] = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    facts["versions"] = ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    return {name: fact for name, fact in facts.items() if fact}


def load_note() -> str:
    """Return a sentence on how busy the machine is: more than it has cores, and times say little."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f"When this began, the machine had {cores} cores and a load of {load:.1f}."


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo"))
    return found.group(1).strip() if found else platform.processor()


def _memory() -> str:
    found = re.search(r"MemTotal:\s*(\d+) kB", _read("/proc/meminfo"))
    return f"{int(found.group(1)) / 2**20:.0f} GiB" if found else ""


def _caches() -> str:
    """Return the caches that the first core sees."""
    parts = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(str(folder / name)).strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            parts.append(f"L{level} {size}")
    return ", ".join(parts)
