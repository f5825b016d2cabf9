"""A `LabelReport` beside TorchMetrics, a plain loop and a sparse product; and its memory for a million labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from measuring import (
    TIED,
    Results,
    Row,
    Scale,
    Work,
    interleaved,
    make_lists,
    make_scores,
    missing,
    peak_bytes,
    plant,
    show,
    state_bytes,
)
from numpy.typing import NDArray
from peers import make_collection
from report import milliseconds as ms
from torch import Tensor

import torch_topk as tt

CUTOFFS = [1, 3, 5]
BATCH = 1_024

Found: TypeAlias = Mapping[str, NDArray[Any]]


def labels(scale: Scale, results: Results) -> None:
    """`LabelReport` beside TorchMetrics' collection, a loop in Python and SciPy, and its memory."""
    scores(scale, results)
    lists(scale, results)
    memory(scale, results)


# Of scores.


def scores(scale: Scale, results: Results) -> None:
    """An update of scores at one cut-off."""
    queries, items = scale.of((1_024, 10_000))
    truth = torch.randint(items, (queries,), generator=torch.Generator().manual_seed(1))
    rows = [scores_at(scale, kind, truth, items) for kind in scale.kinds]
    results.labels += rows
    worst = min(rows, key=lambda row: float(row["ratio"]))
    results.aim(
        f"Update of a `LabelReport`, {show((queries, items))}, K = 5, the worst kind of scores ({worst['scores']})",
        worst["ratio"],
        "×",
        least=30,
        ours=ms(worst["ours_ms"]),
        peer=f"TorchMetrics' collection of macro precision, recall and F1 {ms(worst['peer_ms'])}",
    )
    results.aim(
        "The top-k's share of that update",
        100 * worst["share"],
        " %",
        ours=ms(worst["ours_ms"]),
        peer=f"`tt.topk` {ms(worst['topk_ms'])}",
    )


def scores_at(scale: Scale, kind: str, truth: Tensor, items: int) -> Row:
    """One kind of scores."""
    batch = plant(make_scores(kind, len(truth), items), truth[:, None])
    report, collection = tt.LabelReport(items, 5), make_collection(items)
    recall: Any = collection["recall"]
    report.update(batch, truth)
    collection.update(batch, truth)
    # Precisions differ by design, right namings do not; among ties torch.topk keeps no order.
    if kind not in TIED and not torch.equal(report.compute()["tp"], recall.tp):
        raise RuntimeError(f"LabelReport and TorchMetrics count other true positives in {kind} scores.")
    work: Work = {
        "ours": partial(report.update, batch, truth),
        "peer": partial(collection.update, batch, truth),
        "topk": partial(tt.topk, batch, 5),
    }
    times = interleaved(work, scale.effort)
    where = f"update, {show((len(truth), items))}, K = 5"
    row: Row = {"workload": f"{where}, {kind}", "ours": "`LabelReport`", "peer": "TorchMetrics' collection"}
    row |= {"scores": kind, "ratio": times.ratio("peer", "ours"), "share": times.ratio("topk", "ours")}
    row |= {"ours_ms": times.median("ours"), "peer_ms": times.median("peer"), "topk_ms": times.median("topk")}
    print(
        f"  {row['ratio']:6.1f}×  {where}, {kind:14}  ours {ms(row['ours_ms']):>9}, of which top-k "
        f"{100 * row['share']:.0f} %, TorchMetrics {ms(row['peer_ms']):>9}"
    )
    return row


# Of lists that are ranked already.


def lists(scale: Scale, results: Results) -> None:
    """The counts, precision, recall and F1 of each label, from ids and from Python's lists."""
    shape = scale.of((100_000, 10_000))
    ways = ways_to_count(*make_lists(*shape, share=0.6), shape[1])
    agree(ways)
    times = interleaved(ways, scale.effort)
    ours = [name for name in ways if name.startswith("`")]
    for peer in ways:
        for mine in ours if peer not in ours else ():
            row: Row = {"workload": f"lists, {show(shape)}", "ours": mine, "peer": peer}
            row |= {"ratio": times.ratio(peer, mine), "ours_ms": times.median(mine), "peer_ms": times.median(peer)}
            results.labels.append(row)
            beside = f"{mine.replace('`', '')} {ms(row['ours_ms'])}, {peer} {ms(row['peer_ms'])}"
            print(f"  {row['ratio']:6.2f}×  {row['workload']}, K = 1, 3, 5: {beside}")
    if missing("scipy"):
        print("  The sparse product is left out: pip install scipy")


