"""The k best items of each query out of a large catalogue, a chunk at a time and over shards of it.

The scores of all pairs are never held at once: a block of queries meets a chunk of items, and only the best k of each
query live on. What is merged is exact, so the result is that of the whole product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length
from torch.nn.functional import pad

from torch_topk.exclusion import read_exclusions
from torch_topk.inputs import CHOICES, Array, as_tensor, read_choice, require_integer
from torch_topk.kernels import lowest, may_branch, orderable, sum_dtype, topk
from torch_topk.relevance import Relevance, _Dense, _lookup, as_mask

_BUDGET = {"cpu": 2**26}  # bytes; on a processor, blocks whose scores stay in its caches are the fastest
_BUDGET_OF_OTHERS = 2**30  # an accelerator wants few and large kernels
_QUERIES = {"cpu": (64, 256)}  # a block's queries: about the length of a vector, as large matrix products want more
_QUERIES_OF_OTHERS = (1024, 1024)


def search(
    queries: Array,
    items: Array,
    k: int,
    *,
    exclude: Any = None,
    normalize: bool = False,
    score: Callable[[Tensor, Tensor], Tensor] | None = None,
    item_ids: Array | None = None,
    process_group: Any = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The k items of the largest inner product with each query, exactly, without the scores of all pairs.

    Ids and values are those of ``tt.topk(queries @ items.T, k)`` wherever the products are the same to the last bit
    (a matrix product may round by its shape). Nothing is read on the host for tensors on an accelerator.

    **Memory.** Beyond its arguments, a search takes at most 64 MiB on a CPU and 1 GiB on other devices, as long as one
    query, one item and k candidates fit in that. Besides, it holds the results twice; ``queries`` once more where they
    are cast or normalised; 26 bytes an item where ``item_ids`` are given, and 3 where something is excluded for all
    queries; 16 bytes an id of lists that are excluded; with a process group, 16 bytes a candidate of all its ranks; and
    whatever ``score`` takes.

    Args:
        queries: ``(..., D)`` vectors, one a query. For ``score`` anything with one leading index a query.
        items: ``(N, D)`` vectors, one a row. A NumPy array, such as a memory map, is read chunk by chunk, and moved to
            the device of the queries.
        k: How many, at least 1. Ranks for which there is no item hold the id -1 and the value -inf.
        exclude: Items to leave out, as in `Ranking.from_scores`: a bool mask ``(..., N)`` or ``(N,)``, padded ids
            ``(..., E)`` or ``(E,)``, a sparse matrix, a Relevance, or a list of these. No mask of all pairs is made of
            lists. Ids that no item has exclude nothing.
        normalize: Rank by the cosine, that of a zero vector being 0.
        score: ``score(queries, chunk) -> (B, C)``, for models that are no inner product. It is given B of the queries
            and C of the rows of items, as they are, and scores each pair: any real type, larger is better, -inf for
            what is no candidate. Where there is no item it is called once with 0 rows, to learn the type.
        item_ids: ``(N,)`` different integer ids of the rows, in any order; -1 marks a row that is no item. Results,
            exclusions (column j of a mask is item j) and ties then speak of these ids; without them, of row numbers.
        process_group: Where each rank holds some of the items (any number, also none), with ``item_ids`` that are
            different on all ranks: every rank gets the k best of all, by one all_gather of Q · k candidates. Queries, k
            and the type of the scores must be the same on all ranks; exclusions may name any item. None, the default,
            searches the items of this process alone, under torch.distributed too; ``torch.distributed.group.WORLD`` is
            None in a single process, so that the same script runs there.
        chunk: Rows of items a chunk. None fits them to the memory above, together with a block of 64 to 256 queries
            (1,024 on other devices); a number leaves only the queries a block to be fitted.

    Returns:
        ``(values, ids)``, each ``(..., k)``: values descend, and equal values stand in order of id. Vectors of half
        precision are multiplied and added up in float32, integers in float64, and values have that type; those of
        ``score`` keep their own (bool and unsigned ones get a wider type, which has a value below all others). A query
        with a NaN score shows NaN at rank 1, as `topk` has it.

    Raises:
        TypeError, ValueError: For types and shapes that do not fit.

    Example:
        >>> items = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
        >>> queries, seen = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[3], [-1]])
        >>> values, ids = search(queries, items, 2, exclude=seen)
        >>> ids.tolist()
        [[0, 2], [1, 2]]

        The ids are ranked lists, which every metric takes:

        >>> from torch_topk import Ranking, functional
        >>> functional.recall(Ranking.from_ids(ids, torch.tensor([2, 1])), k=2).tolist()
        [1.0, 1.0]
    """
    depth = _whole_number("k", k)
    rows, shape, scorer = _read_queries(queries, items, score, normalize=normalize)
    if process_group is not None:
        _check_group(process_group, item_ids)
    catalogue = _Catalogue.read(items, item_ids, rows.device)
    columns = None if catalogue.ids is not None else catalogue.size
    excluded = _strikes(read_exclusions(exclude, shape, len(rows), columns, rows.device), catalogue)
    block, step = _fit(catalogue, scorer, excluded, count=len(rows), k=depth, chunk=chunk)
    with torch.no_grad():
        values, ids = _run(rows, catalogue, scorer, excluded, k=depth, block=block, chunk=step)
        if process_group is not None:
            values, ids = _over_ranks(values, ids, depth, process_group)
    return values.view(*shape, depth), ids.view(*shape, depth)


