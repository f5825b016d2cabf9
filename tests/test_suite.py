"""Suites: their keys and grammar, views, copies, configurations and pictures."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import REQUIRED, definitions, metric_of
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from omegaconf import OmegaConf
from torch import Tensor

import torch_topk as tt

CONFIGS = Path(__file__).parents[1] / "configs"
SCORES = torch.tensor([[0.1, 0.9, 0.5, 0.3], [0.4, 0.1, 0.2, 0.9], [0.2, 0.3, 0.9, 0.1]])
GAINS = torch.tensor([[1, 0, 0, 2], [0, 0, 1, 0], [0, 3, 0, 0]])


def updated(*args: Any, **kwargs: Any) -> tt.TopKMetrics:
    """A suite after one batch."""
    suite = tt.TopKMetrics(*args, **kwargs)
    suite.update(SCORES, GAINS)
    return suite


def value_of(metric: tt.TopKMetric) -> Any:
    """The metric's value on the same batch."""
    metric.update(SCORES, GAINS)
    return metric.compute().tolist()


# Keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "given", "keys"),
    [
        (["ndcg"], {"k": 5}, "ndcg@5"),
        ("ndcg", {"k": 5}, "ndcg@5"),
        (tt.NDCG, {"k": 5}, "ndcg@5"),
        (["recall", "ndcg@10"], {"k": [1, 5]}, "recall@1 recall@5 ndcg@10"),
        (["ndcg", "map@3"], {}, "ndcg map@3"),
        (["mrr"], {"k": None}, "mrr"),
        ([tt.MAP(k=20), tt.NDCG, tt.MRR(k=[2, 3])], {"k": [5, 1]}, "map@20 ndcg@5 ndcg@1 mrr@2 mrr@3"),
        (["ndcg", "mrr@3"], {"k": 5, "prefix": "val/", "postfix": "_dl0"}, "val/ndcg@5_dl0 val/mrr@3_dl0"),
        (["mrr"], {"prefix": "val/", "postfix": "!"}, "val/mrr!"),
        (["ndcg"], {"k": [5, 10], "at": "_at_"}, "ndcg_at_5 ndcg_at_10"),
        ({"gain": tt.NDCG(k=10, gain="exp"), "ndcg": "ndcg@10"}, {}, "gain@10 ndcg@10"),
        ({"a.b": "ndcg", "c d": {"name": "map", "denominator": "k"}}, {"k": [1, 2]}, "a.b@1 a.b@2 c+d@1 c+d@2"),
        ([{"name": "map", "k": 20, "denominator": "relevant"}], {"k": 5}, "map@20"),
        ({"name": "map", "k": [2, 4]}, {}, "map@2 map@4"),
        ([{"name": "ndcg@7"}, {"name": "mrr", "k": None}], {"k": 5}, "ndcg@7 mrr"),
        (({"name": "P(rel=2)@5"}, "P(rel=3)@5", "P@5"), {}, "P(rel=2)@5 P(rel=3)@5 P@5"),
    ],
)
def test_keys(metrics: Any, given: dict[str, Any], keys: str) -> None:
    suite = updated(metrics, **given)
    expected = tuple(key.replace("+", " ") for key in keys.split())
    assert suite.keys() == expected
    assert tuple(suite) == expected
    assert tuple(suite.compute()) == expected
    assert tuple(suite(SCORES, GAINS)) == expected
    assert tuple(suite.intervals()) == expected
    assert len(suite) == len(expected)
    assert repr(suite) == f"TopKMetrics({', '.join(expected)})"


