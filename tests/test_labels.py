"""The metrics of labels as metrics: their state, inputs, faults, collections and reports; and plain data.

Their formulas are held against a reference in ``test_labels_reference.py``, and their state across processes and
checkpoints in ``test_distributed.py``.
"""

import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import labels_reference as ref
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn import metrics as sk
from test_no_host_reads import BATCHES, EXCLUSIONS, ITEMS, LISTS, POLICIES, TARGETS, Make, number, ranked, trap
from torch import Tensor
from torchmetrics import MetricCollection

import torch_topk as tt
from torch_topk.counts import LabelCounts

LABELS, ROWS, KS = 6, 24, (5, 1, 3)
COUNTS = ("tp", "fp", "fn", "support")
SCORES = number("cpu", ROWS, LABELS, below=8).float()  # many of them equal
TRUTH = number("cpu", ROWS + 1, LABELS)[1:] == 0
TRUTH[3] = False  # a row without a label
TRUTH[:, 4] = False  # a label without a row
CLASSES = number("cpu", ROWS, below=LABELS - 1)
CUTS = ([], [7], [1, 2, 2, 20], [0, 12, ROWS])

AVERAGES = ("micro", "macro", "weighted", "samples", None)
METRICS: dict[str, Callable[..., LabelCounts]] = {
    "report": partial(tt.LabelReport, groups={"rare": [4, 1], "often": torch.arange(LABELS) < 3}),
    "coverage": tt.LabelCoverage,
    **{
        f"{cls.__name__}, {average}": partial(cls, average=average)
        for cls in (tt.LabelPrecision, tt.LabelRecall, tt.LabelFBeta)
        for average in AVERAGES
    },
}
each_metric = pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
each_validate = pytest.mark.parametrize("validate", ["compute", "now", "off"])


def flat(value: Any) -> list[float]:
    """The numbers of a tensor, or of a dict of them."""
    parts = value.values() if isinstance(value, Mapping) else [value]
    return [number for part in parts for number in part.reshape(-1).tolist()]


def close(value: Any) -> Any:
    """The same numbers but for the order in which they were added up; NaN equals NaN."""
    return pytest.approx(value, rel=1e-12, abs=1e-12, nan_ok=True)


def fed(metric: Any, cuts: Sequence[int] = (), rows: slice = slice(None)) -> Any:
    """A metric after the rows, in batches that end at the cuts."""
    for scores, truth in zip(SCORES[rows].tensor_split(cuts), TRUTH[rows].tensor_split(cuts), strict=True):
        metric.update(scores, truth)
    return metric


def counts(report: tt.LabelReport) -> dict[str, Any]:
    """What it has counted."""
    values = report.compute()
    assert all(values[name].dtype == torch.int64 for name in COUNTS)
    return {name: values[name].tolist() for name in COUNTS}


def lists_of(scores: Tensor) -> list[list[int]]:
    """Each row's labels, best first, equal ones by label; minus infinity is none."""
    return [
        [label for label in sorted(range(len(row)), key=lambda label: -row[label]) if row[label] > -math.inf]
        for row in scores.tolist()
    ]


def expected_counts(
    scores: Tensor = SCORES, truth: Tensor = TRUTH, ks: Sequence[int] = KS, labels: int = LABELS
) -> dict[str, Any]:
    """The same by hand."""
    held, lists = [set(row.nonzero()[:, 0].tolist()) for row in truth], lists_of(scores)
    tables = [ref.label_counts(held, lists, k, range(labels)).values() for k in ks]
    found = {name: [[getattr(count, name) for count in table] for table in tables] for name in COUNTS}
    return {**found, "support": found["support"][0]}


def text(*parts: str) -> str:
    """A pattern of literal parts in this order."""
    return ".*".join(map(re.escape, parts))


# The state --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "cutoffs"), [(3, 1), ([5, 1, 3], 3), ((2, 50), 2), (None, 1)])
@each_metric
def test_state_does_not_grow(make: Callable[..., LabelCounts], k: Any, cutoffs: int) -> None:
    metric = make(LABELS, k)
    for _ in range(10):
        (state,) = [each for each in metric.metric_state.values() if each.dtype == torch.int64]
        assert state.shape == ((2 * cutoffs + 1) * LABELS,)
        assert state.untyped_storage().nbytes() == 8 * len(state)
        fed(metric, rows=slice(2))
        metric(SCORES, TRUTH)


@pytest.mark.parametrize("batches", [1, 10, 1000])
def test_counts_are_exact(batches: int) -> None:
    report = tt.LabelReport(LABELS, KS)
    for _ in range(batches):
        fed(report)
    once = expected_counts()
    assert counts(report) == {name: (batches * np.array(once[name])).tolist() for name in COUNTS}


