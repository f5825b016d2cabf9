"""Measure the package beside its peers, in one process, and print what was aimed at and what is reached.

    python benchmarks/bars.py               # about eight minutes on two cores; writes docs/figures.json, .png and .md
    python benchmarks/bars.py --quick       # under a minute: an eighth of the queries; judges no bar and writes nothing
    python benchmarks/bars.py --only topk   # some of the parts; writes nothing unless --out says where
    python benchmarks/bars.py --page        # only write page and picture again, from docs/figures.json

A peer that is not installed is left out, and the reason printed. All of them:

    pip install matplotlib torch-geometric torcheval pytorch-ignite scikit-learn pytrec_eval-terrier ranx pykeen

(ranx compiles itself for a minute or two the first time that it runs.) On a GPU, run `benchmarks/gpu.py`.

Times are medians over rounds in which each piece of work runs once, in a new order each round, so that a busy machine
slows all alike; ratios are medians of the ratios within a round. Trust the ratios. Where other programs keep a core
busy, `--threads 1` is steadier: work on several threads waits for the one that was put aside.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import measuring
import peers as others
import report
import torch
import torch.multiprocessing
from labels import labels
from links import links
from measuring import (
    MODELS,
    TIED,
    Effort,
    Results,
    Row,
    Scale,
    Work,
    exponent,
    interleaved,
    make_ids,
    make_lists,
    make_mask,
    make_scores,
    missing,
    peak_bytes,
    plant,
    show,
    state_bytes,
)
from peers import CUTOFFS, METRICS, PYG, edges_of, make_collection, make_pyg, make_suite
from retrieval import retrieval
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from uncertainty import uncertainty

import torch_topk as tt
from torch_topk import exclusion

LARGE, SMALL = (1_024, 100_000), (256, 1_000)
SHAPES = {LARGE: 2.5, (128, 1_000_000): 3.5, (512, 14_541): 0.85, (4_096, 1_000): 0.85, (1_024, 20_000): 0.85}
"""Where the top-k is measured, and how many times as fast as torch.topk it is to be on scores without ties."""
GRID = {1: (1, [20]), 2: (2, [20]), 4: (4, [20]), 7: (7, [20]), 14: (7, [10, 20]), 28: (7, CUTOFFS)}
"""How many metrics at which cut-offs make how many values."""


FULL = Scale(Effort(1.5))
QUICK = Scale(
    Effort(0.05, least=2), queries=8, kinds=MODELS, batches=500, processes=1, world=1, step=2, compiling=False
)


ms = report.milliseconds


# The top-k itself.


def topk(scale: Scale, results: Results) -> None:
    """`tt.topk` beside `torch.topk`, and beside one read of the scores."""
    for shape, limit in SHAPES.items():
        rows = []
        for kind in scale.kinds:
            scores = make_scores(kind, *scale.of(shape))
            rows += [topk_at(scale, kind, scores, k) for k in ((10, 100) if kind in MODELS else (10,))]
        results.topk += rows
        for tied, least in ((False, limit), (True, 0.4)):
            group = [row for row in rows if row["k"] == 10 and (row["scores"] in TIED) == tied]
            slow = [row for row in group if row["peer_ms"] >= 1]  # the bars speak of 1 ms or more
            if not group:
                continue
            worst = min(slow or group, key=lambda row: float(row["ratio"]))
            results.aim(
                f"`tt.topk`, {show(scale.of(shape))}, k = 10, {'rows full of' if tied else 'without'} ties, "
                f"the worst kind of scores ({worst['scores']})",
                worst["ratio"],
                "×",
                least=least if slow else None,
                ours=ms(worst["ours_ms"]),
                peer=f"`torch.topk` {ms(worst['peer_ms'])}",
            )


def topk_at(scale: Scale, kind: str, scores: Tensor, k: int) -> Row:
    """One comparison."""
    work: Work = {
        "ours": partial(tt.topk, scores, k),
        "torch": partial(scores.topk, k),
        "read": partial(scores.amax, 1),
    }
    times = interleaved(work, scale.effort)
    row: Row = {"queries": len(scores), "items": scores.shape[1], "k": k, "scores": kind}
    row |= {"ratio": times.ratio("torch", "ours"), "ours_ms": times.median("ours")}
    row |= {"peer_ms": times.median("torch"), "read_ms": times.median("read")}
    print(
        f"  {row['ratio']:6.2f}×  {show((row['queries'], row['items'])):>17}, k = {k:<3}, {kind:14}  tt.topk "
        f"{ms(row['ours_ms']):>9}  torch.topk {ms(row['peer_ms']):>9}  amax {ms(row['read_ms']):>9}"
    )
    return row


# A suite's update.


@contextmanager
def topk_handed(scores: Tensor, k: int) -> Iterator[None]:
    """Hand the top k to whatever ranks these scores, so that only the rest of an update is timed."""
    kept, calls = tt.topk(scores, k), 0

    def give(*_: object, **__: object) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        return kept

    with mock.patch.object(exclusion, "topk", give):
        yield
    if not calls:
        raise RuntimeError("Ranking no longer calls exclusion.topk, so nothing was handed to it.")


def update_work(scores: Tensor, ids: Tensor, metrics: int = len(METRICS), cutoffs: list[int] | None = None) -> Work:
    """A suite's update, and what it stands beside: the top-k of either library, and the peer's update."""
    cutoffs = cutoffs or CUTOFFS
    depth, edges, suite = max(cutoffs), edges_of(ids), make_suite(METRICS[:metrics], cutoffs)
    work: Work = {
        "suite": lambda: suite.update(scores, tt.Relevance.from_ids(ids)),
        "tt.topk": partial(tt.topk, scores, depth),
        "torch.topk": partial(scores.topk, depth),
    }
    if not missing("torch_geometric"):
        peer = make_pyg(PYG[:metrics], cutoffs)
        work["PyG + torch.topk"] = lambda: peer.update(scores.topk(depth).indices, edges)
    return work


def suite(scale: Scale, results: Results) -> None:
    """A whole update beside PyTorch Geometric's, and what the suite itself costs beyond the top-k."""
    for shape in (SMALL, LARGE):
        ids = make_ids(*scale.of(shape))
        mask = make_mask(ids, scale.of(shape)[1])
        rows = [suite_at(scale, kind, ids, mask) for kind in MODELS]
        results.suite += rows
        judge_updates(results, rows, least=2 if shape == LARGE else None)
        judge_own_cost(results, rows, large=shape == LARGE)


