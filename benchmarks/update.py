"""What a suite's update costs beside the top-k that every peer starts from, and beside PyTorch Geometric's collection.

Run `python benchmarks/update.py` (`--threads 2`). Everything runs in one process, in turn, so that a busy machine slows
all alike: trust the ratios. Figures are medians.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
import torch_geometric
from torch_geometric.metrics import (
    LinkPredF1,
    LinkPredHitRatio,
    LinkPredMAP,
    LinkPredMetricCollection,
    LinkPredMRR,
    LinkPredNDCG,
    LinkPredPrecision,
    LinkPredRecall,
)

import torch_topk as tt

METRICS = ["precision", "recall", "f1", "hit_rate", "mrr", "map", "ndcg"]
PEERS = [LinkPredPrecision, LinkPredRecall, LinkPredF1, LinkPredHitRatio, LinkPredMRR, LinkPredMAP, LinkPredNDCG]
CUTOFFS = [1, 5, 10, 20]


def medians(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each piece of work in milliseconds, over rounds in which each runs once."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(rounds + 2):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            if round_ >= 2:
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def measure(queries: int, items: int, rounds: int) -> None:
    """Time one shape, with ten relevant items a query, as ids and as a mask."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(queries, items, generator=generator)
    ids = torch.randint(items, (queries, 10), generator=generator)
    mask = torch.zeros(queries, items, dtype=torch.bool).scatter_(1, ids, value=True)
    edges = torch.stack([torch.arange(queries).repeat_interleave(10), ids.flatten()])
    suite = tt.TopKMetrics(METRICS, k=CUTOFFS)
    peer = LinkPredMetricCollection([metric(k=k) for metric in PEERS for k in CUTOFFS])
    ranking = suite.rank(scores, tt.Relevance.from_ids(ids))

    def ours_given_ranking() -> None:
        fresh = ranking.first(queries)  # without the tables that a Ranking keeps
        suite.update(fresh)

    times = medians(
        {
            "torch.topk": lambda: scores.topk(max(CUTOFFS)),
            "tt.topk": lambda: tt.topk(scores, max(CUTOFFS)),
            "suite, ids": lambda: suite.update(scores, tt.Relevance.from_ids(ids)),
            "suite, mask": lambda: suite.update(scores, mask),
            "suite, ranking given": ours_given_ranking,
            "PyG + torch.topk": lambda: peer.update(scores.topk(max(CUTOFFS)).indices, edges),
        },
        rounds,
    )
    print(f"\n{queries:,} queries x {items:,} items, {len(METRICS)} metrics x K = {CUTOFFS}")
    for name, each in times.items():
        print(f"  {name:22} {each:9.2f} ms   {each / times['torch.topk']:6.2f} x torch.topk")


def state_bytes(batches: int) -> int:
    """The bytes of state after some batches."""
    suite = tt.TopKMetrics(METRICS, k=CUTOFFS)
    for _ in range(batches):
        suite.update(torch.randn(4, 50), torch.randint(50, (4,)))
    return sum(state.nbytes for state in suite.metric_state.values())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    print(
        f"{platform.processor() or platform.machine()}, {threads} threads, torch {torch.__version__}, "
        f"torch-geometric {torch_geometric.__version__}"
    )
    measure(256, 1_000, rounds=200)
    measure(1_024, 100_000, rounds=7)
    print(f"\nState after 10 batches {state_bytes(10):,} bytes, after 1,000 {state_bytes(1_000):,} bytes")


if __name__ == "__main__":
    main()