def test_counts_beyond_what_floating_point_holds() -> None:
    report = tt.LabelReport(2, k=1)
    report.update(torch.eye(2), torch.tensor([0, 1]))
    for _ in range(60):
        report.merge_state(report)
    report.update(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert counts(report) == {"tp": [2**60 + 1, 2**60], "fp": [0, 0], "fn": [0, 0], "support": [2**60 + 1, 2**60]}


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@each_metric
def test_any_split_into_batches_is_the_same(make: Callable[..., LabelCounts], cuts: list[int]) -> None:
    assert flat(fed(make(LABELS, KS), cuts).compute()) == close(flat(fed(make(LABELS, KS)).compute()))


@each_metric
def test_cutoffs_in_the_order_given(make: Callable[..., LabelCounts]) -> None:
    together = fed(make(LABELS, [5, 1, 3])).compute()
    for place, k in enumerate((5, 1, 3)):
        alone = fed(make(LABELS, k)).compute()
        if isinstance(alone, dict):
            assert all(torch.equal(alone[name], together[name][place]) for name in alone if name != "support")
            assert torch.equal(alone["support"], together["support"])
        else:
            assert flat(alone) == close(flat(together[place]))


@each_metric
def test_a_k_beyond_the_labels_is_the_whole_list(make: Callable[..., LabelCounts]) -> None:
    whole = flat(fed(make(LABELS, None)).compute())
    assert whole == flat(fed(make(LABELS, LABELS)).compute()) == flat(fed(make(LABELS, 1000)).compute())
    assert counts(fed(tt.LabelReport(LABELS, None)))["tp"] == TRUTH.sum(0).tolist()


def test_one_label() -> None:
    report = tt.LabelReport(1, k=[1, 9])
    report.update(torch.rand(3, 1), torch.tensor([[1], [0], [1]]))
    report.update(torch.rand(1, 1), torch.tensor([0]))
    assert counts(report) == {"tp": [[3], [3]], "fp": [[1], [1]], "fn": [[0], [0]], "support": [3]}
    assert report.scalars("micro")["precision@1"] == 0.75
    assert str(report.report(1)).split()[4:8] == ["0", "0.75", "1.00", "0.86"]


@each_metric
def test_rows_of_nothing_change_nothing(make: Callable[..., LabelCounts]) -> None:
    metric = fed(make(LABELS, KS), [0, 5, 5])
    metric(SCORES[:0], TRUTH[:0])
    assert flat(metric.compute()) == close(flat(fed(make(LABELS, KS)).compute()))


# Ways in ----------------------------------------------------------------------------------------------

ORDER = torch.tensor(lists_of(SCORES))
PERMUTED = SCORES.argsort(dim=1, stable=True)


def typed(scores: torch.dtype, truth: torch.dtype) -> Callable[[], dict[str, Any]]:
    return lambda: {"preds": SCORES.to(scores), "target": TRUTH.to(truth)}


SAME: dict[str, Callable[[], dict[str, Any]]] = {
    **{
        f"{scores}, {truth}".replace("torch.", ""): typed(scores, truth)
        for scores, truth in (
            (torch.int32, torch.int32),
            (torch.uint8, torch.uint8),
            (torch.int8, torch.int64),
            (torch.float16, torch.float16),
            (torch.bfloat16, torch.bfloat16),
            (torch.float64, torch.bool),
        )
    },
    "NumPy": lambda: {"preds": SCORES.numpy(), "target": TRUTH.numpy()},
    "NumPy, flipped": lambda: {"preds": SCORES.numpy()[::-1], "target": TRUTH.numpy()[::-1]},
    "SciPy": lambda: {"preds": SCORES, "target": scipy.sparse.coo_array(TRUTH.numpy().astype(np.int16))},
    "graded": lambda: {"preds": SCORES, "target": torch.where(TRUTH, 0.5, -2.0)},
    "leading dimensions": lambda: {"preds": SCORES.view(2, 3, 4, LABELS), "target": TRUTH.view(2, 3, 4, LABELS)},
    "Relevance": lambda: {"preds": SCORES, "target": tt.Relevance.from_sparse(TRUTH.float().to_sparse())},
    "Ranking": lambda: {"preds": tt.Ranking.from_scores(SCORES, TRUTH, max(KS))},
    "Ranking of all": lambda: {"preds": tt.Ranking.from_scores(SCORES, TRUTH, None)},
    "lists": lambda: {"preds": tt.Ranking.from_ids(ORDER, TRUTH)},
    "int16 lists": lambda: {"preds": tt.Ranking.from_ids(ORDER.short().numpy(), TRUTH)},
    "items": lambda: {"preds": SCORES.flip(1), "target": TRUTH.flip(1), "items": torch.arange(LABELS).flip(0)},
    "items of each row": lambda: {
        "preds": SCORES.gather(1, PERMUTED),
        "target": TRUTH.gather(1, PERMUTED),
        "items": PERMUTED.int(),
    },
    "weights of 1": lambda: {"preds": SCORES, "target": TRUTH, "weights": torch.ones(ROWS, dtype=torch.bool)},
    "rows that do not count": lambda: {
        "preds": torch.cat([SCORES, SCORES[:5]]),
        "target": torch.cat([TRUTH, ~TRUTH[:5]]),
        "weights": (torch.arange(ROWS + 5) < ROWS).float().numpy(),
    },
}


@pytest.mark.parametrize("batch", SAME.values(), ids=SAME)
def test_ways_in(batch: Callable[[], dict[str, Any]]) -> None:
    report = tt.LabelReport(LABELS, KS)
    report.update(**batch())
    assert counts(report) == expected_counts()
    report.reset()
    report(**batch())
    assert counts(report) == expected_counts()


def test_scores_that_are_a_mask() -> None:
    report = tt.LabelReport(LABELS, KS)
    report.update(SCORES > 3, TRUTH)
    assert counts(report) == expected_counts((SCORES > 3).float())


@pytest.mark.parametrize(
    ("ties", "named"), [("index", [4, 4, 0, 0, 0, 0]), ("reverse", [0, 0, 0, 0, 4, 4])], ids=["index", "reverse"]
)
def test_ties(ties: str, named: list[int]) -> None:
    report = tt.LabelReport(LABELS, 2, ties=ties)
    report.update(torch.zeros(4, LABELS), TRUTH[:4])
    found = report.compute()
    assert (found["tp"] + found["fp"]).tolist() == named


@pytest.mark.parametrize(
    "form",
    [
        lambda mask: mask,
        tt.Relevance.from_dense,
        lambda mask: [torch.arange(LABELS) == 2, tt.Relevance.from_sparse(mask.int().to_sparse())],
        lambda mask: scipy.sparse.csr_array(mask.numpy()),
    ],
    ids=["mask", "Relevance", "list of both", "SciPy"],
)
def test_exclude(form: Callable[[Tensor], Any]) -> None:
    mask = (number("cpu", ROWS, LABELS, below=3) == 0) | (torch.arange(LABELS) == 2)
    report = tt.LabelReport(LABELS, KS)
    report.update(SCORES, TRUTH, exclude=form(mask))
    assert counts(report) == expected_counts(SCORES.masked_fill(mask, -math.inf))


def test_candidates_of_more_labels() -> None:
    # Label 6 is no candidate of any row, yet rows hold it.
    truth = torch.cat([TRUTH, torch.ones(ROWS, 1).bool()], dim=1)
    report = tt.LabelReport(LABELS + 1, KS)
    lists = tt.Relevance.from_sparse(truth.int().to_sparse())
    report.update(SCORES, lists, items=torch.arange(LABELS))
    scores = torch.cat([SCORES, torch.full((ROWS, 1), -math.inf)], dim=1)
    assert counts(report) == expected_counts(scores, truth, labels=LABELS + 1)


def test_ignored_labels() -> None:
    kept = CLASSES != 2
    report = tt.LabelReport(LABELS, KS, ignore_index=2)
    report.update(SCORES, CLASSES)
    report.update(SCORES.view(4, 6, LABELS), torch.where(kept, CLASSES, 2).view(4, 6).to(torch.uint8))
    truth = torch.nn.functional.one_hot(CLASSES, LABELS)[kept].repeat(2, 1)
    assert counts(report) == expected_counts(SCORES[kept].repeat(2, 1), truth)
    assert report.num_queries == 2 * kept.sum()


@pytest.mark.parametrize("ignored", [-1, -100])
def test_ignored_cells_are_neither_candidates_nor_truth(ignored: int) -> None:
    unknown = number("cpu", ROWS, LABELS, below=4) == 0
    report = tt.LabelReport(LABELS, KS, ignore_index=ignored)
    report.update(SCORES, TRUTH.long().masked_fill(unknown, ignored))
    assert counts(report) == expected_counts(SCORES.masked_fill(unknown, -math.inf), TRUTH & ~unknown)


@pytest.mark.parametrize(("empty", "kept"), [("zero", slice(None)), ("skip", TRUTH.any(1))], ids=["zero", "skip"])
def test_rows_without_a_label(empty: str, kept: Any) -> None:
    report = fed(tt.LabelReport(LABELS, KS, empty=empty), [4])
    assert counts(report) == expected_counts(SCORES[kept], TRUTH[kept])
    samples = report.scalars("samples")
    held = [set(row.nonzero()[:, 0].tolist()) for row in TRUTH[kept]]
    for k in KS:
        expected = ref.averages(held, lists_of(SCORES[kept]), k, range(LABELS), "samples")
        assert [samples[f"{score}@{k}"].item() for score in ("precision", "recall", "f1")] == close(list(expected))


def test_min_relevance() -> None:
    grades = number("cpu", ROWS, LABELS)
    report = tt.LabelReport(LABELS, KS, min_relevance=2)
    report.update(SCORES, grades)
    report.update(SCORES, tt.Relevance.from_sparse(grades.to_sparse()))
    twice = expected_counts(SCORES.repeat(2, 1), (grades >= 2).repeat(2, 1))
    assert counts(report) == twice


def test_one_ranking_for_several_metrics() -> None:
    ranking = tt.Ranking.from_scores(SCORES, TRUTH, None)
    for make in METRICS.values():
        for k in (1, KS, None):
            metric = make(LABELS, k)
            metric.update(ranking)
            assert flat(metric.compute()) == close(flat(fed(make(LABELS, k)).compute()))
    suite = tt.TopKMetrics(["ndcg", "top_k_accuracy"], k=3)
    suite.update(ranking)
    assert suite.compute()["ndcg@3"] == tt.functional.ndcg(SCORES, TRUTH, k=3).mean()


@pytest.mark.parametrize("how", ["update", "forward"])
def test_dataset_size(how: str) -> None:
    report = tt.LabelReport(LABELS, KS, dataset_size=ROWS)
    add = report.update if how == "update" else report
    add(SCORES[:20], TRUTH[:20])
    add(SCORES[20:], TRUTH[20:])
    assert counts(report) == expected_counts()
    with pytest.raises(ValueError, match="dataset_size is 24"):
        add(SCORES[:1], TRUTH[:1])
    assert counts(report) == expected_counts()


# Faults that only the data show -----------------------------------------------------------------------


def nan_in(rows: int) -> Tensor:
    return SCORES.index_fill(0, torch.arange(rows), math.nan)


FAULTS: dict[str, tuple[Callable[[], dict[str, Any]], tuple[str, ...]]] = {
    "NaN scores": (lambda: {"preds": nan_in(2), "target": TRUTH}, ("2 queries have a NaN score", "non_finite='last'")),
    "a label below 0": (
        lambda: {"preds": SCORES, "target": CLASSES.index_fill(0, torch.tensor(3), -1)},
        ("1 query has a relevant item id below 0 or not below the number of items", "ignore_index"),
    ),
    "labels beyond the last": (
        lambda: {"preds": SCORES, "target": tt.Relevance.from_ids(torch.tensor([[0, LABELS]] * ROWS))},
        ("24 queries have a relevant item id", "not below the number of items", "check how labels are encoded"),
    ),
    "labels of a sparse truth": (
        lambda: {
            "preds": tt.Ranking.from_ids(
                ORDER, tt.Relevance.from_coo(torch.arange(ROWS), torch.arange(ROWS), num_queries=ROWS)
            )
        },
        ("18 queries have a relevant item id",),
    ),
    "lists of more labels": (
        lambda: {"preds": tt.Ranking.from_ids(ORDER + 1, CLASSES)},
        ("24 queries have a ranked item id", "not below the number of items"),
    ),
    "a list with a negative label": (
        lambda: {"preds": tt.Ranking.from_ids(ORDER.index_fill(0, torch.tensor(0), -7), CLASSES)},
        ("1 query has a ranked item id below 0 (and not the padding)",),
    ),
    "a label twice in a list": (
        lambda: {"preds": tt.Ranking.from_ids(torch.tensor([[0, 1, 0]] * 3), CLASSES[:3])},
        ("3 queries have an item that is ranked more than once", "duplicates='first'"),
    ),
    "items beyond the last": (
        lambda: {"preds": SCORES[:, :2], "target": CLASSES, "items": torch.tensor([1, LABELS])},
        ("24 queries have a ranked item id",),
    ),
    "fractions of rows": (
        lambda: {"preds": SCORES, "target": CLASSES, "weights": torch.linspace(0, 1, ROWS)},
        ("22 queries have a weight other than 0 and 1", "whole numbers"),
    ),
    "negative weights": (
        lambda: {"preds": SCORES, "target": CLASSES, "weights": -torch.ones(ROWS)},
        ("24 queries have a weight that is negative",),
    ),
}
each_fault = pytest.mark.parametrize(("batch", "parts"), FAULTS.values(), ids=FAULTS)


@each_fault
def test_fault(batch: Callable[[], dict[str, Any]], parts: tuple[str, ...]) -> None:
    at_once = tt.LabelReport(LABELS, 5, validate="now")
    fed(at_once)
    for add in (at_once.update, at_once):
        with pytest.raises(tt.InputError, match=text(*parts)):
            add(**batch())
    assert counts(at_once) == expected_counts(ks=[5]) | {
        name: expected_counts(ks=[5])[name][0] for name in ("tp", "fp", "fn")
    }
    waiting = [tt.LabelReport(LABELS, 5), tt.LabelPrecision(LABELS, 5, average="samples"), tt.LabelCoverage(LABELS, 5)]
    for metric in waiting:
        metric.update(**batch())
        fed(metric)
        for _ in range(2):
            with pytest.raises(tt.InputError, match=text(type(metric).__name__, *parts)):
                metric.compute()
    for read in (waiting[0].scalars, waiting[0].report):
        with pytest.raises(tt.InputError, match=text(*parts)):
            read()
    waiting[0].reset()
    assert counts(fed(waiting[0])) == counts(at_once)


@each_fault
def test_fault_is_not_looked_for(batch: Callable[[], dict[str, Any]], parts: tuple[str, ...]) -> None:
    report = tt.LabelReport(LABELS, 5, validate="off")
    ranking = batch()
    if isinstance(ranking["preds"], Tensor):  # and no crash
        report.update(**ranking)
    report(**ranking)
    assert [values.shape for values in report.compute().values()] == [(LABELS,)] * 7


@each_validate
def test_empty_rows_that_are_a_fault(validate: str) -> None:
    report = tt.LabelReport(LABELS, KS, empty="error", validate=validate)
    if validate == "off":
        assert counts(fed(report)) == expected_counts()
        return
    with pytest.raises(tt.InputError, match="5 queries have no relevant item, which empty='error' forbids") as caught:
        fed(report).compute()
    assert "'one'" not in str(caught.value)  # which metrics of labels do not take


# What does not fit, at once ---------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "num_labels of 0": (lambda: tt.LabelReport(0), ValueError, ("num_labels must be an int of at least 1, but is 0",)),
    "num_labels of 2.0": (lambda: tt.LabelRecall(2.0), ValueError, ("num_labels must be an int", "2.0")),
    "num_labels of True": (lambda: tt.LabelRecall(True), ValueError, ("num_labels must be an int", "True")),
    "k of 0": (lambda: tt.LabelReport(3, k=0), ValueError, ("k must be at least 1, but is 0",)),
    "k twice": (lambda: tt.LabelReport(3, k=[1, 1]), ValueError, ("k must hold", "each only once")),
    "beta below 0": (lambda: tt.LabelFBeta(3, beta=-1), ValueError, ("beta must be a finite number of at least 0",)),
    "beta of infinity": (lambda: tt.LabelFBeta(3, beta=math.inf), ValueError, ("beta must be", "inf")),
    "average": (
        lambda: tt.LabelPrecision(3, average="binary"),
        ValueError,
        ("average must be one of 'micro', 'macro', 'weighted', 'samples', None, but is 'binary'",),
    ),
    "average of scalars": (
        lambda: fed(tt.LabelReport(LABELS)).scalars(None),
        ValueError,
        ("average must be one of 'micro', 'macro', 'weighted', 'samples', but is None",),
    ),
    "zero_division of 2": (
        lambda: tt.LabelReport(3, zero_division=2),
        ValueError,
        ("zero_division must be 0, 1, nan or 'warn', but is 2",),
    ),
    "zero_division of text": (lambda: tt.LabelReport(3, zero_division="0"), ValueError, ("zero_division", "'0'")),
    "labels of no kind": (
        lambda: tt.LabelReport(3, labels="some"),
        ValueError,
        ("labels must be one of 'all', 'seen'", "some"),
    ),
    "labels of nothing": (lambda: tt.LabelReport(3, labels=[]), ValueError, ("labels must", "at least one label")),
    "labels of None": (lambda: tt.LabelReport(3, labels=None), (TypeError, ValueError), ("labels must be", "'all'")),
    "labels beyond the last": (lambda: tt.LabelReport(3, labels=[0, 3]), ValueError, ("from 0 to 2", "[0, 3]")),
    "labels below 0": (lambda: tt.LabelReport(3, labels=[-1]), ValueError, ("labels must be different ids", "[-1]")),
    "labels twice": (lambda: tt.LabelReport(3, labels=[1, 1]), ValueError, ("different ids", "[1, 1]")),
    "labels of numbers": (lambda: tt.LabelReport(3, labels=[0.5]), TypeError, ("labels must hold integer ids",)),
    "mask of fewer labels": (
        lambda: tt.LabelReport(3, labels=[True, False]),
        ValueError,
        ("bool mask of the 3 labels", "shape (2,)"),
    ),
    "group of a word": (
        lambda: tt.LabelReport(3, groups={"rest": "all"}),
        (TypeError, ValueError),
        ("rest", "all"),
    ),
    "group beyond the last label": (
        lambda: tt.LabelReport(3, groups={"tail": [3]}),
        ValueError,
        ("tail", "from 0 to 2", "[3]"),
    ),
    "too few names": (
        lambda: tt.LabelReport(3, target_names=["a", "b"]),
        ValueError,
        ("target_names must be a name for each of the 3 labels, but are 2",),
    ),
    "a policy for empty rows": (
        lambda: tt.LabelRecall(3, empty="one"),
        ValueError,
        ("empty must be 'zero', 'skip' or 'error' here, but is 'one'", "zero_division"),
    ),
    "an option misspelt": (
        lambda: tt.LabelReport(3, zero_devision=1),
        TypeError,
        ("LabelReport has no option 'zero_devision'", "Did you mean 'zero_division'?"),
    ),
    "an option of another metric": (
        lambda: tt.LabelRecall(3, beta=2),
        TypeError,
        ("LabelRecall has no option 'beta'",),
    ),
    "intervals": (
        lambda: tt.LabelRecall(3).intervals(),
        NotImplementedError,
        ("LabelRecall has no interval in closed form", "TopKMetrics"),
    ),
    "report of another k": (
        lambda: fed(tt.LabelReport(LABELS, [1, 3])).report(2),
        ValueError,
        ("k must be one of the cut-offs, 1, 3, but is 2",),
    ),
    "report of no k": (lambda: fed(tt.LabelReport(LABELS, [1, 3])).report(), ValueError, ("1, 3", "None")),
    "a kind of picture": (lambda: tt.LabelReport(3).plot(kind="pie"), ValueError, ("kind must be one of 'curve'",)),
    "a picture of no score": (
        lambda: tt.LabelReport(3).plot(kind="heatmap", score="accuracy"),
        ValueError,
        ("score must be one of 'precision', 'recall', 'f1'",),
    ),
    "a picture of counts": (
        lambda: tt.LabelReport(LABELS, KS).plot(fed(tt.LabelReport(LABELS, KS)).compute()),
        ValueError,
        ("scalars",),
    ),
    "a picture of labels over steps": (
        lambda: tt.LabelRecall(LABELS, average=None).plot([torch.zeros(LABELS)] * 2),
        ValueError,
        ("average",),
    ),
    "edges that descend": (
        lambda: tt.frequency_groups(torch.tensor([1]), edges=(9, 5)),
        ValueError,
        ("edges must ascend", "(9, 5)"),
    ),
    "edges without names": (
        lambda: tt.frequency_groups(torch.tensor([1]), edges=(9,)),
        ValueError,
        ("names", "(9,)", "('tail', 'torso', 'head')"),
    ),
    "groups of one name": (
        lambda: tt.frequency_groups(torch.tensor([1]), edges=(9,), names=("a", "a")),
        ValueError,
        ("names", "('a', 'a')"),
    ),
    "counts of two dimensions": (
        lambda: tt.frequency_groups(torch.ones(2, 2)),
        ValueError,
        ("counts must be (num_labels,) numbers, but are torch.float32 (2, 2)",),
    ),
    "counts in a list": (lambda: tt.frequency_groups([1, 2]), TypeError, ("counts must be a tensor", "torch.tensor")),
    "negative counts": (
        lambda: tt.propensities(torch.tensor([3, -1]), 10),
        ValueError,
        ("counts must be finite and at least 0, but one is -1.0",),
    ),
    "a matrix of counts": (lambda: tt.propensities(torch.ones(2, 2), 10), ValueError, ("(num_labels,)", "(2, 2)")),
    "two rows": (
        lambda: tt.propensities(torch.ones(2), 2),
        ValueError,
        ("num_rows must be an int of at least 3, but is 2",),
    ),
    "a number of rows": (
        lambda: tt.propensities(torch.ones(2), 1e6),
        ValueError,
        ("num_rows must be an int", "1000000"),
    ),
    "an unknown data set": (
        lambda: tt.propensities(torch.ones(2), 10, dataset="Amazon670K"),
        ValueError,
        ("'Amazon670K' is no data set", "Did you mean 'Amazon-670K'?", "Known are WikiLSHTC-325K"),
    ),
    "a data set and its constants": (
        lambda: tt.propensities(torch.ones(2), 10, dataset="Amazon-670K", b=1),
        ValueError,
        ("dataset stands for a and b",),
    ),
    "b of 0": (lambda: tt.propensities(torch.zeros(2), 10, b=0), ValueError, ("a and b must be", "above 0", "and 0")),
    "a of nothing": (lambda: tt.propensities(torch.ones(2), 10, a=math.nan), ValueError, ("a and b must be", "nan")),
    "no propensities": (lambda: tt.PSP(k=1), TypeError, ("PSP needs propensities", "torch_topk.propensities(")),
    "propensities above 1": (
        lambda: tt.PSNDCG(k=1, propensities=torch.tensor([0.5, 1.5])),
        ValueError,
        ("propensities must lie in (0, 1]", "1.5"),
    ),
    "propensities of 0": (
        lambda: tt.PSP(k=1, propensities=torch.tensor([0.0, 1.0])),
        ValueError,
        ("propensities must lie in (0, 1]",),
    ),
}


