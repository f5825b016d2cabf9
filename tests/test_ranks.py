"""Counts of candidates and the metrics that read them, beside loops, PyKEEN's values and all orders."""

import itertools
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

import torch_topk as tt

KG = Path(__file__).parents[2] / "shared" / "data" / "kg"
needs_graphs = pytest.mark.skipif(not KG.is_dir(), reason="The knowledge graphs and PyKEEN's values are not at hand.")
TIES = ("realistic", "optimistic", "pessimistic", "expected")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8)


def counted(scores: list[float], target: int, excluded: set[int]) -> tuple[int, int, int]:
    """Greater, at least, candidates: by a loop. What is not a candidate scores minus infinity; the target is one."""
    pool = [i for i, score in enumerate(scores) if i == target or (score != -math.inf and i not in excluded)]
    return (
        sum(scores[i] > scores[target] for i in pool),
        sum(scores[i] >= scores[target] for i in pool),
        len(pool),
    )


def ranks_of(counts: tuple[int, int, int], ties: str) -> list[float]:
    """Every rank that the target may have under a rule; a metric's value is the mean over them."""
    greater, at_least, _ = counts
    return {
        "optimistic": [greater + 1],
        "pessimistic": [at_least],
        "realistic": [(greater + 1 + at_least) / 2],
        "expected": [*range(greater + 1, at_least + 1)],
    }[ties]


def mean(values: Any) -> float:
    listed = [*values]
    return sum(listed) / len(listed)


def by_loops(queries: list[tuple[int, int, int]], ties: str, k: int) -> dict[str, float]:
    """Every metric of ranks, from its definition."""
    sizes = [candidates for *_, candidates in queries]
    ranks = [ranks_of(query, ties) for query in queries]
    rank = [mean(each) for each in ranks]
    reciprocal = [mean(1 / r for r in each) for each in ranks]
    hits = [mean(float(r <= k) for r in each) for each in ranks]
    logs = [mean(math.log(r) for r in each) for each in ranks]
    by_chance = [mean(1 / i for i in range(1, size + 1)) for size in sizes]
    within = [min(k / size, 1) for size in sizes]
    spread = {
        "z_mr": [mean(((size + 1) / 2 - r) ** 2 for r in range(1, size + 1)) for size in sizes],
        "z_mrr": [
            mean((1 / r - chance) ** 2 for r in range(1, size + 1))
            for size, chance in zip(sizes, by_chance, strict=True)
        ],
        f"z_hits@{k}": [p * (1 - p) for p in within],
    }
    gains = {
        "z_mr": sum((size + 1) / 2 - r for size, r in zip(sizes, rank, strict=True)),
        "z_mrr": sum(r - chance for r, chance in zip(reciprocal, by_chance, strict=True)),
        f"z_hits@{k}": sum(hit - p for hit, p in zip(hits, within, strict=True)),
    }
    adjusted = {f"ahits@{k}": (mean(hits) - mean(within)) / (1 - mean(within))} if mean(within) < 1 else {}
    return {
        **adjusted,
        "mr": mean(rank),
        "mrr": mean(reciprocal),
        f"hits@{k}": mean(hits),
        "gmr": math.exp(mean(logs)),
        "amr": mean(rank) / mean((size + 1) / 2 for size in sizes),
        "amri": 1 - (mean(rank) - 1) / (mean((size + 1) / 2 for size in sizes) - 1),
        "amrr": (mean(reciprocal) - mean(by_chance)) / (1 - mean(by_chance)),
        **{name: gains[name] / math.sqrt(sum(spread[name])) for name in spread if sum(spread[name])},
    }


def batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, list[set[int]]]:
    """Scores full of ties, some of no candidate; targets; and what is left out of each query, the target at times."""
    generator = torch.Generator().manual_seed(3)
    scores = torch.randint(0, 5, (40, 13), generator=generator).to(dtype)
    if scores.is_floating_point():
        scores[torch.rand(40, 13, generator=generator) < 0.1] = -math.inf
    targets = torch.randint(0, 13, (40,), generator=generator)
    out = [set(torch.randint(0, 13, (n % 5,), generator=generator).tolist()) for n in range(40)]
    return scores, targets, out


def as_mask(out: list[set[int]]) -> Tensor:
    return torch.tensor([[item in row for item in range(13)] for row in out])


def as_ids(out: list[set[int]]) -> Tensor:
    return torch.tensor([[*row, *row, *[-1] * (8 - 2 * len(row))] for row in out])  # every one of them twice


