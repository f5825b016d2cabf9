"""Every metric, option, storage and way in, beside the slow reference on random inputs."""

import itertools
import math
import random
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference as ref
import scipy.sparse
import torch
from helpers import PROPENSITIES, RANKING, REQUIRED, TABLE, go_together, make, required, show
from torch import Tensor

import torch_topk as tt

# PyTorch says so of its own CSR tensors, once a process.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")

ITEMS = 14
KS = (1, 3, 10, 20)

# Every value of every option. A metric or a value that is missing here fails a test at the end of this file.
OPTIONS: dict[str, dict[str, Sequence[Any]]] = {
    "precision": {"denominator": ("k", "retrieved", "relevant"), "average": ("macro", "micro")},
    "recall": {"denominator": ("relevant", "capped"), "average": ("macro", "micro")},
    "fbeta": {"beta": (0.5, 2.0), "average": ("macro", "micro")},
    "f1": {"average": ("macro", "micro")},
    "hit_rate": {},
    "full_recall": {},
    "mrr": {},
    "map": {"denominator": ("capped", "relevant", "hits", "k")},
    "ndcg": {"gain": ("linear", "exp", "binary", TABLE), "ideal": ("relevant", "candidates", "k")},
    "dcg": {"gain": ("linear", "exp", "binary", TABLE)},
    "top_k_accuracy": {},
    "psp": {"propensities": (PROPENSITIES,), "average": ("micro", "macro")},
    "psndcg": {"propensities": (PROPENSITIES,), "average": ("micro", "macro")},
    "rbp": {"persistence": (0.5, 0.95)},
    "rprec": {},
    "map_r": {},
    "fall_out": {},
    "err": {"max_grade": (3.0, 4.0)},
    "judged": {"denominator": ("retrieved", "k")},
    "bpref": {},
    "tie_rate": {},
    "value": {
        "item_values": (None, REQUIRED["item_values"] - 0.25),  # some are worth nothing
        "gain": ("linear", "exp", "binary", TABLE),
        "normalized": (False, True),
    },
    "novelty": {option: (REQUIRED[option],) for option in ("item_counts", "num_users")},
    "arp": {"item_counts": (REQUIRED["item_counts"],)},
    "ild": {"embeddings": (REQUIRED["embeddings"],), "distance": ("cosine", "sqeuclidean")},
}
POLICIES: dict[str, Sequence[Any]] = {"empty": ("zero", "one", "skip", "nan"), "min_relevance": (None, 2.0)}
TIES = ("index", "reverse")