@pytest.mark.parametrize(("make", "kind", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(make: Callable[[], Any], kind: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(kind, match=text(*parts)):
        make()


WIDE = torch.ones(ROWS, LABELS + 2).bool()
MISFITS: dict[str, tuple[Callable[[], dict[str, Any]], type[Exception], tuple[str, ...]]] = {
    "scores of more labels": (
        lambda: {"preds": WIDE.float(), "target": WIDE},
        ValueError,
        ("scores must have a column for each of num_labels=6 labels", "(24, 8)", "Ranking.from_ids"),
    ),
    "lists of labels": (lambda: {"preds": ORDER[:, :2], "target": CLASSES}, ValueError, ("Ranking.from_ids(ids",)),
    "plain lists": (
        lambda: {"preds": [[0, 1], [2]], "target": CLASSES[:2]},
        TypeError,
        ("scores must be a tensor or a NumPy array",),
    ),
    "no truth": (lambda: {"preds": SCORES}, TypeError, ("target is missing",)),
    "truth of more labels": (lambda: {"preds": SCORES, "target": WIDE}, ValueError, ("target of shape (24, 8)",)),
    "truth of more rows": (lambda: {"preds": SCORES[:3], "target": TRUTH}, ValueError, ("target of shape (24, 6)",)),
    "a column of labels": (lambda: {"preds": SCORES, "target": CLASSES[:, None]}, ValueError, ("target.squeeze(1)",)),
    "Ranking of dense truth of more labels": (
        lambda: {"preds": tt.Ranking.from_ids(ORDER, WIDE)},
        ValueError,
        ("The truth speaks of", "labels, but num_labels is 6"),
    ),
    "Ranking of dense truth of one label": (
        lambda: {"preds": tt.Ranking.from_ids(torch.zeros_like(ORDER[:, :1]), WIDE[:, :1])},
        ValueError,
        ("The truth speaks of", "labels, but num_labels is 6"),
    ),
    "Ranking of sparse truth of more labels": (
        lambda: {"preds": tt.Ranking.from_ids(ORDER, scipy.sparse.csr_array(WIDE.numpy()))},
        ValueError,
        ("The truth speaks of 8 labels, but num_labels is 6",),
    ),
    "items with dense truth of fewer labels": (
        lambda: {
            "preds": SCORES[:, :2],
            "target": tt.Relevance.from_dense(WIDE[:, :2]),
            "items": torch.arange(2),
        },
        ValueError,
        ("The truth speaks of", "labels, but num_labels is 6"),
    ),
    "shallow Ranking": (
        lambda: {"preds": tt.Ranking.from_scores(SCORES, TRUTH, 2)},
        ValueError,
        ("The Ranking holds 2 ranks", "needs k=5"),
    ),
    "Ranking of other ties": (
        lambda: {"preds": tt.Ranking.from_scores(SCORES, TRUTH, 5, ties="reverse")},
        ValueError,
        ("ties='reverse'",),
    ),
    "truth given twice": (
        lambda: {"preds": tt.Ranking.from_scores(SCORES, TRUTH, 5), "target": TRUTH},
        ValueError,
        ("A Ranking holds its truth", "target"),
    ),
    "weights of too many rows": (
        lambda: {"preds": SCORES, "target": TRUTH, "weights": torch.ones(3)},
        ValueError,
        ("weights must be",),
    ),
}


@pytest.mark.parametrize(("batch", "kind", "parts"), MISFITS.values(), ids=MISFITS)
def test_misfit_adds_nothing(batch: Callable[[], dict[str, Any]], kind: Any, parts: tuple[str, ...]) -> None:
    report = fed(tt.LabelReport(LABELS, KS))
    for add in (report.update, report):
        with pytest.raises(kind, match=text(*parts)):
            add(**batch())
        assert counts(report) == expected_counts()
        assert report.num_queries == ROWS


# Forward, compute, reset ------------------------------------------------------------------------------


@each_metric
def test_forward_gives_the_batch_and_adds_it(make: Callable[..., LabelCounts]) -> None:
    metric = make(LABELS, KS)
    for rows in (slice(5), slice(5, 6), slice(6, ROWS)):
        value = metric(SCORES[rows], TRUTH[rows])
        assert flat(value) == close(flat(fed(make(LABELS, KS), rows=rows).compute()))
    assert flat(metric.compute()) == close(flat(fed(make(LABELS, KS)).compute()))


@each_metric
def test_compute_between_updates(make: Callable[..., LabelCounts]) -> None:
    metric = make(LABELS, KS)
    for start, stop in itertools.pairwise((0, 4, 9, ROWS)):
        fed(metric, rows=slice(start, stop))
        for _ in range(2):
            assert flat(metric.compute()) == close(flat(fed(make(LABELS, KS), rows=slice(stop)).compute()))
    metric.reset()
    assert flat(fed(metric, rows=slice(7)).compute()) == close(flat(fed(make(LABELS, KS), rows=slice(7)).compute()))


@each_metric
def test_what_was_returned_stays_as_it_is(make: Callable[..., LabelCounts]) -> None:
    # Counts are added in place, and nothing that was handed out may be a view of them.
    for k in (3, KS, None):
        metric = make(LABELS, k)
        values = [metric(SCORES[:5], TRUTH[:5]), metric.compute()]
        if isinstance(metric, tt.LabelReport):
            values += [metric.scalars(), metric.scalars("micro")]
        before = [flat(value) for value in values]
        fed(metric)
        metric(SCORES, TRUTH)
        assert k is None or flat(metric.compute()) != before[1]
        metric.reset()
        assert [flat(value) for value in values] == [close(value) for value in before]


@pytest.mark.parametrize("labels", ["all", "seen", [1, 0, 3]], ids=str)
def test_a_report_stays_as_it_is(labels: Any) -> None:
    metric = fed(tt.LabelReport(LABELS, 3, labels=labels))
    report = metric.report()
    before = str(report)
    fed(metric)
    assert str(metric.report()) != before
    assert str(report) == before


@each_metric
def test_a_snapshot_of_the_state_stays_as_it_is(make: Callable[..., LabelCounts]) -> None:
    metric, restored = fed(make(LABELS, KS), rows=slice(9)), make(LABELS, KS)
    snapshot = metric.metric_state
    fed(metric)
    metric(SCORES, TRUTH)
    restored.merge_state(snapshot)
    assert flat(restored.compute()) == close(flat(fed(make(LABELS, KS), rows=slice(9)).compute()))


def test_a_loaded_checkpoint_stays_as_it_is() -> None:
    first, second = fed(tt.LabelReport(LABELS, KS)), tt.LabelReport(LABELS, KS)
    first.persistent(mode=True)
    saved = first.state_dict()
    before = {key: value.clone() for key, value in saved.items()}
    second.load_state_dict(saved)
    for metric in (first, second):
        fed(metric)
    assert all(torch.equal(saved[key], before[key]) for key in before)
    assert counts(first) == counts(second) == expected_counts(SCORES.repeat(2, 1), TRUTH.repeat(2, 1))


def test_reports_of_several_averages_from_one_reduction() -> None:
    report = fed(tt.LabelReport(LABELS, KS))
    with trap(counting=True) as reads:
        report.compute()
        for average in AVERAGES[:-1]:
            report.scalars(average)
    assert reads == ["tolist"]


# An epoch without a batch -----------------------------------------------------------------------------

before_update = pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")


@each_metric
def test_an_epoch_without_a_batch_warns(make: Callable[..., LabelCounts]) -> None:
    metric = make(LABELS, KS)
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        metric.compute()


@before_update
@pytest.mark.parametrize("rows", [None, slice(0)], ids=["no batch", "no row"])
@pytest.mark.parametrize("average", AVERAGES[:-1])
def test_an_average_of_no_row_is_nan(average: str, rows: slice | None) -> None:
    for cls in (tt.LabelPrecision, tt.LabelRecall, tt.LabelFBeta):
        metric = cls(LABELS, 3, average=average)
        if rows is not None:
            fed(metric, rows=rows)
        assert metric.compute().isnan()
    report = tt.LabelReport(LABELS, KS)
    assert all(value.isnan() for value in report.scalars(average).values())
    assert counts(report) == expected_counts(SCORES[:0], TRUTH[:0])
    assert str(report.report(3))


# Collections ------------------------------------------------------------------------------------------

COLLECTED: dict[str, Callable[[], LabelCounts]] = {
    **{
        f"{name} at {k}": partial(make, LABELS, k)
        for name, make in METRICS.items()
        if name != "report"
        for k in (1, (3, 1))
    },
    "report": lambda: tt.LabelReport(LABELS, (3, 1)),
    "LabelRecall, macro at (1, 3)": lambda: tt.LabelRecall(LABELS, (1, 3)),
    **{
        f"{name}, {cls.__name__}": partial(cls, LABELS, (3, 1), **options)
        for name, options in {
            "seen": {"labels": "seen"},
            "listed": {"labels": [0, 4]},
            "listed otherwise": {"labels": [1, 2]},
            "nan": {"zero_division": math.nan},
            "skip, samples": {"empty": "skip", "average": "samples"},
            "listed, samples": {"labels": [0, 4], "average": "samples"},
            "reverse": {"ties": "reverse"},
            "level": {"min_relevance": 2},
        }.items()
        for cls in (tt.LabelPrecision, tt.LabelRecall)
    },
    **{
        f"F{beta}, {average}": partial(tt.LabelFBeta, LABELS, (3, 1), beta=beta, average=average)
        for beta in (0, 2)
        for average in ("macro", "samples")
    },
}
GRADES = TRUTH * number("cpu", ROWS, LABELS)
ADD: dict[str, Sequence[str]] = {
    "update": ["update"],
    "forward": ["forward"],
    "by turns": ["update", "forward"],
    "forward first": ["forward", "update"],
}


@cache
def of_collected(stop: int) -> dict[str, list[float]]:
    """What each metric of the collection says of the first rows, on its own."""
    found: dict[str, list[float]] = {}
    for name, make in COLLECTED.items():
        metric = make()
        metric.update(SCORES[:stop], GRADES[:stop])
        value = metric.compute()
        found.update({key: flat(each) for key, each in (value if isinstance(value, dict) else {name: value}).items()})
    return found


@pytest.mark.parametrize("first", [0, 9], ids=["no row first", "9 rows first"])
@pytest.mark.parametrize("ways", ADD.values(), ids=ADD)
def test_collection(ways: Sequence[str], first: int) -> None:
    # No row tells configurations apart by their counts, and a collection shares what its first batch finds equal.
    collection = MetricCollection({name: make() for name, make in COLLECTED.items()}, compute_groups=True)
    bounds = [0, first, 10, 11, ROWS]
    for _ in range(2):
        for step, stop in enumerate(bounds[1:]):
            rows = slice(bounds[step], stop)
            getattr(collection, ways[step % len(ways)])(SCORES[rows], GRADES[rows])
            if step == 1:
                continue  # two batches between readings
            found, expected = collection.compute(), of_collected(stop)
            assert set(found) == set(expected)
            wrong = [name for name in expected if flat(found[name]) != close(expected[name])]
            assert not wrong
        collection.reset()


def test_collection_shares_what_is_the_same() -> None:
    collection = MetricCollection({name: make() for name, make in COLLECTED.items()})
    collection.update(SCORES, GRADES)
    groups = [set(group) for group in collection.compute_groups.values()]
    at = {k: {f"{name} at {k}" for name in METRICS if name != "report"} for k in (1, (3, 1))}
    pairs = {
        name: {f"{name}, LabelPrecision", f"{name}, LabelRecall"}
        for name in ("seen", "nan", "listed otherwise", "level")
    }
    shared = [
        at[1],
        at[3, 1] | {"report"} | pairs["seen"] | pairs["nan"],
        pairs["listed otherwise"],
        pairs["level"],
        {"F2, macro", "F2, samples"},
        {"LabelRecall, macro at (1, 3)"},
    ]
    assert all(group in groups for group in shared)


def test_members_of_a_collection_stand_alone() -> None:
    collection = MetricCollection({"p": tt.LabelPrecision(LABELS), "r": tt.LabelReport(LABELS)})
    fed(collection, [9])
    twin = collection.clone()
    fed(twin)
    assert collection["r"].compute()["support"].tolist() == expected_counts()["support"]
    fed(collection)
    for each in (twin, collection):
        assert each["p"].num_queries == each["r"].num_queries == 2 * ROWS
        assert each["r"].compute()["support"].tolist() == (2 * TRUTH.sum(0)).tolist()


# Nothing is read on the host --------------------------------------------------------------------------

READING = [
    lambda: tt.LabelReport(ITEMS, (3, 1), labels=[4, 0], groups={"some": [4, 5]}),
    lambda: tt.LabelPrecision(ITEMS, None, average="samples", labels=[4, 0]),
    lambda: tt.LabelFBeta(ITEMS, 2, average=None, labels=[4, 0]),
    lambda: tt.LabelRecall(ITEMS, 12, average="weighted", labels="seen"),
    lambda: tt.LabelCoverage(ITEMS, (3, 1), labels=[4, 0]),
]


@pytest.mark.parametrize("batch", [name for name in BATCHES if name != "no item"])
def test_updating_reads_nothing(batch: str) -> None:
    for make in READING:
        metric, given = make(), BATCHES[batch]("cpu")
        with trap():
            metric.update(**given)
            metric(**given)
        metric.to("meta")
        metric.update(**BATCHES[batch]("meta"))
        assert all(values.is_meta for values in metric.metric_state.values())


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in {"empty=one", "empty=nan", "bootstrap"}])
def test_updating_under_every_policy_reads_nothing(name: str) -> None:
    policy, batch = POLICIES[name]
    metric, update = tt.LabelReport(ITEMS, (3, 1), **policy), BATCHES[batch]("cpu")
    with trap():
        metric.update(**update)
    tt.LabelReport(ITEMS, (3, 1), **policy).to("meta").update(**BATCHES[batch]("meta"))


@pytest.mark.parametrize("exclude", [None, EXCLUSIONS["list"]], ids=["all", "excluded"])
@pytest.mark.parametrize("target", LISTS.values(), ids=LISTS)
def test_lists_read_nothing(target: Make, exclude: Make | None) -> None:
    for device in ("cpu", "meta"):
        lists, truth, out = ranked(device), target(device), exclude and exclude(device)
        metrics = [make().to(device) for make in READING]
        with trap():
            ranking = tt.Ranking.from_ids(lists, truth, exclude=out, duplicates="first")
            for metric in metrics:
                metric.update(ranking)
                metric(ranking)


@pytest.mark.parametrize("target", TARGETS)
def test_computing_reads_once(target: str) -> None:
    for make in READING:
        metric = make()
        metric.update(**BATCHES[f"target: {target}"]("cpu"))
        with trap(counting=True) as reads:
            metric.compute()
            metric.compute()
        assert reads == ["tolist"]


def test_a_metric_on_another_device() -> None:
    with pytest.raises(RuntimeError, match=text("scores are on cpu, but this LabelReport is on meta", ".to('cpu')")):
        tt.LabelReport(LABELS).to("meta").update(SCORES, TRUTH)


# Division by nothing, and the labels asked for --------------------------------------------------------

TRUE, FIRST = [0, 1, 0, 3], [[0], [1], [2], [2]]  # 2 is never true, 3 is never named


def small(cls: Any, num_labels: int = 4, **options: Any) -> Any:
    metric = cls(num_labels, 1, **options)
    metric.update(tt.Ranking.from_ids(torch.tensor(FIRST), torch.tensor(TRUE)))
    return metric


WARNING: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "precision of labels": (
        lambda zero: small(tt.LabelPrecision, zero_division=zero).compute(),
        ("precision of 1 label;", "count 0", "zero_division", "0, 1 or nan"),
    ),
    "recall of labels": (
        lambda zero: small(tt.LabelRecall, zero_division=zero, average=None).compute(),
        ("recall of 1 label;",),
    ),
    "of several labels": (
        lambda zero: small(tt.LabelPrecision, 6, zero_division=zero).compute(),
        ("precision of 3 labels;",),
    ),
    "of rows": (
        lambda zero: small(tt.LabelRecall, zero_division=zero, labels=[0, 1], average="samples").compute(),
        ("recall of 1 row;",),
    ),
    "of an average": (
        lambda zero: small(tt.LabelPrecision, zero_division=zero, labels=[3], average="micro").compute(),
        ("precision of 1 average;",),
    ),
    "report's compute": (
        lambda zero: small(tt.LabelReport, zero_division=zero).compute()["f1"],
        ("precision of 1 label, the recall of 1 label;",),
    ),
    "report's scalars": (
        lambda zero: small(tt.LabelReport, zero_division=zero).scalars()["f1@1"],
        ("precision of 1 label, the recall of 1 label;",),
    ),
    "report's report": (
        lambda zero: torch.tensor(small(tt.LabelReport, zero_division=zero).report().to_dict()["2"]["recall"]),
        ("precision of 1 label, the recall of 1 label;",),
    ),
    "plain scores": (
        lambda zero: torch.tensor(
            tt.precision_recall_fscore_at_k(TRUE, FIRST, k=1, average="macro", zero_division=zero)[:3]
        ),
        ("precision of 1 label, the recall of 1 label;",),
    ),
    "plain report": (
        lambda zero: torch.tensor(
            tt.classification_report_at_k(TRUE, FIRST, k=[1, 2], output_dict=True, zero_division=zero)[2]["3"][
                "precision"
            ]
        ),
        ("precision of 1 label, the recall of 1 label;",),
    ),
}


