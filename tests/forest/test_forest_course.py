"""What a fit tells on its way, and what it leaves when it is asked to stop."""

import pickle
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

import forestmix as fmx
from support.forest_models import planted

X = 3 * planted(12, 2, 90, 1.0, 0)[0] + 7
KINDS = {
    "gaussian": ({}, X),
    "minibatches": ({"batch_size": 30}, X),
    "parents per observation": ({"parents": "observation"}, X),
    "bernoulli": ({"family": "bernoulli"}, (X > 7).astype(float)),
    "poisson": ({"family": "poisson"}, np.round(np.abs(X))),
}


def learned(options, data, callback):
    model = fmx.ForestMixtureModel(2, n_init=3, max_iter=12, random_state=0, **options)
    return model.fit(data, callback=callback)


@cache
def whole(kind):
    return learned(*KINDS[kind], None)


class Told:
    """A callback that keeps what it is told, and asks to stop at one call."""

    def __init__(self, stop=0):
        self.seen, self.stop = [], stop

    def __call__(self, iteration):
        self.seen.append(iteration)
        return len(self.seen) == self.stop


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_is_the_same_with_a_callback_and_the_callback_sees_its_course(kind):
    options, data = KINDS[kind]
    told = Told()
    model = learned(options, data, told)
    assert model.elbo_ == whole(kind).elbo_
    assert [one.iteration for one in told.seen] == list(range(1, len(told.seen) + 1))
    shares = [one.share for one in told.seen]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 0.2
    assert 0.5 < shares[-1] <= 1
    assert all(one.mean.shape == one.sd.shape and one.mean.shape[1] == 2 for one in told.seen)
    # In the units of the data, and of the family once that is learned.
    assert min(abs(one.objective - model.elbo_) for one in told.seen) <= 1e-6 * abs(model.elbo_)


@pytest.mark.parametrize("stop", [1, 25])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_is_stopped_is_a_fitted_model(kind, stop, tmp_path):
    options, data = KINDS[kind]
    told = Told(stop)
    model = learned(options, data, told)
    assert len(told.seen) == stop  # nobody is told of the sweeps that a usable model still needs
    assert not model.converged_
    assert len(model.elbo_trace_) == model.n_iter_ >= 1
    assert model.elbo_ <= whole(kind).elbo_ + 0.05 * abs(model.elbo_)
    assert model.transform(data).shape == (len(data), 2)
    model.save(tmp_path / "f.nc")
    assert fmx.load(tmp_path / "f.nc").elbo_ == model.elbo_


def test_the_best_start_so_far_is_kept():
    """A stop in the last move changes nothing: the model is the one that the whole search had found."""
    count = Told()
    learned({}, X, count)
    stopped = learned({}, X, Told(len(count.seen) - 1))
    assert stopped.elbo_ == whole("gaussian").elbo_
    assert (stopped.parents_ == whole("gaussian").parents_).all()


def test_a_callback_is_no_parameter_and_leaves_nothing():
    model = learned({}, X, Told())
    assert "callback" not in model.get_params()
    assert pickle.loads(pickle.dumps(model)).elbo_ == model.elbo_
    assert clone(model).get_params() == model.get_params()


def test_what_is_no_function_is_refused():
    with pytest.raises(fmx.ArgumentError, match="callback must be callable; got int"):
        learned({}, X, 3)


def test_ctrl_c_ends_a_fit_as_it_ends_others_of_scikit_learn():
    """A search over many fits has to end as a whole."""

    def interrupt(iteration):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learned({}, X, interrupt)
