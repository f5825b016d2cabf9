"""Worked examples, and inputs on which such software has been wrong before, each with its right value."""

import copy
import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers import RANKING, make
from sklearn import metrics as sk
from torch import Tensor, nn
from torchmetrics import MetricCollection

import torch_topk as tt

GAINS = torch.tensor([[3, 2, 3, 0, 1, 2, 3, 2]])  # of six retrieved and two that were not
SIX = torch.arange(6)[None]
NAMES = sorted(RANKING)
MAKERS = {**{name: partial(make, name) for name in NAMES}, "suite": partial(tt.TopKMetrics, ["ndcg", "f1"])}


def near(expected: Any) -> Any:
    """Equal to the digits a printed value has."""
    return pytest.approx(expected, abs=6e-5)


def scored(metric: Any, scores: Any, target: Any, **given: Any) -> Any:
    """The metric after one batch of scores."""
    metric.update(torch.as_tensor(scores), torch.as_tensor(target), **given)
    return metric.compute().tolist()


def listed(metric: Any, ranked: Any, target: Any, **given: Any) -> Any:
    """The metric after one batch of ranked ids, with a Relevance, labels or a matrix of gains."""
    if not isinstance(target, tt.Relevance):
        target = torch.as_tensor(target)
        target = tt.Relevance.from_dense(target) if target.ndim == 2 else target
    metric.update(tt.Ranking.from_ids(torch.as_tensor(ranked), target, **given))
    return metric.compute().tolist()


def truth(ids: Any, gains: Any = None) -> tt.Relevance:
    return tt.Relevance.from_ids(torch.as_tensor(ids), None if gains is None else torch.as_tensor(gains))


# Worked examples --------------------------------------------------------------------------------------


def test_right_answer_at_ranks_1_10_and_100() -> None:
    scores = -torch.arange(100.0).repeat(3, 1)
    labels = torch.tensor([0, 9, 99])
    assert scored(tt.MRR(k=None), scores, labels) == pytest.approx(1.11 / 3)
    assert scored(tt.HitRate(k=(1, 3, 10)), scores, labels) == pytest.approx([1 / 3, 1 / 3, 2 / 3])


def test_graded_list_that_misses_one_item() -> None:
    relevance = truth([[0, 1, 3, 4, 9]], [[1, 2, 2, 1, 2]])
    ranked = torch.arange(5)[None]
    dcg = 1 + 2 / math.log2(3) + 2 / math.log2(5) + 1 / math.log2(6)
    assert listed(tt.DCG(k=5), ranked, relevance) == pytest.approx(dcg)
    assert dcg == near(3.5101)
    assert listed(tt.NDCG(k=5), ranked, relevance) == near(0.6910)


def test_ids_of_documents() -> None:
    ranked = [[101, 450, 305, 120, 203, 999, 555]]
    graded = truth([[101, 203, 305, 408]], [[2, 1, 2, 1]])
    assert listed(tt.NDCG(k=5), ranked, graded) == near(0.8078)
    binary = truth([[101, 203, 305]])
    found = [listed(metric(k=5), ranked, binary) for metric in (tt.Precision, tt.Recall, tt.F1)]
    assert found == pytest.approx([0.6, 1.0, 0.75])


@pytest.mark.parametrize(
    ("relevant", "expected"),
    [
        ([1, 3, *range(10, 18)], (0.4, 0.2, 2 * 0.4 * 0.2 / 0.6)),
        ([0, 3], (0.4, 1.0, 0.8 / 1.4)),
    ],
)
def test_two_right_of_five(relevant: list[int], expected: tuple[float, ...]) -> None:
    ranked = torch.arange(5)[None]
    found = [listed(metric(k=5), ranked, truth([relevant])) for metric in (tt.Precision, tt.Recall, tt.F1)]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("denominator", "expected"), [("relevant", 0.4), ("capped", 2 / 3), ("hits", 1.0), ("k", 2 / 3)]
)
def test_average_precision_under_its_four_denominators(denominator: Any, expected: float) -> None:
    assert listed(tt.MAP(k=3, denominator=denominator), SIX, [[1, 1, 0, 1, 1, 1]]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("gain", "ideal", "at_5", "at_10"),
    [
        ("linear", "relevant", 0.7659, 0.7562),
        ("exp", "relevant", 0.7358, 0.7377),
        ("binary", "relevant", 0.8539, 0.7900),
        ("linear", "candidates", 0.8610, 0.9608),
        ("exp", "candidates", 0.8756, 0.9488),
    ],
)
def test_ndcg_under_each_convention(gain: Any, ideal: Any, at_5: float, at_10: float) -> None:
    assert listed(tt.NDCG(k=(5, 10), gain=gain, ideal=ideal), SIX, GAINS) == near([at_5, at_10])