@pytest.mark.parametrize(("read", "parts"), WARNING.values(), ids=WARNING)
def test_division_by_nothing_warns_once(read: Callable[[Any], Any], parts: tuple[str, ...]) -> None:
    with pytest.warns(UserWarning, match=text(*parts)) as caught:
        found = read("warn")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert flat(found) == flat(read(0))


def test_no_warning_where_everything_divides() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(tt.LabelReport, zero_division="warn", labels=[0, 1]).scalars()
        small(tt.LabelPrecision, zero_division="warn", labels=[0, 1, 2]).compute()
        small(tt.LabelRecall, zero_division="warn", average="micro").compute()
        small(tt.LabelFBeta, zero_division="warn").compute()
        for zero in (0, 1, math.nan):
            small(tt.LabelReport, zero_division=zero).report()


@pytest.mark.parametrize(
    ("zero", "precision"),
    [(0, [1, 1, 0, 0]), (1, [1, 1, 0, 1]), (math.nan, [1, 1, 0, math.nan]), (np.float32(1), [1, 1, 0, 1])],
)
def test_zero_division_of_each_label(zero: float, precision: list[float]) -> None:
    assert small(tt.LabelPrecision, average=None, zero_division=zero).compute().tolist() == close(precision)
    assert small(tt.LabelReport, zero_division=zero).compute()["precision"].tolist() == close(precision)


