"""Metrics of the one target's rank: link prediction, and any task with one right answer among many candidates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack, override

from torch_topk.kernels import sum_dtype
from torch_topk.metric import TopKMetric
from torch_topk.packed import PolicyOptions
from torch_topk.ranks import RankCounts, harmonic, squares

_EXACT, _STEPS, _OCTAVES = 1 << 12, 1 << 11, 21
"""How many half ranks have a cell of their own; how many cells an octave beyond has; and how many octaves there are."""


class _Ranks(TopKMetric, reads=("counts",)):
    """A metric of ranks: it reads `RankCounts`, with ``ties="realistic"`` where nothing else is asked for."""

    def __init__(
        self, k: int | Sequence[int] | None = None, _tallies: int = 0, **kwargs: Unpack[PolicyOptions]
    ) -> None:
        super().__init__(k, _tallies=_tallies, **kwargs)

    @abstractmethod
    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        """Return the numerator and denominator of each query, ``(Q, len(cutoffs))`` or broadcast to it."""

    def per_query(self, ranking: Any) -> Tensor:
        num, den = self.parts(ranking)
        return num / den

    @override
    def ratios(self, ranking: Any) -> tuple[Tensor, Tensor]:
        return self.parts(ranking)


def _fractions(counts: RankCounts) -> dict[str, Tensor]:
    return {"fractions": ((counts.weights > 0) & (counts.weights != 1)).sum()}


class _Uncut(_Ranks, reads=("counts",)):
    """One that has no cut-off: k is ignored."""

    def __init__(
        self, k: int | Sequence[int] | None = None, _tallies: int = 0, **kwargs: Unpack[PolicyOptions]
    ) -> None:
        del k
        super().__init__(None, _tallies, **kwargs)


class MeanRank(
    _Uncut, name="mr", aliases=("mean_rank",), bounds=(1.0, float("inf")), higher_is_better=False, expected=True
):
    r"""Mean rank of the targets.

    .. math:: MR = \frac{1}{Q} \sum_q r_q

    With equal scores the rank is the mean of those that the tied candidates take up ("realistic"), unless ``ties``
    says otherwise: a constant model has mean rank (C + 1) / 2, and not 1.

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` is "realistic", "optimistic", "pessimistic" or "expected".

    Returns:
        A scalar of at least 1, lower is better.

    References:
        Bordes et al., Translating embeddings for modeling multi-relational data, 2013; Sun et al. 2020 and Berrendorf
        et al. 2020 on ties.

    Example:
        >>> metric = MeanRank()
        >>> metric.update(torch.tensor([[0.3, 0.9, 0.3, 0.1]]), torch.tensor([0]))
        >>> metric.compute().item()
        2.5
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        return counts.rank().reshape(-1, 1), counts.ones()


class GeometricMeanRank(_Uncut, name="gmr", bounds=(1.0, float("inf")), higher_is_better=False, expected=True):
    r"""Geometric mean of the targets' ranks.

    .. math:: GMR = \exp\Bigl(\frac{1}{Q} \sum_q \ln r_q\Bigr)

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`.

    Returns:
        A scalar of at least 1, lower is better.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = GeometricMeanRank()
        >>> metric.update(torch.tensor([[0.9, 0.1, 0.3], [0.1, 0.2, 0.3]]), torch.tensor([0, 1]))
        >>> round(metric.compute().item(), 4)
        1.4142
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        return counts.log(), counts.ones()

    @override
    def read(self, num: Tensor, den: Tensor) -> Tensor:
        return (num / den).exp()