AS_TYPED: dict[str, tt.TopKMetric] = {
    "ndcg@5": tt.NDCG(k=5),
    "nDCG@2": tt.NDCG(k=2),
    "P@3": tt.Precision(k=3),
    "Recall@3": tt.Recall(k=3),
    "hit-rate@1": tt.HitRate(k=1),
    "hits@1": tt.HitRate(k=1),
    "success@1": tt.HitRate(k=1),
    "AP@3": tt.MAP(k=3),
    "RR": tt.MRR(k=None),
    "recip_rank": tt.MRR(k=None),
    "hit_rate": tt.HitRate(k=None),
    "map": tt.MAP(k=None),
    "P(rel=2)@3": tt.Precision(k=3, min_relevance=2),
    "P(rel=1.5)@3": tt.Precision(k=3, min_relevance=1.5),
    "precision(min_relevance=2, denominator=relevant)@3": tt.Precision(k=3, min_relevance=2, denominator="relevant"),
    "ndcg(gain=exp,ideal='candidates')": tt.NDCG(k=None, gain="exp", ideal="candidates"),
    "fbeta(beta=2)@2": tt.FBeta(k=2, beta=2.0),
    "fbeta(beta=0.5, average=micro)@2": tt.FBeta(k=2, beta=0.5, average="micro"),
    "recall(empty=skip)@2": tt.Recall(k=2, empty="skip"),
}
WRITTEN_ANEW: dict[str, tuple[str, tt.TopKMetric]] = {
    " ndcg @ 2 ": ("ndcg@2", tt.NDCG(k=2)),
    "ndcg()@2": ("ndcg@2", tt.NDCG(k=2)),
    "ndcg_cut_2": ("ndcg@2", tt.NDCG(k=2)),
    "map_cut_3": ("map@3", tt.MAP(k=3)),
    "P_3": ("P@3", tt.Precision(k=3)),
    "recall_2": ("recall@2", tt.Recall(k=2)),
    "success_1": ("success@1", tt.HitRate(k=1)),
}


@pytest.mark.parametrize(
    ("spec", "key", "metric"),
    [
        *((spec, spec, metric) for spec, metric in AS_TYPED.items()),
        *((spec, *rest) for spec, rest in WRITTEN_ANEW.items()),
    ],
)
def test_grammar(spec: str, key: str, metric: tt.TopKMetric) -> None:
    """A key is the name as typed, and the cut-off."""
    suite = updated([spec])
    assert suite.keys() == (key,)
    (_, made), *_ = suite.named
    assert (type(made), made.cutoffs, made.options) == (type(metric), metric.cutoffs, metric.options)
    assert made.policies == metric.policies
    assert suite.compute()[key].item() == value_of(metric.clone())


@pytest.mark.parametrize("spec", ["ndcg@1,3", "ndcg@1, 3", "ndcg_cut_1,3", {"name": "ndcg@1,3"}])
def test_several_cutoffs(spec: Any) -> None:
    suite = updated([spec], k=2)
    assert [value.item() for value in suite.compute().values()] == value_of(tt.NDCG(k=[1, 3]))


