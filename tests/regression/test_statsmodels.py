"""With nearly flat priors estimates and standard errors are those of maximum likelihood, on data that others ship.

For Gaussian rows that is exact, and the noise has its textbook posterior. For others the posterior of n rows is not
normal, so its mean is not its mode; both meet as rows are many. Rows of weight k are the same data k times: counts
times k with an offset log k, successes out of k trials. There the posterior is normal, the estimates are the same, and
standard errors are smaller by sqrt(k).

The data as they are have the mode of the posterior and its Laplace covariance: ``fit.laplace()``.
"""

import numpy as np
import pandas
import pytest
import scipy
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.datasets import load_breast_cancer, load_diabetes

from forestmix.errors import ArgumentError
from forestmix.regression.regress import regress

#: How often each row is repeated.
COPIES = 1_000_000


def longley():
    return sm.datasets.longley.load_pandas().data, "TOTEMP ~ GNPDEFL + GNP + UNEMP + ARMED + POP + YEAR"


def stackloss():
    return sm.datasets.stackloss.load_pandas().data, "STACKLOSS ~ AIRFLOW * WATERTEMP + ACIDCONC"


def diabetes():
    data = load_diabetes(as_frame=True, scaled=False)
    return data.frame, "target ~ age + C(sex) + bmi + bp + s1 + s2 + s3 + s4 + s5 + s6"


def engel():
    return sm.datasets.engel.load_pandas().data, "foodexp ~ income + I(income ** 2 / 1000)"


def agree(fit, reference, copies=1.0, tol=1e-3):
    """Estimates within ``tol`` standard errors, and standard errors within ``tol`` of themselves, by name."""
    table = fit.summary().to_pandas().loc[list(reference.params.index)]
    error = reference.bse / np.sqrt(copies)
    assert np.max(np.abs(table["mean"] - reference.params) / error) < tol
    assert np.max(np.abs(table["sd"] / error - 1)) < tol


@pytest.mark.parametrize("make", [longley, stackloss, diabetes, engel])
def test_gaussian_rows_with_known_noise_are_least_squares(make):
    data, formula = make()
    reference = smf.ols(formula, data).fit()
    fit = regress(formula, data, prior="flat" if make is not longley else None)
    fit = regress(formula, data, prior={**_flat(fit), "noise": float(np.sqrt(reference.scale))})
    agree(fit, reference)


def test_flat_priors_by_name_are_least_squares():
    data, formula = stackloss()
    reference = smf.ols(formula, data).fit()
    prior = {"Intercept": "flat", "fixed": "flat", "noise": reference.scale**0.5}
    agree(regress(formula, data, prior=prior), reference)


@pytest.mark.parametrize("make", [longley, stackloss, diabetes, engel])
def test_flat_priors_give_the_intervals_and_the_laplace_fit_the_errors_of_least_squares(make):
    """Flat in the effects and in the logarithm of the noise, the posterior is the Student t of the textbook."""
    data, formula = make()
    reference = smf.ols(formula, data).fit()
    fit = regress(formula, data, prior="flat")
    names, df, errors = list(reference.params.index), reference.df_resid, np.asarray(reference.bse)
    table = fit.summary(0.9).to_pandas()
    assert np.max(np.abs(table.loc[names, "mean"] - reference.params) / errors) < 1e-6
    assert np.max(np.abs(table.loc[names, "sd"] / (np.sqrt(df / (df - 2)) * errors) - 1)) < 1e-5
    assert (
        np.max(np.abs(table.loc[names, ["5 %", "95 %"]] - reference.conf_int(0.1).to_numpy()) / errors[:, None]) < 1e-5
    )
    # And sigma^2 is inverse gamma, with df degrees of freedom.
    ratio = np.exp(scipy.special.gammaln((df - 1) / 2) - scipy.special.gammaln(df / 2))
    assert abs(table.loc["sd(noise)", "mean"] / (np.sqrt(df * reference.scale / 2) * ratio) - 1) < 1e-5
    agree(fit.laplace(), reference, tol=1e-3)
    assert abs(fit.posterior.scales["noise"].mode / reference.scale**0.5 - 1) < 1e-3


