"""What metrics of labels count: of each label, how often the first k places name it, and how often rightly."""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from torch_topk.inputs import (
    RANK_TIES,
    Array,
    Cutoffs,
    as_tensor,
    is_single,
    read_choice,
    read_cutoffs,
    read_int,
    require_integer,
)
from torch_topk.metric import options_of
from torch_topk.packed import PackedMetric, Policies, PolicyOptions, split_policies
from torch_topk.ranking import Ranking

LabelAverage: TypeAlias = Literal["micro", "macro", "weighted", "samples"]
ZeroDivision: TypeAlias = float | Literal["warn"]
Labels: TypeAlias = Literal["all", "seen"] | Sequence[int] | Array

AVERAGES = ("micro", "macro", "weighted", "samples")
MOST_DRAWN = 200
SCORES = ("precision", "recall", "f1")


@dataclass(frozen=True)
class Totals:
    """What was counted, over all batches and ranks, and how it is to be read.

    Attributes:
        counts: int64: how many rows name each label between a cut-off and the one before, and how many rightly,
            ``(2, len(k), num_labels)`` in ascending order of cut-offs; then how many rows hold it, ``(num_labels,)``.
        rows: How many rows count, 0-dimensional.
        single: How many of them came with a label, and not with a set of labels.
        defined: For each score and cut-off, how many rows have a denominator of their own, ``(3, len(k))``.
        sums: For each score and cut-off, the sum of these rows' own values, ``(3, len(k))``.
        places: Of each cut-off, its place in ascending order.
        asked: The labels that averages are over, bool ``(num_labels,)``; None: all.
        beta: Of F.
        zero_division: What a ratio without a denominator counts, or "warn".
    """

    counts: Tensor
    rows: Tensor
    single: Tensor
    defined: Tensor
    sums: Tensor
    places: tuple[int, ...]
    asked: Tensor | None
    beta: float
    zero_division: ZeroDivision

    @property
    def held(self) -> Tensor:
        """How many rows hold each label, ``(num_labels,)``."""
        return self.counts[-self._labels :]

    @property
    def seen(self) -> Tensor:
        """Which labels the truth holds, or the deepest first k name, bool ``(num_labels,)``."""
        return (self.held > 0) | (self._blocks[0] > 0).any(0)

    @property
    def _labels(self) -> int:
        return self.counts.shape[0] // (2 * len(self.places) + 1)

    @property
    def _blocks(self) -> Tensor:
        return blocks_of(self.counts, len(self.places))

    @property
    def _fill(self) -> Tensor:
        """What a ratio without a denominator counts; without a row, nothing has a value."""
        fill = 0.0 if isinstance(self.zero_division, str) else self.zero_division
        return torch.where(self.rows > 0, self.rows.new_full((), fill), torch.nan)

    def at(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """At the i-th cut-off, for each label: right namings (TP), all namings (TP + FP), and rows that hold it."""
        named, right = self._blocks[:, : self.places[i] + 1].sum(1)
        return right, named, self.held

    def fraction(self, score: str, right: Tensor, named: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        """The numerator and denominator of a score."""
        right, named, held = (part.to(self.sums.dtype) for part in (right, named, held))
        if score == "precision":
            return right, named
        if score == "recall":
            return right, held
        square = self.beta**2
        return (1 + square) * right, square * held + named

    def _divide(self, num: Tensor, den: Tensor) -> Tensor:
        return torch.where(den > 0, num / den, self._fill)

    def values(self, score: str, i: int) -> Tensor:
        """The score of each label at the i-th cut-off, ``(num_labels,)``."""
        return self._divide(*self.fraction(score, *self.at(i)))

    def averages(self, score: str, average: str, asked: Tensor | None) -> Tensor:
        """The averages of a score over the labels asked for (None: all) at each cut-off, ``(len(k),)``."""
        if average == "samples":
            defined, total = (table[SCORES.index(score)] for table in (self.defined, self.sums))
            fill = self._fill
            return torch.where(fill.isnan(), total / defined, (total + fill * (self.rows - defined)) / self.rows)
        return torch.stack([self._average(score, average, asked, i) for i in range(len(self.places))])

    def _average(self, score: str, average: str, asked: Tensor | None, i: int) -> Tensor:
        if average == "micro":
            totals = [(part if asked is None else part * asked).sum() for part in self.at(i)]
            return self._divide(*self.fraction(score, *totals))
        values = self.values(score, i)
        kept = ~values.isnan() if asked is None else ~values.isnan() & asked
        values = torch.where(kept, values, 0.0)
        mean = values.sum() / kept.sum()
        if average == "macro":
            return mean
        weights = self.held * kept
        # Where no row holds any of the labels, scikit-learn leaves weights aside.
        return torch.where(weights.sum() > 0, (weights * values).sum() / weights.sum(), mean)

    def warn(self, scores: Sequence[str], average: str | None, stacklevel: int, place: int | None = None) -> None:
        """With zero_division="warn", say once which scores had no denominator (at one cut-off, or any) and count 0."""
        if self.zero_division != "warn" or not self.rows:
            return
        found = []
        for score in scores:
            places = range(len(self.places)) if place is None else [place]
            missing = max(self._undefined(score, average, i) for i in places)
            if missing:
                kind = {"samples": "row", "micro": "average"}.get(str(average), "label")
                found.append(f"{score} of {missing} {kind}{'' if missing == 1 else 's'}")
        if found:
            msg = f"No denominator has the {', the '.join(found)}; these count 0. Set zero_division to 0, 1 or nan."
            warnings.warn(msg, UserWarning, stacklevel=stacklevel + 1)

    def _undefined(self, score: str, average: str | None, i: int) -> int:
        if average == "samples":
            return int(self.rows - self.defined[SCORES.index(score), i])
        _, den = self.fraction(score, *self.at(i))
        den = den if self.asked is None else den[self.asked]
        return int(den.sum() == 0) if average == "micro" else int((den == 0).sum())


class LabelCounts(PackedMetric):
    """What every metric of labels counts; a subclass says what is read off.

    The tallies hold for each cut-off and label how many rows name the label between the cut-off before and this one,
    and how many of them rightly; and for each label, how many rows hold it. The pack holds the sums over rows that
    averages over samples need. Metrics of equal labels, cut-offs and policies have equal states, so that a
    MetricCollection updates one of them for all.
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    num_labels: int
    cutoffs: Cutoffs
    _ascending: tuple[int, ...]

    def __init__(
        self,
        num_labels: int,
        k: int | Sequence[int] | None,
        *,
        labels: Labels,
        zero_division: ZeroDivision = 0.0,
        beta: float = 1.0,
        kwargs: PolicyOptions,
    ) -> None:
        given, others = split_policies(kwargs, type(self).__name__, ["num_labels", *options_of(type(self))])
        if given.get("empty") in {"one", "nan"}:
            raise ValueError(
                f"empty must be 'zero', 'skip' or 'error' here, but is {given['empty']!r}: zero_division says what a "
                "ratio without a denominator counts."
            )
        read_int("num_labels", num_labels, 1)
        if isinstance(beta, bool) or not isinstance(beta, Real) or not 0 <= beta < float("inf"):
            raise ValueError(f"beta must be a finite number of at least 0, but is {beta!r}.")
        cutoffs, policies = read_cutoffs(k), Policies(**given)
        read_choice("ties", policies.ties, RANK_TIES[:-1])  # a label either stands among the first k or not
        chosen = read_labels(labels, int(num_labels))
        if chosen is not None and not len(chosen):
            raise ValueError("labels must hold at least one label, but is empty.")
        config = f"{num_labels} {cutoffs} {None if chosen is None else chosen.tolist()} {float(beta)} {policies}"
        columns, size = len(SCORES) * len(cutoffs) + 1, (2 * len(cutoffs) + 1) * int(num_labels)
        super().__init__(columns, f"LabelCounts {config}", policies, others, tallies=size)
        self.num_labels, self.cutoffs = int(num_labels), cutoffs
        self.beta: float = float(beta)
        self.labels: Any = labels if chosen is None else chosen.tolist()
        self.zero_division: ZeroDivision = _read_zero_division(zero_division)
        self._one: bool = is_single(k)
        self._ascending = tuple(sorted(cutoff for cutoff in cutoffs if cutoff is not None))
        # Not buffers, which a change of type would make numbers.
        self._listed: Tensor | None = chosen
        self._mask: Tensor | None = None if chosen is None else mask_of(chosen, self.num_labels)
        self._place_lists()

    @property
    def depth(self) -> int | None:
        """How many ranks it reads; None for the whole list."""
        return self._ascending[-1] if self._ascending else None

    @abstractmethod
    def result(self, totals: Totals) -> Any:
        """What ``compute()`` returns."""

    def warn(self, totals: Totals) -> None:
        """Say what is undefined of what ``compute()`` returns, where zero_division="warn" asks for it."""

    # Updating: nothing is read from the device.

    @override
    def _show(self, *states: Tensor) -> Any:
        return self.result(self._read(*states))

    @override
    def rank(self, preds: Any, target: Any = None, **kwargs: Any) -> Ranking:
        shape = tuple(getattr(preds, "shape", ()))
        columns = shape[-1:] if kwargs.get("items") is None and not isinstance(preds, Ranking) else ()
        if columns not in {(), (self.num_labels,)}:
            raise ValueError(
                f"scores must have a column for each of num_labels={self.num_labels} labels, but are of shape {shape}. "
                "Lists of ranked labels go through Ranking.from_ids(ids, target)."
            )
        ranking: Ranking = super().rank(preds, target, **kwargs)
        if ranking.relevance.width not in {None, self.num_labels}:
            raise ValueError(
                f"The truth speaks of {ranking.relevance.width} labels, but num_labels is {self.num_labels}."
            )
        return ranking

    def _counted(self, ranking: Ranking) -> Tensor:
        """Which rows count, bool ``(Q, 1)``."""
        counted = ranking.weights[:, None] > 0
        return counted & ~ranking.is_empty(self.policies.min_relevance) if self.policies.empty == "skip" else counted

    @override
    def tally(self, into: Tensor, ranking: Ranking) -> None:
        level, counted = self.policies.min_relevance, self._counted(ranking)
        cells, held = ranking.cells(self._ascending, self.num_labels)
        named = counted & held
        right = named & (ranking.hits(level)[:, : self.depth] > 0)
        for block, marked in zip(blocks_of(into, len(self.cutoffs)), (named, right), strict=True):
            block.view(-1).scatter_add_(0, cells.reshape(-1), marked.reshape(-1).long())
        ranking.relevance.tally(into[-self.num_labels :], counted[:, 0], level)

    @override
    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        # For each row its precision, recall and F at each cut-off, with denominator 0 where they have none; then
        # whether the row came with a single label.
        level, square = self.policies.min_relevance, self.beta**2
        hits, retrieved = ranking.hits_at(self.cutoffs, level), ranking.retrieved_at(self.cutoffs)
        relevant = ranking.num_relevant(level)
        if self._mask is not None:  # of the truth and of the list, what is asked for
            mask, ids = self._mask, ranking.ids
            asked = mask[ids.clamp(0, self.num_labels - 1)] & (ids >= 0) & (ids < self.num_labels)
            hits = ranking.sum_at(ranking.hits(level) * asked, self.cutoffs)
            retrieved = ranking.sum_at(asked.to(hits.dtype), self.cutoffs)
            relevant = ranking.relevance.keep(mask).num_relevant(level).to(hits.dtype)[:, None]
        den = torch.cat([retrieved, relevant.expand_as(hits), square * relevant + retrieved], dim=1)
        num = torch.cat([hits, hits, (1 + square) * hits], dim=1) / den.clamp(min=torch.finfo(den.dtype).tiny)
        single = torch.full_like(relevant, float(ranking.relevance.labels is not None))
        num, den = torch.cat([num, single], dim=1), torch.cat([(den > 0).to(num.dtype), ranking.ones()], dim=1)
        counted = self._counted(ranking)
        return num * counted, den * counted

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        ids, weights = ranking.ids, ranking.weights
        found = {
            "ranked": (ids >= self.num_labels).any(1).sum(),
            "target": ranking.relevance.num_faulty(self.num_labels),
            "fractions": ((weights > 0) & (weights != 1)).sum(),
        }
        if self.policies.empty == "error":
            found["empty"] = (ranking.is_empty(self.policies.min_relevance)[:, 0] & (weights > 0)).sum()
        return found

    # Reading.

    @override
    def _present(self, values: Tensor) -> Any:
        del values
        totals = self._read(self._reduced, self._reduced_counts)
        self.warn(totals)
        return self.result(totals)

    def totals(self) -> Totals:
        """What was counted over all ranks: reduced and checked for faults once, whatever is read off it.

        Under DDP this is a collective operation, unless compute() has just been called on all ranks.
        """
        return self._read(*self._reduce())

    def _read(self, sums: Tensor | None, counts: Tensor | None) -> Totals:
        assert sums is not None  # noqa: S101 - compute() has set both
        assert counts is not None  # noqa: S101
        # The last column is of rows: its denominator counts them, its numerator those that came with a single label.
        defined, total = sums[: 2 * self._columns].view(2, self._columns)[:, :-1].view(2, len(SCORES), -1)
        places = tuple(0 if k is None else self._ascending.index(k) for k in self.cutoffs)
        rows, single = sums[self._columns - 1], sums[2 * self._columns - 1]
        totals = Totals(counts, rows, single, defined, total, places, self._mask, self.beta, self.zero_division)
        return replace(totals, asked=totals.seen) if isinstance(self.labels, str) and self.labels == "seen" else totals

    @override
    def _apply(self, fn: Any, exclude_state: Sequence[str] = ()) -> Any:
        super()._apply(fn, exclude_state)
        self._place_lists()
        return self

    def _place_lists(self) -> None:
        """Have the lists of labels where the state is."""
        if self._listed is not None and self._mask is not None:
            self._listed, self._mask = self._listed.to(self.device), self._mask.to(self.device)

    @override
    def intervals(self, level: float = 0.95, method: str = "auto") -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has no interval in closed form; precision, recall and F over rows have, in "
            "TopKMetrics(['precision', 'recall', 'f1'], k=...).intervals()."
        )

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot averages over K as a curve, values of labels as a heat map, or a list of averages over steps as lines.

        Args:
            val: A result of ``compute()`` or ``forward()``, or a list of them; None: of ``compute()``.
            ax: Matplotlib axes to draw on; None makes a figure.

        Returns:
            The figure (None where axes were given) and the axes.
        """
        from torch_topk import plot

        name, val = type(self).__name__, self.compute() if val is None else val
        if isinstance(val, (list, tuple)):
            keys = [name if k is None else f"{name}@{k}" for k in self.cutoffs]
            if any(step.numel() != len(keys) for step in val):
                raise ValueError("Steps are drawn of averages: average=None has a value a label in each.")
            steps = torch.stack([step.reshape(-1) for step in val])
            return plot.steps(dict(zip(keys, steps.T, strict=True)), bounds=(0.0, 1.0), ax=ax)
        values = val.reshape(len(self.cutoffs), -1)
        if values.shape[1] == 1:
            return plot.curves({name: (self.cutoffs, values[:, 0])}, bounds=(0.0, 1.0), ax=ax)
        labels = [str(label) for label in (range(self.num_labels) if isinstance(self.labels, str) else self.labels)]
        shown, more = labels[:MOST_DRAWN], max(0, len(labels) - MOST_DRAWN)
        return plot.heatmap(values[:, :MOST_DRAWN], self.cutoffs, shown, label=name, more=more, ax=ax)

    @property
    @override
    def _bounds(self) -> tuple[Tensor, Tensor]:
        return self._sums.new_zeros(()), self._sums.new_ones(())

    def __repr__(self) -> str:
        k = self.cutoffs[0] if self._one else list(self.cutoffs)
        shown = [f"num_labels={self.num_labels}", f"k={k!r}"]
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name, parameter.default)
            if parameter.kind is parameter.KEYWORD_ONLY and isinstance(value, (str, float, list)):
                shown += [f"{name}={value!r}"] if str(value) != str(parameter.default) else []
        return f"{type(self).__name__}({', '.join([*shown, *self.policies.changed()])})"


def blocks_of(counts: Tensor, cutoffs: int) -> Tensor:
    """A view of the namings and of the right ones, ``(2, cutoffs, num_labels)``, a row from one cut-off to the next."""
    labels = counts.shape[0] // (2 * cutoffs + 1)
    return counts[:-labels].view(2, cutoffs, labels)


def mask_of(chosen: Tensor, num_labels: int) -> Tensor:
    """Mark the chosen labels: bool ``(num_labels,)``."""
    return torch.zeros(num_labels, dtype=torch.bool, device=chosen.device).index_fill_(0, chosen, value=True)


def _read_zero_division(value: Any) -> ZeroDivision:
    if isinstance(value, str) and value == "warn":
        return "warn"
    if not isinstance(value, str) and isinstance(value, Real) and (value in {0, 1} or isnan(value)):
        return float(value)
    raise ValueError(f"zero_division must be 0, 1, nan or 'warn', but is {value!r}.")


def read_labels(labels: Any, num_labels: int, name: str = "labels") -> Tensor | None:
    """A list of labels as int64 ids, in order; None for a word that stands for one, which only ``labels`` may be."""
    if isinstance(labels, str) and name == "labels":
        read_choice(name, labels, ("all", "seen"))
        return None
    words = "'all', 'seen', " if name == "labels" else ""
    what = f"{name} must be {words}a list of labels, or a bool mask of the {num_labels} labels"
    if isinstance(labels, str) or not isinstance(labels, (Tensor, np.ndarray, Iterable)):
        raise TypeError(f"{what}, but is {labels!r}.")
    given = labels if isinstance(labels, (Tensor, np.ndarray)) else np.asarray(list(labels))
    ids = as_tensor(name, given).cpu()
    if ids.dtype == torch.bool and ids.shape == (num_labels,):
        return ids.nonzero()[:, 0]
    if ids.shape == (0,):
        ids = ids.long()
    if ids.dim() != 1 or ids.dtype == torch.bool:
        raise ValueError(f"{what}, but is {ids.dtype} of shape {tuple(ids.shape)}.")
    ids = require_integer(name, ids)
    stray = (ids < 0) | (ids >= num_labels)
    if bool(stray.any()) or len(ids.unique()) < len(ids):
        raise ValueError(f"{name} must be different ids from 0 to {num_labels - 1}, but are {ids.tolist()}.")
    return ids
