"""Link prediction: the known triples of a graph, and the ranks that a model gives true ones among all entities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import log10
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from torch_topk.inputs import Array, InputError, as_tensor, read_choice, read_int, require_integer
from torch_topk.kernels import lowest, orderable, rank_counts, sum_dtype
from torch_topk.metric import find
from torch_topk.metrics import MRR, GeometricMeanRank, HitRate, MeanRank
from torch_topk.names import parse
from torch_topk.ranks import RankCounts, harmonic, squares
from torch_topk.record import identity
from torch_topk.relevance import Relevance
from torch_topk.suite import TopKMetrics

Score: TypeAlias = Callable[..., Tensor]

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
    memory: int = 1 << 26,
    chunk: int | None = None,
    shard: range | None = None,
    process_group: Any = None,
    negatives: Mapping[str, Array] | None = None,
    progress: bool = False,
) -> LinkRanks:
    """Rank the true tail and the true head of each triple among all entities.

    Each batch of scores is read in one pass, for raw and for filtered ranks, and the true entity's score is taken from
    the tensor in which it stands among the others, so that equal is equal.

    With ``chunk`` or ``shard`` the scorers take a third argument, the ids of the entities to score. Before a batch can
    be counted, the chunks that hold its true entities are scored. Triples are taken in order of the true entity, so
    that these are few: the last of them is kept, and the others, which are scored again, are no more than one pass over
    the entities for each side, however many triples there are.

    With ``negatives`` the true entity stands among a sample instead, and the third argument are the candidates of each
    triple. Such ranks are no ranks among all entities, nor need they put two models in the same order (Krichene &
    Rendle 2020): `LinkRanks.estimate` says what the whole evaluation is likely to find, and `LinkRanks.compute` warns.

    Args:
        score_tails: ``(heads, relations) -> scores``: ``(B,)`` ids each, to ``(B, num_entities)`` of every tail; or
            ``(heads, relations, entities) -> scores``: to ``(B, C)`` of the tails in ``entities``, ids of
            shape ``(C,)``; with ``negatives`` ``(B, C)``, of each triple its own.
        score_heads: ``(relations, tails) -> scores``, or ``(relations, tails, entities) -> scores``: the same of heads.
        triples: ``(T, 3)`` integers, (head, relation, tail): what is evaluated, on the device of the model.
        known: What to leave out in filtered ranks: the triples of training and validation, and of test.
        memory: How many bytes the scores of a batch may take, which says how many triples are scored at a time.
        chunk: How many entities are scored at a time; None for all.
        shard: The entities that this rank scores, ``range(first, last)``. The ranks have every entity between them, and
            the same triples; a rank may have none. What they count is added up: two collectives a batch and side.
        process_group: The group of `torch.distributed` whose ranks have a shard each.
        negatives: For "head" and "tail" the ids ``(T, M)`` among which the true entity is ranked, drawn at random from
            all; -1 for none. The true entity is left out of them, and of filtered ranks other known answers are.
        progress: Whether to show a bar (of tqdm, by the first rank).

    Returns:
        The counts of each triple and side, from which tables are read; with shards, the same on every rank.

    Raises:
        ValueError: For triples out of range, or scores of another shape; if shards leave entities out, or share some;
            if ranks have different triples; if a model scores a true entity otherwise when it is asked again, as with
            dropout it does.
        InputError: For NaN scores, or true entities of minus infinity, with their number; with shards, on every rank.

    Example:
        >>> triples = torch.tensor([[0, 0, 1], [1, 0, 2]])
        >>> known = KnownTriples(triples, num_entities=3, num_relations=1)
        >>> perfect = torch.eye(3).roll(1, dims=1)
        >>> ranks = evaluate_links(lambda h, r: perfect[h], lambda r, t: perfect.T[t], triples, known)
        >>> ranks.compute(["mrr", "hits@1"])
        {'mrr': tensor(1., dtype=torch.float64), 'hits@1': tensor(1., dtype=torch.float64)}
        >>> parts = lambda h, r, entities: perfect[h][:, entities], lambda r, t, entities: perfect.T[t][:, entities]
        >>> evaluate_links(*parts, triples, known, chunk=2).compute("mrr")
        {'mrr': tensor(1., dtype=torch.float64)}
    """
    read = read_triples(triples, known.num_entities, known.num_relations)
    samples = None if negatives is None else _read_negatives(negatives, read, known.num_entities)
    if samples is not None and (chunk is not None or shard is not None):
        raise ValueError("negatives are all the candidates there are: chunk and shard go without.")
    width = known.num_entities if samples is None else 1 + max(each.shape[1] for each in samples.values())
    split = _Split.read(width, read, chunk=chunk, shard=shard, group=process_group, memory=memory)
    head, relation, tail = read.unbind(1)
    sides: dict[str, tuple[Score, Tensor, Tensor, Tensor, Callable[[Tensor, Tensor], Relevance]]] = {
        "tail": (score_tails, head, relation, tail, known.tails),
        "head": (score_heads, relation, tail, head, known.heads),
    }
    ranks: dict[str, tuple[RankCounts, ...]] = {}
    sizes: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.no_grad(), _bar(progress, split, len(read)) as step:
        for side, (score, first, second, targets, others) in sides.items():
            order = targets.argsort(stable=True)
            pairs = []
            for rows in order.split(split.size):
                given, own = (first[rows], second[rows]), targets[rows]
                if samples is None:
                    pairs.append(_count(partial(split.scores, score, *given), own, others(*given), split, step))
                else:
                    pairs.append(_count_sample(partial(score, *given), own, samples[side][rows], others(*given)))
                    step()
            back = order.argsort()
            ranks[side] = tuple(RankCounts.join(parts)[back] for parts in zip(*pairs, strict=True))
            if samples is not None:
                known_answers = others(first, second)
                less = known_answers.num_relevant() - known_answers.contains(targets[:, None])[:, 0].long()
                sizes[side] = torch.full_like(less, known.num_entities), known.num_entities - less
    return LinkRanks(relation, ranks, known, sizes or None)


def _read_negatives(negatives: Mapping[str, Array], triples: Tensor, num_entities: int) -> dict[str, Tensor]:
    """The sampled ids of each side; a ValueError for other sides, shapes, or ids out of range."""
    if not isinstance(negatives, Mapping) or set(negatives) != set(SIDES):
        raise ValueError(f"negatives must hold ids for 'head' and 'tail', but are {negatives!r}.")
    read = {
        side: require_integer("negatives", as_tensor("negatives", negatives[side], triples.device)) for side in SIDES
    }
    for side, ids in read.items():
        if ids.dim() != 2 or len(ids) != len(triples):
            raise ValueError(f"negatives[{side!r}] must be ({len(triples)}, M), but are {tuple(ids.shape)}.")
        if bool(((ids < -1) | (ids >= num_entities)).any()):
            raise ValueError(f"negatives[{side!r}] must be entities below {num_entities}, or -1 for none.")
    return read


def _count_sample(
    score: Callable[[Tensor], Tensor], targets: Tensor, negatives: Tensor, others: Relevance
) -> tuple[RankCounts, RankCounts]:
    """The raw and the filtered counts of a batch of targets among their negatives."""
    out = (negatives < 0) | (negatives == targets[:, None])
    candidates = torch.cat([targets[:, None], torch.where(out, targets[:, None], negatives)], dim=1)
    scores = score(candidates)
    if tuple(scores.shape) != tuple(candidates.shape):
        raise ValueError(
            f"scores must be {tuple(candidates.shape)}, a score for each candidate, but are {tuple(scores.shape)}."
        )
    first = torch.zeros_like(targets)
    masks = (torch.nn.functional.pad(mask, (1, 0)) for mask in (out, out | others.contains(candidates)[:, 1:]))
    raw, filtered = (RankCounts.from_scores(scores, first, exclude=mask, validate="now") for mask in masks)
    return RankCounts.join([raw]), RankCounts.join([filtered])  # which let go of the scores


def estimate_ranks(sampled: RankCounts, candidates: Array) -> RankCounts:
    """Estimate the ranks among all candidates from those among a random sample of them.

    Of M sampled negatives, those above the target are binomial with the share of all candidates that are above it. Of
    the distributions of that share over queries, the one is taken that makes what was seen most likely: 100 steps of
    expectation and maximisation, on a grid of at most 200 ranks, from one in which each power of ten holds as many
    queries. What cannot be seen stays as it began: among M of C candidates, ranks well below C / M look alike.

    Args:
        sampled: Counts of queries among their negatives, drawn uniformly, few of all or with replacement: made by
            ``RankCounts.from_scores`` of scores ``(Q, 1 + M)`` and labels 0, for one. Level scores count by ``ties``.
        candidates: ``(Q,)`` integers: how many candidates each query has in truth, the target among them.

    Returns:
        A `RankCounts` whose rows are possible ranks, weighted with how many queries are likely to have them: metrics
        that are means over queries read it, whereas intervals, standard scores and medians have no meaning.

    Raises:
        ValueError: For another shape, or numbers below 1.
        InputError: For faults in the sampled counts.

    References:
        Jin et al., On estimating recommendation evaluation metrics under sampling, 2021; Krichene & Rendle, On sampled
        metrics for item recommendation, 2020.

    Example:
        >>> sampled = RankCounts.from_counts(
        ...     greater=torch.tensor([0, 30]), equal=torch.tensor([0, 0]), candidates=torch.tensor([101, 101])
        ... )
        >>> metric = MeanRank(ties="realistic")
        >>> metric.update(estimate_ranks(sampled, torch.tensor([1001, 1001])))
        >>> round(metric.compute().item(), -1)
        150.0
    """
    number = require_integer("candidates", as_tensor("candidates", candidates, sampled.device))
    if tuple(number.shape) != (len(sampled),) or bool((number < 1).any()):
        raise ValueError(
            f"candidates must be ({len(sampled)},), a number of at least 1 for each query, but are "
            f"{tuple(number.shape)}, the least {number.min().item() if number.numel() else 'of none'}."
        )
    sampled.check()
    if not len(sampled):
        return sampled
    weights, most = sampled.weights, max(int(number.max()), 2)
    steps = torch.logspace(0, log10(most + 1), 200, dtype=weights.dtype, device=weights.device)
    grid, held = steps.floor().clamp(max=most).unique(return_counts=True)
    share, density = (grid - 1) / (most - 1), held.to(weights.dtype) / held.sum()
    seen = torch.stack([sampled.rank().reshape(-1) - 1, sampled.number()[:, 0] - 1], dim=1)
    seen, kind = seen.unique(dim=0, return_inverse=True)
    times = weights.new_zeros(len(seen)).index_add_(0, kind, weights)
    seen, times = seen[times > 0], times[times > 0]
    above, negatives = seen.T[:, :, None]
    likely = torch.xlogy(above, share) + torch.xlogy(negatives - above, 1 - share)
    likely = (likely - likely.amax(1, keepdim=True)).exp()
    for _ in range(100):
        joint = likely * density
        density = (times / joint.sum(1) / times.sum()) @ joint
    sizes, kind = number.unique(return_inverse=True)
    queries = weights.new_zeros(len(sizes)).index_add_(0, kind, weights)
    greater = (share * (sizes[:, None] - 1)).round().long()
    return RankCounts.from_counts(
        greater=greater.reshape(-1),
        equal=torch.zeros_like(greater).reshape(-1),
        candidates=sizes[:, None].expand_as(greater).reshape(-1),
        weights=(queries[:, None] * density).reshape(-1),
    )


@dataclass(frozen=True)
class _Split:
    """Which entities this process scores, in which chunks and how many triples at a time, and for whom."""

    num_entities: int
    chunks: tuple[range, ...]
    size: int
    named: bool  # whether scorers are told which entities are meant
    group: Any

    @classmethod
    def read(
        cls,
        num_entities: int,
        triples: Tensor,
        *,
        chunk: int | None,
        shard: range | None,
        group: Any,
        memory: int,
    ) -> _Split:
        for name, value in (("memory", memory), ("chunk", 1 if chunk is None else chunk)):
            read_int(name, value, 1)
        if (shard is None) != (group is None):
            raise ValueError(
                "shard and process_group go together: each rank of the group says which entities it scores, for "
                "instance shard=range(first, last)."
            )
        part = range(num_entities) if shard is None else shard
        if not isinstance(part, range) or part.step != 1 or (part and not 0 <= part.start < part.stop <= num_entities):
            raise ValueError(f"shard must be a range(first, last) of the {num_entities} entities, but is {shard!r}.")
        step = max(1, min(chunk or len(part), len(part)))
        chunks = tuple(part[first : first + step] for first in range(0, len(part), step))
        size = max(1, memory // (8 * step))  # of doubles, or of floats and what is made of them
        if group is not None:
            size = _agree(part, size, triples, num_entities, group)
        return cls(num_entities, chunks, size, named=chunk is not None or shard is not None, group=group)

    def home(self, targets: Tensor) -> list[range]:
        """The chunks that hold any of these entities; were there none, the first, to have something to begin with."""
        if not self.chunks:
            return []
        place = (targets - self.chunks[0].start).div(len(self.chunks[0]), rounding_mode="floor").unique().tolist()
        return [self.chunks[i] for i in place if 0 <= i < len(self.chunks)] or [self.chunks[0]]

    def scores(self, score: Score, first: Tensor, second: Tensor, chunk: range) -> Tensor:
        """What a model says of a chunk, ``(B, len(chunk))``."""
        ids = (torch.arange(chunk.start, chunk.stop, device=first.device),) if self.named else ()
        scores = as_tensor("scores", score(first, second, *ids), first.device)
        expected = (len(first), len(chunk))
        if tuple(scores.shape) != expected:
            raise ValueError(f"scores must be {expected}, a score for each entity, but are {tuple(scores.shape)}.")
        return orderable(scores)


def _agree(part: range, size: int, triples: Tensor, num_entities: int, group: Any) -> int:
    """The number of triples a batch that every rank has room for, once it is seen that their shards fit together."""
    if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            "process_group must be a group of torch.distributed that this process belongs to, such as "
            f"torch.distributed.group.WORLD, but is {group!r}."
        )
    places = torch.arange(1, triples.numel() + 1, device=triples.device)
    sums = torch.stack(
        [torch.tensor(each, device=triples.device) for each in (part.start, part.stop, size, len(triples))]
    )
    mine = torch.cat([sums, (triples.reshape(-1) * (2 * places + 1)).sum()[None]])
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, mine, group=group)
    table = [each.tolist() for each in gathered]
    if len({tuple(row[3:]) for row in table}) > 1:
        raise ValueError(
            "Ranks with a shard of the entities each must have the same triples, but these differ. With all entities "
            "and some of the triples each, leave shard and process_group out, and add the ranks up in a suite."
        )
    shards = [range(*row[:2]) for row in table]
    held = sorted((each for each in shards if each), key=lambda each: each.start)
    ends = [0, *(each.stop for each in held)]
    if [each.start for each in held] != ends[:-1] or ends[-1] != num_entities:
        raise ValueError(f"The shards must hold each of {num_entities} entities once, but are {shards}.")
    return int(min(row[2] for row in table))


@contextmanager
def _bar(progress: bool, split: _Split, triples: int) -> Iterator[Callable[[], object]]:  # noqa: FBT001 - an option
    """What to call after each chunk."""
    if not progress:
        yield lambda: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("progress=True needs tqdm: pip install 'torch-topk[cli]'.") from error
    total = 2 * max(1, -(-triples // split.size)) * len(split.chunks)
    hidden = split.group is not None and dist.get_rank(split.group) > 0
    with tqdm(total=total, desc="Links", unit=" chunks", disable=hidden) as bar:
        yield bar.update


def _count(
    ask: Callable[[range], Tensor], targets: Tensor, others: Relevance, split: _Split, step: Callable[[], object]
) -> tuple[RankCounts, RankCounts]:
    """The raw and the filtered counts of a batch of targets, which ascend, so that few chunks hold them."""
    kept, scores, limits = None, torch.empty(0), torch.zeros(targets.shape, device=targets.device)
    for kept in split.home(targets):
        scores = torch.empty(0)  # of two chunks, one is let go before the other is asked for
        scores = ask(kept)
        own, inside = _own(scores, targets, kept)
        limits = torch.where(inside, own, limits.to(own.dtype))
    if split.group is not None:
        limits = _over_ranks(limits, split.group)
    query, item = others.pairs(split.num_entities)
    known = (item < split.num_entities) & (item != targets[query])
    pairs = query[known], item[known]
    sums = torch.zeros((9, len(targets)), dtype=torch.int64, device=targets.device)
    for chunk in sorted(split.chunks, key=lambda each: each != kept):
        if chunk != kept:
            scores = torch.empty(0)
            scores = ask(chunk)
        sums += _tally(scores, limits, targets, pairs, chunk)
        step()
    if split.group is not None:
        dist.all_reduce(sums, group=split.group)
    greater, at_least, candidates, *less, broken, absent, moved = sums
    for wrong, text in (
        (broken, "a NaN score: mend the model"),
        (absent, "minus infinity as the true entity's score, which means that it is no candidate: mend the model"),
    ):
        if bool(wrong.any()):
            raise InputError(f"{int((wrong > 0).sum())} of a batch of {len(wrong)} triples have {text}.")
    if bool(moved.any()):
        raise ValueError(
            f"{int(moved.sum())} true entities had another score when their chunk was scored again: put the model in "
            "eval mode, or score all entities at once, without chunk."
        )
    raw, filtered = ((greater, at_least, candidates), (greater - less[0], at_least - less[1], candidates - less[2]))
    made = [
        RankCounts(
            each[0], each[1], partial(identity, each[2]), weights=None, shape=(len(targets),), faults={}, whole=True
        )
        for each in (raw, filtered)
    ]
    return made[0], made[1]


def _own(scores: Tensor, targets: Tensor, chunk: range) -> tuple[Tensor, Tensor]:
    """The targets' own scores, ``(B,)``, and which of the targets are in the chunk, of which that is true."""
    place = targets - chunk.start
    inside = (place >= 0) & (place < len(chunk))
    return scores.gather(1, place.clamp(0, len(chunk) - 1)[:, None])[:, 0], inside