FORMS = {
    "mask": as_mask,
    "ids": as_ids,
    "CSR": lambda out: scipy.sparse.csr_matrix(as_mask(out).numpy()),
    "rows of a data set": lambda out: tt.Relevance.from_sparse(
        scipy.sparse.csr_matrix(as_mask([*out[::-1], {1, 2}]).numpy())
    )[torch.arange(39, -1, -1)],
    "several": lambda out: [as_mask(out), as_ids(out), tt.Relevance.from_ids(as_ids(out))],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [None, *FORMS])
def test_counts(form: str | None, dtype: torch.dtype) -> None:
    scores, targets, out = batch(dtype)
    out = out if form else [set()] * len(out)
    counts = tt.RankCounts.from_scores(scores, targets, exclude=FORMS[form](out) if form else None)
    expected = [
        counted(row, target, left) for row, target, left in zip(scores.tolist(), targets.tolist(), out, strict=True)
    ]
    found = zip(counts.greater.tolist(), counts.at_least.tolist(), counts.candidates.tolist(), strict=True)
    assert [*found] == expected


def test_one_list_for_all_queries() -> None:
    scores, targets, _ = batch()
    counts = tt.RankCounts.from_scores(scores, targets, exclude=torch.tensor([2, 5, 5, -1]))
    expected = [counted(row, target, {2, 5}) for row, target in zip(scores.tolist(), targets.tolist(), strict=True)]
    assert [
        *zip(counts.greater.tolist(), counts.at_least.tolist(), counts.candidates.tolist(), strict=True)
    ] == expected


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("k", [1, 3, 20])
def test_metrics(ties: str, k: int) -> None:
    scores, targets, out = batch()
    queries = [
        counted(row, target, left) for row, target, left in zip(scores.tolist(), targets.tolist(), out, strict=True)
    ]
    expected = by_loops(queries, ties, k)
    suite = tt.TopKMetrics([*expected], ties=ties, validate="off")  # some targets are no candidates
    for rows in (slice(0, 7), slice(7, 40)):
        suite.update(scores[rows], targets[rows], exclude=as_mask(out)[rows])
    found = {name: value.item() for name, value in suite.compute().items()}
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_with_fewer_candidates_than_k_nothing_can_be_won() -> None:
    suite = tt.TopKMetrics(["ahits@5", "z_hits@5"])
    suite.update(torch.rand(3, 4), torch.tensor([0, 1, 2]))
    assert all(value.isnan() for value in suite.compute().values())


def test_expected_is_the_mean_over_all_orders() -> None:
    """Fault 12: constant scores of four items; the reciprocal rank is 25/48 on average."""
    orders = [*itertools.permutations(range(4))]
    assert mean(1 / (order.index(2) + 1) for order in orders) == pytest.approx(25 / 48)
    metric = tt.MRR(ties="expected")
    metric.update(torch.zeros(1, 4), torch.tensor([2]))
    assert metric.compute().item() == pytest.approx(25 / 48)


def test_a_constant_model_is_no_better_than_chance() -> None:
    """Fault 11: the realistic rank of 14,541 tied candidates is 7271, and 1 only if asked for."""
    scores, targets = torch.full((3, 14_541), 0.7), torch.tensor([0, 5, 14_540])
    suite = tt.TopKMetrics(["mr", "mrr", "amri"])
    suite.update(scores, targets)
    assert [value.item() for value in suite.compute().values()] == [7271, 2 / 14_542, 0]
    first = tt.MeanRank(ties="optimistic")
    first.update(scores, targets)
    assert first.compute() == 1


def test_small_inputs_that_went_wrong_elsewhere() -> None:
    scores = torch.tensor([[0.5, 0.9, 0.1]])
    twice = tt.RankCounts.from_scores(scores, torch.tensor([0]), exclude=torch.tensor([[1, 1]]))
    assert twice.rank().tolist() == [1]  # fault 20
    alone = tt.RankCounts.from_scores(torch.tensor([[0.9, 0.1, 0.2]]), torch.tensor([0]))
    assert alone.rank().tolist() == [1]  # fault 21
    broken = torch.tensor([[0.1, math.nan, 0.3, 0.2, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5]])
    metric = tt.MeanRank()
    metric.update(broken, torch.tensor([1, 1]))
    with pytest.raises(tt.InputError, match="1 query has a NaN score"):  # fault 10
        metric.compute()
    last = tt.RankCounts.from_scores(broken, torch.tensor([1, 1]), non_finite="last")
    assert last.rank().tolist() == [5, 4]


