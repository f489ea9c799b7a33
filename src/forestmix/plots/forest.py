"""Pictures of forest mixtures: the forest itself, the parents of an image's pixels, the choice of n_trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.plots.style import BLACK, BLUE, RC, VERMILION

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
    longest = max(map(len, labels)) if named else 0
    layouts = [_wheel(len(members), longest) if named else _disc(len(members)) for _, members in trees]
    centres, size = _packed([reach for _, reach in layouts])
    axes = _axes(axes, size, named)
    for (tree, members), (places, reach), centre in zip(trees, layouts, centres, strict=True):
        _draw_tree(axes, model, tree, members, centre, centre + places, named)
        if named:
            _name_variables(axes, [labels[i] for i in members], places, centre)
        else:
            axes.text(
                centre[0], centre[1] - reach + 0.1, f"tree {tree}: {len(members)}", ha="center", va="top", fontsize=8
            )
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-0.1, size[0] + 0.1)
    axes.set_ylim(-size[1] - 0.1, 0.1)
    return axes


def plot_selection(selection: TreeSelection, axes: Any = None) -> Any:
    """Plot the mean held-out score of each number of trees, with the standard error of its difference to the best."""
    import matplotlib as mpl
    from matplotlib import pyplot

    with mpl.rc_context(RC):
        if axes is None:
            axes = pyplot.subplots(figsize=(5.2, 3.4), layout="constrained")[1]
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
        axes.xaxis.get_major_locator().set_params(integer=True)
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
    if len(image_shape) != 2 or int(np.prod(image_shape)) != chances.shape[0]:
        raise ArgumentError(
            f"image_shape must be the height and width of an image of {chances.shape[0]} pixels; got {image_shape!r}."
        )
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")[1]
    if np.size(axes) != 2:
        raise ArgumentError(f"axes must be two matplotlib axes; got {np.size(axes)}.")
    left, right = np.ravel(axes)
    left.imshow(_place_colours(chances, image_shape)[model.parents_].reshape(*image_shape, 3), interpolation="nearest")
    left.set_title("most probable parent, coloured by its place", fontsize=10)
    share = np.where(chances > 0, chances, 1.0)
    number = np.exp(-np.sum(share * np.log(share), axis=1)).reshape(image_shape)
    shown = right.imshow(number, cmap="viridis", interpolation="nearest")
    right.set_title("effective number of parents", fontsize=10)
    right.figure.colorbar(shown, ax=right, shrink=0.85)
    for axis in (left, right):
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


def _wheel(number: int, longest: int) -> tuple[Array, float]:
    """Return places of named variables on a circle, and how far the names reach."""
    radius = max(0.9, 0.30 * number / (2 * np.pi) * 1.6)
    angle = np.pi / 2 - 2 * np.pi * np.arange(number) / max(number, 1)
    places = radius * np.c_[np.cos(angle), np.sin(angle)]
    return places, radius + 0.25 + 0.125 * longest


def _disc(number: int) -> tuple[Array, float]:
    """Return places of many variables on a disc, evenly, the first in the middle, and the disc's radius."""
    place = np.arange(number) + 1.5
    angle = place * np.pi * (3 - np.sqrt(5))
    radius = _DISC * np.sqrt(place)
    return radius[:, None] * np.c_[np.cos(angle), np.sin(angle)], float(radius.max(initial=0)) + 0.75


def _packed(reaches: list[float]) -> tuple[list[Array], Array]:
    """Return centres of circles on shelves from the top left down, and the size of it all."""
    width = max(1.35 * np.sqrt(sum((2 * reach) ** 2 for reach in reaches)), 2 * max(reaches))
    centres, across, top, height, widest = [], 0.0, 0.0, 0.0, 0.0
    for reach in reaches:
        if across + 2 * reach > width * 1.0001 and across > 0:
            across, top, height = 0.0, top - height, 0.0
        centres.append(np.array([across + reach, top - reach]))
        across, height = across + 2 * reach, max(height, 2 * reach)
        widest = max(widest, across)
    return centres, np.array([widest, height - top])


def _axes(axes: Any, size: Array, named: bool) -> Any:
    if axes is not None:
        return axes
    from matplotlib import pyplot

    scale = (0.55 if named else 0.32) * 1.0
    inches = np.maximum(size * scale, 2.5)
    inches = inches * min(1.0, 12 / inches.max())
    return pyplot.subplots(figsize=tuple(inches), layout="constrained")[1]


def _draw_tree(
    axes: Any, model: ForestMixtureModel, tree: int, members: Array, centre: Array, places: Array, named: bool
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    colour = TREES[tree % len(TREES)]
    strength, chance = model.strengths_[members], model.responsibilities_[members, tree]
    widths = (0.4 + 4.2 * strength**2) * (1.0 if named else 0.45)
    edges = [[centre, place] for place in places]
    axes.add_collection(
        LineCollection(edges, linewidths=widths, colors=to_rgba(colour, 0.75 if named else 0.35), zorder=1)
    )
    colours = [to_rgba(colour, 0.25 + 0.75 * float(part)) for part in chance]
    size = 46 if named else 16
    axes.scatter(*places.T, s=size, c="white", zorder=2, linewidths=0)
    axes.scatter(*places.T, s=size, c=colours, zorder=3, edgecolors=colour, linewidths=0.8 if named else 0.4)
    axes.scatter(*centre, s=330 if named else 110, c="white", edgecolors=colour, linewidths=2.0, zorder=4)
    if named:
        axes.text(*centre, str(tree), ha="center", va="center", fontsize=9, color=BLACK, zorder=5)


def _name_variables(axes: Any, names: list[str], places: Array, centre: Array) -> None:
    for name, place in zip(names, places, strict=True):
        angle = np.degrees(np.arctan2(place[1], place[0]))
        left = abs(angle) > 90.001
        at = centre + place * (1 + 0.17 / np.linalg.norm(place))
        axes.text(
            *at, name, rotation=angle + 180 if left else angle, rotation_mode="anchor",
            ha="right" if left else "left", va="center", fontsize=8, color=BLACK,
        )  # fmt: skip
