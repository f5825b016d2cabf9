"""Equal scores: orders of them by gain, and what each order would say on average."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_topk.kernels import band, rank_counts, sum_dtype, topk
from torch_topk.relevance import Relevance

Worth = Callable[[Tensor, Tensor], Tensor]
"""What items are worth, of gains and ids of one shape."""


def gains_of_all(relevance: Relevance, items: int) -> Tensor:
    """The gain of every item, ``(Q, items)``."""
    if relevance.longest is None:
        return relevance.laid_out(items)
    ids = relevance.padded(items)
    gains = relevance.gains_of(ids)
    gains = gains.to(torch.int8) if gains.dtype == torch.bool else gains
    return gains.new_zeros((len(ids), items + 1)).scatter(1, ids, gains)[:, :items]


def top_by_gain(rows: Tensor, gains: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """The top k by score, equal scores by gain: the highest first ("optimistic") or last, then by position."""
    bands = band(rows.shape[1])  # keys take more room than scores
    if len(rows) > bands:
        parts = [top_by_gain(*part, k, ties) for part in zip(rows.split(bands), gains.split(bands), strict=True)]
        values, ids = (torch.cat(each) for each in zip(*parts, strict=True))
        return values, ids
    best_first = ties == "optimistic"
    if rows.element_size() <= 4 and gains.element_size() <= 4:
        low = _monotone(gains).long() + (1 << 31)
        keys = (_monotone(rows).long() << 32) | (low if best_first else (1 << 32) - 1 - low)
        ids = topk(keys, k)[1]
    else:
        ids = gains.sort(dim=1, descending=best_first, stable=True).indices
        scores = (rows + 0 if rows.is_floating_point() else rows).gather(1, ids)
        ids = ids.gather(1, scores.sort(dim=1, descending=True, stable=True).indices)[:, :k]
    return rows.gather(1, ids), ids


def _monotone(values: Tensor) -> Tensor:
    """Numbers of at most 32 bits as int32 in the same order."""
    if not values.is_floating_point():
        return values.int()
    bits = (values.float() + 0).view(torch.int32)  # -0.0 and 0.0 become one
    return torch.where(values.isnan(), 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))  # a NaN of either sign first


class TieGroups:
    """The groups of equal scores in which the items at ranks 1..W of each query stand.

    Under "expected" every order of a group is as likely. What is linear in the items' worths is then had by giving each
    the mean worth of its group; the group that reaches past the last rank counts with all its members.

    Args:
        values: ``(Q, W)``: the score at each rank, descending.
        held: bool ``(Q, W)``: which ranks hold an item.
        tail_size: ``(Q,)``: how many members each query's last group has, past the last rank too.
        tail: Given what items are worth, sums it over all members of each query's last group, ``(Q,)``.

    Attributes:
        place: ``(Q, W)``: how many ranks of its group stand above each rank.
        size: ``(Q, W)``: how many members its group has.

    References:
        McSherry & Najork, Computing information retrieval performance measures efficiently in the presence of tied
        scores, 2008.
    """

    def __init__(self, values: Tensor, held: Tensor, tail_size: Tensor, tail: Callable[[Worth], Tensor]) -> None:
        self._held, self._tail = held, tail
        first = torch.ones_like(values, dtype=torch.bool)
        first[:, 1:] = values[:, 1:] != values[:, :-1]
        self._group = first.cumsum(1) - 1
        dtype = sum_dtype(values.device)
        ranks = torch.arange(values.shape[1], device=values.device)
        start = torch.where(first, ranks, 0).cummax(1).values
        self.place = (ranks - start).to(dtype)
        self.size = self._sums(torch.ones_like(self.place), tail_size)

    def _sums(self, table: Tensor, tail: Tensor) -> Tensor:
        """The sum of a ``(Q, W)`` table over each rank's group; of the last group it is given, ``(Q,)``."""
        if table.shape[1] == 0:
            return table
        sums = torch.zeros_like(table).scatter_add_(1, self._group, table).gather(1, self._group)
        return torch.where(self._group == self._group[:, -1:], tail[:, None].to(table.dtype), sums)

    def spread(self, table: Tensor, worth: Worth) -> Tensor:
        """Give each rank the mean of its group: of worths ``(Q, W)``, and what gives them for any items."""
        return torch.where(self._held, self._sums(table, self._tail(worth)) / self.size, 0.0)

    def survival(self, hits: Tensor) -> Tensor:
        """The probability that no relevant item stands down to each rank, ``(Q, W)``, of expected hits."""
        left, relevant = self.size - self.place, hits * self.size
        return torch.where(self._held, ((left - relevant) / left).clamp(min=0), 1.0).cumprod(1)

    def precisions(self, hits: Tensor) -> Tensor:
        """What each rank adds to the numerator of average precision, ``(Q, W)``, of expected hits."""
        above = hits.cumsum(1) - (self.place + 1) * hits  # relevant items in the groups above
        others = torch.where(self.size > 1, (hits * self.size - 1) / (self.size - 1).clamp(min=1), 0.0)
        ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device, dtype=hits.dtype)
        return hits * (above + 1 + self.place * others) / ranks

    def precision_over_hits(self, hits: Tensor, rank: int) -> Tensor:
        """The mean of the precisions at the hits down to a rank, of expected hits: ``(Q,)``.

        How many hits x there are is open in the group alone in which the rank stands: hypergeometric, and given x each
        order is as likely.
        """
        ranks = torch.arange(1, hits.shape[1] + 1, device=hits.device, dtype=hits.dtype)
        here = self._group == self._group[:, rank - 1 : rank]
        here[:, rank:] = False
        size, taken = self.size[:, rank - 1 : rank], self.place[:, rank - 1 : rank] + 1  # n, m
        relevant = (hits[:, rank - 1 : rank] * size).round()  # r
        before = ~here & (ranks <= rank)
        above = (hits * before).sum(1, keepdim=True).round()  # h
        summed = (self.precisions(hits) * before).sum(1, keepdim=True)  # A
        first = (here / ranks).sum(1, keepdim=True)
        more = (here * self.place / ranks).sum(1, keepdim=True) / (taken - 1).clamp(min=1)
        found = torch.arange(rank + 1, device=hits.device, dtype=hits.dtype)  # x
        chance = (
            _log_binomial(relevant, found) + _log_binomial(size - relevant, taken - found) - _log_binomial(size, taken)
        ).exp()
        total = summed + found / taken * ((above + 1) * first + (found - 1) * more)
        return (chance * total / (above + found).clamp(min=1)).sum(1)

    def all_found(self, hits: Tensor, relevant: Tensor) -> Tensor:
        """The probability that all relevant items, ``(Q, 1)`` of them, stand down to each rank, ``(Q, W)``."""
        here = (hits * self.size).round()
        above = (hits.cumsum(1) - (self.place + 1) * hits).round()
        taken = self.place + 1
        # Of m ranks in a group of n that holds r relevant items, those of all ways to fill them that hold all r.
        ways = _log_binomial(self.size - here, taken - here) - _log_binomial(self.size, taken)
        return torch.where(above + here >= relevant, ways.exp().clamp(max=1), 0.0)


