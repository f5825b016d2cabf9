"""Metrics of many labels, a few of which make up most of the data: rare ones are worth more."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack, override

from torch_topk.gain import Gain, ItemValues
from torch_topk.inputs import Array, nearest, read_int
from torch_topk.metrics.binary import Average, _Pooled
from torch_topk.metrics.labels import read_occurrences
from torch_topk.packed import PolicyOptions
from torch_topk.ranking import Ranking

_WIKIPEDIA, _AMAZON = (0.5, 0.4), (0.6, 2.6)
_FITTED = {
    "WikiLSHTC-325K": _WIKIPEDIA,
    "Wikipedia-500K": _WIKIPEDIA,
    "WikiTitles-500K": _WIKIPEDIA,
    "Amazon-670K": _AMAZON,
    "Amazon-3M": _AMAZON,
    "AmazonTitles-670K": _AMAZON,
    "AmazonTitles-3M": _AMAZON,
    "LF-Amazon-131K": _AMAZON,
    "LF-AmazonTitles-131K": _AMAZON,
    "LF-AmazonTitles-1.3M": _AMAZON,
}


def propensities(
    counts: Array, num_rows: int, *, a: float | None = None, b: float | None = None, dataset: str | None = None
) -> Tensor:
    r"""The chance that a label which is true of a row was noted there, from how often training holds it.

    .. math:: p_l = \frac{1}{1 + C\,(N_l + B)^{-A}}, \qquad C = (\ln N - 1)(B + 1)^A

    Args:
        counts: ``(num_labels,)``: the training rows N_l that hold each label.
        num_rows: N: all rows of the training set, at least 3.
        a: A, 0.55 where it is left out.
        b: B, 1.5 where it is left out.
        dataset: The name of a data set whose A and B were fitted, in place of both: WikiLSHTC-325K, Wikipedia-500K,
            WikiTitles-500K (0.5, 0.4); Amazon-670K and -3M, their titles, LF-Amazon-131K and its titles, and
            LF-AmazonTitles-1.3M (0.6, 2.6).

    Returns:
        float64 ``(num_labels,)``, in (0, 1], on the CPU.

    Raises:
        ValueError: For counts below 0 or above num_rows, fewer than 3 rows, an unknown data set, or one with a or
            b.

    References:
        Jain, Prabhu & Varma, Extreme multi-label loss functions, 2016.

    Example:
        >>> propensities(torch.tensor([0, 10, 1000]), num_rows=5000).round(decimals=3).tolist()
        [0.091, 0.235, 0.782]
    """
    occurrences = read_occurrences(counts)
    read_int("num_rows", num_rows, 3)
    if occurrences.numel() and float(occurrences.max()) > num_rows:
        raise ValueError(f"A label occurs in {float(occurrences.max()):g} rows, but there are num_rows={num_rows}.")
    if dataset is not None:
        if a is not None or b is not None:
            raise ValueError("dataset stands for a and b: give it, or them.")
        if dataset not in _FITTED:
            raise ValueError(
                f"{dataset!r} is no data set with an a and b of its own.{nearest(dataset, _FITTED)} Known are "
                f"{', '.join(_FITTED)}; others use the defaults."
            )
        a, b = _FITTED[dataset]
    a, b = 0.55 if a is None else a, 1.5 if b is None else b
    if not all(isinstance(each, Real) and 0 < each < float("inf") for each in (a, b)):
        raise ValueError(f"a and b must be finite numbers above 0, but are {a!r} and {b!r}.")
    c: float = (log(num_rows) - 1) * (b + 1) ** a
    return 1 / (1 + c * (occurrences + b) ** -a)


class _Scored(_Pooled):
    """A sum over the first k of the inverse propensities of what is relevant, divided by the largest possible."""

    _gain: Gain

    def __init__(self, k: Any, propensities: Any, average: Average, **kwargs: Any) -> None:
        if propensities is None:
            raise TypeError(
                f"{type(self).__name__} needs propensities, a number in (0, 1] for each label: "
                "propensities=torch_topk.propensities(train_counts, num_rows)."
            )
        values = propensities if isinstance(propensities, ItemValues) else ItemValues("propensities", propensities)
        chances = values.on(torch.device("cpu"))
        if bool(((chances <= 0) | (chances > 1)).any()):
            raise ValueError(f"propensities must lie in (0, 1], but range from {chances.min()} to {chances.max()}.")
        super().__init__(k, {"propensities": values, "average": average}, **kwargs)
        worth = ItemValues("propensities", 1 / chances)
        self._gain = Gain("items", min_relevance=self.policies.min_relevance, items=worth)

    @override
    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        self._fit(ranking)
        return super().ratios(ranking)

    @override
    def values(self, ranking: Ranking) -> Tensor:
        self._fit(ranking)
        return super().values(ranking)

    def _fit(self, ranking: Ranking) -> None:
        known, width = len(self._gain.items or ()), ranking.relevance.width
        if width is not None and width > known:
            raise ValueError(f"propensities are of {known} labels, but the truth speaks of {width}.")

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        ids, known = ranking.ids, len(self._gain.items or ())
        ranked, relevant = (ids >= known).any(1).sum(), ranking.relevance.num_faulty(known)
        return {**super().faults(ranking), "numbers": torch.maximum(ranked, relevant)}

    @override
    def prepare(self, device: torch.device) -> None:
        self._gain.on(device)


class PSP(_Scored, name="psp", bounds=(0.0, 1.0), expected=True):
    r"""Propensity-scored precision: the inverse propensities found among the first k, of the most there could be.

    .. math:: PSP@k = \frac{\sum_q \sum_{i \le k} rel_i / p_i}{\sum_q \max \sum_{i \le k} rel_i / p_i}

    A ratio of sums over rows, as the extreme-classification community reports it; a row without a relevant label adds
    nothing to either.

    Args:
        k: The cut-off, several, or None for the whole list.
        propensities: Needed: ``(num_labels,)``, in (0, 1]; see `propensities`.
        average: "micro", the ratio of sums, or "macro", the mean of the rows' own ratios.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Jain, Prabhu & Varma, Extreme multi-label loss functions, 2016; Schultheis et al. 2022 on what it estimates.

    Example:
        >>> metric = PSP(k=1, propensities=torch.tensor([1.0, 0.1]))
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1]))
        >>> round(metric.compute().item(), 4)
        0.0909
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        propensities: Array | ItemValues | None = None,
        average: Average = "micro",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(k, propensities, average, **kwargs)

    def counts(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        best = ranking.best_worths(self._gain, "relevant", self.depth)
        return ranking.sum_at(ranking.worths(self._gain), self.cutoffs), ranking.sum_at(best, self.cutoffs)


class PSNDCG(_Scored, name="psndcg", bounds=(0.0, 1.0), expected=True):
    r"""Propensity-scored nDCG: as `PSP`, each place discounted by log2(rank + 1).

    .. math::
        PSnDCG@k = \frac{\sum_q PSDCG_q@k}{\sum_q \max PSDCG_q@k}, \qquad
        PSDCG@k = \frac{\sum_{i \le k} \frac{rel_i}{p_i \log_2(i + 1)}}{\sum_{i \le \min(k, R)} \frac{1}{\log_2(i + 1)}}

    Args:
        k: The cut-off, several, or None for the whole list.
        propensities: Needed: ``(num_labels,)``, in (0, 1]; see `propensities`.
        average: "micro", the ratio of sums, or "macro", the mean of the rows' own ratios.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Jain, Prabhu & Varma, Extreme multi-label loss functions, 2016.

    Example:
        >>> metric = PSNDCG(k=2, propensities=torch.tensor([1.0, 0.5]))
        >>> metric.update(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1]))
        >>> round(metric.compute().item(), 4)
        0.754
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        propensities: Array | ItemValues | None = None,
        average: Average = "micro",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(k, propensities, average, **kwargs)

    def counts(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        worths, best = ranking.worths(self._gain), ranking.best_worths(self._gain, "relevant", self.depth)
        found, most = (
            ranking.sum_at(table * ranking.discounts(table.shape[1]), self.cutoffs) for table in (worths, best)
        )
        # The places that can hold a relevant item are those of the ideal, all of which are worth something.
        places = ranking.sum_at((best > 0) * ranking.discounts(best.shape[1]), self.cutoffs)
        places = places.clamp(min=1)  # where there is none, nothing is found either
        return found / places, most / places