def grid(options: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of some options."""
    for values in itertools.product(*options.values()):
        yield dict(zip(options, values, strict=True))


def policies_of(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The policies that go with some options: pooled counts have no value of one query to set."""
    pooled = options.get("average") == "micro"
    return (policies for policies in grid(POLICIES) if not (pooled and policies["empty"] in {"one", "nan"}))


def label(name: str, options: Mapping[str, Any]) -> str:
    """A short id for a metric with its options."""
    return "_".join((name, *map(show, options.values()))).replace(".", "")


DEFINITIONS = {
    label(name, options): (name, options) for name in OPTIONS for options in grid(OPTIONS[name]) if go_together(options)
}
each_definition = pytest.mark.parametrize(("name", "options"), DEFINITIONS.values(), ids=DEFINITIONS)


# Random inputs ----------------------------------------------------------------------------------------


def random_truth(rng: random.Random, queries: int) -> list[dict[int, float]]:
    """Graded truth with judged zeros and negative grades; some queries have nothing to find."""
    truth = [
        {item: float(rng.choice((-1, 0, 1, 1, 2, 3))) for item in rng.sample(range(ITEMS), rng.randint(1, 6))}
        for _ in range(queries)
    ]
    truth[0] = {}
    truth[1] = {2: -1.0, 5: 0.0}
    truth[2] = {0: 1.0, 7: 1.0}  # nothing at or above 2
    return truth


def random_scores(rng: random.Random, queries: int) -> list[list[float]]:
    """Small integers, so that many are equal; about one in ten is no candidate."""
    levels = (-3.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, -math.inf)
    return [[rng.choice(levels) for _ in range(ITEMS)] for _ in range(queries)]


def random_lists(rng: random.Random, queries: int, *, repeats: bool) -> list[list[int]]:
    """Ranked ids of one width, with empty ranks at the end and between; one query retrieves nothing."""
    lists = []
    for _ in range(queries):
        pool = rng.choices(range(ITEMS), k=12) if repeats else rng.sample(range(ITEMS), 12)
        held = rng.randint(0, 12)
        lists.append([-1 if rank >= held or rng.random() < 0.1 else item for rank, item in enumerate(pool)])
    lists[3] = [-1] * 12
    return lists


def random_exclusions(rng: random.Random, queries: int) -> list[set[int]]:
    """Up to four items a query that are no candidates, relevant ones among them."""
    return [set(rng.sample(range(ITEMS), rng.randint(0, 4))) for _ in range(queries)]


def random_weights(rng: random.Random, queries: int) -> list[float]:
    """Positive weights."""
    return [rng.choice((0.5, 1.0, 2.0, 3.25)) for _ in range(queries)]


def dense_rows(truth: Iterable[Mapping[int, float]]) -> Tensor:
    """Truth as a matrix of gains."""
    return torch.tensor([[gains.get(item, 0.0) for item in range(ITEMS)] for gains in truth])


def mask_rows(excluded: Iterable[Iterable[int]]) -> Tensor:
    """Sets of items as a bool matrix."""
    return torch.tensor([[item in items for item in range(ITEMS)] for items in excluded])


def padded(rows: Iterable[Iterable[int]], width: int) -> Tensor:
    """Lists of ids, padded with -1."""
    return torch.tensor([[*row, *[-1] * width][:width] for row in map(list, rows)])


# Comparing --------------------------------------------------------------------------------------------


def approx(expected: Any) -> Any:
    """Equal to float64's digits; NaN equals NaN."""
    return pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


def per_query(name: str, queries: Sequence[ref.Query], k: int | None, **options: Any) -> list[float]:
    """The reference's value of each query, NaN where a query is left out."""
    values = (ref.value(name, query, k, **options) for query in queries)
    return [math.nan if value is None else value for value in values]


def as_stored(queries: Sequence[ref.Query], target: Any) -> list[ref.Query]:
    """The queries, with a gain for every item where the truth is a matrix, or a tensor that becomes one."""
    if isinstance(target, tt.Relevance):
        matrix = target.longest is None
    else:
        matrix = not hasattr(target, "tocoo") and target.ndim > 1 and getattr(target, "layout", 0) in {0, torch.strided}
    return [replace(query, columns=ITEMS if matrix else 0) for query in queries]


def check_per_query(
    queries: Sequence[ref.Query], update: Mapping[str, Any], only: Sequence[str] = tuple(DEFINITIONS)
) -> None:
    """The functional twins of the definitions agree with the reference on one batch, at every k."""
    target = update.get("target", getattr(update["preds"], "relevance", None))
    queries = as_stored(queries, target)
    for key in only:
        name, options = DEFINITIONS[key]
        twin = getattr(tt.functional, name)
        options = {option: value for option, value in options.items() if option != "average"}
        found = twin(**update, k=KS, **options)
        assert found.dtype == torch.float64
        expected = [per_query(name, queries, k, **options) for k in KS]
        assert found.T.tolist() == [approx(values) for values in expected], key
        whole = twin(**update, k=None, **options)
        assert whole.tolist() == approx(per_query(name, queries, None, **options)), key


class Batch:
    """One random input, for the package and for the reference."""

    def __init__(self, seed: int = 0, queries: int = 12) -> None:
        rng = random.Random(seed)
        self.truth = random_truth(rng, queries)
        self.scores = random_scores(rng, queries)
        self.excluded = random_exclusions(rng, queries)
        self.weights = random_weights(rng, queries)

    def queries(self, ties: str = "index") -> list[ref.Query]:
        rows = zip(self.scores, self.truth, self.excluded, self.weights, strict=True)
        found = [ref.query_of_scores(scores, gains, ties, out, weight) for scores, gains, out, weight in rows]
        return [replace(query, columns=ITEMS) for query in found]

    def update(self, rows: slice = slice(None)) -> dict[str, Any]:
        return {
            "preds": torch.tensor(self.scores[rows]),
            "target": dense_rows(self.truth[rows]),
            "exclude": mask_rows(self.excluded[rows]),
            "weights": torch.tensor(self.weights[rows], dtype=torch.float64),
        }


# Metrics and options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", TIES)
@each_definition
def test_class(name: str, options: dict[str, Any], ties: str) -> None:
    batch = Batch()
    queries = batch.queries(ties)
    for policies in policies_of(options):
        for k in (KS, 3, None):
            metric = tt.registry[name](k=k, ties=ties, **options, **policies)
            metric.update(**batch.update(slice(5)))
            metric.update(**batch.update(slice(5, None)))
            expected = [
                ref.average_of(name, queries, depth, **options, **policies)
                for depth in (k if isinstance(k, tuple) else (k,))
            ]
            found = metric.compute()
            assert found.dtype == torch.float64
            assert found.shape == ((len(KS),) if k is KS else ())
            assert found.reshape(-1).tolist() == approx(expected), (k, policies)


@pytest.mark.parametrize("ties", TIES)
@each_definition
def test_functional_twin(name: str, options: dict[str, Any], ties: str) -> None:
    batch = Batch(seed=1)
    queries = batch.queries(ties)
    options = {option: value for option, value in options.items() if option != "average"}
    for policies in grid(POLICIES):
        for k in (3, None):
            found = getattr(tt.functional, name)(**batch.update(), k=k, ties=ties, **options, **policies)
            assert found.tolist() == approx(per_query(name, queries, k, **options, **policies)), (k, policies)


@pytest.mark.parametrize("empty", POLICIES["empty"])
@pytest.mark.parametrize("min_relevance", POLICIES["min_relevance"])
@pytest.mark.parametrize("ties", TIES)
def test_suite(empty: str, min_relevance: float | None, ties: str) -> None:
    batch = Batch(seed=2)
    queries = batch.queries(ties)
    policies: dict[str, Any] = {"empty": empty, "min_relevance": min_relevance}
    definitions = {
        key: (name, options) for key, (name, options) in DEFINITIONS.items() if policies in policies_of(options)
    }
    suite = tt.TopKMetrics(
        {key: {"name": name, "k": KS, **options} for key, (name, options) in definitions.items()},
        k=KS,
        ties=ties,
        **policies,
    )
    suite.update(**batch.update(slice(7)))
    suite.update(**batch.update(slice(7, None)))
    found = suite.compute()
    intervals = suite.intervals(0.9)
    assert list(found) == [f"{key}@{k}" for key in definitions for k in KS]
    for (key, (name, options)), k in itertools.product(definitions.items(), KS):
        given = {**options, **policies}
        expected = ref.average_of(name, queries, k, **given)
        assert found[f"{key}@{k}"].item() == approx(expected), (key, k)
        low, high = intervals[f"{key}@{k}"]
        upper = tt.registry[name](**options).bounds[1]
        if math.isnan(expected):
            assert math.isnan(low)
            assert math.isnan(high)
        else:
            # Sums of squares lose digits where the spread is small, so less is asked of these.
            wanted = ref.interval_of(name, queries, k, 0.9, upper, **given)
            assert (low.item(), high.item()) == pytest.approx(wanted, rel=1e-7, abs=1e-7), (key, k)


OF_OTHERS = {"judged", "fall_out", "tie_rate", *(name for name in OPTIONS if not RANKING[name].reads_truth)}
"""Metrics by which a query is empty for want of something else."""


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in OF_OTHERS])
def test_query_without_relevant_item_is_an_error_when_asked(name: str) -> None:
    batch = Batch(seed=3)
    metric = make(name, 3, empty="error")
    metric.update(**batch.update())
    with pytest.raises(tt.InputError, match=r"2|relevant"):
        metric.compute()