class MedianRank(_Uncut, name="median_rank", bounds=(1.0, float("inf")), higher_is_better=False):
    r"""Median of the targets' ranks; of an even number of them, the mean of the two in the middle.

    Ranks are counted in a histogram, so memory does not grow with queries: ranks below 2,048 are exact, greater ones
    within 1 in 4,096, and those of :math:`2^{32}` and more count as that.

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` is "realistic", "optimistic" or "pessimistic": the median over orders of tied
            candidates ("expected") has no closed form. Weights are 0 or 1.

    Returns:
        A scalar of at least 1, lower is better.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = MedianRank()
        >>> metric.update(torch.tensor([[0.3, 0.9], [0.8, 0.1], [0.7, 0.2]]), torch.tensor([0, 0, 0]))
        >>> metric.compute().item()
        1.0
    """

    def __init__(self, k: int | Sequence[int] | None = None, **kwargs: Unpack[PolicyOptions]) -> None:
        super().__init__(k, _EXACT + _OCTAVES * _STEPS, **kwargs)

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        return counts.rank().reshape(-1, 1), counts.ones()

    @override
    def faults(self, ranking: Any) -> dict[str, Tensor]:
        return {**super().faults(ranking), **_fractions(ranking)}

    @override
    def tally(self, into: Tensor, ranking: Any) -> None:
        halves = (2 * ranking.rank().reshape(-1)).clamp(1, 2.0**33 - 1)  # a rank between two is a whole number of them
        mantissa, exponent = halves.frexp()
        beyond = _EXACT + (exponent - 13) * _STEPS + (mantissa * 2 * _STEPS).long() - _STEPS
        cell = torch.where(halves < _EXACT, halves.long(), beyond).clamp(max=len(into) - 1)
        into.scatter_add_(0, cell, (ranking.weights > 0).long())

    @override
    def summary(self, counts: Tensor, queries: Tensor) -> Tensor:
        total = counts.sum()
        middle = torch.stack([(total + 1) // 2, total // 2 + 1])
        return self._ranked(counts, middle).mean(0, keepdim=True)

    @override
    def margins(self, counts: Tensor, level: float) -> tuple[Tensor, Tensor]:
        # The ranks of the order statistics between which the median lies: Conover, Practical nonparametric statistics.
        total = counts.sum()
        reach = NormalDist().inv_cdf((1 + level) / 2) * total.to(sum_dtype(counts.device)).sqrt()
        ends = torch.stack([((total - reach) / 2).floor(), ((total + reach) / 2).ceil() + 1]).long()
        ranks = self._ranked(counts, ends.clamp(min=1).minimum(total))
        # Between the first and the last of n ranks the median lies with probability 1 - 2^(1 - n), and no likelier.
        low, high = torch.where(0.5 ** (total - 1) > 1 - level, torch.nan, ranks)[:, None]
        return low, high

    def _ranked(self, counts: Tensor, places: Tensor) -> Tensor:
        """The ranks at some places of the ascending order, counted from 1; NaN where there are none."""
        cell = torch.searchsorted(counts.cumsum(0), places).clamp(max=len(counts) - 1)
        octave = (cell - _EXACT).clamp(min=0) // _STEPS
        width = torch.where(cell < _EXACT, 1, 2 ** (octave + 1)).to(sum_dtype(counts.device))
        first = torch.where(cell < _EXACT, cell, _STEPS + (cell - _EXACT) % _STEPS) * width
        return torch.where(counts.sum() > 0, (first + (width - 1) / 2) / 2, torch.nan)


class AdjustedMeanRank(_Uncut, name="amr", bounds=(0.0, float("inf")), higher_is_better=False, expected=True):
    r"""Mean rank, divided by what it is by chance: below 1 is better than chance.

    .. math:: AMR = \frac{\sum_q r_q}{\sum_q (C_q + 1) / 2}

    C is the number of candidates that filtering leaves, the target among them.

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`.

    Returns:
        A scalar between 0 and 2, lower is better.

    References:
        Berrendorf et al., On the ambiguity of rank-based evaluation of entity alignment or link prediction methods,
        2020.

    Example:
        >>> metric = AdjustedMeanRank()
        >>> metric.update(torch.tensor([[0.3, 0.9, 0.2]]), torch.tensor([0]))
        >>> metric.compute().item()
        1.0
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        return counts.rank().reshape(-1, 1), (counts.number() + 1) / 2


class AdjustedMeanRankIndex(_Uncut, name="amri", bounds=(-1.0, 1.0), expected=True):
    r"""Mean rank on a scale where chance is 0 and the best is 1.

    .. math:: AMRI = 1 - \frac{\sum_q (r_q - 1)}{\sum_q (C_q - 1) / 2}

    C is the number of candidates that filtering leaves, the target among them. A constant model has exactly 0.

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`.

    Returns:
        A scalar in [-1, 1], higher is better; NaN where no query has a second candidate.

    References:
        Berrendorf et al., On the ambiguity of rank-based evaluation of entity alignment or link prediction methods,
        2020.

    Example:
        >>> metric = AdjustedMeanRankIndex()
        >>> metric.update(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([0]))
        >>> metric.compute().item()
        0.0
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        number = counts.number()
        return (number + 1) / 2 - counts.rank().reshape(-1, 1), (number - 1) / 2


class AdjustedMRR(_Uncut, name="amrr", bounds=(-1.0, 1.0), expected=True):
    r"""Mean reciprocal rank on a scale where chance is 0 and the best is 1.

    .. math:: AMRR = \frac{\sum_q (1 / r_q - E_q)}{\sum_q (1 - E_q)}, \qquad E = \frac{1}{C} \sum_{i \le C} \frac{1}{i}

    C is the number of candidates that filtering leaves, the target among them.

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`. Only with "expected" does a constant model have exactly 0.

    Returns:
        A scalar in [-1, 1], higher is better; NaN where no query has a second candidate.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = AdjustedMRR()
        >>> metric.update(torch.tensor([[0.3, 0.9, 0.2]]), torch.tensor([1]))
        >>> metric.compute().item()
        1.0
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        number = counts.number()
        chance = harmonic(number) / number
        return counts.reciprocal() - chance, 1 - chance


class AdjustedHitRate(_Ranks, name="ahits", bounds=(float("-inf"), 1.0), reads=("counts",), expected=True):
    r"""Hits at k on a scale where chance is 0 and the best is 1.

    .. math:: AH@k = \frac{\sum_q ([r_q \le k] - p_q)}{\sum_q (1 - p_q)}, \qquad p_q = \min(k / C_q, 1)

    C is the number of candidates that filtering leaves, the target among them.

    Args:
        k: The cut-off, or several.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`.

    Returns:
        Values of at most 1, higher is better: a scalar for an int k, ``(len(k),)`` for several; NaN where no query
        has more than k candidates.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = AdjustedHitRate(k=1)
        >>> metric.update(torch.tensor([[0.3, 0.9], [0.3, 0.9]]), torch.tensor([1, 0]))
        >>> metric.compute().item()
        0.0
    """

    def __init__(self, k: int | Sequence[int] | None = 10, **kwargs: Unpack[PolicyOptions]) -> None:
        super().__init__(k, **kwargs)

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        chance = (counts.limits(self.cutoffs) / counts.number()).clamp(max=1)
        return counts.hits_at(self.cutoffs) - chance, 1 - chance


class _Standard(_Ranks, reads=("counts",)):
    """How many standard deviations a mean stands from what it is by chance; larger is better."""

    @override
    def read(self, num: Tensor, den: Tensor) -> Tensor:
        return num / den.sqrt()

    @override
    def faults(self, ranking: Any) -> dict[str, Tensor]:
        return {**super().faults(ranking), **_fractions(ranking)}


class ZMeanRank(_Uncut, _Standard, name="z_mr", bounds=(float("-inf"), float("inf")), reads=("counts",), expected=True):
    r"""Standard deviations by which the mean rank is better than chance.

    .. math:: z = \frac{\sum_q \bigl(\frac{C_q + 1}{2} - r_q\bigr)}{\sqrt{\sum_q (C_q^2 - 1) / 12}}

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`. Weights other than 0 and 1 have no such score.

    Returns:
        A scalar, higher is better.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = ZMeanRank()
        >>> metric.update(torch.tensor([[0.3, 0.9, 0.2]]), torch.tensor([1]))
        >>> round(metric.compute().item(), 4)
        1.2247
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        number = counts.number()
        return (number + 1) / 2 - counts.rank().reshape(-1, 1), (number * number - 1) / 12


class ZMRR(_Uncut, _Standard, name="z_mrr", bounds=(float("-inf"), float("inf")), reads=("counts",), expected=True):
    r"""Standard deviations by which the mean reciprocal rank is better than chance.

    .. math::
        z = \frac{\sum_q (1 / r_q - H_{C_q} / C_q)}{\sqrt{\sum_q (C_q H^{(2)}_{C_q} - H_{C_q}^2) / C_q^2}}

    H is the harmonic number, and H^{(2)} that of squares.

    Args:
        k: Ignored.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`. Weights other than 0 and 1 have no such score.

    Returns:
        A scalar, higher is better.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = ZMRR()
        >>> metric.update(torch.tensor([[0.3, 0.9, 0.2]]), torch.tensor([1]))
        >>> round(metric.compute().item(), 4)
        1.3728
    """

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        number = counts.number()
        first = harmonic(number)
        spread = (number * squares(number) - first * first) / number**2
        return counts.reciprocal() - first / number, torch.where(number > 1, spread, 0.0)


class ZHitRate(_Standard, name="z_hits", bounds=(float("-inf"), float("inf")), reads=("counts",), expected=True):
    r"""Standard deviations by which hits at k are better than chance.

    .. math:: z = \frac{\sum_q ([r_q \le k] - p_q)}{\sqrt{\sum_q p_q (1 - p_q)}}, \qquad p_q = \min(k / C_q, 1)

    Args:
        k: The cut-off, or several.
        kwargs: See `Policies`; ``ties`` as in `MeanRank`. Weights other than 0 and 1 have no such score.

    Returns:
        Values, higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> metric = ZHitRate(k=1)
        >>> metric.update(torch.tensor([[0.3, 0.9]]), torch.tensor([1]))
        >>> metric.compute().item()
        1.0
    """

    def __init__(self, k: int | Sequence[int] | None = 10, **kwargs: Unpack[PolicyOptions]) -> None:
        super().__init__(k, **kwargs)

    def parts(self, counts: RankCounts) -> tuple[Tensor, Tensor]:
        chance = (counts.limits(self.cutoffs) / counts.number()).clamp(max=1)
        return counts.hits_at(self.cutoffs) - chance, chance * (1 - chance)
