"""A slow and obvious reference for the metrics of labels: lists, sets, dicts and loops.

As in ``reference.py``, nothing is shared with the package, so that a fault has to be made twice before a test
misses it. The truth is a set of labels a row. A ranked list holds a label at each rank, or None where a rank
holds nothing; a rank beyond its end holds nothing either.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Truth = Sequence[Collection[Any]]
Ranked = Sequence[Sequence[Any]]
Triple = tuple[float, float, float]


# Counting ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """What one label, one row or all of them together come to."""

    tp: int
    predicted: int
    support: int

    @property
    def fp(self) -> int:
        return self.predicted - self.tp

    @property
    def fn(self) -> int:
        return self.support - self.tp


def pooled(counts: Iterable[Counts]) -> Counts:
    """All of them together."""
    tp = predicted = support = 0
    for count in counts:
        tp += count.tp
        predicted += count.predicted
        support += count.support
    return Counts(tp, predicted, support)


def labels_of(truth: Truth, ranked: Ranked, ks: Sequence[int], labels: Any = "seen") -> list[Any]:
    """The labels to speak of: those given, or in order those of the truth and of the first max(k) ranks."""
    if labels != "seen":
        return list(labels)
    seen = {label for row in truth for label in row}
    for row in ranked:
        seen |= top(row, max(ks))
    return sorted(seen)


def top(row: Sequence[Any], k: int) -> set[Any]:
    """The labels at the first k ranks."""
    return {label for label in row[:k] if label is not None}


def label_counts(truth: Truth, ranked: Ranked, k: int, labels: Iterable[Any]) -> dict[Any, Counts]:
    """For each label: the rows with it both true and in the top k, with it in the top k, with it true."""
    counts = {}
    rows = [(true, top(row, k)) for true, row in zip(truth, ranked, strict=True)]
    for label in labels:
        tp = sum(label in true and label in found for true, found in rows)
        predicted = sum(label in found for _, found in rows)
        support = sum(label in true for true, _ in rows)
        counts[label] = Counts(tp, predicted, support)
    return counts


def row_counts(truth: Truth, ranked: Ranked, k: int, labels: Iterable[Any]) -> list[Counts]:
    """The same of each row, over the labels we speak of."""
    spoken = set(labels)
    rows = []
    for true, row in zip(truth, ranked, strict=True):
        true_here, found_here = set(true) & spoken, top(row, k) & spoken
        rows.append(Counts(len(true_here & found_here), len(found_here), len(true_here)))
    return rows


# Precision, recall, F ----------------------------------------------------------------------------


def quotient(numerator: float, denominator: float, zero_division: Any) -> float:
    """A quotient; over nothing, what stands for it."""
    if denominator == 0:
        return 0.0 if zero_division == "warn" else float(zero_division)
    return numerator / denominator


def scores(count: Counts, beta: float = 1.0, zero_division: Any = 0) -> Triple:
    """Precision, recall and F-beta of some counts, each replaced by itself where it divides by nothing.

    F is defined as soon as there is anything to count, even where precision or recall is not.
    """
    weight = beta**2
    return (
        quotient(count.tp, count.predicted, zero_division),
        quotient(count.tp, count.support, zero_division),
        quotient(
            (1 + weight) * count.tp,
            (1 + weight) * count.tp + weight * count.fn + count.fp,
            zero_division,
        ),
    )


def mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean of those that are numbers; their plain mean where none has a weight; NaN of none."""
    numbers = [(value, weight) for value, weight in zip(values, weights, strict=True) if not math.isnan(value)]
    if not numbers:
        return math.nan
    total = sum(weight for _, weight in numbers)
    if total == 0:
        return sum(value for value, _ in numbers) / len(numbers)
    return sum(value * weight for value, weight in numbers) / total


def averages(
    truth: Truth,
    ranked: Ranked,
    k: int,
    labels: Sequence[Any],
    average: str,
    *,
    beta: float = 1.0,
    zero_division: Any = 0,
) -> Triple:
    """Precision, recall and F-beta: one of the four averages, over the labels we speak of."""
    of_labels = list(label_counts(truth, ranked, k, labels).values())
    units = {
        "micro": [pooled(of_labels)],
        "macro": of_labels,
        "weighted": of_labels,
        "samples": row_counts(truth, ranked, k, labels),
    }[average]
    triples = [scores(unit, beta, zero_division) for unit in units]
    weights = [float(unit.support) if average == "weighted" else 1.0 for unit in units]
    precision, recall, fbeta = (mean([triple[place] for triple in triples], weights) for place in range(3))
    return precision, recall, fbeta


def coverage(truth: Truth, ranked: Ranked, k: int, labels: Iterable[Any]) -> float:
    """The share of the labels in the truth that have a true positive; NaN where the truth has none of them."""
    counts = [count for count in label_counts(truth, ranked, k, labels).values() if count.support]
    return sum(count.tp > 0 for count in counts) / len(counts) if counts else math.nan


# Propensities ------------------------------------------------------------------------------------


def inverse_propensities(counts: Sequence[int], rows: int, a: float = 0.55, b: float = 1.5) -> list[float]:
    """1 / p of each label, from how many of the training rows hold it."""
    c = (math.log(rows) - 1) * (b + 1) ** a
    return [1 + c * (count + b) ** -a for count in counts]


def discount(rank: int) -> float:
    """What a place is worth in nDCG."""
    return 1 / math.log2(rank + 1)


def psp(truth: Truth, ranked: Ranked, k: int, inverse: Sequence[float]) -> float:
    """The 1 / p of the hits of all rows, over the most that k places a row could have found."""
    found = best = 0.0
    for true, row in zip(truth, ranked, strict=True):
        found += sum(inverse[label] for label in top(row, k) & set(true))
        best += sum(sorted((inverse[label] for label in set(true)), reverse=True)[:k])
    return found / best


def psndcg(truth: Truth, ranked: Ranked, k: int, inverse: Sequence[float]) -> float:
    """The same with discounted places, each row over the discounts of the min(k, |y|) places it can fill."""
    found = best = 0.0
    for true, row in zip(truth, ranked, strict=True):
        places = sum(discount(rank) for rank in range(1, min(k, len(set(true))) + 1))
        if places == 0:
            continue
        hits = [(rank, label) for rank, label in enumerate(row[:k], start=1) if label in true]
        ideal = sorted((inverse[label] for label in set(true)), reverse=True)[:k]
        found += sum(inverse[label] * discount(rank) for rank, label in hits) / places
        best += sum(worth * discount(rank) for rank, worth in enumerate(ideal, start=1)) / places
    return found / best


def frequency_groups(counts: Sequence[int], torso: int = 10, head: int = 100) -> dict[str, list[bool]]:
    """Tail, torso and head as masks: from which count on a label is of the torso, and of the head."""
    return {
        "tail": [count < torso for count in counts],
        "torso": [torso <= count < head for count in counts],
        "head": [count >= head for count in counts],
    }
