"""Claims hold when the numbers say so, and fail when they do not."""

import numpy as np
import pytest

from forestmix.paper import check_claims
from forestmix.paper.curves import Curve, Panel

HOLDS = {"fig2a": (0, 0.1, 0.5, 2), "fig2b": (0.1, 0.2, 0.3), "fig2c": (0.1, 2, 5, 3, 6)}
CURVES = {
    "fig2a": ("s = 1", "s = 3", "s = 7", "s = 15"),
    "fig2b": ("k = 3", "k = 5", "k = 7"),
    "fig2c": ("FM", "blocks, random", "CAVI, random", "blocks, cyclic", "CAVI, cyclic"),
}


def panel(name, last, first=0.0):
    """Make a panel whose curves end at gaps ``last``: one number, or one for each image."""
    curves = []
    for label, value in zip(CURVES[name], last, strict=True):
        end = np.atleast_1d(np.asarray(value, float))
        gap = np.stack([np.full_like(end, 9.0), np.full_like(end, first), end])
        images = tuple(f"made-up/{place}" for place in range(len(end)))
        rows = np.arange(3.0)
        curves.append(Curve(label, 0, images, rows, rows, rows, gap + 1, gap, np.ones(len(end))))
    return Panel(name, name, tuple(curves))


@pytest.mark.parametrize("name", HOLDS)
def test_claims_hold_on_numbers_that_bear_them_out(name):
    claims = check_claims([panel(name, HOLDS[name])])
    assert len(claims) == {"fig2a": 2, "fig2b": 1, "fig2c": 2}[name]
    assert all(claim.held for claim in claims)
    assert all((claim.images_held, claim.images) == (1, 1) for claim in claims)


@pytest.mark.parametrize(
    ("name", "numbers", "failed"),
    [
        ("fig2a", (0, 0.5, 0.1, 2), "fig2a, sizes"),
        ("fig2a", (0, 0.1, 2, 2), "fig2a, sizes"),
        ("fig2a", (0, 0.1, 0.5, np.nan), "fig2a, sizes"),
        ("fig2b", (0.3, 0.2, 0.1), "fig2b, widths"),
        ("fig2c", (4, 2, 5, 5, 6), "fig2c, random order"),
        ("fig2c", (0.1, 2, 5, 7, 6), "fig2c, cyclic order"),
    ],
)
def test_a_claim_fails_on_numbers_that_do_not(name, numbers, failed):
    claims = check_claims([panel(name, numbers)])
    assert [claim.name for claim in claims if not claim.held] == [failed]
    assert all(claim.images_held == 0 for claim in claims if not claim.held)


def test_the_forest_must_be_at_its_optimum_after_one_step():
    claims = check_claims([panel("fig2a", HOLDS["fig2a"], first=1e-6)])
    assert [claim.name for claim in claims if not claim.held] == ["fig2a, forest"]


def test_the_median_decides_and_the_images_are_counted():
    (claim,) = check_claims([panel("fig2b", ([0.1, 0.1, 0.9], [0.2, 0.2, 0.2], [0.3, 0.3, 0.3]))])
    assert claim.held
    assert (claim.images_held, claim.images) == (2, 3)
    assert "k = 3: 0.1, k = 5: 0.2, k = 7: 0.3; true of 2 of 3 images" in claim.evidence


def test_two_curves_at_the_optimum_do_not_count_as_one_below_the_other():
    claims = check_claims([panel("fig2a", (1e-16, 1e-15, 0.5, 2))])
    assert [claim.name for claim in claims if not claim.held] == ["fig2a, sizes"]
