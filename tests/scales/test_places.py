"""Scales in the place of numbers: which variables have which, and models with numbers put in."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.families.unknown import variables_of
from forestmix.scales import Flat, FromData, HalfCauchy, HalfNormal, places_of

W = np.random.default_rng(0).standard_normal((4, 3))


def test_numbers_alone_have_no_places():
    assert places_of("sd", [1.0, 2.0]) is None
    assert places_of("sd", 1.0) is None
    assert places_of("sd", np.ones(3)) is None


def test_the_same_object_is_the_same_unknown():
    tau, other = HalfNormal(1.0), HalfNormal(1.0)
    places = places_of("sd", [2.0, tau, other, tau])
    assert places.unknowns == (tau, other)
    np.testing.assert_array_equal(places.which, [-1, 0, 1, 0])
    np.testing.assert_array_equal(places.resolve({tau: 0.5, other: 0.25}), [2.0, 0.5, 0.25, 0.5])
    np.testing.assert_array_equal(places.variables(tau, 4), [False, True, False, True])
    np.testing.assert_array_equal(places.take(np.array([3, 0])).which, [0, -1])
    assert repr(places) == "<2 of HalfNormal(scale=1.0), 1 of HalfNormal(scale=1.0), 1 numbers>"


def test_an_sd_that_is_unknown_says_so():
    family = fmx.Gaussian(sd=HalfNormal(1.0))
    with pytest.raises(fmx.ForestmixError, match=r"unknown here\. Give numbers by model.with_scales"):
        _ = family.sd
    assert repr(family) == "Gaussian(sd=HalfNormal(scale=1.0))"
    assert not hasattr(family, "anything")


def test_scales_of_a_model_in_order_of_appearance():
    tau, noise = HalfNormal(1.0), HalfCauchy(2.0)
    rows = fmx.Mixed([fmx.Poisson(), fmx.Gaussian(sd=[noise, 3.0])], [0, 1, 0, 1])
    model = fmx.DEF(fmx.Layer(rows, W), prior=fmx.Prior(fmx.Gaussian(sd=[2.0, tau, tau])))
    assert model.unknown_scales == (noise, tau)
    np.testing.assert_array_equal(variables_of(rows, noise, 4), [False, True, False, False])
    np.testing.assert_array_equal(variables_of(rows, tau, 4), np.zeros(4, bool))
    for values in ([0.5, 0.1], {tau: 0.1, noise: 0.5}):
        known = model.with_scales(values)
        assert known.unknown_scales == ()
        np.testing.assert_array_equal(known.layers[0].family.families[1].sd, [0.5, 3.0])
        np.testing.assert_array_equal(known.prior.family.sd, [2.0, 0.1, 0.1])
    assert model.unknown_scales == (noise, tau)


def test_precision_is_that_of_the_weights():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=Flat()), W.astype(np.float32)))
    assert model.with_scales([0.5]).layers[0].family.sd.dtype == np.float32


def test_an_sd_left_out_is_unknown_for_rows_of_data_only():
    layer = fmx.Layer(fmx.Gaussian(), W)
    model = fmx.DEF(layer, fmx.Layer(fmx.Gaussian(), W.T[:, :2]), prior=fmx.Prior(fmx.Gaussian()))
    assert [type(scale) for scale in model.unknown_scales] == [FromData]
    assert model.layers[1].family.sd == model.prior.family.sd == 1
    assert layer.family.sd == 1
    mixed = fmx.DEF(fmx.Layer(fmx.Mixed([fmx.Poisson(), fmx.Gaussian()], [0, 1, 1, 0]), W))
    assert [type(scale) for scale in mixed.unknown_scales] == [FromData]


def test_draws_have_scales_from_their_prior():
    tau = HalfNormal(2.0)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), prior=fmx.Prior(fmx.Gaussian(sd=tau)))
    latents = model.sample(0, 4000).latents[0]
    assert latents.shape == (4000, 3)
    # Of a half normal of scale 2 the square has mean 4; all latents of a draw share their scale.
    np.testing.assert_allclose(np.mean(latents**2, axis=0), 4, rtol=0.1)
    assert np.corrcoef(latents[:, 0] ** 2, latents[:, 1] ** 2)[0, 1] > 0.15
    assert model.sample(0).x.shape == (4,)
    with pytest.raises(fmx.ForestmixError, match="has no integral"):
        fmx.DEF(fmx.Layer(fmx.Gaussian(sd=Flat()), W)).sample(0)


@pytest.mark.parametrize("values", [[], [1.0, 2.0], {}, [None]], ids=str)
def test_a_number_for_each_scale(values):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=Flat()), W))
    with pytest.raises(fmx.ArgumentError, match="values must have a number for each of the 1 unknown scales"):
        model.with_scales(values)
    with pytest.raises(fmx.ArgumentError, match="values must be greater than 0"):
        model.with_scales([-1.0])


def test_lists_must_fit():
    with pytest.raises(fmx.ArgumentError, match="sd must be a number or have one entry for each of the 4 rows of W"):
        fmx.Layer(fmx.Gaussian(sd=[Flat(), 1.0]), W)
