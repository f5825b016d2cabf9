"""The classes: TorchMetrics' own, but for what becomes of their rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import torch
import torchmetrics.retrieval as peer
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.checks import _check_retrieval_functional_inputs

from torch_topk.metric import TopKMetric
from torch_topk.metrics import MAP, MRR, NDCG, HitRate, Precision, Recall, RPrecision
from torch_topk.ranking import Ranking
from torch_topk.retrieval.lists import Lists, joined, numbers, read_lists

_Made = TypeVar("_Made", bound=Metric)
Aggregation: TypeAlias = Literal["mean", "median", "min", "max"] | Callable[..., Any]


def _aggregate(values: Tensor, aggregation: Aggregation, dim: int | None) -> Tensor:
    """One value of those of all queries, ``(Q,)`` with ``dim=None``, or ``(Q, W)`` with ``dim=0``."""
    if callable(aggregation):
        return torch.as_tensor(aggregation(values, dim=dim))
    if aggregation == "median":
        return values.median(0).values
    if aggregation == "mean":
        return values.mean(0)
    return values.amin(0) if aggregation == "min" else values.amax(0)


# What all classes share.


class _Retrieval(Metric):
    """The rows that TorchMetrics' classes keep, and what becomes of them; the base to the left of one of these."""

    if TYPE_CHECKING:  # torch.jit reads annotations of a class, and not as strings
        indexes: list[Tensor]
        preds: list[Tensor]
        target: list[Tensor]
        empty_target_action: str
        ignore_index: int | None
        aggregation: Aggregation
    graded = False
    lacks = "positive"
    """Which targets an empty query is without."""

    @abstractmethod
    def read(self, lists: Lists) -> Tensor:
        """Return the values of each query, ``(Q, C)``; 0 for an empty one."""

    def add_state(self, name: str, default: Any, dist_reduce_fx: Any = None, persistent: bool = False) -> None:  # noqa: FBT001, FBT002 - TorchMetrics' signature
        """Register a list of tensors, which ranks concatenate."""
        # TorchMetrics gathers list by list, which needs the same number of batches on every rank.
        del dist_reduce_fx
        super().add_state(name, default, "cat", persistent)
        if name == "target":
            # TorchMetrics lets metrics of a collection share their state where names and first values are the same.
            ignored = str(self.ignore_index).replace("-", "minus_")
            super().add_state(f"{'graded' if self.graded else 'binary'}_ignoring_{ignored}", [], None, persistent)

    def update(self, preds: Tensor, target: Tensor, indexes: Tensor) -> None:
        """Keep a batch of rows.

        Args:
            preds: ``(N, ...)`` floating-point scores.
            target: ``(N, ...)`` bool, integer or floating-point: 1 for a relevant document, 0 for another.
            indexes: ``(N, ...)`` int64: the query of each row.

        Raises:
            ValueError: For shapes that differ, other types, targets that are not binary, and a batch without rows.
        """
        super().update(preds, target, indexes)  # type: ignore[safe-super]
        # Copies: a caller may fill a buffer anew. All ranks must hold one type for targets, whatever each was given.
        self.indexes[-1], self.preds[-1] = self.indexes[-1].clone(), self.preds[-1].clone()
        self.target[-1] = self.target[-1].to(torch.float32, copy=True) if self.graded else self.target[-1] > 0

    def compute(self) -> Any:
        """Return the aggregate of all queries' values: a scalar of the type of the scores.

        Raises:
            ValueError: With ``empty_target_action="error"`` where a query is empty, and where there is no row at all.
            InputError: For a NaN score.
        """
        values = self._counted()
        return _aggregate(values[:, 0], self.aggregation, None).to(values) if len(values) else values.new_zeros(())

    def _counted(self) -> Tensor:
        """The values of all queries that count, ``(Q, C)``."""
        name = type(self).__name__
        if not len(self.indexes):
            raise ValueError(f"{name} holds no rows: update it before compute().")
        indexes, scores, gains = (joined(part) for part in (self.indexes, self.preds, self.target))
        lists = read_lists(indexes, numbers(scores, name), ~gains if self.lacks == "negative" else gains)
        places, values, empty = [], [], []
        for which, block in lists:
            places.append(which)
            values.append(self.read(block).to(scores.dtype))
            if self.empty_target_action != "neg":  # which their values are already
                empty.append(block.without())
        found, place = joined(values), joined(places)
        back = place.argsort() if bool((place[1:] < place[:-1]).any()) else None  # lists of like length come together
        found = found if back is None else found[back]
        if not empty:
            return found
        without = joined(empty) if back is None else joined(empty)[back]
        if self.empty_target_action == "error" and bool(without.any()):
            raise ValueError(
                f"`compute` method was provided with a query with no {self.lacks} target. {name}: "
                f"{int(without.sum())} of {len(without)} queries have none; give them another value with "
                "empty_target_action='neg' or 'pos', or leave them out with 'skip'."
            )
        if self.empty_target_action == "pos":
            found = found.masked_fill(without, 1.0)
        return found[~without[:, 0]] if self.empty_target_action == "skip" else found

    def of_one(self, preds: Tensor, target: Tensor) -> Tensor:
        """The values of one query, ``(C,)``: what the functions return."""
        preds, target = _check_retrieval_functional_inputs(preds, target, allow_non_binary_target=self.graded)
        scores = numbers(preds.detach()[None], type(self).__name__)
        gains = target.float() if self.graded else (target > 0) ^ (self.lacks == "negative")
        return self.read(Lists.of(scores, gains[None], len(preds)))[0].to(preds.dtype)

    def merge_state(self, incoming_state: Mapping[str, Any] | Metric) -> None:
        """Add the rows of another metric of the same class and ``ignore_index``, or its ``metric_state``.

        Raises:
            ValueError: If the other is of another class, or ignores another target.
        """
        state: Any = incoming_state.metric_state if isinstance(incoming_state, Metric) else incoming_state
        stranger = isinstance(incoming_state, Metric) and not isinstance(incoming_state, type(self))
        if stranger or not set(self._defaults) <= set(state):
            raise ValueError(
                f"The state to merge is not that of a {type(self).__name__} with ignore_index={self.ignore_index}."
            )
        for name in self._defaults:
            parts = [each if isinstance(each, list) else [each] for each in (getattr(self, name), state[name])]
            setattr(self, name, [*parts[0], *parts[1]])
        self._update_count += incoming_state.update_count if isinstance(incoming_state, Metric) else 1
        self._computed = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._update_count = max(self._update_count, len(self.indexes))
        self._computed = None

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        if not len(self.indexes):  # the types that other ranks send
            graded = torch.float32 if self.graded else torch.bool
            types = {"indexes": torch.int64, "preds": torch.float32, "target": graded}
            for name, dtype in types.items():
                setattr(self, name, [torch.empty(0, dtype=dtype, device=self.device)])
        super()._sync_dist(*args, **kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        # Moving to a device keeps the types of rows, whatever .to(torch.bfloat16) says.
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, exclude_state)


