"""The tables that metrics share: what is kept between batches, and shortcuts that change no number."""

import math
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import torch_topk as tt
from torch_topk import exclusion, record, relevance

METRICS = ["precision", "recall", "f1", "hit_rate", "mrr", "map", "ndcg", "dcg"]


def scores_and_truth(queries: int = 20, items: int = 60, length: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(queries, items, generator=generator)
    return scores, torch.randint(-1, items, (queries, length), generator=generator)


@pytest.fixture(autouse=True)
def none_kept() -> None:
    record._kept.clear()


def values(k: Any = (1, 3, 10), **update: Any) -> dict[str, Tensor]:
    suite = tt.TopKMetrics(METRICS, k=k)
    suite.update(**update)
    return suite.compute()


def test_tables_without_data_are_made_once() -> None:
    scores, ids = scores_and_truth()
    first = values(preds=scores, target=tt.Relevance.from_ids(ids))
    kept = dict(record._kept)
    assert values(preds=scores, target=tt.Relevance.from_ids(ids)) == first
    assert kept
    assert all(record._kept[key] is table for key, table in kept.items())
    assert len(kept) == len(record._kept)


def test_what_is_kept_is_bounded() -> None:
    scores, ids = scores_and_truth(items=200)
    for k in range(1, 100):
        tt.functional.ndcg(scores, tt.Relevance.from_ids(ids), k=k)
    assert 0 < len(record._kept) <= record._MOST_KEPT
    long = torch.zeros(1, record.MANY + 1)
    tt.functional.map(long, long, k=None)
    assert max(table.numel() for table in record._kept.values()) <= record.MANY


def test_tables_made_in_inference_mode_serve_outside() -> None:
    scores, ids = scores_and_truth()
    with torch.inference_mode():
        inside = values(preds=scores, target=tt.Relevance.from_ids(ids))
    assert record._kept
    assert not any(table.is_inference() for table in record._kept.values())
    assert values(preds=scores, target=tt.Relevance.from_ids(ids)) == inside


def test_nothing_of_a_trace_is_kept() -> None:
    scores, ids = scores_and_truth()
    with FakeTensorMode() as mode:
        truth = tt.Relevance.from_ids(mode.from_tensor(ids))
        traced = tt.Ranking.from_scores(mode.from_tensor(scores), truth, 5)
        found = traced.sum_at(traced.hits() * traced.discounts(5), (1, 5))
        assert isinstance(found, FakeTensor)
    assert not record._kept


@pytest.mark.parametrize("length", [2, 8, 16, 17, 40])
@pytest.mark.parametrize("gains", [False, True])
def test_short_lists_are_compared_and_long_ones_searched(length: int, gains: bool) -> None:
    """Repeats, padding, and items that were left out of the truth."""
    _, ids = scores_and_truth(length=length)
    kept = torch.arange(60) % 3 > 0
    grades = ids % 4 if gains else None
    truth = tt.Relevance.from_ids(ids, grades).keep(kept)
    sought = torch.arange(-1, 61).repeat(len(ids), 1)
    listed = (ids[:, None] == sought[:, :, None]).any(2) & torch.cat([kept.new_zeros(1), kept, kept.new_zeros(1)])
    for part in (sought[:, :20], sought):
        assert torch.equal(truth.contains(part), listed[:, : part.shape[1]])
        expected = listed[:, : part.shape[1]] * (part % 4 if gains else 1)
        assert torch.equal(truth.gains_of(part).long(), expected)


def test_short_lists_take_little_memory() -> None:
    assert relevance._PAIRS <= 512  # 4 KiB a query


def test_weights_of_one_change_nothing() -> None:
    scores, ids = scores_and_truth()
    truth = tt.Relevance.from_ids(ids)
    suites = [tt.TopKMetrics(METRICS, k=[1, 5]) for _ in range(2)]
    suites[0].update(scores, truth)
    suites[1].update(scores, truth, weights=torch.ones(len(scores)))
    torch.testing.assert_close(suites[0]._sums, suites[1]._sums, rtol=1e-14, atol=0)
    for empty in ("skip", "one"):
        found, other = (tt.TopKMetrics(METRICS, k=[1, 5], empty=empty) for _ in range(2))
        found.update(scores, truth)
        other.update(scores, truth, weights=torch.ones(len(scores)))
        torch.testing.assert_close(found._sums, other._sums, rtol=1e-14, atol=0)


def test_the_ideal_of_equal_gains_is_that_of_grades() -> None:
    """In closed form where all relevant items are worth the same; of grades it is looked up."""
    scores, ids = scores_and_truth(length=30)
    for k in ([1, 3, 10, 50, 60], [100], None):
        for gain in ("linear", "exp", "binary"):
            found = tt.functional.ndcg(scores, tt.Relevance.from_ids(ids), k=k, gain=gain)
            graded = tt.Relevance.from_ids(ids, torch.ones_like(ids))
            expected = tt.functional.ndcg(scores, graded, k=k, gain={1: 1.0})
            torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("relevant", [1, 7, 30])
def test_a_perfect_list_has_an_ndcg_of_exactly_1(relevant: int) -> None:
    scores = -torch.arange(50.0).repeat(2, 1)
    truth = tt.Relevance.from_ids(torch.arange(relevant).repeat(2, 1))
    assert torch.equal(tt.functional.ndcg(scores, truth, k=[*range(1, 50)]), torch.ones(2, 49, dtype=torch.double))


def test_an_infinite_gain_does_not_spoil_smaller_cutoffs() -> None:
    scores, gains = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, math.inf, 2.0]])
    found = tt.functional.dcg(scores, gains, k=[1, 2, 3], validate="off")
    assert found.tolist() == [[1.0, 1.0, math.inf]]


