"""Metrics of what is recommended, beside whether it is right: what it earns, how known, how varied and how spread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import Unpack, override

from torch_topk.gain import Gain, ItemTable, ItemValues, ItemVectors
from torch_topk.inputs import Array, read_choice, read_cutoffs, read_int
from torch_topk.metric import TopKMetric
from torch_topk.metrics.graded import GainOption, _Graded
from torch_topk.packed import PolicyOptions
from torch_topk.ranking import Ranking

_BAND = 1 << 23
"""How many numbers of embeddings are looked up at a time."""


def _read_size(owner: str, name: str, number: Any, what: str) -> int:
    if number is None:
        raise TypeError(f"{owner} needs {name}, {what}.")
    return read_int(name, number, 1)


def _read_values(name: str, values: Array | ItemValues) -> ItemValues:
    return values if isinstance(values, ItemValues) else ItemValues(name, values)


def _read_counts(owner: str, counts: Array | ItemValues | None) -> ItemValues:
    if counts is None:
        raise TypeError(f"{owner} needs item_counts, how often each item was met: item_counts=(N,).")
    return _read_values("item_counts", counts)


def _check_width(known: int, name: str, ranking: Ranking) -> None:
    """Refuse truth of more items than a metric knows: what a matrix of another catalogue shows at once."""
    width = ranking.relevance.width
    if width is not None and width > known:
        raise ValueError(f"{name} is of {known} items, but the truth speaks of {width}.")


def _count_beyond(known: int, ranking: Ranking) -> Tensor:
    """Count the queries that rank an item beyond those that a metric knows."""
    return (ranking.ids >= known).any(1).sum()


class Value(_Graded, name="value", bounds=(0.0, float("inf")), expected=True):  # all of it but the discount
    r"""What the relevant items among the first k are worth: margin, revenue, or points for clicks and purchases.

    .. math::
        \mathrm{Value}@k = \sum_{i \le k} v_i, \qquad
        \mathrm{normalized}: \frac{\sum_{i \le k} v_i}{\max \sum_{i \le k} v_i}

    With ``item_values``, a relevant item is worth its own, whatever its grade. Otherwise its grade is worth what
    ``gain`` says of it: the truth may hold amounts, or events, as in ``gain={1: 0.1, 2: 0.3, 3: 1.0}`` for a click, a
    like and a purchase. The most that k places could hold is taken over all relevant items, ranked or not. A query is
    empty, for ``empty=``, where nothing is worth anything.

    Args:
        k: The cut-off, several, or None for the whole list.
        item_values: ``(N,)``, at least 0: what each item is worth, such as its margin or price.
        gain: Without ``item_values``: "linear" (max(g, 0)), "exp" (2^g - 1), "binary" (1 where relevant), or a mapping
            of grades to what they are worth, which must list every positive grade of the data.
        normalized: Whether to divide by the most that k places could hold.
        kwargs: See `Policies`. ``min_relevance`` bears on ``item_values`` and the binary gain only.

    Returns:
        Values of at least 0, or in [0, 1] if normalized, higher is better: a scalar for an int k, ``(len(k),)`` for
        several.

    Raises:
        ValueError: For item values that are no finite numbers of at least 0, or that come with a gain.

    References:
        The sum of what is gained is the cumulated gain of Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR
        techniques, 2002.

    Example:
        >>> metric = Value(k=2, item_values=torch.tensor([5.0, 1.0, 20.0]))
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
        >>> metric.compute().item()
        5.0
    """

    item_values: ItemValues | None
    normalized: bool

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        item_values: Array | ItemValues | None = None,
        gain: GainOption = "linear",
        normalized: bool = False,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        if not isinstance(normalized, bool):
            raise TypeError(f"normalized must be True or False, but is {normalized!r}.")
        if item_values is not None and gain != "linear":
            raise ValueError(
                f"item_values say what an item is worth, and gain what a grade is: give one, and not gain={gain!r} too."
            )
        held = _read_values("item_values", item_values) if item_values is not None else None
        super().__init__(k, {"item_values": held, "gain": gain, "normalized": normalized}, **kwargs)
        if held is not None:
            self._gain = Gain("items", min_relevance=self.policies.min_relevance, items=held)
        if normalized:
            self.bounds = (0.0, 1.0)  # type: ignore[misc]  # of the class, which knows no options

    @override
    def prepare(self, device: torch.device) -> None:
        self._gain.on(device)

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        found = super().faults(ranking)
        if self.item_values is not None:
            relevant = ranking.relevance.num_faulty(len(self.item_values))
            found["numbers"] = torch.maximum(_count_beyond(len(self.item_values), ranking), relevant)
        return found

    def per_query(self, ranking: Ranking) -> Tensor:
        if self.item_values is not None:
            _check_width(len(self.item_values), "item_values", ranking)
        found = ranking.sum_at(ranking.worths(self._gain), self.cutoffs)
        if not self.normalized:
            return found
        most = ranking.sum_at(self.best(ranking), self.cutoffs)
        return found / most.clamp(min=torch.finfo(most.dtype).tiny)  # where it is 0, so is what was found


class _Listed(TopKMetric):
    """A metric of the items in a list, right or wrong: it reads no truth, and where there are none a query is empty."""

    reads_truth = False

    @override
    def is_empty(self, ranking: Ranking) -> Tensor:
        return ranking.retrieved_at(self.cutoffs) == 0


class _Known(_Listed):
    """One that knows something of each item."""

    _table: ItemTable
    _named: str

    @override
    def prepare(self, device: torch.device) -> None:
        self._table.on(device)

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        return {**super().faults(ranking), "numbers": _count_beyond(len(self._table), ranking)}

    def per_query(self, ranking: Ranking) -> Tensor:
        _check_width(len(self._table), self._named, ranking)
        return self.known(ranking)

    def known(self, ranking: Ranking) -> Tensor:
        """What is said of each list: the mean over the items among the first k of the number that each has."""
        shown = ranking.retrieved_at(self.cutoffs)
        return ranking.sum_at(self._table.of(ranking.ids), self.cutoffs) / shown.clamp(min=1)


class Novelty(_Known, name="novelty", aliases=("miuf",), bounds=(0.0, float("inf"))):
    r"""Mean self-information of the items among the first k: how few users each was known to.

    .. math:: \mathrm{Novelty}@k = \frac{1}{n} \sum_{i \le k} -\log_2 \frac{\max(c_i, 1)}{U}

    :math:`c_i` of the U users met item i before, and n is the number of items among the first k. An item that nobody
    met counts as met by one user, as in RecTools (MeanInvUserFreq) and RePlay (Surprisal); the latter is this value
    divided by :math:`\log_2 U`. The truth is not read, and may be left out of ``update``; a query is empty where
    the first k ranks hold no item.

    Args:
        k: The cut-off, several, or None for the whole list.
        item_counts: Needed: ``(N,)``: how many users met each item, as in the training set.
        num_users: Needed: U, the number of users there.
        kwargs: See `Policies`.

    Returns:
        Values of at least 0, in bits, higher is more novel: a scalar for an int k, ``(len(k),)`` for several.

    Raises:
        TypeError: Without item_counts or num_users.
        ValueError: For counts below 0 or above num_users.

    References:
        Zhou et al., Solving the apparent diversity-accuracy dilemma of recommender systems, 2010; Castells, Vargas &
        Wang, Novelty and diversity metrics for recommender systems, 2011.

    Example:
        >>> metric = Novelty(k=2, item_counts=torch.tensor([8, 1, 4]), num_users=8)
        >>> metric.update(torch.tensor([[0.1, 0.9, 0.5]]))
        >>> metric.compute().item()
        2.0
    """

    _named = "item_counts"
    item_counts: ItemValues
    num_users: int

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        item_counts: Array | ItemValues | None = None,
        num_users: int | None = None,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        held = _read_counts(type(self).__name__, item_counts)
        users = _read_size(type(self).__name__, "num_users", num_users, "the number of users that were counted")
        counts = held.on(torch.device("cpu"))
        if bool((counts > users).any()):
            raise ValueError(
                f"item_counts must be of users, each counted once: at most num_users={users}, but one is "
                f"{float(counts.max()):g}."
            )
        super().__init__(k, {"item_counts": held, "num_users": users}, **kwargs)
        self._table = ItemValues("item_counts", (users / counts.clamp(min=1)).log2())


class AveragePopularity(
    _Known, name="arp", aliases=("average_popularity",), bounds=(0.0, float("inf")), higher_is_better=False
):
    r"""Mean popularity of the items among the first k.

    .. math:: \mathrm{ARP}@k = \frac{1}{n} \sum_{i \le k} c_i

    :math:`c_i` is how often item i was met, and n the number of items among the first k, as in RecTools
    (AvgRecPopularity) and PyG. Counts divided by the number of users make it a share. The truth is not read, and may be
    left out of ``update``; a query is empty where the first k ranks hold no item.

    Args:
        k: The cut-off, several, or None for the whole list.
        item_counts: Needed: ``(N,)``, at least 0: how often each item was met, as in the training set.
        kwargs: See `Policies`.

    Returns:
        Values of at least 0, lower is less of what everybody knows: a scalar for an int k, ``(len(k),)`` for several.

    Raises:
        TypeError: Without item_counts.
        ValueError: For counts that are no finite numbers of at least 0.

    References:
        Yin et al., Challenging the long tail recommendation, 2012.

    Example:
        >>> metric = AveragePopularity(k=2, item_counts=torch.tensor([8, 1, 4]))
        >>> metric.update(torch.tensor([[0.1, 0.9, 0.5]]))
        >>> metric.compute().item()
        2.5
    """

    _named = "item_counts"
    item_counts: ItemValues

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        item_counts: Array | ItemValues | None = None,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        held = _read_counts(type(self).__name__, item_counts)
        super().__init__(k, {"item_counts": held}, **kwargs)
        self._table = held


class IntraListDiversity(_Known, name="ild", aliases=("diversity",), bounds=(0.0, float("inf"))):
    r"""Mean distance between two items among the first k, by their embeddings.

    .. math:: \mathrm{ILD}@k = \frac{2}{n (n - 1)} \sum_{i < j \le k} d(x_i, x_j)

    n is the number of items among the first k; with fewer than two the value is 0. An embedding of zeros has no
    direction: its cosine with any other counts as 0. With one-hot vectors of categories, "cosine" is the share of pairs
    of two categories, which PyG calls diversity, and "sqeuclidean" of features of 0 and 1 is Hamming's distance. The
    sum over pairs is read off the sum of the vectors, so time and memory do not grow with pairs. The truth is not read,
    and may be left out of ``update``; a query is empty where the first k ranks hold no item.

    Args:
        k: The cut-off, several, or None for the whole list.
        embeddings: Needed: ``(N, D)``, finite: a vector for each item. They are copied, and no part of the state dict.
        distance: "cosine" (1 - cosine) or "sqeuclidean" (the squared Euclidean distance).
        kwargs: See `Policies`.

    Returns:
        Values of at least 0, and with "cosine" of at most 2, higher is more varied: a scalar for an int k,
        ``(len(k),)`` for several.

    Raises:
        TypeError: Without embeddings.
        ValueError: For embeddings of another shape, or that are not finite.

    References:
        Smyth & McClave, Similarity vs. diversity, 2001; Ziegler et al., Improving recommendation lists through topic
        diversification, 2005.

    Example:
        >>> metric = IntraListDiversity(k=2, embeddings=torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
        >>> metric.update(torch.tensor([[0.9, 0.1, 0.5], [0.9, 0.5, 0.1]]))
        >>> metric.compute().item()
        0.5
    """

    _named = "embeddings"
    embeddings: ItemVectors
    distance: str

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        embeddings: Array | ItemVectors | None = None,
        distance: Literal["cosine", "sqeuclidean"] = "cosine",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        read_choice("distance", distance, ("cosine", "sqeuclidean"))
        if embeddings is None:
            raise TypeError(f"{type(self).__name__} needs embeddings, a vector for each item: embeddings=(N, D).")
        held = embeddings if isinstance(embeddings, ItemVectors) else ItemVectors("embeddings", embeddings)
        super().__init__(k, {"embeddings": held, "distance": distance}, **kwargs)
        self._table = held
        if distance == "cosine":
            self.bounds = (0.0, 2.0)  # type: ignore[misc]  # of the class, which knows no options

    @override
    def known(self, ranking: Ranking) -> Tensor:
        ids = ranking.ids[:, : self.depth]
        queries = max(1, _BAND // max(1, ids.shape[1] * self._table.on(ids.device).shape[1]))
        return torch.cat([self._spread(part, ranking.weights.dtype) for part in ids.split(queries)])

    def _spread(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The values of some lists: the vectors of each are looked up, and summed from one cut-off to the next."""
        vectors, there = self._table.of(ids).to(dtype), (ids >= 0).to(dtype)
        if self.distance == "cosine":
            vectors = vectors / vectors.norm(dim=2, keepdim=True).clamp(min=torch.finfo(dtype).tiny)
        else:  # seen from the first item: where distances are small beside the vectors, their squares would lose digits
            vectors = (vectors - vectors[:, :1]) * there[:, :, None]
        squares = vectors.square().sum(2)
        start, found = 0, {}
        total = lengths = number = there.new_zeros(())
        for k in sorted(self.cutoffs, key=lambda k: k or 0):
            total = total + vectors[:, start:k].sum(1)
            lengths, number = lengths + squares[:, start:k].sum(1), number + there[:, start:k].sum(1)
            square, pairs = total.square().sum(1), number * (number - 1)
            spread = pairs + lengths - square if self.distance == "cosine" else 2 * (number * lengths - square)
            found[k] = torch.where(number > 1, spread.clamp(min=0) / pairs, 0.0)
            start = k or 0
        return torch.stack([found[k] for k in self.cutoffs], dim=1)


class _PerRun(_Listed):
    """A value of all lists of a run together, read off how many of them hold each item among the first k.

    The tallies hold for each item how many lists rank it between a cut-off and the one before.
    """

    per_run = True
    num_items: int

    def __init__(self, k: Any, num_items: int | None, **kwargs: Unpack[PolicyOptions]) -> None:
        if kwargs.get("empty") in {"one", "nan"}:
            raise ValueError(
                f"empty must be 'zero', 'skip' or 'error' here, but is {kwargs['empty']!r}: {type(self).__name__} is "
                "of all lists together, and a query has no value to set."
            )
        size = _read_size(type(self).__name__, "num_items", num_items, "the size of the catalogue")
        cutoffs = read_cutoffs(k)
        super().__init__(k, {"num_items": size}, len(cutoffs) * size, **kwargs)
        self._ascending: tuple[int, ...] = tuple(sorted(cutoff for cutoff in cutoffs if cutoff is not None))

    def per_query(self, ranking: Ranking) -> Tensor:
        _check_width(self.num_items, "num_items", ranking)
        return torch.zeros_like(ranking.weights)[:, None].expand(-1, len(self.cutoffs))

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        return {
            **super().faults(ranking),
            "ranked": _count_beyond(self.num_items, ranking),
            "fractions": ((ranking.weights > 0) & (ranking.weights != 1)).sum(),
        }

    @override
    def tally(self, into: Tensor, ranking: Ranking) -> None:
        cells, held = ranking.cells(self._ascending, self.num_items)
        counted = held & (ranking.weights[:, None] > 0)
        into.scatter_add_(0, cells.reshape(-1), counted.reshape(-1).long())

    @override
    def summary(self, counts: Tensor, queries: Tensor) -> Tensor:
        held, found = torch.zeros_like(counts[: self.num_items]), {}
        for k, block in zip(self._ascending or (None,), counts.split(self.num_items), strict=True):
            held = held + block
            found[k] = self.read_off(held, queries[self.cutoffs.index(k)], k)
        return torch.where(queries > 0, torch.stack([found[k] for k in self.cutoffs]), torch.nan)

    @abstractmethod
    def read_off(self, held: Tensor, queries: Tensor, k: int | None) -> Tensor:
        """The value at a cut-off, given how many of a number of lists hold each item, int64 ``(N,)``."""


class Coverage(_PerRun, name="coverage"):
    r"""Share of the catalogue that stands among the first k of any list.

    .. math:: \mathrm{Coverage}@k = \frac{|\bigcup_q L_q@k|}{N}

    The truth is not read, and may be left out of ``update``. State is a count an item and cut-off, which ranks, jobs
    and checkpoints add up. It has no interval, and grows with the number of queries.

    Args:
        k: The cut-off, several, or None for the whole list.
        num_items: Needed: N, the size of the catalogue.
        kwargs: See `Policies`. Weights are 0 or 1; ``empty`` is "zero", "skip" or "error", and a query is empty where
            the first k ranks hold no item.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several; NaN without a query.

    Raises:
        TypeError: Without num_items.

    References:
        Ge, Delgado-Battenfeld & Jannach, Beyond accuracy: evaluating recommender systems by coverage and serendipity,
        2010.

    Example:
        >>> metric = Coverage(k=1, num_items=4)
        >>> metric.update(torch.tensor([[0.9, 0.1, 0.5, 0.2], [0.2, 0.1, 0.9, 0.3]]))
        >>> metric.compute().item()
        0.5
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        num_items: int | None = None,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(k, num_items, **kwargs)

    def read_off(self, held: Tensor, queries: Tensor, k: int | None) -> Tensor:
        del k
        return (held > 0).sum().to(queries.dtype) / self.num_items


class Gini(_PerRun, name="gini", higher_is_better=False):
    r"""Gini index of how often each item stands among the first k: 0 for all alike, near 1 where a few take all places.

    .. math:: G@k = \frac{\sum_{i=1}^{N} (2 i - N - 1)\, c_{(i)}}{N \sum_i c_i}

    :math:`c_{(i)}` are the numbers of lists that hold each item of the catalogue, ascending. The truth is not read, and
    may be left out of ``update``. State is a count an item and cut-off, which ranks, jobs and checkpoints add up.
    It has no interval.

    Args:
        k: The cut-off, several, or None for the whole list.
        num_items: Needed: N, the size of the catalogue.
        kwargs: See `Policies`. Weights are 0 or 1; ``empty`` is "zero", "skip" or "error", and a query is empty where
            the first k ranks hold no item.

    Returns:
        Values in [0, 1), lower is more even: a scalar for an int k, ``(len(k),)`` for several; NaN where no list holds
        an item.

    Raises:
        TypeError: Without num_items.

    References:
        Gini 1912; Fleder & Hosanagar, Blockbuster culture's next rise or fall, 2009.

    Example:
        >>> metric = Gini(k=1, num_items=4)
        >>> metric.update(torch.tensor([[0.9, 0.1, 0.5, 0.2], [0.2, 0.1, 0.9, 0.3]]))
        >>> metric.compute().item()
        0.5
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        num_items: int | None = None,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(k, num_items, **kwargs)

    def read_off(self, held: Tensor, queries: Tensor, k: int | None) -> Tensor:
        del k
        places = torch.arange(1 - self.num_items, self.num_items, 2, dtype=queries.dtype, device=held.device)
        return (held.sort().values * places).sum() / (self.num_items * held.sum().to(queries.dtype))


class Personalization(_PerRun, name="personalization"):
    r"""How little two lists have in common: the mean share of the first k that they do not share.

    .. math::
        1 - \frac{2}{Q (Q - 1)} \sum_{q < r} \frac{|L_q@k \cap L_r@k|}{k}
        = 1 - \frac{\sum_i c_i (c_i - 1)}{k\, Q (Q - 1)}

    :math:`c_i` lists hold item i, so all pairs of Q lists are read off a count an item, where others sample pairs. k is
    at most the size of the catalogue; lists are taken to be full, as in PyG: a rank without an item is shared with
    none. The truth is not read, and may be left out of ``update``. Ranks, jobs and checkpoints add up. It has no
    interval.

    Args:
        k: The cut-off, or several.
        num_items: Needed: N, the size of the catalogue.
        kwargs: See `Policies`. Weights are 0 or 1; ``empty`` is "zero", "skip" or "error", and a query is empty where
            the first k ranks hold no item.

    Returns:
        Values in [0, 1], higher is more personal: a scalar for an int k, ``(len(k),)`` for several; NaN with fewer than
        two queries.

    Raises:
        TypeError: Without num_items.
        ValueError: For k=None.

    References:
        Zhou et al., Solving the apparent diversity-accuracy dilemma of recommender systems, 2010, who call it
        inter-user diversity.

    Example:
        >>> metric = Personalization(k=2, num_items=4)
        >>> metric.update(torch.tensor([[0.9, 0.1, 0.5, 0.2], [0.2, 0.1, 0.9, 0.3]]))
        >>> metric.compute().item()
        0.5
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        *,
        num_items: int | None = None,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        if k is None:
            raise ValueError("Personalization needs k, an int or several: of whole lists it would say nothing.")
        super().__init__(k, num_items, **kwargs)

    def read_off(self, held: Tensor, queries: Tensor, k: int | None) -> Tensor:
        places = min(k or self.num_items, self.num_items)
        lists = held.to(queries.dtype)  # whose squares may add up to more than int64 holds
        return 1 - (lists * (lists - 1)).sum() / (places * queries * (queries - 1))