@pytest.mark.parametrize(
    "spec",
    ["", "@5", "ndcg@", "ndcg@-1", "ndcg@5,", "ndcg@5.5", "ndcg@5@6", "ndcg(gain=exp", "ndcg@k", "ndcg 5", "5@ndcg"],
)
def test_bad_grammar(spec: str) -> None:
    with pytest.raises(ValueError, match=r"is no metric: write a name as 'ndcg', 'ndcg@10', 'ndcg@5,10' or"):
        tt.TopKMetrics([spec])


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("ndcg_cut_", "'ndcg_cut_' is no metric"),
        ("ndcg(exp)@3", r"'exp' in 'ndcg\(exp\)@3' is no option: write name=value"),
        ("ndcg(gain=exp,gain=linear)", "gives gain twice"),
        ("ndcg@0", r"k must be at least 1, but is \[0\]"),
        ("P_0", r"k must be at least 1, but is \[0\]"),
        ("ndcg@5,5", r"each only once, but is \[5, 5\]"),
        ("P(rel=0)@5", "min_relevance must be"),
        ("map(denominator=r)@5", "denominator must be one of 'capped', 'relevant', 'hits', 'k', but is 'r'"),
    ],
)
def test_bad_metric(spec: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tt.TopKMetrics([spec])


def test_policies_of_the_suite_are_defaults() -> None:
    suite = updated(["recall", "P(rel=1)", {"name": "map", "empty": "skip"}], k=2, min_relevance=2, empty="one")
    expected = [
        tt.Recall(k=2, min_relevance=2, empty="one"),
        tt.Precision(k=2, min_relevance=1, empty="one"),
        tt.MAP(k=2, min_relevance=2, empty="skip"),
    ]
    assert [value.item() for value in suite.compute().values()] == [value_of(metric) for metric in expected]


def test_metric_given_is_a_definition() -> None:
    metric = tt.NDCG(k=2, gain="exp")
    suite = tt.TopKMetrics({"mine": metric})
    suite.update(SCORES, GAINS)
    assert suite.compute()["mine@2"].item() == value_of(tt.NDCG(k=2, gain="exp"))
    assert metric._update_count == 0
    assert metric.num_queries == 0


def test_depth_is_that_of_the_deepest_metric() -> None:
    assert tt.TopKMetrics(["ndcg@3,7", "mrr@5"]).depth == 7
    assert tt.TopKMetrics(["ndcg@3", "mrr"]).depth is None


def test_queries_are_counted() -> None:
    suite = tt.TopKMetrics(["ndcg"], k=2, ignore_index=-1)
    suite.update(SCORES, torch.tensor([0, -1, 2]))
    suite.update(SCORES, GAINS, weights=torch.tensor([0.5, 0.0, 2.0]))
    assert suite.num_queries == 4
    suite.reset()
    assert suite.num_queries == 0


# Views ------------------------------------------------------------------------------------------------


def test_views() -> None:
    suite = tt.TopKMetrics(["recall", "ndcg"], k=[1, 2], prefix="val/")
    batch = suite(SCORES, GAINS)
    suite.update(SCORES, GAINS.flip(1))
    values = suite.compute()
    assert tuple(key for key, _ in suite.items()) == suite.keys()
    assert tuple(view for _, view in suite.items()) == tuple(suite.values())
    assert [suite[key] for key in suite] == list(suite.values())
    for key, view in suite.items():
        assert key in suite
        assert view.compute() == values[key]
        assert view._forward_cache == batch[key]
        assert view.device == suite.device
        assert view.higher_is_better
        assert view._update_count == 2
        assert repr(view) == f"{key} of TopKMetrics"
    assert "ndcg@1" not in suite
    assert 3 not in suite


def test_view_is_not_updated() -> None:
    suite = tt.TopKMetrics(["ndcg"], k=5)
    for use in (suite["ndcg@5"].update, suite["ndcg@5"]):
        with pytest.raises(TypeError, match="'ndcg@5' is a view of a suite: update the suite"):
            use(SCORES, GAINS)
    assert suite.num_queries == 0


def test_unknown_key() -> None:
    suite = tt.TopKMetrics(["ndcg", "mrr"], k=5)
    with pytest.raises(
        KeyError, match=r"'ndcg@4' is no key of this suite\. Did you mean 'ndcg@5'\? It has ndcg@5, mrr@5"
    ):
        suite["ndcg@4"]


def test_views_hold_no_state() -> None:
    suite = tt.TopKMetrics(["ndcg", "recall"], k=[1, 2])
    assert len(suite.metric_state) == 1
    assert not any(view.metric_state for view in suite.values())
    assert not suite.state_dict()


# Copies -----------------------------------------------------------------------------------------------


def test_clone() -> None:
    suite = updated(["ndcg", "mrr@3"], k=2, prefix="val/", postfix="_a", at="_at_", min_relevance=2)
    clone = suite.clone(prefix="test/")
    assert clone.keys() == ("test/ndcg_at_2_a", "test/mrr_at_3_a")
    assert suite.keys() == ("val/ndcg_at_2_a", "val/mrr_at_3_a")
    assert list(clone.compute().values()) == list(suite.compute().values())
    before = suite.compute()
    clone.update(SCORES, GAINS.flip(1))
    assert suite.compute() == before
    assert clone["test/ndcg_at_2_a"].compute() == clone.compute()["test/ndcg_at_2_a"]
    assert clone["test/ndcg_at_2_a"].compute() != before["val/ndcg_at_2_a"]
    clone.reset()
    assert suite.num_queries == 3


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "val/ndcg@2!"),
        ({"prefix": ""}, "ndcg@2!"),
        ({"postfix": ""}, "val/ndcg@2"),
        ({"postfix": "?"}, "val/ndcg@2?"),
    ],
)
def test_clone_under_another_name(given: dict[str, str], key: str) -> None:
    assert tt.TopKMetrics(["ndcg"], k=2, prefix="val/", postfix="!").clone(**given).keys() == (key,)


