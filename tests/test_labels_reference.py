"""The metrics of labels beside their slow reference; and the reference beside scikit-learn, napkinXC and pyxclib."""

import itertools
import json
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import labels_reference as ref
import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn import metrics as sk
from torch import Tensor

import torch_topk as tt

# PyTorch says so of its own CSR tensors, once a process.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")

AVERAGES = ("micro", "macro", "weighted", "samples")
ZERO_DIVISIONS = (0, 1, math.nan)
NAMES = ("precision", "recall", "f1")
IGNORED = -100
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "multilabel"


def approx(expected: Any) -> Any:
    """Equal to float64's digits; NaN equals NaN."""
    return pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


def printed(expected: Any) -> Any:
    """Equal to the digits a printed value has."""
    return pytest.approx(expected, abs=6e-5)


# Random inputs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Rows of truth, scores and ranked lists to hold against it, and what is asked of them."""

    num_labels: int
    truth: list[list[int]]  # a label may stand twice
    scores: list[list[float]]
    lists: list[list[int | None]]
    ks: list[int]
    labels: Any  # "all", "seen" or a list
    beta: float
    zero_division: float
    cut: int  # the row at which the second batch begins

    def by_score(self) -> list[list[int]]:
        """The ranked lists of the scores: equal scores by label, and -inf is no candidate."""
        return [
            sorted((label for label, score in enumerate(row) if score != -math.inf), key=lambda label: -row[label])
            for row in self.scores
        ]


def cases(count: int, fewest_labels: int = 1) -> Iterator[Case]:
    """Small cases, each its own seed, many of them with empty rows, empty lists, and labels that occur nowhere."""
    for seed in range(count):
        rng = random.Random(seed)
        rows = range(rng.randint(1, 7))
        everyone = range(rng.randint(fewest_labels, 6))
        num_labels = len(everyone)
        common = rng.sample(everyone, rng.randint(1, num_labels))
        sizes = (0,) if seed % 5 == 4 else (0, 1, 2, 3, 5)  # in every fifth case nothing is true
        yield Case(
            num_labels,
            truth=[rng.choices(common, k=rng.choice(sizes)) for _ in rows],
            scores=[rng.choices((-1.0, 0.0, 1.0, 1.0, 2.0, -math.inf), k=num_labels) for _ in rows],
            lists=[
                [None if rng.random() < 0.1 else label for label in rng.sample(everyone, rng.randint(0, num_labels))]
                for _ in rows
            ],
            ks=rng.sample((1, 2, 3, 8), rng.randint(1, 3)),
            labels=rng.choice(("all", "seen", rng.sample(everyone, rng.randint(1, num_labels)))),
            beta=rng.choice((0.5, 1.0, 2.0)),
            zero_division=ZERO_DIVISIONS[seed % 3],
            cut=rng.randint(0, len(rows)),
        )


def spoken_of(case: Case, truth: ref.Truth, ranked: ref.Ranked) -> list[int]:
    """The labels of which the case speaks, in truth and lists as they reach the metric."""
    return ref.labels_of(truth, ranked, case.ks, range(case.num_labels) if case.labels == "all" else case.labels)


# The reference beside others --------------------------------------------------------------------------


def k_hot(rows: Sequence[Sequence[int | None]], num_labels: int) -> np.ndarray:
    """Rows of labels as a matrix of 0 and 1."""
    return np.array([[int(label in row) for label in range(num_labels)] for row in rows])


def of_labels(
    truth: ref.Truth, ranked: ref.Ranked, k: int, labels: Sequence[Any], *, beta: float = 1.0, zero_division: Any = 0
) -> list[list[float]]:
    """Precision, recall, F-beta and support, each in order of the labels."""
    counts = ref.label_counts(truth, ranked, k, labels).values()
    triples = [ref.scores(count, beta, zero_division) for count in counts]
    return [*([triple[place] for triple in triples] for place in range(3)), [count.support for count in counts]]


