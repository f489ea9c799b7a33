"""Pictures of forest mixtures: the forest itself, the parents of an image's pixels, the choice of n_trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.plots.style import BLACK, BLUE, VERMILION, look, one_axes, several_axes

if TYPE_CHECKING:
    from forestmix import ForestMixtureModel, TreeSelection

#: Colours of trees, in turn: neighbours differ for colour-blind readers too.
TREES = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F", "#5E3C99", "#B2B200",
)  # fmt: skip
#: With more variables than this in all, only trees are named.
_MOST_LABELS = 80
#: A disc of variables grows by this for the square root of their number.
_DISC = 0.42


def plot_forest(model: ForestMixtureModel, names: Any = None, axes: Any = None) -> Any:
    """Draw the forest of the most probable parents.

    Each tree is its latent with its variables around it, in a colour of its own. An edge is thicker the stronger the
    variable depends on the latent, and a variable is paler the less certain its parent is. Up to 80 variables are
    named; more are drawn as discs of dots, the strongest in the middle.

    Args:
        model: a fitted model.
        names: of the variables; those of the data frame it was fitted on when left out.
        axes: matplotlib axes to draw on; a new figure when left out.

    Returns:
        The axes; ``axes.figure.savefig("forest.png")`` writes the picture.

    """
    labels = model.names(names)
    trees = [(int(j), _strongest_first(model, int(j))) for j in np.unique(model.parents_)]
    named = len(labels) <= _MOST_LABELS
    blocks = [_fan([labels[i] for i in members]) if named else _disc(len(members)) for _, members in trees]
    corners, size = (_columns if named else _shelves)([block.size for block in blocks])
    inches = np.maximum(size * (0.55 if named else 0.32), 2.0)
    axes = one_axes(axes, tuple(inches * min(1.0, 12 / inches.max())))
    for (tree, members), block, corner in zip(trees, blocks, corners, strict=True):
        _draw_tree(axes, model, tree, members, corner + block.root, corner + block.places, named)
        if named:
            for i, place in zip(members, corner + block.places, strict=True):
                axes.text(place[0] + 0.22, place[1], labels[i], ha="left", va="center", fontsize=8.5, color=BLACK)
        else:
            text = f"tree {tree}: {len(members)}"
            axes.text(*(corner + block.root - [0, block.size[1] / 2 - 0.1]), text, ha="center", va="top", fontsize=8)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-0.2, size[0] + 0.2)
    axes.set_ylim(-size[1] - 0.2, 0.2)
    return axes


def plot_selection(selection: TreeSelection, axes: Any = None) -> Any:
    """Plot the mean held-out score of each number of trees, with the standard error of its difference to the best."""
    with look():
        axes = one_axes(axes, (5.2, 3.4))
        axes.errorbar(
            selection.candidates, selection.mean, selection.standard_error,
            color=BLUE, marker="o", markersize=4, capsize=3, linewidth=1.6, elinewidth=1,
        )  # fmt: skip
        best = selection.mean[list(selection.candidates).index(selection.best)]
        axes.plot([selection.best], [best], "o", color=VERMILION, markersize=8, label=f"best: {selection.best}")
        if selection.smallest != selection.best:
            height = selection.mean[list(selection.candidates).index(selection.smallest)]
            text = f"smallest within a standard error: {selection.smallest}"
            axes.plot([selection.smallest], [height], "s", color=BLACK, markersize=6, label=text)
        axes.set_xlabel("number of trees")
        axes.set_ylabel("held-out log-likelihood (nats)")
        axes.legend(frameon=False, fontsize=8.5)
        axes.locator_params("x", integer=True)
    return axes


def plot_parent_map(model: ForestMixtureModel, image_shape: tuple[int, int], axes: Any = None) -> Any:
    """Draw which parent each pixel has, and among how many it is divided.

    On the left a pixel has the colour of its most probable parent, which is that of the place where the parent's pixels
    lie: neighbouring parents have similar colours. On the right is ``exp(entropy)`` of its parents, about their number.

    Args:
        model: a model whose variables are the pixels of an image, e.g. from ``ForestMixtureModel.from_bound``.
        image_shape: height and width.
        axes: two matplotlib axes; a new figure when left out.

    Returns:
        The two axes.

    """
    chances = model.responsibilities_
    sides = image_shape if isinstance(image_shape, tuple | list) else ()
    whole = [isinstance(side, int | np.integer) and side > 0 for side in sides]
    if whole != [True, True] or sides[0] * sides[1] != chances.shape[0]:
        raise ArgumentError(
            f"image_shape must be the height and width of an image of {chances.shape[0]} pixels; got {image_shape!r}."
        )
    left, right = several_axes(axes, 2, (8.4, 3.8))
    left.imshow(_place_colours(chances, image_shape)[model.parents_].reshape(*image_shape, 3), interpolation="nearest")
    left.set_title("most probable parent, coloured by its place", fontsize=10)
    share = np.where(chances > 0, chances, 1.0)
    number = np.exp(-np.sum(share * np.log(share), axis=1)).reshape(image_shape)
    shown = right.imshow(number, cmap="viridis", interpolation="nearest")
    right.set_title("effective number of parents", fontsize=10)
    right.figure.colorbar(shown, ax=right, shrink=0.85)
    for axis in (left, right):
        axis.spines[:].set_visible(True)
        axis.set_xticks([])
        axis.set_yticks([])
    return np.array([left, right])


def _place_colours(chances: Array, image_shape: tuple[int, int]) -> Array:
    """Return a colour for each parent from the centre of its pixels, between four corner colours, (m, 3)."""
    rows, columns = np.indices(image_shape).reshape(2, -1)
    weight = np.maximum(chances.sum(axis=0), 1e-300)
    down = chances.T @ rows / weight / max(image_shape[0] - 1, 1)
    across = chances.T @ columns / weight / max(image_shape[1] - 1, 1)
    # Stretched, since the centres of large windows keep away from the edges.
    down, across = (np.clip((part - 0.5) * 1.15 + 0.5, 0, 1)[:, None] for part in (down, across))
    corners = np.array([[0.0, 0.35, 0.75], [0.95, 0.85, 0.2], [0.1, 0.65, 0.45], [0.85, 0.2, 0.3]])
    top, bottom = corners[0] * (1 - across) + corners[1] * across, corners[2] * (1 - across) + corners[3] * across
    colour = top * (1 - down) + bottom * down
    # Every other parent a little darker, so that neighbours can be told apart.
    return np.asarray(colour * np.where(np.arange(len(colour)) % 2, 0.82, 1.0)[:, None])


def _strongest_first(model: ForestMixtureModel, tree: int) -> Array:
    members = np.flatnonzero(model.parents_ == tree)
    return members[np.argsort(-model.strengths_[members])]


class _Block(NamedTuple):
    """Where a tree's latent and variables are drawn, from the top left corner of a box of some size."""

    root: Array
    places: Array
    size: Array