def suite_at(scale: Scale, kind: str, ids: Tensor, mask: Tensor) -> Row:
    """One kind of scores."""
    scores = plant(make_scores(kind, *mask.shape), ids)
    by_mask = partial(make_suite().update, scores, mask)
    work = update_work(scores, ids)
    times = interleaved({**work, "mask": by_mask}, scale.effort)
    with topk_handed(scores, max(CUTOFFS)):
        rest = interleaved({"suite": work["suite"], "mask": by_mask, "read": partial(mask.amax, 1)}, scale.effort)
    row: Row = {"queries": len(scores), "items": scores.shape[1], "scores": kind}
    row |= {"ours_ms": times.median("suite"), "mask_ms": times.median("mask")}
    row |= {"topk_ms": times.median("tt.topk"), "torch_topk_ms": times.median("torch.topk")}
    row |= {"beyond_ms": rest.median("suite"), "beyond_mask_ms": rest.median("mask")}
    row |= {"read_mask_ms": rest.median("read")}
    beside = "PyG is not installed"
    if "PyG + torch.topk" in work:
        row |= {"ratio": times.ratio("PyG + torch.topk", "suite"), "peer_ms": times.median("PyG + torch.topk")}
        beside = f"{row['ratio']:6.2f}×  PyG + torch.topk {ms(row['peer_ms'])}"
        if kind == "normal":  # under ties the peer's order is nobody's
            row["differs_by"] = others.differs_from_pyg(scores, ids)
    print(
        f"  {beside}; whole update {ms(row['ours_ms'])} (truth a mask: {ms(row['mask_ms'])}), beyond the top-k "
        f"{ms(row['beyond_ms'])} ({ms(row['beyond_mask_ms'])}); {show((len(scores), scores.shape[1]))}, {kind}"
    )
    return row