def test_reference_agrees_with_scikit_learn() -> None:
    for case in cases(60, fewest_labels=2):
        labels = spoken_of(case, case.truth, case.lists)
        if not labels:
            continue
        k, options = case.ks[0], {"beta": case.beta, "zero_division": case.zero_division}
        matrices = k_hot(case.truth, case.num_labels), k_hot([row[:k] for row in case.lists], case.num_labels)
        for average in AVERAGES:
            *expected, _ = sk.precision_recall_fscore_support(*matrices, labels=labels, average=average, **options)
            assert ref.averages(case.truth, case.lists, k, labels, average, **options) == approx(expected), case
        expected = sk.precision_recall_fscore_support(*matrices, labels=labels, **options)
        found = of_labels(case.truth, case.lists, k, labels, **options)
        assert found == [approx(values.tolist()) for values in expected], case
        confusion = sk.multilabel_confusion_matrix(*matrices, labels=labels)
        counts = ref.label_counts(case.truth, case.lists, k, labels).values()
        assert [[count.fp, count.fn, count.tp] for count in counts] == confusion.reshape(-1, 4)[:, 1:].tolist(), case


@pytest.mark.parametrize(
    ("zero_division", "expected"),
    [(0, (0.5, 0.375, 0.4167)), (1, (0.75, 0.625, 0.4167)), (math.nan, (0.6667, 0.5, 0.4167))],
)
def test_reference_where_labels_are_never_predicted_or_never_true(
    zero_division: float, expected: tuple[float, ...]
) -> None:
    found = ref.averages([{0}, {1}, {0}, {3}], [[0], [1], [2], [2]], 1, range(4), "macro", zero_division=zero_division)
    assert found == printed(expected)


TEN_TRUTH = [[0], [5], [0], [3], [4], [2], [1, 4], [1], [5], [4]]
TEN_RANKED = [
    [0, 3, 2, 1, 5],
    [2, 0, 4, 1, 3],
    [4, 5, 1, 3, 0],
    [5, 4, 2, 0, 3],
    [2, 0, 1, 3, 5],
    [3, 0, 4, 1, 2],
    [1, 0, 4, 2, 3],
    [1, 4, 5, 2, 3],
    [4, 1, 3, 2, 0],
    [2, 0, 1, 3, 4],
]


def test_reference_on_ten_rows_of_six_labels() -> None:
    counts = ref.label_counts(TEN_TRUTH, TEN_RANKED, 3, range(6)).values()
    assert [count.tp for count in counts] == [1, 2, 0, 0, 1, 0]
    assert [count.fp for count in counts] == [5, 4, 5, 3, 6, 3]
    assert [count.fn for count in counts] == [1, 0, 1, 1, 2, 2]
    precision, recall, f1, support = of_labels(TEN_TRUTH, TEN_RANKED, 3, range(6))
    assert precision == printed([0.1667, 0.3333, 0, 0, 0.1429, 0])
    assert recall == printed([0.5, 1, 0, 0, 0.3333, 0])
    assert f1 == printed([0.25, 0.5, 0, 0, 0.2, 0])
    assert support == [2, 2, 1, 1, 3, 2]
    for k, average, expected in (
        (3, "micro", (0.1333, 0.3636, 0.1951)),
        (3, "macro", (0.1071, 0.3056, 0.1583)),
        (3, "weighted", (0.1299, 0.3636, 0.1909)),
        (3, "samples", (0.1333, 0.3, 0.18)),
        (1, "macro", (0.3333, 0.25, 0.2778)),
        (5, "macro", (0.1509, 0.7778, 0.2455)),
    ):
        assert ref.averages(TEN_TRUTH, TEN_RANKED, k, range(6), average) == printed(expected), (k, average)


def test_reference_speaks_of_the_labels_seen() -> None:
    truth, ranked = [{3}, set()], [[None, 1, 5], [0]]
    assert ref.labels_of(truth, ranked, [1]) == [0, 3]
    assert ref.labels_of(truth, ranked, [1, 2]) == [0, 1, 3]
    assert ref.labels_of(truth, ranked, [9], [5, 4]) == [5, 4]


