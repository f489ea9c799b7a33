"""Checks of arguments that are one number, one name, or a choice."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as shown
from typing import Any

import numpy as np

from forestmix.errors import ArgumentError, unknown_name


def is_number(value: object) -> bool:
    """Whether ``value`` is one real number; a bool is a number to Python, never to a person."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None, *, optional: bool = False) -> Any:
    """Return ``value`` as an int within its limits, or ``None`` where it is ``optional``."""
    if value is None and optional:
        return None
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        right = "a positive integer" if (least, most) == (1, None) else f"a whole number {limits}"
        raise ArgumentError(f"{name} must be {right}{' or None' if optional else ''}; got {shown(value)}.")
    return int(value)


def between_zero_and_one(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Return ``value`` if it is a number in (0, 1), or 0 where that is allowed."""
    if not is_number(value) or not (0 < value < 1 or (or_zero and value == 0)):
        right = "0 or a number between 0 and 1" if or_zero else "a number between 0 and 1"
        raise ArgumentError(f"{name} must be {right}; got {shown(value)}.")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, int) and value in (0, 1)):
        raise ArgumentError(f"{name} must be True or False; got {shown(value)}.")
    return bool(value)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of the known names; the error has the nearest of them."""
    if not isinstance(value, str) or value not in known:
        raise unknown_name(name, value, known)
    return value
