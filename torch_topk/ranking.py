"""What stands at ranks 1..K of each query: the one record that every metric reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_topk.exclusion import close_up, left_out, note_exclusions, read_exclusions, top_without, without
from torch_topk.gain import Gain, is_relevant
from torch_topk.inputs import (
    CHOICES,
    RANK_TIES,
    Array,
    Cutoffs,
    as_tensor,
    read_choice,
    read_cutoffs,
    read_int,
    require_integer,
    unravel,
)
from torch_topk.kernels import lowest, orderable, rank_counts, topk
from torch_topk.record import (
    MANY,
    Record,
    identity,
    nan_last,
    read_items,
    read_target,
    read_weights,
)
from torch_topk.relevance import Relevance, read_sparse
from torch_topk.ties import TieGroups, Worth, count_level, gains_of_all, tail_of_scores, top_by_gain


class Ranking(Record):
    """The first K items of each query, and the truth to hold them against.

    Make one with `from_scores` or `from_ids`, and give it to as many metrics as you like in place of scores:
    ranking is done once, and so are the tables that metrics share. A Ranking keeps a reference to the scores
    it was made from, and to what was left out of them, and may read them again: change neither, and drop it with the
    batch.

    Attributes:
        ids: int64 ``(Q, W)``: the item at each rank, -1 where a rank holds none. W is at most the depth.
        weights: ``(Q,)``: what each query counts; 0 for one that counts nowhere.
        weighted: Whether a weight may be other than 1.
        relevance: The truth, one row a query.
        ties: The tie rule of the order; None where the order was given.
        depth: How many ranks were asked for; None where the lists are whole.
        shape: The leading shape that the queries had.
        faults: Counts of queries with a fault (see FAULTS), each a 0-dimensional tensor on the device.
    """

    def __init__(
        self,
        ids: Tensor,
        relevance: Relevance,
        *,
        weights: Tensor | None,
        ties: str | None,
        depth: int | None,
        shape: tuple[int, ...],
        pool: Callable[[], Tensor],
        pool_holds: str,
        faults: dict[str, Tensor],
        values: Tensor | None = None,
        pool_values: Callable[[], Tensor] | None = None,
        gains: Tensor | None = None,
    ) -> None:
        super().__init__(ids.shape[0], ids.device, weights, shape, faults)
        self._scored, self._pool_values = values, pool_values  # scores: at each rank, and in whole lists
        self._groups: TieGroups | None = None
        if gains is not None:  # at each rank, where whoever made the list knew them
            self._tables["gains"] = gains
        self.ids, self.relevance, self.ties, self.depth = ids, relevance, ties, depth
        self._pool, self._pool_holds = pool, pool_holds  # the candidates: scores (Q, N), or whole lists of ids

    in_order = True
    """Whether queries stand as they were given."""

    @classmethod
    def from_scores(  # noqa: C901, PLR0912 - one straight line of steps, each for an argument
        cls,
        scores: Array,
        target: Any,
        k: int | Sequence[int] | None,
        *,
        items: Array | None = None,
        exclude: Any = None,
        weights: Array | None = None,
        ties: str = "index",
        ignore_index: int | None = None,
        non_finite: str = "error",
        duplicates: str = "error",
        validate: str = "compute",
    ) -> Ranking:
        """Rank items by score: highest first, equal scores in order of item id.

        Args:
            scores: ``(..., N)``, any real type; every leading index is a query. Minus infinity (the smallest value
                of a signed integer type) means 'not a candidate'. Only the order of scores counts.
            target: The truth: a `Relevance`, gains of the shape of scores, labels of one dimension fewer, or a
                sparse matrix (torch or SciPy).
            k: The depth: the largest of several, or None for the whole list.
            items: ``(N,)`` or the shape of scores: the item id of each column (-1: no item), where the columns are
                candidates of a larger catalogue. Targets and exclusions then speak of item ids, but gains of the
                shape of scores belong to the columns. Relevant items that are no candidate still count.
            exclude: Candidates to leave out: a bool mask ``(..., N)`` or ``(N,)``, padded ids ``(..., E)`` or
                ``(E,)``, a sparse matrix, a Relevance, or a list of these. Truth is never removed, and the item of
                a one-label target stays a candidate.
            weights: The leading shape of scores (or ``(Q,)``): what each query counts.
            ties: Among equal scores "index" or "reverse" is ascending or descending item id; "optimistic" and
                "pessimistic" have the highest gains first or last, then ascending ids. With "expected" the order is
                that of "index", but what is read of a rank is the mean over all orders.
            ignore_index: Labels of this value make their query count nowhere; in dense gains, the item is neither
                a candidate nor truth.
            non_finite: "error" counts queries with a NaN score as a fault; "last" ranks NaN behind all numbers.
            duplicates: With ``items``: "error", or "first" to keep only the best place of an item.
            validate: "compute" counts faults on the device, "now" raises them at once (a host read), "off"
                does not look.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit.
            InputError: With ``validate="now"``, for faults in the data.

        Example:
            >>> ranking = Ranking.from_scores(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([2]), k=2)
            >>> ranking.ids.tolist()
            [[1, 2]]
        """
        _read_choices(non_finite=non_finite, duplicates=duplicates, validate=validate)
        read_choice("ties", ties, RANK_TIES)
        depth = _depth(k)
        scores = as_tensor("scores", scores)
        if scores.dim() == 0:
            raise ValueError("scores must be (..., N), but are 0-dimensional.")
        shape, columns, device = tuple(scores.shape[:-1]), scores.shape[-1], scores.device
        queries = prod(shape)
        rows = orderable(scores).reshape(queries, columns)
        ids_of = None if items is None else read_items(items, shape, queries, columns, device)
        relevance, counted, dropped = read_target(target, scores, ids_of, ignore_index)
        excluded = read_exclusions(exclude, shape, queries, None if items is not None else columns, device)
        if relevance.self_ids is not None:
            excluded.append(Relevance.from_ids(relevance.self_ids[:, None]))

        if non_finite == "last":
            rows = nan_last(rows)
        for mask in (dropped, None if ids_of is None else ids_of < 0):
            if mask is not None:
                rows = rows.masked_fill(mask, lowest(rows.dtype))
        by_gain, order = ties in {"optimistic", "pessimistic"}, "reverse" if ties == "reverse" else "index"
        width = columns if depth is None else min(depth, columns)
        if ids_of is None:
            values, ids, pool = _top_and_pool(rows, width, excluded, relevance, ties)
        else:  # equal scores stand in order of item id, not of column
            if excluded:
                rows = rows.masked_fill(left_out(excluded, ids_of, relevance.labels), lowest(rows.dtype))
            ids_of, by_id = ids_of.sort(dim=1, stable=True)
            rows = rows.gather(1, by_id)
            if by_gain:
                values, ids = top_by_gain(rows, relevance.gains_of(ids_of), columns, ties)
            else:
                values, ids = topk(rows, columns, ties=order)
        faults: dict[str, Tensor] = {}
        if validate != "off":
            if rows.is_floating_point() and values.shape[1]:
                broken = values[:, 0].isnan()
                faults["nan_scores"] = (broken if counted is None else broken & counted).sum()
            size = columns if ids_of is None else relevance.width  # of the catalogue, where it is known
            _note_truth(faults, relevance, excluded, queries, size)
            if ids_of is not None:
                stray = ids_of < -1 if size is None else (ids_of < -1) | (ids_of >= size)
                faults["ranked"] = stray.any(1).sum()
        if ids_of is not None:
            ids = ids_of.gather(1, ids)
        ids = torch.where(values > lowest(rows.dtype), ids, -1)
        if ids_of is not None:
            ids, values = _settle_repeats(ids, values, duplicates, faults, validate)
            pool = partial(identity, ids)
        return cls._make(
            ids[:, :depth],
            relevance,
            weights=weights,
            counted=counted,
            ties=ties,
            depth=None if depth is None or depth >= columns else depth,
            shape=shape,
            pool=pool,
            pool_holds="scores" if ids_of is None else "ids",
            faults=faults,
            validate=validate,
            values=values[:, :depth],
            pool_values=None if ids_of is None else partial(identity, values),
        )

    @classmethod
    def from_ids(
        cls,
        ranked: Array,
        target: Any,
        *,
        k: int | Sequence[int] | None = None,
        padding: int = -1,
        exclude: Any = None,
        weights: Array | None = None,
        duplicates: str = "error",
        ignore_index: int | None = None,
        validate: str = "compute",
    ) -> Ranking:
        """Take lists that are ranked already: what a search engine returned, best first.

        Args:
            ranked: ``(..., L)`` integer item ids, best first, padded; or a nested tensor of lists.
            target: The truth: a `Relevance`, labels of one dimension fewer, a bool or floating-point matrix of gains
                ``(..., N)`` over all items, or a sparse matrix. Lists of relevant ids go through
                `Relevance.from_ids`.
            k: The depth: the largest of several, or None for the whole list.
            padding: The id of a rank that holds no item. A padded rank keeps its place.
            exclude: Items to leave out, as in `from_scores`; those behind them move up.
            weights: ``(...)`` or ``(Q,)``: what each query counts.
            duplicates: "error" counts lists that rank an item twice as a fault; "first" keeps the better place,
                and the items behind the other move up.
            ignore_index: Labels of this value make their query count nowhere.
            validate: As in `from_scores`.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit.
            InputError: With ``validate="now"``, for faults in the data.

        Example:
            >>> truth = Relevance.from_ids(torch.tensor([[7, 8]]))
            >>> Ranking.from_ids(torch.tensor([[8, 3, 7, -1]]), truth).hits().tolist()
            [[1.0, 0.0, 1.0, 0.0]]
        """
        _read_choices(duplicates=duplicates, validate=validate)
        depth = _depth(k)
        ranked = require_integer("ranked", as_tensor("ranked", unravel(ranked, padding)))
        if ranked.dim() == 0:
            raise ValueError("ranked must be (..., L), lists of item ids, but got a 0-dimensional tensor.")
        shape, length, device = tuple(ranked.shape[:-1]), ranked.shape[-1], ranked.device
        queries = prod(shape)
        lists = ranked.reshape(queries, length)
        relevance, counted, _ = read_target(target, ranked, None, ignore_index, lists_given=True)
        excluded = read_exclusions(exclude, shape, queries, relevance.width, device)
        if relevance.self_ids is not None:
            excluded.append(Relevance.from_ids(relevance.self_ids[:, None]))
        faults: dict[str, Tensor] = {}
        if validate != "off":
            stray = lists < 0
            if relevance.width is not None:
                stray = stray | (lists >= relevance.width)
            faults["ranked"] = (stray & (lists != padding)).any(1).sum()
            _note_truth(faults, relevance, excluded, queries, relevance.width)
        ids = torch.where((lists == padding) | (lists < 0), -1, lists)
        if excluded:
            ids = _take_out(ids, left_out(excluded, ids, relevance.labels))
        ids, _ = _settle_repeats(ids, ids, duplicates, faults, validate)
        return cls._make(
            ids[:, :depth],
            relevance,
            weights=weights,
            counted=counted,
            ties=None,
            depth=None if depth is None or depth >= length else depth,
            shape=shape,
            pool=partial(identity, ids),
            pool_holds="ids",
            faults=faults,
            validate=validate,
        )

    @classmethod
    def from_sampled(
        cls,
        positive: Array,
        negatives: Array,
        k: int | Sequence[int] | None,
        *,
        weights: Array | None = None,
        ties: str = "expected",
        non_finite: str = "error",
        validate: str = "compute",
    ) -> Ranking:
        """Rank right answers among sampled wrong ones.

        Metrics of a sample are not those of the catalogue, and may order systems differently (Krichene & Rendle, On
        sampled metrics for item recommendation, 2020). With ``ties="expected"`` a right answer gains nothing from the
        column that it stands in.

        Args:
            positive: ``(Q,)`` or ``(Q, P)``: the scores of the right answers.
            negatives: ``(Q, M)``: the scores of wrong ones; minus infinity fills up a shorter sample.
            k: The depth: the largest of several, or None for the whole list.
            weights: ``(Q,)``: what each query counts.
            ties: As in `from_scores`. Metrics are made with the same rule.
            non_finite: As in `from_scores`.
            validate: As in `from_scores`.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit.
            InputError: With ``validate="now"``, for faults in the data.

        Example:
            >>> ranking = Ranking.from_sampled(torch.tensor([0.5]), torch.tensor([[0.5, 0.2, 0.5]]), k=1)
            >>> round(ranking.hits().item(), 4)
            0.3333
        """
        right = as_tensor("positive", positive)
        wrong = as_tensor("negatives", negatives, right.device)
        if right.dim() == 1:
            right = right[:, None]
        if right.dim() != 2 or wrong.dim() != 2 or right.shape[0] != wrong.shape[0]:
            raise ValueError(
                f"positive must be (Q,) or (Q, P) and negatives (Q, M), but are {tuple(np.shape(positive))} and "
                f"{tuple(wrong.shape)}."
            )
        scores = torch.cat([right, wrong], dim=1)
        truth = torch.zeros_like(scores, dtype=torch.bool)
        truth[:, : right.shape[1]] = True
        return cls.from_scores(scores, truth, k, weights=weights, ties=ties, non_finite=non_finite, validate=validate)

    @classmethod
    def from_flat(
        cls,
        scores: Array,
        target: Array,
        indexes: Array,
        k: int | Sequence[int] | None,
        *,
        num_queries: int | None = None,
        weights: Array | None = None,
        ties: str = "index",
        non_finite: str = "error",
        validate: str = "compute",
    ) -> Ranking:
        """Rank what comes as pairs, a row each: a score, a gain, and the query that both belong to.

        Rows may stand in any order, but all of a query's must be here: of a query that is split over updates, each part
        would be ranked for itself. `torch_topk.retrieval` keeps the rows, for streams in which queries are split.

        Args:
            scores: ``(P,)``, any real type; minus infinity means 'not a candidate'.
            target: ``(P,)``: the gain of each row's item.
            indexes: ``(P,)`` integers of any size and sign: the query of each row.
            k: The depth: the largest of several, or None for the whole list.
            num_queries: Q, where indexes are 0 .. Q - 1 and nothing is to be read from the device; queries without a
                row have an empty list. Otherwise queries stand in ascending order of their index.
            weights: ``(Q,)``: what each query counts.
            ties: As in `from_scores`, of rows in place of items; all but "index" and "reverse" read the device.
            non_finite: As in `from_scores`.
            validate: As in `from_scores`.

        Returns:
            The ranking, whose item ids are the rows' numbers.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit.
            InputError: With ``validate="now"``, for faults in the data.

        Example:
            >>> scores, gains = torch.tensor([0.2, 0.9, 0.4]), torch.tensor([1, 0, 1])
            >>> ranking = Ranking.from_flat(scores, gains, torch.tensor([7, 7, -2]), k=2)
            >>> ranking.ids.tolist(), ranking.hits().tolist()
            ([[2, -1], [1, 0]], [[1.0, 0.0], [0.0, 1.0]])
        """
        scores = as_tensor("scores", scores)
        gains = as_tensor("target", target, scores.device)
        query = require_integer("indexes", as_tensor("indexes", indexes, scores.device))
        for name, part in (("target", gains), ("indexes", query)):
            if part.shape != scores.shape or scores.dim() != 1:
                raise ValueError(
                    f"scores, target and indexes must be (P,), a row a pair, but scores are {tuple(scores.shape)} and "
                    f"{name} {tuple(part.shape)}."
                )
        faults: dict[str, Tensor] = {}
        if num_queries is None:
            ids, query = query.unique(return_inverse=True)
            num_queries = len(ids)
        else:
            num_queries = read_int("num_queries", num_queries, 0)
            stray = (query < 0) | (query >= num_queries)
            faults["indexes"] = stray.sum()
            query = torch.where(stray, num_queries, query)
        item = torch.arange(len(query), device=query.device)
        relevance = Relevance.of_rows(query, gains, num_queries)
        ranking = cls._from_pairs(
            query, item, scores, relevance, k, weights=weights, ties=ties, non_finite=non_finite, validate=validate,
            faults=faults,
        )  # fmt: skip
        ranking.in_order = False
        return ranking

    @classmethod
    def from_sparse(
        cls,
        scores: Any,
        target: Any,
        k: int | Sequence[int] | None,
        *,
        weights: Array | None = None,
        ties: str = "index",
        ignore_index: int | None = None,
        non_finite: str = "error",
        validate: str = "compute",
    ) -> Ranking:
        """Rank the stored entries of a sparse matrix of scores: they are the candidates, whatever their value.

        Args:
            scores: ``(Q, N)``, torch COO or CSR, or SciPy.
            target: The truth, as `from_scores` takes it.
            k: The depth: the largest of several, or None for the whole list.
            weights: ``(Q,)``: what each query counts.
            ties: As in `from_scores`; all but "index" and "reverse" read the device.
            ignore_index: As in `from_scores`.
            non_finite: As in `from_scores`.
            validate: As in `from_scores`.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit.
            InputError: With ``validate="now"``, for faults in the data, as an entry that is stored twice.

        Example:
            >>> scores = torch.tensor([[0.0, 0.4, 0.0, 0.3]]).to_sparse()
            >>> Ranking.from_sparse(scores, torch.tensor([3]), k=3).ids.tolist()
            [[1, 3, -1]]
        """
        query, item, values, (queries, width) = read_sparse("scores", scores)
        shaped = values.new_empty(()).expand(queries, width)  # what the truth must fit
        relevance, counted, dropped = read_target(target, shaped, None, ignore_index)
        values, least = orderable(values), lowest(orderable(values).dtype)
        if dropped is not None:
            values = values.masked_fill(dropped[query, item], least)
        if relevance.self_ids is not None:
            values = values.masked_fill(relevance.self_ids[query] == item, least)
        faults: dict[str, Tensor] = {}
        if validate != "off":
            order = item.argsort(stable=True)
            order = order[query[order].argsort(stable=True)]
            twice = (query[order].diff() == 0) & (item[order].diff() == 0)
            faults["duplicates"] = _mark(query[order][1:], twice, queries, counted).sum()
        return cls._from_pairs(
            query, item, values, relevance, k, weights=weights, counted=counted, ties=ties, non_finite=non_finite,
            validate=validate, faults=faults,
        )  # fmt: skip

    @classmethod
    def _from_pairs(
        cls,
        query: Tensor,
        item: Tensor,
        scores: Tensor,
        relevance: Relevance,
        k: int | Sequence[int] | None,
        *,
        ties: str,
        non_finite: str,
        faults: dict[str, Tensor],
        validate: str,
        weights: Array | None,
        counted: Tensor | None = None,
    ) -> Ranking:
        """Rank (query, item, score) triples; the query Q, beyond the last, takes what belongs to none."""
        _read_choices(non_finite=non_finite, validate=validate)
        read_choice("ties", ties, RANK_TIES)
        depth, queries = _depth(k), relevance.num_queries
        values = orderable(scores)
        if values.is_floating_point():
            values = values + 0  # of -0.0 and 0.0 it makes one
            if non_finite == "last":
                values = nan_last(values)
            else:
                faults["nan_scores"] = _mark(query, values.isnan(), queries, counted).sum()
        # By item, then stably by score, then stably by query.
        order = item.argsort(stable=True, descending=ties == "reverse")
        order = order[values[order].argsort(stable=True, descending=True)]
        order = order[query[order].argsort(stable=True)]
        query, item, values = query[order], item[order], values[order]
        start = torch.searchsorted(query, torch.arange(queries + 1, device=query.device))
        place = torch.arange(len(query), device=query.device) - start[query]
        ids = torch.where(values > lowest(values.dtype), item, -1)

        def lists(width: int | None, pairs: Tensor, fill: float) -> Tensor:
            """What the first pairs of each query hold, ``(Q, width)``; of all of them the device is read."""
            if width is None:
                width = int(start.diff().max()) if queries and len(query) else 0
            table = pairs.new_full((queries + 1, width + 1), fill)  # with a column for all that stands behind
            return table.index_put((query, place.clamp(max=width)), pairs)[:queries, :width]

        whole, least = partial(lists, None, ids, -1), lowest(values.dtype)
        ranked, scored = lists(depth, ids, -1), lists(depth, values, least)
        if ties in {"optimistic", "pessimistic"}:
            everything = whole()
            scored, place_of = top_by_gain(
                lists(None, values, least), relevance.gains_of(everything), everything.shape[1], ties
            )
            ranked, scored = everything.gather(1, place_of)[:, :depth], scored[:, :depth]
        if validate != "off":
            _note_truth(faults, relevance, [], queries, relevance.width)
        else:
            faults = {}
        return cls._make(
            ranked,
            relevance,
            weights=weights,
            counted=counted,
            ties=ties,
            depth=depth,
            shape=(queries,),
            pool=whole,
            pool_holds="ids",
            faults=faults,
            validate=validate,
            values=scored,
            pool_values=partial(lists, None, values, least),
        )

    @classmethod
    def _make(
        cls,
        ids: Tensor,
        relevance: Relevance,
        *,
        weights: Array | None,
        counted: Tensor | None,
        faults: dict[str, Tensor],
        validate: str,
        shape: tuple[int, ...],
        **rest: Any,
    ) -> Ranking:
        """What both constructors end with: the weights, and the faults if they are wanted now."""
        read = read_weights(weights, counted, shape, ids.device, None if validate == "off" else faults)
        ranking = cls(ids, relevance, weights=read, faults=faults, shape=shape, **rest)
        if validate == "now":
            ranking.check()
        return ranking

    def __len__(self) -> int:
        """Return the number of queries."""
        return self.ids.shape[0]

    def __repr__(self) -> str:
        return f"Ranking(num_queries={len(self)}, depth={self.depth}, ties={self.ties!r})"

    def first(self, samples: int) -> Ranking:
        """Return the ranking of the first samples: indices of the leading dimension. Faults stay those of all."""
        queries = samples * (len(self) // max(self.samples, 1))
        return Ranking(
            self.ids[:queries],
            self.relevance[:queries],
            weights=self.weights[:queries] if self.weighted else None,
            ties=self.ties,
            depth=self.depth,
            shape=(samples, *self.shape[1:]),
            pool=partial(_first_rows, self._whole_pool, queries),
            pool_holds=self._pool_holds,
            faults=self.faults,
            values=None if self._scored is None else self._scored[:queries],
            pool_values=None if self._pool_values is None else partial(_first_rows, self._pool_values, queries),
        )

    # Equal scores.

    @property
    def groups(self) -> TieGroups | None:
        """The groups of equal scores, where what is read of a rank is a mean over their orders; None elsewhere."""
        if self.ties != "expected" or self._scored is None:
            return None
        if self._groups is None:
            self._groups = TieGroups(self._scored, self.ids >= 0, self._count_level(), self._sum_level)
        return self._groups

    def _limit(self) -> Tensor:
        """The score at the last rank, ``(Q,)``."""
        assert self._scored is not None  # noqa: S101 - its callers have seen to it
        width = self._scored.shape[1]
        return self._scored[:, width - 1] if width else self._scored.new_full((len(self),), lowest(self._scored.dtype))

    def _count_level(self) -> Tensor:
        """How many candidates score as the item at the last rank does, ``(Q,)``."""

        def count() -> Tensor:
            if self._pool_values is None:
                return count_level(self._whole_pool(), self._limit())
            return (self._pool_values() == self._limit()[:, None]).sum(1)

        return self._once("level", count)

    def _whole_pool(self) -> Tensor:
        """The candidates, made once: where an exclusion is written into them, they are a copy."""
        pool = self._pool()
        self._pool = partial(identity, pool)
        return pool

    def _sum_level(self, worth: Worth) -> Tensor:
        """What these candidates are worth together, ``(Q,)``."""
        if self._pool_values is None:
            return tail_of_scores(self._whole_pool(), self._limit(), self.relevance, worth)
        ids = self._whole_pool()
        return torch.where(
            self._pool_values() == self._limit()[:, None], worth(self.relevance.gains_of(ids), ids), 0.0
        ).sum(1)

    def tied_at(self, cutoffs: Cutoffs) -> Tensor:
        """Which queries' first k hang on the order of equal scores: items on both sides of rank k share one.

        bool ``(Q, len(cutoffs))``; False where the order was given.
        """
        held = (self.ids >= 0)[:, :, None]
        shared = torch.zeros_like(held[:, :, 0])
        if self._scored is not None and shared.shape[1]:
            scored = self._scored
            within = (scored == scored[:, -1:]).sum(1)
            shared[:, :-1] = scored[:, 1:] == scored[:, :-1]
            shared[:, -1] = self._count_level() > within
        width = shared.shape[1]
        columns = [
            (shared & held[:, :, 0])[:, k - 1 : k] if k is not None and k <= width else shared.new_zeros((len(self), 1))
            for k in cutoffs
        ]
        return torch.cat(columns, dim=1)

    # The tables that metrics share, each computed once, in float64 (float32 on a device without it).

    def gains(self) -> Tensor:
        """The gain at each rank in its own type, ``(Q, W)``; 0 where the item is not listed or there is none."""
        return self._once("gains", lambda: self.relevance.gains_of(self.ids))

    def hits(self, min_relevance: float | None = None) -> Tensor:
        """1 at each rank that holds a relevant item, ``(Q, W)``; with ``ties="expected"`` how likely one is there."""

        def compare(gains: Tensor, _: Tensor) -> Tensor:
            binary = gains.dtype == torch.bool and min_relevance is None  # compared already
            return (gains if binary else is_relevant(gains, min_relevance)).to(self.weights.dtype)

        return self._once(("hits", min_relevance), lambda: self._read(compare))

    def hits_at(self, cutoffs: Cutoffs, min_relevance: float | None = None) -> Tensor:
        """The number of relevant items among the first k, ``(Q, len(cutoffs))``."""

        def count() -> Tensor:
            if cutoffs == (None,):
                return self.hits(min_relevance).sum(1, keepdim=True)
            return self.at(self.cumulative_hits(min_relevance), cutoffs)

        return self._once(("hits_at", cutoffs, min_relevance), count)

    def cells(self, cutoffs: tuple[int, ...], items: int) -> tuple[Tensor, Tensor]:
        """Where to count the items down to the last of ascending cut-offs, a block of items from one to the next.

        Returns the cell of the item at each rank, ``(Q, W)``, and whether there is one; without a cut-off there is one
        block, of whole lists.
        """
        ids = self.ids[:, : cutoffs[-1]] if cutoffs else self.ids
        ranks = self.ranks(ids.shape[1])
        block = torch.zeros_like(ranks, dtype=torch.int64)  # of the first cut-off that takes a rank in
        if cutoffs:
            block = (ranks[:, None] > self.cutoffs(cutoffs)).sum(1)
        return block * items + ids.clamp(0, items - 1), (ids >= 0) & (ids < items)

    def retrieved_at(self, cutoffs: Cutoffs) -> Tensor:
        """The number of items among the first k ranks, ``(Q, len(cutoffs))``."""
        key = ("retrieved_at", cutoffs)
        return self._once(key, lambda: self.sum_at((self.ids >= 0).to(self.weights.dtype), cutoffs))

    def num_relevant(self, min_relevance: float | None = None) -> Tensor:
        """The number R of relevant items of each query, ranked or not, ``(Q, 1)``."""

        def count() -> Tensor:
            return self.relevance.num_relevant(min_relevance).to(self.weights.dtype)[:, None]

        return self._once(("num_relevant", min_relevance), count)

    def num_unwanted(self, min_relevance: float | None = None) -> Tensor:
        """The number of candidates that are not relevant, ``(Q, 1)``: another read of the scores."""

        def count() -> Tensor:
            pool = self._whole_pool()
            if self._pool_holds == "scores":
                least = torch.full((pool.shape[0],), lowest(pool.dtype), dtype=pool.dtype, device=pool.device)
                candidates = rank_counts(pool, least)[0]
            else:
                candidates = (pool >= 0).sum(1)
            unwanted = candidates - self._candidate_truth().num_relevant(min_relevance)
            return unwanted.to(self.weights.dtype)[:, None]

        return self._once(("num_unwanted", min_relevance), count)

    def judged(self) -> Tensor:
        """1 at each rank whose item was judged: listed, with a gain of at least 0; ``(Q, W)``."""
        return self._once(
            "judged", lambda: self._read(lambda _, ids: self.relevance.judged(ids).to(self.weights.dtype))
        )

    def num_refused(self, min_relevance: float | None = None) -> Tensor:
        """The number of items that were judged not relevant, ranked or not, ``(Q, 1)``."""

        def count() -> Tensor:
            return self.relevance.num_refused(min_relevance).to(self.weights.dtype)[:, None]

        return self._once(("num_refused", min_relevance), count)

    def is_empty(self, min_relevance: float | None = None) -> Tensor:
        """Which queries have no relevant item, bool ``(Q, 1)``."""
        return self._once(("is_empty", min_relevance), lambda: self.num_relevant(min_relevance) == 0)

    def cutoffs(self, cutoffs: Cutoffs) -> Tensor:
        """The cut-offs as numbers: ``(1, len(cutoffs))``; for the whole list its length, ``(Q, 1)``."""
        if cutoffs == (None,):
            return self.retrieved_at(cutoffs)
        return super().cutoffs(cutoffs)

    def capped(self, cutoffs: Cutoffs, min_relevance: float | None = None) -> Tensor:
        """min(k, R): how many of the first k places can hold a relevant item, ``(Q, len(cutoffs))``."""
        relevant = self.num_relevant(min_relevance)
        if cutoffs == (None,):
            return relevant
        key = ("capped", cutoffs, min_relevance)
        return self._once(key, lambda: torch.minimum(self.cutoffs(cutoffs), relevant))

    def worths(self, gain: Gain) -> Tensor:
        """What the item at each rank is worth, ``(Q, W)``."""
        if self.worth_one(gain):
            return self.hits(gain.min_relevance)
        return self._once(("worths", gain), lambda: self._read(gain))

    def _read(self, worth: Worth) -> Tensor:
        """What the item at each rank is worth, ``(Q, W)``: under "expected" the mean of its group."""
        table = worth(self.gains(), self.ids)
        return table if self.groups is None else self.groups.spread(table, worth)

    def precisions(self, min_relevance: float | None = None) -> Tensor:
        """The precision at each rank that holds a relevant item, 0 elsewhere, ``(Q, W)``."""
        hits = self.hits(min_relevance)
        if self.groups is not None:
            return self.groups.precisions(hits)
        return hits * self.cumulative_hits(min_relevance) / self.ranks(hits.shape[1])

    def survival(self, min_relevance: float | None = None) -> Tensor:
        """The probability that no relevant item stands down to each rank, ``(Q, W)``, with ``ties="expected"``."""
        groups = self.groups
        assert groups is not None  # noqa: S101 - its callers have seen to it
        return self._once(("survival", min_relevance), lambda: groups.survival(self.hits(min_relevance)))

    def worth_one(self, gain: Gain) -> bool:
        """Whether each relevant item is worth 1."""
        return gain.name == "binary" or (gain.name in {"linear", "exp"} and self.gains().dtype == torch.bool)

    def best_worths(self, gain: Gain, pool: str, depth: int | None) -> Tensor:
        """The largest worths a query could have shown, descending: of all relevant items, or of its candidates."""

        def look_up() -> Tensor:
            truth = self.relevance if pool == "relevant" else self._candidate_truth()
            return truth.best_gains(depth, gain)

        return self._once(("best", gain, pool, depth), look_up)

    def unmapped(self, gain: Gain) -> Tensor:
        """Count the queries that rank, or could best rank, a grade that a mapping lacks."""

        def count() -> Tensor:
            best = self.relevance.best_gains(self.depth, Gain("linear")).to(self.gains().dtype)
            return (gain.lacks(self.gains()).any(1) | gain.lacks(best).any(1)).sum()

        return self._once(("unmapped", gain), count)

    def _candidate_truth(self) -> Relevance:
        pool = self._whole_pool()
        if self._pool_holds == "scores":
            return self.relevance.among(pool)
        return Relevance.from_ids(pool, self.relevance.gains_of(pool))

    def sum_at(self, table: Tensor, cutoffs: Cutoffs) -> Tensor:
        """Sums of the first k columns of a ``(Q, W)`` table, for each k: ``(Q, len(cutoffs))``."""
        if cutoffs == (None,):
            return table.sum(1, keepdim=True)
        width = table.shape[1]
        if table.is_cpu or len(cutoffs) * width > MANY:
            return self.at(table.cumsum(1), cutoffs)
        # Elsewhere a cumulative sum is not deterministic. Nor is this a product, in which 0 times an infinite gain
        # would spoil smaller k.
        within = self._always(("within", width, cutoffs), lambda: self.ranks(width) <= self.cutoffs(cutoffs).T)
        return torch.where(within, table[:, None, :], 0.0).sum(2)

    def at(self, sums: Tensor, cutoffs: Cutoffs) -> Tensor:
        """Of sums down to each rank, ``(Q, W)``, those at the cut-offs, ``(Q, len(cutoffs))``."""
        width = sums.shape[1]
        if width == 0:
            return sums.new_zeros((sums.shape[0], len(cutoffs)))
        if cutoffs == (None,):
            return sums[:, -1:]
        last = tuple(min(k, width) - 1 for k in cutoffs if k is not None)
        return sums.index_select(1, self._always(("last", last), lambda: self._numbers(self.ids, last)))

    def ranks(self, width: int) -> Tensor:
        """1, 2, ..., width, as ``(width,)``."""
        return self._always(
            ("ranks", width),
            lambda: torch.arange(1, width + 1, device=self.ids.device, dtype=self.weights.dtype),
        )

    def discounts(self, width: int) -> Tensor:
        """1 / log2(rank + 1) at each rank, as ``(width,)``."""
        return self._always(("discounts", width), lambda: (self.ranks(width) + 1).log2().reciprocal())

    def first_discounts(self, count: Tensor, most: int) -> Tensor:
        """The sum of the discounts of as many first ranks as counted, up to ``most``: of the shape of the counts."""
        sums = self._always(
            ("first discounts", most), lambda: torch.nn.functional.pad(self.discounts(most).cumsum(0), (1, 0))
        )
        return sums[count.long()]

    def cumulative_hits(self, min_relevance: float | None = None) -> Tensor:
        """The number of relevant items down to each rank, ``(Q, W)``."""

        def accumulate() -> Tensor:
            hits = self.hits(min_relevance)
            if hits.is_cpu or self.groups is not None:
                return hits.cumsum(1)
            return hits.to(torch.int32).cumsum(1).to(hits.dtype)  # of integers it is deterministic on CUDA too

        return self._once(("cumulative", min_relevance), accumulate)


def _mark(query: Tensor, marked: Tensor, queries: int, counted: Tensor | None) -> Tensor:
    """Which queries have a marked pair, bool ``(Q,)``."""
    found = torch.zeros(queries + 1, dtype=torch.bool, device=query.device)
    found = found.index_put((torch.where(marked, query, queries),), torch.ones_like(marked))[:queries]
    return found if counted is None else found & counted


def _depth(k: int | Sequence[int] | None) -> int | None:
    cutoffs = [cutoff for cutoff in read_cutoffs(k) if cutoff is not None]
    return max(cutoffs) if cutoffs else None


def _read_choices(**values: str) -> None:
    for name, value in values.items():
        read_choice(name, value, CHOICES[name])


def _top_and_pool(
    rows: Tensor, k: int, excluded: list[Relevance], relevance: Relevance, ties: str
) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
    """The top k of the candidates, and what makes the scores of all of them."""
    labels = relevance.labels
    if ties in {"index", "reverse"}:
        return *top_without(rows, k, excluded, labels, ties), partial(without, rows, excluded, labels)
    rows = without(rows, excluded, labels)  # which these rules read anyway
    if ties == "expected":
        return *topk(rows, k, ties="index"), partial(identity, rows)
    return *top_by_gain(rows, gains_of_all(relevance, rows.shape[1]), k, ties), partial(identity, rows)


def _first_rows(make: Callable[[], Tensor], rows: int) -> Tensor:
    return make()[:rows]


def _note_truth(
    faults: dict[str, Tensor], relevance: Relevance, excluded: list[Relevance], queries: int, size: int | None
) -> None:
    faults["target"] = relevance.num_faulty(size)
    broken = relevance.infinite_gains()
    if broken is not None:
        faults["gains"] = broken
    note_exclusions(faults, excluded, queries, size)


def _take_out(ids: Tensor, out: Tensor) -> Tensor:
    """Take ids out of their lists; what stands behind moves up, and the end is filled with -1."""
    return close_up(out, ids.masked_fill(out, -1))[0]


def _settle_repeats(
    ids: Tensor, values: Tensor, duplicates: str, faults: dict[str, Tensor], validate: str
) -> tuple[Tensor, Tensor]:
    """Keep the first place of an item that a list holds twice, and its score, or count such lists as faults."""
    if duplicates == "error" and validate == "off":
        return ids, values
    by_id, order = ids.sort(dim=1, stable=True)
    again = torch.zeros_like(ids, dtype=torch.bool)
    again[:, 1:] = (by_id[:, 1:] == by_id[:, :-1]) & (by_id[:, 1:] >= 0)
    if duplicates == "first":
        out = torch.zeros_like(again).scatter_(1, order, again)
        ids, values = close_up(out, ids.masked_fill(out, -1), values.masked_fill(out, lowest(values.dtype)))
        return ids, values
    faults["duplicates"] = again.any(1).sum()
    return ids, values