def _over_ranks(limits: Tensor, group: Any) -> Tensor:
    """The targets' scores, each from the rank that has it; bits add up exactly, as all but one are 0."""
    real = limits.is_floating_point()
    bits = limits.double().view(torch.int64) if real else limits.long()
    dist.all_reduce(bits, group=group)
    return (bits.view(torch.float64) if real else bits).to(limits.dtype)


def _tally(scores: Tensor, limits: Tensor, targets: Tensor, known: tuple[Tensor, Tensor], chunk: range) -> Tensor:
    """What a chunk adds to the counts of a batch, ``(9, B)``.

    These are candidates that score more than the target, at least as much, and all; of these the known ones, which are
    pairs of query and item; and whether any score is NaN, the target's the lowest, or another than it was.
    """
    least, none = scores.amin(1), lowest(scores.dtype)
    greater, at_least = rank_counts(scores, limits)
    candidates = torch.full_like(greater, len(chunk))
    if not bool((least > none).all()):  # the least score says of nearly every batch that all are candidates
        candidates = rank_counts(scores, torch.full_like(limits, none))[0]
    query, item = known
    here = (item >= chunk.start) & (item < chunk.stop)
    query, item = query[here], item[here]
    held, limit = scores[query, item - chunk.start], limits[query]
    real = held > none
    marks = torch.stack([(held > limit) & real, (held >= limit) & real, real]).long()
    less = greater.new_zeros((3, len(targets))).index_add_(1, query, marks)
    own, inside = _own(scores, targets, chunk)
    wrong = torch.stack([least.isnan(), inside & (own <= none), inside & (own != limits)])
    return torch.cat([torch.stack([greater, at_least, candidates]), less, wrong])


