"""A slow and obvious reference for every metric: lists, dicts and loops, one query at a time.

Nothing here is shared with the package, so that a fault has to be made twice before a test misses it.
A metric is a function ``f(query, k, min_relevance=None, **options) -> (numerator, denominator)``. Their
quotient is its value for the query; a macro average is the mean of the quotients, a micro average the
quotient of the sums.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import scipy.stats

Ratio = tuple[float, float]
Gain = str | Mapping[float, float]


@dataclass(frozen=True)
class Query:
    """What stands at each rank (None: no item does), the truth, and every item that could be ranked.

    Where the truth is a row of a matrix, it has so many `columns`, and an item that `gains` leaves out has gain 0.
    `scores` are those of all items, where the list was made by them.
    """

    ranked: Sequence[int | None]
    gains: Mapping[int, float]
    candidates: Collection[int]
    weight: float = 1.0
    columns: int = 0
    scores: Sequence[float] = ()


# Rankings and truth ------------------------------------------------------------------------------


def rank_scores(
    scores: Sequence[float], k: int | None, ties: str = "index", excluded: Collection[int] = ()
) -> list[int]:
    """Items by falling score, equal scores by rising id ("index") or falling id ("reverse")."""
    items = [item for item in range(len(scores)) if item not in excluded and scores[item] != -math.inf]
    sign = {"index": 1, "reverse": -1}[ties]
    return sorted(items, key=lambda item: (-scores[item], sign * item))[:k]


def rank_ids(
    ids: Sequence[int], k: int | None = None, padding: int = -1, excluded: Collection[int] = ()
) -> list[int | None]:
    """A ranked list as given; excluded ids and later repeats are removed, and a padding id holds its rank."""
    ranked: list[int | None] = []
    for item in ids:
        if item == padding:
            ranked.append(None)
        elif item not in excluded and item not in ranked:
            ranked.append(item)
    return ranked[:k]


def query_of_scores(
    scores: Sequence[float],
    gains: Mapping[int, float],
    ties: str = "index",
    excluded: Collection[int] = (),
    weight: float = 1.0,
) -> Query:
    """The query of one row of scores; every item that is neither excluded nor scored -inf is a candidate."""
    ranked = rank_scores(scores, None, ties, excluded)
    return Query(ranked, gains, ranked, weight, scores=scores)


def query_of_ids(
    ids: Sequence[int],
    gains: Mapping[int, float],
    padding: int = -1,
    excluded: Collection[int] = (),
    weight: float = 1.0,
) -> Query:
    """The query of one ranked list; its candidates are the items it holds."""
    ranked = rank_ids(ids, None, padding, excluded)
    return Query(ranked, gains, [item for item in ranked if item is not None], weight)


# Counting ----------------------------------------------------------------------------------------


def is_relevant(gain: float, min_relevance: float | None) -> bool:
    """A gain above 0, or at least `min_relevance` where that is given."""
    return gain > 0 if min_relevance is None else gain >= min_relevance


def relevant_items(query: Query, min_relevance: float | None) -> set[int]:
    """Every relevant item of the query, retrieved or not."""
    return {item for item, gain in query.gains.items() if is_relevant(gain, min_relevance)}


def hit_ranks(query: Query, k: int | None, min_relevance: float | None) -> list[int]:
    """The ranks, from 1, that hold a relevant item, down to rank k."""
    relevant = relevant_items(query, min_relevance)
    return [rank for rank, item in enumerate(query.ranked[:k], start=1) if item in relevant]


def retrieved(query: Query, k: int | None = None) -> int:
    """How many items stand at the first k ranks, or in the whole list."""
    return sum(item is not None for item in query.ranked[:k])


def length(query: Query, k: int | None) -> int:
    """K, for which the number of items in the list stands where there is no k."""
    return retrieved(query) if k is None else k


def capped(count: int, k: int | None) -> int:
    """A count, but no more than the k ranks there are; without k nothing cuts it, however short the list."""
    return count if k is None else min(k, count)


def gain_of(gain: float, kind: Gain, min_relevance: float | None) -> float:
    """What a grade is worth under a gain function, or a table of grades."""
    if isinstance(kind, Mapping):
        return kind[gain] if gain > 0 else kind.get(gain, 0.0)
    if kind == "linear":
        return max(gain, 0.0)
    if kind == "exp":
        return 2 ** max(gain, 0.0) - 1
    if kind == "binary":
        return float(is_relevant(gain, min_relevance))
    raise ValueError(kind)


def discounted(gains: Iterable[float]) -> float:
    """The sum of gains, each over log2 of its rank plus one."""
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


# The metrics of one query ------------------------------------------------------------------------


def precision(query: Query, k: int | None, min_relevance: float | None = None, denominator: str = "k") -> Ratio:
    """Hits over k, over the items at the first k ranks, or over the relevant items up to k."""
    denominators = {
        "k": length(query, k),
        "retrieved": retrieved(query, k),
        "relevant": capped(len(relevant_items(query, min_relevance)), k),
    }
    return len(hit_ranks(query, k, min_relevance)), denominators[denominator]


def recall(query: Query, k: int | None, min_relevance: float | None = None, denominator: str = "relevant") -> Ratio:
    """Hits over all relevant items, or over the most that k ranks can hold."""
    relevant = len(relevant_items(query, min_relevance))
    denominators = {"relevant": relevant, "capped": capped(relevant, k)}
    return len(hit_ranks(query, k, min_relevance)), denominators[denominator]


def fbeta(query: Query, k: int | None, min_relevance: float | None = None, beta: float = 1.0) -> Ratio:
    """(1 + b²) P R / (b² P + R), with P = hits / k and R = hits / relevant, both multiplied out."""
    hits = len(hit_ranks(query, k, min_relevance))
    relevant = len(relevant_items(query, min_relevance))
    return (1 + beta**2) * hits, length(query, k) + beta**2 * relevant


def hit_rate(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """1 where any relevant item is found."""
    return float(bool(hit_ranks(query, k, min_relevance))), 1.0


def full_recall(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """1 where every relevant item is found."""
    return float(relevant_items(query, min_relevance) <= set(query.ranked[:k])), 1.0


def mrr(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """One over the rank of the first relevant item, 0 beyond k."""
    ranks = hit_ranks(query, k, min_relevance)
    return (1 / ranks[0] if ranks else 0.0), 1.0


def average_precision(
    query: Query, k: int | None, min_relevance: float | None = None, denominator: str = "capped"
) -> Ratio:
    """The precision at every hit, summed, over one of four counts."""
    ranks = hit_ranks(query, k, min_relevance)
    relevant = len(relevant_items(query, min_relevance))
    denominators = {
        "capped": capped(relevant, k),
        "relevant": relevant,
        "hits": len(ranks),
        "k": length(query, k),
    }
    return sum(count / rank for count, rank in enumerate(ranks, start=1)), denominators[denominator]


def dcg(query: Query, k: int | None, min_relevance: float | None = None, gain: Gain = "linear") -> Ratio:
    """Discounted gains of the first k ranks."""
    found = [query.gains.get(item, 0.0) if item is not None else 0.0 for item in query.ranked[:k]]
    return discounted(gain_of(value, gain, min_relevance) for value in found), 1.0


def ndcg(
    query: Query,
    k: int | None,
    min_relevance: float | None = None,
    gain: Gain = "linear",
    ideal: str = "relevant",
) -> Ratio:
    """DCG over that of the best list of k: of all items of the truth, or of those among the candidates."""
    pool = [value for item, value in query.gains.items() if ideal == "relevant" or item in query.candidates]
    best = sorted((gain_of(value, gain, min_relevance) for value in pool), reverse=True)[:k]
    if ideal == "k":
        best = [1.0] * length(query, k)
    return dcg(query, k, min_relevance, gain)[0], discounted(best)


def psp(query: Query, k: int | None, min_relevance: float | None = None, propensities: Sequence[float] = ()) -> Ratio:
    """One over the propensity of every relevant item among the first k, summed, over the most that k ranks can hold."""
    relevant = relevant_items(query, min_relevance)
    best = sorted((1 / float(propensities[item]) for item in relevant), reverse=True)[:k]
    return sum(1 / float(propensities[item]) for item in relevant & set(query.ranked[:k])), sum(best)


def psndcg(
    query: Query, k: int | None, min_relevance: float | None = None, propensities: Sequence[float] = ()
) -> Ratio:
    """As PSP, each rank discounted; either sum is divided by the discounts of the ranks that could all hold one."""
    relevant = relevant_items(query, min_relevance)
    found = [1 / float(propensities[item]) if item in relevant else 0.0 for item in query.ranked[:k]]
    best = sorted((1 / float(propensities[item]) for item in relevant), reverse=True)[:k]
    places = discounted([1.0] * len(best)) or 1.0
    return discounted(found) / places, discounted(best) / places


def rbp(query: Query, k: int | None, min_relevance: float | None = None, persistence: float = 0.8) -> Ratio:
    """The share of a reader's steps, each followed by another with one probability, that meet a relevant item."""
    ranks = hit_ranks(query, k, min_relevance)
    return (1 - persistence) * sum(persistence ** (rank - 1) for rank in ranks), 1.0


