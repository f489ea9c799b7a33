"""Schedules visit every latent once a sweep, in the order that they promise."""

import numpy as np
import pytest
from scipy import sparse

from forestmix.inference.block import independent_blocks
from forestmix.inference.schedule import Sweeps, group_after_group, one_of_every_block
from forestmix.partition import Partition
from forestmix.weights import as_weights

BLOCKS = Partition.of("blocks", [[4, 0, 2], [1], [3, 5]], 6)


def lists(groups):
    return [group.tolist() for group in groups.lists()]


def test_one_of_every_block():
    schedule = one_of_every_block(BLOCKS, shuffle=False)
    assert lists(schedule(np.random.default_rng(0))) == [[4, 1, 3], [0, 5], [2]]


@pytest.mark.parametrize(
    "schedule", [group_after_group(BLOCKS), one_of_every_block(BLOCKS, True), one_of_every_block(BLOCKS, False)]
)
def test_a_sweep_visits_everything_once(schedule):
    rng = np.random.default_rng(0)
    for _ in range(3):
        assert sorted(schedule(rng).members.tolist()) == list(range(6))


def test_random_orders_differ_between_sweeps_and_keep_the_blocks():
    schedule, rng = one_of_every_block(Partition.of("blocks", [range(50)], 50), True), np.random.default_rng(0)
    assert schedule(rng).members.tolist() != schedule(rng).members.tolist()


def test_a_place_goes_through_sweeps_in_pieces():
    sweeps = Sweeps(one_of_every_block(BLOCKS, False), np.random.default_rng(0))
    pieces = [lists(sweeps.next_steps(2)) for _ in range(3)]
    assert pieces == [[[4, 1, 3], [0, 5]], [[2]], [[4, 1, 3], [0, 5]]]
    assert lists(sweeps.next_steps(None)) == [[2]]


def test_independent_blocks_are_connected_components():
    W = np.zeros((5, 6))
    W[0, [0, 3]] = W[1, [3, 5]] = W[2, 1] = 1
    for kind in (np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array):
        blocks = independent_blocks(as_weights(kind(W)))
        assert sorted(map(sorted, lists(blocks))) == [[0, 3, 5], [1], [2], [4]]