class _ByMetric(_Retrieval):
    """A class whose values are those of one of this package's metrics."""

    @abstractmethod
    def reader(self) -> TopKMetric:
        """Make the metric."""

    def read(self, lists: Lists) -> Tensor:
        """Return the metric's values."""
        metric = self.reader()
        if metric.policies.ties == "expected":
            return lists.over_orders(metric.per_query)
        return metric.per_query(lists.ranking(metric.depth))


@lru_cache(maxsize=256, typed=True)
def _make(cls: type[Metric], **options: Any) -> Metric:
    return cls(**options)


def made(cls: type[_Made], **options: Any) -> _Made:
    """A metric that is only read by, and never updated: making one takes longer than reading a list."""
    return cast("_Made", _make(cls, **options))


def _require_cutoff(top_k: object) -> None:
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"`top_k` has to be a positive integer or None, but is {top_k!r}.")


# The classes.


class RetrievalMAP(_ByMetric, peer.RetrievalMAP):
    """Mean average precision: `torch_topk.MAP` with ``denominator="hits"``.

    Args:
        empty_target_action: What a query without a relevant document counts: 0 ("neg"), 1 ("pos"), nothing ("skip"), or
            a ValueError ("error").
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        aggregation: "mean", "median", "min" or "max" over queries, or a function of the values ``(Q,)`` and ``dim``.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    References:
        Voorhees & Harman, TREC, 2005; TorchMetrics for the denominator.

    Example:
        >>> metric = RetrievalMAP()
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.8333)
    """

    def __init__(
        self,
        empty_target_action: str = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        _require_cutoff(top_k)
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(MAP, k=self.k, denominator="hits")


class RetrievalMRR(_ByMetric, peer.RetrievalMRR):
    """Mean reciprocal rank of the first relevant document: `torch_topk.MRR`.

    Args:
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    References:
        Voorhees, The TREC-8 question answering track report, 1999.

    Example:
        >>> metric = RetrievalMRR()
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 0, 1]), indexes=torch.tensor([4, 4, 7]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def __init__(
        self,
        empty_target_action: str = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        _require_cutoff(top_k)
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(MRR, k=self.top_k)


class RetrievalPrecision(_ByMetric, peer.RetrievalPrecision):
    """Share of the first k places that hold a relevant document: `torch_topk.Precision`.

    Args:
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        adaptive_k: Whether a list shorter than k is divided by its own length.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    Example:
        >>> metric = RetrievalPrecision(top_k=4)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(Precision, k=self.top_k, denominator="retrieved" if self.adaptive_k else "k")


class RetrievalRecall(_ByMetric, peer.RetrievalRecall):
    """Share of the relevant documents that stand among the first k: `torch_topk.Recall`.

    Args:
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    Example:
        >>> metric = RetrievalRecall(top_k=2)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(Recall, k=self.top_k)


class RetrievalHitRate(_ByMetric, peer.RetrievalHitRate):
    """Share of the queries with a relevant document among the first k: `torch_topk.HitRate`.

    Args:
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    Example:
        >>> metric = RetrievalHitRate(top_k=1)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(1.)
    """

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(HitRate, k=self.top_k)


class RetrievalFallOut(_ByMetric, peer.RetrievalFallOut):
    """Share of the documents that are not relevant that stand among the first k: their `torch_topk.Recall`.

    Args:
        empty_target_action: What a query of which every document is relevant counts, as in `RetrievalMAP`; the default
            is 1 ("pos").
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], lower is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    References:
        Manning, Raghavan & Schütze, Introduction to information retrieval, 2008, section 8.4.

    Example:
        >>> metric = RetrievalFallOut(top_k=2)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 0]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.5000)
    """

    lacks = "negative"

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(Recall, k=self.top_k)


class RetrievalNormalizedDCG(_ByMetric, peer.RetrievalNormalizedDCG):
    """Normalised discounted cumulative gain, of the mean over the orders of equal scores: `torch_topk.NDCG`.

    Targets are grades, which are what a document is worth; below 0 it is worth nothing.

    Args:
        empty_target_action: What a query without a grade above 0 counts, as in `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    References:
        Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002; McSherry & Najork 2008 (ties).

    Example:
        >>> metric = RetrievalNormalizedDCG()
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 3, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.6590)
    """

    graded = True

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(NDCG, k=self.top_k, ties="expected")


class RetrievalRPrecision(_ByMetric, peer.RetrievalRPrecision):
    """Share of the first R places, R the number of relevant documents, that hold one: `torch_topk.RPrecision`.

    Args:
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    References:
        Manning, Raghavan & Schütze, Introduction to information retrieval, 2008, section 8.4.

    Example:
        >>> metric = RetrievalRPrecision()
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def reader(self) -> TopKMetric:
        """Return the package's metric."""
        return made(RPrecision)


class RetrievalAUROC(_Retrieval, peer.RetrievalAUROC):
    r"""Area under the receiver operating characteristic of each query's first k documents.

    .. math:: AUC = \frac{|\{(p, n) : s_p > s_n\}| + \frac{1}{2} |\{(p, n) : s_p = s_n\}|}{P \cdot N}

    over pairs of one of P relevant documents and one of N others; 0 where there is no such pair.

    Args:
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        top_k: The cut-off; None for the whole list.
        max_fpr: The false positive rate up to which the area is taken, above 0 and at most 1; it is then scaled so that
            chance has 0.5 and the best order 1. None: all of it.
        aggregation: See `RetrievalMAP`.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        A float32 scalar in [0, 1], higher is better; 0 where every query is skipped.

    Raises:
        ValueError: For options that are none of these.

    References:
        Mann & Whitney 1947; Hanley & McNeil 1982; McClish, Analyzing a portion of the ROC curve, 1989.

    Example:
        >>> metric = RetrievalAUROC()
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 1, 0]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def __init__(
        self,
        empty_target_action: Literal["error", "skip", "neg", "pos"] = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        max_fpr: float | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        if max_fpr is not None and not (isinstance(max_fpr, float) and 0 < max_fpr <= 1):
            raise ValueError(f"`max_fpr` has to be a float above 0 and at most 1, or None, but is {max_fpr!r}.")
        super().__init__(empty_target_action, ignore_index, top_k, max_fpr, aggregation, **kwargs)

    def read(self, lists: Lists) -> Tensor:
        """Return the areas."""
        return lists.first(self.top_k).over_orders(self.area)

    def area(self, ranking: Ranking) -> Tensor:
        """The area under the line through the ends of groups of equal scores, ``(Q, 1)``."""
        hits = ranking.hits()  # of each rank the share of relevant documents in its group
        others = (ranking.ids >= 0).to(hits) - hits
        positives, negatives = hits.sum(1, keepdim=True), others.sum(1, keepdim=True)
        above, width = hits.cumsum(1) - hits, others
        if self.max_fpr is not None:  # the rank at which the rate is reached counts in part
            left = self.max_fpr * negatives - (others.cumsum(1) - others)
            width = left.clamp(min=0).minimum(others)
            hits = hits * width / others.where(others > 0, 1.0)
        pairs = positives * negatives
        area = (width * (above + hits / 2)).sum(1, keepdim=True) / pairs.where(pairs > 0, 1.0)
        if self.max_fpr is not None and self.max_fpr < 1:
            chance = self.max_fpr**2 / 2
            area = (1 + (area - chance) / (self.max_fpr - chance)) / 2
        return area.where(pairs > 0, 0.0)


class RetrievalPrecisionRecallCurve(_Retrieval, peer.RetrievalPrecisionRecallCurve):
    """Precision and recall at each k from 1 to ``max_k``.

    Args:
        max_k: The largest k; None for the length of the longest list.
        adaptive_k: Whether precision in a list shorter than k is divided by its own length.
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        aggregation: See `RetrievalMAP`; a function has the values ``(Q, max_k)`` and ``dim=0``.
        kwargs: TorchMetrics' own keyword arguments.

    Returns:
        Precision and recall, float32 ``(max_k,)`` in [0, 1], and k, int64 ``(max_k,)``.

    Raises:
        ValueError: For options that are none of these.

    Example:
        >>> metric = RetrievalPrecisionRecallCurve(max_k=2)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        (tensor([1.0000, 0.5000]), tensor([0.5000, 0.5000]), tensor([1, 2]))
    """

    def read(self, lists: Lists) -> Tensor:
        """Return the precision at each k, and behind it the recall."""
        most = self.max_k or lists.longest
        ranking = lists.ranking(most)
        exact = torch.promote_types(lists.scores.dtype, torch.float32)  # which holds the counts of a list
        found, shown = (each.to(exact) for each in (ranking.cumulative_hits(), ranking.ranks(most)))
        if found.shape[1] < most:
            found = torch.cat([found, found[:, -1:].expand(-1, most - found.shape[1])], dim=1)
        if self.adaptive_k:
            shown = shown.minimum((lists.ids >= 0).sum(1, keepdim=True).to(exact))
        both = found.new_empty((len(found), 2, most))
        torch.div(found, shown, out=both[:, 0])
        torch.div(found, ranking.num_relevant().clamp(min=1).to(found), out=both[:, 1])
        return both.flatten(1)

    def compute(self) -> Any:
        """Return precision, recall and k, ``(max_k,)`` each; it raises what `RetrievalMAP` does."""
        values = self._counted()
        both = _aggregate(values, self.aggregation, 0).to(values) if len(values) else values.new_zeros(values.shape[1])
        precision, recall = both.chunk(2)
        return precision, recall, torch.arange(1, len(recall) + 1, device=recall.device)


class RetrievalRecallAtFixedPrecision(RetrievalPrecisionRecallCurve, peer.RetrievalRecallAtFixedPrecision):
    """The highest recall at a k whose precision is at least ``min_precision``, both over all queries, and that k.

    Args:
        min_precision: A float from 0 to 1.
        max_k: The largest k; None for the length of the longest list.
        adaptive_k: See `RetrievalPrecisionRecallCurve`.
        empty_target_action: See `RetrievalMAP`.
        ignore_index: Rows with this target are left out.
        kwargs: ``aggregation``, and TorchMetrics' own keyword arguments.

    Returns:
        The recall, a float32 scalar in [0, 1], higher is better, and the largest k that has it, an int64 scalar; where
        none has a recall above 0, 0 and the largest k of all.

    Raises:
        ValueError: For options that are none of these.

    Example:
        >>> metric = RetrievalRecallAtFixedPrecision(min_precision=0.6)
        >>> metric.update(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([1, 0, 1]), indexes=torch.tensor([4, 4, 4]))
        >>> metric.compute()
        (tensor(1.), tensor(3))
    """

    def compute(self) -> Any:
        """Return the recall and its k; it raises what `RetrievalMAP` does."""
        precision, recall, cutoffs = super().compute()
        allowed = recall.where(precision >= self.min_precision, 0.0)
        best = allowed.max()
        return best, cutoffs.where((allowed == best) | (best == 0), 0).max()