def test_a_batch_under_vmap_leaves_nothing_behind() -> None:
    """Tables that are kept for the next batch are not made from this one, whose tensors are wrapped."""
    scores, gains = torch.rand(4, 1, 7), (torch.rand(4, 1, 7) < 0.5).float()
    for twin in (tt.functional.ndcg, tt.functional.precision, tt.functional.map, tt.functional.mrr):
        for k in ([2], [2, 6]):  # of the first few, and of most
            one = partial(twin, k=k, validate="off")
            mapped = torch.func.vmap(one)(scores, gains)
            assert mapped[:, 0].tolist() == one(scores[:, 0], gains[:, 0]).tolist()


def test_numpy_numbers_are_options_of_twins() -> None:
    scores, gains = torch.rand(5, 7), torch.randint(0, 4, (5, 7))
    for given, plain in ((np.float64(2), 2.0), (np.int64(2), 2)):
        found = tt.functional.recall(scores, gains, k=3, min_relevance=given)
        assert found.tolist() == tt.functional.recall(scores, gains, k=3, min_relevance=plain).tolist()


def left_out(scores: Tensor, labels: Tensor) -> dict[str, tuple[Any, Tensor]]:
    """Forms of what is left out, and the mask that each stands for; a label is a candidate all the same."""
    queries, items = scores.shape
    generator = torch.Generator().manual_seed(4)
    mask = torch.rand(scores.shape, generator=generator) < 0.3
    mask[torch.arange(0, queries, 2), labels[::2]] = True
    listed = torch.where(mask, torch.arange(items), -1)
    few = listed.sort(1, descending=True).values[:, :3]
    only_few = torch.zeros_like(mask).scatter_(1, few.clamp(min=0), value=True)
    return {
        "nothing": (None, torch.zeros_like(mask)),
        "mask": (mask, mask),
        "one mask": (mask[0], mask[:1].expand(queries, -1)),
        "ids": (few, only_few),
        "one list": (few[0], only_few[:1].expand(queries, -1)),
        "many ids": (tt.Relevance.from_ids(listed), mask),
        "sparse": (mask.float().to_sparse_csr(), mask),
        "both": ([few, mask[-1]], only_few | mask[-1]),
    }