def test_flat_noise_by_name_and_where_it_cannot_be_flat():
    data, formula = stackloss()
    assert "InverseGamma" in str(regress(formula, data, prior={"noise": "flat"}).priors)
    # As many effects as rows leave nothing to learn the noise from; with groups it could go to 0.
    assert "HalfStudentT" in str(regress("STACKLOSS ~ AIRFLOW + WATERTEMP", data.head(3), prior="flat").priors)
    grouped = data.assign(g=np.arange(len(data)) % 5)
    assert "HalfStudentT" in str(regress("STACKLOSS ~ AIRFLOW + (1 | g)", grouped, prior="flat").priors)
    with pytest.raises(ArgumentError, match=r"prior\['noise'\] must be an sd above 0"):
        regress(formula, data, prior={"noise": "wide"})


def _flat(fit):
    return {block.name: (float(prior.mean[0]), float(1e4 * np.max(prior.sd))) for block, prior in
            zip(fit.design.fixed, fit.priors.blocks.values(), strict=True)}  # fmt: skip


def randhie():
    data = sm.datasets.randhie.load_pandas().data.iloc[::20]
    return data, "mdvis ~ lncoins + idp + lpi + fmde + physlm + disea + C(hlthg) + hlthp"


def cpunish():
    data = sm.datasets.cpunish.load_pandas().data
    return data, "EXECUTIONS ~ np.log(INCOME) + PERPOVERTY + PERBLACK + np.log(VC100k96) + SOUTH + DEGREE"


@pytest.mark.parametrize("make", [randhie, cpunish])
def test_poisson_rows_are_maximum_likelihood(make):
    data, formula = make()
    response = formula.split(" ~ ")[0]
    reference = smf.glm(formula, data, family=sm.families.Poisson()).fit(tol=1e-14)
    many = data.assign(**{response: COPIES * data[response]})
    fit = regress(formula, many, family="poisson", prior="flat", offset=float(np.log(COPIES)))
    agree(fit, reference, COPIES)


def star98():
    data = sm.datasets.star98.load_pandas().data
    return data, "LOWINC + PERASIAN + PERBLACK + PERHISP + PCTCHRT * PCTYRRND"


def test_binomial_rows_are_maximum_likelihood():
    data, terms = star98()
    formula = f"NABOVE + NBELOW ~ {terms}"
    reference = smf.glm(formula, data, family=sm.families.Binomial()).fit(tol=1e-14)
    many = data.assign(NABOVE=COPIES * data.NABOVE, NBELOW=COPIES * data.NBELOW)
    fit = regress(f"cbind(NABOVE, NBELOW) ~ {terms}", many, family="binomial", prior="flat")
    agree(fit, reference, COPIES)


def spector():
    return sm.datasets.spector.load_pandas().data, "GRADE ~ GPA + TUCE + PSI"


def fair():
    data = sm.datasets.fair.load_pandas().data.iloc[::4]
    return data.assign(
        affair=(data.affairs > 0).astype(int)
    ), "affair ~ rate_marriage + age + yrs_married + C(religious)"


@pytest.mark.parametrize("make", [spector, fair])
def test_rows_of_zero_and_one_are_maximum_likelihood(make):
    data, formula = make()
    response = formula.split(" ~ ")[0]
    reference = smf.glm(formula, data, family=sm.families.Binomial()).fit(tol=1e-14)
    many = data.assign(**{response: COPIES * data[response]})
    agree(regress(formula, many, family="binomial", trials=COPIES, prior="flat"), reference, COPIES)


def cancer():
    data = load_breast_cancer(as_frame=True).frame.rename(columns=lambda name: name.replace(" ", "_"))
    return data, "target ~ mean_radius + mean_texture + mean_smoothness + mean_symmetry"


def schools():
    data, terms = star98()
    return data, f"NABOVE + NBELOW ~ {terms}"


