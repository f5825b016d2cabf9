"""A record of a batch of queries, and the reading of what it is made of: truth, exclusions, weights.

The only validation of inputs is here and in the records. Shapes and types raise at once; what only the data can show
(NaN scores, ids out of range, repeats) is counted on the device, and read where the device is read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf, prod
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_topk.inputs import FAULTS, Array, Cutoffs, as_tensor, raise_faults, require_integer
from torch_topk.kernels import sum_dtype
from torch_topk.relevance import Relevance

MANY = 1 << 13
"""Entries of a table that is not worth keeping, or of sums that are sooner read off one cumulative sum."""
_MOST_KEPT = 64
_kept: dict[object, Tensor] = {}  # tables that hold nothing of a batch, on the CPU


class Record:
    """What metrics read of a batch of queries; `Ranking` and RankCounts are the two there are.

    Attributes:
        weights: ``(Q,)``: what each query counts; 0 for one that counts nowhere.
        weighted: Whether a weight may be other than 1.
        shape: The leading shape that the queries had.
        faults: Counts of queries with a fault (see FAULTS), each a 0-dimensional tensor on the device.
    """

    ties: str | None

    def __init__(
        self,
        queries: int,
        device: torch.device,
        weights: Tensor | None,
        shape: tuple[int, ...],
        faults: dict[str, Tensor],
    ) -> None:
        self.weighted = weights is not None
        self.weights = torch.ones(queries, dtype=sum_dtype(device), device=device) if weights is None else weights
        self.shape, self.faults, self.device = shape, faults, device
        self._tables: dict[object, Tensor] = {}

    @property
    def samples(self) -> int:
        """The size of the leading dimension: how many samples of a data set these queries belong to."""
        return self.shape[0] if self.shape else 1

    def check(self) -> None:
        """Raise an InputError if the data hold a fault. Reads the device."""
        raise_faults(self.fault_counts().tolist(), type(self).__name__)

    def fault_counts(self, more: Mapping[str, Tensor] = MappingProxyType({})) -> Tensor:
        """Count the queries with each fault of FAULTS, and of a metric's own, in that order: ``(len(FAULTS),)``."""
        none, counts = self.weights.new_zeros(()), dict(self.faults)
        for name, count in more.items():  # of two that see the same fault, the most
            counts[name] = torch.maximum(counts[name], count) if name in counts else count
        return torch.stack([counts[name].to(none.dtype) if name in counts else none for name in FAULTS])

    def _once(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        if key not in self._tables:
            self._tables[key] = make()
        return self._tables[key]

    def _always(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        """A table that holds nothing of the batch, kept for the next one where it is small and plain memory.

        On a GPU it may belong to a graph that is being captured, and under a compiler or on fake tensors to a trace.
        """
        if not self.weights.is_cpu or type(self.weights) is not Tensor or torch.compiler.is_compiling():
            return self._once(key, make)
        table = _kept.get(key)
        if table is None:
            with torch.inference_mode(mode=False):
                table = self._once(key, make)
            if table.numel() <= MANY:
                if len(_kept) >= _MOST_KEPT:
                    _kept.clear()
                _kept[key] = table
        return table

    def ones(self) -> Tensor:
        """1 a query, ``(Q, 1)``."""
        return self._once("ones", lambda: (torch.ones_like(self.weights) if self.weighted else self.weights)[:, None])

    @staticmethod
    def _numbers(like: Tensor, numbers: Iterable[int | None]) -> Tensor:
        """Numbers as a tensor, by kernels' arguments: a list would be copied from the host."""
        # Not made from the batch, whose tensors may be wrapped, as under vmap: some of these are kept.
        dtype, device = like.dtype, like.device
        return torch.cat(
            [torch.full((1,), number, dtype=dtype, device=device) for number in numbers if number is not None]
        )

    def cutoffs(self, cutoffs: Cutoffs) -> Tensor:
        """The cut-offs as numbers: ``(1, len(cutoffs))``."""
        return self._always(("cutoffs", cutoffs), lambda: self._numbers(self.weights, cutoffs)[None, :])


def read_target(  # noqa: C901 - one form of truth after the other
    target: Any, preds: Tensor, ids_of: Tensor | None, ignore_index: int | None, *, lists_given: bool = False
) -> tuple[Relevance, Tensor | None, Tensor | None]:
    """The truth; which queries count (None: all); which columns are no candidates (None: all are)."""
    shape, columns, device = tuple(preds.shape[:-1]), preds.shape[-1], preds.device
    queries = prod(shape)
    given = "ranked" if lists_given else "scores"
    if not isinstance(target, (Relevance, np.ndarray, np.generic)) and is_sparse(target):
        target = Relevance.from_sparse(target)
    if isinstance(target, Relevance):
        if target.num_queries != queries:
            raise ValueError(
                f"target holds {target.num_queries} queries, but {given} of shape {tuple(preds.shape)} hold {queries}."
            )
        if target.device != device:
            raise ValueError(f"target is on {target.device}, but the {given} are on {device}; move it there first.")
        if not lists_given and ids_of is None and target.width is not None and target.width != columns:
            raise ValueError(
                f"target speaks of {target.width} items, but scores of shape {tuple(preds.shape)} of {columns}."
            )
        if ignore_index is None or target.labels is None:
            return target, None, None
        return target.ignoring(ignore_index), target.labels[:, 0] != ignore_index, None
    if target is None:
        raise TypeError("target is missing: give gains, labels, a sparse matrix or a Relevance.")
    truth = as_tensor("target", target, device)
    whole = not truth.is_floating_point() and truth.dtype != torch.bool
    if tuple(truth.shape) == shape and (whole or not shape):
        labels = require_integer("target", truth).reshape(-1)
        return read_target(Relevance.from_labels(labels), preds, ids_of, ignore_index, lists_given=lists_given)
    fits = truth.dim() == len(shape) + 1 and tuple(truth.shape[:-1]) == shape
    if fits and not lists_given and truth.shape[-1] == columns:
        gains, dropped = truth.reshape(queries, columns), None
        if ignore_index is not None and gains.dtype != torch.bool:
            dropped = (gains if gains.is_floating_point() else gains.long()) == ignore_index
            gains = gains.masked_fill(dropped, 0)
        if ids_of is not None:
            return Relevance.from_ids(ids_of, gains), None, dropped
        return Relevance.from_dense(gains), None, dropped
    if fits and lists_given and not whole:
        return Relevance.from_dense(truth.reshape(queries, truth.shape[-1])), None, None
    raise ValueError(_misfit(truth, preds, whole=whole, given=given))


def read_weights(
    weights: Array | None,
    counted: Tensor | None,
    shape: tuple[int, ...],
    device: torch.device,
    faults: dict[str, Tensor] | None,
) -> Tensor | None:
    """What each query counts, ``(Q,)`` (None: 1 each); weights that are none are noted among faults, where wanted."""
    read = None
    if weights is not None:
        read = as_tensor("weights", weights, device)
        if read.shape not in (shape, (prod(shape),)) or read.is_complex():
            raise ValueError(
                f"weights must be a real number a query, of shape {shape}, but are {read.dtype} "
                f"of shape {tuple(read.shape)}."
            )
        read = read.reshape(-1).to(sum_dtype(device))
        if faults is not None:
            faults["weights"] = (~((read >= 0) & (read < torch.inf))).sum()
    if counted is not None:
        read = counted.to(sum_dtype(device)) if read is None else read.masked_fill(~counted, 0)
    return read


def _misfit(truth: Tensor, preds: Tensor, *, whole: bool, given: str) -> str:
    """What to say of a target whose shape does not fit."""
    shape = tuple(preds.shape[:-1])
    msg = f"target of shape {tuple(truth.shape)} ({truth.dtype}) does not fit {given} of shape {tuple(preds.shape)}."
    if whole and truth.dim() == preds.dim() and truth.shape[-1] == 1:
        return f"{msg} If it holds one label a query, pass target.squeeze({truth.dim() - 1})."
    if whole and truth.dim() == preds.dim() and (given == "ranked" or truth.shape[-1] != preds.shape[-1]):
        grades = "" if given == "scores" else " If it holds a grade for every item, pass Relevance.from_dense(target)."
        return f"{msg} If it holds ids of relevant items, pass Relevance.from_ids(target).{grades}"
    wanted = f"integer labels of shape {shape}" if shape else "one integer label"
    gains = f"gains of shape {tuple(preds.shape)}" if given == "scores" else f"gains of shape {(*shape, 'N')}"
    return f"{msg} Expected {gains}, {wanted}, a sparse matrix, or a Relevance."


def is_sparse(value: object) -> bool:
    """Whether it is a sparse matrix of torch or SciPy."""
    if isinstance(value, Tensor):
        return value.layout != torch.strided
    return hasattr(value, "tocoo")


def read_items(items: Array, shape: tuple[int, ...], queries: int, columns: int, device: torch.device) -> Tensor:
    """The item id of each column of each query, int64 ``(Q, C)``."""
    ids = require_integer("items", as_tensor("items", items, device))
    if ids.shape not in ((columns,), (*shape, columns)):
        raise ValueError(
            f"items must have shape {(columns,)} or {(*shape, columns)}, as the scores, but has {tuple(ids.shape)}."
        )
    return ids.reshape(prod(ids.shape[:-1]), columns).expand(queries, columns)


def nan_last(scores: Tensor) -> Tensor:
    """NaN made the least number there is, which is above minus infinity: still a candidate, in the last place."""
    if not scores.is_floating_point():
        return scores
    return scores.nan_to_num(torch.finfo(scores.dtype).min, inf, -inf)


def identity(tensor: Tensor) -> Tensor:
    """The tensor itself: with `partial`, a function that gives it, and that can be pickled."""
    return tensor
