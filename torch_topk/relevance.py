"""The truth: which items are relevant to each query, and by how much, in whichever storage it came.

A storage answers a handful of questions (`gains_of`, `num_relevant`, `best_gains`, `listed`, `among`,
`keep`, a slice of its rows); nothing else in the package knows which storage it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torch_topk.gain import Gain, is_relevant
from torch_topk.inputs import Array, as_tensor, read_int, require_integer, unravel
from torch_topk.kernels import band, count_columns, count_true, lowest, may_branch, orderable, sum_dtype, top_values

Rows: TypeAlias = slice | Sequence[int] | Array

_NO_ITEM = torch.iinfo(torch.int64).max  # sorts behind every id
_SHORT = 16  # ids of a list that are sooner compared with each id sought than searched
_PAIRS = 512  # of them in a query, so that they take little memory


class Relevance(ABC):
    """The relevant items of each query, and their gains (grades).

    Make one with `from_dense`, `from_ids`, `from_labels`, `from_sparse`, `from_coo` or `from_groups`, and take the rows
    of a batch with ``relevance[rows]``. An item that is listed with gain 0 is judged and not relevant; one that is
    not listed has gain 0. Gains may be negative; they count as not relevant.
    """

    width: int | None
    """The number of items, where the storage fixes it."""

    labels: Tensor | None = None
    """``(Q, 1)``: the one relevant item of each query, where the truth was made from labels."""

    self_ids: Tensor | None = None
    """``(Q,)``: the item that each query is itself, which is no candidate."""

    @staticmethod
    def from_dense(gains: Array) -> Relevance:
        """Truth as a matrix of gains.

        Args:
            gains: ``(..., N)``, bool, integer or floating-point; every leading index is a query.

        Example:
            >>> Relevance.from_dense(torch.tensor([[0, 2, 0, 1]])).num_relevant().tolist()
            [2]
        """
        matrix = _read_gains(gains)
        if matrix.dim() == 0:
            raise ValueError("gains must be (..., N), but are 0-dimensional.")
        return _Dense(matrix.reshape(prod(matrix.shape[:-1]), matrix.shape[-1]))

    @staticmethod
    def from_ids(ids: Array, gains: Array | None = None, padding: int = -1) -> Relevance:
        """Truth as padded lists of item ids.

        Args:
            ids: ``(..., R)`` integer item ids, in any order. An id that stands twice in a list counts once,
                with its largest gain. Lists of uneven lengths may come as a nested tensor, which values and offsets
                make by `torch.nested.nested_tensor_from_jagged`.
            gains: The same shape: what each item is worth; 1 where it is left out.
            padding: The id that stands for nothing.

        Example:
            >>> truth = Relevance.from_ids(torch.tensor([[3, 0], [2, -1]]))
            >>> truth.num_relevant().tolist()
            [2, 1]
        """
        lists = require_integer("ids", as_tensor("ids", unravel(ids, padding)))
        if lists.dim() == 0:
            raise ValueError("ids must be (..., R), lists of item ids, but got a 0-dimensional tensor.")
        worth = None if gains is None else _read_gains(unravel(gains, 0), lists.device)
        if worth is not None and worth.shape != lists.shape:
            raise ValueError(f"gains must have the shape of ids, {tuple(lists.shape)}, but have {tuple(worth.shape)}.")
        lists = lists.reshape(prod(lists.shape[:-1]), lists.shape[-1])
        return _Padded.build(lists, None if worth is None else worth.reshape(lists.shape), padding)

    @staticmethod
    def from_labels(labels: Array) -> Relevance:
        """Truth as one relevant item a query.

        Args:
            labels: ``(Q,)`` integer item ids.

        Example:
            >>> Relevance.from_labels(torch.tensor([3, 0])).num_relevant().tolist()
            [1, 1]
        """
        column = require_integer("labels", as_tensor("labels", labels)).reshape(-1, 1)
        truth = _Padded.build(column, None, None)
        truth.labels = column
        return truth

    @staticmethod
    def from_sparse(matrix: Any) -> Relevance:
        """Truth as a sparse (Q, N) matrix: torch CSR or COO, or any SciPy sparse matrix or array.

        A stored entry is a listed item; an entry stored twice counts once, with its largest gain.
        """
        query, item, gains, (queries, width) = read_sparse("matrix", matrix)
        return _Csr.build(query, item, _read_gains(gains), queries, width)

    @staticmethod
    def from_coo(query: Array, item: Array, gains: Array | None = None, *, num_queries: int) -> Relevance:
        """Truth as (query, item, gain) triples in any order; a pair that stands twice counts once.

        Make it once for a data set, and take the rows of each batch: making it reads the device.

        Args:
            query: ``(P,)`` integers in 0..num_queries - 1.
            item: ``(P,)`` integer item ids.
            gains: ``(P,)``; 1 where it is left out. Of a pair that stands twice the largest counts.
            num_queries: Q. Queries without a pair have no relevant item.

        Example:
            >>> Relevance.from_coo(torch.tensor([1, 1]), torch.tensor([4, 2]), num_queries=2)[[1]]
            Relevance(num_queries=1)
        """
        rows = require_integer("query", as_tensor("query", query))
        items = require_integer("item", as_tensor("item", item, rows.device))
        worth = None if gains is None else _read_gains(gains, rows.device)
        shapes = {tuple(part.shape) for part in (rows, items, worth) if part is not None}
        if len(shapes) != 1 or rows.dim() != 1:
            raise ValueError(f"query, item and gains must be 1-D and of one length, but have shapes {sorted(shapes)}.")
        read_int("num_queries", num_queries, 0)
        if rows.device.type != "meta":
            stray = (rows < 0) | (rows >= num_queries)
            if bool(stray.any()):
                limits = f"0..{num_queries - 1} (num_queries={num_queries})"
                raise ValueError(f"query must lie in {limits}, but one is {rows[stray][0]}.")
        return _Csr.build(rows, items, worth, num_queries, None)

    @staticmethod
    def from_groups(query_group: Array, item_group: Array, self_ids: Array | None = None) -> Relevance:
        """Truth by groups: an item is relevant to the queries of its own group.

        For metric learning, where a group is a class and each item queries the others; for captions of images, where it
        is the image. Nothing of the size Q × N is made, but where scores are ranked by gain or truth is restricted to
        candidates.

        Args:
            query_group: ``(Q,)`` integers: the group of each query.
            item_group: ``(N,)`` integers: the group of each item.
            self_ids: ``(Q,)``: the item that each query is itself, -1 for none: it is neither truth nor a candidate.

        Example:
            >>> classes = torch.tensor([5, 5, 8])
            >>> Relevance.from_groups(classes, classes, self_ids=torch.arange(3)).num_relevant().tolist()
            [1, 1, 0]
        """
        queries = require_integer("query_group", as_tensor("query_group", query_group))
        items = require_integer("item_group", as_tensor("item_group", item_group, queries.device))
        own = None if self_ids is None else require_integer("self_ids", as_tensor("self_ids", self_ids, queries.device))
        if queries.dim() != 1 or items.dim() != 1 or (own is not None and own.shape != queries.shape):
            shapes = [tuple(part.shape) for part in (queries, items, own) if part is not None]
            raise ValueError(f"query_group must be (Q,), item_group (N,) and self_ids (Q,), but have shapes {shapes}.")
        return _Groups(queries, items, own)

    @staticmethod
    def of_rows(query: Tensor, gains: Tensor, num_queries: int) -> Relevance:
        """Truth of rows that each have a query and a gain: item p is row p; query Q stands for none. No host read."""
        return _Csr.build(
            query, torch.arange(len(query), device=query.device), _read_gains(gains), num_queries, len(query)
        )

    @property
    @abstractmethod
    def num_queries(self) -> int:
        """The number of queries; under a compiler a symbol, which ``len()`` would make a constant."""

    def __len__(self) -> int:
        """Return the number of queries."""
        return self.num_queries

    @abstractmethod
    def __getitem__(self, rows: Rows) -> Relevance:
        """Return the truth of some queries, in the order given: a slice, indices, or a bool mask of rows."""

    def __repr__(self) -> str:
        return f"Relevance(num_queries={self.num_queries})"

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device the truth is stored on."""

    @abstractmethod
    def gains_of(self, ids: Tensor) -> Tensor:
        """Return the gains ``(Q, K)`` of item ids ``(Q, K)`` in their own type; 0 for one not listed, and for -1."""

    @abstractmethod
    def num_relevant(self, min_relevance: float | None = None) -> Tensor:
        """Count the relevant items of each query: int64 ``(Q,)``."""

    @abstractmethod
    def num_refused(self, min_relevance: float | None = None) -> Tensor:
        """Count the items of each query that were judged, with a gain of at least 0, and are not relevant: ``(Q,)``."""

    def judged(self, ids: Tensor) -> Tensor:
        """Tell which item ids ``(Q, K)`` are listed with a gain of at least 0: bool ``(Q, K)``."""
        return self.contains(ids) & (self.gains_of(ids) >= 0)

    @abstractmethod
    def tally(self, into: Tensor, counted: Tensor, min_relevance: float | None = None) -> None:
        """Add to each item's count ``(N,)``, in place, the counted queries (bool ``(Q,)``) to which it is relevant."""

    @abstractmethod
    def best_gains(self, k: int | None, gain: Gain) -> Tensor:
        """Return the k largest worths of each query, descending: ``(Q, W)``, W <= k, padded with 0."""

    def ignoring(self, label: int) -> Relevance:
        """Return the truth without the labels of one value; truth that was not made from labels stays as it is."""
        del label
        return self

    @abstractmethod
    def to(self, device: torch.device | str) -> Relevance:
        """Return the truth on another device."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """A bound on the number of items that a query lists, known on the host; None for dense truth."""

    @abstractmethod
    def padded(self, num_items: int) -> Tensor:
        """Return the listed ids below ``num_items``, ``(Q, longest)``, padded with ``num_items``; none of dense."""

    def pairs(self, num_items: int) -> tuple[Tensor, Tensor]:
        """Return the query and the item of each listed pair, once; the item is ``num_items`` where there is none."""
        items = self.padded(num_items)
        query = torch.arange(items.shape[0], device=items.device)[:, None].expand_as(items)
        return query.reshape(-1), items.reshape(-1)

    @abstractmethod
    def contains(self, ids: Tensor) -> Tensor:
        """Tell which item ids ``(Q, K)`` are listed (in dense truth: whose gain is not 0): bool ``(Q, K)``."""

    @abstractmethod
    def listed(self, num_items: int) -> Tensor:
        """Mark the listed items (in dense truth: the gains that are not 0): bool ``(Q, num_items)``."""

    def laid_out(self, num_items: int) -> Tensor:
        """Return the gain of each item, of truth that lists none: ``(Q, num_items)``."""
        return self.listed(num_items)

    @abstractmethod
    def among(self, scores: Tensor) -> Relevance:
        """Return the truth restricted to candidates: where scores ``(Q, N)`` are above the lowest value."""

    @abstractmethod
    def keep(self, item_mask: Array) -> Relevance:
        """Return the truth restricted to the items where ``item_mask`` ``(N,)`` is True.

        Items beyond the mask's end are dropped. With it, recall over the tail is
        ``recall(scores, truth.keep(is_tail)[rows])``: keep once, then take rows.
        """

    @abstractmethod
    def num_faulty(self, num_items: int | None) -> Tensor:
        """Count the queries that list an id below 0 or beyond ``num_items``; no host read."""

    @abstractmethod
    def infinite_gains(self) -> Tensor | None:
        """Count the queries that hold a NaN or infinite gain, without a host read; None where there can be none."""


def read_sparse(name: str, matrix: Any) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """The row, column and value of each stored entry of a sparse matrix, and its shape."""
    if isinstance(matrix, Tensor) and matrix.layout == torch.sparse_csr:
        starts, column, values = matrix.crow_indices(), matrix.col_indices(), matrix.values()
        counts = starts.diff()
        row = torch.arange(len(counts), device=counts.device)
        row = row.repeat_interleave(counts, output_size=column.shape[0])
    elif isinstance(matrix, Tensor) and matrix.layout == torch.sparse_coo:
        # As stored: coalescing would add up the values of repeats.
        (row, column), values = matrix._indices(), matrix._values()  # noqa: SLF001
    elif hasattr(matrix, "tocoo"):
        coo = matrix.tocoo()
        row, column, values = (as_tensor(name, part) for part in (coo.row, coo.col, coo.data))
    else:
        layout = matrix.layout if isinstance(matrix, Tensor) else type(matrix).__name__
        raise TypeError(f"{name} must be a torch CSR or COO tensor, or a SciPy sparse matrix, but is {layout}.")
    if len(matrix.shape) != 2:
        raise ValueError(f"{name} must be (Q, N), but has shape {tuple(matrix.shape)}.")
    queries, width = (int(size) for size in matrix.shape)
    return row.long(), column.long(), values, (queries, width)


def _refused(gains: Tensor, min_relevance: float | None) -> Tensor:
    """Where an item was judged not relevant."""
    return ~is_relevant(gains, min_relevance) & (gains >= 0)


def _read_gains(gains: Array, device: torch.device | None = None) -> Tensor:
    """Gains in a type that every kernel takes; only unsigned integers are copied, and bool stays what it is."""
    read = as_tensor("gains", gains, device)
    return read if read.dtype == torch.bool else orderable(read, "gains")


def _item_mask(mask: Array, device: torch.device) -> Tensor:
    mask = as_tensor("item_mask", mask, device)
    if mask.dtype != torch.bool or mask.dim() != 1:
        raise ValueError(f"item_mask must be bool and (N,), but is {mask.dtype} of shape {tuple(mask.shape)}.")
    return mask


def as_mask(gains: Tensor) -> Tensor:
    """Which gains list an item: those that are not 0."""
    return gains if gains.dtype == torch.bool else gains != 0


def _lookup(table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Clamp ids to a table of that many places: safe places, and which ids were in range."""
    return ids.clamp(0, max(table.shape[-1] - 1, 0)), (ids >= 0) & (ids < table.shape[-1])