@each_definition
def test_weight_of_zero(name: str, options: dict[str, Any]) -> None:
    batch = Batch(seed=20)
    batch.weights[4:7] = [0.0] * 3
    metric = tt.registry[name](k=KS, **options)
    metric.update(**batch.update())
    expected = [ref.average_of(name, batch.queries(), k, **options) for k in KS]
    assert metric.compute().tolist() == approx(expected)


@pytest.mark.parametrize("empty", ["one", "nan"])
@pytest.mark.parametrize("name", [name for name in OPTIONS if "average" in OPTIONS[name]])
def test_pooled_counts_have_no_value_of_an_empty_query(name: str, empty: str) -> None:
    with pytest.raises(ValueError, match="micro"):
        make(name, 3, average="micro", empty=empty)


# Storages of the truth --------------------------------------------------------------------------------


def entries(truth: Sequence[Mapping[int, float]]) -> tuple[list[int], list[int], list[float]]:
    """Query, item and gain of every listed item."""
    rows = [(query, item, gain) for query, gains in enumerate(truth) for item, gain in gains.items()]
    queries, items, gains = zip(*rows, strict=True)
    return list(queries), list(items), list(gains)


def scipy_truth(truth: Sequence[Mapping[int, float]]) -> scipy.sparse.csr_matrix:
    queries, items, gains = entries(truth)
    return scipy.sparse.csr_matrix((gains, (queries, items)), shape=(len(truth), ITEMS))