def judge_updates(results: Results, rows: list[Row], least: float | None) -> None:
    """Hold whole updates to the bar."""
    what = f"Update of {len(METRICS)} metrics × K = 1, 5, 10, 20, {show((rows[0]['queries'], rows[0]['items']))}"
    if "ratio" not in rows[0]:
        results.leave(what, "PyG is not installed")
        return
    worst = min(rows, key=lambda row: float(row["ratio"]))
    results.aim(
        f"{what}, the worst kind of scores ({worst['scores']})",
        worst["ratio"],
        "×",
        least=least,
        ours=ms(worst["ours_ms"]),
        peer=f"PyG's collection + `torch.topk` {ms(worst['peer_ms'])}",
    )


def judge_own_cost(results: Results, rows: list[Row], *, large: bool) -> None:
    """Hold what the suite itself costs to the bars: where the top-k is long beside it, elsewhere in milliseconds."""
    where = show((rows[0]["queries"], rows[0]["items"]))
    what = f"The suite's own cost beyond the top-k, truth as ids, {where}"
    if not large:
        most = max(rows, key=lambda row: float(row["beyond_ms"]))
        peer = f"`tt.topk` {ms(most['topk_ms'])}"
        results.aim(f"{what} ({most['scores']})", most["beyond_ms"], " ms", most=0.8, peer=peer)
        return
    most = max(rows, key=lambda row: float(row["beyond_ms"] / row["topk_ms"]))
    results.aim(
        f"{what} ({most['scores']})",
        100 * most["beyond_ms"] / most["topk_ms"],
        " %",
        most=10,
        ours=ms(most["beyond_ms"]),
        peer=f"`tt.topk` {ms(most['topk_ms'])}",
    )
    row = max(rows, key=lambda row: float((row["beyond_mask_ms"] - row["beyond_ms"]) / row["read_mask_ms"]))
    added = row["beyond_mask_ms"] - row["beyond_ms"]
    results.aim(
        f"What dense bool truth adds to an update, in reads of the mask, {where}",
        added / row["read_mask_ms"],
        "×",
        most=1,
        ours=ms(added),
        peer=f"`mask.amax(1)` {ms(row['read_mask_ms'])}",
    )


# Counting and searching.


def counts(scale: Scale, results: Results) -> None:
    """`tt.rank_counts` beside one read of the scores, and beside the plain expressions."""
    if not hasattr(tt, "rank_counts"):
        results.leave("`tt.rank_counts`", "not in this version")
        return
    results.counts += [counts_at(scale, kind) for kind in MODELS]
    where = show(scale.of(LARGE))
    worst = max(results.counts, key=lambda row: float(row["reads"]))
    results.aim(
        f"`tt.rank_counts` (above, and at least as high), in reads of the scores, {where}, the worst kind "
        f"({worst['scores']})",
        worst["reads"],
        "×",
        most=2.5,
        ours=ms(worst["ours_ms"]),
        peer=f"`amax` {ms(worst['read_ms'])}",
    )
    worst = min(results.counts, key=lambda row: float(row["ratio"]))
    results.aim(
        f"`tt.rank_counts` beside the two plain expressions, {where}, the worst kind ({worst['scores']})",
        worst["ratio"],
        "×",
        ours=ms(worst["ours_ms"]),
        peer=f"`(x > t).sum(1)` and `(x >= t).sum(1)` {ms(worst['peer_ms'])}",
    )


