"""Metrics of relevant or not: what matters is where the relevant items stand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import Unpack

from torch_topk.inputs import read_choice
from torch_topk.metric import TopKMetric
from torch_topk.packed import PolicyOptions
from torch_topk.ranking import Ranking
from torch_topk.ranks import RankCounts

Average = Literal["macro", "micro"]


class _Pooled(TopKMetric):
    """A ratio of counts: a mean of the queries' ratios ("macro"), or the ratio of pooled counts ("micro")."""

    average: Average

    def __init__(self, k: Any, options: dict[str, Any], **kwargs: Any) -> None:
        read_choice("average", options["average"], ("macro", "micro"))
        if options["average"] == "micro" and kwargs.get("empty") in {"one", "nan"}:
            raise ValueError(f"empty={kwargs['empty']!r} is a value of a query, which average='micro' has none of.")
        super().__init__(k, _options=options, **kwargs)

    @abstractmethod
    def counts(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """Return the numerator and denominator of each query, ``(Q, len(cutoffs))``."""

    def per_query(self, ranking: Ranking) -> Tensor:
        num, den = self.counts(ranking)
        return num / den.clamp(min=torch.finfo(den.dtype).tiny)  # no count is below 1 but 0: 0 / 0 is 0 here

    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        means = self._means(ranking)
        if self.average == "macro":
            return means
        num, den = torch.broadcast_tensors(*self.counts(ranking))
        counted = means[1]  # 0 where an empty query is skipped
        return num * counted, den * counted


class Precision(_Pooled, name="precision", aliases=("p",)):
    r"""Share of the first k places that hold a relevant item.

    .. math:: P@k = \frac{|\{i \le k : rel_i\}|}{k}

    Args:
        k: The cut-off, several, or None for the whole list.
        denominator: "k" (trec_eval; a short list is filled with what is not relevant; for the whole list its
            length), "retrieved" (min(k, items retrieved); 0 where nothing is), or "relevant" (min(k, R), so that a
            perfect list scores 1).
        average: "macro", the mean over queries, or "micro", the sum of hits over the sum of denominators.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = Precision(k=[1, 2])
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute().tolist()
        [1.0, 0.5]
    """

    denominator: str

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        denominator: Literal["k", "retrieved", "relevant"] = "k",
        average: Average = "macro",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        read_choice("denominator", denominator, ("k", "retrieved", "relevant"))
        super().__init__(k, {"denominator": denominator, "average": average}, **kwargs)

    def counts(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        hits = ranking.hits_at(self.cutoffs, self.policies.min_relevance)
        if self.denominator == "relevant":
            return hits, ranking.capped(self.cutoffs, self.policies.min_relevance)
        if self.denominator == "retrieved":
            return hits, ranking.retrieved_at(self.cutoffs)
        return hits, ranking.cutoffs(self.cutoffs)


class Recall(_Pooled, name="recall", aliases=("r",)):
    r"""Share of the R relevant items that stand among the first k.

    .. math:: R@k = \frac{|\{i \le k : rel_i\}|}{R}

    What CLIP and metric learning call recall@k is `HitRate`.

    Args:
        k: The cut-off, several, or None for the whole list.
        denominator: "relevant" (R), or "capped" (min(k, R), as BEIR's capped recall).
        average: "macro", the mean over queries, or "micro", all hits over all relevant items.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = Recall(k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute().item()
        0.5
    """

    denominator: str

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        denominator: Literal["relevant", "capped"] = "relevant",
        average: Average = "macro",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        read_choice("denominator", denominator, ("relevant", "capped"))
        super().__init__(k, {"denominator": denominator, "average": average}, **kwargs)

    def counts(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        level = self.policies.min_relevance
        hits = ranking.hits_at(self.cutoffs, level)
        if self.denominator == "capped":
            return hits, ranking.capped(self.cutoffs, level)
        return hits, ranking.num_relevant(level)


class _FMeasure(_Pooled):
    """The harmonic mean of precision and recall, of pooled counts where the average is micro."""

    beta: float

    def counts(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        level, square = self.policies.min_relevance, self.beta**2
        hits = ranking.hits_at(self.cutoffs, level)
        return (1 + square) * hits, ranking.cutoffs(self.cutoffs) + square * ranking.num_relevant(level)


class FBeta(_FMeasure, name="fbeta"):
    r"""Weighted harmonic mean of precision and recall at k.

    .. math:: F_\beta@k = \frac{(1 + \beta^2) P R}{\beta^2 P + R} = \frac{(1 + \beta^2)\, hits}{k + \beta^2 R}

    Args:
        k: The cut-off, several, or None for the whole list.
        beta: How many times as much recall counts as precision; above 0.
        average: "macro", the mean of the queries' F, or "micro", F of the pooled counts.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        van Rijsbergen, Information Retrieval, 1979. Opitz & Burst 2019 on means of F against F of means.

    Example:
        >>> metric = FBeta(k=2, beta=2.0)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 0]]))
        >>> round(metric.compute().item(), 4)
        0.8333
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        beta: float = 1.0,
        average: Average = "macro",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 0 < beta < float("inf"):
            raise ValueError(f"beta must be a finite number above 0, but is {beta!r}.")
        super().__init__(k, {"beta": float(beta), "average": average}, **kwargs)


class F1(_FMeasure, name="f1"):
    r"""Harmonic mean of precision and recall at k: `FBeta` with beta = 1.

    .. math:: F_1@k = \frac{2 P R}{P + R} = \frac{2\, hits}{k + R}

    Args:
        k: The cut-off, several, or None for the whole list.
        average: "macro", the mean of the queries' F1, or "micro", F1 of the pooled counts.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = F1(k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute().item()
        0.5
    """

    beta = 1.0

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        average: Average = "macro",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(k, {"average": average}, **kwargs)


class HitRate(TopKMetric, name="hit_rate", aliases=("hits", "success"), reads=("ranking", "counts")):
    r"""Share of the queries with a relevant item among the first k.

    .. math:: \mathrm{Hit}@k = [\exists\, i \le k : rel_i]

    Papers on CLIP and metric learning call it recall@k, those on knowledge graphs hits@k, trec_eval success.

    Args:
        k: The cut-off, several, or None for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = HitRate(k=[1, 2])
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([1]))
        >>> metric.compute().tolist()
        [0.0, 1.0]
    """

    def per_query(self, ranking: Ranking | RankCounts) -> Tensor:
        if isinstance(ranking, RankCounts):
            return ranking.hits_at(self.cutoffs)
        return ranking.hits_at(self.cutoffs, self.policies.min_relevance).clamp(max=1)


class FullRecall(TopKMetric, name="full_recall"):
    r"""Share of the queries all of whose R relevant items stand among the first k.

    .. math:: \mathrm{FullRecall}@k = [\,|\{i \le k : rel_i\}| = R\,]

    Args:
        k: The cut-off, several, or None for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = FullRecall(k=[1, 2])
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 1, 0]]))
        >>> metric.compute().tolist()
        [0.0, 1.0]
    """

    def per_query(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        hits = ranking.hits_at(self.cutoffs, level)
        return (hits >= ranking.num_relevant(level).clamp(min=1)).to(hits.dtype)


class MRR(TopKMetric, name="mrr", aliases=("rr", "recip_rank"), reads=("ranking", "counts")):
    r"""Mean reciprocal rank of the first relevant item; 0 where none stands among the first k.

    .. math:: RR@k = \max_{i \le k,\ rel_i} \frac{1}{i}

    Args:
        k: The cut-off, several, or None for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Voorhees, The TREC-8 question answering track report, 1999.

    Example:
        >>> metric = MRR(k=3)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([1]))
        >>> metric.compute().item()
        0.5
    """

    def per_query(self, ranking: Ranking | RankCounts) -> Tensor:
        if isinstance(ranking, RankCounts):
            return ranking.reciprocal(self.cutoffs)
        level = self.policies.min_relevance
        hits, found = ranking.hits(level), ranking.hits_at(self.cutoffs, level).clamp(max=1)
        width = hits.shape[1]
        return found * (hits / ranking.ranks(width)).amax(1, keepdim=True) if width else found


class MAP(TopKMetric, name="map", aliases=("ap",)):
    r"""Mean average precision: precision at the rank of each relevant item among the first k, summed.

    .. math:: AP@k = \frac{1}{d} \sum_{i \le k} rel_i \cdot P@i

    Args:
        k: The cut-off, several, or None for the whole list.
        denominator: What d is: "capped" (min(k, R), so that a perfect list scores 1: RecBole, RePlay, PyG),
            "relevant" (R: trec_eval, ranx), "hits" (relevant items among the first k: TorchMetrics), or "k".
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = MAP(k=3)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
        >>> round(metric.compute().item(), 4)
        0.8333
    """

    denominator: str

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        denominator: Literal["capped", "relevant", "hits", "k"] = "capped",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        read_choice("denominator", denominator, ("capped", "relevant", "hits", "k"))
        super().__init__(k, _options={"denominator": denominator}, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        hits = ranking.hits(level)
        precisions = hits * ranking.cumulative_hits(level) / ranking.ranks(hits.shape[1])
        total = ranking.sum_at(precisions, self.cutoffs)
        divisor = {
            "capped": lambda: ranking.capped(self.cutoffs, level),
            "relevant": lambda: ranking.num_relevant(level),
            "hits": lambda: ranking.hits_at(self.cutoffs, level),
            "k": lambda: ranking.cutoffs(self.cutoffs),
        }[self.denominator]()
        return total / divisor.clamp(min=1)  # where it is 0, so is the sum