def test_merging_clones() -> None:
    suite = updated(["ndcg", "mrr"], k=2)
    other = suite.clone(prefix="job2/")
    other.reset()
    other.update(SCORES, GAINS.flip(1))
    suite.merge_state(other)
    whole = tt.TopKMetrics(["ndcg", "mrr"], k=2)
    whole.update(torch.cat([SCORES, SCORES]), torch.cat([GAINS, GAINS.flip(1)]))
    assert [v.item() for v in suite.compute().values()] == pytest.approx([v.item() for v in whole.compute().values()])


# Configurations ---------------------------------------------------------------------------------------

CONFIG = """
metrics:
  - ndcg
  - P(rel=2)@2
  - {name: map, k: 3, denominator: relevant}
  - {name: dcg, gain: {1: 0.5, 2: 1, 3: 4}}
k: [1, 2]
prefix: val/
empty: skip
"""


def expected_of_config() -> tt.TopKMetrics:
    metrics = ["ndcg", "P(rel=2)@2", tt.MAP(k=3, denominator="relevant", empty="skip")]
    metrics.append(tt.DCG(k=[1, 2], gain={1: 0.5, 2: 1, 3: 4}, empty="skip"))
    return updated(metrics, k=[1, 2], prefix="val/", empty="skip")


@pytest.mark.parametrize("form", ["path", "text of a path", "mapping", "omegaconf"])
def test_config(form: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    config: Any = {
        "path": path,
        "text of a path": str(path),
        "mapping": OmegaConf.to_container(OmegaConf.create(CONFIG)),
        "omegaconf": OmegaConf.create(CONFIG),
    }[form]
    suite = tt.TopKMetrics.from_config(config)
    suite.update(SCORES, GAINS)
    assert suite.compute() == expected_of_config().compute()


def test_config_with_a_mapping_of_names() -> None:
    config = OmegaConf.create({"metrics": {"mine": "ndcg@2", "other": {"name": "mrr", "k": None}}})
    assert tt.TopKMetrics.from_config(config).keys() == ("mine@2", "other")


def test_config_and_arguments() -> None:
    config = {"metrics": ["ndcg"], "k": [5, 10], "prefix": "val/"}
    suite = tt.TopKMetrics.from_config(config, prefix="test/", k=3, ties="reverse")
    assert suite.keys() == ("test/ndcg@3",)
    assert suite.policies.ties == "reverse"
    assert config == {"metrics": ["ndcg"], "k": [5, 10], "prefix": "val/"}
    assert tt.TopKMetrics.from_config({}, metrics=["mrr"]).keys() == ("mrr",)


@pytest.mark.parametrize("make", [tt.NDCG, lambda k: tt.TopKMetrics(["ndcg"], k)])
def test_cutoffs_of_hydra(make: Any) -> None:
    metric = make(OmegaConf.create([1, 3]))
    metric.update(SCORES, GAINS)
    value = metric.compute()
    found = value.tolist() if isinstance(value, Tensor) else [each.item() for each in value.values()]
    assert found == value_of(tt.NDCG(k=[1, 3]))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"metrics": ["ndcg"], "cutoffs": [1]}, "has the unknown key 'cutoffs'. It takes metrics, k, prefix"),
        ({"metrics": ["ndcg"], "prefx": "a"}, "has the unknown key 'prefx'. Did you mean 'prefix'? It takes metrics"),
        ({"metric": ["ndcg"]}, "has the unknown key 'metric'. Did you mean 'metrics'?"),
        ({"metrics": ["ndcg"], "tie": "index"}, "has the unknown key 'tie'. Did you mean 'ties'?"),
        ({"k": [1]}, "lacks the key 'metrics'"),
        ({"metrics": ["ngcd"]}, "'ngcd' is no metric. Did you mean 'ndcg'?"),
        ({"metrics": []}, "metrics must name at least one metric"),
    ],
)
def test_bad_config(config: dict[str, Any], text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(config)), encoding="utf-8")
    for source in (config, path):
        with pytest.raises(ValueError, match=re.escape(text)) as error:
            tt.TopKMetrics.from_config(source)
        if "key" in text:
            assert str(error.value).startswith("The configuration" if source is config else str(path))


