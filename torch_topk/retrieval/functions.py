"""The functions, of one query: each reads it by its class."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_topk.retrieval.classes import (
    RetrievalAUROC,
    RetrievalFallOut,
    RetrievalHitRate,
    RetrievalMAP,
    RetrievalMRR,
    RetrievalNormalizedDCG,
    RetrievalPrecision,
    RetrievalPrecisionRecallCurve,
    RetrievalRecall,
    RetrievalRPrecision,
    made,
)


def retrieval_average_precision(preds: Tensor, target: Tensor, top_k: int | None = None) -> Tensor:
    """Average precision of one query: `RetrievalMAP`.

    Args:
        preds: ``(N, ...)`` floating-point scores.
        target: The same shape, bool, integer or floating-point: 1 for a relevant document, 0 for another.
        top_k: The cut-off; None for the whole list.

    Returns:
        A float32 scalar in [0, 1]; 0 where no document is relevant.

    Raises:
        ValueError: For shapes, types and options that do not fit, targets that are not binary, and NaN scores.

    Example:
        >>> retrieval_average_precision(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]))
        tensor(0.8333)
    """
    return made(RetrievalMAP, top_k=top_k).of_one(preds, target)[0]


def retrieval_reciprocal_rank(preds: Tensor, target: Tensor, top_k: int | None = None) -> Tensor:
    """Reciprocal rank of the first relevant document of one query: `RetrievalMRR`.

    Arguments, result and errors are those of `retrieval_average_precision`.

    Example:
        >>> retrieval_reciprocal_rank(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 1]))
        tensor(0.5000)
    """
    return made(RetrievalMRR, top_k=top_k).of_one(preds, target)[0]


def retrieval_precision(preds: Tensor, target: Tensor, top_k: int | None = None, adaptive_k: bool = False) -> Tensor:  # noqa: FBT001, FBT002 - TorchMetrics' signature
    """Share of the first k places of one query that hold a relevant document: `RetrievalPrecision`.

    Arguments, result and errors are those of `retrieval_average_precision`; with ``adaptive_k`` a list shorter than k
    is divided by its own length.

    Example:
        >>> retrieval_precision(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 1]), top_k=4)
        tensor(0.5000)
    """
    return made(RetrievalPrecision, top_k=top_k, adaptive_k=adaptive_k).of_one(preds, target)[0]


def retrieval_recall(preds: Tensor, target: Tensor, top_k: int | None = None) -> Tensor:
    """Share of the relevant documents of one query that stand among the first k: `RetrievalRecall`.

    Arguments, result and errors are those of `retrieval_average_precision`.

    Example:
        >>> retrieval_recall(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 1]), top_k=2)
        tensor(0.5000)
    """
    return made(RetrievalRecall, top_k=top_k).of_one(preds, target)[0]


def retrieval_hit_rate(preds: Tensor, target: Tensor, top_k: int | None = None) -> Tensor:
    """1 where a relevant document stands among the first k of one query, else 0: `RetrievalHitRate`.

    Arguments, result and errors are those of `retrieval_average_precision`.

    Example:
        >>> retrieval_hit_rate(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 1]), top_k=1)
        tensor(0.)
    """
    return made(RetrievalHitRate, top_k=top_k).of_one(preds, target)[0]


def retrieval_fall_out(preds: Tensor, target: Tensor, top_k: int | None = None) -> Tensor:
    """Share of the documents of one query that are not relevant that stand among the first k: `RetrievalFallOut`.

    Arguments and errors are those of `retrieval_average_precision`; the result is 0 where every document is relevant.

    Example:
        >>> retrieval_fall_out(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 0]), top_k=2)
        tensor(0.5000)
    """
    return made(RetrievalFallOut, top_k=top_k).of_one(preds, target)[0]


def retrieval_normalized_dcg(preds: Tensor, target: Tensor, top_k: int | None = None) -> Tensor:
    """Normalised discounted cumulative gain of one query: `RetrievalNormalizedDCG`.

    Arguments, result and errors are those of `retrieval_average_precision`, but targets are grades.

    Example:
        >>> retrieval_normalized_dcg(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 3, 1]))
        tensor(0.6590)
    """
    return made(RetrievalNormalizedDCG, top_k=top_k).of_one(preds, target)[0]


def retrieval_r_precision(preds: Tensor, target: Tensor) -> Tensor:
    """Share of the first R places of one query, R its relevant documents, that hold one: `RetrievalRPrecision`.

    Arguments, result and errors are those of `retrieval_average_precision`.

    Example:
        >>> retrieval_r_precision(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 1]))
        tensor(0.5000)
    """
    return made(RetrievalRPrecision).of_one(preds, target)[0]


def retrieval_auroc(preds: Tensor, target: Tensor, top_k: int | None = None, max_fpr: float | None = None) -> Tensor:
    """Area under the receiver operating characteristic of one query: `RetrievalAUROC`.

    Arguments, result and errors are those of `retrieval_average_precision`; ``max_fpr`` is that of the class.

    Example:
        >>> retrieval_auroc(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]))
        tensor(0.5000)
    """
    return made(RetrievalAUROC, top_k=top_k, max_fpr=max_fpr).of_one(preds, target)[0]


def retrieval_precision_recall_curve(
    preds: Tensor,
    target: Tensor,
    max_k: int | None = None,
    adaptive_k: bool = False,  # noqa: FBT001, FBT002 - TorchMetrics' signature
) -> tuple[Tensor, Tensor, Tensor]:
    """Precision and recall of one query at each k from 1 to ``max_k``: `RetrievalPrecisionRecallCurve`.

    Arguments and errors are those of `retrieval_average_precision`.

    Returns:
        Precision, recall and k, ``(max_k,)`` each; with ``adaptive_k``, k is at most the length of the list.

    Example:
        >>> retrieval_precision_recall_curve(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), max_k=2)
        (tensor([1.0000, 0.5000]), tensor([0.5000, 0.5000]), tensor([1, 2]))
    """
    values = made(RetrievalPrecisionRecallCurve, max_k=max_k, adaptive_k=adaptive_k).of_one(preds, target)
    precision, recall = values.chunk(2)
    cutoffs = torch.arange(1, len(recall) + 1, device=recall.device)
    return precision, recall, cutoffs.clamp(max=preds.numel()) if adaptive_k else cutoffs
