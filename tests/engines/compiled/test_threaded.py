"""How many threads passes use."""

import os
import subprocess
import sys

import numba
import pytest

from forestmix.engines.compiled import threaded

LARGE = 2**30


@pytest.mark.parametrize("count", [1, 2])
def test_the_environment_says_how_many(count):
    """In a process of its own: Numba reads its environment once. Nothing has started Numba's own threads there."""
    code = f"from forestmix.engines.compiled import threaded; print(threaded.threads({LARGE}))"
    environment = os.environ | {"NUMBA_NUM_THREADS": str(count)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.split() == [str(count)]


def test_numba_says_how_many_once_asked():
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert threaded.threads(LARGE) == 1
    finally:
        numba.set_num_threads(before)
    assert threaded.threads(LARGE) == before


def test_little_work_has_one_thread():
    assert threaded.threads(2 * threaded.WORTH_A_THREAD - 1) == 1


def test_a_call_that_fails_is_heard_of_after_all_have_ended():
    ended = []

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threaded.run_all([lambda: ended.append("first"), fail])
    with pytest.raises(ZeroDivisionError):
        threaded.run_all([fail, lambda: ended.append("second")])
    assert ended == ["first", "second"]