ASKED: dict[str, tuple[Any, float]] = {
    "all": ("all", 3 / 8),
    "seen": ("seen", 3 / 8),
    "list": ([0, 3], 1 / 4),
    "list in another order": ([3, 0], 1 / 4),
    "range": (range(2), 3 / 4),
    "array": (np.array([1, 2], dtype=np.uint8), 1 / 2),
    "mask": (torch.tensor([True, True, True, False]), 1 / 2),
    "list of bools": ([True, False, False, False], 1 / 2),
}


@pytest.mark.parametrize(("labels", "recall"), ASKED.values(), ids=ASKED)
def test_labels_asked_for(labels: Any, recall: float) -> None:
    assert small(tt.LabelRecall, labels=labels).compute() == recall
    assert small(tt.LabelReport, labels=labels).scalars()["recall@1"] == recall
    assert small(tt.LabelReport, labels=labels).report().to_dict()["macro avg"]["recall"] == recall


def test_labels_seen_are_those_of_all_batches() -> None:
    metric = tt.LabelRecall(9, [1, 2], labels="seen")
    metric.update(torch.eye(9)[:1], torch.tensor([0]))  # 0 is true; 1 is second, by its index
    assert metric.compute().tolist() == [0.5, 0.5]
    metric.update(torch.eye(9)[[5]], torch.tensor([7]))
    assert metric.compute().tolist() == [0.25, 0.25]  # 0, 1, 5, 7
    report = tt.LabelReport(9, 1, labels="seen")
    report.update(torch.eye(9)[[5]], torch.tensor([7]))
    assert report.report().names == [5, 7]


def test_values_of_labels_come_in_the_order_asked_for() -> None:
    assert small(tt.LabelRecall, average=None).compute().tolist() == [0.5, 1, 0, 0]
    assert small(tt.LabelRecall, average=None, labels=[1, 0]).compute().tolist() == [1, 0.5]
    assert small(tt.LabelReport, labels=[1, 0]).compute()["recall"].tolist() == [0.5, 1, 0, 0]
    assert small(tt.LabelReport, labels=[1, 0]).report().names == [1, 0]


# What users of other software met ---------------------------------------------------------------------


