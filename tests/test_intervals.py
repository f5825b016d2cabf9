"""Intervals: Student's, Wilson's, and the percentiles of Poisson resamples, beside SciPy, formulas and simulation."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from helpers import definitions, everything, metric_of
from torch import Tensor

import torch_topk as tt
from torch_topk.resampling import Resampler

SCORES = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.8, 0.3], [0.4, 0.6, 0.7]])
GAINS = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 1]])


def random_batch(queries: int, items: int = 10, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    relevant = torch.rand(queries, items, generator=generator) < 0.3
    return {
        "preds": torch.rand(queries, items, generator=generator),
        "target": relevant * torch.randint(1, 4, (queries, items), generator=generator),
    }


def rows(batch: dict[str, Tensor], which: slice | Tensor) -> dict[str, Tensor]:
    return {name: value[which] for name, value in batch.items()}


def floats(pair: Any) -> tuple[float, ...]:
    return tuple(end.item() for end in pair)


# Student and Wilson ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize("empty", ["zero", "skip"])
def test_interval_of_a_mean(level: float, empty: str) -> None:
    batch = random_batch(60)
    batch["target"][::7] = 0
    suite = everything((1, 3), empty=empty)
    for part in range(0, 60, 25):
        suite.update(**rows(batch, slice(part, part + 25)))
    found, plain = suite.intervals(level), suite.intervals(level, method="t")
    wilson = 0
    for key, spec in definitions(empty).items():
        if spec.get("average") == "micro":
            continue
        options = {option: value for option, value in spec.items() if option != "name"}
        each = getattr(tt.functional, spec["name"])(**batch, k=(1, 3), empty=empty, **options)
        least, most = metric_of(spec, (1, 3)).bounds
        for k, column in zip((1, 3), each.T, strict=True):
            values = column[~column.isnan()].numpy()
            low, high = scipy.stats.t.interval(
                level, len(values) - 1, values.mean(), max(scipy.stats.sem(values), 1e-300)
            )
            expected = max(least, low), min(most, high)
            assert floats(plain[f"{key}@{k}"]) == pytest.approx(expected, rel=1e-6, abs=1e-7), key
            if (least, most) == (0, 1) and set(values) <= {0, 1}:
                test = scipy.stats.binomtest(int(values.sum()), len(values))
                expected = tuple(test.proportion_ci(level, method="wilson"))
                wilson += 1
            assert floats(found[f"{key}@{k}"]) == pytest.approx(expected, rel=1e-6, abs=1e-7), key
    assert wilson > 2


def test_interval_of_pooled_counts_and_of_weights() -> None:
    """A ratio of sums: its error is that of what each query adds to it (the delta method)."""
    batch = random_batch(60)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    suite = tt.TopKMetrics({"recall": "recall(average=micro)", "hit_rate": "hit_rate"}, k=3)
    suite.update(**batch, weights=weights)
    top = batch["preds"].topk(3).indices
    hits = (batch["target"].gather(1, top) > 0).sum(1).double()
    relevant = (batch["target"] > 0).sum(1).double()
    for key, num, den in (
        ("recall@3", weights * hits, weights * relevant),
        ("hit_rate@3", weights * (hits > 0), weights),
    ):
        ratio = num.sum() / den.sum()
        n = den.sum() ** 2 / (den**2).sum()
        margin = (n / (n - 1) * ((num - ratio * den) ** 2).sum()).sqrt() / den.sum()
        margin = margin * scipy.stats.t.ppf(0.975, n - 1)
        assert floats(suite.intervals(method="t")[key]) == pytest.approx(floats((ratio - margin, ratio + margin)))


@pytest.mark.parametrize("bootstrap", [None, 400])
def test_intervals_cover_the_true_value_as_often_as_they_say(bootstrap: int | None) -> None:
    """Ranks are uniform, so the true values are known: k/N, and H(N)/N for MRR of one right item."""
    suite = tt.TopKMetrics(
        {"recall": "recall(average=micro)@3", "rare": "hit_rate@1", "mrr": "mrr"}, bootstrap=bootstrap
    )
    truth = {"recall@3": 0.3, "rare@1": 0.1, "mrr": sum(1 / rank for rank in range(1, 11)) / 10}
    generator = torch.Generator().manual_seed(0)
    covered = {(key, level): 0 for key in truth for level in (0.95, 0.5)}
    repetitions = 400
    for _ in range(repetitions):
        suite.reset()
        suite.update(torch.rand(150, 10, generator=generator), torch.zeros(150, dtype=torch.long))
        for level in (0.95, 0.5):
            for key, (low, high) in suite.intervals(level).items():
                covered[key, level] += bool(low <= truth[key] <= high)
    for (key, level), count in covered.items():
        # Four standard errors of a share of 400, and what 15 hits among 150 leave between the steps of a proportion.
        assert abs(count / repetitions - level) < 4 * math.sqrt(level * (1 - level) / repetitions) + 0.04, key


def test_intervals_keep_to_the_bounds() -> None:
    suite = tt.TopKMetrics(["hit_rate", "precision"], k=1)
    scores = torch.eye(10)
    suite.update(scores, torch.arange(10))
    assert floats(suite.intervals(method="t")["hit_rate@1"]) == (1.0, 1.0)
    # Ten of ten tell less than that: Wilson's lower end is n / (n + z^2).
    low, high = floats(suite.intervals()["hit_rate@1"])
    assert low == pytest.approx(10 / (10 + 1.959964**2), abs=1e-6)
    assert high == 1.0
    misses = tt.HitRate(k=1)
    misses.update(scores, torch.arange(10).roll(1))
    assert floats(misses.intervals())[0] == 0.0
    suite.update(scores, torch.arange(10).roll(1))
    for method in ("auto", "t"):
        low, high = floats(suite.intervals(0.9999999, method=method)["hit_rate@1"])
        assert (low, high) == pytest.approx((0.0, 1.0), abs=0.21)
        assert 0 <= low < high <= 1


def test_interval_of_one_query_or_none() -> None:
    suite = tt.TopKMetrics(["hit_rate", "ndcg"], k=1)
    resampled = tt.TopKMetrics(["hit_rate", "ndcg"], k=1, bootstrap=10)
    for each in (suite, resampled):
        each.update(SCORES[:1], GAINS[:1])
        assert all(end.isnan() for pair in each.intervals().values() for end in pair)
    metric = tt.HitRate(k=[1, 2], empty="skip")
    metric.update(SCORES, torch.zeros_like(GAINS))
    assert all(end.isnan().all() for end in metric.intervals())


def test_intervals_of_a_metric_have_its_shape() -> None:
    scalar, vector = tt.NDCG(k=2), tt.NDCG(k=[1, 2])
    for metric, shape in ((scalar, ()), (vector, (2,))):
        metric.update(SCORES, GAINS)
        low, high = metric.intervals()
        assert low.shape == high.shape == metric.compute().shape == shape
        assert (low <= metric.compute()).all()
        assert (metric.compute() <= high).all()


# The median -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [1, 2, 5, 6, 7, 100, 1001])
def test_median_of_ranks(queries: int) -> None:
    generator = torch.Generator().manual_seed(queries)
    greater = torch.randint(0, 1500, (queries,), generator=generator)
    equal = torch.randint(0, 3, (queries,), generator=generator)
    metric = tt.MedianRank()
    for part in range(0, queries, 300):
        some = slice(part, part + 300)
        counts = {"greater": greater[some], "equal": equal[some]}
        metric.update(tt.RankCounts.from_counts(**counts, candidates=torch.full_like(greater[some], 5000)))
    ranks = np.sort((greater + 1 + equal / 2).numpy())
    assert metric.compute().item() == np.median(ranks)
    low, high = floats(metric.intervals())
    if queries < 6:  # the median lies beyond all of five ranks in one of sixteen cases
        assert math.isnan(low)
        assert math.isnan(high)
        return
    reach = 1.959964 * math.sqrt(queries)
    first, last = math.floor((queries - reach) / 2), math.ceil((queries + reach) / 2) + 1
    assert (low, high) == (ranks[max(first, 1) - 1], ranks[min(last, queries) - 1])


@pytest.mark.parametrize("rank", [1, 2047, 2048, 2049, 4096, 4097, 12_345_678, 2**31 + 1])
def test_median_of_a_large_rank_is_within_its_bound(rank: int) -> None:
    above = torch.tensor([rank - 1])
    metric = tt.MedianRank()
    metric.update(tt.RankCounts.from_counts(greater=above, equal=torch.tensor([0]), candidates=above + 9))
    error = abs(metric.compute().item() - rank)
    assert error <= (0 if rank < 2048 else rank / 4096)


def test_median_refuses_what_it_has_no_value_for() -> None:
    with pytest.raises(ValueError, match="MedianRank has no value with ties='expected'"):
        tt.MedianRank(ties="expected")
    with pytest.raises(ValueError, match="MedianRank has no value with ties='expected'"):
        tt.TopKMetrics(["mr", "median_rank"], ties="expected")
    metric = tt.MedianRank()
    metric.update(torch.rand(0, 3), torch.zeros(0).long())
    assert metric.compute().isnan()


def test_median_in_a_suite_beside_means() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(50, 20, generator=generator), torch.randint(0, 20, (50,), generator=generator)
    suite = tt.TopKMetrics(["mrr", "median_rank", "gmr", "hits@3"], slices={"half": 2})
    values = suite(scores, target, groups={"half": torch.arange(50) % 2})
    assert values == suite.compute()
    ranks = tt.functional.mr(scores, target).numpy()
    assert values["median_rank"].item() == np.median(ranks)
    assert values["gmr/half/1"].item() == pytest.approx(scipy.stats.gmean(ranks[1::2]))
    assert "median_rank/half/0" not in values  # of the whole run alone
    assert list(suite.intervals()) == list(values)


# Resamples --------------------------------------------------------------------------------------------


def splitmix(state: int) -> int:
    """The generator of Steele, Lea and Flood, in Python's unbounded integers."""
    mask = (1 << 64) - 1
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def test_draws_are_those_of_the_hash() -> None:
    seed, stream, keys = 3, 5, [0, 1, -7, 2**62]
    resampler = Resampler(9, seed, stream)
    resampler.prepare(torch.device("cpu"))
    found = resampler.draws(torch.tensor(keys))
    mask = (1 << 64) - 1
    start = seed * 0x9E3779B97F4A7C15 + (stream + 1) * 0xD1342543DE82EF95
    for key, row in zip(keys, found.tolist(), strict=True):
        inner = splitmix((key + start) & mask)
        for place, draws in enumerate(row):
            block, part = divmod(place, 4)
            bits = (splitmix((inner + (block + 1) * 0x9E3779B97F4A7C15) & mask) >> (16 * part)) & 0xFFFF
            quantile = (((bits + (1 << 15)) & 0xFFFF) + 0.5) / (1 << 16)  # the signed number, counted from the lowest
            assert draws == scipy.stats.poisson.ppf(quantile, 1), (key, place)


