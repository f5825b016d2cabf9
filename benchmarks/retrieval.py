"""Compute of `torch_topk.retrieval` beside TorchMetrics' retrieval package, of the same rows."""

from __future__ import annotations

import time

import torch
import torchmetrics.retrieval as peer
from measuring import Results, Scale, Work, interleaved, show
from report import milliseconds as ms
from torch import Generator, Tensor
from torchmetrics import Metric

from torch_topk import retrieval as ours

SLOW = "RetrievalNormalizedDCG"
"""What takes the peer seconds, so that it runs once."""

Rows = tuple[Tensor, Tensor, Tensor]


def make_rows(queries: int, documents: int) -> Rows:
    """Scores above 0, which TorchMetrics takes for predictions, targets of which a tenth is relevant, and indexes."""
    generator: Generator = torch.Generator().manual_seed(0)
    rows = queries * documents
    scores = (torch.randperm(rows, generator=generator) + 1) / rows
    target = torch.rand(rows, generator=generator) < 0.1
    return scores, target.long(), torch.arange(queries).repeat_interleave(documents)


def filled(package: object, name: str, rows: Rows) -> Metric:
    """A metric that holds the rows, and computes anew each time."""
    metric: Metric = getattr(package, name)(compute_with_cache=False)
    metric.update(rows[0], rows[1], indexes=rows[2])
    return metric


def agree(name: str, found: object, expected: object) -> None:
    """Raise a RuntimeError where results differ."""
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    if not all(torch.allclose(one, other, atol=1e-5) for one, other in pairs):
        raise RuntimeError(f"{name} differs from TorchMetrics': {found} and {expected}.")


def retrieval(scale: Scale, results: Results) -> None:
    """Compute of each class beside TorchMetrics', of rows in the order of queries, and in none."""
    shape = scale.of((2_000, 100))
    rows = make_rows(*shape)
    order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(1))
    for name in ours.__all__:
        if not name.startswith("Retrieval"):
            continue
        mine, theirs = (filled(package, name, rows) for package in (ours, peer))
        mixed = filled(ours, name, tuple(each[order] for each in rows))
        work: Work = {"ours": mine.compute, "mixed": mixed.compute}
        if name == SLOW:
            start = time.perf_counter()
            expected = theirs.compute()
            took = (time.perf_counter() - start) * 1e3
        else:
            work["theirs"], expected = theirs.compute, theirs.compute()
        agree(name, mine.compute(), expected)
        agree(name, mixed.compute(), expected)
        times = interleaved(work, scale.effort)
        if name == SLOW:
            ratio, beside = took / times.median("ours"), f"TorchMetrics, once: {ms(took)}"
        else:
            ratio, beside = times.ratio("theirs", "ours"), f"TorchMetrics {ms(times.median('theirs'))}"
        results.aim(
            f"Compute of `{name}`, {show(shape)}",
            ratio,
            "×",
            least=300 if name == SLOW else 20,
            ours=f"{ms(times.median('ours'))}; rows in no order {ms(times.median('mixed'))}",
            peer=beside,
        )
        print(f"  {name:32} {ratio:8.1f}×  {results.bars[-1].ours}, {beside}")