# Order alone counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_negative_scores(shift: float) -> None:
    """Items with a score of 0 or less were dropped: every value 0."""
    scores, target = torch.tensor([[-1.0, -2.0, -3.0]]) + shift, torch.tensor([[1, 0, 1]])
    found = [scored(metric(k=3), scores, target) for metric in (tt.Precision, tt.Recall, tt.MRR, tt.MAP)]
    assert found == pytest.approx([2 / 3, 1, 1, 5 / 6])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shift", [-10.0, 10.0])
def test_adding_a_constant_to_every_score(name: str, shift: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-5, 5, (20, 8), generator=generator).float()
    target = torch.randint(0, 3, (20, 8), generator=generator)
    ks = (1, 3, 8)
    assert scored(make(name, ks), scores + shift, target) == scored(make(name, ks), scores, target)


@pytest.mark.parametrize(("ties", "expected"), [("index", 1 / 3), ("reverse", 1 / 2)])
def test_constant_scores(ties: Any, expected: float) -> None:
    """A constant model had an MRR of 1, or one that differed from run to run."""
    assert scored(tt.MRR(k=None, ties=ties), torch.zeros(1, 4), [[0, 0, 1, 0]]) == pytest.approx(expected)


# The ideal list holds all that is relevant ------------------------------------------------------------


def test_ideal_is_not_of_the_retrieved_within_scores() -> None:
    """An ideal of the first k alone gave 1."""
    scores, target = [[0.1, 0.2, 0.3, 4.0, 70.0]], [[10, 0, 0, 1, 5]]
    assert scored(tt.NDCG(k=(3, 5)), scores, target) == near([0.4124, 0.6957])


def test_ideal_is_not_of_the_retrieved_within_lists() -> None:
    """An ideal of the list itself gave more: two items of the truth were not retrieved."""
    assert listed(tt.NDCG(k=6), SIX, GAINS) == pytest.approx(0.785, abs=5e-4)


@pytest.mark.parametrize("k", [10, 5])
def test_ideal_is_not_cut_at_the_number_returned(k: int) -> None:
    """One of five relevant items returned, at rank 1, gave 1."""
    relevance = truth([[0, 1, 2, 3, 4]], [[3, 3, 3, 3, 3]])
    assert listed(tt.NDCG(k=k), [[0]], relevance) == pytest.approx(0.339, abs=5e-4)


def test_gains_below_one() -> None:
    """Gains below 1 were cut to 0 as integers: a perfect list scored 0."""
    metric = tt.NDCG(k=3, gain={1: 0.2, 2: 0.5})
    assert scored(metric, [[0.9, 0.5, 0.1], [1, 2, 3]], [[2, 1, 0], [0, 1, 2]]) == pytest.approx(1.0)
    table = tt.DCG(k=3, gain={1: 0.2, 2: 0.5})
    assert scored(table, [[0.9, 0.5, 0.1]], [[2, 1, 0]]) == pytest.approx(0.5 + 0.2 / math.log2(3))


def test_grade_without_a_gain() -> None:
    metric = tt.NDCG(k=3, gain={1: 0.2, 2: 0.5})
    metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[4, 1, 0]]))
    with pytest.raises(tt.InputError, match=r"\b1 quer"):
        metric.compute()


# Queries stay apart -----------------------------------------------------------------------------------


def test_two_queries_of_one_call() -> None:
    """Two queries flattened into one gave .9197."""
    scores, target = torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]), torch.tensor([[0, 1, 0], [1, 0, 0]])
    assert tt.functional.ndcg(scores, target, k=3).tolist() == near([0.6309, 1.0])
    assert scored(tt.NDCG(k=3), scores, target) == near(0.8155)