def _row_index(rows: Rows, device: torch.device) -> slice | Tensor:
    if isinstance(rows, slice):
        return rows
    index = torch.as_tensor(rows, device=device)
    if index.shape == (0,):  # of an empty list torch makes floating-point numbers
        index = index.long()
    if index.dim() != 1 or index.is_floating_point():
        raise TypeError(
            f"rows must be a slice, a 1-D bool mask or 1-D indices, but are {index.dtype} {tuple(index.shape)}."
        )
    return index if index.dtype == torch.bool else index.long()


class _Dense(Relevance):
    """A matrix of gains, one column an item."""

    def __init__(self, gains: Tensor) -> None:
        self.gains = gains
        self._counted: Tensor | None = None
        self.is_mask = gains.dtype == torch.bool
        self.width = gains.shape[1]

    @property
    def num_queries(self) -> int:
        return self.gains.shape[0]

    def __getitem__(self, rows: Rows) -> Relevance:
        return _Dense(self.gains[_row_index(rows, self.device)])

    @property
    def device(self) -> torch.device:
        return self.gains.device

    def gains_of(self, ids: Tensor) -> Tensor:
        if self.gains.shape[1] == 0:
            return torch.zeros_like(ids, dtype=self.gains.dtype)
        places, inside = _lookup(self.gains, ids)
        return self.gains.gather(1, places).masked_fill(~inside, 0)

    def num_relevant(self, min_relevance: float | None = None) -> Tensor:
        if self.is_mask and (min_relevance is None or min_relevance <= 1):
            return self._count()
        return count_true(is_relevant(self.gains, min_relevance))

    def num_refused(self, min_relevance: float | None = None) -> Tensor:
        return count_true(_refused(self.gains, min_relevance))

    def judged(self, ids: Tensor) -> Tensor:
        return (ids >= 0) & (ids < self.gains.shape[1]) & (self.gains_of(ids) >= 0)

    def tally(self, into: Tensor, counted: Tensor, min_relevance: float | None = None) -> None:
        into += count_columns(is_relevant(self.gains, min_relevance) & counted[:, None])

    def _count(self) -> Tensor:
        """How many gains of a mask are True: one read of it, whoever asks first."""
        if self._counted is None:
            self._counted = count_true(self.gains)
        return self._counted

    def to(self, device: torch.device | str) -> Relevance:
        return _Dense(self.gains.to(device))

    @property
    def longest(self) -> int | None:
        return None

    def padded(self, num_items: int) -> Tensor:
        raise TypeError(f"Dense truth of {num_items} items has no lists.")

    def best_gains(self, k: int | None, gain: Gain) -> Tensor:
        width = self.gains.shape[1] if k is None else min(k, self.gains.shape[1])
        if self.is_mask and gain.items is None:
            return _ones_first(self._count(), width, gain)
        if gain.monotone:
            best = top_values(self.gains, width)
            return gain(best, best)  # which reads no ids
        ids = torch.arange(self.gains.shape[1], device=self.device)
        bands = self.gains.split(band(self.gains.shape[1]))  # worths take more room than gains
        return torch.cat([top_values(gain(some, ids.expand_as(some)), width) for some in bands])

    def contains(self, ids: Tensor) -> Tensor:
        return self.gains_of(ids) != 0

    def listed(self, num_items: int) -> Tensor:
        if num_items != self.gains.shape[1]:
            raise ValueError(f"Relevance of {self.gains.shape[1]} items cannot be laid over {num_items} items.")
        return as_mask(self.gains)

    def laid_out(self, num_items: int) -> Tensor:  # noqa: ARG002 - every column is an item
        return self.gains

    def among(self, scores: Tensor) -> Relevance:
        return _Dense(self.gains.masked_fill(scores <= lowest(scores.dtype), 0))

    def keep(self, item_mask: Array) -> Relevance:
        mask = _item_mask(item_mask, self.device)[: self.gains.shape[1]]
        mask = torch.nn.functional.pad(mask, (0, self.gains.shape[1] - mask.shape[0]))
        return _Dense(self.gains.masked_fill(~mask, 0))

    def num_faulty(self, num_items: int | None) -> Tensor:  # noqa: ARG002 - every column is an item
        return self.gains.new_zeros((), dtype=torch.int64)

    def infinite_gains(self) -> Tensor | None:
        if not self.gains.is_floating_point():
            return None
        return (~self.gains.sum(1, dtype=sum_dtype(self.device)).isfinite()).sum()


