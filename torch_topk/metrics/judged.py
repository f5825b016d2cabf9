"""What the first k leave open: items that nobody has judged, and places that equal scores contest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import Unpack

from torch_topk.inputs import read_choice
from torch_topk.metric import TopKMetric
from torch_topk.packed import PolicyOptions
from torch_topk.ranking import Ranking


class Judged(TopKMetric, name="judged", expected=True):
    r"""Share of the first k items that somebody has judged, relevant or not.

    .. math:: \mathrm{Judged}@k = \frac{|\{i \le k : judged_i\}|}{d}

    A listed item with a gain of at least 0 is judged; one that is not listed, or has a gain below 0, is not. In a dense
    matrix of gains every item is listed. A query is empty, for ``empty=``, where nothing was judged.

    Args:
        k: The cut-off, several, or None for the whole list.
        denominator: What d is: "retrieved" (min(k, items retrieved), as in ir_measures) or "k".
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = Judged(k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, -1, 0]]))
        >>> metric.compute().item()
        0.5
    """

    denominator: str

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        denominator: Literal["retrieved", "k"] = "retrieved",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        read_choice("denominator", denominator, ("retrieved", "k"))
        super().__init__(k, _options={"denominator": denominator}, **kwargs)

    def is_empty(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        return ranking.num_relevant(level) + ranking.num_refused(level) == 0

    def per_query(self, ranking: Ranking) -> Tensor:
        retrieved = ranking.retrieved_at(self.cutoffs)
        divisor = ranking.cutoffs(self.cutoffs) if self.denominator == "k" else retrieved
        return ranking.sum_at(ranking.judged(), self.cutoffs) / divisor.clamp(min=1)


class Bpref(TopKMetric, name="bpref", whole=True):
    r"""How rarely an item that was judged not relevant stands above a relevant one; unjudged items do not count.

    .. math:: \mathrm{bpref} = \frac{1}{R} \sum_{r} \Bigl(1 - \frac{\min(n_r, R)}{\min(N, R)}\Bigr)

    The sum is over the relevant items retrieved, :math:`n_r` of whose items above were judged not relevant; N were in
    all. What is judged is told as in `Judged`.

    Args:
        k: Where lists are cut, or several; None, which a suite's own k is to it, for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k or None, ``(len(k),)`` for several.

    References:
        Buckley & Voorhees, Retrieval evaluation with incomplete information, 2004; trec_eval.

    Example:
        >>> metric = Bpref()
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1, 0.7]]), torch.tensor([[1, 0, 1, -1]]))
        >>> metric.compute().item()
        0.5
    """

    def __init__(self, k: int | Sequence[int] | None = None, **kwargs: Unpack[PolicyOptions]) -> None:
        super().__init__(k, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        hits, relevant = ranking.hits(level), ranking.num_relevant(level)
        refused = ranking.judged() * (1 - hits)
        above = refused.cumsum(1).minimum(relevant)
        most = ranking.num_refused(level).minimum(relevant).clamp(min=1)
        return ranking.sum_at(hits * (1 - above / most), self.cutoffs) / relevant.clamp(min=1)


class TieRate(TopKMetric, name="tie_rate", higher_is_better=False, expected=True):
    r"""Share of the queries whose first k hang on the order of equal scores.

    .. math:: \mathrm{TieRate}@k = [s_k = s_{k+1}]

    With s the scores in descending order. Half precision and counts make ties common: where this is not near 0, say how
    they are broken, or average over their orders with ``ties="expected"``.

    Args:
        k: The cut-off, several, or None for the whole list, which hangs on nothing.
        kwargs: See `Policies`. No truth is read.

    Returns:
        Values in [0, 1], lower is better: a scalar for an int k, ``(len(k),)`` for several. Lists whose order was given
        have no ties.

    Example:
        >>> metric = TieRate(k=[1, 2])
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.5], [0.9, 0.9, 0.1]]))
        >>> metric.compute().tolist()
        [0.5, 0.5]
    """

    reads_truth = False

    def is_empty(self, ranking: Ranking) -> Tensor:
        return torch.zeros_like(ranking.weights, dtype=torch.bool)[:, None]

    def per_query(self, ranking: Ranking) -> Tensor:
        return ranking.tied_at(self.cutoffs).to(ranking.weights.dtype)