def test_recall_at_2_is_never_below_recall_at_1() -> None:
    # Three classes, of which the third never occurs.
    scores = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.8, 0.1]])
    target = torch.tensor([0, 0, 1])

    def recall(labels: Any, average: Any) -> Tensor:
        metric = tt.LabelRecall(3, [1, 2], labels=labels, average=average)
        metric.update(scores, target)
        return metric.compute()

    for labels, expected in (("all", [0.5, 2 / 3]), ([0, 1], [0.75, 1.0]), ("seen", [0.5, 2 / 3])):
        assert recall(labels, "macro").tolist() == close(expected)
        for average in AVERAGES:
            at_1, at_2 = recall(labels, average)
            assert (at_2 >= at_1).all()


def test_propensity_scored_precision_is_a_ratio_of_sums() -> None:
    scores, target = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    propensities = torch.tensor([1.0, 0.1], dtype=torch.float64)
    for average, expected in (("micro", 1 / 11), ("macro", 0.5)):
        metric = tt.PSP(k=1, propensities=propensities, average=average)
        for row in range(2):
            metric.update(scores[[row]], target[[row]])
        assert metric.compute().item() == close(expected)


def test_top_k_accuracy_is_the_share_of_rows_found() -> None:
    suite = tt.TopKMetrics(["accuracy@1", "top_k_accuracy@1,5", "hit_rate@5"])
    suite.update(SCORES, CLASSES)
    found = suite.compute()
    lists = lists_of(SCORES)
    for k in (1, 5):
        expected = sum(label in row[:k] for label, row in zip(CLASSES.tolist(), lists, strict=True)) / ROWS
        assert found[f"top_k_accuracy@{k}"].item() == close(expected)
        assert sk.top_k_accuracy_score(CLASSES, _strict(SCORES), k=k, labels=range(LABELS)) == close(expected)
    assert found["hit_rate@5"] == found["top_k_accuracy@5"]
    assert found["accuracy@1"] == found["top_k_accuracy@1"]


def _strict(scores: Tensor) -> Any:
    """The same order without equal scores."""
    return (scores * LABELS - torch.arange(LABELS)).numpy()


def test_coverage_of_some_labels() -> None:
    for labels, expected in (("all", 2 / 3), ([0, 1], 1), (torch.tensor([False, True, True, True]), 1 / 2)):
        assert small(tt.LabelCoverage, labels=labels).compute().item() == close(expected)


# Scalars and reports ----------------------------------------------------------------------------------


def test_keys_of_scalars() -> None:
    report = fed(tt.LabelReport(LABELS, [3, 1], groups={"tail": [0, 1], "head": torch.arange(LABELS) > 1}))
    scores = ("precision", "recall", "f1")
    plain = [f"{score}@{k}" for score in scores for k in (3, 1)]
    assert list(report.scalars("samples")) == plain
    grouped = [key + group for group in ("", "/tail", "/head") for key in plain]
    assert list(report.scalars()) == grouped
    named = report.scalars(prefix="val/", postfix="_epoch", at="_at_")
    assert list(named) == [f"val/{key.replace('@', '_at_')}_epoch" for key in grouped]
    assert list(fed(tt.LabelReport(LABELS, None)).scalars(at="_")) == list(scores)
    assert all(value.shape == () and value.dtype == torch.float64 for value in named.values())


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("labels", [range(LABELS), [5, 0, 1]], ids=["all", "listed"])
def test_averages_over_groups(average: Any, labels: Sequence[int]) -> None:
    groups = {"few": [0, 1], "many": [0, 1, 2, 5], "last": torch.arange(LABELS) == 5}
    members = {"few": {0, 1}, "many": {0, 1, 2, 5}, "last": {5}}
    found = fed(tt.LabelReport(LABELS, 3, labels=labels, groups=groups)).scalars(average)
    for name in groups:
        expected = fed(tt.LabelReport(LABELS, 3, labels=sorted(members[name] & set(labels)))).scalars(average)
        assert {key: found[f"{key}/{name}"] for key in expected} == expected


def test_groups_by_frequency() -> None:
    seen = torch.tensor([0, 9, 10, 99, 100, 5000])
    groups = tt.frequency_groups(seen)
    assert {name: mask.tolist() for name, mask in groups.items()} == {
        name: list(mask)
        for name, mask in zip(
            ("tail", "torso", "head"), ((1, 1, 0, 0, 0, 0), (0, 0, 1, 1, 0, 0), (0, 0, 0, 0, 1, 1)), strict=True
        )
    }
    rare = tt.frequency_groups(seen.numpy(), edges=[0.5], names=["never", "ever"])
    assert rare["never"].tolist() == [True, *[False] * 5]
    assert torch.stack(list(groups.values())).sum(0).tolist() == [1] * LABELS
    report = fed(tt.LabelReport(LABELS, 3, groups=groups))
    assert report.scalars()["recall@3/tail"] == fed(tt.LabelReport(LABELS, 3, labels=[0, 1])).scalars()["recall@3"]


def test_a_group_of_no_label_is_nan() -> None:
    groups = tt.frequency_groups(torch.full((LABELS,), 50))  # all of them in the torso
    found = fed(tt.LabelReport(LABELS, 3, groups=groups)).scalars()
    assert found["f1@3/torso"] == found["f1@3"]
    assert found["f1@3/head"].isnan()
    assert found["f1@3/tail"].isnan()


K_HOT = np.zeros((ROWS, LABELS), dtype=int)
np.put_along_axis(K_HOT, ORDER[:, :3].numpy(), 1, axis=1)
NAMES = ["ant", "bee", "cat", "dog", "eel", "fox"]
REPORTED: dict[str, dict[str, Any]] = {
    "all": {},
    "names": {"target_names": NAMES},
    "digits": {"digits": 4},
    "some labels": {"labels": [0, 1]},
    "labels in another order": {"labels": [5, 2, 0, 1, 4, 3], "target_names": NAMES},
}


@pytest.mark.parametrize("zero_division", [0, 1, math.nan])
@pytest.mark.parametrize("data", ["classes", "several labels"])
@pytest.mark.parametrize("options", REPORTED.values(), ids=REPORTED)
def test_report_is_that_of_scikit_learn(options: dict[str, Any], data: str, zero_division: float) -> None:
    digits, asked = options.get("digits", 2), options.get("labels")
    names = options.get("target_names")
    report = tt.LabelReport(LABELS, k=[3, 1], labels=asked or "all", target_names=names, zero_division=zero_division)
    k, y_true, y_pred, target = (
        (1, CLASSES, ORDER[:, 0], CLASSES) if data == "classes" else (3, TRUTH.int().numpy(), K_HOT, TRUTH)
    )
    report.update(SCORES, target)
    shown = asked or list(range(LABELS))
    expected = sk.classification_report(
        y_true,
        y_pred,
        labels=shown,
        target_names=None if names is None else [names[label] for label in shown],
        digits=digits,
        zero_division=zero_division,
    )
    assert str(report.report(k, digits=digits)) == expected


def test_accuracy_is_of_classes_alone() -> None:
    def averages(target: Any, k: int = 1, **options: Any) -> list[str]:
        report = tt.LabelReport(LABELS, [1, 3], **options)
        report.update(SCORES, target)
        return list(report.report(k).averages)

    accuracy = ["accuracy", "macro avg", "weighted avg"]
    micro = ["micro avg", "macro avg", "weighted avg"]
    assert averages(CLASSES) == averages(CLASSES, ignore_index=2) == accuracy
    assert averages(tt.Relevance.from_labels(CLASSES)) == accuracy
    assert averages(CLASSES, labels="seen") == averages(CLASSES, labels=list(range(LABELS))) == accuracy
    assert averages(CLASSES, labels=[0, 1]) == micro
    assert averages(CLASSES, k=3) == averages(TRUTH) == averages(TRUTH, k=3) == [*micro, "samples avg"]
    both = tt.LabelReport(LABELS, 1)
    both.update(SCORES, CLASSES)
    both.update(SCORES, TRUTH)
    assert "accuracy" not in both.report().averages


def test_report_passes_on_how_to_show() -> None:
    metric = fed(tt.LabelReport(LABELS, [3, 1], target_names=NAMES))
    report = metric.report(1, sort="support", limit=2, digits=3)
    assert (report.k, report.sort, report.limit, report.digits) == (1, "support", 2, 3)
    lines = str(report).splitlines()
    most = sorted(range(LABELS), key=lambda label: -int(TRUTH[:, label].sum()))[:2]
    assert [line.split()[0] for line in lines[2:4]] == [NAMES[label] for label in most]
    assert metric.report(3).to_dict() != metric.report(1).to_dict()
    with pytest.raises(ValueError, match="sort must be one of"):
        metric.report(1, sort="size")


@pytest.mark.parametrize("k", [3, [3], np.int64(3)], ids=repr)
def test_report_of_the_only_k(k: Any) -> None:
    report = fed(tt.LabelReport(LABELS, k)).report()
    assert report.k == 3
    assert str(report) == str(fed(tt.LabelReport(LABELS, [1, 3])).report(3))


def test_report_of_the_whole_list() -> None:
    report = fed(tt.LabelReport(LABELS, None)).report()
    assert report.k is None
    assert report.to_dict()["micro avg"]["recall"] == 1


# Pictures ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_figure_stays() -> Iterator[None]:
    yield
    plt.close("all")


