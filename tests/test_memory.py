"""Memory that runs use again: what is lent twice at once, what is kept, and for how long."""

import threading

import numpy as np
import pytest

import forestmix as fmx
from forestmix import memory

LARGE = (memory.LEAST // 8,)
DOUBLE = np.dtype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (3,), (5, 1000), (2, 3, 100_001)])
def test_an_array_as_numpy_makes_it(shape, dtype):
    with memory.reused():
        for _ in range(2):
            array = memory.empty(shape, np.dtype(dtype))
            assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
            assert array.flags.c_contiguous
            assert array.flags.writeable
            if array.nbytes >= memory.ALIGNED:
                assert array.ctypes.data % memory.LINE == 0
            array[...] = 1


def test_memory_is_used_again_once_no_view_of_it_is_left():
    with memory.reused():
        first = memory.empty(LARGE, DOUBLE)
        place, view = first.ctypes.data, first.reshape(2, -1)[1, ::3]
        del first
        assert memory.empty(LARGE, DOUBLE).ctypes.data != place
        del view
        taken = [memory.empty(LARGE, DOUBLE) for _ in range(2)]
        assert place in [array.ctypes.data for array in taken]


def test_arrays_that_live_at_once_share_nothing():
    with memory.reused():
        for _ in range(3):
            arrays = [memory.empty(LARGE, DOUBLE) for _ in range(2 * memory.MOST)]
            for number, array in enumerate(arrays):
                array[:] = number
            assert all((array == number).all() for number, array in enumerate(arrays))
            del array, arrays
        assert len(memory._kept[memory.LEAST]) == memory.MOST


def test_nothing_is_kept_after_the_last_run():
    with memory.reused():
        with memory.reused():
            memory.empty(LARGE, DOUBLE)
        assert memory._kept
        outlives = memory.empty(LARGE, DOUBLE)
        outlives[:] = 7
    assert not memory._kept
    del outlives
    assert not memory._kept


def test_threads_do_not_share_what_they_are_using():
    wrong = []

    def work(number):
        with memory.reused():
            for _ in range(200):
                array = memory.empty(LARGE, DOUBLE)
                array[:] = number
                if not (array == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not memory._kept


def test_results_of_earlier_runs_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(memory, "LEAST", 0)
    monkeypatch.setattr(memory, "ALIGNED", 0)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), fmx.windows((6, 6), 3)))
    rng = np.random.default_rng(0)
    first = fmx.infer(model, rng.standard_normal(model.n_observed))
    held = first.mean.copy(), first.sd.copy(), first.trace.objective.copy()
    seen = []
    fmx.infer(model, rng.standard_normal(model.n_observed), callback=lambda info: seen.append((info.mean, info.sd)))
    for got, want in zip((first.mean, first.sd, first.trace.objective), held, strict=True):
        np.testing.assert_array_equal(got, want)
    assert len({mean.tobytes() for mean, _ in seen}) == len(seen), "what a callback kept was written over"