def test_user_without_a_hit_counts() -> None:
    """Values 1 and 0: users without a hit were dropped, which gave 1."""
    metric = tt.Precision(k=2, denominator="relevant")
    assert listed(metric, [[0, 1], [2, 3]], truth([[0, 1], [0, 1]])) == 0.5


def test_query_that_retrieved_nothing() -> None:
    metric = tt.Precision(k=3, denominator="retrieved")
    assert listed(metric, [[0], [1], [2], [-1]], torch.arange(4)) == 0.75


# Repeats and padding ----------------------------------------------------------------------------------


def test_item_retrieved_twice() -> None:
    """An item counted at each of its ranks gave a recall and an AP of 2."""
    first = dict(zip(("map", "recall", "ndcg"), ([1.0] * 3), strict=True))
    for name, expected in first.items():
        metric = tt.registry[name](k=2)
        with pytest.raises(tt.InputError, match=r"(?s)1.*duplicate|duplicate.*1"):
            listed(metric, [[1, 1]], truth([[1]]))
        assert listed(tt.registry[name](k=2), [[1, 1]], truth([[1]]), duplicates="first") == expected


def test_item_of_the_truth_listed_twice() -> None:
    """A repeated row of the truth was counted again."""
    ranked, twice = [[5, 6, 7]], truth([[5, 5, -1]])
    pairs = tt.Relevance.from_coo(torch.tensor([0, 0]), torch.tensor([5, 5]), num_queries=1)
    for relevance in (twice, pairs):
        found = [listed(metric(k=3), ranked, relevance) for metric in (tt.Precision, tt.Recall, tt.NDCG)]
        assert found == pytest.approx([1 / 3, 1.0, 1.0])


@pytest.mark.parametrize("labels", [torch.tensor([3, 0]), torch.tensor([[0, 0, 0, 1], [1, 0, 0, 0]])])
def test_padding_is_not_the_last_item(labels: Tensor) -> None:
    """A padding of -1 wrapped around to the last item: .5."""
    assert listed(tt.HitRate(k=2), [[0, 1], [2, -1]], labels) == 0.0


@pytest.mark.parametrize("k", [1, 3, None])
def test_padding_never_matches_padding(k: int | None) -> None:
    """Padding on both sides gave a recall of 1."""
    relevance = truth([[4, -1, -1], [-1, -1, -1]])
    assert listed(tt.Recall(k=k), [[0, -1, -1], [-1, -1, 2]], relevance) == 0.0


# Faults of the input ----------------------------------------------------------------------------------


def test_target_scored_nan() -> None:
    """NaN compares false with everything: rank 1 or 0, and an MRR of 1, 2 or infinity."""
    scores, label = torch.tensor([[0.1, math.nan, 0.3, 0.4, 0.5]]), torch.tensor([1])
    metric = tt.MRR(k=None)
    metric.update(scores, label)
    with pytest.raises(tt.InputError, match=r"1\b.*NaN|NaN.*\b1"):
        metric.compute()
    with pytest.raises(tt.InputError, match="NaN"):
        tt.functional.mrr(scores, label, k=None)
    with pytest.raises(tt.InputError, match="NaN"):
        tt.MRR(k=None, validate="now").update(scores, label)
    assert scored(tt.MRR(k=None, non_finite="last"), scores, label) == pytest.approx(1 / 5)


def test_nan_count_is_of_queries() -> None:
    scores = torch.zeros(7, 4)
    scores[[0, 2, 5], 1:3] = math.nan
    metric = tt.NDCG(k=2)
    metric.update(scores, torch.zeros(7, dtype=torch.long))
    with pytest.raises(tt.InputError, match=r"\b3\b"):
        metric.compute()


@pytest.mark.parametrize("k", [0, -1, 2.5, True, [], [3, 0], "5"], ids=repr)
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_k_that_is_no_depth(maker: Any, k: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"\bk\b"):
        maker(k=k)


# State ------------------------------------------------------------------------------------------------


def test_collection_of_metrics_that_start_alike() -> None:
    """Without a hit in the first batch two metrics looked the same, and were merged."""
    collection = MetricCollection({"at_5": tt.Recall(k=5), "at_50": tt.Recall(k=50)}, compute_groups=True)
    scores = -torch.arange(100.0).repeat(2, 1)
    collection.update(scores, torch.tensor([99, 98]))
    collection.update(scores, torch.tensor([20, 2]))
    found = {name: value.item() for name, value in collection.compute().items()}
    assert found == {"at_5": 0.25, "at_50": 0.5}


