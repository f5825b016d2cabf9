"""Paired comparison of systems: differences of means over the same queries, intervals, tests, and a table of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from textwrap import fill
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torch_topk.inputs import nearest, read_choice, read_int
from torch_topk.metric import TopKMetric, find
from torch_topk.names import parse
from torch_topk.values import QueryValues

Floats: TypeAlias = NDArray[np.float64]

_TESTS = {
    "permutation": "permutation test",
    "bootstrap": "bootstrap test",
    "t": "paired t test",
    "wilcoxon": "Wilcoxon signed-rank test",
}
_CORRECTIONS = {"holm": "corrected by Holm", "bh": "corrected by Benjamini–Hochberg", None: "not corrected"}
_NUMBERS = 1 << 21  # held at once of a table of resamples
_DUST = 1e-12  # of the sizes of the summands: sums that differ by less are equal but for rounding
_LETTERS = "abcdefghijklmnoprstuvwxyz"  # no q, which is in no common font as a superscript
_RAISED = str.maketrans(_LETTERS, "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")
_LATEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↓": r"$\downarrow$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # which \\ would take for its own
    "*": "{*}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


class Pair(NamedTuple):
    """Two systems by one metric, over the queries that count in both.

    Attributes:
        metric: What it is called.
        a: The baseline, or the one given first.
        b: The other system.
        mean_a: Its mean.
        mean_b: Its mean.
        difference: mean_b - mean_a.
        low: The lower end of the difference's interval.
        high: The upper end.
        relative: The difference as a share of the size of mean_a; NaN where that is 0.
        effect: Cohen's d_z, the mean of the queries' differences over their standard deviation; 0 where all are 0.
        p: How likely a difference of this size, of either sign, is by chance.
        p_corrected: The same, corrected for the number of pairs of the comparison.
        significant: Whether p_corrected is below 1 - level.
        wins: The queries that b is better on.
        ties: The queries that both have one value for.
        losses: The queries that a is better on.
    """

    metric: str
    a: str
    b: str
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    relative: float
    effect: float
    p: float
    p_corrected: float
    significant: bool
    wins: int
    ties: int
    losses: int


class Loss(NamedTuple):
    """A query that a system is worse on than the baseline."""

    query_id: Any
    system: str
    baseline: float
    value: float
    difference: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` found. ``print`` shows a row a metric and a column a system.

    In the tables the best mean of a metric is marked (in bold, or with a star), the interval of each mean stands below
    it, and letters tell which systems it is significantly better than. Another view is
    ``dataclasses.replace(comparison, digits=3)``.

    Attributes:
        systems: Their names, the baseline first.
        metrics: Their names.
        means: ``{system: {metric: mean}}``.
        intervals: ``{system: {metric: (low, high)}}``: each mean's own t interval. Whether two systems differ is for
            the intervals of `pairs` to tell, which are narrower as both ran on the same queries.
        pairs: A `Pair` for each metric and two systems.
        left_out: ``{metric: how many queries count in no system}``.
        tables: Each system's values, in one order of the queries.
        lower_is_better: The metrics for which it is.
        test: As it was given to `compare`, and so `correction` and `level`.
        digits: How many decimals are printed.
    """

    systems: tuple[str, ...]
    metrics: tuple[str, ...]
    means: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    pairs: tuple[Pair, ...]
    left_out: Mapping[str, int]
    tables: Mapping[str, QueryValues]
    lower_is_better: frozenset[str]
    test: str
    correction: str | None
    level: float
    digits: int = 4

    @property
    def legend(self) -> str:
        """What a caption must tell: the marks, the intervals, the queries, the test and its correction."""
        queries = len(self.tables[self.systems[0]])
        left = [f"{count} of them left out of {name}" for name, count in self.left_out.items() if count]
        return (
            f"The best mean of a metric is marked. A letter: significantly better than the system of that letter "
            f"({_TESTS[self.test]}, p < {1 - self.level:.2g}, {_CORRECTIONS[self.correction]}, {len(self.pairs)} "
            f"{'pair' if len(self.pairs) == 1 else 'pairs'}). In brackets: {100 * self.level:g} % intervals of the "
            f"mean, over {queries:,} queries"
            f"{''.join(', ' + each for each in left)}."
        )

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.systems)} by {', '.join(self.metrics)}>"

    def __str__(self) -> str:
        table = self._table("simple", str, best="{}*".format, raised=lambda marks: marks.translate(_RAISED))
        return f"{table}\n\n{fill(self.legend, 100)}"

    def _repr_html_(self) -> str | None:
        """A table for notebooks, which show the repr where tabulate is missing."""
        try:
            return self.to_html()
        except ImportError:
            return None

    def to_pandas(self) -> Any:
        """Return the pairs as a DataFrame: a row a `Pair`, unrounded. Needs pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install 'torch-topk[report]'.") from error
        return pd.DataFrame(self.pairs, columns=Pair._fields)

    def to_markdown(self) -> str:
        """Return the table in Markdown (GitHub's); what its caption must tell is `legend`. Needs tabulate."""
        return self._table(
            "pipe",
            lambda name: re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", name),
            best="**{}**".format,
            raised="<sup>{}</sup>".format,
            below="<br>",
        )

    def to_html(self) -> str:
        """Return the table and its legend in HTML. Needs tabulate."""
        table = self._table("unsafehtml", escape, best="<b>{}</b>".format, raised="<sup>{}</sup>".format, below="<br>")
        return f"{table}\n<p>{escape(self.legend)}</p>"

    def to_latex(self) -> str:
        r"""Return the table as a LaTeX ``tabular``; the document needs ``\usepackage{booktabs}``. Needs tabulate.

        What its caption must tell is `legend`; its per cent sign is not escaped there.
        """
        table = self._table("latex_raw", _to_latex, best=r"\textbf{{{}}}".format, raised="$^{{{}}}$".format)
        for rule in ("top", "mid", "bottom"):
            table = table.replace(r"\hline", rf"\{rule}rule", 1)
        return table

    def regressions(self, n: int = 10, metric: str | None = None, system: str | None = None) -> list[Loss]:
        """Return the queries with the largest losses against the baseline, the largest first.

        Args:
            n: How many at most; queries without a loss are never among them.
            metric: By which metric; None: the first.
            system: Of which system; None: of all.

        Raises:
            ValueError: For an unknown metric or system, or a negative n.
        """
        if n < 0:
            raise ValueError(f"n must be at least 0, but is {n!r}.")
        metric = self.metrics[0] if metric is None else metric
        others = self.systems[1:] if system is None else (system,)
        read_choice("metric", metric, self.metrics)
        read_choice("system", others[0], self.systems[1:])
        table = self.tables[self.systems[0]]
        sign = -1 if metric in self.lower_is_better else 1
        found = []
        for other in others:
            values, before = self.tables[other][metric], table[metric]
            lost = np.flatnonzero(sign * (values - before) < 0)
            rows = zip(table.ids[lost].tolist(), before[lost].tolist(), values[lost].tolist(), strict=True)
            found += [Loss(name, other, old, new, new - old) for name, old, new in rows]
        return sorted(found, key=lambda loss: sign * loss.difference)[:n]

    def _table(
        self,
        style: str,
        read: Callable[[str], str],
        *,
        best: Callable[[str], str],
        raised: Callable[[str], str],
        below: str | None = None,
    ) -> str:
        """Lay the means and their intervals out, in one cell with ``below`` between them, or else in two rows."""
        try:
            from tabulate import tabulate
        except ImportError as error:
            raise ImportError("Tables need tabulate: pip install 'torch-topk[report]'.") from error
        letters = {
            system: _LETTERS[place % len(_LETTERS)] * (1 + place // len(_LETTERS))
            for place, system in enumerate(self.systems)
        }
        beaten: dict[tuple[str, str], str] = {}
        for pair in self.pairs:
            if pair.significant and pair.difference:
                higher, lower = (pair.b, pair.a) if pair.difference > 0 else (pair.a, pair.b)
                winner, loser = (lower, higher) if pair.metric in self.lower_is_better else (higher, lower)
                beaten[pair.metric, winner] = beaten.get((pair.metric, winner), "") + letters[loser]
        rows = []
        for metric in self.metrics:
            means = {system: self.means[system][metric] for system in self.systems}
            top = (min if metric in self.lower_is_better else max)(means.values())
            cells, ends = [], []
            for system, mean in means.items():
                value, marks = self._number(mean, style), beaten.get((metric, system), "")
                cells.append((best(value) if mean == top else value) + (raised(marks) if marks else ""))
                low, high = self.intervals[system][metric]
                ends.append(f"[{self._number(low, style)}, {self._number(high, style)}]")
            name = read(" ".join(metric.split()) + (" ↓" if metric in self.lower_is_better else ""))
            if below is None:
                rows += [[name, *cells], ["", *ends]]
            else:
                rows.append([name, *(f"{cell}{below}{end}" for cell, end in zip(cells, ends, strict=True))])
        headers = ["", *(f"({letter}) {read(' '.join(system.split()))}" for system, letter in letters.items())]
        align = ["left"] * len(headers)
        return str(tabulate(rows, headers=headers, tablefmt=style, colalign=align, disable_numparse=True))

    def _number(self, value: float, style: str) -> str:
        text = f"{value:.{self.digits}f}"
        return text.replace("-", "$-$") if style == "latex_raw" else text


def compare(
    systems: Mapping[str, Any],
    *,
    metrics: str | Sequence[str] | None = None,
    baseline: str | None = None,
    against: str = "baseline",
    test: str = "permutation",
    correction: str | None = "holm",
    level: float = 0.95,
    rounds: int = 10_000,
    seed: int = 0,
    lower_is_better: Sequence[str] = (),
) -> Comparison:
    """Compare systems on the same queries: how far their means are apart, how surely, and on which queries.

    Queries are matched by their ids. One that has NaN in every system counts nowhere, and is left out of that metric.
    All tests are two-sided, and the systems' values are paired by query.

    Args:
        systems: ``{name: values}`` of two systems or more; values are whatever `QueryValues.read` takes.
        metrics: Which metrics to compare; None: all, which every system must have.
        baseline: The system that others are compared with; None: the first.
        against: Which pairs are tested: each system with the "baseline", or "all" pairs of systems.
        test: "permutation": Fisher's randomisation test of the mean difference, whose signs are flipped at random,
            or in every way where there are no more ways than ``rounds``. "bootstrap": of the mean difference, resampled
            and shifted to no difference; the interval lies between the resamples' percentiles. "t": Student's.
            "wilcoxon": signed ranks, as `scipy.stats.wilcoxon` has it. All but "bootstrap" come with the t interval.
        correction: For the number of pairs that are tested in this call, over all metrics: "holm" keeps the chance of
            any false finding below 1 - level, "bh" (Benjamini–Hochberg) the share of false ones among the findings;
            None: nothing is corrected.
        level: Of the intervals; what is significant has a corrected p below 1 - level.
        rounds: How many times signs are flipped or queries resampled; the smallest p is 1 / (rounds + 1).
        seed: Of what is drawn. Before correction, a metric's numbers do not hang on which others are compared.
        lower_is_better: Metrics for which it is, beside those of this package that say so ("mr", for one); all
            other names are taken as higher is better. A prefix that ends in "/" is no part of a name.

    Returns:
        The comparison: ``print`` it, or read its ``pairs``.

    Raises:
        TypeError: For values of queries in no form that is known.
        ValueError: For fewer than two systems or queries, queries or metrics that some system lacks, values that are
            infinite, or NaN in some systems only, and for options out of range.

    References:
        Smucker, Allan & Carterette, A comparison of statistical significance tests for information retrieval
        evaluation, 2007 (permutation). Efron & Tibshirani, An introduction to the bootstrap, 1993; Sakai, Evaluating
        evaluation metrics based on the bootstrap, 2006, who divides each resample's mean by its standard error. Holm, A
        simple sequentially rejective multiple test procedure, 1979. Benjamini & Hochberg, Controlling the false
        discovery rate, 1995. Cohen, Statistical power analysis for the behavioral sciences, 1988 (d_z).

    Example:
        >>> old = {"q1": 0.2, "q2": 0.5, "q3": 0.1, "q4": 0.4, "q5": 0.3, "q6": 0.6}
        >>> new = {query: value + 0.1 for query, value in old.items()}
        >>> pair = compare({"old": old, "new": new}).pairs[0]
        >>> round(pair.difference, 3), pair.p, pair.wins
        (0.1, 0.03125, 6)
    """
    for name, value, choices in (
        ("test", test, _TESTS),
        ("correction", correction, _CORRECTIONS),
        ("against", against, ("baseline", "all")),
    ):
        read_choice(name, value, tuple(choices))
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, but is {level!r}.")
    for name, number, least in (("rounds", rounds, 1), ("seed", seed, 0)):
        read_int(name, number, least)
    tables = _read_systems(systems, baseline, metrics)
    names, first = tuple(tables), next(iter(tables.values()))
    unknown = set(lower_is_better) - set(first.names)
    if isinstance(lower_is_better, str) or unknown:
        raise ValueError(f"lower_is_better must list metrics among {first.names}, but is {lower_is_better!r}.")
    ours = {name: _metric(name) for name in first.names}
    told = {*lower_is_better, *(name for table in tables.values() for name in table.lower_is_better)}
    lower = {name for name, kind in ours.items() if name in told or (kind and not kind.higher_is_better)}
    values = np.stack([table.values for table in tables.values()], axis=1)  # noqa: PD011 - not of pandas
    counted = _read_missing(tables, values)

    pairs = [(0, other) for other in range(1, len(names))]
    pairs = pairs if against == "baseline" else list(combinations(range(len(names)), 2))
    a, b = np.array(pairs).T
    means, *ends = np.empty((3, len(names), len(first.names)))
    difference, effect, p, low, high = np.empty((5, len(pairs), len(first.names)))
    for rows, columns in _alike(counted):
        part = values[rows][:, :, columns]
        means[:, columns] = part.mean(0)
        for end, found in zip(ends, _interval(part, level), strict=True):
            end[:, columns] = found
        apart = part[:, b] - part[:, a]
        difference[:, columns] = apart.mean(0)
        effect[:, columns] = _ratio(apart.mean(0), apart.std(0, ddof=1))
        tested = _run(test, apart.reshape(len(apart), -1), level, rounds, seed)
        p[:, columns], low[:, columns], high[:, columns] = (found.reshape(len(pairs), -1) for found in tested)
    corrected = _correct(p, correction)
    gains = np.where([name in lower for name in first.names], -1, 1) * (values[:, b] - values[:, a])
    relative = np.where(means[a] == 0, np.nan, difference / np.where(means[a] == 0, 1, abs(means[a])))
    numbers = [means[a], means[b], difference, low, high, relative, effect, p, corrected, corrected < 1 - level]
    numbers += [each.sum(0) for each in (gains > 0, gains == 0, gains < 0)]
    rows_of_pairs = zip(*(each.T.reshape(-1).tolist() for each in numbers), strict=True)
    labels = ((metric, names[i], names[j]) for metric in first.names for i, j in pairs)
    intervals = [list(zip(*each, strict=True)) for each in zip(*(end.tolist() for end in ends), strict=True)]
    return Comparison(
        systems=names,
        metrics=first.names,
        means=_by_name(names, first.names, means.tolist()),
        intervals=_by_name(names, first.names, intervals),
        pairs=tuple(Pair(*label, *row) for label, row in zip(labels, rows_of_pairs, strict=True)),
        left_out=dict(zip(first.names, (~counted).sum(0).tolist(), strict=True)),
        tables=tables,
        lower_is_better=frozenset(lower),
        test=test,
        correction=correction,
        level=level,
    )


def _read_systems(
    systems: Mapping[str, Any], baseline: str | None, metrics: str | Sequence[str] | None
) -> dict[str, QueryValues]:
    """The values of each system by the metrics that are compared, the baseline first, all in its order of queries."""
    if not isinstance(systems, Mapping) or not all(isinstance(name, str) for name in systems):
        what = f"has the keys {list(systems)}" if isinstance(systems, Mapping) else f"is a {type(systems).__name__}"
        raise TypeError(f"systems must be a mapping of names (strings) to values, but {what}.")
    if len(systems) < 2:
        raise ValueError(f"systems must hold two systems or more to compare, but holds {list(systems)}.")
    start = next(iter(systems)) if baseline is None else baseline
    read_choice("baseline", start, tuple(systems))
    tables = {name: QueryValues.read(systems[name]) for name in (start, *(each for each in systems if each != start))}
    for name, table in tables.items():
        ids = table.ids.tolist()
        if ids and all(isinstance(each, str) and _metric(each) for each in ids):
            raise ValueError(
                f"The queries of {name!r} are called {_few(ids)}: metrics, it seems. Each query's values are compared, "
                "as {query id: {metric: value}}; what compute() returns, or {metric: {query id: value}}, is not taken."
            )
    return _align(tables, _read_metrics(tables, metrics))


def _read_metrics(tables: Mapping[str, QueryValues], metrics: str | Sequence[str] | None) -> tuple[str, ...]:
    """The metrics that are asked for, or which all systems have."""
    first = next(iter(tables.values()))
    asked = first.names if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if not asked or len(set(asked)) < len(asked):
        raise ValueError(f"metrics must name at least one metric, and each only once, but is {metrics!r}.")
    known = dict.fromkeys(each for table in tables.values() for each in table.names) if metrics is None else asked
    for name, table in tables.items():
        for each in known:
            if each not in table.names:
                hint = "Name those to compare with metrics=." if metrics is None else nearest(each, table.names).strip()
                raise ValueError(f"{name!r} lacks the metric {each!r}: it has {list(table.names)}. {hint}".strip())
    return asked


def _align(tables: Mapping[str, QueryValues], metrics: tuple[str, ...]) -> dict[str, QueryValues]:
    """The tables with these columns, and the rows of each in the order of the first."""
    start, first = next(iter(tables.items()))
    rows = first.ids.tolist()
    known, aligned = set(rows), {}
    for name, table in tables.items():
        here = {query: row for row, query in enumerate(table.ids.tolist())}
        lacks, more = [query for query in rows if query not in here], [query for query in here if query not in known]
        if lacks or more:
            raise ValueError(
                f"{name!r} lacks {len(lacks)} of the {len(rows)} queries of {start!r}{_named(lacks)}, and has "
                f"{len(more)} that it lacks{_named(more)}. Evaluate both on the same queries, or keep the common ones: "
                "to_pandas().loc[ids] of both."
            )
        columns = [table.names.index(each) for each in metrics]
        values = table.values[[here[query] for query in rows]][:, columns]  # noqa: PD011 - not of pandas
        lower = tuple(metric for metric in metrics if metric in table.lower_is_better)
        aligned[name] = QueryValues(first.ids, metrics, values, lower)
    return aligned


def _read_missing(tables: Mapping[str, QueryValues], values: Floats) -> NDArray[np.bool_]:
    """Which queries count for which metric, ``(Q, M)``, of values ``(Q, S, M)``."""
    names, first = tuple(tables), next(iter(tables.values()))
    missing = np.isnan(values)
    counted = np.asarray(~missing.all(1))
    for text, wrong in (("an infinite value", np.isinf(values)), ("NaN", missing & counted[:, None])):
        if wrong.any():
            _, system, metric = np.argwhere(wrong)[0]
            ids = first.ids[wrong[:, system, metric]].tolist()
            raise ValueError(
                f"{names[system]!r} has {text} for {len(ids)} of the queries{_named(ids)} by {first.names[metric]!r}. "
                "Give a finite value to each query that counts, and NaN in every system to one that does not."
            )
    for name, count in zip(first.names, counted.sum(0).tolist(), strict=True):
        if count < 2:
            raise ValueError(f"At least 2 queries must count to compare systems by {name!r}, but {count} do.")
    return counted


def _few(ids: Sequence[Any]) -> str:
    return ", ".join(map(repr, ids[:3])) + (", …" if len(ids) > 3 else "")


def _named(ids: Sequence[Any]) -> str:
    return f" ({_few(ids)})" if ids else ""


def _metric(key: str) -> type[TopKMetric] | None:
    """The metric that a suite's key is of; None where it is none of this package's."""
    try:
        return find(parse(key.rpartition("/")[2])[0])
    except ValueError:
        return None


def _alike(counted: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """The metrics that the same queries count for: these, ``(Q,)``, and the metrics' places."""
    masks, group = np.unique(counted, axis=1, return_inverse=True)
    for place, mask in enumerate(masks.T):
        yield mask, np.flatnonzero(group.reshape(-1) == place)


def _by_name(names: Sequence[str], metrics: Sequence[str], table: Sequence[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(zip(metrics, row, strict=True)) for name, row in zip(names, table, strict=True)}


def _interval(values: Floats, level: float) -> tuple[Floats, Floats]:
    """The t interval of each mean over queries, of values ``(Q, ...)``."""
    from scipy.special import stdtrit

    n = len(values)
    mean, margin = values.mean(0), stdtrit(n - 1, (1 + level) / 2) * values.std(0, ddof=1) / np.sqrt(n)
    return mean - margin, mean + margin


def _ratio(center: Floats, spread: Floats) -> Floats:
    """A mean over a spread: 0 where the mean is, and infinite where only the spread is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(center == 0, 0.0, center / spread)


def _run(test: str, differences: Floats, level: float, rounds: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """The p value of each column of differences ``(Q, columns)``, and the ends of its mean's interval."""
    if test == "bootstrap":
        return _bootstrap(differences, level, rounds, seed)
    low, high = _interval(differences, level)
    if test == "permutation":
        return _permutation(differences, rounds, seed), low, high
    return (_student if test == "t" else _wilcoxon)(differences), low, high


def _student(differences: Floats) -> Floats:
    from scipy.special import stdtr

    n = len(differences)
    t = _ratio(differences.mean(0), differences.std(0, ddof=1) / np.sqrt(n))
    return np.asarray(2 * stdtr(n - 1, -abs(t)))


def _wilcoxon(differences: Floats) -> Floats:
    from scipy.stats import wilcoxon

    return np.array([wilcoxon(column).pvalue if column.any() else 1.0 for column in differences.T])


def _permutation(differences: Floats, rounds: int, seed: int) -> Floats:
    n, random = len(differences), np.random.default_rng(seed)
    every = n < rounds.bit_length()  # 2^n ways are no more than the rounds
    total = differences.sum(0)
    least = abs(total) - _DUST * abs(differences).sum(0)
    count = np.zeros(len(total), dtype=np.int64)
    for start, stop in _blocks(2**n if every else rounds, n):
        if every:
            flips: NDArray[Any] = np.arange(start, stop)[:, None] >> np.arange(n) & 1
        else:
            bits = random.integers(256, size=(stop - start, -(-n // 8)), dtype=np.uint8)
            flips = np.unpackbits(bits, axis=1, count=n)
        count += (abs(total - 2 * (flips.astype(np.float64) @ differences)) >= least).sum(0)
    return count / 2**n if every else (count + 1) / (rounds + 1)


def _bootstrap(differences: Floats, level: float, rounds: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Its p values, and the ends of the intervals."""
    n, random = len(differences), np.random.default_rng(seed)
    means = np.empty((rounds, differences.shape[1]))
    for start, stop in _blocks(rounds, n):
        drawn = random.integers(n, size=(stop - start, n)) + n * np.arange(stop - start)[:, None]
        times = np.bincount(drawn.reshape(-1), minlength=drawn.size).reshape(drawn.shape)
        means[start:stop] = times.astype(np.float64) @ differences / n
    mean = differences.mean(0)
    far = abs(means - mean) >= abs(mean) - _DUST * abs(differences).mean(0)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return (far.sum(0) + 1) / (rounds + 1), low, high


def _blocks(rounds: int, n: int) -> Iterator[tuple[int, int]]:
    """The rounds that are held at once."""
    size = max(16, _NUMBERS // n)
    for start in range(0, rounds, size):
        yield start, min(start + size, rounds)


def _correct(p: Floats, correction: str | None) -> Floats:
    if correction is None:
        return p
    flat = p.reshape(-1)
    if correction == "bh":
        from scipy.stats import false_discovery_control

        return np.asarray(false_discovery_control(flat)).reshape(p.shape)
    order = flat.argsort()
    corrected = np.empty_like(flat)
    corrected[order] = np.minimum(np.maximum.accumulate(flat[order] * np.arange(len(flat), 0, -1)), 1)
    return corrected.reshape(p.shape)


def _to_latex(text: str) -> str:
    escaped = text.translate(str.maketrans(_LATEX))
    return re.sub(r"-(?=-)", "-{}", escaped)  # two in a row are another glyph
