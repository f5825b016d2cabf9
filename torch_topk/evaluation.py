"""Runs held against judgments, by the ids that both were written with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torch_topk.gain import ItemTable
from torch_topk.inputs import InputError, read_choice
from torch_topk.io import QRELS, RUN, Index, Kind, Pairs, is_source, join, number_ids, read_pairs, to_text
from torch_topk.names import Spec
from torch_topk.ranking import Ranking
from torch_topk.record import identity
from torch_topk.relevance import Relevance
from torch_topk.suite import TopKMetrics

_CELLS = 1 << 18  # of the padded lists that are held at a time


def evaluate(
    qrels: Any,
    run: Any,
    metrics: Spec | Sequence[Spec] | Mapping[str, Spec] | TopKMetrics,
    *,
    k: int | Sequence[int] | None = None,
    missing: str = "zero",
    per_query: bool = False,
    **options: Any,
) -> Any:
    """Evaluate what a system retrieved for each query against judgments of which documents are relevant.

    Queries and documents are named by strings or integers; an integer is the same as its digits, and nothing else is
    read into an id. A document that no judgment lists is not relevant, and a relevant one that was not retrieved counts
    as missed.

    Args:
        qrels: The judgments: ``{query: {document: grade}}``; ``{query: documents}``, a set or list of those that are
            relevant, with grade 1; a data frame of pandas or polars with a column of the query (query_id, qid, q_id,
            topic_id, user_id or query), of the document (doc_id, docno, docid, document_id, item_id or item) and of the
            grade (relevance, rel, grade, label, gain, rating or score); or the path of a file: TREC's lines of query,
            iteration, document and grade, or what ends in ".json" (a dict of dicts) or ".parquet", the first two also
            with ".gz".
        run: What was retrieved, in the same forms, with a score (or prediction) in place of the grade, or lists of
            documents, best first. Lines of TREC hold query, "Q0", document, rank, score and tag. Scores decide, as
            float64; ranks are not read. Several runs are a mapping from their names to any of these.
        metrics: As `TopKMetrics` takes them, or a suite, which is updated and keeps what intervals are read from.
        k: The cut-offs of metrics named without one; None for the whole list.
        missing: A query of the qrels that the run lacks counts as if nothing was retrieved ("zero", as with trec_eval's
            -c), or nowhere ("skip"), or is an "error". Queries that only the run has are left out.
        per_query: Whether to return each query's value in place of the means.
        options: Further arguments of `TopKMetrics`, such as ``preset`` and the fields of `Policies`. With ``ties``
            "index" and "reverse" equal scores stand in ascending or descending order of the ids' bytes in UTF-8.

    Returns:
        ``{key: float}``, or `QueryValues` with ``per_query``; of several runs, a dict of these by name.

    Raises:
        TypeError, ValueError: For sources that cannot be read, qrels and a run that share no query, and options that
            do not go together; the text says what was found and what was sought.
        ImportError: For a Parquet file without pandas and pyarrow.
        InputError: For a score or grade that is NaN or infinite, or a document that a query ranks twice (unless
            ``duplicates="first"``).

    Example:
        >>> qrels = {"q1": {"d1": 2, "d2": 1}, "q2": ["d7"]}
        >>> run = {"q1": {"d2": 0.9, "d3": 0.4}, "q2": {"d7": 0.8, "d1": 0.3}}
        >>> evaluate(qrels, run, ["recall@1", "mrr"])
        {'recall@1': 0.75, 'mrr': 1.0}
    """
    read_choice("missing", missing, ("zero", "skip", "error"))
    truth = read_pairs(qrels, QRELS)
    if not isinstance(run, Mapping) or not any(map(is_source, run.values())):
        suite = _suite(metrics, k, options, per_query=per_query)
        return _evaluate(truth, read_pairs(run, RUN), suite, missing, per_query=per_query)
    if isinstance(metrics, TopKMetrics):
        raise ValueError("A suite keeps the sums of one run: name the metrics, or give each run a suite of its own.")  # noqa: TRY004 - a suite is taken, but not of several runs
    found = {}
    for name, source in run.items():
        if not is_source(source):
            raise TypeError(
                f"run holds several runs, but {name!r} is none: {source!r}. Give runs by name, or the documents of "
                "one run by query."
            )
        suite = _suite(metrics, k, options, per_query=per_query)
        found[name] = _evaluate(truth, read_pairs(source, RUN), suite, missing, per_query=per_query)
    return found


def _evaluate(truth: Pairs, run: Pairs, suite: TopKMetrics, missing: str, *, per_query: bool) -> Any:
    for ranking, names in _rankings(truth, run, missing, suite):
        if suite.collect or suite.bootstrap is not None:
            suite.update(ranking, query_ids=names)
        else:
            suite.update(ranking)
    if per_query:
        return suite.collected()
    return {key: value.item() for key, value in suite.compute().items()}


def _suite(metrics: Any, k: Any, options: Mapping[str, Any], *, per_query: bool) -> TopKMetrics:
    if not isinstance(metrics, TopKMetrics):
        suite = TopKMetrics(metrics, k, collect=per_query, **options)
    elif k is not None or options:
        given = ", ".join([*(["k"] if k is not None else []), *options])
        raise ValueError(f"The suite given as metrics has its options already: give {given} when making it.")
    elif per_query and not metrics.collect:
        raise ValueError("The suite given as metrics keeps no query's values: make it with collect=True.")
    else:
        suite = metrics
    if suite.reads_counts:
        raise ValueError(
            "Ranks among all candidates cannot be read off a run, which holds some: leave out ties='realistic' and "
            "metrics such as mr, or use RankCounts."
        )
    for name, metric in suite.named:
        numbers = [option for option, value in metric.options.items() if isinstance(value, ItemTable)]
        if numbers:
            raise ValueError(
                f"{name!r} has {numbers[0]} by integer item id, which documents named by text have none of: number the "
                "documents, and update a TopKMetrics with Ranking.from_ids."
            )
    return suite


def _rankings(truth: Pairs, run: Pairs, missing: str, suite: TopKMetrics) -> Iterator[tuple[Ranking, NDArray[Any]]]:
    """The rankings of the queries of the qrels, and what these are called, as many at a time as memory is held for."""
    places = {str(name): place for place, name in enumerate(truth.names)}
    ours = np.array([places.get(str(name), -1) for name in run.names], dtype=np.int64)
    kept = _queries(truth, run, ours, missing)
    number = np.full(len(truth.names) + 1, -1)  # of a query of the qrels among those kept; the last one: of none
    number[kept] = np.arange(len(kept))
    _check_finite(truth, QRELS)
    if suite.policies.non_finite == "error":
        _check_finite(run, RUN)
    judged, listed = _Grouped(truth, number[:-1], len(kept)), _Grouped(run, number[ours], len(kept))
    names = np.array(truth.names, dtype=object)[kept]
    # Documents are numbered anew for each stretch, unless metrics of a whole run compare all lists with one another.
    cells = len(kept) * len(run.query) if any(metric.per_run for _, metric in suite.named) else _CELLS
    for first, last in _stretches(listed.counts, cells):
        yield _ranking(judged, listed, first, last, suite), names[first:last]


def _queries(truth: Pairs, run: Pairs, ours: Index, missing: str) -> Index:
    """Which queries of the qrels to evaluate; an error where the run has none of them, or lacks one that it may not."""
    known = np.zeros(len(truth.names), bool)
    known[ours[ours >= 0]] = True
    if not known.any():
        shown = [", ".join(map(repr, pairs.names[:3])) or "none" for pairs in (truth, run)]
        raise ValueError(
            f"qrels and run share no query: those of the qrels are called {shown[0]}, those of the run {shown[1]}, "
            "and they must be the same text."
        )
    if missing == "error" and not known.all():
        lacking = np.flatnonzero(~known)
        raise ValueError(
            f"The run lacks {len(lacking)} of the {len(known)} queries of the qrels, as {truth.names[lacking[0]]!r}: "
            "complete it, or say how they count with missing='zero' or 'skip'."
        )
    return np.flatnonzero(known) if missing == "skip" else np.arange(len(known))


def _check_finite(pairs: Pairs, kind: Kind) -> None:
    broken = ~np.isfinite(pairs.numbers)
    if broken.any():
        row = int(broken.argmax())
        raise InputError(
            f"Query {pairs.names[pairs.query[row]]!r} has the {kind.number} {pairs.numbers[row]} for document "
            f"{to_text(pairs.documents[row])!r}, which must be a finite number."
        )


class _Grouped:
    """Where the pairs of each query stand, in whatever order they came: runs of pairs of one query, by query."""

    def __init__(self, pairs: Pairs, number: Index, queries: int) -> None:
        self.pairs, query = pairs, pairs.query
        starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]][: len(query)])
        lengths, of = np.diff(starts, append=len(query)), number[query[starts]]
        order = of.argsort(kind="stable")
        self._starts, self._lengths, self._of = starts[order], lengths[order], of[order]
        # The pairs of queries that count nowhere, which are numbered -1, stand before all bounds.
        self._bounds = np.searchsorted(self._of, np.arange(queries + 1))
        self.counts = np.diff(np.r_[0, self._lengths.cumsum()][self._bounds])

    def rows(self, first: int, last: int) -> tuple[Index, Index]:
        """The pairs of queries first .. last - 1, by query, and the query of each, counted from the first."""
        part = slice(self._bounds[first], self._bounds[last])
        starts, lengths = self._starts[part], self._lengths[part]
        rows = np.repeat(starts - lengths.cumsum() + lengths, lengths) + np.arange(lengths.sum())
        return rows, np.repeat(self._of[part] - first, lengths)


def _order(query: Index, scores: NDArray[np.float64], codes: Index, *, ties: str) -> Index:
    """The order of pairs that stand by query: best score first, equal ones by document.

    Runs nearly always come with the best score first, and then nothing is sorted but what ties.
    """
    order = np.arange(len(query))
    if ((query[1:] == query[:-1]) & (scores[1:] > scores[:-1])).any():
        order = np.argsort(-scores)
        order = order[query[order].argsort(kind="stable")]
    query, scores = query[order], scores[order]
    level = (query[1:] == query[:-1]) & (scores[1:] == scores[:-1])
    tied = np.flatnonzero(np.r_[level, False] | np.r_[False, level])
    group = np.cumsum(~np.r_[False, level])[tied]
    code = codes[order[tied]]
    order[tied] = order[tied[np.lexsort((-code if ties == "reverse" else code, group))]]
    return order


def _repeats(query: Index, codes: Index, documents: int) -> NDArray[np.bool_]:
    """Where a query lists a document again."""
    key = query * max(documents, 1) + codes
    again = np.zeros(len(key), bool)
    ordered = np.sort(key)
    if (ordered[1:] == ordered[:-1]).any():
        again[:] = True
        again[np.unique(key, return_index=True)[1]] = False
    return again


def _stretches(lengths: Index, cells: int) -> Iterator[tuple[int, int]]:
    """Stretches of queries whose lists, padded to the longest of them, take so many cells at most, or a single one."""
    first = longest = 0
    for place, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if place > first and (place + 1 - first) * longest > cells:
            yield first, place
            first, longest = place, length
    yield first, len(lengths)


def _ranking(judged: _Grouped, listed: _Grouped, first: int, last: int, suite: TopKMetrics) -> Ranking:
    """The ranking of queries first .. last - 1."""
    policies, depth, queries = suite.policies, suite.depth, last - first
    truth, run = judged.pairs, listed.pairs
    (entries, owner), (rows, query) = judged.rows(first, last), listed.rows(first, last)
    codes, known = number_ids(join(truth.documents[entries], run.documents[rows]))
    gains, scores = truth.numbers[entries], run.numbers[rows]
    if policies.non_finite == "last":
        least = np.finfo(np.float64).min
        scores = np.nan_to_num(scores, nan=least, neginf=least)
    order = _order(query, scores, codes[len(entries) :], ties=policies.ties)
    query, scores, items = query[order], scores[order], codes[len(entries) :][order]
    again = _repeats(query, items, len(known))
    if again.any():
        if policies.duplicates == "error":
            row = rows[order[again.argmax()]]
            raise InputError(
                f"Query {run.names[run.query[row]]!r} ranks document {to_text(run.documents[row])!r} more than once: "
                "mend the run, or keep the document's best place with duplicates='first'."
            )
        query, scores, items = query[~again], scores[~again], items[~again]
    whole = gains.astype(np.int64)
    relevance = Relevance.from_coo(
        owner, codes[: len(entries)], whole if (whole == gains).all() else gains, num_queries=queries
    ).to(suite.device)
    counts = np.bincount(query, minlength=queries)
    held = np.arange(counts.max(initial=0)) < counts[:, None]
    padded_items, padded_scores = np.full(held.shape, -1), np.full(held.shape, -np.inf)
    padded_items[held], padded_scores[held] = items, scores
    ids, values = (torch.from_numpy(each).to(suite.device) for each in (padded_items, padded_scores))
    if policies.ties in {"optimistic", "pessimistic"}:  # which of equal scores come first hangs on gains
        return Ranking.from_scores(values, relevance, depth, items=ids, ties=policies.ties, validate="off")
    return Ranking(
        ids[:, :depth],
        relevance,
        weights=None,
        ties=policies.ties,
        depth=None if depth is None or depth >= ids.shape[1] else depth,
        shape=(queries,),
        pool=partial(identity, ids),
        pool_holds="ids",
        faults={},
        values=values[:, :depth],
        pool_values=partial(identity, values),
    )