def test_merging_unequal_shares() -> None:
    """A mean of the shares' means is wrong; a share without data changes nothing."""
    generator = torch.Generator().manual_seed(1)
    scores, labels = torch.rand(10, 6, generator=generator), torch.arange(10) % 6
    whole = scored(tt.MRR(k=None), scores, labels)
    shares = [tt.MRR(k=None) for _ in range(3)]
    shares[0].update(scores[:7], labels[:7])
    shares[2].update(scores[7:], labels[7:])
    for share in shares[1:]:
        shares[0].merge_state(share)
    assert shares[0].compute().item() == pytest.approx(whole, rel=1e-14)
    empty_first = tt.MRR(k=None)
    empty_first.merge_state(shares[0])
    assert empty_first.compute().item() == pytest.approx(whole, rel=1e-14)


def test_reset_within_inference_mode() -> None:
    """A state made under inference_mode refused updates outside it."""
    for metric in (tt.HitRate(k=1), tt.TopKMetrics(["hit_rate"], k=1)):
        with torch.inference_mode():
            metric.update(torch.eye(2), torch.tensor([1, 0]))
            metric.reset()
        metric.update(torch.eye(2), torch.tensor([0, 0]))
        found = metric.compute()
        assert (found["hit_rate@1"] if isinstance(found, dict) else found).item() == 0.5


@pytest.mark.parametrize("way", ["merge_state", "load_state_dict", "update"])
def test_compute_twice(way: str) -> None:
    """The value of the first compute was given again."""
    metric, other = tt.HitRate(k=1), tt.HitRate(k=1)
    metric.persistent(mode=True)
    other.persistent(mode=True)
    assert scored(metric, torch.eye(2), [1, 0]) == 0.0
    assert scored(other, torch.eye(2), [0, 1]) == 1.0
    if way == "merge_state":
        metric.merge_state(other)
        assert metric.compute().item() == 0.5
    elif way == "load_state_dict":
        metric.load_state_dict(copy.deepcopy(other.state_dict()))
        assert metric.compute().item() == 1.0
    else:
        metric.update(torch.eye(2), torch.tensor([0, 1]))
        assert metric.compute().item() == 0.5


def test_load_state_dict_without_an_update() -> None:
    saved, metric = nn.ModuleDict({"m": tt.HitRate(k=1)}), nn.ModuleDict({"m": tt.HitRate(k=1)})
    for module in (saved, metric):
        module["m"].persistent(mode=True)
    scored(saved["m"], torch.eye(2), [0, 0])
    metric.load_state_dict(saved.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metric["m"].compute().item() == 0.5


def test_more_queries_than_float32_counts() -> None:
    """A float32 counter stops at 2^24."""
    metric = tt.HitRate(k=1)
    metric.update(torch.eye(2), torch.tensor([0, 1]))
    for _ in range(23):
        metric.merge_state(copy.deepcopy(metric))
    for _ in range(2):
        metric.update(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    metric.update(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    hits = 2**24 + 2
    assert metric.compute().item() == hits / (hits + 1)
    assert hits / (hits + 1) != 1


@pytest.mark.parametrize("name", NAMES)
def test_batch_without_queries(name: str) -> None:
    scores, target = torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([[0, 2, 1]])
    metric = make(name, 2)
    metric.update(scores, target)
    metric.update(torch.empty(0, 3), torch.empty(0, 3))
    metric.update(tt.Ranking.from_ids(torch.empty(0, 2, dtype=torch.long), torch.empty(0, 3)))
    assert metric.compute().item() == scored(make(name, 2), scores, target)


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_epoch_without_a_batch(maker: Any) -> None:
    metric = maker()
    with pytest.warns(UserWarning, match="before"):
        found = metric.compute()
    for value in found.values() if isinstance(found, dict) else [found]:
        assert value.isnan().all()


# Types ------------------------------------------------------------------------------------------------

SCORES = [[4, 1, 3, 2], [1, 2, 4, 3]]
TARGET = [[0, 0, 1, 1], [1, 0, 1, 0]]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
    ],
    ids=str,
)
def test_types_of_scores_and_targets(dtype: torch.dtype) -> None:
    scores = torch.tensor(SCORES, dtype=dtype)
    for target in (torch.tensor(TARGET, dtype=dtype), torch.tensor(TARGET, dtype=torch.bool)):
        assert scored(tt.Precision(k=2), scores, target) == 0.5
        assert scored(tt.MAP(k=None), scores, target) == pytest.approx(
            ((1 / 2 + 2 / 3) / 2 + (1 + 2 / 4) / 2) / 2, rel=1e-14
        )
    if not dtype.is_floating_point and dtype is not torch.uint8:
        assert scored(tt.MRR(k=None), scores, torch.tensor([2, 3], dtype=dtype)) == 0.5


def test_bool_scores() -> None:
    scores = torch.tensor([[False, True, False]])
    assert scored(tt.MRR(k=None), scores, torch.tensor([[0, 0, 1]])) == pytest.approx(1 / 3)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64], ids=str)