def counts_at(scale: Scale, kind: str) -> Row:
    """One kind of scores."""
    scores = make_scores(kind, *scale.of(LARGE))
    targets = scores[:, scores.shape[1] // 2].contiguous()
    column = targets[:, None]
    work: Work = {
        "ours": partial(tt.rank_counts, scores, targets),
        "plain": lambda: ((scores > column).sum(1), (scores >= column).sum(1)),
        "read": partial(scores.amax, 1),
    }
    times = interleaved(work, scale.effort)
    row: Row = {"queries": len(scores), "items": scores.shape[1], "scores": kind}
    row |= {"reads": times.ratio("ours", "read"), "ratio": times.ratio("plain", "ours")}
    row |= {"ours_ms": times.median("ours"), "peer_ms": times.median("plain"), "read_ms": times.median("read")}
    print(
        f"  {row['reads']:6.2f} reads, {row['ratio']:6.2f}× the plain expressions, {kind:14}  tt.rank_counts "
        f"{ms(row['ours_ms']):>9}  amax {ms(row['read_ms']):>9}  plain {ms(row['peer_ms']):>9}"
    )
    return row


def search(scale: Scale, results: Results) -> None:
    """`tt.search` beside the whole product and `torch.topk`."""
    if not hasattr(tt, "search"):
        results.leave("`tt.search`", "not in this version")
        return
    (queries, items), width, k = scale.of((512, 100_000)), 64, 10
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(queries, width, generator=generator)
    catalogue = torch.randn(items, width, generator=generator)
    work: Work = {
        "tt.search": partial(tt.search, query, catalogue, k),
        "product + torch.topk": lambda: (query @ catalogue.T).topk(k),
    }
    times = interleaved(work, scale.effort)
    # The products of chunks may differ from the whole's in the last bit, so ids may differ where two scores nearly tie.
    agree = (tt.search(query, catalogue, k)[1] == tt.topk(query @ catalogue.T, k)[1]).double().mean().item()
    where = f"{show((queries, items))}, {width} dimensions"
    what = f"`tt.search`, {where}, k = {k}; {100 * agree:.2f} % of ids are those of the whole product"
    bytes_of = {name: peak_bytes(run) for name, run in work.items()}
    results.memory += [{"work": name, "shape": where, "bytes": size} for name, size in bytes_of.items()]
    peaks = {name: f"{times.median(name):.0f} ms, {size / 2**20:.1f} MiB" for name, size in bytes_of.items()}
    ratio = times.ratio("product + torch.topk", "tt.search")
    results.aim(what, ratio, "×", ours=peaks["tt.search"], peer=f"product + `torch.topk` {[*peaks.values()][1]}")
    print(f"  {ratio:6.2f}×  {where}: {peaks}, {100 * agree:.2f} % of ids equal")


# Peers on small workloads.


def peers(scale: Scale, results: Results) -> None:
    """Update and compute, beside every peer that gives the same numbers; its values are compared with ours."""
    for module, package in others.PACKAGES.items():
        reason = f"pip install {package}" if missing(module) else ""
        if not reason and module == "ranx" and not scale.compiling:
            reason = "it compiles itself first, so only the full run measures it"
        if reason:
            print(f"  {package} is left out: {reason}")
            results.peers.append({"peer": package, "left_out": reason})
    shape, generator = (max(4, 200 // scale.queries), 100), torch.Generator().manual_seed(2)
    scores = torch.randn(shape, generator=generator)
    grades = (torch.randint(4, shape, generator=generator) - (scores < 0).int()).clamp(min=0)
    many = scale.of((1_024, 10_000))
    truth = torch.randint(many[1], many[:1], generator=generator)
    logits = plant(torch.randn(many, generator=generator), truth[:, None])
    compare(
        scale,
        results,
        f"nDCG@10, grades, {show(shape)}",
        others.of_grades(scores, grades, compiling=scale.compiling),
    )
    compare(
        scale,
        results,
        f"P, R, MRR, MAP and nDCG at 10, {show(shape)}",
        others.of_five(scores, (grades > 1).int(), compiling=scale.compiling),
    )
    compare(scale, results, f"hit rate and MRR at 10, one label, {show(many)}", others.of_labels(logits, truth))
    rows = scale.of((10_000, 1_000))
    lists = others.of_lists(*make_lists(*rows, share=0.6), rows[1])
    compare(scale, results, f"macro P, R and F1 of labels at 5, lists, {show(rows)}", lists)


def compare(scale: Scale, results: Results, workload: str, found: tuple[others.Peers, others.Values]) -> None:
    """Time the peers of one workload, and hold their values to ours."""
    work, values = found
    times = interleaved(work, scale.effort)
    for name, run in work.items():
        if name == others.OURS:
            continue
        differs = max(abs(value - values[key]) for key, value in run().items())
        row: Row = {"workload": workload, "peer": name, "ratio": times.ratio(name, others.OURS)}
        row |= {"ours_ms": times.median(others.OURS), "peer_ms": times.median(name), "differs_by": differs}
        results.peers.append(row)
        print(
            f"  {row['ratio']:8.1f}×  {workload}: {name} {ms(row['peer_ms'])}, ours {ms(row['ours_ms'])}; "
            f"values differ by {differs:.0e}"
        )


# State, collectives, import, and what TorchMetrics adds to each call.


def state(scale: Scale, results: Results) -> None:
    """Bytes of state after few and after many batches."""
    scores, truth = torch.randn(4, 50), torch.randint(50, (4,))
    for name, ours in {"a suite": make_suite(), "`LabelReport`": tt.LabelReport(50, [1, 3, 5])}.items():
        sizes = {}
        for batch in range(1, scale.batches + 1):
            ours.update(scores, truth)
            if batch in {10, scale.batches}:
                sizes[batch] = state_bytes(ours)
        results.aim(
            f"Bytes of state of {name} after {scale.batches:,} batches, beside those after 10",
            sizes[scale.batches] / sizes[10],
            "×",
            most=1,
            ours=f"{sizes[scale.batches]:,} bytes",
            peer=f"{sizes[10]:,} bytes",
        )
        few, many = sizes.values()
        print(f"  {name.strip('`')}: {few:,} bytes after 10 batches, {many:,} after {scale.batches:,}")


COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
)


def count_collectives(run: Callable[[], object]) -> int:
    """How many functions of torch.distributed that talk to other processes are called."""
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return function(*args, **kwargs)

        return call

    replaced: dict[str, Any] = {name: counted(getattr(torch.distributed, name)) for name in COLLECTIVES}
    with mock.patch.multiple(torch.distributed, **replaced):
        run()
    return calls


def collectives_of_rank(rank: int, world: int, folder: str) -> None:
    """In one of several processes: count the collectives of a compute, and let rank 0 write them down."""
    meet, patience = f"file://{folder}/meet", timedelta(seconds=60)
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=patience)
    try:
        ids, ours, label_report, collection = make_ids(8, 100), make_suite(), tt.LabelReport(100), make_collection(100)
        scores = torch.randn(8, 100, generator=torch.Generator().manual_seed(rank))
        truth = tt.Relevance.from_ids(ids)
        ours.update(scores, truth)
        label_report.update(scores, truth)
        collection.update(scores, ids[:, 0])
        metrics: dict[str, Any] = {"suite": ours, "LabelReport": label_report, "TorchMetrics": collection}
        if not missing("torch_geometric"):
            metrics["PyG"] = peer = make_pyg()
            peer.update(scores.topk(max(CUTOFFS)).indices, edges_of(ids))
        found = {name: count_collectives(metric.compute) for name, metric in metrics.items()}
        if rank == 0:
            Path(folder, "counts.json").write_text(json.dumps(found), encoding="utf-8")
    finally:
        torch.distributed.destroy_process_group()


def collectives(scale: Scale, results: Results) -> None:
    """Collective operations of a compute in a group of processes."""
    with tempfile.TemporaryDirectory() as folder:
        if scale.world == 1:
            collectives_of_rank(0, 1, folder)
        else:
            torch.multiprocessing.spawn(collectives_of_rank, args=(scale.world, folder), nprocs=scale.world)  # type: ignore[attr-defined, no-untyped-call]
        found = json.loads(Path(folder, "counts.json").read_text(encoding="utf-8"))
    beside = f"PyG's collection {found['PyG']}" if "PyG" in found else "PyG is not installed"
    theirs = f"TorchMetrics' collection of macro precision, recall and F1 {found['TorchMetrics']}"
    values = len(METRICS) * len(CUTOFFS)
    for name, of, most, peer in (
        ("suite", f"{values} values", 1, beside),
        ("LabelReport", "a `LabelReport`", 2, theirs),
    ):
        what = f"Collective operations of one `compute()` of {of}, in a group of {scale.world}"
        results.aim(what, found[name], "", most=most, ours=str(found[name]), peer=peer)
        print(f"  {name} {found[name]}; {peer}")


CLOCK = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start); "
FIRST_THEIRS, ALONE = CLOCK.format("torchmetrics") + CLOCK.format("torch_topk"), CLOCK.format("torch_topk")