def test_reference_propensities() -> None:
    # ln N = 1 makes C = 0: every label counts 1.
    assert ref.inverse_propensities([0, 7], math.e) == approx([1.0, 1.0])
    # ln N = 2: C = (b + 1)^a, so a label seen once has 1/p = 2, whatever a and b.
    assert ref.inverse_propensities([1], math.e**2, a=0.6, b=2.6) == approx([2.0])
    # One hit that weighs 1, one miss that weighs 10: a ratio of sums, no mean of ratios.
    assert ref.psp([{0}, {1}], [[0], [0]], 1, [1.0, 10.0]) == printed(0.0909)
    # Two rows that could fill two places and one: (.6309 / 1.6309 + 0) / (4.6309 / 1.6309 + 1).
    assert ref.psndcg([{0, 1}, {2}, set()], [[2, 0], [0], [0]], 2, [1.0, 4.0, 1.0]) == printed(0.1008)


def test_reference_groups_labels_by_frequency() -> None:
    assert ref.frequency_groups([100, 99, 20, 19, 0], torso=20, head=100) == {
        "tail": [False, False, False, True, True],
        "torso": [False, True, True, False, False],
        "head": [True, False, False, False, False],
    }


def test_reference_coverage() -> None:
    truth, ranked = [{0, 1}, {2}, {0}], [[1, 0], [1, 2], [3, 2]]
    assert ref.coverage(truth, ranked, 1, range(4)) == approx(1 / 3)
    assert ref.coverage(truth, ranked, 2, range(4)) == 1
    assert ref.coverage(truth, ranked, 1, [1, 2, 3]) == 0.5
    assert math.isnan(ref.coverage(truth, ranked, 1, [3]))


class Golden(NamedTuple):
    """600 rows by 800 labels with a long tail, and what three systems said of them."""

    truth: list[set[int]]
    ranked: list[list[int]]
    inverse: list[float]
    values: Mapping[str, Any]


@pytest.fixture(scope="module")
def golden() -> Golden:
    if not DATA.is_dir():
        pytest.skip(f"the test data shared by projects is not at {DATA}")
    arrays = np.load(DATA / "xmlc_synthetic.npz")
    values = json.loads((DATA / "xmlc_golden.json").read_text())
    items = arrays["test_indices"].tolist()
    truth = [set(items[start:stop]) for start, stop in itertools.pairwise(arrays["test_indptr"].tolist())]
    order = np.argsort(-arrays["scores"].astype(np.int64), axis=1, kind="stable")
    info = values["_info"]
    counts = arrays["train_counts"].tolist()
    inverse = ref.inverse_propensities(counts, int(arrays["n_train"]), a=info["A"], b=info["B"])
    return Golden(truth, order[:, :5].tolist(), inverse, values)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_reference_agrees_with_napkinxc_and_xclib(golden: Golden, k: int) -> None:
    truth, ranked, inverse, values = golden

    def said(key: str, digits: int = 11) -> Any:
        return pytest.approx(values[key][k - 1], abs=10.0**-digits)

    spoken = range(800)
    micro = ref.averages(truth, ranked, k, spoken, "micro")
    samples = ref.averages(truth, ranked, k, spoken, "samples")
    # napkinXC takes the largest label it meets, 798, for the last.
    macro = ref.averages(truth, ranked, k, range(max(ref.labels_of(truth, ranked, [k])) + 1), "macro")
    assert [macro[0], macro[1], macro[2]] == [said(f"napkinxc.macro{name}") for name in ("P", "R", "F1")]
    assert ref.coverage(truth, ranked, k, spoken) == said("napkinxc.coverage")
    for system in ("napkinxc", "xclib"):
        assert micro[0] == said(f"{system}.P")
        assert samples[1] == said(f"{system}.R")
        assert ref.psp(truth, ranked, k, inverse) == said(f"{system}.PSP")
        # xclib discounts in float32.
        assert ref.psndcg(truth, ranked, k, inverse) == said(f"{system}.PSnDCG", 11 if system == "napkinxc" else 6)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_reference_agrees_with_scikit_learn_on_a_long_tail(
    golden: Golden, k: int, zero_division: float, average: str
) -> None:
    expected = golden.values[f"sklearn.prf@{k}.{average}.zd={float(zero_division)}"]
    found = ref.averages(golden.truth, golden.ranked, k, range(800), average, zero_division=zero_division)
    assert found == pytest.approx(expected, abs=1e-12)


