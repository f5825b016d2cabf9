"""What intervals, resamples and slices cost, and how often intervals hold the true value."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from measuring import Results, Row, Scale, Work, interleaved, make_ids, make_scores, show
from numpy.typing import NDArray
from peers import CUTOFFS, METRICS
from report import milliseconds as ms

import torch_topk as tt

RESAMPLES, GROUPS = 1_000, 1_000
ITEMS = 20
"""Candidates of which one, the target, stands at each rank as likely: what makes the true values known."""
SETTINGS = {
    "MRR, skewed": ("mrr", 200, 0.0),
    "NDCG@10, half of it 0": ("ndcg@10", 200, 0.0),
    "pooled recall@3, n p = 30": ("recall(average=micro)@3", 200, 30.0),
    "hits, n p = 100": ("hit_rate@10", 200, 100.0),
    "hits, n p = 15": ("hit_rate@1", 300, 15.0),
    "hits, n p = 5": ("hit_rate@1", 100, 5.0),
    "hits, n p = 2": ("hit_rate@1", 40, 2.0),
}
"""Of each the metric, the queries of a data set, and how many hits to expect."""
METHODS = ("t", "auto", "bootstrap")


def uncertainty(scale: Scale, results: Results) -> None:
    """What resamples and slices add to an update, and how often 95 % intervals hold the true value."""
    cost(scale, results)
    coverage(scale, results)


def cost(scale: Scale, results: Results) -> None:
    """An update of 28 values with and without."""
    queries, items = scale.of((1_024, 20_000))
    scores, truth = make_scores("normal", queries, items), tt.Relevance.from_ids(make_ids(queries, items))
    groups = {"group": torch.arange(queries) % GROUPS}
    suites = {
        "plain": tt.TopKMetrics(METRICS, CUTOFFS),
        "bootstrap": tt.TopKMetrics(METRICS, CUTOFFS, bootstrap=RESAMPLES),
        "slices": tt.TopKMetrics(METRICS, CUTOFFS, slices={"group": GROUPS}),
        "collect": tt.TopKMetrics(METRICS, CUTOFFS, collect=True),
    }
    work: Work = {
        name: partial(suite.update, scores, truth, **({"groups": groups} if name == "slices" else {}))
        for name, suite in suites.items()
    }
    times = interleaved(work, scale.effort)
    plain = times.median("plain")
    for name, what in {
        "bootstrap": f"`bootstrap={RESAMPLES:,}`",
        "slices": f"{GROUPS:,} groups",
        "collect": "`collect=True`",
    }.items():
        results.aim(
            f"What {what} adds to an update of {len(METRICS) * len(CUTOFFS)} values, {show((queries, items))}",
            times.median(name) - plain,
            " ms",
            ours=ms(times.median(name)),
            peer=f"without {ms(plain)}",
        )
        print(f"  {what.replace('`', '')} adds {ms(times.median(name) - plain)} to {ms(plain)}")


def coverage(scale: Scale, results: Results) -> None:
    """How often intervals hold the true value, of simulated data sets."""
    sets = 2_000 if scale.judges else 20
    for name, (metric, queries, hits) in SETTINGS.items():
        found = covered(metric, queries, sets)
        row: Row = {"setting": f"{name}, {queries} queries", "sets": sets, **found}
        results.coverage.append(row)
        print(f"  {row['setting']:40} " + ", ".join(f"{method} {100 * found[method]:.1f} %" for method in METHODS))
        kept = [method for method in METHODS if not hits or method == "auto" or (method == "bootstrap" and hits >= 15)]
        worst = max(kept, key=lambda method: abs(found[method] - 0.95))
        results.aim(
            f"How far from 95 % the 95 % intervals ({', '.join(kept)}) cover, {row['setting']}, {sets:,} data sets",
            100 * abs(found[worst] - 0.95),
            " points",
            most=2,
            ours=f"{worst} {100 * found[worst]:.1f} %",
        )


def covered(metric: str, queries: int, sets: int) -> dict[str, float]:
    """The share of data sets in which each method's interval holds the true value."""
    suite = tt.TopKMetrics(metric)
    suite.update(with_target_at(np.arange(ITEMS)))  # at each rank, once
    (key, true), *_ = suite.compute().items()
    generator = np.random.default_rng(queries)
    held = dict.fromkeys(METHODS, 0)
    for number in range(sets):
        plain, resampled = tt.TopKMetrics(metric), tt.TopKMetrics(metric, bootstrap=RESAMPLES, seed=number)
        ranking = with_target_at(generator.integers(ITEMS, size=queries))
        plain.update(ranking)
        resampled.update(ranking)
        for method in METHODS:
            low, high = (resampled if method == "bootstrap" else plain).intervals(method=method)[key]
            held[method] += bool(low <= true <= high)
    return {method: count / sets for method, count in held.items()}


def with_target_at(places: NDArray[np.int64]) -> tt.Ranking:
    """Lists that hold the target, item 0, at these places."""
    ids = np.broadcast_to(np.arange(1, ITEMS + 1), (len(places), ITEMS)).copy()
    ids[np.arange(len(places)), places] = 0
    return tt.Ranking.from_ids(ids, np.zeros(len(places), dtype=np.int64))