def test_chunks_add_up() -> None:
    scores, targets, _ = batch()
    whole = tt.RankCounts.from_scores(scores, targets)
    held = scores.gather(1, targets[:, None])[:, 0]
    parts = []
    for columns in (slice(0, 5), slice(5, 13)):
        greater, at_least = tt.rank_counts(scores[:, columns], held)
        candidates = (scores[:, columns] > -math.inf).sum(1)
        parts.append(tt.RankCounts.from_counts(greater=greater, at_least=at_least, candidates=candidates))
    total = parts[0] + parts[1]
    good = held > -math.inf
    assert total.rank()[good].tolist() == whole.rank()[good].tolist()
    assert total.candidates[good].tolist() == whole.candidates[good].tolist()
    with pytest.raises(ValueError, match="do not add up"):
        parts[0] + parts[1][:3]
    with pytest.raises(ValueError, match="Both counts hold the target"):
        whole + whole
    alone = tt.MeanRank()
    alone.update(parts[0])
    with pytest.raises(tt.InputError, match="contradict each other"):  # in most queries the target is in the other part
        alone.compute()


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"greater": [1], "candidates": [5]}, ValueError, "exactly one of equal"),
        ({"greater": [1], "candidates": [5], "equal": [0], "at_least": [2]}, ValueError, "exactly one of equal"),
        ({"greater": [1, 2], "candidates": [5], "equal": [0, 1]}, ValueError, "candidates must have the shape"),
        ({"greater": [1.0], "candidates": [5], "equal": [0]}, TypeError, "greater must hold integer"),
        ({"greater": [3], "candidates": [5], "at_least": [3]}, tt.InputError, "contradict each other"),
        ({"greater": [3], "candidates": [5], "at_least": [2]}, tt.InputError, "contradict each other"),
        ({"greater": [3], "candidates": [5], "equal": [2]}, tt.InputError, "contradict each other"),
    ],
)
def test_counts_that_cannot_be(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        tt.RankCounts.from_counts(**{name: torch.tensor(value) for name, value in given.items()}, validate="now")


def test_what_reads_what() -> None:
    counts = tt.RankCounts.from_scores(torch.rand(2, 5), torch.tensor([1, 2]))
    ranking = tt.Ranking.from_scores(torch.rand(2, 5), torch.tensor([1, 2]), 10)
    with pytest.raises(TypeError, match="this metric reads RankCounts, but got a Ranking"):
        tt.MeanRank().update(ranking)
    with pytest.raises(TypeError, match="reads a Ranking, but got a RankCounts"):
        tt.MRR().update(counts)
    with pytest.raises(ValueError, match="NDCG has no value with ties='realistic'"):
        tt.NDCG(ties="realistic")
    with pytest.raises(ValueError, match="MeanRank has no value with ties='index'"):
        tt.MeanRank(ties="index")
    with pytest.raises(ValueError, match="NDCG"):
        tt.TopKMetrics(["mr", "ndcg"])
    with pytest.raises(ValueError, match="one target a query"):
        tt.MeanRank().update(torch.rand(2, 5), torch.rand(2, 5) < 0.5)
    with pytest.raises(ValueError, match="ties must be one of 'index', 'reverse'"):
        tt.Ranking.from_scores(torch.rand(2, 5), torch.tensor([1, 2]), 10, ties="realistic")


def test_one_rule_for_a_whole_suite() -> None:
    """Where any metric reads counts, MRR and hits read them too, with the same ties."""
    scores, targets = torch.zeros(1, 5), torch.tensor([0])
    suite = tt.TopKMetrics(["mr", "mrr", "hits@2", tt.MRR(k=3)])
    suite.update(scores, targets)
    assert [value.item() for value in suite.compute().values()] == [3, 1 / 3, 0, 1 / 3]
    alone = tt.TopKMetrics(["mrr", "hits@2"])
    alone.update(scores, targets)
    assert [value.item() for value in alone.compute().values()] == [1, 1]


def test_state_adds_up_and_forward_gives_the_batch() -> None:
    scores, targets, _ = batch(torch.float64)
    scores = scores.clamp(min=-1)
    whole, halves = tt.GeometricMeanRank(), [tt.GeometricMeanRank() for _ in range(2)]
    whole.update(scores, targets)
    for half, rows in zip(halves, (slice(0, 11), slice(11, 40)), strict=True):
        one = tt.GeometricMeanRank()
        one.update(scores[rows], targets[rows])
        assert half(scores[rows], targets[rows]) == one.compute()
    halves[0].merge_state(halves[1])
    assert halves[0].compute().item() == pytest.approx(whole.compute().item(), rel=1e-12)
    low, high = whole.intervals()
    assert 1 <= low < whole.compute() < high
    twin = tt.functional.gmr(scores, targets)
    assert twin.log().mean().exp().item() == pytest.approx(whole.compute().item(), rel=1e-12)


def test_weights_and_ignored_labels() -> None:
    scores, targets, _ = batch(torch.int32)
    metric, expected = tt.MeanRank(ignore_index=-100), tt.MeanRank()
    kept = torch.arange(40) % 3 > 0
    metric.update(scores, torch.where(kept, targets, -100))
    expected.update(scores[kept], targets[kept])
    assert metric.compute() == expected.compute()
    weighed = tt.MeanRank()
    weighed.update(scores, targets, weights=kept.float())
    assert weighed.compute() == expected.compute()


# Beside PyKEEN ---------------------------------------------------------------------------------------------

OURS = {
    "arithmetic_mean_rank": "mr",
    "geometric_mean_rank": "gmr",
    "inverse_harmonic_mean_rank": "mrr",
    "hits_at_1": "hits@1",
    "hits_at_3": "hits@3",
    "hits_at_5": "hits@5",
    "hits_at_10": "hits@10",
    "adjusted_arithmetic_mean_rank": "amr",
    "adjusted_arithmetic_mean_rank_index": "amri",
    "adjusted_inverse_harmonic_mean_rank": "amrr",
    "adjusted_hits_at_k": "ahits@10",
    "z_arithmetic_mean_rank": "z_mr",
    "z_inverse_harmonic_mean_rank": "z_mrr",
    "z_hits_at_k": "z_hits@10",
}


@needs_graphs
@pytest.mark.parametrize("ties", TIES[:3])
def test_pykeens_values_of_the_same_ranks(ties: str) -> None:
    ranks = np.load(KG / "nations_ranks.npz")
    golden = json.loads((KG / "nations_golden_pykeen_1.11.1.json").read_text())[f"both.filt.{ties}"]
    counts = tt.RankCounts.from_counts(
        greater=ranks["filt_opt"] - 1, at_least=ranks["filt_pess"], candidates=ranks["filt_cand"]
    )
    suite = tt.TopKMetrics([OURS[name] for name in golden if name in OURS], ties=ties)
    suite.update(counts)
    found = suite.compute()
    assert {name: found[OURS[name]].item() for name in golden if name in OURS} == pytest.approx(
        {name: golden[name] for name in golden if name in OURS}, rel=1e-6
    )


# What a reviewer ran into -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [torch.full((2, 4), -math.inf), torch.full((2, 4), -128, dtype=torch.int8)])
def test_a_model_that_scores_nothing_is_a_fault(scores: Tensor) -> None:
    metric = tt.MRR(ties="realistic")
    metric.update(scores, torch.tensor([0, 3]))
    with pytest.raises(tt.InputError, match="2 queries have a target of the lowest score"):
        metric.compute()


def test_a_nan_target_that_is_not_looked_for_is_last() -> None:
    metric = tt.MeanRank(validate="off")
    metric.update(torch.tensor([[0.1, math.nan, 0.3]]), torch.tensor([1]))
    assert metric.compute() == 3


def test_one_candidate_is_neither_luck_nor_skill() -> None:
    suite = tt.TopKMetrics(["amri", "amrr", "ahits@1", "z_mr", "z_mrr", "z_hits@1", "ahits"])
    suite.update(torch.ones(3, 1), torch.zeros(3, dtype=torch.int64))
    assert all(value.isnan() for value in suite.compute().values())
    sure = tt.MRR(k=None, ties="expected")
    sure.update(torch.arange(1e6)[None], torch.tensor([3]))
    assert sure.compute() == 1 / (1_000_000 - 3)


def test_weights_have_no_standard_score() -> None:
    metric = tt.ZMeanRank()
    metric.update(torch.rand(2, 4), torch.tensor([0, 1]), weights=torch.tensor([1.0, 4.0]))
    with pytest.raises(tt.InputError, match="1 query has a weight other than 0 and 1"):
        metric.compute()


def test_filtering_afterwards_is_read_like_filtering_at_once() -> None:
    scores, targets, out = batch()
    raw = tt.RankCounts.from_scores(scores, targets)
    filtered = raw.without(as_ids(out))
    expected = tt.RankCounts.from_scores(scores, targets, exclude=as_ids(out))
    for found, wanted in ((filtered, expected), (pickle.loads(pickle.dumps(filtered)), expected)):
        assert found.rank().tolist() == wanted.rank().tolist()
        assert found.candidates.tolist() == wanted.candidates.tolist()
    with pytest.raises(ValueError, match="exclude"):
        raw.without(as_ids(out)[:3])
    with pytest.raises(ValueError, match="Masks are for"):
        raw.without(as_mask(out))
    with pytest.raises(ValueError, match="Only counts that hold their scores"):
        tt.RankCounts.join([raw]).without(as_ids(out))
    with pytest.raises(tt.InputError, match="excluded id"):
        raw.without(torch.full((40, 2), 99)).check()


def test_rules_of_ties_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="reads RankCounts, but a suite with ties='index'"):
        tt.TopKMetrics([tt.MeanRank()], ties="index")
    with pytest.raises(ValueError, match="ties must be one of 'index', 'reverse'"):
        tt.LabelPrecision(3, ties="expected")
