"""Schedules visit every latent once a sweep, in the order that they promise."""

import numpy as np
import pytest
from scipy import sparse

from forestmix.inference.block import independent_blocks
from forestmix.inference.schedule import Sweeps
from forestmix.partition import Partition
from forestmix.weights import as_weights

BLOCKS = Partition.of("blocks", [[4, 0, 2], [1], [3, 5]], 6)


def lists(groups):
    return [group.tolist() for group in groups.lists()]


def test_one_of_every_block():
    assert lists(Sweeps(BLOCKS, None).sweep()) == [[4, 1, 3], [0, 5], [2]]


@pytest.mark.parametrize("rng", [np.random.default_rng(0), None])
def test_a_sweep_visits_everything_once(rng):
    sweeps = Sweeps(BLOCKS, rng)
    for _ in range(3):
        assert sorted(sweeps.sweep().members.tolist()) == list(range(6))


def test_random_orders_differ_between_sweeps_and_keep_the_blocks():
    sweeps = Sweeps(Partition.of("blocks", [range(50)], 50), np.random.default_rng(0))
    assert sweeps.sweep().members.tolist() != sweeps.sweep().members.tolist()


def test_a_place_goes_through_sweeps_in_pieces():
    sweeps = Sweeps(BLOCKS, None, 2)
    pieces = [lists(sweeps.next_steps()) for _ in range(3)]
    assert pieces == [[[4, 1, 3], [0, 5]], [[2]], [[4, 1, 3], [0, 5]]]
    sweeps.steps = None
    assert lists(sweeps.next_steps()) == [[2]]


def test_independent_blocks_are_connected_components():
    W = np.zeros((5, 6))
    W[0, [0, 3]] = W[1, [3, 5]] = W[2, 1] = 1
    for kind in (np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array):
        blocks = independent_blocks(as_weights(kind(W)))
        assert sorted(map(sorted, lists(blocks))) == [[0, 3, 5], [1], [2], [4]]