def imports(scale: Scale, results: Results) -> None:
    """How long `import torch_topk` takes beyond `import torchmetrics`, in processes of their own, in turn."""
    seconds: list[list[float]] = []
    for _ in range(scale.processes):
        row: list[float] = []
        for code in (FIRST_THEIRS, ALONE):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - this interpreter
            row += map(float, done.stdout.split())
        seconds.append(row)
    theirs, beyond, alone = map(statistics.median, zip(*seconds, strict=True))
    results.aim(
        "`import torch_topk` once `torchmetrics` is imported",
        beyond,
        " s",
        most=0.15,
        ours=f"{alone:.2f} s alone",
        peer=f"`import torchmetrics` {theirs:.2f} s",
    )
    print(f"  {beyond:.3f} s beyond torchmetrics' {theirs:.2f} s; {alone:.2f} s alone")


class Nothing(Metric):
    """A metric that does nothing, to see what TorchMetrics adds to each call."""

    full_state_update = False

    def update(self) -> None:
        """Do nothing."""

    def compute(self) -> None:
        """Do nothing."""


def wrapper(scale: Scale, results: Results) -> None:
    """What TorchMetrics adds to each call of `update`."""
    one = Nothing()
    many = MetricCollection({str(i): Nothing() for i in range(len(METRICS) * len(CUTOFFS))}, compute_groups=False)
    work: Work = {"wrapped": one.update, "bare": partial(Nothing.update, one), "collection": many.update}
    times = interleaved(work, scale.effort)
    added, beside = 1e3 * (times.median("wrapped") - times.median("bare")), 1e3 * times.median("collection")
    results.aim(
        "What TorchMetrics adds to one call of `update` (of a metric that does nothing)",
        added,
        " µs",
        peer=f"a `MetricCollection` of {len(many)} of them {beside:.0f} µs",
    )
    print(f"  {added:.1f} µs a metric and call; {beside:.0f} µs a call of a collection of {len(many)}")


