"""From rows, a score, a gain and a query each, to ranked lists: tensors in, rankings out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_topk.inputs import InputError
from torch_topk.kernels import ascending
from torch_topk.ranking import Ranking
from torch_topk.relevance import Relevance

_CELLS = 1 << 16  # scores that are ranked at a time on a CPU: their tables stay near its cache
_LOW = (1 << 32) - 1


@dataclass(frozen=True)
class Lists:
    """Queries' documents in the order of their rows, and their ranks.

    Attributes:
        ids: ``(Q, W)``: the column of the document at each rank, equal scores in the order of their rows; -1 beyond a
            list's end.
        gains: ``(Q, N)``: the target in each column; 0 where there is no document.
        scores: ``(Q, N)``: the score; minus infinity where there is no document.
        longest: How many documents the longest list of all queries holds, here or not.
        full: Whether each column of each query holds a document.
    """

    ids: Tensor
    gains: Tensor
    scores: Tensor
    longest: int
    full: bool = False

    @classmethod
    def of(cls, scores: Tensor, gains: Tensor, longest: int, lengths: Tensor | None = None) -> Lists:
        """Rank tables ``(Q, W)`` whose rows are as long as said, ``(Q, 1)``; None: all are full."""
        columns = torch.arange(scores.shape[1], device=scores.device)
        # Negated, so that the best comes first, and as integers that sort as the scores do; the column in the low half
        # keeps equal scores in their order. Subtracting from 0 makes -0.0 and 0.0 one.
        bits = torch.sub(0.0, scores).view(torch.int32)
        keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
        keys <<= 32
        keys |= columns
        ids = ascending(keys)
        ids &= _LOW
        if lengths is not None:
            ids.masked_fill_(columns >= lengths, -1)
        return cls(ids, gains, scores, longest, full=lengths is None)

    def first(self, k: int | None) -> Lists:
        """The first k documents of each list, as if there were no others."""
        if k is None:
            return self
        ids = self.ids[:, :k]
        columns, held = ids.clamp(min=0), ids >= 0
        gains, scores = self.gains.gather(1, columns) * held, self.scores.gather(1, columns)
        places = torch.arange(ids.shape[1], device=ids.device)
        return Lists(torch.where(held, places, -1), gains, scores.masked_fill(~held, -torch.inf), self.longest)

    def without(self) -> Tensor:
        """Which queries have no gain above 0, bool ``(Q, 1)``."""
        return ~(self.gains if self.gains.dtype == torch.bool else self.gains > 0).any(1, keepdim=True)

    def ranking(self, k: int | None = None) -> Ranking:
        """The record that metrics read, to depth k."""
        return self._ranking(self.ids[:, :k], "index", None)

    def over_orders(self, read: Callable[[Ranking], Tensor]) -> Tensor:
        """What is read of whole lists, as the mean over all orders of equal scores; ``(Q, C)``."""
        # Beyond a list's end the id is -1; a score that stands there stands nowhere else.
        scored = self.scores.gather(1, self.ids.where(self.ids >= 0, self.ids.shape[1] - 1))
        tied = ((scored[:, 1:] == scored[:, :-1]) & (self.ids[:, 1:] >= 0)).any(1)
        values = read(self._ranking(self.ids, "index", None))
        if bool(tied.any()):  # telling groups apart takes several times as long as ranking
            some = Lists(self.ids[tied], self.gains[tied], self.scores[tied], self.longest, self.full)
            values[tied] = read(some._ranking(some.ids, "expected", scored[tied]))
        return values

    def _ranking(self, ids: Tensor, ties: str, scored: Tensor | None) -> Ranking:
        return Ranking(
            ids,
            Relevance.from_dense(self.gains),
            weights=None,
            ties=ties,
            depth=None,
            shape=(len(ids),),
            pool=lambda: self.scores,
            pool_holds="scores",
            faults={},
            values=scored,
            gains=self.gains.gather(1, ids) if self.full else None,
        )


def joined(parts: Tensor | Sequence[Tensor]) -> Tensor:
    """What was kept in parts, or is one tensor since ranks were synchronised."""
    if isinstance(parts, Tensor):
        return parts
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _order_of(indexes: Tensor) -> Tensor:
    """The rows by index, those of one index in the order in which they came: ``(P,)``."""
    low, high = (int(end) for end in indexes.aminmax())
    if max(high - low, len(indexes)) <= _LOW >> 1:
        keys = (indexes - low) << 32
        keys |= torch.arange(len(indexes), device=indexes.device)
        return ascending(keys) & _LOW
    return indexes.argsort(stable=True)


def read_lists(indexes: Tensor, scores: Tensor, gains: Tensor) -> Iterator[tuple[Tensor, Lists]]:
    """Ranked lists, some queries at a time, and where these stand in the order of indexes.

    Lists of similar length share a table, so that all tables together take at most twice the rows.
    """
    runs, lengths = indexes.unique_consecutive(return_counts=True)
    if bool((runs[1:] < runs[:-1]).any()):
        order = _order_of(indexes)
        scores, gains = scores.index_select(0, order), gains.index_select(0, order)
        lengths = indexes.index_select(0, order).unique_consecutive(return_counts=True)[1]
    longest, cells = int(lengths.max()), _CELLS if scores.is_cpu else _CELLS << 6
    everyone = torch.arange(len(lengths), device=scores.device)
    if longest * len(lengths) == len(scores):
        tables = scores.view(-1, longest), gains.view(-1, longest), everyone
        for block in zip(*(table.split(max(1, cells // longest)) for table in tables), strict=True):
            yield block[2], Lists.of(block[0], block[1], longest)
        return
    ends = lengths.cumsum(0)
    level = lengths.cpu().double().log2().ceil().to(lengths)  # not every device has float64
    for each in level.unique().tolist():
        width = min(longest, 1 << each)
        for which in everyone[level == each].split(max(1, cells // width)):
            length, columns = lengths[which, None], torch.arange(width, device=scores.device)
            held = columns < length
            rows = torch.where(held, ends[which, None] - length + columns, 0)
            yield which, Lists.of(scores[rows].masked_fill(~held, -torch.inf), gains[rows] * held, longest, length)


def numbers(scores: Tensor, what: str) -> Tensor:
    """The scores, minus infinity as the lowest number, since it stands for no document; an InputError for NaN."""
    least = float(scores.min())  # NaN where there is one
    if math.isnan(least):
        raise InputError(
            f"{what}: {int(scores.isnan().sum())} of {scores.numel()} scores are NaN, so their documents have no rank; "
            "mend the model, or leave these rows out."
        )
    return scores.clamp(min=torch.finfo(scores.dtype).min) if least == -math.inf else scores