def coo_truth(truth: Sequence[Mapping[int, float]]) -> Tensor:
    queries, items, gains = entries(truth)
    return torch.sparse_coo_tensor(
        torch.tensor([queries, items]), torch.tensor(gains), (len(truth), ITEMS), check_invariants=True
    )


def csr_truth(truth: Sequence[Mapping[int, float]]) -> Tensor:
    matrix = scipy_truth(truth)
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return torch.sparse_csr_tensor(*parts, size=matrix.shape, check_invariants=True)


def ids_truth(truth: Sequence[Mapping[int, float]]) -> tt.Relevance:
    """Lists with padding before and after, and each list's first item once more with a smaller gain."""
    rows = [[(-1, 9.0), *gains.items(), *[(i, g - 2) for i, g in gains.items()][:1]] for gains in truth]
    width = max(map(len, rows)) + 1
    rows = [row + [(-1, 5.0)] * (width - len(row)) for row in rows]
    ids = torch.tensor([[item for item, _ in row] for row in rows])
    return tt.Relevance.from_ids(ids, torch.tensor([[gain for _, gain in row] for row in rows]))


def from_coo_truth(truth: Sequence[Mapping[int, float]]) -> tt.Relevance:
    """Pairs out of order, and one of them twice."""
    queries, items, gains = entries(truth)
    order = list(range(len(items)))
    random.Random(4).shuffle(order)
    order.append(order[0])
    query, item = (torch.tensor([column[i] for i in order]) for column in (queries, items))
    return tt.Relevance.from_coo(query, item, torch.tensor([gains[i] for i in order]), num_queries=len(truth))


RELEVANCE: dict[str, Callable[[Sequence[Mapping[int, float]]], tt.Relevance]] = {
    "from_dense": lambda truth: tt.Relevance.from_dense(dense_rows(truth)),
    "from_ids": ids_truth,
    "from_coo": from_coo_truth,
    "from_sparse csr": lambda truth: tt.Relevance.from_sparse(csr_truth(truth)),
    "from_sparse coo": lambda truth: tt.Relevance.from_sparse(coo_truth(truth)),
    "from_sparse scipy": lambda truth: tt.Relevance.from_sparse(scipy_truth(truth)),
}
TARGETS: dict[str, Callable[[Sequence[Mapping[int, float]]], Any]] = {
    **RELEVANCE,
    "tensor": dense_rows,
    "integer tensor": lambda truth: dense_rows(truth).long(),
    "numpy": lambda truth: dense_rows(truth).numpy(),
    "torch csr": csr_truth,
    "torch coo": coo_truth,
    "scipy csr": scipy_truth,
}


@pytest.mark.parametrize("storage", TARGETS)
def test_storage(storage: str) -> None:
    batch = Batch(seed=5)
    check_per_query(batch.queries(), {**batch.update(), "target": TARGETS[storage](batch.truth)})


