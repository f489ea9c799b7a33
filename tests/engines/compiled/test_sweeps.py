"""Compiled sweeps against coordinate updates in plain NumPy, which compute everything anew for every update."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.engines.protocol import PriorMoments, Spread, SweepStart, Want
from forestmix.engines.reference import ReferenceEngine, mean_field_spread
from forestmix.engines.rows import expected_terms
from forestmix.model import observations
from forestmix.partition import Partition
from forestmix.problem.grouped import Grouped
from forestmix.weights import as_weights
from support.engine_cases import GaussianFactors, families

ENGINE, REFERENCE = CompiledEngine(), ReferenceEngine()
KINDS = {
    "dense by rows": np.ascontiguousarray, "dense by columns": np.asfortranarray,
    "csr": sparse.csr_array, "csc": sparse.csc_array,
}  # fmt: skip
GROUPS = {"one by one": [[j] for j in (3, 0, 5, 1, 4, 2, 6)], "groups": [[0, 3, 5], [1], [2, 4, 6]], "all": [range(7)]}


def case(family, kind="csr", count=2, dtype=np.float64, missing=True):
    rng = np.random.default_rng(4)
    W = (rng.standard_normal((80, 7)) * (rng.random((80, 7)) < 0.5)).astype(dtype)
    layer = fmx.Layer(families(80)[family], as_weights(KINDS[kind](W)), 0.2 * rng.standard_normal(80))
    x = fmx.DEF(layer).sample(rng, size=count).x
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    seen = observations(fmx.DEF(layer), x)
    q = GaussianFactors(
        *(part.astype(dtype) for part in (rng.standard_normal((count, 7)), 0.2 + rng.random((count, 7))))
    )
    prior = PriorMoments(rng.standard_normal(7), 0.5 + rng.random(7))
    return layer, W.astype(np.float64), seen, q, prior


class Oracle:
    """The objective and the updates of one observation, from scratch each time."""

    def __init__(self, layer, W, seen, prior, groups, spread):
        self.layer, self.W, self.prior, self.groups, self.spread = layer, W, prior, groups, spread
        self.data = REFERENCE.observe(layer, seen)

    def rows(self, mean, sd):
        """Return log-likelihoods, e and kappa; the spread is L1 inside groups or not, and L2 between them."""
        parts = [np.abs(self.W[:, group]) * sd[group] for group in self.groups]
        if self.spread is Spread.ABSOLUTE:
            squared = sum(part.sum(axis=1) ** 2 for part in parts)
        else:
            squared = sum((part**2).sum(axis=1) for part in parts)
        found = expected_terms(self.data, (self.W @ mean + self.layer.bias)[None], np.sqrt(squared)[None])
        return [np.broadcast_to(term, (1, len(self.W)))[0] for term in found]

    def objective(self, mean, sd):
        divergence = 0.5 * self.prior.precision * ((mean - self.prior.mean) ** 2 + sd**2) - np.log(sd)
        return self.rows(mean, sd)[0].sum() - divergence.sum()

    def update(self, group, mean, sd, surrogate=False, safe=True):
        group = list(group)
        _, e, kappa = self.rows(mean, sd)
        W, precision = self.W[:, group], self.prior.precision[group]
        slope = W.T @ e - (mean[group] - self.prior.mean[group]) * precision
        exact = (W**2).T @ kappa
        curvature = np.abs(W).T @ ((np.abs(W) @ sd[group]) * kappa) / sd[group]
        step = slope / (precision + (curvature if surrogate else exact))
        target = precision + (curvature if self.spread is Spread.ABSOLUTE else exact)
        before, share = self.objective(mean, sd), 1.0
        while True:
            new_mean, new_sd = mean.copy(), sd.copy()
            new_mean[group] += share * step
            new_sd[group] = ((1 - share) / sd[group] ** 2 + share * target) ** -0.5
            if not safe or self.layer.family.curvature_is_constant or self.objective(new_mean, new_sd) >= before - 1e-9:
                return new_mean, new_sd
            share /= 2


def oracle(layer, W, seen, prior, groups, spread, k):
    return Oracle(layer, W, seen.take(np.array([k])), prior, groups, spread)


def start_of(layer, seen, q, prior, groups=None):
    """Return where a sweep begins, with the spreads of the bound in groups; those of the ELBO for ``None``."""
    rows = ENGINE.observe(layer, seen)
    spread = mean_field_spread(layer.weights, q.sd) if groups is None else Grouped(layer.weights, groups).spread(q.sd)
    want = Spread.NONE if layer.family.curvature_is_constant else spread
    return SweepStart(layer, rows, q, ENGINE.statistics(layer, rows, q, Want.VALUE, want)[1], spread, prior)


def compare(got, k, right, tolerance=1e-9):
    for one, other in zip((got.mean[k], got.sd[k]), right, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("surrogate", [True, False])
@pytest.mark.parametrize("spread", [Spread.SQUARED, Spread.ABSOLUTE])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "mixed"])
def test_groups(family, kind, groups, spread, surrogate):
    layer, W, seen, q, prior = case(family, kind)
    lists = [list(group) for group in GROUPS[groups]]
    partition = Partition.of("groups", lists, 7)
    start = start_of(layer, seen, q, prior, partition if spread is Spread.ABSOLUTE else None)
    got = ENGINE.sweep_groups(start, partition, surrogate=surrogate, safe=True, spread=spread)
    for k in range(2):
        right, mean, sd = oracle(layer, W, seen, prior, lists, spread, k), q.mean[k], q.sd[k]
        for group in lists:
            mean, sd = right.update(group, mean, sd, surrogate)
        compare(got, k, (mean, sd))


def test_steps_that_are_too_long_are_halved_where_that_is_asked_for():
    layer, W, seen, q, prior = case("poisson", missing=False)
    layer.bias = layer.bias - 4  # rates far too low, so that whole steps overshoot
    far = GaussianFactors(0.1 * q.mean, q.sd)
    lists = GROUPS["groups"]
    start = start_of(layer, seen, far, prior)
    partition = Partition.of("groups", lists, 7)
    for safe in (True, False):
        got = ENGINE.sweep_groups(start, partition, surrogate=False, safe=safe, spread=Spread.SQUARED)
        right = oracle(layer, W, seen, prior, lists, Spread.SQUARED, 0)
        mean, sd, shares = far.mean[0], far.sd[0], []
        for group in lists:
            whole = right.update(group, mean, sd, safe=False)
            shares.append(right.objective(*whole) < right.objective(mean, sd))
            mean, sd = right.update(group, mean, sd, safe=safe)
        compare(got, 0, (mean, sd))
        assert any(shares)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("group", [[4], [0, 3, 5]])
def test_groups_that_leave_some_latents_as_they_are(family, group):
    """The spread of a row is that of all latents, whichever are updated."""
    layer, W, seen, q, prior = case(family)
    part = Partition.from_lists([np.array(group)])
    start = start_of(layer, seen, q, prior)
    got = ENGINE.sweep_groups(start, part, surrogate=False, safe=True, spread=Spread.SQUARED)
    right = oracle(layer, W, seen, prior, [[j] for j in range(7)], Spread.SQUARED, 0)
    compare(got, 0, right.update(group, q.mean[0], q.sd[0]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "mixed"])
def test_synchronous_blocks_see_each_other_as_they_were(family, kind):
    layer, W, seen, q, prior = case(family, kind)
    lists = [[0, 3, 5], [1], [2, 4, 6]]
    start = start_of(layer, seen, q, prior)
    got = ENGINE.sweep_blocks(start, Partition.of("blocks", lists, 7), synchronous=True)
    ones = [[j] for j in range(7)]
    for k in range(2):
        right = oracle(layer, W, seen, prior, ones, Spread.SQUARED, k)
        after = (q.mean[k].copy(), q.sd[k].copy())
        for block in lists:
            mean, sd = q.mean[k], q.sd[k]
            for j in block:
                mean, sd = right.update([j], mean, sd)
            after[0][block], after[1][block] = mean[block], sd[block]
        compare(got, k, after)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_unsynchronised_blocks_on_one_thread_are_a_sweep(family, monkeypatch):
    monkeypatch.setattr("forestmix.engines.compiled.threaded.threads", lambda entries: 1)
    layer, W, seen, q, prior = case(family)
    lists = [[0, 3, 5], [1], [2, 4, 6]]
    start = start_of(layer, seen, q, prior)
    got = ENGINE.sweep_blocks(start, Partition.of("blocks", lists, 7), synchronous=False)
    right = oracle(layer, W, seen, prior, [[j] for j in range(7)], Spread.SQUARED, 1)
    mean, sd = q.mean[1], q.sd[1]
    for j in np.concatenate(lists):
        mean, sd = right.update([j], mean, sd)
    compare(got, 1, (mean, sd))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["gaussian", "poisson", "mixed"])
def test_greedy_order(family, kind):
    layer, W, seen, q, prior = case(family, kind)
    start = start_of(layer, seen, q, prior)
    got = ENGINE.sweep_greedy(start, 9)
    for k in range(2):
        right = oracle(layer, W, seen, prior, [[j] for j in range(7)], Spread.SQUARED, k)
        mean, sd = q.mean[k], q.sd[k]
        for _ in range(9):
            _, e, kappa = right.rows(mean, sd)
            precision = prior.precision + (W**2).T @ kappa
            slope = W.T @ e - (mean - prior.mean) * prior.precision
            ratio = sd**2 * precision
            j = int(np.argmax(0.5 * (slope**2 / precision + ratio - 1 - np.log(ratio))))
            mean, sd = right.update([j], mean, sd)
        compare(got, k, (mean, sd), 1e-8)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_single_precision_in_and_out(family):
    layer, W, seen, q, prior = case(family, "dense by rows", dtype=np.float32)
    start = start_of(layer, seen, q, prior)
    partition = Partition.of("groups", GROUPS["one by one"], 7)
    got = ENGINE.sweep_groups(start, partition, surrogate=False, safe=True, spread=Spread.SQUARED)
    assert got.mean.dtype == got.sd.dtype == np.float32
    right = oracle(layer, W, seen, prior, GROUPS["one by one"], Spread.SQUARED, 0)
    mean, sd = q.mean[0].astype(np.float64), q.sd[0].astype(np.float64)
    for group in GROUPS["one by one"]:
        mean, sd = right.update(group, mean, sd)
    compare(got, 0, (mean, sd), 1e-4)