def test_draws_are_poisson_and_independent() -> None:
    resampler = Resampler(1000, 0, 0)
    resampler.prepare(torch.device("cpu"))
    draws = resampler.draws(torch.arange(2000)).numpy()
    counts = np.bincount(draws.reshape(-1), minlength=9)[:6]
    expected = scipy.stats.poisson.pmf(np.arange(6), 1) * draws.size
    assert (abs(counts - expected) < 4.5 * np.sqrt(expected)).all()
    for table in (draws[:150], draws.T[:150]):
        correlation = np.corrcoef(table) - np.eye(150)
        assert abs(correlation).max() < 5.5 / math.sqrt(table.shape[1])
    other = Resampler(1000, 0, 1)
    other.prepare(torch.device("cpu"))
    assert abs(np.corrcoef(draws.reshape(-1), other.draws(torch.arange(2000)).numpy().reshape(-1))[0, 1]) < 0.005


def test_resampled_interval_is_that_of_a_loop() -> None:
    """Each resample is a mean with the draws as weights, and the interval lies between its quantiles."""
    batch = random_batch(40)
    batch["target"][::9] = 0
    suite = tt.TopKMetrics(
        {"ndcg": "ndcg@3", "recall": "recall(average=micro)@3", "skip": tt.HitRate(3, empty="skip")},
        bootstrap=50,
        seed=4,
    )
    suite.update(**batch)
    resampler = Resampler(50, 4, 0)
    resampler.prepare(torch.device("cpu"))
    draws = resampler.draws(torch.arange(40)).double()
    hits = (batch["target"].gather(1, batch["preds"].topk(3).indices) > 0).sum(1).double()
    relevant = (batch["target"] > 0).sum(1).double()
    ndcg = tt.functional.ndcg(**batch, k=3)
    listed = (relevant > 0).double()
    for key, num, den in (
        ("ndcg@3", ndcg, torch.ones(40).double()),
        ("recall@3", hits, relevant),
        ("skip@3", (hits > 0).double(), listed),
    ):
        means = [(w * num).sum().item() / (w * den).sum().item() for w in draws.T]
        expected = np.quantile(means, [0.05, 0.95])
        assert floats(suite.intervals(0.9)[key]) == pytest.approx(tuple(expected), rel=1e-12)
    assert suite.intervals(0.9) == suite.intervals(0.9, method="bootstrap") != suite.intervals(0.9, method="t")