@pytest.mark.parametrize("storage", RELEVANCE)
def test_rows_of_a_whole_truth(storage: str) -> None:
    batch = Batch(seed=6)
    whole = random_truth(random.Random(7), 30)
    rows = [29, 0, 3, 3, 17, 8, 1, 12, 2, 20, 25, 5]
    relevance = RELEVANCE[storage](whole)
    assert len(relevance) == 30
    batch.truth = [whole[row] for row in rows]
    check_per_query(batch.queries(), {**batch.update(), "target": relevance[torch.tensor(rows)]})
    batch.truth = whole[10:22]
    check_per_query(batch.queries(), {**batch.update(), "target": relevance[10:22]}, FEW)


@pytest.mark.parametrize("storage", RELEVANCE)
def test_truth_kept_to_some_items(storage: str) -> None:
    batch = Batch(seed=8)
    kept = {0, 1, 4, 5, 6, 9, 13}
    target = RELEVANCE[storage](batch.truth).keep(mask_rows([kept])[0])
    batch.truth = [{item: gain for item, gain in gains.items() if item in kept} for gains in batch.truth]
    check_per_query(batch.queries(), {**batch.update(), "target": target})


@pytest.mark.parametrize("storage", ["tensor", "numpy", "from_labels", "rows", "keep"])
def test_labels(storage: str) -> None:
    batch = Batch(seed=9)
    labels = [random.Random(10).randrange(ITEMS) for _ in batch.scores]
    labels = [(label + row) % ITEMS for row, label in enumerate(labels)]
    batch.truth = [{label: 1.0} for label in labels]
    # A label is always a candidate, though its query excludes it.
    batch.scores = [[max(score, -3.0) for score in scores] for scores in batch.scores]
    update = batch.update()
    batch.excluded = [out - {label} for out, label in zip(batch.excluded, labels, strict=True)]
    tensor = torch.tensor(labels)
    kept = mask_rows([range(5, ITEMS)])[0]
    target = {
        "tensor": tensor,
        "numpy": tensor.numpy(),
        "from_labels": tt.Relevance.from_labels(tensor),
        "rows": tt.Relevance.from_labels(tensor.flip(0))[torch.arange(len(labels) - 1, -1, -1)],
        "keep": tt.Relevance.from_labels(tensor).keep(kept),
    }[storage]
    if storage == "keep":
        batch.truth = [gains if min(gains) >= 5 else {} for gains in batch.truth]
    # One grade, so the table and the threshold at 2 say nothing new.
    check_per_query(batch.queries(), {**update, "target": target})


def test_labels_to_ignore() -> None:
    batch = Batch(seed=11)
    labels = [-100 if row % 3 == 0 else row for row in range(len(batch.scores))]
    batch.excluded = [set() for _ in labels]
    update = {**batch.update(), "target": torch.tensor(labels)}
    batch.truth = [{label: 1.0} for label in labels]
    pairs = zip(batch.queries(), labels, strict=True)
    queries = [replace(query, columns=0) for query, label in pairs if label >= 0]
    for name in OPTIONS:
        metric = make(name, KS, ignore_index=-100)
        metric.update(**update)
        expected = [ref.average_of(name, queries, k, **required(name)) for k in KS]
        assert metric.compute().tolist() == approx(expected), name


FEW = ("precision_retrieved_macro", "recall_capped_macro", "mrr", "map_hits", "ndcg_exp_candidates")


@pytest.mark.parametrize("labelled", [False, True])
def test_leading_dimensions(labelled: bool) -> None:
    batch = Batch(seed=12)
    update = batch.update()
    if labelled:
        batch.excluded = [set() for _ in batch.scores]
        batch.truth = [{row: 1.0} for row in range(12)]
        update = {**batch.update(), "target": torch.arange(12)}
    shaped = {name: value.reshape(3, 4, *value.shape[1:]) for name, value in update.items()}
    for key in FEW:
        name, options = DEFINITIONS[key]
        options = {option: value for option, value in options.items() if option != "average"}
        expected = [per_query(name, batch.queries(), k, **options) for k in KS]
        found = getattr(tt.functional, name)(**shaped, k=KS, **options)
        assert found.shape == (3, 4, len(KS))
        assert found.reshape(12, -1).T.tolist() == [approx(values) for values in expected], key
        single = {argument: value[5] for argument, value in update.items()}
        found = getattr(tt.functional, name)(**single, k=3, **options)
        assert found.shape == ()
        assert found.item() == approx(expected[1][5]), key


