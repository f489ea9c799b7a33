"""Errors that forestmix raises, and the wording they share."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from reprlib import repr as shown
from typing import Any


class ForestmixError(Exception):
    """Base of every error that forestmix raises on purpose."""


class ArgumentError(ForestmixError, ValueError):
    """An argument is wrong: the message names it, says what was given and what would be right."""


class MissingExtraError(ForestmixError, ImportError):
    """A library of an optional extra is not installed: the message says what needs it and how to install it."""


def optional(library: str, needs: str) -> Any:
    """Return a library that an extra installs; ``needs`` says what needs it and how to install it."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtraError(needs) from error


def unknown_name(argument: str, given: object, known: Iterable[str]) -> ArgumentError:
    """Return the error for a name that is not one of ``known``, with the nearest known name if there is one."""
    names = sorted(set(known))
    near = difflib.get_close_matches(str(given).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ArgumentError(f"{argument} must be one of {', '.join(map(repr, names))}; got {shown(given)}.{hint}")
