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


class Precision(_Pooled, name="precision", aliases=("p",), expected=True):
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


class Recall(_Pooled, name="recall", aliases=("r",), expected=True):
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


class FBeta(_FMeasure, name="fbeta", expected=True):
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


class F1(_FMeasure, name="f1", expected=True):
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


class HitRate(TopKMetric, name="hit_rate", aliases=("hits", "success"), reads=("ranking", "counts"), expected=True):
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
        level = self.policies.min_relevance
        if ranking.groups is not None:
            return 1 - ranking.at(ranking.survival(level), self.cutoffs)
        return ranking.hits_at(self.cutoffs, level).clamp(max=1)


class FullRecall(TopKMetric, name="full_recall", expected=True):
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
        if ranking.groups is not None:
            relevant = ranking.num_relevant(level)
            found = ranking.at(ranking.groups.all_found(ranking.hits(level), relevant), self.cutoffs)
            return found * (relevant > 0)
        hits = ranking.hits_at(self.cutoffs, level)
        return (hits >= ranking.num_relevant(level).clamp(min=1)).to(hits.dtype)


class MRR(TopKMetric, name="mrr", aliases=("rr", "recip_rank"), reads=("ranking", "counts"), expected=True):
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
        if ranking.groups is not None:
            survival = ranking.survival(level)
            first = -survival.diff(dim=1, prepend=torch.ones_like(survival[:, :1]))
            return ranking.sum_at(first / ranking.ranks(survival.shape[1]), self.cutoffs)
        hits, found = ranking.hits(level), ranking.hits_at(self.cutoffs, level).clamp(max=1)
        width = hits.shape[1]
        return found * (hits / ranking.ranks(width)).amax(1, keepdim=True) if width else found


class MAP(TopKMetric, name="map", aliases=("ap",), expected=True):
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
        if ranking.groups is not None and self.denominator == "hits":
            hits, width = ranking.hits(level), ranking.ids.shape[1]
            ends = [width if k is None else min(k, width) for k in self.cutoffs]
            columns = [ranking.groups.precision_over_hits(hits, end) if end else hits.sum(1) for end in ends]
            return torch.stack(columns, dim=1)
        total = ranking.sum_at(ranking.precisions(level), self.cutoffs)
        divisor = {
            "capped": lambda: ranking.capped(self.cutoffs, level),
            "relevant": lambda: ranking.num_relevant(level),
            "hits": lambda: ranking.hits_at(self.cutoffs, level),
            "k": lambda: ranking.cutoffs(self.cutoffs),
        }[self.denominator]()
        return total / divisor.clamp(min=1)  # where it is 0, so is the sum


class RBP(TopKMetric, name="rbp", expected=True):
    r"""Rank-biased precision: what a reader finds who goes on to the next item with probability p.

    .. math:: RBP@k = (1 - p) \sum_{i \le k} rel_i\, p^{i - 1}

    Args:
        k: The cut-off, several, or None for the whole list.
        persistence: p, between 0 and 1: 0.8 in ir_measures, 0.9 in trec_eval.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1), higher is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Moffat & Zobel, Rank-biased precision for measurement of retrieval effectiveness, 2008.

    Example:
        >>> metric = RBP(k=2, persistence=0.5)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
        >>> metric.compute().item()
        0.25
    """

    persistence: float

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        persistence: float = 0.8,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        if isinstance(persistence, bool) or not isinstance(persistence, (int, float)) or not 0 < persistence < 1:
            raise ValueError(f"persistence must be a number between 0 and 1, but is {persistence!r}.")
        super().__init__(k, _options={"persistence": float(persistence)}, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        hits, p = ranking.hits(self.policies.min_relevance), self.persistence
        return (1 - p) * ranking.sum_at(hits * p ** (ranking.ranks(hits.shape[1]) - 1), self.cutoffs)


class RPrecision(TopKMetric, name="rprec", aliases=("r_precision",), whole=True, expected=True):
    r"""Precision at R: the share of the first R places, R the number of relevant items, that hold one.

    .. math:: RP = \frac{|\{i \le R : rel_i\}|}{R}

    Args:
        k: Where lists are cut, or several; None, which a suite's own k is to it, for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k or None, ``(len(k),)`` for several.

    References:
        trec_eval (Rprec); Manning, Raghavan & Schütze, Introduction to information retrieval, 2008, section 8.4.

    Example:
        >>> metric = RPrecision()
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute().item()
        0.5
    """

    def __init__(self, k: int | Sequence[int] | None = None, **kwargs: Unpack[PolicyOptions]) -> None:
        super().__init__(k, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        sums, relevant = ranking.cumulative_hits(level), ranking.num_relevant(level)
        if sums.shape[1] == 0:
            return sums.new_zeros((len(sums), len(self.cutoffs)))
        last = ranking.capped(self.cutoffs, level).clamp(1, sums.shape[1]).long() - 1  # without a relevant item it is 0
        return sums.gather(1, last) / relevant.clamp(min=1)


class MAPAtR(TopKMetric, name="map_r", whole=True, expected=True):
    r"""Mean average precision at R, the number of relevant items: metric learning's MAP@R.

    .. math:: MAP@R = \frac{1}{R} \sum_{i \le R} rel_i \cdot P@i

    Args:
        k: Where lists are cut, or several; None, which a suite's own k is to it, for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k or None, ``(len(k),)`` for several.

    References:
        Musgrave, Belongie & Lim, A metric learning reality check, 2020.

    Example:
        >>> metric = MAPAtR()
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
        >>> metric.compute().item()
        0.25
    """

    def __init__(self, k: int | Sequence[int] | None = None, **kwargs: Unpack[PolicyOptions]) -> None:
        super().__init__(k, **kwargs)

    def per_query(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        precisions, relevant = ranking.precisions(level), ranking.num_relevant(level)
        within = ranking.ranks(precisions.shape[1]) <= relevant
        return ranking.sum_at(precisions * within, self.cutoffs) / relevant.clamp(min=1)


class FallOut(TopKMetric, name="fall_out", higher_is_better=False, expected=True):
    r"""Share of the candidates that are not relevant that stand among the first k.

    .. math:: \mathrm{FallOut}@k = \frac{|\{i \le k : \lnot rel_i\}|}{C - R}

    C - R counts the candidates that are not relevant: of scores those above minus infinity that are not excluded, of
    ranked lists the items in them. A query is empty, for ``empty=``, where there is none.

    Args:
        k: The cut-off, several, or None for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], lower is better: a scalar for an int k, ``(len(k),)`` for several.

    References:
        Manning, Raghavan & Schütze, Introduction to information retrieval, 2008, section 8.4; TorchMetrics.

    Example:
        >>> metric = FallOut(k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1, 0.3]]), torch.tensor([[1, 0, 1, 0]]))
        >>> metric.compute().item()
        0.5
    """

    def is_empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_unwanted(self.policies.min_relevance) == 0

    def per_query(self, ranking: Ranking) -> Tensor:
        level = self.policies.min_relevance
        shown = ranking.retrieved_at(self.cutoffs) - ranking.hits_at(self.cutoffs, level)
        return shown / ranking.num_unwanted(level).clamp(min=1)