# The ways in ------------------------------------------------------------------------------------------


def dense(rows: Sequence[Sequence[int]], num_labels: int) -> Tensor:
    """Graded gains: what is true has 2, and the rest in turn 0 and -1, which are not relevant."""
    return torch.tensor([[2.0 if label in row else -float(label % 2) for label in range(num_labels)] for row in rows])


def padded(rows: Sequence[Sequence[int | None]]) -> Tensor:
    """Lists of one width, with -1 where there is nothing; at least one rank wide."""
    width = max(1, *map(len, rows))
    return torch.tensor([[-1 if label is None else label for label in [*row, *[None] * width][:width]] for row in rows])


def from_scipy(rows: Sequence[Sequence[int]], num_labels: int) -> Any:
    return scipy.sparse.csr_array(k_hot(rows, num_labels).astype(np.float32))


TRUTHS: dict[str, Callable[[Sequence[Sequence[int]], int], Any]] = {
    "gains": dense,
    "bools": lambda rows, num_labels: dense(rows, num_labels) > 0,
    "ids": lambda rows, _: tt.Relevance.from_ids(padded(rows)),
    "scipy": from_scipy,
    "csr": lambda rows, num_labels: (dense(rows, num_labels) > 0).float().to_sparse_csr(),
    # One label a row; a row that has none is ignored.
    "labels": lambda rows, _: torch.tensor([row[0] if row else IGNORED for row in rows]),
}
WAYS = ("scores", "ranking", "lists")
each_way_in = pytest.mark.parametrize(("way", "form"), list(itertools.product(WAYS, TRUTHS)))


def batches(case: Case, way: str, form: str) -> Iterator[tuple[Any, ...]]:
    """The arguments of ``update``: the rows up to the cut, and those after it."""
    for rows in (slice(0, case.cut), slice(case.cut, None)):
        truth = case.truth[rows]
        if not truth:
            continue
        target = TRUTHS[form](truth, case.num_labels)
        scores = torch.tensor(case.scores[rows])
        if way == "scores":
            yield scores, target
        elif way == "ranking":
            yield (tt.Ranking.from_scores(scores, target, max(case.ks), ignore_index=IGNORED),)
        else:
            yield (tt.Ranking.from_ids(padded(case.lists[rows]), target, ignore_index=IGNORED),)


def as_given(case: Case, way: str, form: str) -> tuple[list[list[int]], Sequence[Sequence[int | None]]]:
    """The truth and the ranked lists as the reference takes them."""
    ranked: Sequence[Sequence[int | None]] = case.lists if way == "lists" else case.by_score()
    if form != "labels":
        return case.truth, ranked
    kept = [row for row, true in enumerate(case.truth) if true]
    return [case.truth[row][:1] for row in kept], [ranked[row] for row in kept]


def fed(metric: Any, case: Case, way: str = "scores", form: str = "gains") -> Any:
    """The metric after all rows, in one batch or two."""
    for batch in batches(case, way, form):
        metric.update(*batch)
    return metric


# The package beside the reference ---------------------------------------------------------------------


@each_way_in
def test_label_report(way: str, form: str) -> None:
    for case in cases(8):
        truth, ranked = as_given(case, way, form)
        if not truth:
            continue
        report = tt.LabelReport(case.num_labels, case.ks, zero_division=case.zero_division, ignore_index=IGNORED)
        found = fed(report, case, way, form).compute()
        everyone = range(case.num_labels)
        for place, k in enumerate(case.ks):
            counts = ref.label_counts(truth, ranked, k, everyone).values()
            for name in ("tp", "fp", "fn"):
                assert found[name].dtype == torch.int64
                assert found[name][place].tolist() == [getattr(count, name) for count in counts], (name, k, case)
            *expected, support = of_labels(truth, ranked, k, everyone, zero_division=case.zero_division)
            for name, values in zip(NAMES, expected, strict=True):
                assert found[name].dtype == torch.float64
                assert found[name][place].tolist() == approx(values), (name, k, case)
            assert found["support"].dtype == torch.int64
            assert found["support"].tolist() == support


