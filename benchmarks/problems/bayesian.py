"""Bayesian regressions on real data, each stated once: forestmix and every sampler beside it read the same object.

All data come with scikit-learn and statsmodels, so nothing is downloaded. Covariates have mean 0 and standard deviation
1, and so have Gaussian responses; the first column is an intercept. The prior of a coefficient is N(0, 1), that of an
unknown scale half-normal with sd 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

import forestmix as fmx

Array = np.ndarray


@dataclass(frozen=True)
class Regression:
    """Rows with predictor ``offset + X beta + sum_k u_k[group_k]``, where the effects ``u_k`` are ``N(0, tau_k^2)``.

    ``family``: "gaussian" (with unknown noise), "bernoulli", "binomial" or "poisson"; ``groups``: the group of every
    row, by the name of the random intercept; ``trials``: of binomial rows; ``divided``: groups whose effects a sampler
    should draw divided by their scale, since the data say little of it; ``patience``: how many times as long as for
    others a sampler may take before it is cut off; ``tuned``: whether a constant of forestmix was chosen on these data,
    so that they are no test of it.
    """

    title: str
    family: str
    X: Array
    x: Array
    groups: dict[str, Array] = field(default_factory=dict)
    offset: Array | float = 0.0
    trials: Array | None = None
    divided: tuple[str, ...] = ()
    patience: float = 1.0
    tuned: bool = False

    @property
    def levels(self) -> list[int]:
        """Number of levels of each group."""
        return [int(group.max()) + 1 for group in self.groups.values()]

    @property
    def scale_names(self) -> list[str]:
        """Names of the unknown scales: the noise first."""
        return [*(["noise"] if self.family == "gaussian" else []), *self.groups]

    @property
    def size(self) -> str:
        """Rows and latents, for a table."""
        return f"{len(self.x):,} x {self.X.shape[1] + sum(self.levels)}"

    def weights(self) -> Any:
        """Return the weights: X, and beside it a column for each level."""
        if not self.groups:
            return self.X
        n = len(self.x)
        columns = [scipy.sparse.csr_array((np.ones(n), (np.arange(n), group))) for group in self.groups.values()]
        return scipy.sparse.csr_array(scipy.sparse.hstack([self.X, *columns]))

    def model(self) -> fmx.DEF:
        """Return the model as forestmix states it; ``unknown_scales`` are in the order of ``scale_names``."""
        rows = {
            "gaussian": lambda: fmx.Gaussian(sd=fmx.scales.HalfNormal(1.0)),
            "bernoulli": fmx.Bernoulli,
            "binomial": lambda: fmx.Binomial(self.trials),
            "poisson": fmx.Poisson,
        }[self.family]()
        sds: list[Any] = [1.0] * self.X.shape[1]
        for count in self.levels:
            sds += [fmx.scales.HalfNormal(1.0)] * count
        prior = fmx.Prior(fmx.Gaussian(sd=sds if self.groups else 1.0))
        return fmx.DEF(fmx.Layer(rows, self.weights(), self.offset), prior=prior)


def standard(values: Any) -> Array:
    """Return columns with mean 0 and standard deviation 1."""
    values = np.asarray(values, float)
    return (values - values.mean(axis=0)) / values.std(axis=0)


def with_intercept(covariates: Any) -> Array:
    """Return a column of ones, then the covariates, standardised."""
    covariates = np.asarray(covariates, float)
    return np.column_stack([np.ones(len(covariates)), standard(covariates)])


def levels_of(values: Any) -> Array:
    """Return the number of each row's level."""
    return np.unique(np.asarray(values), return_inverse=True)[1]


def breast_cancer() -> Regression:
    """Return whether 569 tumours were benign, given 30 covariates: nearly separable, and strongly correlated."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return Regression("breast cancer", "bernoulli", with_intercept(data.data), data.target.astype(float))


def affairs() -> Regression:
    """Return whether 6366 women of Fair's survey reported an affair, given 8 covariates."""
    from statsmodels.api import datasets

    data = datasets.fair.load_pandas()
    return Regression("affairs", "bernoulli", with_intercept(data.exog), np.asarray(data.endog > 0, float))


def doctor_visits() -> Regression:
    """Return the doctor visits of 20,190 person-years of the RAND health experiment, given 9 covariates."""
    from statsmodels.api import datasets

    data = datasets.randhie.load_pandas()
    return Regression("doctor visits", "poisson", with_intercept(data.exog), np.asarray(data.endog, float))