def test_types_of_ids(dtype: torch.dtype) -> None:
    ranked, ids = torch.tensor([[4, 1, -1]], dtype=dtype), torch.tensor([[1, 9]], dtype=dtype)
    gains = torch.tensor([[1, 2]], dtype=dtype)
    assert listed(tt.Recall(k=3), ranked, tt.Relevance.from_ids(ids, gains)) == 0.5
    excluded = torch.tensor([[4, -1]], dtype=dtype)
    assert listed(tt.MRR(k=1), ranked, tt.Relevance.from_ids(ids, gains), exclude=excluded) == 1.0


def test_numpy_arrays() -> None:
    metric = tt.Precision(k=2)
    metric.update(np.array(SCORES, dtype=np.float16), np.array(TARGET, dtype=np.int8))
    assert metric.compute().item() == 0.5


# Scikit-learn, where conventions meet -----------------------------------------------------------------


@pytest.fixture(scope="module")
def unequal() -> tuple[np.ndarray, np.ndarray]:
    """Scores without ties, and graded truth with something relevant in every row."""
    rng = np.random.default_rng(2)
    scores = rng.permuted(np.tile(np.linspace(-1, 1, 15), (40, 1)), axis=1)
    graded = rng.integers(0, 4, scores.shape) * (rng.random(scores.shape) < 0.4)
    graded[np.arange(40), rng.integers(0, 15, 40)] = 1
    return scores, graded


@pytest.mark.parametrize("k", [1, 5, 15, 40, None])
def test_scikit_learn_ndcg_and_dcg(unequal: tuple[np.ndarray, np.ndarray], k: int | None) -> None:
    scores, graded = unequal
    for ideal in ("relevant", "candidates"):
        assert scored(tt.NDCG(k=k, ideal=ideal), scores, graded) == pytest.approx(
            sk.ndcg_score(graded, scores, k=k), rel=1e-12
        )
    assert scored(tt.DCG(k=k), scores, graded) == pytest.approx(sk.dcg_score(graded, scores, k=k), rel=1e-12)
    assert scored(tt.NDCG(k=k, gain="exp"), scores, graded) == pytest.approx(
        sk.ndcg_score(2.0**graded - 1, scores, k=k), rel=1e-12
    )


def test_scikit_learn_average_precision(unequal: tuple[np.ndarray, np.ndarray]) -> None:
    scores, graded = unequal
    relevant = (graded > 0).astype(int)
    expected = [sk.average_precision_score(y, s) for y, s in zip(relevant, scores, strict=True)]
    found = tt.functional.map(torch.from_numpy(scores), torch.from_numpy(graded), k=None)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    assert scored(tt.MAP(k=None, denominator="relevant"), scores, graded) == pytest.approx(
        sk.label_ranking_average_precision_score(relevant, scores), rel=1e-12
    )


@pytest.mark.parametrize("k", [1, 3])
def test_scikit_learn_top_k_accuracy(unequal: tuple[np.ndarray, np.ndarray], k: int) -> None:
    scores, _ = unequal
    labels = np.arange(40) % 15
    assert scored(tt.HitRate(k=k), scores, labels) == pytest.approx(sk.top_k_accuracy_score(labels, scores, k=k))