@pytest.mark.parametrize("form", ["nothing", "mask", "one mask", "ids", "one list", "many ids", "sparse", "both"])
@pytest.mark.parametrize("queries", [1, 7])
def test_exclusions_a_band_of_rows_at_a_time(form: str, queries: int) -> None:
    scores = torch.randn(queries, 40, generator=torch.Generator().manual_seed(3))
    labels = torch.randint(40, (queries,), generator=torch.Generator().manual_seed(5))
    exclude, mask = left_out(scores, labels)[form]
    mask = mask & (torch.arange(40) != labels[:, None])
    expected = torch.where(mask, -math.inf, scores).sort(1, descending=True)
    for height in (1, 2, 40):
        with mock.patch.object(exclusion, "band", lambda _, height=height: height):
            ranking = tt.Ranking.from_scores(scores, labels, 5, exclude=exclude)
        assert torch.equal(ranking.ids, expected.indices[:, :5])
        # The pool is made when it is asked for, whole.
        assert ranking.num_unwanted()[:, 0].tolist() == ((~mask).sum(1) - 1).tolist()


def test_exclusions_of_no_queries() -> None:
    nobody = torch.zeros(0, 40)
    assert tt.Ranking.from_scores(nobody, nobody, 5, exclude=nobody.bool()).ids.shape == (0, 5)


@pytest.mark.parametrize("outside", [-100, 42])
def test_a_label_outside_of_the_items_makes_none_a_candidate(outside: int) -> None:
    """Not the first item nor the last, where places of labels are cut off."""
    scores, mask = torch.arange(80.0).view(2, 40), torch.zeros(2, 40, dtype=torch.bool)
    mask[:, [0, -1]] = True
    labels = torch.tensor([outside, 3])
    options = {"exclude": mask, "ignore_index": -100, "validate": "off"}
    whole = tt.Ranking.from_scores(scores, labels, None, **options).ids
    assert sorted(whole[0].tolist()) == [-1, -1, *range(1, 39)]
    assert tt.RankCounts.from_scores(scores, labels, **options).candidates.tolist()[1] == 38


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_nan_ranked_last_leaves_infinity_as_it_is(dtype: torch.dtype) -> None:
    scores = torch.tensor([[math.nan, -math.inf, math.inf, torch.finfo(dtype).max, 1.0]], dtype=dtype)
    ranking = tt.Ranking.from_scores(scores, torch.tensor([4]), 5, non_finite="last")
    assert ranking.ids.tolist() == [[2, 3, 4, 0, -1]]
    counts = tt.RankCounts.from_scores(scores, torch.tensor([3]), non_finite="last")
    assert (counts.greater.item(), counts.at_least.item(), counts.candidates.item()) == (1, 2, 4)


def test_each_part_of_a_batch_under_vmap() -> None:
    generator = torch.Generator().manual_seed(8)
    scores, labels = torch.randn(3, 4, 60, generator=generator), torch.randint(60, (3, 4), generator=generator)
    masks = torch.rand(3, 4, 60, generator=generator) < 0.3
    recall = partial(tt.functional.recall, k=5, validate="off")
    ways: list[tuple[Any, Any, Any]] = [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)]
    for dims in ways:
        given = [part if dim == 0 else part[0] for part, dim in zip((scores, labels, masks), dims, strict=True)]
        mapped = torch.func.vmap(lambda one, label, mask: recall(one, label, exclude=mask), in_dims=dims)(*given)
        for i in range(3):
            one, label, mask = (part[i] if dim == 0 else part for part, dim in zip(given, dims, strict=True))
            assert mapped[i].tolist() == recall(one, label, exclude=mask).tolist()
