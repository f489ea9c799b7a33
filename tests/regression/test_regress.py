"""Fits from a table: names, groups, new levels, missing entries, priors, and what is refused."""

import matplotlib.pyplot as pyplot
import numpy as np
import pandas
import polars
import pytest
import scipy

import forestmix as fmx
from forestmix.data import load_table
from forestmix.errors import ArgumentError

SCHOOLS = "mark ~ hours + before + size + (1 | school)"
CLINIC = "visits ~ age + smoker + C(ward) + (1 | subject) + offset(log(months))"


@pytest.fixture(scope="module")
def schools():
    return fmx.regress(SCHOOLS, load_table("schools"))


@pytest.fixture(scope="module")
def clinic():
    return fmx.regress(CLINIC, load_table("clinic"), family="poisson")


def test_summary_has_names_scales_and_the_truth(schools, clinic):
    """The tables were drawn from known effects, which 99 % intervals hold."""
    table = schools.summary(0.99).to_pandas()
    assert list(table.index) == ["Intercept", "hours", "before", "size[T.small]", "sd(1 | school)", "sd(noise)"]
    assert list(table.columns) == ["mean", "sd", "0.5 %", "99.5 %"]
    truth = {"hours": 1.5, "before": 0.6, "size[T.small]": 2.0, "sd(1 | school)": 4.0}
    truth |= {"age": 0.025, "smoker": 0.4, "C(ward)[T.north]": 0.2, "C(ward)[T.west]": 0.5, "sd(1 | subject)": 0.6}
    both = pandas.concat([table, clinic.summary(0.99).to_pandas()])
    for name, value in truth.items():
        assert both.loc[name, "0.5 %"] < value < both.loc[name, "99.5 %"], name
    assert "6 of 543 rows are left out" in clinic.message
    assert "6 of 543 rows" in str(clinic.summary())
    assert "<table>" in schools.summary()._repr_html_()


def test_nested_groups_and_binomial_rows_find_the_truth():
    nested = fmx.regress("mark ~ hours + before + size + (1 | school/class)", load_table("schools"))
    table = nested.summary(0.99).to_pandas()
    for name, value in {"sd(1 | school)": 4.0, "sd(1 | school:class)": 2.5, "sd(noise)": 7.0}.items():
        assert table.loc[name, "0.5 %"] < value < table.loc[name, "99.5 %"]
    data = load_table("seeds").assign(lost=lambda table: table.seeds - table.germinated)
    seeds = fmx.regress("cbind(germinated, lost) ~ coat + water + (1 | bench)", data, family="binomial")
    same = fmx.regress("germinated ~ coat + water + (1 | bench)", data, family="binomial", trials="seeds")
    table = seeds.summary(0.99).to_pandas()
    for name, value in {"coat[T.plain]": -0.8, "water": 0.5, "sd(1 | bench)": 0.5}.items():
        assert table.loc[name, "0.5 %"] < value < table.loc[name, "99.5 %"]
    assert np.allclose(seeds.posterior.mean, same.posterior.mean)
    chance = seeds.predict(data[:5])
    counts = seeds.predict(data[:5], trials="seeds")
    assert np.allclose(counts.mean, chance.mean * data.seeds[:5])


def test_known_scales_are_generalised_least_squares():
    """With all scales given the posterior is that of a dense linear model, effects of groups and all."""
    data = load_table("schools").iloc[:200]
    known = {"noise": 7.0, "1 | school": 4.0, "hours": (1.0, 2.0), "Intercept": (40.0, 10.0)}
    fit = fmx.regress("mark ~ hours + (1 | school)", data, prior=known)
    W = np.column_stack([np.ones(200), data.hours, pandas.get_dummies(data.school)]).astype(float)
    mean0 = np.array([40.0, 1.0, *[0.0] * (W.shape[1] - 2)])
    sd0 = np.array([10.0, 2.0, *[4.0] * (W.shape[1] - 2)])
    covariance = np.linalg.inv(np.diag(sd0**-2) + W.T @ W / 49)
    mean = covariance @ (mean0 / sd0**2 + W.T @ data.mark.to_numpy() / 49)
    assert np.allclose(fit.posterior.mean, mean, rtol=1e-9)
    assert np.allclose(fit.posterior.sd, np.sqrt(np.diag(covariance)), rtol=1e-9)
    assert fit.names[2:4] == ["1 | school[school 01]", "1 | school[school 02]"]
    assert np.allclose(fit.groups()["mean"], mean[2:])
    # The evidence is that of a normal distribution of the responses.
    marginal = scipy.stats.multivariate_normal(W @ mean0, W @ np.diag(sd0**2) @ W.T + 49 * np.eye(200))
    assert fit.posterior.log_evidence == pytest.approx(marginal.logpdf(data.mark), rel=1e-9)