@each_way_in
def test_scalars_of_a_report(way: str, form: str) -> None:
    for case in cases(12):
        truth, ranked = as_given(case, way, form)
        spoken = spoken_of(case, truth, ranked)
        if not truth or not spoken:
            continue
        options = {"labels": case.labels, "zero_division": case.zero_division}
        report = fed(tt.LabelReport(case.num_labels, case.ks, ignore_index=IGNORED, **options), case, way, form)
        for average in AVERAGES:
            expected = {
                f"{name}@{k}": value
                for k in case.ks
                for name, value in zip(
                    NAMES,
                    ref.averages(truth, ranked, k, spoken, average, zero_division=case.zero_division),
                    strict=True,
                )
            }
            assert report.scalars(average) == approx(expected), (average, case)


@pytest.mark.parametrize("average", AVERAGES)
@each_way_in
def test_averages_of_labels(way: str, form: str, average: str) -> None:
    for case in cases(10):
        truth, ranked = as_given(case, way, form)
        spoken = spoken_of(case, truth, ranked)
        if not truth or not spoken:
            continue
        options = {"average": average, "zero_division": case.zero_division}
        expected = [ref.averages(truth, ranked, k, spoken, beta=case.beta, **options) for k in case.ks]
        for place, metric in enumerate(label_metrics(case, labels=case.labels, ignore_index=IGNORED, **options)):
            found = fed(metric, case, way, form).compute()
            assert found.dtype == torch.float64
            assert found.tolist() == approx([triple[place] for triple in expected]), (metric, case)


def label_metrics(case: Case, **options: Any) -> list[Any]:
    """Precision, recall and F-beta, in the order in which the reference gives them."""
    return [
        tt.LabelPrecision(case.num_labels, case.ks, **options),
        tt.LabelRecall(case.num_labels, case.ks, **options),
        tt.LabelFBeta(case.num_labels, case.ks, beta=case.beta, **options),
    ]


def test_a_value_for_each_label() -> None:
    for case in cases(30):
        # A list gives its labels in its own order; "all" and "seen" keep every label in its place.
        labels = range(case.num_labels) if isinstance(case.labels, str) else case.labels
        options = {"zero_division": case.zero_division}
        expected = [of_labels(case.truth, case.by_score(), k, labels, beta=case.beta, **options) for k in case.ks]
        for place, metric in enumerate(label_metrics(case, average=None, labels=case.labels, **options)):
            found = fed(metric, case).compute()
            assert found.tolist() == [approx(columns[place]) for columns in expected], (metric, case)


def test_one_cutoff_has_no_axis_of_its_own() -> None:
    ranking = tt.Ranking.from_ids(torch.tensor(TEN_RANKED), tt.Relevance.from_ids(padded(TEN_TRUTH)))
    report = tt.LabelReport(num_labels=6, k=3)
    report.update(ranking)
    assert {name: values.shape for name, values in report.compute().items()} == dict.fromkeys(
        ("tp", "fp", "fn", "precision", "recall", "f1", "support"), (6,)
    )
    assert report.compute()["tp"].tolist() == [1, 2, 0, 0, 1, 0]
    for average, shape in (("macro", ()), (None, (6,))):
        metric = tt.LabelRecall(num_labels=6, k=3, average=average)
        metric.update(ranking)
        assert metric.compute().shape == shape
        assert metric.compute().mean().item() == printed(0.3056)


