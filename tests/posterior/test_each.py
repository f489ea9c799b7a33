"""A batch whose observations have scales of their own: the same as each observation alone."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.scales import HalfNormal

RNG = np.random.default_rng(0)
W = np.c_[np.ones(30), RNG.standard_normal((30, 2))]
NOISES = (0.2, 1.0, 3.0)


def gaussian_batch():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(2.0)), W), prior=fmx.Prior(fmx.Gaussian(3.0)))
    x = np.stack([W @ RNG.standard_normal(3) + noise * RNG.standard_normal(30) for noise in NOISES])
    x[1, 4] = np.nan
    return model, x


def poisson_batch():
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 0.5 * W), prior=fmx.Prior(fmx.Gaussian(sd=HalfNormal(1.0))))
    return model, RNG.poisson(1.5, (2, 30)).astype(float)


@pytest.fixture(params=[gaussian_batch, poisson_batch], ids=["gaussian", "poisson"], scope="module")
def case(request):
    model, x = request.param()
    return model, x, fmx.infer(model, x, scales="each"), [fmx.infer(model, one).posterior() for one in x]


def test_every_method_is_that_of_each_alone(case):
    _, x, result, alone = case
    post = result.posterior()
    assert "Each observation has scales of its own" in result.message
    for k, one in enumerate(alone):
        np.testing.assert_allclose(post.mean[k], one.mean)
        np.testing.assert_allclose(post.sd[k], one.sd)
        np.testing.assert_allclose(result.mean[k], one.mean)
        np.testing.assert_allclose(np.stack(post.interval(0.8))[:, k], one.interval(0.8))
        np.testing.assert_allclose(post.covariance()[k], one.covariance())
        np.testing.assert_allclose(post.correlation[k], one.correlation)
        np.testing.assert_allclose(post.variance([1.0, 0, 0])[k], one.variance([1.0, 0, 0]))
        np.testing.assert_allclose(post.predict([0, 3]).upper[k], one.predict([0, 3]).upper)
        assert post.log_evidence[k] == pytest.approx(one.log_evidence)
        (name,) = post.scales
        assert post.scales[name][k].mean == pytest.approx(one.scales[name].mean)
        assert result.scales[name][k].mean == post.scales[name][k].mean
        own = post.take(k)
        assert str(own.summary()) == str(one.summary())
        assert own.check().verdict == one.check().verdict
        assert own.loo().elpd == pytest.approx(one.loo().elpd)
    loo = post.loo()
    assert loo.elpd == pytest.approx(sum(one.loo().elpd for one in alone))
    assert loo.rows.shape == (np.sum(~np.isnan(x)), 2)
    assert loo.fingerprint == fmx.infer(case[0], x).posterior().loo().fingerprint


def test_draws(case):
    post = case[2].posterior()
    drawn = post.sample(4000, rng=1)
    assert drawn.shape == (4000, *post.mean.shape)
    np.testing.assert_allclose(drawn.mean(axis=0), post.mean, atol=0.1 * post.sd.max())
    np.testing.assert_allclose(drawn.std(axis=0), post.sd, rtol=0.1)
    assert post.sample(rng=0).shape == post.mean.shape


def test_some_of_a_batch(case):
    post = case[2].posterior()
    part = post.take([1, 0])
    np.testing.assert_array_equal(part.mean, post.mean[[1, 0]])
    np.testing.assert_array_equal(part.log_evidence, post.log_evidence[[1, 0]])
    assert "scales of their own" in repr(part)
    with pytest.raises(fmx.ForestmixError, match="keep must be one or more of the"):
        post.take(9)
    with pytest.raises(fmx.ForestmixError, match=r"use posterior.take\(k\)"):
        post.check()


def test_files_and_frames(case, tmp_path):
    _, _, result, _ = case
    post = result.posterior()
    for number, one in enumerate((post, result)):
        one.save(tmp_path / f"{number}.nc")
        loaded = fmx.load(tmp_path / f"{number}.nc")
        again = loaded if number == 0 else loaded.posterior()
        np.testing.assert_array_equal(again.mean, post.mean)
        np.testing.assert_allclose(again.sd, post.sd, rtol=1e-12)
        np.testing.assert_array_equal(again.log_evidence, post.log_evidence)
        (name,) = post.scales
        assert again.scales[name][1].interval() == post.scales[name][1].interval()
        assert loaded.scales[name][0].mean == post.scales[name][0].mean
    assert post.to_xarray()["scale_mean"].dims == ("scale", "observation")
    assert len(post.to_pandas()) == post.mean.size


def test_shared_is_the_default_and_says_so():
    model, x = gaussian_batch()
    result = fmx.infer(model, x)
    assert "All observations share them" in result.message
    assert np.ndim(result.posterior().log_evidence) == 0
    assert "share" not in fmx.infer(model, x[0]).message
    with pytest.raises(fmx.ForestmixError, match="scales must be one of 'each', 'shared'; got 'own'"):
        fmx.infer(model, x, scales="own")