def test_predictions_of_known_and_new_levels():
    """Known levels by their effects; new ones by the group's sd, added to the variance of the predictor."""
    data = load_table("schools").iloc[:200]
    fit = fmx.regress(
        "mark ~ hours + (hours | school)", data, prior={"noise": 7.0, "1 | school": 4.0, "hours | school": 0.5}
    )
    new = data.iloc[:3].assign(school=["school 01", "elsewhere", None])
    found = fit.predict(new, level=0.8)
    rows = np.zeros((3, len(fit.names)))
    rows[:, 0], rows[:, 1] = 1.0, new.hours
    rows[0, fit.names.index("1 | school[school 01]")] = 1.0
    rows[0, fit.names.index("hours | school[school 01]")] = new.hours.iloc[0]
    variance = np.einsum("ij,jk,ik->i", rows, fit.posterior.covariance(), rows)
    variance += np.array([0, 1, 1]) * (4.0**2 + (0.5 * new.hours.to_numpy()) ** 2)
    assert np.allclose(found.eta_mean, rows @ fit.posterior.mean)
    assert np.allclose(found.eta_sd, np.sqrt(variance))
    half = scipy.special.ndtri(0.9) * np.sqrt(variance + 49)
    assert np.allclose(found.lower, found.mean - half)
    assert np.allclose(found.upper, found.mean + half)
    assert found.names == ["0", "1", "2"]
    assert np.allclose(fit.predict().mean[:1], found.mean[:1])


def test_new_levels_have_the_unknown_scale(clinic):
    data = load_table("clinic").dropna().iloc[:1]
    known, new = clinic.predict(data), clinic.predict(data.assign(subject="nobody"))
    scale = clinic.summary()["mean"][-1]
    assert new.eta_sd[0] ** 2 > scale**2 > known.eta_sd[0] ** 2
    assert new.eta_sd[0] ** 2 < 2 * scale**2


def test_responses_that_miss_are_predicted():
    data = load_table("schools")
    data.loc[[3, 9], "mark"] = np.nan
    data.loc[5, "hours"] = np.nan
    kept = fmx.regress(SCHOOLS, data, missing="predict")
    dropped = fmx.regress(SCHOOLS, data)
    assert "1 of 595 rows are left out" in kept.message
    assert "2 rows without a response" in kept.message
    assert "3 of 595" in dropped.message
    assert np.allclose(kept.posterior.mean, dropped.posterior.mean, rtol=1e-6)
    predictions = kept.predict()
    assert len(predictions.mean) == 594
    at = predictions.names.index("9")
    assert predictions.mean[at] == pytest.approx(dropped.predict(data.iloc[[9]]).mean[0], rel=1e-6)


def test_polars_and_dictionaries_are_the_same_table():
    data = load_table("schools").iloc[:150]
    given = {"noise": 7.0, "1 | school": 4.0}
    columns = {name: data[name].to_list() for name in data}
    fits = [fmx.regress(SCHOOLS, table, prior=given) for table in (data, polars.DataFrame(columns), columns)]
    for other in fits[1:]:
        assert other.names == fits[0].names
        assert np.allclose(other.posterior.mean, fits[0].posterior.mean)
    new = polars.DataFrame(columns).head(4)
    assert np.allclose(fits[0].predict(new).mean, fits[0].predict(data.head(4)).mean)


def test_responses_of_two_levels():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300)
    wins = rng.random(300) < 1 / (1 + np.exp(-x))
    numbers = fmx.regress("y ~ x", {"x": x, "y": wins.astype(int)}, family="bernoulli")
    words = fmx.regress("y ~ x", {"x": x, "y": np.where(wins, "yes", "no")}, family="bernoulli")
    flags = fmx.regress("y ~ x", {"x": x, "y": wins}, family="bernoulli")
    for other in (words, flags):
        assert np.allclose(other.posterior.mean, numbers.posterior.mean)
    assert "y is 1 for 'yes'" in str(words.summary())
    found = numbers.predict({"x": [0.0, 2.0]})
    assert ((found.lower > 0) & (found.lower < found.mean) & (found.mean < found.upper) & (found.upper < 1)).all()


