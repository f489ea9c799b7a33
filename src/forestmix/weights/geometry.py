"""Where a window may stand along an axis of an image: the geometry that windows and convolutions share."""

from __future__ import annotations

from typing import NamedTuple

from forestmix.checks import one_of
from forestmix.errors import ArgumentError

PLACEMENTS = ("centred", "overlapping")


class Axis(NamedTuple):
    """The placements of a window along one axis: at position p, its entry a lies on pixel p + shift + a.

    Attributes:
        pixels: the extent of the image.
        window: the extent of the window.
        positions: the number of placements.
        shift: where entry 0 of the window at position 0 lies; at most 0.
    """

    pixels: int
    window: int
    positions: int
    shift: int

    @property
    def turned_shift(self) -> int:
        """The shift of the window of positions whose entries lie on one pixel."""
        return -(self.shift + self.window - 1)

    def landing(self, entry: int) -> tuple[slice, slice]:
        """Return the positions whose ``entry`` lies within the image, and the pixels it lies on."""
        offset = self.shift + entry
        start = max(0, -offset)
        stop = max(start, min(self.positions, self.pixels - offset))
        return slice(start, stop), slice(start + offset, stop + offset)

    def count(self, entry: int) -> int:
        """Return the number of positions whose ``entry`` lies within the image."""
        positions, _ = self.landing(entry)
        return positions.stop - positions.start


def place(pixels: int, window: int, placement: str) -> Axis:
    """Return the placements of a window of ``window`` pixels along an axis of ``pixels``.

    "centred" has one for each pixel, "overlapping" all that have a pixel in the image.
    """
    if one_of("placement", placement, PLACEMENTS) == "overlapping":
        return Axis(pixels, window, pixels + window - 1, 1 - window)
    if window % 2 == 0:
        raise ArgumentError(
            f"size must be odd for placement='centred', so that there is a centre; got {window}. "
            "Use an odd size or placement='overlapping'."
        )
    return Axis(pixels, window, pixels, -(window // 2))