class _Groups(Relevance):
    """Groups of queries and of items: relevant is what is of one group."""

    def __init__(
        self,
        query_group: Tensor,
        item_group: Tensor,
        self_ids: Tensor | None,
        kept: Tensor | None = None,
        ordered: Tensor | None = None,
    ) -> None:
        self.query_group, self.item_group, self.self_ids, self.kept = query_group, item_group, self_ids, kept
        self.width = item_group.shape[0]
        if ordered is None:
            ordered = (item_group if kept is None else item_group.masked_fill(~kept, _NO_ITEM)).sort().values
        self._ordered = ordered  # once for a data set, and not a batch

    @property
    def num_queries(self) -> int:
        return self.query_group.shape[0]

    def __getitem__(self, rows: Rows) -> Relevance:
        index = _row_index(rows, self.device)
        own = None if self.self_ids is None else self.self_ids[index]
        return _Groups(self.query_group[index], self.item_group, own, self.kept, self._ordered)

    @property
    def device(self) -> torch.device:
        return self.query_group.device

    def contains(self, ids: Tensor) -> Tensor:
        if self.item_group.shape[0] == 0:
            return torch.zeros_like(ids, dtype=torch.bool)
        places, inside = _lookup(self.item_group, ids)
        found = (self.item_group[places] == self.query_group[:, None]) & inside
        if self.kept is not None:
            found &= self.kept[places]
        return found if self.self_ids is None else found & (ids != self.self_ids[:, None])

    def gains_of(self, ids: Tensor) -> Tensor:
        return self.contains(ids)

    def judged(self, ids: Tensor) -> Tensor:
        return (ids >= 0) & (ids < self.item_group.shape[0])

    def num_relevant(self, min_relevance: float | None = None) -> Tensor:
        if min_relevance is not None and min_relevance > 1:
            return torch.zeros_like(self.query_group)
        count = _count_equal(self._ordered, self.query_group)
        return count if self.self_ids is None else count - self._own().long()

    def _own(self) -> Tensor:
        """Whether each query's own item is of its group, and so among those counted: bool ``(Q,)``."""
        assert self.self_ids is not None  # noqa: S101 - its callers have seen to it
        others = _Groups(self.query_group, self.item_group, None, self.kept, self._ordered)
        return others.contains(self.self_ids[:, None])[:, 0]

    def num_refused(self, min_relevance: float | None = None) -> Tensor:
        own = 0 if self.self_ids is None else self.judged(self.self_ids).long()
        return self.item_group.shape[0] - own - self.num_relevant(min_relevance)

    def tally(self, into: Tensor, counted: Tensor, min_relevance: float | None = None) -> None:
        if min_relevance is not None and min_relevance > 1:
            return
        times = _count_equal(self.query_group.masked_fill(~counted, _NO_ITEM).sort().values, self.item_group)
        into += times if self.kept is None else times * self.kept
        if self.self_ids is not None:
            own = self._own() & counted
            into.scatter_add_(0, self.self_ids.clamp(0, len(into) - 1), -own.long())

    def best_gains(self, k: int | None, gain: Gain) -> Tensor:
        items = self.item_group.shape[0]
        if gain.items is None:
            return _ones_first(self.num_relevant(), items if k is None else min(k, items), gain)
        return _Dense(self.listed(items)).best_gains(k, gain)

    def to(self, device: torch.device | str) -> Relevance:
        parts = (self.query_group, self.item_group, self.self_ids, self.kept)
        query_group, item_group, own, kept = (None if part is None else part.to(device) for part in parts)
        assert query_group is not None  # noqa: S101 - none of these two is
        assert item_group is not None  # noqa: S101
        return _Groups(query_group, item_group, own, kept)

    @property
    def longest(self) -> int | None:
        return None

    def padded(self, num_items: int) -> Tensor:
        raise TypeError(f"Groups of {num_items} items have no lists.")

    def listed(self, num_items: int) -> Tensor:
        if num_items != self.width:
            raise ValueError(f"Relevance of {self.width} items cannot be laid over {num_items} items.")
        found = self.query_group[:, None] == self.item_group
        if self.kept is not None:
            found &= self.kept
        if self.self_ids is not None:
            found &= torch.arange(num_items, device=self.device) != self.self_ids[:, None]
        return found

    def among(self, scores: Tensor) -> Relevance:
        return _Dense(self.listed(scores.shape[1])).among(scores)

    def keep(self, item_mask: Array) -> Relevance:
        mask = _item_mask(item_mask, self.device)[: self.width]
        mask = torch.nn.functional.pad(mask, (0, self.item_group.shape[0] - mask.shape[0]))
        kept = mask if self.kept is None else mask & self.kept
        return _Groups(self.query_group, self.item_group, self.self_ids, kept)

    def num_faulty(self, num_items: int | None) -> Tensor:
        if self.self_ids is None:
            return torch.zeros((), dtype=torch.int64, device=self.device)
        return ((self.self_ids < -1) | (self.self_ids >= (num_items or self.item_group.shape[0]))).sum()

    def infinite_gains(self) -> Tensor | None:
        return None