def merge_topk(
    values: Array | Sequence[Array], ids: Array | Sequence[Array], k: int, *, ties: str = "index"
) -> tuple[Tensor, Tensor]:
    """The k best of several lists of candidates: exactly the top k of them all together.

    Args:
        values: ``(..., M)`` scores of any real type, in any order: the lists of each query side by side, or a sequence
            of such tensors. Minus infinity (the smallest value of an integer type) means 'not a candidate'.
        ids: The same shapes: integer item ids, different within a row; one below 0 stands for nothing, whatever its
            value.
        k: How many, at least 1.
        ties: "index" or "reverse": equal values stand in order of their ids, ascending or descending.

    Returns:
        ``(values, ids)``, each ``(..., k)``: values descend. Ranks for which there is no candidate hold the id -1 and
        the value -inf (the smallest value of an integer type). A row with a NaN shows it at rank 1, as `topk` has it.

    Raises:
        TypeError, ValueError: For types and shapes that do not fit.

    Example:
        >>> first = torch.tensor([[9.0, 5.0]]), torch.tensor([[70, 30]])
        >>> second = torch.tensor([[9.0, 1.0]]), torch.tensor([[20, 60]])
        >>> values, ids = merge_topk([first[0], second[0]], [first[1], second[1]], 3)
        >>> ids.tolist()
        [[20, 70, 30]]
    """
    depth = _whole_number("k", k)
    read_choice("ties", ties, CHOICES["ties"])
    values, ids = _side_by_side("values", values), require_integer("ids", _side_by_side("ids", ids))
    if values.dim() == 0 or values.shape != ids.shape or values.device != ids.device:
        raise ValueError(
            f"ids must have the shape and device of values, (..., M), but are {tuple(ids.shape)} on {ids.device}, and "
            f"values {tuple(values.shape)} on {values.device}."
        )
    values = orderable(values, "values")
    low, width = lowest(values.dtype), min(depth, values.shape[-1])
    ids, order = ids.sort(dim=-1, stable=True)  # then the place in a row orders as the id does
    values, places = topk(torch.where(ids < 0, low, values.gather(-1, order)), width, ties=ties)
    ids = torch.where(values == low, -1, ids.gather(-1, places))
    return pad(values, (0, depth - width), value=low), pad(ids, (0, depth - width), value=-1)


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, but is {value!r}.")
    if index(value) < 1:
        raise ValueError(f"{name} must be at least 1, but is {value!r}.")
    return index(value)