def ways_to_count(ranked: Tensor, truth: Tensor, num_labels: int) -> dict[str, Callable[[], Found]]:
    """Every way, ours with a name in code, each in the form that it likes best, made before the clock starts."""
    query, place = (truth >= 0).nonzero(as_tuple=True)
    item = truth[query, place]
    y_ranked, y_true = ranked.tolist(), [[label for label in row if label >= 0] for row in truth.tolist()]
    asked = list(range(num_labels))
    report = tt.LabelReport(num_labels, CUTOFFS)

    def reported(relevance: Callable[[], tt.Relevance]) -> Found:
        report.reset()
        report.update(tt.Ranking.from_ids(ranked, relevance()))
        return {name: value.numpy() for name, value in report.compute().items()}

    def plain() -> Found:
        found = tt.precision_recall_fscore_at_k(y_true, y_ranked, k=CUTOFFS, labels=asked, zero_division=0)
        return dict(zip(("precision", "recall", "f1", "support"), found, strict=True))

    ways: dict[str, Callable[[], Found]] = {
        "`LabelReport`, `Relevance.from_ids`": lambda: reported(lambda: tt.Relevance.from_ids(truth)),
        "`LabelReport`, `Relevance.from_coo`": lambda: reported(
            lambda: tt.Relevance.from_coo(query, item, num_queries=len(ranked))
        ),
        "`precision_recall_fscore_at_k` of Python's lists": plain,
        "a loop in Python": partial(by_loop, y_true, y_ranked, num_labels),
    }
    if not missing("scipy"):
        ways["a sparse product of SciPy"] = partial(by_product, ranked.numpy(), query.numpy(), item.numpy(), num_labels)
    return ways


def by_loop(y_true: list[list[int]], y_ranked: list[list[int]], num_labels: int) -> Found:
    """Count as one would without a library."""
    held = [0] * num_labels
    named, right = ([[0] * num_labels for _ in CUTOFFS] for _ in range(2))
    for true, ranked in zip(y_true, y_ranked, strict=True):
        for label in true:
            held[label] += 1
        for i, k in enumerate(CUTOFFS):
            for label in ranked[:k]:
                named[i][label] += 1
                if label in true:
                    right[i][label] += 1
    return scores_of(np.array(right), np.array(named), np.array(held))


def by_product(ranked: NDArray[Any], query: NDArray[Any], item: NDArray[Any], num_labels: int) -> Found:
    """Count by the elementwise product of the indicator matrices of lists and truth."""
    from scipy.sparse import csr_array

    shape = len(ranked), num_labels
    truth = csr_array((np.ones(len(query), dtype=np.int64), (query, item)), shape=shape)
    right, named = [], []
    for k in CUTOFFS:
        first = np.ascontiguousarray(ranked[:, :k]).reshape(-1)
        ends = np.arange(0, len(first) + 1, k)
        lists = csr_array((np.ones(len(first), dtype=np.int64), first, ends), shape=shape)
        right.append(lists.multiply(truth).sum(axis=0))
        named.append(lists.sum(axis=0))
    return scores_of(np.stack(right), np.stack(named), truth.sum(axis=0))


def scores_of(right: NDArray[Any], named: NDArray[Any], held: NDArray[Any]) -> Found:
    """What a `LabelReport` says of these counts."""
    return {
        "tp": right,
        "fp": named - right,
        "fn": held - right,
        "precision": right / named.clip(min=1),
        "recall": right / held.clip(min=1),
        "f1": 2 * right / (named + held).clip(min=1),
        "support": held,
    }


def agree(ways: Mapping[str, Callable[[], Found]]) -> None:
    """Hold what every way finds to what the first does.

    Raises:
        RuntimeError: If one finds something else.
    """
    first, *others = ways
    expected = ways[first]()
    for name in others:
        for key, value in ways[name]().items():
            if value.shape != expected[key].shape or not np.allclose(value, expected[key], rtol=1e-12, atol=0):
                raise RuntimeError(f"{first} and {name} differ in {key}.")


# Of a million labels.


def memory(scale: Scale, results: Results) -> None:
    """The most that tensors take at one time, in bytes of state."""
    queries, items = scale.of((100_000, 1_000_000))
    ranked, ids = make_lists(queries, items)
    query = torch.arange(queries).repeat_interleave(ids.shape[1])
    truth = tt.Relevance.from_coo(query, ids.reshape(-1), num_queries=queries)
    report = tt.LabelReport(items, CUTOFFS)

    def update(rows: int = queries) -> None:
        for start in range(0, rows, BATCH):
            batch = slice(start, start + BATCH)
            report.update(tt.Ranking.from_ids(ranked[batch], truth[batch]))

    def afresh(read: Callable[[], object]) -> None:
        update(BATCH)  # what was read is kept until then
        read()

    size = state_bytes(report)
    where = f"{items:,} labels, K = 1, 3, 5"
    shape = f"{where}, {queries:,} rows, {size / 2**20:.0f} MiB of state"
    for name, run, most in (
        ("making it, state included", lambda: tt.LabelReport(items, CUTOFFS), None),
        (f"`update`, batches of {BATCH:,} × 5 ids", update, 3),
        ('`scalars("macro")`', lambda: afresh(lambda: report.scalars("macro")), 3),
        ("`compute()`, result included", lambda: afresh(report.compute), None),
    ):
        peak = peak_bytes(run)
        results.memory.append({"work": f"`LabelReport`: {name}", "shape": shape, "bytes": peak})
        results.aim(
            f"Peak memory of a `LabelReport`, in bytes of state, {where}: {name}",
            peak / size,
            "×",
            most=most,
            ours=f"{peak / 2**20:.1f} MiB",
            peer=f"state {size / 2**20:.1f} MiB",
        )
        print(f"  {peak / 2**20:9.2f} MiB  {peak / size:5.2f}× the state  {shape}: {name.replace('`', '')}")