def _count_equal(ordered: Tensor, sought: Tensor) -> Tensor:
    """How many of some numbers, ascending ``(N,)``, are equal to each that is sought ``(Q,)``."""
    return torch.searchsorted(ordered, sought, right=True) - torch.searchsorted(ordered, sought)


def _ones_first(count: Tensor, width: int, gain: Gain) -> Tensor:
    places = torch.arange(width, device=count.device) < count[:, None]
    return gain(places.to(sum_dtype(count.device)), places)


class _Padded(Relevance):
    """Lists of ids, sorted within each row; `valid` marks the first of each id."""

    width = None

    def __init__(
        self, ids: Tensor, gains: Tensor | None, valid: Tensor, negative: Tensor, labels: Tensor | None = None
    ) -> None:
        self.ids, self.gains, self.valid, self.labels = ids, gains, valid, labels
        self.negative = negative  # (Q,): the row listed an id below 0 that is not padding

    @classmethod
    def build(cls, ids: Tensor, gains: Tensor | None, padding: int | None) -> _Padded:
        if gains is not None and gains.dtype == torch.bool:
            gains = gains.to(torch.int8)
        negative = (ids < 0) | (ids == _NO_ITEM)
        absent = negative
        if padding is not None:
            padded = ids == padding
            absent = negative if padding < 0 else negative | padded
            negative = negative & ~padded
        ids = torch.where(absent, _NO_ITEM, ids).contiguous()
        if ids.shape[1] > 1:
            if gains is None:
                ids = ids.sort(dim=1).values
            else:  # the largest gain of an id comes first
                gains, order = gains.sort(dim=1, descending=True, stable=True)
                ids, order = ids.gather(1, order).sort(dim=1, stable=True)
                gains = gains.gather(1, order)
        valid = ids != _NO_ITEM
        valid[:, 1:].logical_and_(ids[:, 1:] != ids[:, :-1])
        return cls(ids, gains, valid, negative.any(1))

    @property
    def num_queries(self) -> int:
        return self.ids.shape[0]

    def __getitem__(self, rows: Rows) -> Relevance:
        index = _row_index(rows, self.device)
        gains = None if self.gains is None else self.gains[index]
        labels = None if self.labels is None else self.labels[index]
        return _Padded(self.ids[index], gains, self.valid[index], self.negative[index], labels)

    @property
    def device(self) -> torch.device:
        return self.ids.device

    def _find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where each id stands in its row's list, and whether it does."""
        if self.ids.shape[1] == 1:
            return torch.zeros_like(ids), (ids == self.ids) & self.valid
        place = torch.searchsorted(self.ids, ids.contiguous()).clamp(max=self.ids.shape[1] - 1)
        return place, (self.ids.gather(1, place) == ids) & self.valid.gather(1, place)

    def gains_of(self, ids: Tensor) -> Tensor:
        if self.gains is None or self.ids.shape[1] == 0:
            return self.contains(ids)
        place, found = self._find(ids)
        return self.gains.gather(1, place).masked_fill(~found, 0)

    def num_relevant(self, min_relevance: float | None = None) -> Tensor:
        if self.gains is None and (min_relevance is None or min_relevance <= 1):
            return self.valid.sum(1)
        gains = self.valid if self.gains is None else self.gains
        return (self.valid & is_relevant(gains, min_relevance)).sum(1)

    def num_refused(self, min_relevance: float | None = None) -> Tensor:
        gains = self.valid if self.gains is None else self.gains
        return (self.valid & _refused(gains, min_relevance)).sum(1)

    def tally(self, into: Tensor, counted: Tensor, min_relevance: float | None = None) -> None:
        gains = self.valid if self.gains is None else self.gains
        _add_up(into, self.ids, self.valid & is_relevant(gains, min_relevance) & counted[:, None])

    def best_gains(self, k: int | None, gain: Gain) -> Tensor:
        width = self.ids.shape[1] if k is None else min(k, self.ids.shape[1])
        if self.gains is None and gain.items is None:
            return _ones_first(self.valid.sum(1), width, gain)
        gains = self.valid if self.gains is None else self.gains
        return top_values(torch.where(self.valid, gain(gains, self.ids), 0.0), width)

    def contains(self, ids: Tensor) -> Tensor:
        if self.ids.shape[1] == 0:
            return torch.zeros_like(ids, dtype=torch.bool)
        length = self.ids.shape[1]
        if not 1 < length <= _SHORT or length * ids.shape[1] > _PAIRS:
            return self._find(ids)[1]
        # Every pair is compared, in integers: a kernel that writes masks is not vectorised.
        listed = self.ids.masked_fill(~self.valid, _NO_ITEM)
        return (listed[:, :, None] ^ ids[:, None]).eq_(0).sum(1).bool()

    def to(self, device: torch.device | str) -> Relevance:
        gains, labels = (None if part is None else part.to(device) for part in (self.gains, self.labels))
        return _Padded(self.ids.to(device), gains, self.valid.to(device), self.negative.to(device), labels)

    def ignoring(self, label: int) -> Relevance:
        if self.labels is None:
            return self
        meant = self.labels != label
        return _Padded(self.ids, self.gains, self.valid & meant, self.negative & meant[:, 0], self.labels)

    @property
    def longest(self) -> int | None:
        return self.ids.shape[1]

    def padded(self, num_items: int) -> Tensor:
        return torch.where(self.valid & (self.ids < num_items), self.ids, num_items)

    def listed(self, num_items: int) -> Tensor:
        # What is no item or beyond the last one is written to a column of its own, which is cut off.
        mask = torch.zeros((self.num_queries, num_items + 1), dtype=torch.bool, device=self.device)
        return mask.scatter_(1, self.padded(num_items), value=True)[:, :num_items]

    def among(self, scores: Tensor) -> Relevance:
        if scores.shape[1] == 0:
            return _Padded(self.ids, self.gains, torch.zeros_like(self.valid), self.negative)
        places, inside = _lookup(scores, self.ids)
        candidate = inside & (scores.gather(1, places) > lowest(scores.dtype))
        return _Padded(self.ids, self.gains, self.valid & candidate, self.negative)

    def keep(self, item_mask: Array) -> Relevance:
        mask = _item_mask(item_mask, self.device)
        return _Padded(self.ids, self.gains, self.valid & _masked(mask, self.ids), self.negative, self.labels)

    def num_faulty(self, num_items: int | None) -> Tensor:
        if num_items is None:
            return self.negative.sum()
        return (self.negative | ((self.ids >= num_items) & (self.ids != _NO_ITEM)).any(1)).sum()

    def infinite_gains(self) -> Tensor | None:
        if self.gains is None or not self.gains.is_floating_point():
            return None
        return (~self.gains.isfinite() & self.valid).any(1).sum()