# Exclusions -------------------------------------------------------------------------------------------


def sparse_exclusion(excluded: Sequence[set[int]]) -> Tensor:
    return csr_truth([dict.fromkeys(items, 1.0) for items in excluded])


EXCLUSIONS: dict[str, Callable[[Sequence[set[int]]], Any]] = {
    "bool": mask_rows,
    "numpy bool": lambda excluded: mask_rows(excluded).numpy(),
    "ids": lambda excluded: padded(excluded, 5),
    "torch csr": sparse_exclusion,
    "torch coo": lambda excluded: sparse_exclusion(excluded).to_sparse_coo(),
    "scipy csr": lambda excluded: scipy_truth([dict.fromkeys(items, 1.0) for items in excluded]),
    "Relevance": lambda excluded: tt.Relevance.from_dense(mask_rows(excluded)),
    "list": lambda excluded: [
        padded([sorted(items)[:1] for items in excluded], 2),
        mask_rows([sorted(items)[1:] for items in excluded]),
    ],
}
SHARED_EXCLUSIONS: dict[str, Any] = {
    "bool": mask_rows([{0, 3, 7}])[0],
    "ids": torch.tensor([3, -1, 0, 7]),
    "list": [torch.tensor([3, -1]), mask_rows([{0, 7}])[0]],
}


@pytest.mark.parametrize("form", EXCLUSIONS)
def test_exclusion(form: str) -> None:
    batch = Batch(seed=13)
    exclude = EXCLUSIONS[form](batch.excluded)
    check_per_query(batch.queries(), {**batch.update(), "exclude": exclude}, FEW)


@pytest.mark.parametrize("form", SHARED_EXCLUSIONS)
def test_exclusion_shared_by_all_queries(form: str) -> None:
    batch = Batch(seed=14)
    batch.excluded = [{0, 3, 7}] * len(batch.scores)
    check_per_query(batch.queries(), {**batch.update(), "exclude": SHARED_EXCLUSIONS[form]}, FEW)


# Ranked lists -----------------------------------------------------------------------------------------


def check_lists(lists: Sequence[Sequence[int]], truth: Sequence[Mapping[int, float]], **given: Any) -> None:
    """Each definition through `Ranking.from_ids`, cut at the deepest k and whole."""
    rng = random.Random(15)
    weights = random_weights(rng, len(lists))
    excluded = given.pop("excluded", [set()] * len(lists))
    target = given.pop("target", dense_rows(truth))
    rows = zip(lists, truth, excluded, weights, strict=True)
    queries = as_stored([ref.query_of_ids(ids, gains, -1, out, weight) for ids, gains, out, weight in rows], target)
    for k in (KS, None):
        depth = None if k is None else max(KS)
        ranking = tt.Ranking.from_ids(torch.tensor(lists), target, k=depth, weights=torch.tensor(weights), **given)
        assert len(ranking) == len(lists)
        for key, (name, options) in DEFINITIONS.items():
            metric = tt.registry[name](k=k, **options)
            metric.update(ranking)
            expected = [ref.average_of(name, queries, cut, **options) for cut in (k or (None,))]
            assert metric.compute().reshape(-1).tolist() == approx(expected), (key, k)


@pytest.mark.parametrize("storage", RELEVANCE)
def test_ranked_lists(storage: str) -> None:
    rng = random.Random(16)
    truth = random_truth(rng, 12)
    check_lists(random_lists(rng, 12, repeats=False), truth, target=RELEVANCE[storage](truth))


def test_ranked_lists_with_repeats() -> None:
    rng = random.Random(17)
    check_lists(random_lists(rng, 12, repeats=True), random_truth(rng, 12), duplicates="first")


