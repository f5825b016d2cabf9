"""Link prediction: the known triples of a graph, and the ranks that a model gives true ones among all entities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torch_topk.inputs import Array, as_tensor, read_choice, require_integer
from torch_topk.ranks import RankCounts
from torch_topk.relevance import Relevance
from torch_topk.suite import TopKMetrics

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]

SIDES = ("head", "tail")
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")


class KnownTriples:
    """What is true of a graph: for any (head, relation) its tails, for any (relation, tail) its heads.

    Made once, of the triples of training, validation and test together, it says which entities to leave out when a
    true one is ranked ("filtered", Bordes et al. 2013). Triples that are listed twice count once. Memory is that of
    the triples, a few numbers each.

    Args:
        triples: ``(T, 3)`` integers, (head, relation, tail); or several of these.
        num_entities: How many entities there are.
        num_relations: How many relations there are.

    Raises:
        ValueError: For other shapes, or ids out of range. It reads the device.

    Example:
        >>> known = KnownTriples(torch.tensor([[0, 0, 1], [0, 0, 2], [3, 0, 1]]), num_entities=4, num_relations=1)
        >>> known.tails(torch.tensor([0, 1]), torch.tensor([0, 0])).num_relevant().tolist()
        [2, 0]
    """

    def __init__(self, *triples: Array, num_entities: int, num_relations: int) -> None:
        if not triples:
            raise ValueError("KnownTriples must be made of at least one (T, 3) array of triples.")
        device = as_tensor("triples", triples[0]).device
        self.num_entities, self.num_relations = num_entities, num_relations
        parts = [read_triples(part, num_entities, num_relations, device) for part in triples]
        head, relation, tail = torch.cat(parts).unbind(1)
        self._tails = _Index.build(head * num_relations + relation, tail)
        self._heads = _Index.build(tail * num_relations + relation, head)

    def tails(self, heads: Tensor, relations: Tensor) -> Relevance:
        """Return the known tails of each (head, relation), ``(Q,)`` each: a row a query."""
        return self._tails.rows(self._key(heads, relations))

    def heads(self, relations: Tensor, tails: Tensor) -> Relevance:
        """Return the known heads of each (relation, tail), ``(Q,)`` each: a row a query."""
        return self._heads.rows(self._key(tails, relations))

    def _key(self, entities: Tensor, relations: Tensor) -> Tensor:
        entities, relations = entities.long(), relations.long()
        known = (relations >= 0) & (relations < self.num_relations)
        return torch.where(known, entities * self.num_relations + relations, -1)

    def to(self, device: torch.device | str) -> KnownTriples:
        """Return them on another device."""
        copy = object.__new__(KnownTriples)
        copy.num_entities, copy.num_relations = self.num_entities, self.num_relations
        copy._tails, copy._heads = self._tails.to(device), self._heads.to(device)
        return copy

    def __len__(self) -> int:
        """Return the number of different triples."""
        return int(self._tails.relevance.num_relevant().sum())

    def categories(self) -> Tensor:
        r"""Tell of each relation which of CATEGORIES it is, int64 ``(num_relations,)``; -1 of one without a triple.

        A side is "N" where it has more than 1.5 entities on average for one of the other side.

        References:
            Bordes et al., Translating embeddings for modeling multi-relational data, 2013.
        """
        many = [index.mean_by_relation(self.num_relations) for index in (self._heads, self._tails)]
        heads, tails = (each > 1.5 for each in many)
        return torch.where(many[0].isnan(), -1, 2 * heads.long() + tails.long())


@dataclass(frozen=True)
class _Index:
    """The entities that go with a key; the last row is of all keys that there are none of."""

    keys: Tensor
    relevance: Relevance

    @classmethod
    def build(cls, key: Tensor, entity: Tensor) -> _Index:
        keys, row = key.unique(return_inverse=True)
        return cls(keys, Relevance.from_coo(row, entity, num_queries=len(keys) + 1))

    def rows(self, key: Tensor) -> Relevance:
        if not len(self.keys):
            return self.relevance[torch.zeros_like(key)]
        place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return self.relevance[torch.where(self.keys[place] == key, place, len(self.keys))]

    def to(self, device: torch.device | str) -> _Index:
        return _Index(self.keys.to(device), self.relevance.to(device))

    def mean_by_relation(self, num_relations: int) -> Tensor:
        """How many entities a key of each relation has on average, ``(num_relations,)``."""
        relation = self.keys % num_relations
        counts = self.relevance.num_relevant()[:-1].double()
        sums, keys = (counts.new_zeros(num_relations) for _ in range(2))
        return sums.scatter_add_(0, relation, counts) / keys.scatter_add_(0, relation, torch.ones_like(counts))


def read_triples(triples: Array, num_entities: int, num_relations: int, device: torch.device | None = None) -> Tensor:
    """Triples as int64 ``(T, 3)``; a ValueError for another shape or ids out of range."""
    read = require_integer("triples", as_tensor("triples", triples, device))
    if read.dim() != 2 or read.shape[1] != 3:
        raise ValueError(f"triples must be (T, 3), of head, relation and tail, but are {tuple(read.shape)}.")
    limits = torch.tensor([num_entities, num_relations, num_entities], device=read.device)
    stray = ((read < 0) | (read >= limits)).any(1)
    if bool(stray.any()):
        raise ValueError(
            f"triples must hold entities below {num_entities} and relations below {num_relations}, but one is "
            f"{tuple(read[stray][0].tolist())}."
        )
    return read


def evaluate_links(
    score_tails: Score,
    score_heads: Score,
    triples: Array,
    known: KnownTriples,
    *,
    memory: int = 1 << 28,
) -> LinkRanks:
    """Rank the true tail and the true head of each triple among all entities.

    Each batch of scores is read in one pass, for raw and for filtered ranks, and the true entity's score is taken from
    the same tensor as the others', so that equal is equal.

    Args:
        score_tails: ``(heads, relations) -> scores``: ``(B,)`` ids each, to ``(B, num_entities)`` of every tail.
        score_heads: ``(relations, tails) -> scores``: the same of every head.
        triples: ``(T, 3)`` integers, (head, relation, tail): what is evaluated, on the device of the model.
        known: What to leave out in filtered ranks: the triples of training and validation, and of test.
        memory: How many bytes the scores of a batch may take, which says how many triples are scored at a time.

    Returns:
        The counts of each triple and side, from which tables are read.

    Raises:
        ValueError: For triples out of range, or scores of another shape.
        InputError: For NaN scores, with their number.

    Example:
        >>> triples = torch.tensor([[0, 0, 1], [1, 0, 2]])
        >>> known = KnownTriples(triples, num_entities=3, num_relations=1)
        >>> perfect = torch.eye(3).roll(1, dims=1)
        >>> ranks = evaluate_links(lambda h, r: perfect[h], lambda r, t: perfect.T[t], triples, known)
        >>> ranks.compute(["mrr", "hits@1"])
        {'mrr': tensor(1., dtype=torch.float64), 'hits@1': tensor(1., dtype=torch.float64)}
    """
    read = read_triples(triples, known.num_entities, known.num_relations)
    size = max(1, memory // (8 * known.num_entities))  # of doubles, or of floats and what is made of them
    found: dict[str, list[tuple[RankCounts, RankCounts]]] = {side: [] for side in SIDES}
    with torch.no_grad():
        for batch in read.split(size):
            head, relation, tail = batch.unbind(1)
            found["tail"].append(_count(score_tails(head, relation), tail, known.tails(head, relation), known))
            found["head"].append(_count(score_heads(relation, tail), head, known.heads(relation, tail), known))
    ranks = {side: tuple(map(RankCounts.join, zip(*pairs, strict=True))) for side, pairs in found.items()}
    return LinkRanks(read[:, 1], ranks, known)


def _count(scores: Tensor, targets: Tensor, others: Relevance, known: KnownTriples) -> tuple[RankCounts, RankCounts]:
    expected = (len(targets), known.num_entities)
    if tuple(scores.shape) != expected:
        raise ValueError(f"scores must be {expected}, a score for each entity, but are {tuple(scores.shape)}.")
    raw = RankCounts.from_scores(scores, targets, validate="now")
    filtered = raw.without(others)
    return RankCounts.join([raw]), RankCounts.join([filtered])  # which let go of the scores


class LinkRanks:
    """The ranks of true tails and heads: raw and filtered, of each side, relation and kind of relation.

    Attributes:
        relations: ``(T,)``: each triple's relation.
        counts: For "head" and "tail" the raw and the filtered `RankCounts` of the triples.
    """

    def __init__(self, relations: Tensor, counts: Mapping[str, Any], known: KnownTriples) -> None:
        self.relations, self.counts, self._known = relations, counts, known

    def compute(
        self,
        metrics: Any = ("mr", "mrr", "hits@1,3,10"),
        *,
        side: str = "both",
        filtered: bool = True,
        ties: str = "realistic",
        rows: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return metrics of one side, or of both pooled.

        Args:
            metrics: What `TopKMetrics` takes, of metrics that read `RankCounts`.
            side: "head", "tail" or "both".
            filtered: Whether other known answers are left out.
            ties: How equal scores are read.
            rows: bool ``(T,)``: some of the triples.
        """
        read_choice("side", side, (*SIDES, "both"))
        suite = TopKMetrics(metrics, ties=ties).to(self.relations.device)
        for each in SIDES if side == "both" else (side,):
            counts = self.counts[each][int(filtered)]
            suite.update(counts if rows is None else counts[rows])
        return dict(suite.compute())

    def table(
        self, by: str, metrics: Any = ("mr", "mrr", "hits@1,3,10"), *, filtered: bool = True, **how: Any
    ) -> dict[Any, dict[str, Tensor]]:
        """Return metrics of each side, of each relation that was evaluated, or of each kind of relation.

        Args:
            by: "side", "relation" (ids in ascending order) or "category" (see `KnownTriples.categories`).
            metrics: As in `compute`.
            filtered: As in `compute`.
            how: ``side`` and ``ties``, as in `compute`.
        """
        read_choice("by", by, ("side", "relation", "category"))
        if by == "side":
            return {side: self.compute(metrics, side=side, filtered=filtered, **how) for side in (*SIDES, "both")}
        kinds = self.relations if by == "relation" else self._known.categories()[self.relations]
        names = {kind: kind if by == "relation" else CATEGORIES[kind] for kind in kinds.unique().tolist() if kind >= 0}
        return {
            name: self.compute(metrics, filtered=filtered, rows=kinds == kind, **how) for kind, name in names.items()
        }