def _add_up(into: Tensor, ids: Tensor, marked: Tensor) -> None:
    """Add 1 to the place of each id that is marked, and in range."""
    places, inside = _lookup(into, ids)
    into.scatter_add_(0, places.reshape(-1), (marked & inside).reshape(-1).long())


def _masked(mask: Tensor, ids: Tensor) -> Tensor:
    if mask.shape[0] == 0:
        return torch.zeros_like(ids, dtype=torch.bool)
    places, inside = _lookup(mask, ids)
    return mask[places] & inside


@dataclass(frozen=True)
class _Entries:
    """Listed (query, item, gain) entries of a whole data set, sorted by query and item, shared by its slices."""

    rows: Tensor
    query: Tensor
    item: Tensor
    gains: Tensor | None
    valid: Tensor
    key: Tensor
    start: Tensor  # (Q + 1,)
    stride: int
    names: Tensor | None  # the ids in order, where a key holds an id's place among them
    longest: int  # the length of the longest row, or a bound on it
    cache: dict[object, Any]


class _Csr(Relevance):
    """Compressed rows of a data set, and which of its rows these are: a slice copies no entry."""

    def __init__(self, entries: _Entries, rows: Tensor, width: int | None) -> None:
        self.entries, self.rows, self.width = entries, rows, width

    @classmethod
    def build(cls, query: Tensor, item: Tensor, gains: Tensor | None, num_queries: int, width: int | None) -> _Csr:
        if gains is not None and gains.dtype == torch.bool:
            gains = gains.to(torch.int8)
        # One key a (query, item) pair: ids below the stride fit, and larger ones go by their place among all.
        stride, codes, names = _NO_ITEM // (num_queries + 1), item, None  # a row of no query has the number Q
        if width is None and item.device.type != "meta" and item.shape[0] and int(item.max()) >= stride:
            names, codes = item.unique(return_inverse=True)
        negative = item < 0
        key = query * stride + codes.clamp(min=0)
        if gains is not None:
            order = gains.argsort(descending=True, stable=True)
            key, gains = key[order], gains[order]
            query, item, negative = query[order], item[order], negative[order]
        key, order = key.sort(stable=True)
        query, item, negative = query[order], item[order], negative[order]
        gains = None if gains is None else gains[order]
        valid = ~negative
        valid[1:] &= key[1:] != key[:-1]
        start = torch.searchsorted(query, torch.arange(num_queries + 1, device=query.device))
        rows = torch.arange(num_queries, device=query.device)
        if may_branch(query) or (width is None and query.device.type != "meta"):
            longest = int(start.diff().max()) if num_queries else 0
        else:  # a matrix may come with each batch: nothing is read, and its width is a bound
            longest = len(key) if width is None else width
        entries = _Entries(rows, query, item, gains, valid, key, start, stride, names, longest, {})
        return cls(entries, rows, width)

    @property
    def num_queries(self) -> int:
        return self.rows.shape[0]

    def __getitem__(self, rows: Rows) -> Relevance:
        return _Csr(self.entries, self.rows[_row_index(rows, self.device)], self.width)

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def _find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where the entry of each id stands, and whether there is one."""
        entries = self.entries
        known = ids >= 0
        if entries.names is not None:
            ids, sought = torch.searchsorted(entries.names, ids.contiguous()).clamp(max=len(entries.names) - 1), ids
            known &= entries.names[ids] == sought
        key = self.rows[:, None] * entries.stride + ids
        place = torch.searchsorted(entries.key, key).clamp(max=entries.key.shape[0] - 1)
        found = (entries.key[place] == key) & entries.valid[place]
        return place, found & known & (ids < entries.stride)

    def gains_of(self, ids: Tensor) -> Tensor:
        if self.entries.gains is None or self.entries.key.shape[0] == 0:
            return self.contains(ids)
        place, found = self._find(ids)
        return self.entries.gains[place].masked_fill(~found, 0)

    def num_relevant(self, min_relevance: float | None = None) -> Tensor:
        return self._count(("relevant", min_relevance), lambda: self._relevant(min_relevance))

    def num_refused(self, min_relevance: float | None = None) -> Tensor:
        entries = self.entries
        gains = entries.valid if entries.gains is None else entries.gains
        return self._count(("refused", min_relevance), lambda: entries.valid & _refused(gains, min_relevance))

    def _relevant(self, min_relevance: float | None) -> Tensor:
        """Which entries count as relevant."""
        entries = self.entries
        gains = entries.valid if entries.gains is None else entries.gains
        return entries.valid & is_relevant(gains, min_relevance)

    def tally(self, into: Tensor, counted: Tensor, min_relevance: float | None = None) -> None:
        entries = self.entries
        if entries.key.shape[0] == 0:
            return
        if self.num_queries * entries.longest < entries.key.shape[0]:  # a few rows of many: their entries alone
            places, inside = self._places(entries.longest)
            marked = inside & counted[:, None] & entries.valid[places]
            if entries.gains is not None:
                marked &= is_relevant(entries.gains[places], min_relevance)
            _add_up(into, entries.item[places], marked)
        else:  # each entry as often as its row is here and counts
            times = torch.zeros_like(entries.start[:-1]).scatter_add_(0, self.rows, counted.long())
            marked = times[entries.query] * self._relevant(min_relevance)
            places, inside = _lookup(into, entries.item)
            into.scatter_add_(0, places, marked * inside)

    def _count(self, name: object, mark: Callable[[], Tensor]) -> Tensor:
        """How many entries of each row are marked; summed once for the data set and read off for a slice."""
        if name not in self.entries.cache:
            before = torch.nn.functional.pad(mark().cumsum(0), (1, 0))
            self.entries.cache[name] = before[self.entries.start].diff()
        counts: Tensor = self.entries.cache[name]
        return counts[self.rows]

    def best_gains(self, k: int | None, gain: Gain) -> Tensor:
        entries = self.entries
        width = entries.longest if k is None else min(k, entries.longest)
        if entries.gains is None and gain.items is None:
            return _ones_first(self.num_relevant(), width, gain)
        if gain not in entries.cache:
            gains = entries.valid if entries.gains is None else entries.gains
            worth = torch.where(entries.valid, gain(gains, entries.item), 0.0)
            order = worth.argsort(descending=True, stable=True)
            entries.cache[gain] = worth[order[entries.query[order].argsort(stable=True)]]
        best: Tensor = entries.cache[gain]
        if best.shape[0] == 0:
            return best.new_zeros((self.num_queries, width))
        places, inside = self._places(width)
        return torch.where(inside, best[places], 0.0)

    def _places(self, width: int) -> tuple[Tensor, Tensor]:
        """Where the first entries of each row stand, (Q, width), and which of them exist."""
        start, end = self.entries.start[:-1][self.rows], self.entries.start[1:][self.rows]
        places = start[:, None] + torch.arange(width, device=self.device)
        return places.clamp(max=max(self.entries.key.shape[0] - 1, 0)), places < end[:, None]

    def _padded(self) -> _Padded:
        entries = self.entries
        places, inside = self._places(entries.longest if entries.key.shape[0] else 0)
        valid = inside & entries.valid[places]
        ids = torch.where(inside, entries.item[places], _NO_ITEM)
        negative = torch.zeros_like(self.rows, dtype=torch.bool)
        return _Padded(ids, None if entries.gains is None else entries.gains[places], valid, negative)

    def to(self, device: torch.device | str) -> Relevance:
        entries = self.entries
        parts: dict[str, Any] = {
            name: part.to(device) for name, part in vars(entries).items() if isinstance(part, Tensor)
        }
        moved = replace(entries, **parts, cache={})
        return _Csr(moved, moved.rows if self.rows is entries.rows else self.rows.to(device), self.width)

    @property
    def longest(self) -> int | None:
        return self.entries.longest

    def padded(self, num_items: int) -> Tensor:
        return self._padded().padded(num_items)

    def pairs(self, num_items: int) -> tuple[Tensor, Tensor]:
        entries = self.entries
        if not may_branch(self.rows):
            return super().pairs(num_items)
        start = entries.start[self.rows]  # rows of uneven lengths, behind one another
        counts = entries.start[self.rows + 1] - start
        query = torch.arange(len(self.rows), device=self.device).repeat_interleave(counts)
        place = torch.arange(len(query), device=self.device) + (start - counts.cumsum(0) + counts)[query]
        items = entries.item[place]
        return query, torch.where(entries.valid[place] & (items < num_items), items, num_items)

    def contains(self, ids: Tensor) -> Tensor:
        if self.entries.key.shape[0] == 0:
            return torch.zeros_like(ids, dtype=torch.bool)
        return self._find(ids)[1]

    def listed(self, num_items: int) -> Tensor:
        if self.width is not None and self.width != num_items:
            raise ValueError(f"Relevance of {self.width} items cannot be laid over {num_items} items.")
        entries = self.entries
        if self.rows is not entries.rows:
            return self._padded().listed(num_items)
        # Of all rows no padding is needed: what is out of range goes to a column that is cut off.
        mask = torch.zeros(self.num_queries * (num_items + 1), dtype=torch.bool, device=self.device)
        column = torch.where(entries.valid & (entries.item < num_items), entries.item, num_items)
        mask.scatter_(0, entries.query * (num_items + 1) + column, value=True)
        return mask.view(self.num_queries, num_items + 1)[:, :num_items]

    def among(self, scores: Tensor) -> Relevance:
        return self._padded().among(scores)

    def keep(self, item_mask: Array) -> Relevance:
        entries = self.entries
        if self.num_queries * entries.longest < entries.key.shape[0]:  # a few rows of many
            few = self._padded().keep(item_mask)
            few.width = self.width
            return few
        valid = entries.valid & _masked(_item_mask(item_mask, self.device), entries.item)
        kept = replace(entries, valid=valid, cache={})
        return _Csr(kept, self.rows, self.width)

    def num_faulty(self, num_items: int | None) -> Tensor:
        item = self.entries.item

        def faulty() -> Tensor:
            return item < 0 if num_items is None else (item < 0) | (item >= num_items)

        return (self._count(("faulty", num_items), faulty) > 0).sum()

    def infinite_gains(self) -> Tensor | None:
        gains = self.entries.gains
        if gains is None or not gains.is_floating_point():
            return None
        return (self._count("infinite", lambda: ~gains.isfinite() & self.entries.valid) > 0).sum()