class LinkRanks:
    """The ranks of true tails and heads: raw and filtered, of each side, relation and kind of relation.

    Attributes:
        relations: ``(T,)``: each triple's relation.
        counts: For "head" and "tail" the raw and the filtered `RankCounts` of the triples.
        sizes: Of ranks among sampled negatives, for "head" and "tail" how many candidates ``(T,)`` there are in truth,
            raw and filtered; otherwise None.
    """

    def __init__(
        self,
        relations: Tensor,
        counts: Mapping[str, Any],
        known: KnownTriples,
        sizes: Mapping[str, tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        self.relations, self.counts, self.sizes, self._known = relations, counts, sizes, known
        self._warned = sizes is None

    def compute(
        self,
        metrics: Any = ("mr", "mrr", "hits@1,3,10"),
        *,
        side: str = "both",
        filtered: bool = True,
        ties: str = "realistic",
        rows: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return metrics of one side, or of both pooled: of these ranks alone, whatever other processes hold.

        Args:
            metrics: What `TopKMetrics` takes, of metrics that read `RankCounts`.
            side: "head", "tail" or "both".
            filtered: Whether other known answers are left out.
            ties: How equal scores are read.
            rows: bool ``(T,)``: some of the triples.

        Warns:
            UserWarning: Once, if the ranks are among sampled negatives.
        """
        read_choice("side", side, (*SIDES, "both"))
        if not self._warned:
            self._warned = True
            warnings.warn(
                "These ranks are among sampled negatives: their metrics are far better than those among all entities, "
                "and may order models otherwise (Krichene & Rendle 2020). estimate() corrects for it.",
                stacklevel=2,
            )
        suite = TopKMetrics(metrics, ties=ties, sync_on_compute=False).to(self.relations.device)
        for each in SIDES if side == "both" else (side,):
            counts = self.counts[each][int(filtered)]
            suite.update(counts if rows is None else counts[rows])
        return dict(suite.compute())

    def estimate(
        self,
        metrics: Any = ("mr", "mrr", "hits@1,3,10"),
        *,
        side: str = "both",
        filtered: bool = True,
        ties: str = "realistic",
        rows: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return what ranks among sampled negatives say of metrics among all entities: see `estimate_ranks`.

        It takes the arguments of `compute`.

        Raises:
            ValueError: For ranks among all entities.
        """
        read_choice("side", side, (*SIDES, "both"))
        if self.sizes is None:
            raise ValueError(
                "These ranks are among all entities, so there is nothing to estimate: compute() reads them."
            )
        suite = TopKMetrics(metrics, ties="realistic", sync_on_compute=False).to(self.relations.device)
        for each in SIDES if side == "both" else (side,):
            counts, sizes = self.counts[each][int(filtered)], self.sizes[each][int(filtered)]
            chosen = slice(None) if rows is None else rows
            likely: Any = estimate_ranks(counts.read(ties)[chosen], sizes[chosen])
            suite.update(likely)
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


class Chance(NamedTuple):
    """The mean and the variance of a metric by chance."""

    mean: Tensor
    variance: Tensor


def chance(metric: str, candidates: Array) -> Chance:
    r"""Return the mean and the variance that a metric of ranks has by chance, where each rank is as likely.

    With H and H^{(2)} the sums of 1/i and of 1/i^2, over n queries of C candidates each, and independent ranks:

    .. math::
        MR: \quad & \frac{1}{n} \sum_q \frac{C_q + 1}{2}, \quad \frac{1}{n^2} \sum_q \frac{C_q^2 - 1}{12} \\
        MRR@k: \quad & \frac{1}{n} \sum_q \frac{H_{m_q}}{C_q}, \quad
            \frac{1}{n^2} \sum_q \Bigl(\frac{H^{(2)}_{m_q}}{C_q} - \frac{H_{m_q}^2}{C_q^2}\Bigr),
            \quad m_q = \min(k, C_q) \\
        Hits@k: \quad & \frac{1}{n} \sum_q p_q, \quad \frac{1}{n^2} \sum_q p_q (1 - p_q),
            \quad p_q = \min(k / C_q, 1) \\
        GMR: \quad & \prod_q M_q(1), \quad \prod_q M_q(2) - \prod_q M_q(1)^2,
            \quad M_q(s) = \frac{1}{C_q} \sum_{j \le C_q} j^{s / n}

    Args:
        metric: A name as `TopKMetrics` takes it: "mr", "gmr", "mrr", "mrr@10", "hits@10" or "hits@1,3,10".
        candidates: ``(n,)`` integers of at least 1: the candidates of each query that filtering leaves, the target
            among them, as in ``RankCounts.candidates``.

    Returns:
        Mean and variance in float64: a scalar each, or ``(len(k),)`` for several cut-offs; NaN of no query.

    Raises:
        ValueError: For a metric without such a form, or numbers below 1.

    References:
        Berrendorf et al., On the ambiguity of rank-based evaluation of entity alignment or link prediction methods,
        2020; Hoyt et al., A unified framework for rank-based evaluation metrics for link prediction, 2022.

    Example:
        >>> mean, variance = chance("mrr", torch.tensor([1, 2]))
        >>> round(mean.item(), 6), round(variance.item(), 6)
        (0.875, 0.015625)
    """
    name, options, cutoffs = parse(metric)
    kind, given = find(name), require_integer("candidates", as_tensor("candidates", candidates)).reshape(-1)
    if (
        options
        or kind not in {MeanRank, GeometricMeanRank, MRR, HitRate}
        or (cutoffs and kind in {MeanRank, GeometricMeanRank})
    ):
        raise ValueError(f"chance() knows mr, gmr, mrr, mrr@k and hits@k, but not {metric!r}.")
    if bool((given < 1).any()):
        raise ValueError(f"candidates must be at least 1, the target itself, but one is {int(given.min())}.")
    number = given.to(sum_dtype(given.device))[:, None]
    if kind is GeometricMeanRank:
        return _chance_of_gmr(number[:, 0], given)
    limits = number
    if cutoffs:
        limits = torch.tensor(cutoffs, dtype=number.dtype, device=number.device).minimum(number)
    if kind is MeanRank:
        mean, variance = (number + 1) / 2, (number * number - 1) / 12
    elif kind is MRR:
        mean = harmonic(limits) / number
        variance = squares(limits) / number - mean * mean
    else:
        mean = limits / number
        variance = mean * (1 - mean)
    mean, variance = mean.mean(0), variance.sum(0) / len(number) ** 2
    return Chance(mean, variance) if len(cutoffs) > 1 else Chance(mean[0], variance[0])


def _chance_of_gmr(number: Tensor, candidates: Tensor) -> Chance:
    most = int(candidates.max()) if len(candidates) else 1
    powers = (torch.arange(1, most + 1, device=number.device).to(number.dtype).log() / len(candidates)).expm1()
    # Less 1 each, so that nothing cancels: of many queries, the powers are all near 1.
    first, second = (each.cumsum(0)[candidates - 1] / number for each in (powers, powers * powers))
    mean = first.log1p().sum().exp() if len(candidates) else number.new_tensor(torch.nan)
    spread = ((second - first * first) / (1 + first) ** 2).log1p().sum().expm1()
    return Chance(mean, mean * mean * spread)