@pytest.mark.parametrize(("content", "kind"), [("- ndcg\n", "list"), ("", "NoneType"), ("ndcg", "str")])
def test_file_without_a_mapping(content: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"bad\.yaml must hold a mapping of arguments, but holds a {kind}\."):
        tt.TopKMetrics.from_config(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tt.TopKMetrics.from_config(tmp_path / "nowhere.yaml")


def test_configs_are_found() -> None:
    assert "recommender.yaml" in {path.name for path in CONFIGS.iterdir()}
    assert {path.suffix for path in CONFIGS.iterdir()} == {".yaml"}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_config_of_the_repository(path: Path) -> None:
    suite = tt.TopKMetrics.from_config(path)
    suite.update(SCORES, GAINS)
    assert all(0 <= value <= 1 for value in suite.compute().values())


# Pictures ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    yield
    plt.close("all")


def lines_of(ax: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}


def ticks_of(ax: Axes) -> dict[float, str]:
    return {tick: label.get_text() for tick, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)}


def test_curve_of_a_metric() -> None:
    metric = tt.NDCG(k=[3, 1, 10])
    metric.update(SCORES, GAINS)
    figure, ax = metric.plot()
    assert figure is ax.figure
    assert ticks_of(ax) == {0: "1", 1: "3", 2: "10"}
    third, first, tenth = metric.compute().tolist()
    assert lines_of(ax) == {"NDCG": ([0, 1, 2], [first, third, tenth])}
    assert ax.get_xlabel() == "K"
    assert ax.get_ylabel() == "NDCG"
    figure.canvas.draw()


def test_one_value_of_a_metric() -> None:
    metric = tt.MRR(k=5)
    batch = metric(SCORES, GAINS)
    for given in (None, batch):
        _, ax = metric.plot(given)
        assert ticks_of(ax) == {0: "5"}
        assert lines_of(ax) == {"MRR": ([0], [batch.item()])}
    whole = tt.MRR(k=None)
    whole.update(SCORES, GAINS)
    _, ax = whole.plot()
    assert ticks_of(ax) == {0: "all"}


def test_steps_of_a_metric() -> None:
    metric = tt.Recall(k=[1, 2])
    values = [metric(SCORES, GAINS), metric(SCORES, GAINS.flip(1)), metric(SCORES.flip(1), GAINS)]
    _, ax = metric.plot(values)
    expected = {f"Recall@{k}": ([0, 1, 2], [value[i].item() for value in values]) for i, k in enumerate((1, 2))}
    assert lines_of(ax) == expected
    assert ax.get_xlabel() == "Step"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Recall@1", "Recall@2"]


def test_axes_that_are_given() -> None:
    figure, axes = plt.subplots(1, 2)
    metric, suite = tt.MRR(k=[1, 2]), tt.TopKMetrics(["mrr"], k=[1, 2])
    for each, ax in zip((metric, suite), axes, strict=True):
        each.update(SCORES, GAINS)
        assert each.plot(ax=ax) == (None, ax)
        assert len(ax.lines) == 1
    assert plt.get_fignums() == [figure.number]


def test_precision_over_recall() -> None:
    suite = updated(["precision", "recall", "mrr@1"], k=[3, 1, 2], prefix="val/")
    values = {key: value.item() for key, value in suite.compute().items()}
    figure, ax = suite.plot(x="val/recall")
    assert lines_of(ax) == {
        "precision": tuple([values[f"val/{name}@{k}"] for k in (1, 2, 3)] for name in ("recall", "precision"))
    }
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("recall", "precision")
    assert [text.get_text() for text in ax.texts] == ["K = 1", "K = 3"]
    figure.canvas.draw()
    with pytest.raises(ValueError, match="Over 'mrr' a result is drawn of the metrics at the same cut-offs"):
        suite.plot(x="mrr")
    with pytest.raises(KeyError, match="'recal' is no metric of this suite"):
        suite.plot(x="recal")


def test_many_cutoffs_have_few_ticks() -> None:
    suite = updated(["recall"], k=range(1, 51))
    assert 10 <= len(ticks_of(suite.plot()[1])) <= 16


