"""Which layers of a deep model are updated at once: those of a set share no rows (paper, appendix C)."""

from __future__ import annotations

SCHEDULES = ("red-black", "bottom-up", "top-down")


def sets_of_layers(schedule: str, count: int) -> list[list[int]]:
    """Return the layers, 0 the lowest, that are updated at once, one set after another."""
    if schedule == "red-black":
        return [chosen for chosen in (list(range(0, count, 2)), list(range(1, count, 2))) if chosen]
    order = range(count) if schedule == "bottom-up" else range(count - 1, -1, -1)
    return [[layer] for layer in order]
