"""Metrics of graded relevance: what an item is worth, discounted by where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from typing_extensions import Unpack

from torch_topk.gain import Gain
from torch_topk.inputs import read_choice
from torch_topk.metric import TopKMetric
from torch_topk.packed import PolicyOptions
from torch_topk.ranking import Ranking

GainOption: TypeAlias = Literal["linear", "exp", "binary"] | Mapping[float, float]


class _Graded(TopKMetric):
    """Sums of what items are worth by their grades. A query is empty where no item is worth anything."""

    gain: GainOption
    ideal: str = "relevant"
    _gain: Gain

    def __init__(self, k: Any, options: dict[str, Any], **kwargs: Any) -> None:
        gain = Gain.of(options["gain"], kwargs.get("min_relevance"))
        if gain.grades:
            options["gain"] = dict(gain.grades)
        super().__init__(k, _options=options, **kwargs)
        self._gain = gain

    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        found = super().faults(ranking)
        if self._gain.name == "mapping":
            found["grades"] = ranking.unmapped(self._gain)
        elif self._gain.name == "exp":  # 2^g is infinite from g = 1024
            found["gains"] = (~self.best(ranking).isfinite()).any(1).sum()
        return found

    def best(self, ranking: Ranking) -> Tensor:
        """The largest worths that the first ranks could have shown, descending."""
        pool = "candidates" if self.ideal == "candidates" else "relevant"
        return ranking.best_worths(self._gain, pool, self.depth)

    def is_empty(self, ranking: Ranking) -> Tensor:
        best = self.best(ranking)
        return (best[:, :1] <= 0) if best.shape[1] else torch.ones_like(ranking.weights[:, None], dtype=torch.bool)

    def dcg(self, ranking: Ranking) -> Tensor:
        """The discounted cumulative gain at each cut-off, ``(Q, len(cutoffs))``."""
        worths = ranking.worths(self._gain)
        return ranking.sum_at(worths * ranking.discounts(worths.shape[1]), self.cutoffs)


class DCG(_Graded, name="dcg", bounds=(0.0, float("inf")), expected=True):
    r"""Discounted cumulative gain of the first k items.

    .. math:: DCG@k = \sum_{i \le k} \frac{gain(g_i)}{\log_2(i + 1)}

    Args:
        k: The cut-off, several, or None for the whole list.
        gain: "linear" (max(g, 0)), "exp" (2^g - 1), "binary" (1 where relevant), or a mapping of grades to what they
            are worth, which must list every positive grade of the data.
        kwargs: See `Policies`. ``min_relevance`` bears on the binary gain only; a query is empty where nothing is worth
            anything.

    Returns:
        Values of at least 0, higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002; Burges et al. 2005 (exp).

    Example:
        >>> metric = DCG(k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[3, 0, 2]]))
        >>> metric.compute().item()
        3.0
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        gain: GainOption = "linear",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(k, {"gain": gain}, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        return self.dcg(ranking)


class NDCG(_Graded, name="ndcg", expected=True):
    r"""Discounted cumulative gain of the first k items, divided by the best possible.

    .. math:: nDCG@k = \frac{DCG@k}{IDCG@k}, \qquad DCG@k = \sum_{i \le k} \frac{gain(g_i)}{\log_2(i + 1)}

    IDCG@k is the DCG@k of the best order. A query is empty where it is 0.

    Args:
        k: The cut-off, several, or None for the whole list.
        gain: "linear" (max(g, 0)), "exp" (2^g - 1), "binary" (1 where relevant), or a mapping of grades to what they
            are worth, which must list every positive grade of the data.
        ideal: The best order is of all relevant items, ranked or not ("relevant": trec_eval, ranx), or of the
            candidates only ("candidates": scikit-learn, TorchMetrics): all of them, never the first k. With "k", for
            the binary gain, all k places hold a relevant item, however few there are (RecTools).
        kwargs: See `Policies`. ``min_relevance`` bears on the binary gain only.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002; Burges et al. 2005 (exp).

    Example:
        >>> metric = NDCG(k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[3, 0, 2]]))
        >>> round(metric.compute().item(), 4)
        0.7039
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        gain: GainOption = "linear",
        ideal: Literal["relevant", "candidates", "k"] = "relevant",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        read_choice("ideal", ideal, ("relevant", "candidates", "k"))
        if ideal == "k" and gain != "binary":
            raise ValueError(f"ideal='k' is for gain='binary', but gain is {gain!r}: k places of what grade?")
        super().__init__(k, {"gain": gain, "ideal": ideal}, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        ideal = self._ideal_dcg(ranking)
        return self.dcg(ranking) / ideal.clamp(min=torch.finfo(ideal.dtype).tiny)  # where it is 0, so is the sum

    def _ideal_dcg(self, ranking: Ranking) -> Tensor:
        gain, most = self._gain, self.depth
        if self.ideal == "k":
            return ranking.first_discounts(ranking.cutoffs(self.cutoffs), most or ranking.ids.shape[1])
        if self.ideal == "relevant" and most and ranking.worth_one(gain) and ranking.ids.is_cpu:
            # The same sums in the same order as those of a perfect list, where sums are cumulative.
            return ranking.first_discounts(ranking.capped(self.cutoffs, gain.min_relevance), most)
        best = self.best(ranking)
        return ranking.sum_at(best * ranking.discounts(best.shape[1]), self.cutoffs)


class ERR(TopKMetric, name="err"):
    r"""Expected reciprocal rank: of the item at which a reader stops, who is the likelier content the higher its grade.

    .. math::
        ERR@k = \sum_{i \le k} \frac{s_i}{i} \prod_{j < i} (1 - s_j), \qquad s = \frac{2^{\max(g, 0)} - 1}{2^{g_{max}}}

    Args:
        k: The cut-off, several, or None for the whole list.
        max_grade: :math:`g_{max}`, the highest grade of the scale: 4 in gdeval and ir_measures, and 1 for items that
            are relevant or not. A higher grade in the data is a fault.
        kwargs: See `Policies`. Grades count, and not ``min_relevance``; a query is empty where no grade is above 0.

    Returns:
        Values in [0, 1), higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Chapelle, Metzler, Zhang & Grinspan, Expected reciprocal rank for graded relevance, 2009.

    Example:
        >>> metric = ERR(k=2, max_grade=1)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
        >>> metric.compute().item()
        0.25
    """

    max_grade: float

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        max_grade: float = 4.0,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        if isinstance(max_grade, bool) or not isinstance(max_grade, (int, float)) or not 0 < max_grade < 1024:
            raise ValueError(f"max_grade must be a number above 0 and below 1024, but is {max_grade!r}.")
        super().__init__(k, _options={"max_grade": float(max_grade)}, **kwargs)

    def is_empty(self, ranking: Ranking) -> Tensor:
        return ranking.is_empty()

    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        best = ranking.best_worths(Gain("linear"), "relevant", 1)
        highest = torch.cat([best, ranking.worths(Gain("linear"))], dim=1)
        return {**super().faults(ranking), "max_grade": (highest > self.max_grade).any(1).sum()}

    def per_query(self, ranking: Ranking) -> Tensor:
        stops = ranking.worths(Gain("exp")) / 2.0**self.max_grade
        goes_on = (1 - stops).cumprod(1)
        reached = torch.cat([torch.ones_like(goes_on[:, :1]), goes_on[:, :-1]], dim=1)[:, : stops.shape[1]]
        return ranking.sum_at(stops * reached / ranking.ranks(stops.shape[1]), self.cutoffs)
