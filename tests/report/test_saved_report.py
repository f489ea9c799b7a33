"""Reports on results, posteriors, fits and forests: whole, valid, alone, and in the words of the numbers."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import forestmix as fmx
from forestmix.data import load_table
from forestmix.report import render_saved, write_saved

VOID = {"meta", "img", "source", "br", "link", "input"}
NASTY = '<b>bold</b><script>alert("x")</script>&amp;"\'$'


class Strict(HTMLParser):
    """Checks that elements nest, and collects texts, ids, addresses and pictures."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.addresses, self.alts, self.text, self.tags = [], [], [], [], "", []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        assert len(found) == len(attrs), f"{tag} has an attribute twice"
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [value for name, value in attrs if name in ("src", "srcset", "href")]
        if tag == "img":
            self.alts.append(found["alt"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def weights(n=60, m=8):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.4)


def inferred(family=None, *layers, prior=None, size=None, **options):
    model = fmx.DEF(fmx.Layer(family or fmx.Bernoulli(), weights()), *layers, prior=prior or fmx.Prior())
    return fmx.infer(model, model.sample(0, size=size).x, **options)


def missing():
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 0.3 * weights()))
    x = np.asarray(model.sample(0).x, float)
    x[[3, 7]] = np.nan
    return fmx.infer(model, x)


SAVED = {
    "bernoulli": inferred,
    "posterior": lambda: inferred().posterior(),
    "batch": lambda: inferred(size=3),
    "full": lambda: inferred(covariance="full"),
    "gaussian": lambda: inferred(fmx.Gaussian(0.5)),
    "missing": missing,
    "unknown": lambda: unknown(),
    "sparse latents": lambda: inferred(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.SpikeSlab(0.2))),
    "deep": lambda: inferred(fmx.Gaussian(0.5), fmx.Layer(fmx.Gaussian(1.0), weights(8, 2))),
    "fit": lambda: fmx.regress("visits ~ age + (1 | subject)", load_table("clinic"), family="poisson"),
    "forest": lambda: fmx.ForestMixtureModel(2, n_init=2, n_moves=0, random_state=0).fit(weights(90, 6)),
}


def unknown():
    W = weights()
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=fmx.scales.HalfNormal(1.0)), W))
    return fmx.infer(model, W @ np.ones(8) + np.random.default_rng(1).standard_normal(60))


@pytest.fixture(scope="module")
def made():
    return {}


@pytest.fixture(params=SAVED)
def page(request, made):
    """A report of each kind, made once, with its text."""
    if request.param not in made:
        saved = SAVED[request.param]()
        made[request.param] = saved, render_saved(saved)
    saved, text = made[request.param]
    return request.param, saved, text


def test_it_is_valid_and_stands_alone(page):
    _, _, text = page
    found = Strict(text)
    assert len(set(found.ids)) == len(found.ids)
    assert all(address.startswith(("#section-", "data:image/svg+xml;base64,")) for address in found.addresses)
    assert all(address[1:] in found.ids for address in found.addresses if address.startswith("#"))
    assert not re.search(r"https?:", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))


def test_the_verdict_comes_first_and_pictures_have_words(page):
    kind, _, text = page
    found = Strict(text)
    assert text.index("verdict ") < text.index("<section") if kind != "deep" else True
    assert found.alts
    assert all(len(alt) > 30 and re.search(r"\d", alt) for alt in found.alts)
    assert "Settings and versions" in found.text
    assert fmx.__version__ in found.text


def test_sections_are_those_that_apply(made):
    def titles(name):
        if name not in made:
            saved = SAVED[name]()
            made[name] = saved, render_saved(saved)
        return re.findall(r"<h2[^>]*>([^<]*)", made[name][1])

    ends = ["Predictive check", "Leave-one-out"]
    bounds = ["Gap of the forest mixture bound", "Parents and forest-likeness"]
    assert titles("bernoulli") == ["Summary", "Convergence", *ends, *bounds, "Settings and versions"]
    assert titles("fit") == [
        "Summary", "Group effects", "Unknown scales", "Convergence", *ends, *bounds, "Settings and versions"
    ]  # fmt: skip
    assert titles("full") == titles("bernoulli")
    assert "Unknown scales" in titles("unknown")
    assert titles("forest") == ["Forest", "Parents", "Settings and versions"]


def test_the_numbers_are_those_of_the_result(made):
    saved = made["bernoulli"][0] if "bernoulli" in made else inferred()
    text = Strict(render_saved(saved)).text
    posterior = saved.posterior()
    assert posterior.check().verdict in text
    assert f"{posterior.loo().elpd:,.5g}" in text
    assert f"{fmx.forest_likeness(weights()):.3g}" in text
    assert f"{float(np.sum(fmx.gap(saved.model, saved._x, saved))):,.4g} nats" in text
    assert saved.elbo - saved.fm_bound == pytest.approx(np.sum(fmx.gap(saved.model, saved._x, saved)))
    shown = re.findall(r'<th scope="row">(y\[\d\])</th><td class="number">(.*?)</td>', render_saved(saved))
    assert [name for name, _ in shown] == [f"y[{j}]" for j in range(8)]
    np.testing.assert_allclose([float(mean) for _, mean in shown], posterior.mean, atol=5e-3)


def test_the_convergence_of_a_fit_is_that_of_its_run(made):
    fit, page = made["fit"] if "fit" in made else (SAVED["fit"](), None)
    text = Strict(page or render_saved(fit)).text
    section = text[text.index("Convergence", text.index("Unknown scales", 200)) :]
    assert fmx.Status.CONVERGED.value in section
    alts = Strict(page or render_saved(fit)).alts
    assert any(f"ends at {fit.trace.objective[-1]:,.6g}" in alt for alt in alts)


def test_labels_with_markup_stay_text():
    text = render_saved(inferred(), [f"{NASTY}{j}" for j in range(8)])
    assert text.count("<script>") == 1
    assert "<b>" not in text
    assert Strict(text).text.count(NASTY) >= 8


def test_a_column_with_markup_in_its_name_stays_text():
    rng = np.random.default_rng(0)
    words = rng.choice(["<i>a</i>", "b & c", '"d"'], 60)
    data = {"y": rng.standard_normal(60), "g": words}
    text = render_saved(fmx.regress("y ~ g + (1 | g)", data))
    assert "<i>" not in text
    assert "<i>a</i>" in Strict(text).text


def test_a_report_is_written_whole_and_of_nothing_else(tmp_path):
    path = write_saved(tmp_path / "report.html", inferred())
    assert path.read_text("utf-8").endswith("</html>\n")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(
        fmx.ArgumentError, match="A report is for a Fit, Result, Posterior or fitted ForestMixtureModel; got int"
    ):
        write_saved(tmp_path / "other.html", 3)