def test_curves_of_a_suite() -> None:
    suite = updated({"recall": "recall@1,3", "ndcg": "ndcg@2", "mrr": tt.MRR(k=None)}, prefix="val/")
    values = {key: value.item() for key, value in suite.compute().items()}
    figure, ax = suite.plot()
    assert ticks_of(ax) == {0: "1", 1: "2", 2: "3", 3: "all"}
    assert lines_of(ax) == {
        "val/recall": ([0, 2], [values["val/recall@1"], values["val/recall@3"]]),
        "val/ndcg": ([1], [values["val/ndcg@2"]]),
        "val/mrr": ([3], [values["val/mrr"]]),
    }
    # The intervals, as shades.
    low, high = suite.intervals()["val/recall@3"]
    shade = ax.collections[0].get_paths()[0].vertices
    assert shade[shade[:, 0] == 2][:, 1].min() == pytest.approx(low.item())
    assert shade[shade[:, 0] == 2][:, 1].max() == pytest.approx(high.item())
    assert len(ax.collections) == 3
    figure.canvas.draw()

    _, ax = suite.plot(suite.compute())
    assert not ax.collections
    assert lines_of(ax)["val/mrr"] == ([3], [values["val/mrr"]])


def test_steps_of_a_suite() -> None:
    suite = tt.TopKMetrics(["recall", "mrr"], k=2)
    values = [suite(SCORES, GAINS), suite(SCORES, GAINS.flip(1))]
    _, ax = suite.plot(values)
    assert lines_of(ax) == {key: ([0, 1], [value[key].item() for value in values]) for key in suite}


def test_steps_of_a_view() -> None:
    suite = tt.TopKMetrics(["recall", "mrr"], k=2)
    values = [suite(SCORES, GAINS)["mrr@2"], suite(SCORES, GAINS.flip(1))["mrr@2"]]
    view = suite["mrr@2"]
    _, ax = view.plot(values)
    assert lines_of(ax) == {"mrr@2": ([0, 1], [value.item() for value in values])}
    _, ax = view.plot()
    assert lines_of(ax) == {"mrr@2": ([0], [suite.compute()["mrr@2"].item()])}


def test_axis_keeps_to_the_bounds() -> None:
    metric = tt.HitRate(k=[1, 2])
    metric.update(torch.eye(3), torch.arange(3))
    _, ax = metric.plot()
    assert ax.get_ylim()[1] <= 1.02 + 1e-9
    unbounded = tt.DCG(k=[1, 2])
    unbounded.update(SCORES, GAINS * 100)
    _, ax = unbounded.plot()
    assert ax.get_ylim()[1] > unbounded.compute().max()


def test_many_lines_can_be_told_apart() -> None:
    suite = updated({key: {**spec} for key, spec in list(definitions().items())[:20]}, k=[1, 2])
    _, ax = suite.plot()
    assert len({(line.get_color(), line.get_marker()) for line in ax.lines}) == 20


# Texts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (tt.NDCG(), "NDCG(k=10, gain='linear', ideal='relevant')"),
        (tt.MRR(k=None), "MRR(k=None)"),
        (tt.MAP(k=np.array([1, 5]), ties="reverse"), "MAP(k=[1, 5], denominator='capped', ties='reverse')"),
        (tt.FBeta(k=(3,), beta=2), "FBeta(k=[3], beta=2.0, average='macro')"),
        (tt.DCG(k=1, gain={2: 1}, min_relevance=2), "DCG(k=1, gain={2.0: 1.0}, min_relevance=2)"),
    ],
)
def test_repr_makes_the_same_metric(metric: tt.TopKMetric, text: str) -> None:
    assert repr(metric) == text
    again = eval(text, vars(tt))  # noqa: S307 - that is the point
    assert repr(again) == text
    assert list(again.metric_state) == list(metric.metric_state)


def test_every_definition_has_a_repr_and_a_state_of_its_own() -> None:
    """TorchMetrics merges metrics whose states look alike, and a repr makes the same metric again.

    Numbers of items are shown by a name, for which they are handed in.
    """
    variants = [
        (spec, k, ties) for spec in definitions().values() for k in ((1,), (2,)) for ties in ("index", "reverse")
    ]
    metrics = [metric_of(spec, k, ties=ties) for spec, k, ties in variants]
    states = [list(metric.metric_state) for metric in metrics]
    assert len({repr(metric) for metric in metrics}) == len({name for (name,) in states}) == len(metrics)
    for metric, state in zip(metrics, states, strict=True):
        shown, numbers = repr(metric), {name: metric.options[name] for name in REQUIRED if name in metric.options}
        for name, value in numbers.items():
            shown = shown.replace(repr(value), name)
        assert list(eval(shown, {**vars(tt), **numbers}).metric_state) == state  # noqa: S307