@pytest.mark.parametrize("named", [False, True])
def test_resamples_do_not_hang_on_batches(named: bool) -> None:
    batch = random_batch(101)
    ids = [f"q{number}" for number in range(101)] if named else None
    whole, split = (tt.TopKMetrics(["ndcg", "mrr"], k=[1, 3], bootstrap=30) for _ in range(2))
    whole.update(**batch, query_ids=ids)
    for start, stop in ((0, 1), (1, 60), (60, 60), (60, 101)):
        some = slice(start, stop)
        split.update(**rows(batch, some), query_ids=None if ids is None else ids[some])
    for key, pair in whole.intervals().items():
        assert floats(split.intervals()[key]) == pytest.approx(floats(pair), rel=1e-12)
    if named:  # nor on their order, nor on who saw them
        first, second = (tt.TopKMetrics(["ndcg", "mrr"], k=[1, 3], bootstrap=30) for _ in range(2))
        order = torch.randperm(101, generator=torch.Generator().manual_seed(0))
        for part, some in ((first, order[:40]), (second, order[40:])):
            part.update(**rows(batch, some), query_ids=[f"q{number}" for number in some.tolist()])
        first.merge_state(second)
        for key, pair in whole.intervals().items():
            assert floats(first.intervals()[key]) == pytest.approx(floats(pair), rel=1e-12)