@each_way_in
def test_propensity_scored(way: str, form: str) -> None:
    for case in cases(12):
        truth, ranked = as_given(case, way, form)
        if not any(truth):
            continue
        inverse = random.Random(case.cut).sample((1.0, 2.0, 2.0, 3.0, 4.0, 100.0), case.num_labels)
        propensities = 1 / torch.tensor(inverse, dtype=torch.float64)
        for metric, reference in ((tt.PSP, ref.psp), (tt.PSNDCG, ref.psndcg)):
            found = fed(metric(case.ks, propensities=propensities, ignore_index=IGNORED), case, way, form).compute()
            assert found.tolist() == approx([reference(truth, ranked, k, inverse) for k in case.ks]), case


def test_propensity_scored_on_a_long_tail(golden: Golden) -> None:
    truth, ranked, inverse, values = golden
    ranking = tt.Ranking.from_ids(torch.tensor(ranked), tt.Relevance.from_ids(padded([sorted(row) for row in truth])))
    for metric, key in ((tt.PSP, "napkinxc.PSP"), (tt.PSNDCG, "napkinxc.PSnDCG")):
        scored = metric((1, 2, 3, 4, 5), propensities=1 / torch.tensor(inverse, dtype=torch.float64))
        scored.update(ranking)
        assert scored.compute().tolist() == pytest.approx(values[key], abs=1e-11)


@each_way_in
def test_coverage_of_labels(way: str, form: str) -> None:
    for case in cases(12):
        truth, ranked = as_given(case, way, form)
        if not truth or case.labels == "seen":  # which would be the same as all
            continue
        metric = tt.LabelCoverage(case.num_labels, case.ks, labels=case.labels, ignore_index=IGNORED)
        found = fed(metric, case, way, form).compute()
        spoken = spoken_of(case, truth, ranked)
        assert found.tolist() == approx([ref.coverage(truth, ranked, k, spoken) for k in case.ks]), case


def test_propensities_and_groups_of_training_counts() -> None:
    counts = [0, 1, 4, 5, 19, 20, 21, 10**6]
    for rows, options in itertools.product((10**6, 10**7), ({}, {"a": 0.6, "b": 2.6})):
        found = tt.propensities(torch.tensor(counts), rows, **options)
        assert found.tolist() == approx([1 / worth for worth in ref.inverse_propensities(counts, rows, **options)])
    for options, edges in (({}, {}), ({"torso": 5, "head": 20}, {"edges": (5, 20)})):
        groups = tt.frequency_groups(torch.tensor(counts), **edges)
        assert {name: mask.tolist() for name, mask in groups.items()} == ref.frequency_groups(counts, **options)


@pytest.mark.parametrize(
    ("a", "b", "names"),
    [
        (0.5, 0.4, ("WikiLSHTC-325K", "Wikipedia-500K", "WikiTitles-500K")),
        (0.6, 2.6, ("Amazon-670K", "Amazon-3M", "AmazonTitles-670K", "AmazonTitles-3M", "LF-Amazon-131K")),
    ],
)
def test_propensities_fitted_to_a_data_set(a: float, b: float, names: Sequence[str]) -> None:
    expected = [1 / worth for worth in ref.inverse_propensities([0, 3, 50], 4000, a, b)]
    for name in names:
        assert tt.propensities(torch.tensor([0, 3, 50]), 4000, dataset=name).tolist() == approx(expected), name


def test_scalars_of_groups() -> None:
    for case in cases(15):
        counts = random.Random(case.cut).sample((0, 3, 10, 50, 100, 101), case.num_labels)
        masks = {name: mask for name, mask in ref.frequency_groups(counts).items() if any(mask)}
        groups = {name: mask for name, mask in tt.frequency_groups(torch.tensor(counts)).items() if mask.any()}
        report = tt.LabelReport(case.num_labels, case.ks, groups=groups, zero_division=case.zero_division)
        fed(report, case)
        for (group, mask), average in itertools.product(masks.items(), ("micro", "macro", "weighted")):
            members = [label for label, inside in enumerate(mask) if inside]
            scalars = report.scalars(average)
            for k in case.ks:
                found = [scalars[f"{name}@{k}/{group}"].item() for name in NAMES]
                options = {"average": average, "zero_division": case.zero_division}
                assert found == approx(list(ref.averages(case.truth, case.by_score(), k, members, **options))), case


