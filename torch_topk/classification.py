"""Labels at K of plain Python and NumPy data: scikit-learn's functions, for lists of ranked labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_topk.counts import AVERAGES, SCORES, LabelAverage, ZeroDivision
from torch_topk.inputs import is_single, read_choice, read_cutoffs
from torch_topk.metrics import LabelFBeta, LabelReport
from torch_topk.ranking import Ranking
from torch_topk.relevance import Relevance

Label: TypeAlias = Any
Truth: TypeAlias = Iterable[Label] | Iterable[Iterable[Label]] | NDArray[Any]
Lists: TypeAlias = Iterable[Iterable[Label]] | NDArray[Any]


def precision_recall_fscore_at_k(
    y_true: Truth,
    y_ranked: Lists,
    *,
    k: int | Sequence[int],
    beta: float = 1.0,
    labels: Sequence[Label] | None = None,
    average: LabelAverage | None = None,
    zero_division: ZeroDivision = "warn",
) -> tuple[Any, Any, Any, NDArray[np.int64] | None]:
    r"""Precision, recall, F and support of labels, each row naming the first k labels of its list.

    What scikit-learn's `precision_recall_fscore_support` gives for the indicator matrices of the truth and of the
    first k, which are never made.

    Args:
        y_true: Each row's label, or each row's labels (any of its own kind: ints, strings); no order, repeats count
            once.
        y_ranked: Each row's labels, best first: lists of any lengths, or an array ``(Q, L)``, in which -1 fills up
            short rows (unless the truth or labels hold it). A list shorter than k names fewer labels.
        k: The cut-off, or several.
        beta: How many times as much recall counts as precision in F.
        labels: The labels to report, in this order, to which averages keep too (one that occurs nowhere has no
            support); None: all those in the truth or among
            the deepest first k, sorted.
        average: None for a value a label; "micro", "macro", "weighted" or "samples", as in `LabelPrecision`.
        zero_division: What a ratio without a denominator counts: 0, 1, nan, or "warn" (0 and a warning).

    Returns:
        ``(precision, recall, fscore, support)``: arrays of a value a label; with an average, numbers, and None for
        support. For several k each but support has a leading dimension ``len(k)``.

    Raises:
        ValueError: For other numbers of lists than of rows, or a list that names a label twice among its first k.
        TypeError: For labels that are neither all ints nor all strings.

    Example:
        >>> y_true, y_ranked = ["cat", "dog", "cat"], [["cat", "dog"], ["cat", "dog"], ["owl", "cat"]]
        >>> precision, recall, fscore, support = precision_recall_fscore_at_k(y_true, y_ranked, k=1, zero_division=0)
        >>> precision.tolist(), recall.tolist(), support.tolist()
        ([0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [2, 1, 0])
    """
    known, asked, ranking = _read(y_true, y_ranked, k, labels)
    read_choice("average", average, (*AVERAGES, None))
    counts = LabelFBeta(len(known), k, beta=beta, labels=asked, zero_division=zero_division)
    counts.update(ranking)
    totals = counts.totals()
    totals.warn(SCORES, average, stacklevel=2)
    values: list[Any] = []
    for score in SCORES:
        if average is None:
            found = torch.stack([totals.values(score, i)[asked] for i in range(len(counts.cutoffs))])
        else:
            found = totals.averages(score, average, totals.asked)
        found = found[0] if is_single(k) else found
        values.append(found.numpy() if found.dim() else found.item())
    return values[0], values[1], values[2], totals.held[asked].numpy() if average is None else None


def classification_report_at_k(
    y_true: Truth,
    y_ranked: Lists,
    *,
    k: int | Sequence[int],
    labels: Sequence[Label] | None = None,
    target_names: Sequence[str] | None = None,
    digits: int = 2,
    output_dict: bool = False,
    zero_division: ZeroDivision = "warn",
) -> str | dict[Any, Any]:
    r"""Scikit-learn's `classification_report`, each row naming the first k labels of its list.

    With one label a row and ``k=1`` it is the report of multi-class data, with an accuracy; otherwise that of the
    indicator matrices of the truth and of the first k, which are never made.

    Args:
        y_true: As in `precision_recall_fscore_at_k`.
        y_ranked: As in `precision_recall_fscore_at_k`.
        k: The cut-off, or several: a report each, under one another.
        labels: The labels to report, in this order; None: all those in the truth or among the deepest first k, sorted.
        target_names: What to call them, in the order of labels.
        digits: How many decimals are printed. Values are averaged before they are rounded.
        output_dict: Return a dict of unrounded values, with scikit-learn's keys, in place of text; for several k a
            dict of such dicts by k.
        zero_division: What a ratio without a denominator counts: 0, 1, nan, or "warn" (0 and a warning).

    Raises:
        ValueError: As `precision_recall_fscore_at_k`; or for another number of target_names than of labels.

    Example:
        >>> y_true, y_ranked = ["cat", "dog", "cat"], [["cat", "dog"], ["cat", "dog"], ["owl", "cat"]]
        >>> print(classification_report_at_k(y_true, y_ranked, k=1, zero_division=0))
                      precision    recall  f1-score   support
        <BLANKLINE>
                 cat       0.50      0.50      0.50         2
                 dog       0.00      0.00      0.00         1
                 owl       0.00      0.00      0.00         0
        <BLANKLINE>
            accuracy                           0.33         3
           macro avg       0.17      0.17      0.17         3
        weighted avg       0.33      0.33      0.33         3
        <BLANKLINE>
    """
    known, asked, ranking = _read(y_true, y_ranked, k, labels)
    names = [str(label) for label in known]
    if isinstance(target_names, (str, Mapping)):
        raise TypeError(f"target_names must be a list of names, in the order of labels, but is {target_names!r}.")
    if target_names is not None:
        if len(target_names) != len(asked):
            raise ValueError(f"target_names must name the {len(asked)} labels, but holds {len(target_names)} names.")
        for label, name in zip(asked, target_names, strict=True):
            names[label] = str(name)
    counts = LabelReport(len(known), k, target_names=names, labels=asked, zero_division=zero_division)
    counts.update(ranking)
    counts.totals().warn(SCORES, None, stacklevel=2)
    if zero_division == "warn":  # said once, whatever the number of reports
        counts.zero_division = 0.0
    reports = {cutoff: counts.report(cutoff, digits=digits) for cutoff in read_cutoffs(k)}
    if output_dict:
        dicts = {cutoff: each.to_dict() for cutoff, each in reports.items()}
        return next(iter(dicts.values())) if is_single(k) else dicts
    if is_single(k):
        return str(next(iter(reports.values())))
    return "\n".join(f"K = {cutoff}\n{each}" for cutoff, each in reports.items())


def _read(
    y_true: Truth, y_ranked: Lists, k: int | Sequence[int], labels: Sequence[Label] | None
) -> tuple[list[Label], list[int], Ranking]:
    """Every label there is, sorted, the ids of those to report, and the ranking of all rows."""
    depth = max(cutoff or 0 for cutoff in read_cutoffs(k))
    if not depth:
        raise ValueError("k must be an int or several ints, but is None.")
    truth, held, single = _flatten("y_true", y_true)
    lists, named, alone = _flatten("y_ranked", y_ranked, depth)
    if alone:
        raise ValueError("y_ranked must hold a list of labels for each row, best first, but holds a label a row.")
    if len(held) != len(named):
        raise ValueError(f"y_true has {len(held)} rows, but y_ranked {len(named)}.")
    if isinstance(labels, str) or (labels is not None and len({*labels}) < len(labels)):
        raise ValueError(f"labels must be different labels, or None for all that occur, but are {labels!r}.")
    wanted = _as_labels("labels", [] if labels is None else list(labels))
    cells = (np.arange(min(depth, int(named.max(initial=0)))) < named[:, None]).nonzero()
    if isinstance(y_ranked, (np.ndarray, Tensor)) and lists.dtype.kind != "U" and -1 not in truth and -1 not in wanted:
        cells, lists = tuple(axis[lists != -1] for axis in cells), lists[lists != -1]
    known, (truth_ids, list_ids, asked) = _encode(y_true=truth, y_ranked=lists, labels=wanted)
    if labels is None:
        asked = np.arange(len(known))
    table = np.full((len(named), min(depth, int(named.max(initial=0)))), -1)
    table[cells] = list_ids
    _refuse_repeats(table, known, depth)
    if single:
        relevance = Relevance.from_labels(truth_ids)
    else:
        rows = np.repeat(np.arange(len(held)), held)
        relevance = Relevance.from_coo(rows, truth_ids, num_queries=len(held))
    return known.tolist(), asked.tolist(), Ranking.from_ids(table, relevance, validate="off")


def _encode(**given: NDArray[Any]) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """The different labels, sorted, and the place among them of each that is given."""
    kinds = {name: "strings" if part.dtype.kind == "U" else "ints" for name, part in given.items() if part.size}
    if len(set(kinds.values())) > 1:
        held = ", ".join(f"{name} holds {kind}" for name, kind in kinds.items())
        raise TypeError(f"Labels must be all ints or all strings, but {held}.")
    if not kinds:
        raise ValueError("There is no label: y_true and y_ranked are empty, and labels names none.")
    known, ids = _places(np.concatenate([given[name] for name in kinds]))
    return known, np.split(ids, np.cumsum([part.size for part in given.values()])[:-1])


def _places(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if labels.dtype.kind == "U" or int(labels.max()) - int(labels.min()) > 8 * labels.size:
        return np.unique(labels, return_inverse=True)
    least = labels.min()  # ints that lie close are looked up rather than sorted
    occurs = np.zeros(labels.max() - least + 1, dtype=bool)
    occurs[labels - least] = True
    return occurs.nonzero()[0] + least, (occurs.cumsum() - 1)[labels - least]


def _refuse_repeats(table: NDArray[np.int64], known: NDArray[Any], depth: int) -> None:
    ordered = np.sort(table, axis=1)
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if again.any():
        row, place = np.argwhere(again)[0]
        raise ValueError(
            f"y_ranked must name a label once a row, but row {row} names {known[ordered[row, place]].item()!r} twice "
            f"among its first {depth}."
        )


def _flatten(name: str, rows: Any, depth: int | None = None) -> tuple[NDArray[Any], NDArray[np.int64], bool]:
    """The labels of all rows in one array, how many each row has, and whether rows are labels rather than lists."""
    if hasattr(rows, "to_numpy"):  # of pandas or polars
        rows = rows.to_numpy()
    if isinstance(rows, (np.ndarray, Tensor)):
        array = np.asarray(rows.detach().cpu() if isinstance(rows, Tensor) else rows)
        if array.ndim == 2 and depth is not None:
            cut = array[:, :depth]
            return _as_labels(name, cut.reshape(-1)), np.full(len(cut), cut.shape[1]), False
        if array.ndim > 1:
            raise ValueError(
                f"{name} must be a label or a list of labels a row, but is an array of shape {array.shape}: pass "
                f"[row[row >= 0] for row in {name}] if its rows are lists of labels, padded with -1, or "
                f"[row.nonzero()[0] for row in {name}] if it is an indicator matrix."
            )
        rows = array.tolist() if array.dtype == object else array
    if isinstance(rows, np.ndarray):
        return _as_labels(name, rows), np.ones(len(rows), dtype=np.int64), True
    rows = list(rows)
    alone = {issubclass(kind, str) or not issubclass(kind, Iterable) for kind in set(map(type, rows))}
    if len(alone) > 1:
        raise TypeError(f"{name} must hold a label a row, or a list of labels a row, but holds both.")
    if alone == {True}:
        return _as_labels(name, rows), np.ones(len(rows), dtype=np.int64), True
    if depth is not None and any(isinstance(row, (set, frozenset)) for row in rows):
        raise TypeError(f"{name} must hold lists, best first, but holds a set, which has no order.")
    lists = [row if isinstance(row, (list, tuple)) else list(row) for row in rows]
    if depth is not None:
        lists = [row if len(row) <= depth else row[:depth] for row in lists]
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return _as_labels(name, list(chain.from_iterable(lists))), lengths, False


def _as_labels(name: str, labels: Any) -> NDArray[Any]:
    """Labels as an array of int64 or of strings."""
    if not len(labels):
        return np.empty(0, dtype=np.int64)
    if isinstance(labels, list) or labels.dtype == object:
        kinds = set(map(type, labels))
        strange = sorted(
            kind.__name__ for kind in kinds if issubclass(kind, (Iterable, type(None))) and not issubclass(kind, str)
        )
        if strange or len({issubclass(kind, str) for kind in kinds}) > 1:
            raise TypeError(f"{name} must hold ints or strings, but holds {', '.join(strange) or 'both'}.")
    array = np.asarray(labels, dtype=str if isinstance(labels[0], str) else None)
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind not in "iub":
        raise TypeError(f"{name} must hold ints or strings, but holds {array.dtype}.")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must hold ints below 2^63, but holds {array.max()}.")
    return array.astype(np.int64)