def r_precision(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """Hits among the first R over R."""
    relevant = len(relevant_items(query, min_relevance))
    return len(hit_ranks(query, capped(relevant, k), min_relevance)), relevant


def map_at_r(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """The precision at every hit among the first R over R."""
    relevant = len(relevant_items(query, min_relevance))
    return average_precision(query, capped(relevant, k), min_relevance, "relevant")


def fall_out(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """Items of the first k that are not relevant over all candidates that are not."""
    relevant = relevant_items(query, min_relevance)
    shown = [item for item in query.ranked[:k] if item is not None and item not in relevant]
    return len(shown), len(set(query.candidates) - relevant)


def err(query: Query, k: int | None, min_relevance: float | None = None, max_grade: float = 4.0) -> Ratio:
    """One over the rank at which a reader stops, by the probabilities of stopping at each."""
    total, here = 0.0, 1.0
    for rank, item in enumerate(query.ranked[:k], start=1):
        gain = 0.0 if item is None else query.gains.get(item, 0.0)
        stops = (2 ** max(gain, 0.0) - 1) / 2**max_grade
        total += here * stops / rank
        here *= 1 - stops
    return total, 1.0


def judged_items(query: Query) -> set[int]:
    """The items with a gain of at least 0: of those listed, or of all the columns there are."""
    unlisted = set(range(query.columns)) - set(query.gains)
    return unlisted | {item for item, gain in query.gains.items() if gain >= 0}


def judged(query: Query, k: int | None, min_relevance: float | None = None, denominator: str = "retrieved") -> Ratio:
    """Judged items among the first k, over the items there or over k."""
    found = len(judged_items(query) & set(query.ranked[:k]))
    return found, retrieved(query, k) if denominator == "retrieved" else length(query, k)


def bpref(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """For each relevant item retrieved, the share of judged irrelevant ones (R at most) that do not stand above it."""
    relevant = relevant_items(query, min_relevance)
    refused = judged_items(query) - relevant
    most, total, above = min(len(refused), len(relevant)), 0.0, 0
    for item in query.ranked[:k]:
        above += item in refused
        if item in relevant:
            total += 1 - min(above, len(relevant)) / most if above else 1.0
    return total, len(relevant)


def worth_of(
    query: Query, item: int | None, min_relevance: float | None, item_values: Sequence[float] | None, gain: Gain
) -> float:
    """What an item is worth: its own number where it is relevant, or what its grade is."""
    grade = 0.0 if item is None else query.gains.get(item, 0.0)
    if item is None or item_values is None:
        return gain_of(grade, gain, min_relevance)
    return float(item_values[item]) if is_relevant(grade, min_relevance) else 0.0


def value_at(
    query: Query,
    k: int | None,
    min_relevance: float | None = None,
    *,
    item_values: Sequence[float] | None = None,
    gain: Gain = "linear",
    normalized: bool = False,
) -> Ratio:
    """The worths of the first k, summed, over 1 or over the most that k ranks can hold."""
    found = sum(worth_of(query, item, min_relevance, item_values, gain) for item in query.ranked[:k])
    best = sorted((worth_of(query, item, min_relevance, item_values, gain) for item in query.gains), reverse=True)[:k]
    return found, sum(best) if normalized else 1.0


def shown_items(query: Query, k: int | None) -> list[int]:
    """The items at the first k ranks."""
    return [item for item in query.ranked[:k] if item is not None]


def novelty(
    query: Query,
    k: int | None,
    min_relevance: float | None = None,
    item_counts: Sequence[float] = (),
    num_users: int = 1,
) -> Ratio:
    """The bits that it takes to tell who met each item, summed, over the items there; one user at least met each."""
    shown = shown_items(query, k)
    return -sum(math.log2(max(float(item_counts[item]), 1) / num_users) for item in shown), len(shown)


def average_popularity(
    query: Query,
    k: int | None,
    min_relevance: float | None = None,
    item_counts: Sequence[float] = (),
) -> Ratio:
    """The counts of the items at the first k ranks, summed, over the items there."""
    shown = shown_items(query, k)
    return sum(float(item_counts[item]) for item in shown), len(shown)


def intra_list_diversity(
    query: Query,
    k: int | None,
    min_relevance: float | None = None,
    embeddings: Sequence[Sequence[float]] = (),
    distance: str = "cosine",
) -> Ratio:
    """The distance of each pair of items at the first k ranks, summed, over the pairs."""
    vectors = [[float(number) for number in embeddings[item]] for item in shown_items(query, k)]
    total = 0.0
    pairs = list(itertools.combinations(vectors, 2))
    for a, b in pairs:
        if distance == "sqeuclidean":
            total += sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
        else:
            lengths = math.hypot(*a) * math.hypot(*b)
            total += 1 - (sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0)
    return total, len(pairs)


def tie_rate(query: Query, k: int | None, min_relevance: float | None = None) -> Ratio:
    """1 where the items on both sides of rank k have one score."""
    around = query.ranked[k - 1 : k + 1] if k and query.scores else []
    tied = len(around) == 2 and query.scores[around[0]] == query.scores[around[1]]
    return float(tied), 1.0


REFERENCE: dict[str, Callable[..., Ratio]] = {
    "precision": precision,
    "recall": recall,
    "fbeta": fbeta,
    "f1": fbeta,
    "hit_rate": hit_rate,
    "full_recall": full_recall,
    "mrr": mrr,
    "map": average_precision,
    "ndcg": ndcg,
    "dcg": dcg,
    "top_k_accuracy": hit_rate,
    "psp": psp,
    "psndcg": psndcg,
    "rbp": rbp,
    "rprec": r_precision,
    "map_r": map_at_r,
    "fall_out": fall_out,
    "err": err,
    "judged": judged,
    "bpref": bpref,
    "tie_rate": tie_rate,
    "value": value_at,
    "novelty": novelty,
    "arp": average_popularity,
    "ild": intra_list_diversity,
}


# Averages over queries ---------------------------------------------------------------------------

POOLED = {"psp", "psndcg"}  # whose average is micro where none is named
EMPTY_VALUES: dict[str, float | None] = {"zero": 0.0, "one": 1.0, "nan": math.nan, "skip": None}


def is_empty(name: str, query: Query, k: int | None, options: Mapping[str, Any]) -> bool:
    """Whether the query has nothing to find: no relevant item; of worths an ideal of 0; of what is shown, no item."""
    level = options.get("min_relevance")
    worths = {option: options[option] for option in ("gain", "item_values", "min_relevance") if option in options}
    nothing: dict[str, Callable[[], bool]] = {
        **dict.fromkeys(("novelty", "arp", "ild"), lambda: not shown_items(query, k)),
        "dcg": lambda: ndcg(query, None, **worths)[1] == 0,
        "ndcg": lambda: ndcg(query, None, **worths, ideal=pool)[1] == 0,
        "value": lambda: value_at(query, None, **worths, normalized=True)[1] == 0,
        "fall_out": lambda: fall_out(query, None, level)[1] == 0,
        "tie_rate": lambda: False,
        "judged": lambda: not judged_items(query),
        "err": lambda: not relevant_items(query, None),
    }
    pool = "candidates" if options.get("ideal") == "candidates" else "relevant"
    return nothing[name]() if name in nothing else not relevant_items(query, level)


def value(name: str, query: Query, k: int | None, empty: str = "zero", **options: Any) -> float | None:
    """The metric of one query; None where `empty` leaves it out. A quotient over nothing is 0."""
    if is_empty(name, query, k, options):
        return EMPTY_VALUES[empty]
    numerator, denominator = REFERENCE[name](query, k, **options)
    return numerator / denominator if denominator else 0.0


def parts(
    name: str,
    queries: Iterable[Query],
    k: int | None,
    average: str | None = None,
    empty: str = "zero",
    **options: Any,
) -> list[tuple[float, float, float]]:
    """Weight, numerator and denominator of each query that counts, whose summed quotient is the average."""
    pooled = average == "micro" if average else name in POOLED
    rows = []
    for query in queries:
        number = value(name, query, k, empty, **options)
        if number is not None:
            denominator = REFERENCE[name](query, k, **options)[1] if pooled else 1.0
            rows.append((query.weight, number * denominator, denominator))
    return rows


def average_of(name: str, queries: Iterable[Query], k: int | None, **options: Any) -> float:
    """The macro or micro average over queries; NaN of nothing."""
    rows = parts(name, queries, k, **options)
    total = sum(w * d for w, _, d in rows)
    return sum(w * n for w, n, _ in rows) / total if total else math.nan


def interval_of(
    name: str,
    queries: Iterable[Query],
    k: int | None,
    level: float = 0.95,
    upper: float = 1.0,
    **options: Any,
) -> tuple[float, float]:
    """Student's t, or Wilson's score interval where each query has nothing or all; cut at 0 and `upper`."""
    rows = parts(name, queries, k, **options)
    total = sum(w * d for w, _, d in rows)
    centre = sum(w * n for w, n, _ in rows) / total
    effective = total**2 / sum((w * d) ** 2 for w, _, d in rows)
    if upper == 1 and all(n in {0, d} for w, n, d in rows if w):
        z = NormalDist().inv_cdf((1 + level) / 2)
        # The shares that a test of level z would not reject: the roots of (centre - p)^2 n = z^2 p (1 - p).
        a, b, c = effective + z * z, -(2 * effective * centre + z * z), effective * centre * centre
        root = math.sqrt(b * b - 4 * a * c)
        return max((-b - root) / (2 * a), 0.0), min((-b + root) / (2 * a), 1.0)
    squares = sum((w * (n - centre * d)) ** 2 for w, n, d in rows)
    error = math.sqrt(effective / (effective - 1) * squares) / total
    reach = scipy.stats.t.ppf((1 + level) / 2, effective - 1) * error
    return max(centre - reach, 0.0), min(centre + reach, upper)
