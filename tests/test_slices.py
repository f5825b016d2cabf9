"""Groups of queries in one state, and the values that are kept of each query."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import torch_topk as tt

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.rand(60, 12, generator=GENERATOR)
GAINS = (torch.rand(60, 12, generator=GENERATOR) < 0.2) * torch.randint(1, 4, (60, 12), generator=GENERATOR)
WEIGHTS = torch.rand(60, generator=GENERATOR, dtype=torch.float64)
WEIGHTS[::11] = 0
SEGMENT = torch.randint(-1, 3, (60,), generator=GENERATOR)
LANGUAGE = torch.randint(0, 2, (60,), generator=GENERATOR)
NAMES = np.array(["new", "loyal", "gone"])
METRICS = ["ndcg", "recall(average=micro)", "mrr@10", tt.HitRate(k=2, empty="skip")]


def make(**options: Any) -> tt.TopKMetrics:
    given = {"slices": {"segment": NAMES, "language": 2}, "prefix": "val/", **options}
    return tt.TopKMetrics(METRICS, k=[1, 5], **given)


def feed(suite: tt.TopKMetrics, rows: Any = slice(None), **more: Any) -> dict[str, Tensor]:
    groups = {"segment": SEGMENT[rows], "language": LANGUAGE[rows]}
    found: dict[str, Tensor] = suite(SCORES[rows], GAINS[rows], weights=WEIGHTS[rows], groups=groups, **more)
    return found


def assert_same(found: Any, expected: Any) -> None:
    numbers = [[float(number) for number in each] for each in (found, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-12, abs=1e-15, nan_ok=True)


# Slices -----------------------------------------------------------------------------------------------


def test_each_group_is_as_if_it_were_alone() -> None:
    suite, plain = make(), make(slices=None)
    for start in (0, 7, 31):
        feed(suite, slice(start, {0: 7, 7: 31, 31: 60}[start]))
    found, ends = suite.compute(), suite.intervals()
    assert list(found) == list(suite.keys()) == list(ends)
    plain.update(SCORES, GAINS, weights=WEIGHTS)
    assert list(found)[: len(plain)] == list(plain.keys())
    assert_same([found[key] for key in plain], plain.compute().values())
    ways = [("segment", SEGMENT, [*NAMES]), ("language", LANGUAGE, ["0", "1"])]
    met = len(plain)
    for way, groups, names in ways:
        for number, name in enumerate(names):
            rows = groups == number
            plain.reset()
            plain.update(SCORES[rows], GAINS[rows], weights=WEIGHTS[rows])
            values, around = plain.compute(), plain.intervals()
            assert_same([found[f"{key}/{way}/{name}"] for key in plain], values.values())
            assert_same(
                [end for key in plain for end in ends[f"{key}/{way}/{name}"]],
                [end for pair in around.values() for end in pair],
            )
            met += len(plain)
    assert met == len(found)


def test_names_and_numbers_of_groups() -> None:
    by_number, by_name = (tt.TopKMetrics("ndcg@3", slices={"segment": NAMES.tolist()}) for _ in range(2))
    kept = SEGMENT >= 0
    by_number.update(SCORES, GAINS, groups={"segment": SEGMENT.numpy()})
    for rows in (kept.nonzero()[:, 0], (~kept).nonzero()[:, 0]):
        groups = NAMES[SEGMENT[rows]] if (SEGMENT[rows] >= 0).all() else SEGMENT[rows].tolist()
        by_name.update(SCORES[rows], GAINS[rows], groups={"segment": groups})
    by_name.update(SCORES[:0], GAINS[:0], groups={"segment": []})
    assert_same(by_name.compute().values(), by_number.compute().values())


@pytest.mark.parametrize("none", [None, -1])
def test_names_and_none_in_one_batch(none: Any) -> None:
    by_number, by_name = (tt.TopKMetrics("ndcg@3", slices={"segment": NAMES.tolist()}) for _ in range(2))
    by_number.update(SCORES, GAINS, groups={"segment": SEGMENT})
    by_name.update(SCORES, GAINS, groups={"segment": [none if n < 0 else NAMES[n].item() for n in SEGMENT.tolist()]})
    assert_same(by_name.compute().values(), by_number.compute().values())


def test_group_without_a_query_is_nan() -> None:
    suite = tt.TopKMetrics("ndcg@3", slices={"x": ["a", "b"]})
    suite.update(SCORES, GAINS, groups={"x": torch.zeros(60, dtype=torch.long)})
    found = suite.compute()
    assert found["ndcg@3"] == found["ndcg@3/x/a"]
    assert found["ndcg@3/x/b"].isnan()


def test_views_and_gaps() -> None:
    suite = make()
    feed(suite)
    values = suite.compute()
    assert {key: view.compute() for key, view in suite.items()}.keys() == values.keys()
    assert suite["val/ndcg@5/segment/new"].compute() == values["val/ndcg@5/segment/new"]
    gaps = suite.gaps()
    assert next(iter(gaps)) == "val/ndcg@1/segment"
    for key, (gap, best, worst) in gaps.items():
        groups = {each.rpartition("/")[2]: value for each, value in values.items() if each.startswith(f"{key}/")}
        assert groups[best] == max(groups.values())
        assert groups[worst] == min(groups.values())
        assert gap == groups[best] - groups[worst]
    ranks = tt.TopKMetrics(["mr"], slices={"x": 2})
    ranks.update(torch.tensor([[0.1, 0.9], [0.1, 0.9]]), torch.tensor([0, 1]), groups={"x": torch.tensor([0, 1])})
    assert ranks.gaps() == {"mr/x": (1, "1", "0")}  # a lower mean rank is better


def test_groups_of_a_batch_of_several_dimensions() -> None:
    flat, deep = (tt.TopKMetrics("mrr", slices={"x": 3}) for _ in range(2))
    groups = (SEGMENT + 3) % 3
    flat.update(SCORES, GAINS, groups={"x": groups})
    deep.update(SCORES.view(12, 5, 12), GAINS.view(12, 5, 12), groups={"x": groups.view(12, 5)})
    assert deep.compute() == flat.compute()


def test_dataset_size_leaves_out_the_repeats_of_every_tag() -> None:
    whole, cut = (make(collect=True, bootstrap=10, **options) for options in ({}, {"dataset_size": 50}))
    feed(whole, slice(50), query_ids=[f"q{i}" for i in range(50)])
    feed(cut, slice(45), query_ids=[f"q{i}" for i in range(45)])
    feed(cut, slice(45, 50), query_ids=[f"q{i}" for i in range(45, 50)])
    assert_same(cut.compute().values(), whole.compute().values())
    with pytest.raises(ValueError, match="dataset_size is 50"):
        feed(cut, slice(50, 60))
    ends = [[end for pair in suite.intervals().values() for end in pair] for suite in (cut, whole)]
    assert_same(*ends)


REFUSED = {
    "no groups": ({"segment": 3}, None, ValueError, r"has slices: update it with groups=\{'segment': ...\}"),
    "a way too many": ({"a": 3}, {"a": 0, "b": 0}, ValueError, "groups has 'b', but slices has not"),
    "a way too few": ({"a": 3, "b": 2}, {"a": 0}, ValueError, "groups lacks 'b'"),
    "a shape": ({"a": 3}, {"a": torch.zeros(2).long()}, ValueError, r"groups\['a'\] must be \(60,\)"),
    "numbers": ({"a": 3}, {"a": torch.zeros(60)}, TypeError, "must hold integer ids"),
    "a name": ({"a": ["x"]}, {"a": ["y"] * 60}, ValueError, r"groups\['a'\] has 'y', but slices has x"),
    "no mapping": ({"a": 3}, [0] * 60, TypeError, "groups must be a mapping, with 'a'"),
}


@pytest.mark.parametrize(("slices", "groups", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_groups_that_are_refused(slices: Any, groups: Any, error: type[Exception], text: str) -> None:
    suite = tt.TopKMetrics("ndcg@3", slices=slices)
    if isinstance(groups, dict):
        groups = {way: [0] * 60 if isinstance(each, int) else each for way, each in groups.items()}
    with pytest.raises(error, match=text):
        suite.update(SCORES, GAINS, groups=groups)
    assert suite.num_queries == 0


def test_slices_that_are_refused() -> None:
    for slices, error, text in (
        (["segment"], TypeError, "slices must be a mapping"),
        ({"a": "word"}, TypeError, r"slices\['a'\] must be the names of its groups"),
        ({"a": 0}, TypeError, r"slices\['a'\] must be the names"),
        ({"a": True}, TypeError, r"slices\['a'\] must be the names"),
        ({"a": ["x", "x"]}, ValueError, "names a group twice"),
        ({"a": [2023, 2024]}, TypeError, r"must name its groups by strings, since a number .* is a place among them"),
    ):
        with pytest.raises(error, match=text):
            tt.TopKMetrics("ndcg@3", slices=slices)
    with pytest.raises(ValueError, match="groups are read by a suite with slices="):
        tt.NDCG(3).update(SCORES, GAINS, groups={"a": SEGMENT})
    with pytest.raises(ValueError, match="groups are read by a suite with slices="):
        tt.TopKMetrics("ndcg@3").update(SCORES, GAINS, groups={"a": SEGMENT})


def test_regressions_and_the_best_cutoff() -> None:
    before, after = (tt.TopKMetrics(["recall", "f1", "mr"][:2], k=range(1, 13), slices={"x": 2}) for _ in range(2))
    groups = {"x": torch.arange(60) % 2}
    before.update(GAINS + 0.1 * SCORES, GAINS, groups=groups)
    after.update(SCORES, GAINS, groups=groups)
    old, new = before.compute(), after.compute()
    losses = {key: (old[key] - new[key]).item() for key in old if old[key] > new[key]}
    found = after.regressions(before, n=500)
    assert {each.key: each.loss for each in found} == losses
    assert [each.loss for each in found] == sorted(losses.values(), reverse=True)
    assert all(each.before - each.after == pytest.approx(each.loss) for each in found)
    assert after.regressions(before, n=1) == found[:1]
    assert before.regressions(before) == []
    k, value = before.best_k("f1")
    curve = [old[f"f1@{k}"] for k in range(1, 13)]
    assert (k, value) == (1 + curve.index(max(curve)), max(curve))
    with pytest.raises(KeyError, match=r"'f2' is no metric of this suite\. Did you mean 'f1'"):
        before.best_k("f2")
    with pytest.raises(ValueError, match="different keys"):
        before.regressions(tt.TopKMetrics(["recall"], k=2))


# Values of queries ------------------------------------------------------------------------------------


def test_values_are_those_of_the_twins() -> None:
    suite = make(collect=True, slices=None, prefix="")
    for rows in (slice(20), slice(20, 60)):
        suite.update(SCORES[rows], GAINS[rows], weights=WEIGHTS[rows])
    found = suite.collected()
    kept = WEIGHTS > 0
    assert found.names == ("ndcg@1", "ndcg@5", *(f"recall(average=micro)@{k}" for k in (1, 5)), "mrr@10", "hit_rate@2")
    assert found.ids.tolist() == kept.nonzero()[:, 0].tolist()  # positions
    twins = tt.functional
    for name, values in {
        "ndcg@5": twins.ndcg(SCORES, GAINS, 5),
        "mrr@10": twins.mrr(SCORES, GAINS, 10),
        "hit_rate@2": twins.hit_rate(SCORES, GAINS, 2, empty="skip"),
    }.items():
        assert_same(found[name], values[kept])
    suite.reset()
    with pytest.warns(UserWarning, match="was called before the ``update``"):
        assert len(suite.collected()) == 0


def test_values_of_named_queries() -> None:
    suite = tt.TopKMetrics(["gmr", "mr", "mrr", "median_rank"], collect=True, at="_at_", postfix="_test")
    names = [f"query {number}" for number in range(60)]
    suite.update(SCORES, GAINS.argmax(1), query_ids=names)
    found = suite.collected()
    assert found.ids.tolist() == names
    assert found.names == ("mr_test", "mrr_test")  # the others are no means of queries' values
    assert found.lower_is_better == ("mr_test",)
    assert_same(found["mr_test"], tt.functional.mr(SCORES, GAINS.argmax(1)))
    assert float(found["mr_test"].mean()) == pytest.approx(suite.compute()["mr_test"].item())
    frame = found.to_pandas()
    assert frame.loc["query 7", "mrr_test"] == found["mrr_test"][7]
    twin = pickle.loads(pickle.dumps(suite))
    assert twin.collected().ids.tolist() == names


def test_values_that_were_not_kept() -> None:
    suite, other = (tt.TopKMetrics("ndcg@3", collect=True) for _ in range(2))
    suite.update(SCORES[:20], GAINS[:20], query_ids=range(20))
    other.update(SCORES[20:], GAINS[20:], query_ids=range(20, 60))
    state = other.metric_state
    suite.merge_state(other)
    assert suite.collected().ids.tolist() == [*range(60)]
    other.merge_state(state)
    with pytest.raises(ValueError, match="Of 80 queries the values of 40 were kept"):
        other.collected()
    with pytest.raises(ValueError, match="make the suite with collect=True"):
        tt.TopKMetrics("ndcg@3").collected()


def test_compare_goes_by_the_metrics_of_the_suites() -> None:
    one, other = (tt.TopKMetrics({"rank": "mr"}, collect=True) for _ in range(2))
    labels = GAINS.argmax(1)
    one.update(SCORES, labels)
    other.update(SCORES + 3 * torch.nn.functional.one_hot(labels, 12), labels)
    (pair,) = tt.compare({"one": one, "other": other}).pairs
    assert pair.difference < 0
    assert pair.wins > pair.losses  # a lower rank is better, whatever it is called


def test_suites_of_one_kind_in_a_collection() -> None:
    both = MetricCollection({name: tt.TopKMetrics("ndcg@3", collect=True, prefix=f"{name}/") for name in "ab"})
    for start in (0, 20, 40):
        both.update(SCORES[start : start + 20], GAINS[start : start + 20])
    both.compute()
    assert len(both["a"].collected()) == len(both["b"].collected()) == 60


def test_batch_that_is_refused_leaves_no_values() -> None:
    suite = tt.TopKMetrics("ndcg@3", collect=True)
    suite.update(SCORES[:10], GAINS[:10])
    suite.sync(should_sync=False)
    suite._is_synced = True
    with pytest.raises(TorchMetricsUserError):
        suite.update(SCORES[10:], GAINS[10:])
    suite._is_synced = False
    assert len(suite.collected()) == 10


def test_only_metrics_of_the_run() -> None:
    suite = tt.TopKMetrics([tt.Coverage(k=3, num_items=12)], collect=True, bootstrap=5, slices={"x": 2})
    suite.update(SCORES, groups={"x": torch.zeros(60, dtype=torch.long)})
    assert suite.collected().values.shape == (60, 0)
    assert list(suite.compute()) == ["coverage@3"]


def test_ids_of_all_batches_or_of_none() -> None:
    suite = tt.TopKMetrics("ndcg@3", collect=True)
    suite.update(SCORES[:2], GAINS[:2], query_ids=["a", "b"])
    with pytest.raises(ValueError, match="query_ids were given with some batches and not with others"):
        suite.update(SCORES[2:], GAINS[2:])
    for strange in ([None, None], [1.5, 2.5], [("a",), ("b",)], [1, "a"]):
        with pytest.raises((TypeError, ValueError), match="query_ids must be"):
            tt.TopKMetrics("ndcg@3", collect=True).update(SCORES[:2], GAINS[:2], query_ids=strange)
    first, second = (tt.TopKMetrics("ndcg@3", collect=True) for _ in range(2))
    for each in (first, second):
        each.update(SCORES[:2], GAINS[:2])
    first.merge_state(second)
    with pytest.raises(ValueError, match="have queries at the same positions: give query_ids="):
        first.collected()


def test_ids_are_copied() -> None:
    suite, ids = tt.TopKMetrics("ndcg@3", collect=True), torch.tensor([0, 1])
    for rows in (slice(0, 2), slice(2, 4)):
        suite.update(SCORES[rows], GAINS[rows], query_ids=ids)
        ids += 2
    assert suite.collected().ids.tolist() == [0, 1, 2, 3]


def test_two_queries_of_one_name() -> None:
    suite = tt.TopKMetrics("ndcg@3", collect=True)
    suite.update(SCORES[:2], GAINS[:2], query_ids=["a", "a"])
    with pytest.raises(ValueError, match="'a'"):
        suite.collected()