# Plain data -------------------------------------------------------------------------------------------


def plain(values: Any) -> Any:
    """Arrays as lists."""
    return values.tolist() if hasattr(values, "tolist") else values


def rows_of(case: Case, names: Sequence[Any], *, single: bool) -> tuple[list[Any], list[list[Any]]]:
    """The truth and the lists under the labels' names, without the rows that a single label cannot tell."""
    truth = [[names[label] for label in row] for row in case.truth]
    ranked = [[names[label] for label in row if label is not None] for row in case.lists]
    if not single:
        return truth, ranked
    kept = [row for row, true in enumerate(truth) if true]
    return [truth[row][0] for row in kept], [ranked[row] for row in kept]


@pytest.mark.parametrize("average", [None, *AVERAGES])
@pytest.mark.parametrize("names", ["abcdef", (4, 7, 30, 31, 90, 91)], ids=["strings", "integers"])
@pytest.mark.parametrize("single", [False, True], ids=["several labels", "one label"])
def test_precision_recall_fscore_at_k(names: Sequence[Any], single: bool, average: str | None) -> None:
    for case in cases(20):
        y_true, y_ranked = rows_of(case, names, single=single)
        truth = [[true] for true in y_true] if single else y_true
        labels = None if isinstance(case.labels, str) else [names[label] for label in case.labels]
        spoken = ref.labels_of(truth, y_ranked, case.ks, labels or "seen")
        if not truth or not spoken:
            continue
        options = {"beta": case.beta, "zero_division": case.zero_division}
        k = case.ks[0] if len(case.ks) == 1 else case.ks
        results = tt.precision_recall_fscore_at_k(y_true, y_ranked, k=k, labels=labels, average=average, **options)
        *found, support = map(plain, results)
        if len(case.ks) == 1:
            found = [[values] for values in found]  # an int k has no axis
        if average is None:
            columns = [of_labels(truth, y_ranked, k, spoken, **options) for k in case.ks]
            assert support == columns[0].pop(), case
            assert found == [[approx(column[place]) for column in columns] for place in range(3)], case
        else:
            triples = [ref.averages(truth, y_ranked, k, spoken, average, **options) for k in case.ks]
            assert found == [approx(list(values)) for values in zip(*triples, strict=True)], case
            assert support is None


def test_arrays_as_plain_data() -> None:
    y_true = [true[0] for true in TEN_TRUTH]
    expected = ref.averages([[true] for true in y_true], TEN_RANKED, 3, range(6), "macro")
    found = tt.precision_recall_fscore_at_k(np.array(y_true), np.array(TEN_RANKED), k=3, average="macro")
    assert found[:3] == approx(expected)


@pytest.mark.parametrize("way", ["report", "metric", "plain data"])
def test_warns_once_of_division_by_nothing(way: str) -> None:
    labels, ranked = [0, 1, 0, 3], [[0], [1], [2], [2]]  # 2 is never true, 3 is never predicted
    ranking = tt.Ranking.from_ids(torch.tensor(ranked), torch.tensor(labels))
    expected, *_ = ref.averages([{label} for label in labels], ranked, 1, range(4), "macro", zero_division="warn")
    report = tt.LabelReport(num_labels=4, k=1, zero_division="warn")
    metric = tt.LabelPrecision(num_labels=4, k=1, zero_division="warn")
    report.update(ranking)
    metric.update(ranking)
    with pytest.warns(UserWarning, match="zero_division") as caught:
        found = {
            "report": lambda: report.scalars()["precision@1"],
            "metric": metric.compute,
            "plain data": lambda: tt.precision_recall_fscore_at_k(labels, ranked, k=1, average="macro")[0],
        }[way]()
    assert found == approx(expected)
    assert len(caught) == 1


def test_no_warning_where_nothing_is_divided_by_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tt.precision_recall_fscore_at_k([0, 1], [[1], [0]], k=1, average="macro")
    assert found[:3] == (0.0, 0.0, 0.0)