def test_jobs_with_a_stream_each_are_merged() -> None:
    batch = random_batch(80)
    jobs = [tt.TopKMetrics(["ndcg"], k=3, bootstrap=2000, stream=stream) for stream in (0, 1)]
    for job, some in zip(jobs, (slice(40), slice(40, 80)), strict=True):
        job.update(**rows(batch, some))
    jobs[0].merge_state(jobs[1])
    merged = floats(jobs[0].intervals()["ndcg@3"])
    plain = tt.TopKMetrics(["ndcg"], k=3)
    plain.update(**batch)
    low, high = floats(plain.intervals()["ndcg@3"])
    assert merged == pytest.approx((low, high), abs=0.15 * (high - low))


def test_streams_and_seeds_draw_differently() -> None:
    batch = random_batch(50)
    ends = set()
    for options in ({}, {"seed": 1}, {"stream": 1}, {"seed": 1, "stream": 1}):
        suite = tt.TopKMetrics(["ndcg"], k=3, bootstrap=50, **options)
        suite.update(**batch)
        ends.add(floats(suite.intervals()["ndcg@3"]))
    assert len(ends) == 4


def test_shapes_of_positions_and_ids() -> None:
    """Queries of a (B, T, N) batch stand in the order of its rows, whatever the batches are."""
    scores = torch.rand(6, 2, 5, generator=torch.Generator().manual_seed(0))
    target = torch.zeros(6, 2, dtype=torch.long)
    flat, deep, named = (tt.TopKMetrics(["mrr"], bootstrap=20) for _ in range(3))
    flat.update(scores.view(12, 5), target.view(12))
    for some in (slice(0, 1), slice(1, 6)):
        deep.update(scores[some], target[some])
        named.update(scores[some], target[some], query_ids=torch.arange(12).view(6, 2)[some])
    for suite in (deep, named):
        assert floats(suite.intervals()["mrr"]) == pytest.approx(floats(flat.intervals()["mrr"]), rel=1e-12)
    single = tt.TopKMetrics(["mrr"], bootstrap=20)
    single.update(scores[0, 0], torch.tensor(0))
    with pytest.raises(ValueError, match=r"query_ids must be \(12,\), one a query, but are \(11,\)"):
        named.update(scores.view(12, 5), target.view(12), query_ids=torch.arange(11))


def test_what_is_refused() -> None:
    metric = tt.NDCG(k=1)
    metric.update(SCORES, GAINS)
    with pytest.raises(ValueError, match="Resamples are drawn by a suite"):
        metric.intervals(method="bootstrap")
    with pytest.raises(ValueError, match="method must be one of 'auto', 't', 'bootstrap', but is 'normal'"):
        metric.intervals(method="normal")
    with pytest.raises(ValueError, match="query_ids are read by a suite"):
        metric.update(SCORES, GAINS, query_ids=[1, 2, 3])
    suite = tt.TopKMetrics(["ndcg"], k=1)
    suite.update(SCORES, GAINS)
    with pytest.raises(ValueError, match="make it with bootstrap=1000"):
        suite.intervals(method="bootstrap")
    for options in ({"bootstrap": 1}, {"bootstrap": True}, {"seed": -1}, {"stream": 0.5}):
        with pytest.raises(ValueError, match=rf"{next(iter(options))} must be an int of at least"):
            tt.TopKMetrics(["ndcg"], **options)