@pytest.mark.parametrize("form", EXCLUSIONS)
def test_ranked_lists_with_exclusions(form: str) -> None:
    rng = random.Random(18)
    excluded = random_exclusions(rng, 12)
    lists = random_lists(rng, 12, repeats=True)
    exclude = EXCLUSIONS[form](excluded)
    check_lists(lists, random_truth(rng, 12), duplicates="first", excluded=excluded, exclude=exclude)


def test_ranked_lists_of_labels() -> None:
    rng = random.Random(19)
    lists = random_lists(rng, 12, repeats=False)
    labels = [rng.choice([item for item in ids if item >= 0] or [4]) for ids in lists]
    excluded = random_exclusions(rng, 12)
    check_lists(
        lists,
        [{label: 1.0} for label in labels],
        target=torch.tensor(labels),
        exclude=mask_rows([{*out, label} for out, label in zip(excluded, labels, strict=True)]),
        excluded=[out - {label} for out, label in zip(excluded, labels, strict=True)],
    )


def test_ideal_of_candidates_is_not_cut_with_the_list() -> None:
    lists = [[0, 1, 2, 3, 4, 5]]
    gains = {0: 1.0, 4: 3.0, 5: 2.0, 9: 3.0}
    ranking = tt.Ranking.from_ids(torch.tensor(lists), dense_rows([gains]), k=2)
    metric = tt.NDCG(k=2, ideal="candidates")
    metric.update(ranking)
    expected = ref.value("ndcg", ref.query_of_ids(lists[0], gains), 2, ideal="candidates")
    assert metric.compute().item() == approx(expected)
    assert expected == pytest.approx(1 / (3 + 2 / math.log2(3)))


# Nothing is left out of the grid ----------------------------------------------------------------------


def literals(annotation: Any) -> set[Any]:
    """Every value named by a Literal within an annotation."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*map(literals, typing.get_args(annotation)))


def test_every_metric_has_a_reference() -> None:
    assert set(RANKING) == set(ref.REFERENCE)
    assert set(RANKING) == set(OPTIONS)


@pytest.mark.parametrize("name", RANKING)
def test_every_named_option_value_is_compared(name: str) -> None:
    hints = typing.get_type_hints(tt.registry[name].__init__)
    named = {option: literals(hint) for option, hint in hints.items() if literals(hint)}
    for option, values in named.items():
        if option in {"duplicates", "non_finite", "validate"}:
            continue  # how faults are met; no query's value depends on it
        visited = {"ties": TIES, "empty": (*POLICIES["empty"], "error"), **OPTIONS[name]}[option]
        assert values <= {value for value in visited if isinstance(value, str)}, option


# The reference itself ---------------------------------------------------------------------------------


def test_reference_orders_equal_scores_by_id() -> None:
    scores = [1.0, 2.0, 1.0, -math.inf, 2.0]
    assert ref.rank_scores(scores, None, "index") == [1, 4, 0, 2]
    assert ref.rank_scores(scores, 3, "reverse") == [4, 1, 2]
    assert ref.rank_scores(scores, 3, "index", {1}) == [4, 0, 2]


def test_reference_keeps_an_empty_rank_and_closes_a_removed_one() -> None:
    assert ref.rank_ids([5, -1, 5, 7, 3], excluded={7}) == [5, None, 3]


def test_reference_divides_average_precision_by_four_counts() -> None:
    query = ref.query_of_ids(range(6), dict.fromkeys((0, 1, 3, 4, 5), 1.0))
    values = [ref.value("map", query, 3, denominator=count) for count in ("relevant", "capped", "hits", "k")]
    assert values == pytest.approx([0.4, 2 / 3, 1, 2 / 3])


def test_reference_interval_of_a_mean_is_the_textbooks() -> None:
    lists = [[0, 1], [1, 0], [2, 1], [0, 2]]
    queries = [ref.query_of_ids(ids, {0: 1.0}) for ids in lists]
    values = np.array([1.0, 0.5, 0.0, 1.0])
    error = 3.182446305284263 * values.std(ddof=1) / 2
    expected = (0.0, values.mean() + error)  # the lower end would be below 0
    assert ref.interval_of("mrr", queries, None, upper=math.inf) == pytest.approx(expected)