def labels_of(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


@pytest.mark.parametrize("val", ["counted", "given"])
def test_plot_of_averages_over_k(val: str) -> None:
    report = fed(tt.LabelReport(LABELS, KS, groups={"tail": [0]}))
    _, axes = report.plot(report.scalars("micro") if val == "given" else None, average="micro")
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    scalars = report.scalars("micro")
    assert drawn == {
        name: ([0, 1, 2], close([scalars[f"{name}@{k}"].item() for k in sorted(KS)]))
        for name in ("precision", "recall", "f1")
    }


def test_plot_of_steps() -> None:
    report, precision = fed(tt.LabelReport(LABELS, 3)), fed(tt.LabelPrecision(LABELS, 3))
    steps = [report.scalars(), report.scalars("micro")]
    _, axes = report.plot(steps)
    assert [list(line.get_ydata()) for line in axes.lines] == [[step[key] for step in steps] for key in steps[0]]
    _, axes = precision.plot([precision.compute(), precision(SCORES[:3], TRUTH[:3])])
    assert len(axes.lines) == 1


def test_plot_of_labels_over_k() -> None:
    report = fed(tt.LabelReport(LABELS, KS, labels=[5, 2, 0], target_names=NAMES))
    figure, axes = report.plot(kind="heatmap", score="recall")
    assert labels_of(axes) == ["fox", "cat", "ant"]
    assert figure is not None
    drawn = torch.as_tensor(axes.collections[0].get_array())
    assert flat(drawn) == close(flat(report.compute()["recall"][:, [5, 2, 0]].T))
    _, axes = report.plot(kind="heatmap", limit=2)
    assert labels_of(axes) == ["fox", "cat", "… 1 more label"]


def test_plot_of_bars_is_that_of_the_report_at_the_deepest_k() -> None:
    report = fed(tt.LabelReport(LABELS, KS, target_names=NAMES))
    drawn = [axes for _, axes in (report.plot(kind="bars"), report.report(5).plot())]
    widths = [[patch.get_width() for patch in axes.patches] for axes in drawn]
    assert widths[0] == widths[1]
    assert labels_of(drawn[0]) == labels_of(drawn[1])
    _, axes = report.plot(kind="bars", limit=2)
    most = sorted(range(LABELS), key=lambda label: -int(TRUTH[:, label].sum()))[:2]
    assert set(labels_of(axes)) >= {NAMES[label] for label in most}


def test_plot_of_one_score() -> None:
    for make, labels in ((tt.LabelPrecision, "all"), (tt.LabelCoverage, [0, 1])):
        metric = fed(make(LABELS, KS, labels=labels))
        _, axes = metric.plot()
        (line,) = axes.lines
        by_k = dict(zip(KS, metric.compute().tolist(), strict=True))
        assert list(line.get_ydata()) == close([by_k[k] for k in sorted(KS)])
    _, axes = fed(tt.LabelRecall(LABELS, KS, average=None, labels=[3, 1])).plot()
    assert labels_of(axes) == ["3", "1"]


# Plain data -------------------------------------------------------------------------------------------

WORDS = np.array(["a", "b", "c", "d", "e"])
SINGLE, SEVERAL = [0, 1, 2, 2, 4], [[0], [1, 3], [], [2, 2, 0], [4]]
RANKED = [[0, 1], [2, 1, 3], [2], [], [1, 4, 0]]
SQUARE = [[0, 1], [2, 1], [2, 4], [3, 0], [1, 4]]


def words(rows: Sequence[Any]) -> Any:
    """The same labels as strings."""
    return [words(row) if isinstance(row, list) else WORDS[row].item() for row in rows]


PLAIN: dict[str, tuple[Any, Any, Any, Any]] = {  # beside the plain lists that they stand for
    "tuples": (tuple(SINGLE), tuple(map(tuple, RANKED)), SINGLE, RANKED),
    "iterators": (iter(SINGLE), map(iter, RANKED), SINGLE, RANKED),
    "sets": (list(map(set, SEVERAL)), RANKED, SEVERAL, RANKED),
    "arrays": (np.array(SINGLE), np.array(SQUARE), SINGLE, SQUARE),
    "int8 arrays": (np.array(SINGLE, dtype=np.int8), np.array(SQUARE, dtype=np.int16), SINGLE, SQUARE),
    "uint64 arrays": (np.array(SINGLE, dtype=np.uint64), SQUARE, SINGLE, SQUARE),
    "tensors": (torch.tensor(SINGLE), torch.tensor(SQUARE), SINGLE, SQUARE),
    "rows of arrays": (list(map(np.array, SEVERAL[:2])), list(map(np.array, RANKED[:2])), SEVERAL[:2], RANKED[:2]),
    "rows of both": (SINGLE[:2], [np.array(RANKED[0]), RANKED[1]], SINGLE[:2], RANKED[:2]),
    "numbers of NumPy": ([np.int64(label) for label in SINGLE], RANKED, SINGLE, RANKED),
    "strings": (words(SEVERAL), words(RANKED), SEVERAL, RANKED),
    "arrays of strings": (WORDS[SINGLE], WORDS[np.array(SQUARE)], SINGLE, SQUARE),
    "arrays of objects": (WORDS[SINGLE].astype(object), WORDS[np.array(SQUARE)].astype(object), SINGLE, SQUARE),
    "strings of NumPy": (words(SINGLE), [WORDS[row] for row in RANKED[:3]] + words(RANKED[3:]), SINGLE, RANKED),
    "strings and arrays of them": (WORDS[SINGLE], words(RANKED), SINGLE, RANKED),
}


@pytest.mark.parametrize(("y_true", "y_ranked", "same_true", "same_ranked"), PLAIN.values(), ids=PLAIN)
def test_forms_of_plain_data(y_true: Any, y_ranked: Any, same_true: Any, same_ranked: Any) -> None:
    found = tt.precision_recall_fscore_at_k(y_true, y_ranked, k=2, zero_division=0)
    expected = tt.precision_recall_fscore_at_k(same_true, same_ranked, k=2, zero_division=0)
    assert [values.tolist() for values in found] == [close(values.tolist()) for values in expected]


def test_numbers_are_sorted_as_numbers() -> None:
    found = tt.precision_recall_fscore_at_k([10, -3, 9], [[10], [9], [9]], k=1, labels=None, zero_division=0)
    assert found[3].tolist() == [1, 1, 1]
    assert found[0].tolist() == [0, 0.5, 1]  # of -3, 9 and 10


@pytest.mark.parametrize("name", ["arrays", "uint64 arrays", "strings", "strings of NumPy", "tensors"])
def test_labels_keep_their_names(name: str) -> None:
    y_true, y_ranked, *_ = PLAIN[name]
    found = tt.classification_report_at_k(y_true, y_ranked, k=3, output_dict=True, zero_division=0)
    expected = list("abcde") if "strings" in name else list("01234")
    assert list(found)[:5] == expected


def test_a_large_k_takes_no_memory() -> None:
    found = tt.precision_recall_fscore_at_k(SEVERAL, RANKED, k=[3, 10**12], zero_division=0)
    assert [values[0].tolist() for values in found[:3]] == [values[1].tolist() for values in found[:3]]


CHOICES: dict[str, Any] = {"all": None, "some": [1, 4], "in another order": [4, 0, 2, 3, 1]}


def k_hot(rows: Sequence[Sequence[int]], k: int | None = None) -> Any:
    return np.array([[label in row[:k] for label in range(5)] for row in rows]).astype(int)


@pytest.mark.parametrize("average", [None, "micro", "macro", "weighted", "samples"])
@pytest.mark.parametrize("labels", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("data", ["classes", "several labels"])
def test_plain_scores_are_those_of_scikit_learn(data: str, labels: Any, average: Any) -> None:
    options = {"beta": 2.0, "average": average, "zero_division": 0}
    for k in (1, 2, 3):
        if data == "classes":
            if k > 1 or average == "samples":
                continue
            y_true, lists = SINGLE, SQUARE
            matrices = SINGLE, [row[0] for row in SQUARE]
        else:
            y_true, lists = SEVERAL, RANKED
            matrices = k_hot(SEVERAL), k_hot(RANKED, k)
        found = tt.precision_recall_fscore_at_k(y_true, lists, k=k, labels=labels, **options)
        expected = sk.precision_recall_fscore_support(*matrices, labels=labels, **options)
        if average is None:
            assert [values.tolist() for values in found] == [close(values.tolist()) for values in expected]
            assert found[3].dtype == np.int64
        else:
            assert found == (*map(close, expected[:3]), None)
            assert all(type(value) is float for value in found[:3])


@pytest.mark.parametrize("zero_division", [0, 1, math.nan])
@pytest.mark.parametrize("labels", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("output_dict", [False, True])
def test_plain_reports_are_those_of_scikit_learn(labels: Any, output_dict: bool, zero_division: float) -> None:
    # With two digits, 0.375 would go one way or the other.
    options = {"labels": labels, "zero_division": zero_division, "output_dict": output_dict, "digits": 3}
    cases = [
        (SINGLE, SQUARE, 1, SINGLE, [row[0] for row in SQUARE]),
        (words(SINGLE), words(SQUARE), 1, words(SINGLE), words([row[0] for row in SQUARE])),
        *((SEVERAL, RANKED, k, k_hot(SEVERAL), k_hot(RANKED, k)) for k in (1, 2, 3)),
    ]
    for y_true, lists, k, *matrices in cases:
        given = {**options, "labels": words(labels) if labels and isinstance(y_true[0], str) else labels}
        found = tt.classification_report_at_k(y_true, lists, k=k, **given)
        expected = sk.classification_report(*matrices, **given)
        if output_dict:
            assert list(found) == list(expected)
            assert found.pop("accuracy", None) == expected.pop("accuracy", None)
            for key, values in expected.items():
                assert found[key] == close(values)
        else:
            assert found == expected


def test_reports_of_several_k() -> None:
    alone = [tt.classification_report_at_k(SEVERAL, RANKED, k=k, labels=[0, 4], zero_division=0) for k in (3, 1)]
    together = tt.classification_report_at_k(SEVERAL, RANKED, k=[3, 1], labels=[0, 4], zero_division=0)
    assert together == f"K = 3\n{alone[0]}\nK = 1\n{alone[1]}"
    options = {"labels": [0, 4], "target_names": ["nil", "four"], "zero_division": 0, "output_dict": True}
    found = tt.classification_report_at_k(SEVERAL, RANKED, k=(3, 1), **options)
    assert list(found) == [3, 1]
    assert found == tt.classification_report_at_k(SEVERAL, RANKED, k=np.array([3, 1]), **options)
    assert found[1] == tt.classification_report_at_k(SEVERAL, RANKED, k=1, **options)
    assert list(found[3])[:2] == ["nil", "four"]


def test_labels_that_occur_nowhere() -> None:
    found = tt.precision_recall_fscore_at_k(SINGLE, RANKED, k=1, labels=[9, 0], zero_division=0)
    assert [values.tolist() for values in found] == [[0, 1], [0, 1], [0, 1], [0, 1]]


def test_a_repeat_beyond_the_first_k_is_none() -> None:
    found = tt.precision_recall_fscore_at_k([0, 1], [[0, 1, 0], [1, 1]], k=1)
    assert found[0].tolist() == [1, 1]


plain_scores, plain_report = tt.precision_recall_fscore_at_k, tt.classification_report_at_k
NOT_PLAIN: dict[str, tuple[Callable[[], Any], Any, tuple[str, ...]]] = {
    "more rows": (lambda: plain_scores([0, 1, 2], [[0], [1]], k=1), ValueError, ("y_true has 3 rows, but y_ranked 2",)),
    "a label twice": (
        lambda: plain_scores([0, 1], [[0, 0], [1, 0]], k=2),
        ValueError,
        ("y_ranked must name a label once a row", "row 0 names 0 twice among its first 2"),
    ),
    "indicators": (
        lambda: plain_scores(np.eye(3, dtype=int), RANKED[:3], k=1),
        ValueError,
        (
            "y_true must be a label or a list of labels a row",
            "(3, 3)",
            "row[row >= 0]",
            "row.nonzero()",
            "indicator matrix",
        ),
    ),
    "indicators of torch": (lambda: plain_scores(torch.eye(3), RANKED[:3], k=1), ValueError, ("indicator matrix",)),
    "a label a row": (
        lambda: plain_scores([0, 1], [0, 1], k=1),
        ValueError,
        ("y_ranked must hold a list of labels for each row, best first, but holds a label a row",),
    ),
    "a word a row": (lambda: plain_report(["a"], ["ab"], k=1), ValueError, ("y_ranked must hold a list of labels",)),
    "scores": (
        lambda: plain_scores([0, 1], np.array([[0.1, 0.9], [0.9, 0.1]]), k=1),
        TypeError,
        ("y_ranked must hold ints or strings, but holds float64",),
    ),
    "fractions": (
        lambda: plain_scores([0.0, 1.0], [[0], [1]], k=1),
        TypeError,
        ("y_true must hold", "but holds float64"),
    ),
    "ints and strings": (lambda: plain_scores([0, "a"], [[0], ["a"]], k=1), TypeError, ("y_true", "ints or strings")),
    "ints and strings in a list": (
        lambda: plain_scores([0, 1], [[0], ["a"]], k=1),
        TypeError,
        ("y_ranked must hold ints or strings, but holds both",),
    ),
    "ints beside strings": (
        lambda: plain_scores([0], [["a"]], k=1),
        TypeError,
        ("all ints or all strings", "int", "str"),
    ),
    "labels of another kind": (
        lambda: plain_report([0], [[0]], k=1, labels=["a"]),
        TypeError,
        ("all ints or all strings", "y_ranked holds ints, labels holds strings"),
    ),
    "None": (lambda: plain_scores([None, 1], [[1], [1]], k=1), TypeError, ("y_true must hold ints or strings",)),
    "labels and lists of them": (
        lambda: plain_scores([1, [2, 3]], [[1], [2]], k=1),
        (TypeError, ValueError),
        ("y_true",),
    ),
    "lists of labels and labels": (
        lambda: plain_scores([[1], 2], [[1], [2]], k=1),
        (TypeError, ValueError),
        ("y_true",),
    ),
    "lists of lists of labels": (
        lambda: plain_scores([[[0]], [[1]]], [[0], [1]], k=1),
        (TypeError, ValueError),
        ("y_true must hold",),
    ),
    "no label": (lambda: plain_scores([[], []], [[], []], k=1), ValueError, ("label",)),
    "no row": (lambda: plain_report([], [], k=1), ValueError, ("label",)),
    "labels of nothing": (lambda: plain_scores([0], [[0]], k=1, labels=[]), ValueError, ("labels must",)),
    "labels twice": (lambda: plain_scores([0], [[0]], k=1, labels=[0, 0]), ValueError, ("labels must be different",)),
    "no k": (lambda: plain_scores([0], [[0]], k=None), ValueError, ("k must be an int or several ints, but is None",)),
    "k of 0": (lambda: plain_report([0], [[0]], k=0), ValueError, ("k must be at least 1, but is 0",)),
    "average": (lambda: plain_scores([0], [[0]], k=1, average="binary"), ValueError, ("average must be one of",)),
    "zero_division": (lambda: plain_scores([0], [[0]], k=1, zero_division=2), ValueError, ("zero_division must be",)),
    "beta": (lambda: plain_scores([0], [[0]], k=1, beta=-1), ValueError, ("beta must be",)),
    "names": (
        lambda: plain_report([0], [[0]], k=1, target_names=["a", "b"]),
        ValueError,
        ("target_names must name the 1 labels, but holds 2 names",),
    ),
}


@pytest.mark.parametrize(("make", "kind", "parts"), NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_not_plain_data(make: Callable[[], Any], kind: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(kind, match=text(*parts)) as caught:
        make()
    # Advice must be of use here: these functions have neither option.
    assert "duplicates=" not in str(caught.value)
    assert "validate=" not in str(caught.value)


# Propensities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "a", "b"),
    [
        ({}, 0.55, 1.5),
        ({"a": 0.7}, 0.7, 1.5),
        ({"b": 2}, 0.55, 2),
        *(({"dataset": name}, 0.5, 0.4) for name in ("WikiLSHTC-325K", "Wikipedia-500K", "WikiTitles-500K")),
        *(({"dataset": name}, 0.6, 2.6) for name in ("Amazon-670K", "Amazon-3M", "AmazonTitles-3M", "LF-Amazon-131K")),
        ({"dataset": "LF-AmazonTitles-1.3M"}, 0.6, 2.6),
    ],
    ids=str,
)
def test_propensities(options: dict[str, Any], a: float, b: float) -> None:
    seen = [0, 1, 17, 900]
    for given in (torch.tensor(seen), np.array(seen, dtype=np.int32), torch.tensor(seen).half()):
        found = tt.propensities(given, 1000, **options)
        assert found.dtype == torch.float64
        assert (1 / found).tolist() == close(ref.inverse_propensities(seen, 1000, a=a, b=b))


# What readers of the first version ran into ---------------------------------------------------------------


def test_f_is_not_computed_in_the_default_type() -> None:
    k_hot, ranked = TRUTH[:, :LABELS].int().tolist(), ORDER[:, :2].tolist()
    held = [[label for label, true in enumerate(row) if true] for row in k_hot]
    labels = range(LABELS)
    found = tt.precision_recall_fscore_at_k(held, ranked, k=2, beta=0.3, labels=labels, zero_division=0)[2]
    named = [[int(label in row) for label in labels] for row in ranked]
    expected = sk.fbeta_score(k_hot, named, beta=0.3, average=None, zero_division=0)
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_mapping_of_names_is_read_by_id() -> None:
    report = tt.LabelReport(3, k=1, target_names={2: "z", 0: "x", 1: "y"})
    report.update(torch.eye(3), torch.arange(3))
    assert list(report.report().to_dict())[:3] == ["x", "y", "z"]
    with pytest.raises(ValueError, match=text("lack 1")):
        tt.LabelReport(3, k=1, target_names={0: "x", 2: "z"})
    with pytest.raises(ValueError, match=text("must be a name for each of the 3 labels")):
        tt.LabelReport(3, k=1, target_names="xyz")


def test_an_array_may_fill_up_short_rows_and_a_set_has_no_order() -> None:
    ragged = tt.precision_recall_fscore_at_k([[0, 3], [2]], [[3, 1], [0]], k=2, zero_division=0)
    filled = tt.precision_recall_fscore_at_k([[0, 3], [2]], np.array([[3, 1], [0, -1]]), k=2, zero_division=0)
    assert [part.tolist() for part in ragged] == [part.tolist() for part in filled]
    with pytest.raises(TypeError, match=text("holds a set, which has no order")):
        tt.precision_recall_fscore_at_k(["a"], [{"a", "b"}], k=1)
    with pytest.raises(ValueError, match=text("labels must be different labels, or None", "'dog'")):
        tt.precision_recall_fscore_at_k(["dog"], [["dog"]], k=1, labels="dog")


def test_a_row_without_a_list_makes_it_multi_label() -> None:
    rows = tt.classification_report_at_k(["a", "b"], [["a"], []], k=1, zero_division=0, output_dict=True)
    assert {"micro avg", "samples avg"} <= set(rows)
    assert "accuracy" not in rows


def test_occurrences_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=text("A label occurs in 1000 rows, but there are num_rows=100")):
        tt.propensities(torch.tensor([1000, 2]), num_rows=100)
    with pytest.raises(ValueError, match=text("one is nan")):
        tt.frequency_groups(torch.tensor([float("nan"), 1.0]))
    with pytest.raises(ValueError, match=text("counts.ravel()")):
        tt.frequency_groups(torch.ones(1, 50))


def test_repr_tells_metrics_apart() -> None:
    metric = tt.LabelRecall(3, k=[1, 2], average="micro", labels=[0], zero_division=1, ties="reverse")
    shown = "LabelRecall(num_labels=3, k=[1, 2], average='micro', labels=[0], zero_division=1.0, ties='reverse')"
    assert repr(metric) == shown
    assert repr(tt.LabelReport(3)) == "LabelReport(num_labels=3, k=10)"


def test_half_a_state_is_refused_whole() -> None:
    metric, other = tt.LabelRecall(3, k=1), tt.LabelRecall(3, k=1)
    for each in (metric, other):
        each.update(torch.eye(3), torch.arange(3))
    state = {name: value for name, value in other.metric_state.items() if name.startswith("sums")}
    with pytest.raises(ValueError, match=text("belongs to another metric")):
        metric.merge_state(state)
    assert metric.num_queries == 3


def test_a_label_metric_is_not_of_a_suite() -> None:
    with pytest.raises(TypeError, match=text("is no metric of queries", "MetricCollection")):
        tt.TopKMetrics([tt.LabelRecall(3, k=1)])