# Growth and memory.


def planted(queries: int, items: int) -> tuple[Tensor, Tensor]:
    """Scores like a model's and the relevant ids."""
    ids = make_ids(queries, items)
    return plant(make_scores("normal", queries, items), ids), ids


def growth(scale: Scale, results: Results) -> None:
    """Times over the number of items, of queries, of ranks, and of values; and memory over the number of items."""
    few, many = scale.of((64, 10_000))
    some, wide = scale.of((256, 20_000))
    small = scale.of(SMALL)
    items = [max(100, n // scale.items) for n in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)]
    queries = [max(2, n // scale.queries) for n in (16, 64, 256, 1_024, 4_096)]
    depths = [k for k in (1, 3, 10, 30, 100, 300, 1_000) if k <= wide // 2]

    def of_items(point: int) -> Work:
        return update_work(*planted(few, point))

    def of_queries(point: int) -> Work:
        return update_work(*planted(point, many))

    def of_depth(point: int) -> Work:
        return update_work(*planted(some, wide), cutoffs=[point])

    def of_values(point: int) -> Work:
        metrics, cutoffs = GRID[point]
        return update_work(*planted(*small), metrics, cutoffs)

    def milliseconds(work: Work) -> dict[str, float]:
        times = interleaved(work, Effort(scale.effort.seconds / 2, scale.effort.least))
        return {name: times.median(name) for name in work}

    def mebibytes(work: Work) -> dict[str, float]:
        return {name: peak_bytes(run) / 2**20 for name, run in work.items()}

    for name, label, points, make, figures in (
        ("items", f"items, of {few} queries", items, of_items, milliseconds),
        ("queries", f"queries, of {many:,} items", queries, of_queries, milliseconds),
        ("K", f"K, one cut-off, {show((some, wide))}", depths, of_depth, milliseconds),
        ("values", f"values (metrics × K), {show(small)}", list(GRID), of_values, milliseconds),
        ("memory", f"items, of {few} queries", items, of_items, mebibytes),
    ):
        chosen = points[:: scale.step]
        unit = "MiB" if name == "memory" else "ms"
        rows = [figures(make(point)) for point in chosen]
        series = {each: [row[each] for row in rows] for each in rows[0]}
        fitted = {each: exponent(chosen, line) for each, line in series.items()}
        row = {"over": name, "label": label, "unit": unit, "points": chosen, "series": series, "exponents": fitted}
        results.growth.append(row)
        print(f"  {unit} over {label}: {', '.join(f'{point:,}' for point in chosen)}")
        for each, line in series.items():
            print(f"    ^{fitted[each]:5.2f}  {each:17} {'  '.join(f'{figure:.3g}' for figure in line)}")


def memory(scale: Scale, results: Results) -> None:
    """The most memory that an update takes beyond its inputs."""
    scores, ids = planted(*scale.of(LARGE))
    mask, targets = make_mask(ids, scores.shape[1]), scores[:, 0].contiguous()
    by_mask, excluding, excluded = make_suite(), make_suite(), (ids + 1).clamp(max=scores.shape[1] - 1)
    work = update_work(scores, ids)
    work["suite, truth a mask"] = partial(by_mask.update, scores, mask)
    work["suite, 10 excluded ids a query"] = lambda: excluding.update(
        scores, tt.Relevance.from_ids(ids), exclude=excluded
    )
    if hasattr(tt, "rank_counts"):
        work["tt.rank_counts"] = partial(tt.rank_counts, scores, targets)
    work["(x > t).sum(1)"] = lambda: (scores > targets[:, None]).sum(1)
    shape = f"{show((len(scores), scores.shape[1]))}, scores of {scores.nbytes / 2**20:.0f} MiB"
    for name, run in work.items():
        size = peak_bytes(run)
        results.memory.append({"work": name, "shape": shape, "bytes": size})
        print(f"  {size / 2**20:9.2f} MiB  {shape}: {name}")


PARTS: dict[str, Callable[[Scale, Results], None]] = {
    "topk": topk,
    "suite": suite,
    "counts": counts,
    "search": search,
    "labels": labels,
    "links": links,
    "uncertainty": uncertainty,
    "retrieval": retrieval,
    "peers": peers,
    "state": state,
    "collectives": collectives,
    "imports": imports,
    "wrapper": wrapper,
    "memory": memory,
    "growth": growth,
}


def measure(scale: Scale, parts: list[str], command: str) -> Row:
    """Run the parts, and return what goes into the JSON file."""
    packages = ["torch-topk", "torch", "torchmetrics", *others.PACKAGES.values()]
    about: Row = {
        "processor": measuring.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": measuring.versions(packages),
        "command": command,
        "full": scale.judges and parts == list(PARTS),
    }
    print(f"{report.machine(about)}. {report.join(about['versions'])}.")
    results = Results(scale)
    for part in parts:
        print(f"\n{part}: {(PARTS[part].__doc__ or '').splitlines()[0]}", flush=True)
        start = time.perf_counter()
        PARTS[part](scale, results)
        print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
    found = asdict(results)
    del found["scale"]
    return {"about": about, **found}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller, under a minute; judges no bar")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="some parts alone")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="the folder to write to (default: of a full run docs, else none)")
    parser.add_argument("--page", action="store_true", help="write page and picture again, from the JSON file")
    options = parser.parse_args()
    docs = Path(__file__).resolve().parent.parent / "docs"
    if options.page:
        report.write_page(options.out or docs)
        return
    torch.set_num_threads(options.threads)
    parts = [part for part in PARTS if part in options.only]
    command = shlex.join(["python", "benchmarks/bars.py", *sys.argv[1:]])
    results = measure(QUICK if options.quick else FULL, parts, command)
    print(f"\n{report.plain(results['bars'])}")
    out = options.out or (docs if results["about"]["full"] else None)
    if out is not None:
        report.write(results, out)
        print(f"\nWritten: {', '.join(sorted(path.name for path in out.glob('figures*')))}")


if __name__ == "__main__":
    main()