def _side_by_side(name: str, value: Array | Sequence[Array]) -> Tensor:
    if not isinstance(value, (list, tuple)):
        return as_tensor(name, value)
    parts = [as_tensor(name, part) for part in value]
    leading = {tuple(part.shape[:-1]) if part.dim() else None for part in parts}
    if len(leading) != 1 or None in leading:
        shapes = [tuple(part.shape) for part in parts]
        raise ValueError(f"{name} must be tensors (..., M) that differ in M alone, but have shapes {shapes}.")
    return torch.cat(parts, dim=-1)


# What is searched -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scorer:
    """How a block of queries scores a chunk of items."""

    dtype: torch.dtype  # of the products; of a model's scores, a guess that is rather too large
    copies: int  # that are made of an item's vector
    unit: bool
    score: Callable[[Tensor, Tensor], Tensor] | None

    def prepare(self, chunk: Tensor) -> Tensor:
        """The vectors as they are multiplied."""
        if self.score is not None:
            return chunk
        chunk = chunk.to(self.dtype)
        return to_unit_length(chunk, dim=1) if self.unit else chunk

    def __call__(self, queries: Tensor, chunk: Tensor, space: _Space, *, owned: bool) -> Tensor:
        """The scores (B, C), where they may be written to if ``owned``."""
        size = queries.shape[0], chunk.shape[0]
        if self.score is None:
            # Written to memory that is at hand, and out of reach of autocast.
            return torch.mm(queries, chunk.T, out=space.view(size, self.dtype))
        scores = self.score(queries, chunk)
        if not isinstance(scores, Tensor) or tuple(scores.shape) != size or scores.device != queries.device:
            found = f"{tuple(scores.shape)} on {scores.device}" if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"score(queries, chunk) must return a tensor (B, C) on the queries' device, here {size} on "
                f"{queries.device}, but returned {found}."
            )
        scores = orderable(scores, "The results of score(queries, chunk)")
        return space.view(size, scores.dtype).copy_(scores) if owned else scores