@pytest.mark.parametrize(
    ("make", "family"),
    [(spector, "bernoulli"), (fair, "bernoulli"), (cancer, "bernoulli"), (schools, "binomial"), (randhie, "poisson"),
     (cpunish, "poisson")],
)  # fmt: skip
def test_modes_under_flat_priors_are_maximum_likelihood_of_the_data_as_they_are(make, family):
    data, formula = make()
    kind = sm.families.Poisson() if family == "poisson" else sm.families.Binomial()
    reference = smf.glm(formula, data, family=kind).fit(tol=1e-14, maxiter=200)
    ours = formula.replace("NABOVE + NBELOW", "cbind(NABOVE, NBELOW)")
    agree(regress(ours, data, family=family, prior="flat").laplace(), reference, tol=1e-3)


@pytest.mark.parametrize("make", [stackloss, diabetes, engel])
def test_modes_of_gaussian_rows_are_their_means(make):
    data, formula = make()
    reference = smf.ols(formula, data).fit()
    fit = regress(formula, data, prior={**_flat(regress(formula, data, prior="flat")), "noise": reference.scale**0.5})
    agree(fit.laplace(), reference)


def test_offsets_and_repeated_rows_are_those_of_maximum_likelihood():
    data, formula = randhie()
    data = data.assign(years=1.0 + np.arange(len(data)) % 3, times=1.0 + np.arange(len(data)) % 2)
    reference = smf.glm(
        formula, data, family=sm.families.Poisson(), offset=np.log(data.years), freq_weights=data.times
    ).fit(tol=1e-14)
    fit = regress(f"{formula} + offset(log(years))", data, family="poisson", weights="times", prior="flat")
    agree(fit.laplace(), reference)


def test_a_level_without_counts_has_no_maximum_and_the_fit_says_so():
    data = pandas.DataFrame({"y": [0, 0, 0, 3, 4, 2], "g": list("aaabbb")})
    fit = regress("y ~ g", data, family="poisson", prior="flat")
    assert np.isfinite(fit.posterior.sd).all()
    assert "no maximum" in str(fit.laplace().summary())
    assert "no maximum" not in str(regress("y ~ g", data, family="poisson").laplace().summary())


def test_one_trial_is_a_row_of_zero_and_one():
    data, formula = fair()
    flags = regress(formula, data, family="bernoulli")
    trials = regress(formula, data, family="binomial", trials=1)
    assert np.allclose(flags.posterior.mean, trials.posterior.mean, rtol=1e-6, atol=1e-8)
    assert np.allclose(flags.posterior.sd, trials.posterior.sd, rtol=1e-6)


@pytest.mark.parametrize(("make", "family"), [(fair, "bernoulli"), (randhie, "poisson")])
def test_many_rows_are_near_maximum_likelihood_as_they_are(make, family):
    data, formula = make()
    kind = sm.families.Poisson() if family == "poisson" else sm.families.Binomial()
    reference = smf.glm(formula, data, family=kind).fit(tol=1e-14)
    agree(regress(formula, data, family=family, prior="flat"), reference, tol=0.1)


def test_random_intercepts_are_those_of_restricted_maximum_likelihood():
    """Given REML's scales and flat fixed effects, fixed effects and groups are the best linear unbiased predictors."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(15), 8)
    x = rng.standard_normal(120)
    y = 1 + 0.5 * x + rng.standard_normal(15)[group] + 0.7 * rng.standard_normal(120)
    data = pandas.DataFrame({"y": y, "x": x, "g": group})
    reference = smf.mixedlm("y ~ x", data, groups="g").fit(reml=True)
    tau = float(np.sqrt(reference.cov_re.iloc[0, 0]))
    known = {"1 | g": tau, "noise": float(np.sqrt(reference.scale)), "x": 1e4, "Intercept": 1e4}
    fit = regress("y ~ x + (1 | g)", data, prior=known)
    fixed = reference.fe_params.index
    table = fit.summary().to_pandas().loc[fixed]
    assert np.max(np.abs(table["mean"] - reference.fe_params) / reference.bse_fe) < 1e-3
    assert np.max(np.abs(table["sd"] / reference.bse_fe - 1)) < 1e-3
    predicted = np.array([reference.random_effects[level].iloc[0] for level in range(15)])
    assert np.allclose(fit.groups().columns["mean"], predicted, atol=1e-4)
    learned = regress("y ~ x + (1 | g)", data).summary().to_pandas()
    low, high = learned.loc["sd(1 | g)", ["5 %", "95 %"]]
    assert low < tau < high