def test_priors_print_and_are_set_by_name(schools):
    data = load_table("schools")
    spread, hours = data.mark.std(ddof=0), data.hours.std(ddof=0)
    assert schools.priors.blocks["hours"].sd == pytest.approx(2.5 * spread / hours)
    assert schools.priors.blocks["Intercept"].mean == pytest.approx(data.mark.mean())
    text = str(schools.priors)
    assert "HalfNormal" in text
    assert "noise" in text
    tau = fmx.scales.HalfNormal(3.0)
    given = {"fixed": 1.0, "before": (0.5, 0.1), "size[T.small]": 2.0, "1 | school": tau, "noise": 7.0}
    priors = fmx.regress(SCHOOLS, data, prior=given).priors
    assert priors.blocks["hours"].sd.tolist() == [1.0]
    assert (priors.blocks["before"].mean[0], priors.blocks["before"].sd[0]) == (0.5, 0.1)
    assert priors.blocks["size"].sd.tolist() == [2.0]
    assert priors.blocks["1 | school"].sd is tau
    assert priors.unknown == {"1 | school": tau}
    shrunk = fmx.regress("mark ~ hours + before + C(school)", data, prior={"C(school)": tau})
    assert "sd(C(school))" in shrunk.summary().names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formula": "mark ~ hour"}, "Did you mean 'hours'"),
        ({"formula": "mark ~ hours + (1 | schol)"}, "Did you mean 'school'"),
        ({"formula": "marks ~ hours"}, "Did you mean 'mark'"),
        ({"formula": "size ~ hours"}, "must be numbers"),
        ({"formula": "school ~ hours", "family": "bernoulli"}, "two levels"),
        ({"family": "poisson"}, "counts"),
        ({"family": "bernoulli"}, "0 or 1"),
        ({"family": "binomial"}, "needs trials"),
        ({"family": "gamma"}, "family must be one of"),
        ({"trials": 3}, "family='binomial'"),
        ({"missing": "keep"}, "missing must be one of"),
        ({"prior": {"hour": 1.0}}, "Did you mean 'hours'"),
        ({"prior": {"hours": -1.0}}, "above 0"),
        ({"prior": "vague"}, "'flat'"),
        ({"weights": -np.ones(595)}, "weights must be"),
        ({"offset": np.ones(3)}, "one number for each"),
        ({"data": np.ones((3, 3))}, "must be a table"),
        ({"data": {"mark": [], "hours": []}}, "at least one row"),
        ({"data": {"mark": [np.nan], "hours": [1.0]}}, "without missing entries"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    given = {"formula": "mark ~ hours", "data": load_table("schools")} | change
    with pytest.raises(ArgumentError, match=message):
        fmx.regress(**given)


def test_new_tables_are_checked(schools):
    data = load_table("schools")
    with pytest.raises(ArgumentError, match="hours"):
        schools.predict(data.drop(columns="hours"))
    with pytest.raises(ArgumentError, match="no missing entries"):
        schools.predict(data.assign(hours=np.nan))
    with pytest.raises(ArgumentError, match="never saw"):
        schools.predict(data.assign(size="huge"))
    with pytest.raises(ArgumentError, match="binomial"):
        schools.predict(data, trials=3)
    with pytest.raises(ArgumentError, match="term must be one of"):
        schools.groups("1 | class")
    with pytest.raises(ArgumentError, match="no effects of groups"):
        fmx.regress("mark ~ hours", data).groups()


def test_loo_check_and_comparison(schools):
    data = load_table("schools")
    other = fmx.regress("mark ~ hours + before", data)
    table = fmx.compare({"without": other, "with": schools})
    assert table.names == ["with", "without"]
    assert table["difference"][1] < -3 * table["se of difference"][1]
    with pytest.raises(ArgumentError, match="same observations"):
        fmx.compare({"all": other, "some": fmx.regress("mark ~ hours", data.iloc[:100])})
    assert "Exact" in schools.check().verdict


def test_loo_of_known_noise_is_that_of_fits_without_the_row():
    data = load_table("schools").iloc[:40]
    given = {"noise": 7.0, "Intercept": (40.0, 10.0), "hours": 1.0}
    found = fmx.regress("mark ~ hours", data, prior=given).loo()
    for row in (0, 7, 39):
        rest = fmx.regress("mark ~ hours", data.drop(index=row), prior=given)
        one = rest.predict(data.iloc[[row]])
        sd = np.hypot(one.eta_sd[0], 7.0)
        assert found.pointwise[row] == pytest.approx(scipy.stats.norm(one.mean[0], sd).logpdf(data.mark[row]), rel=1e-8)


def test_drawn_responses_are_those_of_the_predictive_distribution(clinic):
    drawn = clinic.simulate(4000, rng=0)
    expected = clinic.predict().mean
    assert drawn.shape == (4000, 537)
    error = drawn.std(axis=0) / np.sqrt(4000)
    assert np.mean(np.abs(drawn.mean(axis=0) - expected) < 3 * error) > 0.98


def test_pictures(schools, clinic):
    for axes in (schools.plot(), schools.plot_groups(), schools.plot_predictive(20), clinic.plot_predictive(20)):
        assert axes.has_data()
    labels = [label.get_text() for label in schools.plot().get_yticklabels()]
    assert [label.split(" ×")[0] for label in labels] == [
        "hours", "before", "size[T.small]", "sd(1 | school)", "sd(noise)",
    ]  # fmt: skip
    pyplot.close("all")


def test_slopes_say_that_scales_are_independent():
    fit = fmx.regress("mark ~ hours + (hours | school)", load_table("schools"))
    assert "independent scales" in str(fit.summary())
    assert fit.summary().names[-3:] == ["sd(1 | school)", "sd(hours | school)", "sd(noise)"]
    with pytest.raises(ArgumentError, match="term must say which"):
        fit.groups()


def test_tables_that_ship():
    with pytest.raises(ArgumentError, match="Did you mean 'schools'"):
        load_table("school")
    assert list(load_table("seeds")) == ["bench", "coat", "water", "seeds", "germinated"]


@pytest.mark.parametrize("table", ["schools", "clinic"])
def test_saved_fits_are_the_same_fits(table, tmp_path, request):
    fit = request.getfixturevalue(table)
    fit.save(tmp_path / "fit.nc")
    again = fmx.load(tmp_path / "fit.nc")
    assert again.names == fit.names
    assert str(again.priors) == str(fit.priors)
    assert str(again.summary()) == str(fit.summary())
    assert np.allclose(again.posterior.sd, fit.posterior.sd, rtol=1e-9)
    new = load_table(table).dropna().head(3).assign(**{"school" if table == "schools" else "subject": "new"})
    assert np.allclose(again.predict(new).upper, fit.predict(new).upper)
    assert again.loo().elpd == pytest.approx(fit.loo().elpd)
    (tmp_path / "other.nc").write_bytes(b"CDF\x01 nothing")
    with pytest.raises(fmx.ForestmixError, match=r"other\.nc"):
        fmx.load(tmp_path / "other.nc")


@pytest.mark.parametrize(
    ("table", "formula", "family"), [("schools", SCHOOLS, "gaussian"), ("clinic", CLINIC, "poisson")]
)
def test_a_case_of_weight_two_is_a_row_twice(table, formula, family):
    data = load_table(table).dropna().reset_index(drop=True)
    weights = np.where(np.arange(len(data)) % 3 == 0, 2.0, 1.0)
    weighted = fmx.regress(formula, data.assign(times=weights), family=family, weights="times")
    repeated = fmx.regress(formula, data.loc[data.index.repeat(weights.astype(int))], family=family)
    assert str(weighted.priors) == str(repeated.priors)
    assert np.allclose(weighted.posterior.mean, repeated.posterior.mean, rtol=1e-5, atol=1e-6)
    assert np.allclose(weighted.posterior.sd, repeated.posterior.sd, rtol=1e-5)


def test_saved_categories_keep_their_kind_and_order(tmp_path):
    rng = np.random.default_rng(1)
    kind = pandas.Categorical(rng.choice([3, 1, 2], 60), categories=[3, 1, 2])
    data = pandas.DataFrame({"y": rng.standard_normal(60), "kind": kind, "flag": rng.random(60) < 0.5})
    fit = fmx.regress("y ~ kind + flag", data, prior={"noise": 1.0})
    fit.save(tmp_path / "fit.nc")
    again = fmx.load(tmp_path / "fit.nc")
    assert again.names == fit.names == ["Intercept", "kind[T.1]", "kind[T.2]", "flag"]
    assert np.allclose(again.predict(data.head()).mean, fit.predict(data.head()).mean)


def test_weights_of_cases_are_part_of_the_data_that_fits_are_compared_on():
    table = {"y": np.arange(12.0) % 5, "x": np.arange(12.0)}
    plain, weighted = fmx.regress("y ~ x", table), fmx.regress("y ~ x", table, weights=1.0 + np.arange(12) % 2)
    with pytest.raises(ArgumentError):
        fmx.compare({"plain": plain, "weighted": weighted})
    fmx.compare({"plain": plain, "ones": fmx.regress("y ~ 1", table, weights=np.ones(12))})


def test_names_are_those_of_the_posterior_too():
    table = {"y": np.arange(12.0) % 5, "x": np.arange(12.0), "g": ["a", "b", "c"] * 4}
    fit = fmx.regress("y ~ x + (1 | g)", table, prior={"noise": 1.0, "1 | g": 1.0})
    assert fit.posterior.summary().names == fit.names == ["Intercept", "x", "1 | g[a]", "1 | g[b]", "1 | g[c]"]


def test_effects_on_other_scales_can_be_read_in_a_summary():
    table = {"y": np.arange(12.0) % 5, "x": 1e4 * np.arange(12.0)}
    fit = fmx.regress("y ~ x", table, prior={"noise": 1.0})
    line = next(line.split() for line in str(fit.summary()).splitlines() if line.startswith("x "))
    assert float(line[2]) == pytest.approx(fit.posterior.sd[1], rel=0.05)