def _log_binomial(n: Tensor, k: Tensor) -> Tensor:
    """The logarithm of the number of ways to choose k of n; minus infinity where there is none."""
    inside = (k >= 0) & (k <= n)
    k = torch.where(inside, k, 0.0)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return torch.where(inside, ways, -torch.inf)


def tail_of_scores(rows: Tensor, limit: Tensor, relevance: Relevance, worth: Worth) -> Tensor:
    """Sum what items are worth over those that score exactly ``limit`` ``(Q,)``, of scores ``(Q, N)``: ``(Q,)``."""
    columns, device = rows.shape[1], rows.device
    if relevance.longest is None:
        gains = relevance.laid_out(columns)
        ids, bands = torch.arange(columns, device=device), band(columns)
        parts = zip(rows.split(bands), gains.split(bands), limit.split(bands), strict=True)
        return torch.cat([((row == at[:, None]) * worth(gain, ids.expand_as(gain))).sum(1) for row, gain, at in parts])
    ids = relevance.padded(columns)
    if columns == 0:
        return torch.zeros(len(rows), dtype=sum_dtype(rows.device), device=rows.device)
    level = (rows.gather(1, ids.clamp(max=columns - 1)) == limit[:, None]) & (ids < columns)
    return torch.where(level, worth(relevance.gains_of(ids), ids), 0.0).sum(1)


def count_level(rows: Tensor, limit: Tensor) -> Tensor:
    """Count the scores that are exactly ``limit`` ``(Q,)``, of ``(Q, N)``: ``(Q,)``."""
    greater, at_least = rank_counts(rows, limit)
    return at_least - greater
