"""Tables and the plot of a posterior."""

import matplotlib.pyplot
import numpy as np
import pytest

import forestmix as fmx
from forestmix.posterior import kinds
from forestmix.posterior.table import Table


@pytest.fixture(autouse=True)
def closed():
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


def posterior_of(m):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), np.eye(m)))
    return fmx.infer(model, np.linspace(-1, 1, m)).posterior()


def test_summary():
    posterior = posterior_of(3)
    table = posterior.summary(level=0.8, names=["a", "b", "c"])
    low, high = posterior.interval(0.8)
    for label, values in (("mean", posterior.mean), ("sd", posterior.sd), ("10 %", low), ("90 %", high)):
        assert table[label] == pytest.approx(values)
    assert str(table).splitlines()[0] == "corrected posterior, 80 % intervals"
    assert str(table).splitlines()[2].split() == ["a", "-0.800", "0.447", "-1.373", "-0.227"]
    frame = table.to_pandas()
    assert list(frame.columns) == ["mean", "sd", "10 %", "90 %"]
    assert list(frame.index) == ["a", "b", "c"]


def test_long_tables_are_shortened_and_html_is_escaped():
    table = posterior_of(100).summary()
    assert len(table) == 100
    assert len(str(table).splitlines()) == 2 + 12 + 1 + 12
    assert "..." in str(table)
    assert "<td>" in table._repr_html_()
    risky = Table(["<b>"], {"x&y": [1.0]}, "a < b", ["note & more"])._repr_html_()
    assert "<b>" not in risky
    assert "&lt;b&gt;" in risky
    assert "x&amp;y" in risky


@pytest.mark.parametrize(
    ("values", "shown"),
    [([0.001234], "0.00123"), ([123456.0], "123,456"), ([1e12], "1e+12"), ([0.0], "0.00"), ([3], "3")],
)
def test_numbers_are_readable(values, shown):
    assert str(Table(["row"], {"x": np.array(values)})).split()[-1] == shown


def test_estimated_standard_deviations_have_their_error_in_the_table(monkeypatch):
    monkeypatch.setattr(kinds, "FACTOR_LIMIT", 0)
    monkeypatch.setattr(kinds, "ROW_FACTOR_LIMIT", 0)
    assert "error of sd" in posterior_of(3).summary().columns


def test_the_plot_shows_means_and_intervals():
    posterior = posterior_of(4)
    axes = posterior.plot(names=list("abcd"))
    assert [label.get_text() for label in axes.get_yticklabels()] == list("abcd")
    means = next(line for line in axes.lines if len(line.get_xdata()) == 4)
    assert means.get_xdata() == pytest.approx(posterior.mean)
    wide = axes.collections[0].get_segments()
    assert [segment[0, 0] for segment in wide] == pytest.approx(posterior.interval(0.9)[0])
    assert [segment[1, 0] for segment in wide] == pytest.approx(posterior.interval(0.9)[1])


def test_many_latents_are_a_band_and_axes_may_be_given():
    figure, axes = matplotlib.pyplot.subplots()
    assert posterior_of(100).plot(axes) is axes
    assert "5 to 95 %" in axes.get_xlabel() + axes.get_ylabel()
    assert len(axes.collections) >= 2, "a band for each interval"
    with pytest.raises(fmx.ArgumentError, match="axes must be matplotlib axes; got int"):
        posterior_of(3).plot(3)
    assert figure is axes.figure