class _Space:
    """Memory for the scores of one block and chunk, with a spare column that may be written to in vain."""

    def __init__(self, block: int, chunk: int, device: torch.device) -> None:
        self.cells, self.columns, self.device = block * (chunk + 1), chunk + 1, device
        self.memory: Tensor | None = None

    def view(self, size: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Room for scores of that size."""
        if self.memory is None or self.memory.dtype != dtype:
            self.memory = torch.empty(self.cells, dtype=dtype, device=self.device)
        return self.memory.view(-1, self.columns)[: size[0], : size[1]]


def _read_queries(
    queries: Array, items: Array, score: Callable[[Tensor, Tensor], Tensor] | None, *, normalize: bool
) -> tuple[Tensor, tuple[int, ...], _Scorer]:
    """The queries (Q, D) as they are multiplied, their leading shape, and how they score."""
    queries = as_tensor("queries", queries)
    head = as_tensor("items", items[:0] if isinstance(items, np.ndarray) and items.ndim else items)
    if not isinstance(items, np.ndarray) and head.device != queries.device:
        raise ValueError(f"items are on {head.device}, but the queries are on {queries.device}; move them there first.")
    if score is not None:
        if not callable(score) or normalize:
            raise TypeError(
                "score must be a function of (queries, chunk), and goes without normalize, which is about the inner "
                f"product; but score is {score!r} and normalize is {normalize!r}."
            )
        if queries.dim() == 0 or head.dim() == 0:
            raise ValueError(
                "queries and items must have a leading dimension, but have shapes "
                f"{tuple(queries.shape)} and {tuple(np.shape(items))}."
            )
        return queries, (queries.shape[0],), _Scorer(torch.float64, 0, unit=False, score=score)
    if queries.dim() == 0 or head.dim() != 2 or queries.shape[-1] != head.shape[1]:
        raise ValueError(
            f"queries must be (..., D) and items (N, D), vectors of one length, but have shapes {tuple(queries.shape)} "
            f"and {tuple(items.shape)}. A model that is no inner product goes through score=."
        )
    if queries.is_complex() or head.is_complex():
        raise TypeError(f"queries and items must hold real numbers, but are {queries.dtype} and {head.dtype}.")
    wide = torch.float64 in {queries.dtype, head.dtype}
    whole = not (queries.is_floating_point() or head.is_floating_point())
    dtype = torch.float64 if wide else sum_dtype(queries.device) if whole else torch.float32
    scorer = _Scorer(dtype, (head.dtype != dtype) + normalize, unit=normalize, score=None)
    shape = tuple(queries.shape[:-1])
    return scorer.prepare(queries.reshape(prod(shape), queries.shape[-1])), shape, scorer


@dataclass(frozen=True)
class _Catalogue:
    """The rows of items in order of id: a place in that order is what is ranked, so that ties fall by id."""

    items: Array
    ids: Tensor | None  # ascending; None where row j is item j
    order: Tensor | None  # the row of each place; None where that is the place itself
    device: torch.device
    has_strays: bool  # whether a row may have an id below 0

    @classmethod
    def read(cls, items: Array, item_ids: Array | None, device: torch.device) -> _Catalogue:
        if isinstance(items, Tensor):
            items = items.detach()
        if item_ids is None:
            return cls(items, None, None, device, has_strays=False)
        ids = as_tensor("item_ids", item_ids)
        if isinstance(item_ids, np.ndarray):
            ids = ids.to(device)
        ids = require_integer("item_ids", ids)
        if tuple(ids.shape) != (len(items),) or ids.device != device:
            raise ValueError(
                f"item_ids must hold one id a row of items, shape {(len(items),)}, on {device}, but have shape "
                f"{tuple(ids.shape)} on {ids.device}."
            )
        if may_branch(ids) and bool((ids[1:] >= ids[:-1]).all()):
            return cls(items, ids, None, device, has_strays=bool((ids[:1] < 0).any()))
        ids, order = ids.sort(stable=True)
        return cls(items, ids, order, device, has_strays=not may_branch(ids) or bool((ids[:1] < 0).any()))

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def copied(self) -> int:
        """The bytes of a row that `rows` copies."""
        itemsize = self.items.itemsize if isinstance(self.items, np.ndarray) else self.items.element_size()
        copies = isinstance(self.items, np.ndarray) + (self.order is not None)
        return copies * itemsize * prod(self.items.shape[1:])

    def rows(self, places: slice) -> Tensor:
        """The items at these places."""
        order = None if self.order is None else self.order[places]
        if isinstance(self.items, np.ndarray):
            part = self.items[places] if order is None else self.items[order.cpu().numpy()]
            return as_tensor("items", part).to(self.device)
        return self.items[places] if order is None else self.items.index_select(0, order)

    def ids_at(self, places: Tensor) -> Tensor:
        """The ids of places; some id or other for -1."""
        return places if self.ids is None or self.size == 0 else self.ids[places.clamp_(min=0)]

    def places_of(self, lists: Relevance) -> Tensor:
        """The places of the items that each row lists, (B, longest); `size` for what is no item."""
        if self.ids is None or self.size == 0:
            return lists.padded(self.size)
        listed = lists.padded(torch.iinfo(torch.int64).max)
        places = torch.searchsorted(self.ids, listed).clamp(max=self.size - 1)
        return torch.where(self.ids[places] == listed, places, self.size)


# What is struck out ---------------------------------------------------------------------------------------


class _Common:
    """What is struck out for all queries: one mask of the places."""

    longest = 0

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def strike(self, scores: Tensor, rows: slice, places: slice) -> None:  # noqa: ARG002 - the same for all queries
        scores.masked_fill_(self.mask[places], lowest(scores.dtype))


class _Mask:
    """A matrix that says of each query and item whether it is struck out, in order of id."""

    longest = 0

    def __init__(self, gains: Tensor, catalogue: _Catalogue) -> None:
        self.gains, self.catalogue = gains, catalogue

    def strike(self, scores: Tensor, rows: slice, places: slice) -> None:
        scores.masked_fill_(_columns(self.gains[rows], self.catalogue, places), lowest(scores.dtype))


class _Lists:
    """Lists of items that are struck out: their cells are written to one by one, and no mask is made.

    Where data may be read, the entries of each block of queries are laid out once, in order of place, so that a chunk
    takes a slice of them and a query with a long list costs the others nothing.
    """

    def __init__(self, lists: Relevance, longest: int, catalogue: _Catalogue) -> None:
        self.lists, self.longest, self.catalogue = lists, longest, catalogue
        self._laid_out: dict[int, tuple[Tensor, Tensor]] = {}

    def _entries(self, rows: slice, places: slice) -> tuple[Tensor, Tensor]:
        """Entries of the block of queries, all that are in the chunk among them: the query of each, and its place."""
        if rows.start not in self._laid_out:
            place = self.catalogue.places_of(self.lists[rows])
            query = torch.arange(len(place), device=place.device)[:, None].expand_as(place)
            if not may_branch(place):
                return query.flatten(), place.flatten()
            real = place < self.catalogue.size
            query, (place, order) = query[real], place[real].sort()
            self._laid_out[rows.start] = query[order], place
        query, place = self._laid_out[rows.start]
        first, last = torch.searchsorted(place, torch.tensor([places.start, places.stop])).tolist()
        return query[first:last], place[first:last]

    def strike(self, scores: Tensor, rows: slice, places: slice) -> None:
        query, place = self._entries(rows, places)
        stride = scores.stride(0)
        inside = (place >= places.start) & (place < places.stop)
        column = torch.where(inside, place - places.start, stride - 1)  # the spare column takes the others
        cells = scores.as_strided((scores.shape[0] * stride,), (1,))
        cells.index_fill_(0, query * stride + column, lowest(scores.dtype))


_Strike: TypeAlias = _Common | _Mask | _Lists


def _strikes(parts: Sequence[Relevance], catalogue: _Catalogue) -> list[_Strike]:
    """How each exclusion is carried out; all that hold for every query as one."""
    strikes: list[_Strike] = []
    common = catalogue.ids < 0 if catalogue.has_strays and catalogue.ids is not None else None
    for given in parts:
        part = given
        if catalogue.ids is None and part.width not in {None, catalogue.size}:
            raise ValueError(f"exclude speaks of {part.width} items, but there are {catalogue.size}.")
        if part.longest is None and part.width is not None and not isinstance(part, _Dense):  # groups list no ids
            part = _Dense(part.listed(part.width))
        if len(part) == 1:
            if isinstance(part, _Dense):
                mask = _columns(part.gains, catalogue, slice(0, catalogue.size))[0]
            else:
                mask = torch.zeros(catalogue.size + 1, dtype=torch.bool, device=catalogue.device)
                mask = mask.index_fill_(0, catalogue.places_of(part)[0], value=True)[:-1]
            common = mask if common is None else common | mask
        elif isinstance(part, _Dense):
            strikes.append(_Mask(part.gains, catalogue))
        else:
            strikes.append(_Lists(part, part.longest or 0, catalogue))
    return strikes if common is None else [*strikes, _Common(common)]


def _columns(gains: Tensor, catalogue: _Catalogue, places: slice) -> Tensor:
    """Which of these places the rows of a matrix strike out: bool (B, C)."""
    if catalogue.ids is None:
        return as_mask(gains[:, places])
    columns, inside = (each.expand(gains.shape[0], -1) for each in _lookup(gains, catalogue.ids[places]))
    return inside if gains.shape[1] == 0 else as_mask(gains.gather(1, columns)) & inside


# The search -----------------------------------------------------------------------------------------------


def _fit(
    catalogue: _Catalogue, scorer: _Scorer, excluded: Sequence[_Strike], *, count: int, k: int, chunk: int | None
) -> tuple[int, int]:
    """How many queries a block, and rows of items a chunk, take no more than the budget together."""
    kind = catalogue.device.type
    budget, (least, most) = _BUDGET.get(kind, _BUDGET_OF_OTHERS), _QUERIES.get(kind, _QUERIES_OF_OTHERS)
    itemsize, length = scorer.dtype.itemsize, prod(catalogue.items.shape[1:])
    cell = 4 * itemsize + 12  # the scores, and what the slowest path of topk makes of them
    row = catalogue.copied + 16 + (scorer.copies * itemsize * length)
    query = 2 * k * (cell + 16) + 48 * max((part.longest for part in excluded), default=0)  # a merge, and its lists
    block = max(1, min(max(least, length), most, count, budget // (4 * query)))
    if chunk is None:
        step = (budget - block * query) // (block * cell + row)
    else:
        step = _whole_number("chunk", chunk)
        block = min(block, (budget - step * row) // (step * cell + query))
    return max(1, block), max(1, min(step, catalogue.size))


def _run(
    queries: Tensor,
    catalogue: _Catalogue,
    scorer: _Scorer,
    excluded: Sequence[_Strike],
    *,
    k: int,
    block: int,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """The values and ids of the k best, (Q, k); each chunk is prepared once, and meets every block of queries."""
    count, size = queries.shape[0], catalogue.size
    space = _Space(block, chunk, catalogue.device)
    best_places = torch.full((count, k), -1, device=catalogue.device)
    best_values = torch.empty(0)
    for first in range(0, max(size, 1), chunk):
        places = slice(first, first + chunk)
        part = scorer.prepare(catalogue.rows(places))
        for start in range(0, max(count, 1), block):
            rows = slice(start, min(start + block, count))
            scores = scorer(queries[rows], part, space, owned=bool(excluded))
            for each in excluded:
                each.strike(scores, rows, places)
            if first == start == 0:
                best_values = scores.new_full((count, k), lowest(scores.dtype))
            values, found = topk(scores, min(k, scores.shape[1]))
            # Places ascend from chunk to chunk, so the order within a row is that of the ids.
            values = torch.cat([best_values[rows], values], dim=1)
            found = torch.cat([best_places[rows], found + first], dim=1)
            best_values[rows], order = topk(values, k)
            best_places[rows] = found.gather(1, order)
    absent = best_values == lowest(best_values.dtype)  # a NaN keeps its id
    return best_values, catalogue.ids_at(best_places).masked_fill_(absent, -1)


# Over ranks -----------------------------------------------------------------------------------------------


def _check_group(process_group: Any, item_ids: Array | None) -> None:
    if not dist.is_available() or not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(
            "process_group must be a group of torch.distributed that this process belongs to, such as "
            f"torch.distributed.group.WORLD, or None for the items of this process alone, but is {process_group!r}."
        )
    if item_ids is None:
        raise ValueError(
            "item_ids are missing: with a process_group each rank says which items its rows are, for instance "
            "item_ids=torch.arange(first, last)."
        )


def _over_ranks(values: Tensor, ids: Tensor, k: int, group: Any) -> tuple[Tensor, Tensor]:
    """The k best of all ranks' candidates, gathered as one tensor of int64: the bits of the values, and the ids."""
    real, kind = values.is_floating_point(), values.device.type
    packed = torch.stack([values.double().view(torch.int64) if real else values.long(), ids])
    gathered = [torch.empty_like(packed) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, packed, group=group)
    block = max(1, _BUDGET.get(kind, _BUDGET_OF_OTHERS) // (128 * k * len(gathered)))  # queries that are merged at once
    for start in range(0, len(values), block):
        rows = slice(start, start + block)
        bits, found = torch.cat([each[:, rows] for each in gathered], dim=-1).unbind()
        scores = (bits.view(torch.float64) if real else bits).to(values.dtype)
        values[rows], ids[rows] = merge_topk(scores, found, k)
    return values, ids