def _fan(names: list[str]) -> _Block:
    """Return a tree with its named variables one below the other to the right of its latent."""
    down = -0.45 * np.arange(len(names)) - 0.45
    size = np.array([2.9 + 0.135 * max(map(len, names)), 0.45 * len(names) + 0.75])
    return _Block(np.array([0.4, down.mean()]), np.c_[np.full(len(names), 2.2), down], size)


def _disc(number: int) -> _Block:
    """Return a tree with many variables on a disc around its latent, evenly, the first in the middle."""
    place = np.arange(number) + 1.5
    angle = place * np.pi * (3 - np.sqrt(5))
    radius = _DISC * np.sqrt(place)
    half = float(radius.max()) + 0.75
    root = np.array([half, -half])
    return _Block(root, root + radius[:, None] * np.c_[np.cos(angle), np.sin(angle)], np.full(2, 2 * half))


def _shelves(sizes: list[Array]) -> tuple[list[Array], Array]:
    """Return corners of boxes on shelves, left to right and from the top down, and the size of it all."""
    width = max(1.35 * np.sqrt(sum(float(np.prod(size)) for size in sizes)), max(float(size[0]) for size in sizes))
    corners, across, top, height, widest = [], 0.0, 0.0, 0.0, 0.0
    for wide, high in sizes:
        if across and across + wide > width:
            across, top, height = 0.0, top - height, 0.0
        corners.append(np.array([across, top]))
        across, height = across + wide, max(height, high)
        widest = max(widest, across)
    return corners, np.array([widest, height - top])


def _columns(sizes: list[Array]) -> tuple[list[Array], Array]:
    """Return corners of boxes in columns, from the top down and left to right, and the size of it all."""
    corners, size = _shelves([part[::-1] / [0.55, 1.0] for part in sizes])
    return [np.array([-corner[1], -0.55 * corner[0]]) for corner in corners], np.array([size[1], 0.55 * size[0]])


def _draw_tree(
    axes: Any, model: ForestMixtureModel, tree: int, members: Array, centre: Array, places: Array, named: bool
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    colour = TREES[tree % len(TREES)]
    strength, chance = model.strengths_[members], model.responsibilities_[members, tree]
    widths = (0.4 + 4.2 * strength**2) * (1.0 if named else 0.6)
    edges = [[centre, place] for place in places]
    axes.add_collection(
        LineCollection(edges, linewidths=widths, colors=to_rgba(colour, 0.75 if named else 0.4), zorder=1)
    )
    colours = [to_rgba(colour, 0.25 + 0.75 * float(part)) for part in chance]
    size = 46 if named else 16
    axes.scatter(*places.T, s=size, c="white", zorder=2, linewidths=0)
    axes.scatter(*places.T, s=size, c=colours, zorder=3, edgecolors=colour, linewidths=0.8 if named else 0.4)
    axes.scatter(*centre, s=330 if named else 110, c="white", edgecolors=colour, linewidths=2.0, zorder=4)
    if named:
        axes.text(*centre, str(tree), ha="center", va="center", fontsize=9, color=BLACK, zorder=5)
