"""The state of a random generator as plain values, so that draws go on after loading where they were."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.errors import ForestmixError

_KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def generator_fields(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state, with whole numbers as texts: they have up to 128 bits."""
    if type(rng.bit_generator).__name__ not in _KINDS:
        raise ForestmixError(f"A file cannot hold a generator of type {type(rng.bit_generator).__name__}.")
    return {"state": _plain(rng.bit_generator.state)}


def built_generator(given: dict[str, Any]) -> np.random.Generator:
    """Return a generator that draws what the one that was saved would have drawn next."""
    restored = _restored(given["state"])
    if restored["bit_generator"] not in _KINDS:
        raise ValueError(f"generator {restored['bit_generator']!r}")
    source = getattr(np.random, restored["bit_generator"])(0)
    source.state = restored
    return np.random.Generator(source)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value if isinstance(value, str | np.ndarray) else f"int {int(value)}"


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _restored(part) for key, part in value.items()}
    return int(value.removeprefix("int ")) if isinstance(value, str) and value.startswith("int ") else value