def school_tests() -> Regression:
    """Return how many pupils of 303 school districts were above the median in mathematics, given 20 covariates."""
    from statsmodels.api import datasets

    data = datasets.star98.load_pandas()
    above, below = np.asarray(data.endog, float).T
    return Regression("school tests", "binomial", with_intercept(data.exog), above, trials=above + below)


def diabetes() -> Regression:
    """Return the progress of diabetes in 442 patients, given 10 covariates."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    return Regression("diabetes", "gaussian", with_intercept(data.data), standard(data.target))


def cancer_by_county() -> Regression:
    """Return the deaths of breast cancer in 301 counties, beside the population: a random intercept for each county."""
    from statsmodels.api import datasets

    data = datasets.cancer.load_pandas().data
    deaths, people = np.asarray(data.cancer, float), np.asarray(data.population, float)
    offset = np.log(people * deaths.sum() / people.sum())
    groups = {"county": np.arange(len(deaths))}
    X = with_intercept(np.log(people)[:, None])
    return Regression("cancer by county", "poisson", X, deaths, groups, offset, divided=("county",))


def affairs_by_occupation(every: int = 1) -> Regression:
    """Return Fair's survey, or every so many-th row, with two crossed random intercepts: her and his occupation."""
    from statsmodels.api import datasets

    data = datasets.fair.load_pandas()
    occupations = ["occupation", "occupation_husb"]
    # Copies: gpboost reads the memory of a view as if it had no gaps.
    groups = {name: levels_of(data.exog[name])[::every].copy() for name in occupations}
    X = with_intercept(data.exog.drop(columns=occupations)[::every])
    x = np.asarray(data.endog > 0, float)[::every].copy()
    title = "affairs by occupations" + (f", every {every}th row" if every > 1 else "")
    patience = 15.0 if every == 1 else 8.0
    return Regression(title, "bernoulli", X, x, groups, divided=tuple(occupations), patience=patience, tuned=True)


def some_affairs_by_occupation() -> Regression:
    """Return every 6th row of it, on which NUTS is faster."""
    return affairs_by_occupation(6)


def votes() -> Regression:
    """Return the expected votes of 944 people (1996), with crossed random intercepts: education and income.

    Covariates are all other columns but the population, whose logarithm is one of them.
    """
    from statsmodels.api import datasets

    data = datasets.anes96.load_pandas().data
    names = ["educ", "income"]
    groups = {name: levels_of(data[name]) for name in names}
    X = with_intercept(data.drop(columns=["vote", "popul", *names]))
    x = np.asarray(data.vote, float).copy()
    return Regression("votes", "bernoulli", X, x, groups, divided=tuple(names), patience=8.0)


def any_visit() -> Regression:
    """Return whether a person saw a doctor in a year, with crossed random intercepts: insurance and diseases.

    Every 10th row of the RAND health experiment. The levels of the first are the five shares that people paid
    themselves, those of the second the whole numbers of chronic diseases; covariates are all other columns.
    """
    from statsmodels.api import datasets

    data = datasets.randhie.load_pandas().data[::10]
    groups = {"share": levels_of(data.lncoins), "diseases": levels_of(np.floor(data.disea))}
    X = with_intercept(data.drop(columns=["mdvis", "lncoins", "disea"]))
    x = np.asarray(data.mdvis > 0, float)
    return Regression("any doctor visit", "bernoulli", X, x, groups, divided=tuple(groups), patience=8.0)


def sea_temperature() -> Regression:
    """Return sea temperatures of 61 years and 12 months: two crossed random intercepts, and noise."""
    from statsmodels.api import datasets

    data = datasets.elnino.load_pandas().data
    temperature = data.drop(columns="YEAR").to_numpy(float)
    year, month = (part.ravel() for part in np.indices(temperature.shape))
    X = np.ones((temperature.size, 1))
    return Regression(
        "sea temperature", "gaussian", X, standard(temperature.ravel()), {"year": year, "month": month}
    )  # fmt: skip


def investment() -> Regression:
    """Return the investment of 11 firms in 20 years (Grunfeld), given 2 covariates: crossed intercepts, and noise."""
    from statsmodels.api import datasets

    data = datasets.grunfeld.load_pandas().data
    groups = {name: levels_of(data[name]) for name in ("firm", "year")}
    X = with_intercept(data[["value", "capital"]])
    return Regression("investment", "gaussian", X, standard(data.invest), groups, divided=("year",))


REGRESSIONS = (
    breast_cancer, affairs, doctor_visits, school_tests, diabetes, cancer_by_county, affairs_by_occupation,
    some_affairs_by_occupation, votes, any_visit, sea_temperature, investment,
)  # fmt: skip
