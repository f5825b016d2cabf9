"""How many candidates stand above one target, and level with it: what rank metrics read, without ranking anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import pi, prod
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from torch_topk.exclusion import lay_over, note_exclusions, read_exclusions
from torch_topk.inputs import CHOICES, COUNT_TIES, Array, Cutoffs, as_tensor, read_choice, require_integer
from torch_topk.kernels import lowest, may_branch, orderable, rank_counts
from torch_topk.record import Record, identity, nan_last, read_target, read_weights
from torch_topk.relevance import Relevance


def harmonic(n: Tensor) -> Tensor:
    """The n-th harmonic number, 1 + 1/2 + ... + 1/n."""
    return 1 + torch.digamma(n + 1) - torch.digamma(torch.full_like(n, 2))  # exactly 1 where n is


def squares(n: Tensor) -> Tensor:
    """1 + 1/4 + ... + 1/n^2."""
    total: Tensor = pi * pi / 6 - torch.special.zeta(torch.full_like(n, 2), n + 1)
    return total


class RankCounts(Record):
    """Of each query with one target: how many candidates score more, how many at least as much, and how many there are.

    Make one with `from_scores` or `from_counts`. Counts of parts of the candidates (chunks, shards) add up with ``+``;
    one of the parts holds the target itself.

    Attributes:
        greater: int64 ``(Q,)``: candidates that score more than the target.
        at_least: int64 ``(Q,)``: those that score as much or more, the target among them.
        weights: ``(Q,)``: what each query counts; 0 for one that counts nowhere.
        ties: How equal scores are read: "realistic" (the mean of the ranks that they take up), "optimistic" (the first
            of them), "pessimistic" (the last), or "expected" (a metric's mean over all orders of them).
        shape: The leading shape that the queries had.
        faults: Counts of queries with a fault (see FAULTS), each a 0-dimensional tensor on the device.
    """

    def __init__(
        self,
        greater: Tensor,
        at_least: Tensor,
        candidates: Callable[[], Tensor],
        *,
        weights: Tensor | None,
        shape: tuple[int, ...],
        faults: dict[str, Tensor],
        ties: str = "realistic",
        pool: _Pool | None = None,
        whole: bool = False,
    ) -> None:
        super().__init__(greater.shape[0], greater.device, weights, shape, faults)
        self.greater, self.at_least = greater, at_least
        self.ties: str = ties
        self._count_candidates, self._pool = candidates, pool
        self._whole = whole or pool is not None  # the target's own entry is among those counted

    def _rest(self) -> dict[str, Any]:
        weights = self.weights if self.weighted else None
        return {
            "weights": weights,
            "shape": self.shape,
            "faults": self.faults,
            "ties": self.ties,
            "whole": self._whole,
        }

    def _rows(self, rows: slice | Tensor, shape: tuple[int, ...]) -> RankCounts:
        """The counts of some queries."""
        rest = {**self._rest(), "shape": shape, "weights": self.weights[rows] if self.weighted else None}
        return RankCounts(self.greater[rows], self.at_least[rows], partial(_some, self, rows), **rest)

    def __getitem__(self, rows: slice | Tensor) -> RankCounts:
        """Return the counts of some queries, whose shape is then one dimension: a slice, indices, or a bool mask."""
        chosen = self._rows(rows, ())
        chosen.shape = (len(chosen),)
        return chosen

    @staticmethod
    def join(parts: Sequence[RankCounts]) -> RankCounts:
        """Return the counts of all queries of some parts, behind one another; scores are let go."""
        first = parts[0]
        names = {name for part in parts for name in part.faults}
        faults = {
            name: torch.stack([part.faults[name] for part in parts if name in part.faults]).sum() for name in names
        }
        candidates = torch.cat([part.candidates for part in parts])
        return RankCounts(
            torch.cat([part.greater for part in parts]),
            torch.cat([part.at_least for part in parts]),
            partial(identity, candidates),
            weights=torch.cat([part.weights for part in parts]) if any(part.weighted for part in parts) else None,
            shape=(len(candidates),),
            faults=faults,
            ties=first.ties,
            whole=any(part._whole for part in parts),  # noqa: SLF001 - its own
        )

    @classmethod
    def from_scores(  # noqa: C901 - one straight line of steps, each for an argument
        cls,
        scores: Array,
        labels: Any,
        *,
        exclude: Any = None,
        weights: Array | None = None,
        ignore_index: int | None = None,
        non_finite: str = "error",
        validate: str = "compute",
    ) -> RankCounts:
        """Count, of each query, the candidates that score more than its target, and those that score as much.

        Args:
            scores: ``(..., N)``, any real type; every leading index is a query. Minus infinity (the smallest value of a
                signed integer type) means 'not a candidate'. The target's score is read from it too, so that
                equal is equal.
            labels: ``(...)``: the id of each query's target; or a `Relevance` made from labels.
            exclude: Candidates to leave out, as in `Ranking.from_scores`: known answers, for filtered ranks. What is
                listed twice is left out once, and the target stays a candidate.
            weights: ``(...)`` or ``(Q,)``: what each query counts.
            ignore_index: Labels of this value make their query count nowhere.
            non_finite: "error" counts queries with a NaN score as a fault; "last" ranks NaN behind all numbers.
            validate: As in `Ranking.from_scores`.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit.
            InputError: With ``validate="now"``, for faults in the data.

        Example:
            >>> counts = RankCounts.from_scores(torch.tensor([[0.3, 0.9, 0.3, 0.1]]), torch.tensor([0]))
            >>> counts.greater.item(), counts.at_least.item(), counts.candidates.item()
            (1, 3, 4)
            >>> counts.rank().item()
            2.5
        """
        for name, value in (("non_finite", non_finite), ("validate", validate)):
            read_choice(name, value, CHOICES[name])
        scores = as_tensor("scores", scores)
        if scores.dim() == 0:
            raise ValueError("scores must be (..., N), but are 0-dimensional.")
        shape, columns, device = tuple(scores.shape[:-1]), scores.shape[-1], scores.device
        queries = prod(shape)
        relevance, counted, _ = read_target(labels, scores, None, ignore_index)
        if relevance.labels is None:
            raise ValueError(
                f"RankCounts read one target a query: labels must be integer and {shape}, or Relevance.from_labels."
            )
        excluded = read_exclusions(exclude, shape, queries, columns, device)
        rows, targets = orderable(scores).reshape(queries, columns), relevance.labels
        if non_finite == "last":
            rows = nan_last(rows)
        for part in excluded:
            if part.longest is None:  # a mask is laid over the scores; lists are subtracted from the counts
                rows = lay_over(rows, part, targets)
        lists = [part for part in excluded if part.longest is not None]
        pool, faults = _Pool(rows, targets), {}
        if validate != "off":
            if rows.is_floating_point() and columns:
                broken = pool.least.isnan()
                faults["nan_scores"] = (broken if counted is None else broken & counted).sum()
            faults["target"] = relevance.num_faulty(columns)
            note_exclusions(faults, excluded, queries, columns)
        read = read_weights(weights, counted, shape, device, None if validate == "off" else faults)
        if validate != "off" and columns:
            missing = (pool.limits <= lowest(rows.dtype))[:, 0] & (targets[:, 0] >= 0) & (targets[:, 0] < columns)
            faults["no_candidate"] = (missing if counted is None else missing & counted).sum()
        counts = cls._count(pool, weights=read, shape=shape, faults=faults)
        if lists:
            counts = counts._less(lists)  # noqa: SLF001 - its own
        if validate == "now":
            counts.check()
        return counts

    @classmethod
    def _count(cls, pool: _Pool, **rest: Any) -> RankCounts:
        greater, at_least = rank_counts(pool.rows, pool.limits[:, 0])
        # A target that is no candidate is made one, behind all that are; others that are none do not count with it.
        at_least = torch.where(pool.limits[:, 0] > lowest(pool.rows.dtype), at_least, greater + 1)
        return cls(greater, at_least, pool.count, pool=pool, **rest)

    def without(self, exclude: Any) -> RankCounts:
        """Return the counts of the candidates that are not excluded: filtered ranks beside raw ones, off one reading.

        Args:
            exclude: As in `from_scores`, but no mask.

        Raises:
            ValueError: For counts that were not made of scores, or no longer hold them; for a mask.
        """
        if self._pool is None:
            raise ValueError("Only counts that hold their scores can leave candidates out: RankCounts.from_scores.")
        queries, columns = self._pool.rows.shape
        lists = read_exclusions(exclude, self.shape, queries, columns, self.device)
        if any(part.longest is None for part in lists):
            raise ValueError("Masks are for RankCounts.from_scores(exclude=): here give ids, sparse, or a Relevance.")
        if not lists:
            return self
        found = self._less(lists)
        found.faults = dict(self.faults)
        note_exclusions(found.faults, lists, queries, columns)
        return found

    def _less(self, lists: list[Relevance]) -> RankCounts:
        assert self._pool is not None  # noqa: S101 - its callers have seen to it
        query, held = self._pool.scores_of(lists)
        limits, least = self._pool.limits[query, 0], lowest(held.dtype)
        greater = self.greater.scatter_add(0, query, -(held > limits).long())
        at_least = self.at_least.scatter_add(0, query, -((held >= limits) & (held > least)).long())

        return RankCounts(greater, at_least, partial(_fewer, self, query, held > least), **self._rest())

    @classmethod
    def from_counts(
        cls,
        *,
        greater: Array,
        candidates: Array,
        equal: Array | None = None,
        at_least: Array | None = None,
        weights: Array | None = None,
        validate: str = "compute",
    ) -> RankCounts:
        """Take counts that were made elsewhere.

        Args:
            greater: ``(...)`` integers: how many candidates score more than the target.
            candidates: ``(...)``: how many candidates there are, the target among them.
            equal: ``(...)``: how many others score as much as the target; or
            at_least: ``(...)``: how many score as much or more, the target among them.
            weights: ``(...)``: what each query counts.
            validate: As in `Ranking.from_scores`.

        Raises:
            TypeError, ValueError: For types and shapes that do not fit, or both or none of equal and at_least.

        Example:
            >>> above, level, all_of_them = torch.tensor([4]), torch.tensor([2]), torch.tensor([9])
            >>> RankCounts.from_counts(greater=above, equal=level, candidates=all_of_them).rank().item()
            6.0
        """
        read_choice("validate", validate, CHOICES["validate"])
        if (equal is None) == (at_least is None):
            raise ValueError("Give exactly one of equal (which leaves the target out) and at_least (which counts it).")
        above = require_integer("greater", as_tensor("greater", greater))
        shape, device = tuple(above.shape), above.device
        given = {"candidates": candidates, "equal": equal, "at_least": at_least}
        read = {
            name: require_integer(name, as_tensor(name, value, device))
            for name, value in given.items()
            if value is not None
        }
        for name, value in read.items():
            if value.shape != above.shape:
                raise ValueError(f"{name} must have the shape of greater, {shape}, but has {tuple(value.shape)}.")
        above, total = above.reshape(-1), read["candidates"].reshape(-1)
        level = (above + read["equal"].reshape(-1) + 1) if at_least is None else read["at_least"].reshape(-1)
        faults: dict[str, Tensor] = {}
        if validate != "off":
            faults["counts"] = ((above < 0) | (level < above) | (total < level)).sum()
        wanted = read_weights(weights, None, shape, device, None if validate == "off" else faults)
        pool = partial(identity, total)
        counts = cls(above, level, pool, weights=wanted, shape=shape, faults=faults, whole=equal is not None)
        if validate == "now":
            counts.check()
        return counts

    @property
    def candidates(self) -> Tensor:
        """How many candidates each query has, the target among them, int64 ``(Q,)``; counted when first asked for."""
        return self._once("candidates", self._count_candidates)

    def __len__(self) -> int:
        """Return the number of queries."""
        return self.greater.shape[0]

    def __repr__(self) -> str:
        return f"RankCounts(num_queries={len(self)}, ties={self.ties!r})"

    def __add__(self, other: RankCounts) -> RankCounts:
        """Counts over the candidates of both: another chunk or shard, for the same queries."""
        if not isinstance(other, RankCounts):
            return NotImplemented
        if self._whole and other._whole:
            raise ValueError(
                "Both counts hold the target itself: for all parts but one, give from_counts an at_least without it."
            )
        if self.ties != other.ties:
            raise ValueError(f"Counts read with ties={self.ties!r} and {other.ties!r} do not add up.")
        if other.shape != self.shape:
            raise ValueError(f"Counts of {self.shape} queries and of {other.shape} do not add up.")
        faults = {
            name: self.faults.get(name, 0) + other.faults.get(name, 0) for name in {**self.faults, **other.faults}
        }
        rest: dict[str, Any] = {**self._rest(), "faults": faults, "whole": self._whole or other._whole}
        if not self.weighted and other.weighted:
            rest["weights"] = other.weights
        candidates = partial(_both, self, other)
        return RankCounts(self.greater + other.greater, self.at_least + other.at_least, candidates, **rest)

    def read(self, ties: str) -> RankCounts:
        """Return the same counts under another tie rule."""
        read_choice("ties", ties, COUNT_TIES)
        if ties == self.ties:
            return self
        rest = {**self._rest(), "ties": ties}
        return RankCounts(self.greater, self.at_least, partial(_some, self, slice(None)), pool=self._pool, **rest)

    def first(self, samples: int) -> RankCounts:
        """Return the counts of the first samples: indices of the leading dimension. Faults stay those of all."""
        return self._rows(slice(samples * (len(self) // max(self.samples, 1))), (samples, *self.shape[1:]))

    def fault_counts(self, more: Mapping[str, Tensor] = MappingProxyType({})) -> Tensor:
        """Count the queries with each fault, as `Ranking` does; one that lacks its target is one, once it is read."""
        missing = (self.at_least <= self.greater).sum()
        counts = torch.maximum(missing, self.faults["counts"]) if "counts" in self.faults else missing
        return super().fault_counts({**more, "counts": counts})

    def is_empty(self, min_relevance: float | None = None) -> Tensor:
        """Which queries have no target, bool ``(Q, 1)``: none."""
        del min_relevance
        return torch.zeros_like(self.weights, dtype=torch.bool)[:, None]

    # What metrics read, (Q, 1) each, in float64.

    def _ends(self) -> tuple[Tensor, Tensor]:
        """The first and the last rank that the target may have."""
        dtype = self.weights.dtype
        return self.greater.to(dtype)[:, None] + 1, self.at_least.to(dtype)[:, None]

    def rank(self) -> Tensor:
        """The target's rank under the tie rule, ``(Q,)``; the mean of all it may have under "expected" too."""
        first, last = self._ends()
        ranks = {"optimistic": first, "pessimistic": last}.get(self.ties, (first + last) / 2)
        return ranks.view(self.shape)

    def _rank(self) -> Tensor:
        return self.rank().reshape(-1, 1)

    def _harmonic(self, end: Tensor) -> Tensor:
        """The sum of 1 / rank over the ranks that the target may have, down to one."""
        first = self.greater.to(end.dtype)[:, None]
        return (harmonic(end.maximum(first)) - harmonic(first)).clamp(min=0)

    def limits(self, cutoffs: Cutoffs) -> Tensor:
        """The cut-offs as numbers; the number of candidates, where there is none."""
        return self.number() if cutoffs == (None,) else self.cutoffs(cutoffs)

    def reciprocal(self, cutoffs: Cutoffs = (None,)) -> Tensor:
        """1 / rank, 0 beyond a cut-off, ``(Q, len(cutoffs))``."""
        first, last = self._ends()
        limits = self.limits(cutoffs)
        if self.ties == "expected":
            spread = self._harmonic(last.minimum(limits)) / (last - first + 1)
            return torch.where(first == last, (first <= limits) / first, spread)
        rank = self._rank()
        return torch.where(rank <= limits, 1 / rank, 0.0)

    def log(self) -> Tensor:
        """The natural logarithm of the rank, ``(Q, 1)``."""
        first, last = self._ends()
        if self.ties == "expected":
            return (torch.lgamma(last + 1) - torch.lgamma(first)) / (last - first + 1)
        return self._rank().log()

    def hits_at(self, cutoffs: Cutoffs) -> Tensor:
        """Whether the rank is within a cut-off, or how likely, ``(Q, len(cutoffs))``."""
        first, last = self._ends()
        limits = self.limits(cutoffs)
        if self.ties == "expected":
            return (last.minimum(limits) - first + 1).clamp(min=0) / (last - first + 1)
        return (self._rank() <= limits).to(first.dtype)

    def number(self) -> Tensor:
        """The number of candidates, ``(Q, 1)``."""
        return self.candidates.to(self.weights.dtype)[:, None]


def _some(counts: RankCounts, rows: slice | Tensor) -> Tensor:
    return counts.candidates[rows]


def _both(counts: RankCounts, other: RankCounts) -> Tensor:
    return counts.candidates + other.candidates


def _fewer(counts: RankCounts, query: Tensor, excluded: Tensor) -> Tensor:
    return counts.candidates.scatter_add(0, query, -excluded.long())


class _Pool:
    """The scores of all candidates, and the target's among them."""

    def __init__(self, rows: Tensor, targets: Tensor) -> None:
        self.rows, self.targets = rows, targets
        columns = rows.shape[1]
        least = lowest(rows.dtype)
        self.limits = rows.gather(1, targets.clamp(0, columns - 1)) if columns else rows.new_full((len(rows), 1), least)
        if rows.is_floating_point():
            self.limits = self.limits.masked_fill(self.limits.isnan(), least)  # a NaN is behind all numbers

    @cached_property
    def least(self) -> Tensor:
        """The least score of each row, ``(Q,)``; NaN where one is."""
        return self.rows.amin(1)

    def count(self) -> Tensor:
        """How many candidates there are, the target among them: another read of the scores."""
        least = lowest(self.rows.dtype)
        if may_branch(self.rows) and self.rows.shape[1] and bool((self.least > least).all()):
            return torch.full_like(self.targets[:, 0], self.rows.shape[1])
        return rank_counts(self.rows, torch.full_like(self.limits[:, 0], least))[0] + (self.limits[:, 0] <= least)

    def scores_of(self, lists: Sequence[Relevance]) -> tuple[Tensor, Tensor]:
        """The query and the score of each listed candidate but the target; the lowest of what is none."""
        queries, columns = self.rows.shape
        listed = lists[0]
        if len(lists) > 1:  # two lists may hold one item
            ids = torch.cat([part.padded(columns).expand(queries, -1) for part in lists], dim=1)
            listed = Relevance.from_ids(ids, padding=columns)
        query, item = listed.pairs(columns)
        if listed.num_queries != queries:  # one list for all of them
            size = item.shape[0]
            query = torch.arange(queries, device=item.device).repeat_interleave(size, output_size=queries * size)
            item = item.repeat(queries)
        least = lowest(self.rows.dtype)
        if columns == 0:
            return query, self.rows.new_full(query.shape, least)
        held = self.rows[query, item.clamp(max=columns - 1)]
        return query, held.masked_fill((item >= columns) | (item == self.targets[query, 0]), least)
