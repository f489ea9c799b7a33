"""Forest mixture models in files."""

import numpy as np
import pandas
import pytest

import forestmix as fmx
from forestmix.errors import ForestmixError
from support.saved_objects import same

X = np.random.default_rng(2).normal(size=(60, 5)) @ np.diag([1.0, 2.0, 1.0, 1.0, 3.0])
FAMILIES = {"gaussian": X, "bernoulli": (X > 0).astype(float), "poisson": np.floor(np.abs(X))}


@pytest.mark.parametrize("parents", ["shared", "observation"])
@pytest.mark.parametrize("family", FAMILIES)
def test_learned_models(family, parents, tmp_path):
    x = pandas.DataFrame(FAMILIES[family], columns=["a", "b", "c", "é 1", "e"])
    model = fmx.ForestMixtureModel(2, family=family, parents=parents, n_init=2, n_moves=0, random_state=1).fit(x)
    model.save(tmp_path / "f.nc")
    loaded = fmx.load(tmp_path / "f.nc")
    assert loaded.get_params() == model.get_params()
    assert list(loaded.feature_names_in_) == list(x.columns)
    for name in ("weights_", "biases_", "responsibilities_", "parents_", "strengths_", "parent_prior_", "elbo_trace_"):
        assert same(getattr(loaded, name), getattr(model, name))
    assert (loaded.elbo_, loaded.converged_, loaded.n_iter_) == (model.elbo_, model.converged_, model.n_iter_)
    assert same(loaded.transform(x), model.transform(x))
    assert same(loaded.score_samples(x), model.score_samples(x))
    assert same(loaded.sample(4, rng=0).x, model.sample(4, rng=0).x)


def test_models_that_are_given_or_not_fitted_yet(tmp_path):
    given = fmx.ForestMixtureModel.from_parameters(np.eye(3, 2), noise=0.5)
    given.save(tmp_path / "f.nc")
    assert same(fmx.load(tmp_path / "f.nc").sample(3, rng=0).x, given.sample(3, rng=0).x)
    fmx.ForestMixtureModel(4, random_state=np.random.default_rng(8)).save(tmp_path / "f.nc")
    loaded = fmx.load(tmp_path / "f.nc")
    assert not loaded.__sklearn_is_fitted__()
    assert same(loaded.random_state.random(3), np.random.default_rng(8).random(3))
    with pytest.raises(ForestmixError, match="random_state=RandomState"):
        fmx.ForestMixtureModel(random_state=np.random.RandomState(0)).save(tmp_path / "g.nc")
    assert not (tmp_path / "g.nc").exists()
