"""Errors are part of the interface: each says what was given, what was expected, and what to do."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers import PROPENSITIES
from torch import Tensor

import torch_topk as tt
from torch_topk import inputs

SCORES = torch.tensor([[0.1, 0.9, 0.5, 0.3, 0.2], [0.5, 0.1, 0.2, 0.9, 0.3], [0.2, 0.3, 0.9, 0.1, 0.5]])
GAINS = torch.tensor([[1, 0, 0, 2, 0], [0, 0, 1, 0, 0], [0, 3, 0, 0, 1]])
LISTS = torch.tensor([[1, 2, 3], [3, 0, -1], [2, 4, 1]])


def text(*parts: str) -> str:
    """A pattern of literal parts in this order."""
    return ".*".join(map(re.escape, parts))


def raises(kind: type[Exception], *parts: str) -> Any:
    return pytest.raises(kind, match=text(*parts))


# Shapes and types, at once ----------------------------------------------------------------------------

MISFITS: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "scores without a dimension": (
        {"preds": torch.tensor(1.0)},
        ValueError,
        ("scores must be (..., N), but are 0-dimensional",),
    ),
    "complex scores": ({"preds": SCORES.to(torch.complex64)}, TypeError, ("scores must be one of", "complex64")),
    "uint64 scores": (
        {"preds": torch.ones(3, 5, dtype=torch.uint64)},
        TypeError,
        ("scores must be one of", "uint8", "torch.uint64"),
    ),
    "list of scores": ({"preds": SCORES.tolist()}, TypeError, ("scores must be a tensor or a NumPy array", "list")),
    "no target": ({"target": None}, TypeError, ("target is missing", "labels", "Relevance")),
    "list as target": ({"target": [0, 1, 2]}, TypeError, ("target must be a tensor or a NumPy array", "list")),
    "string as target": ({"target": "gains"}, TypeError, ("target must be a tensor or a NumPy array", "str")),
    "ids as target": (
        {"target": torch.zeros(3, 2, dtype=torch.long)},
        ValueError,
        ("target of shape (3, 2) (torch.int64) does not fit scores of shape (3, 5)", "Relevance.from_ids(target)"),
    ),
    "column of labels": (
        {"target": torch.zeros(3, 1, dtype=torch.long)},
        ValueError,
        ("target of shape (3, 1)", "does not fit scores of shape (3, 5)", "one label a query", "target.squeeze(1)"),
    ),
    "column of labels of leading dimensions": (
        {"preds": torch.zeros(2, 3, 5), "target": torch.zeros(2, 3, 1, dtype=torch.int32)},
        ValueError,
        ("target.squeeze(2)",),
    ),
    "floating-point column": (
        {"target": torch.zeros(3, 1)},
        ValueError,
        ("target of shape (3, 1) (torch.float32)", "Expected gains of shape (3, 5), integer labels of shape (3,)"),
    ),
    "floating-point labels": (
        {"target": torch.zeros(3)},
        ValueError,
        ("target of shape (3,) (torch.float32)", "Expected gains of shape (3, 5), integer labels of shape (3,)"),
    ),
    "bool labels": (
        {"target": torch.zeros(3, dtype=torch.bool)},
        ValueError,
        ("(torch.bool)", "integer labels of shape (3,)"),
    ),
    "too many labels": (
        {"target": torch.zeros(4, dtype=torch.long)},
        ValueError,
        ("target of shape (4,)", "integer labels of shape (3,)"),
    ),
    "gains of too many queries": (
        {"target": torch.zeros(4, 5, dtype=torch.long)},
        ValueError,
        ("target of shape (4, 5)", "Expected gains of shape (3, 5)"),
    ),
    "transposed gains": (
        {"target": torch.zeros(5, 3)},
        ValueError,
        ("target of shape (5, 3)", "Expected gains of shape (3, 5)"),
    ),
    "complex gains": (
        {"target": GAINS.to(torch.complex64)},
        TypeError,
        ("gains must be one of", "but are torch.complex64"),
    ),
    "Relevance of too few queries": (
        {"target": tt.Relevance.from_labels(torch.tensor([0]))},
        ValueError,
        ("target holds 1 queries", "scores of shape (3, 5) hold 3"),
    ),
    "Relevance of more items": (
        {"target": tt.Relevance.from_dense(torch.zeros(3, 7))},
        ValueError,
        ("target speaks of 7 items", "scores of shape (3, 5)"),
    ),
    "target on another device": (
        {"target": GAINS.to("meta")},
        ValueError,
        ("target is on meta", "scores are on cpu", "move it there"),
    ),
    "Relevance on another device": (
        {"target": tt.Relevance.from_dense(GAINS.to("meta"))},
        ValueError,
        ("target is on meta", "scores are on cpu", "move it there"),
    ),
    "integer mask": (
        {"exclude": torch.zeros(3, 5, dtype=torch.long)},
        TypeError,
        ("exclude is torch.int64 with as many columns as there are items, 5", "exclude.bool()", "Relevance.from_ids"),
    ),
    "integer mask for all queries": (
        {"exclude": torch.zeros(5, dtype=torch.long)},
        TypeError,
        ("exclude is torch.int64 with as many columns as there are items, 5", "exclude.bool()"),
    ),
    "floating-point mask": (
        {"exclude": torch.zeros(3, 5)},
        TypeError,
        ("exclude must be a bool mask or integer ids, but is torch.float32",),
    ),
    "floating-point ids": ({"exclude": torch.zeros(3, 2)}, TypeError, ("exclude must be a bool mask or integer ids",)),
    "mask of fewer items": (
        {"exclude": torch.zeros(3, 4, dtype=torch.bool)},
        ValueError,
        ("exclude is a mask of 4 items, but there are 5",),
    ),
    "mask of fewer queries": (
        {"exclude": torch.zeros(2, 5, dtype=torch.bool)},
        ValueError,
        ("exclude of shape (2, 5)", "one row for all queries", "3"),
    ),
    "exclusions without a dimension": ({"exclude": torch.tensor(1)}, ValueError, ("exclude of shape ()",)),
    "exclusions of a whole data set": (
        {"exclude": tt.Relevance.from_dense(torch.zeros(9, 5))},
        ValueError,
        ("exclude holds 9 queries", "there are 3", "exclude[rows]"),
    ),
    "exclusions of more items": (
        {"exclude": tt.Relevance.from_dense(torch.zeros(3, 6))},
        ValueError,
        ("6 items", "5 items"),
    ),
    "string as exclusion": ({"exclude": "seen"}, TypeError, ("exclude must be a tensor or a NumPy array", "str")),
    "too many weights": (
        {"weights": torch.ones(4)},
        ValueError,
        ("weights must be a real number a query, of shape (3,)", "torch.float32 of shape (4,)"),
    ),
    "column of weights": ({"weights": torch.ones(3, 1)}, ValueError, ("weights", "(3,)", "(3, 1)")),
    "complex weights": (
        {"weights": torch.ones(3, dtype=torch.complex64)},
        ValueError,
        ("weights", "complex64"),
    ),
    "list of weights": ({"weights": [1, 1, 1]}, TypeError, ("weights must be a tensor or a NumPy array", "list")),
    "floating-point items": ({"items": torch.ones(5)}, TypeError, ("items must hold integer ids", "torch.float32")),
    "too few items": (
        {"items": torch.arange(4)},
        ValueError,
        ("items must have shape (5,) or (3, 5)", "(4,)"),
    ),
}


@pytest.mark.parametrize(("given", "kind", "parts"), MISFITS.values(), ids=MISFITS)
def test_misfit_raises_at_once(given: dict[str, Any], kind: Any, parts: tuple[str, ...]) -> None:
    """A metric, a suite and a functional twin say the same, and what was added before is kept."""
    given = {"preds": SCORES, "target": GAINS, **given}
    metric, suite = tt.NDCG(k=2), tt.TopKMetrics(["ndcg"], k=2)
    for each in (metric, suite):
        each.update(SCORES, GAINS)
        before = each.compute()
        with raises(kind, *parts):
            each.update(**given)
        with raises(kind, *parts):
            each(**given)
        assert each.compute() == before
    with raises(kind, *parts):
        tt.functional.ndcg(**given)
    with raises(kind, *parts):
        tt.Ranking.from_scores(given.pop("preds"), given.pop("target"), 2, **given)


LIST_MISFITS: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "floating-point lists": (
        {"ranked": torch.ones(3, 2)},
        TypeError,
        ("ranked must hold integer ids", "torch.float32"),
    ),
    "list without a dimension": ({"ranked": torch.tensor(1)}, ValueError, ("ranked must be (..., L)",)),
    "Python lists": ({"ranked": [[1]]}, TypeError, ("ranked must be a tensor or a NumPy array", "list")),
    "ids as target": (
        {"target": GAINS},
        ValueError,
        ("target of shape (3, 5) (torch.int64) does not fit ranked of shape (3, 3)", "Relevance.from_ids(target)"),
    ),
    "grades as target": ({"target": GAINS}, ValueError, ("grade for every item", "Relevance.from_dense(target)")),
    "column of labels": ({"target": torch.zeros(3, 1, dtype=torch.long)}, ValueError, ("target.squeeze(1)",)),
    "gains of too many queries": (
        {"target": torch.zeros(4, 7)},
        ValueError,
        ("target of shape (4, 7)", "ranked of shape (3, 3)", "gains of shape (3, "),
    ),
    "no target": ({"target": None}, TypeError, ("target is missing",)),
    "integer mask": (
        {"target": GAINS.bool(), "exclude": torch.zeros(3, 5, dtype=torch.long)},
        TypeError,
        ("exclude", "exclude.bool()"),
    ),
    "k": ({"k": 0}, ValueError, ("k must be at least 1", "0")),
    "duplicates": ({"duplicates": "last"}, ValueError, ("duplicates must be one of 'error', 'first'", "'last'")),
    "validate": ({"validate": True}, ValueError, ("validate must be one of 'compute', 'now', 'off'", "True")),
}


@pytest.mark.parametrize(("given", "kind", "parts"), LIST_MISFITS.values(), ids=LIST_MISFITS)
def test_misfit_of_ranked_lists(given: dict[str, Any], kind: type[Exception], parts: tuple[str, ...]) -> None:
    given = {"ranked": LISTS, "target": GAINS.bool(), **given}
    with raises(kind, *parts):
        tt.Ranking.from_ids(given.pop("ranked"), given.pop("target"), **given)


TRUTHS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "dense without a dimension": (
        lambda: tt.Relevance.from_dense(torch.tensor(5)),
        ValueError,
        ("gains must be (..., N), but are 0-dimensional",),
    ),
    "floating-point ids": (
        lambda: tt.Relevance.from_ids(torch.ones(1, 1)),
        TypeError,
        ("ids must hold integer ids", "torch.float32"),
    ),
    "bool ids": (
        lambda: tt.Relevance.from_ids(torch.ones(1, 1).bool()),
        TypeError,
        ("ids must hold integer ids", "torch.bool"),
    ),
    "ids without a dimension": (lambda: tt.Relevance.from_ids(torch.tensor(5)), ValueError, ("ids must be (..., R)",)),
    "gains unlike ids": (
        lambda: tt.Relevance.from_ids(torch.ones(1, 2).long(), torch.ones(2)),
        ValueError,
        ("gains must have the shape of ids, (1, 2), but have (2,)",),
    ),
    "floating-point labels": (
        lambda: tt.Relevance.from_labels(torch.ones(1)),
        TypeError,
        ("labels must hold integer ids",),
    ),
    "dense as sparse": (
        lambda: tt.Relevance.from_sparse(torch.zeros(2, 2)),
        TypeError,
        ("matrix must be a torch CSR or COO tensor, or a SciPy sparse matrix", "strided"),
    ),
    "list as sparse": (lambda: tt.Relevance.from_sparse([1]), TypeError, ("matrix must be", "list")),
    "query beyond the last": (
        lambda: tt.Relevance.from_coo(torch.tensor([5]), torch.tensor([1]), num_queries=2),
        ValueError,
        ("query must lie in 0..1 (num_queries=2)", "5"),
    ),
    "pairs of two lengths": (
        lambda: tt.Relevance.from_coo(torch.tensor([0]), torch.tensor([1, 2]), num_queries=2),
        ValueError,
        ("query, item and gains must be 1-D and of one length", "(1,)", "(2,)"),
    ),
    "mask of numbers": (
        lambda: tt.Relevance.from_dense(GAINS).keep(torch.zeros(5)),
        ValueError,
        ("item_mask must be bool and (N,)", "torch.float32 of shape (5,)"),
    ),
    "floating-point rows": (
        lambda: tt.Relevance.from_dense(GAINS)[torch.zeros(2)],
        TypeError,
        ("rows must be a slice, a 1-D bool mask or 1-D indices", "torch.float32"),
    ),
    "one row": (lambda: tt.Relevance.from_dense(GAINS)[1], TypeError, ("rows must be a slice",)),
}


@pytest.mark.parametrize(("make", "kind", "parts"), TRUTHS.values(), ids=TRUTHS)
def test_misfit_of_truth(make: Callable[[], Any], kind: type[Exception], parts: tuple[str, ...]) -> None:
    with raises(kind, *parts):
        make()


# Definitions ------------------------------------------------------------------------------------------

BAD_CUTOFFS: list[tuple[Any, type[Exception], str]] = [
    (0, ValueError, "k must be at least 1, but is 0"),
    (-1, ValueError, "k must be at least 1, but is -1"),
    ([5, 0], ValueError, "k must be at least 1, but is [5, 0]"),
    (2.5, TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is 2.5"),
    (True, TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is True"),
    ("5", TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is '5'"),
    ([1, "5"], TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is [1, '5']"),
    ([1, None], TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is [1, None]"),
    ({1: 2}, TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is {1: 2}"),
    ([], ValueError, "k must hold at least one cut-off, and each only once, but is []"),
    ([1, 1], ValueError, "k must hold at least one cut-off, and each only once, but is [1, 1]"),
    (np.array([3, 3]), ValueError, "k must hold at least one cut-off, and each only once, but is [3, 3]"),
    (torch.tensor(1.0), TypeError, "k must be an int, a sequence of ints, or None for the whole list, but is 1.0"),
]


@pytest.mark.parametrize(("k", "kind", "part"), BAD_CUTOFFS, ids=lambda value: repr(value)[:20])
def test_k(k: Any, kind: type[Exception], part: str) -> None:
    makers: list[Callable[[Any], Any]] = [
        tt.NDCG,
        lambda k: tt.TopKMetrics(["ndcg", "recall"], k=k),
        lambda k: tt.TopKMetrics([{"name": "ndcg", "k": k}]),
        lambda k: tt.functional.ndcg(SCORES, GAINS, k=k),
        lambda k: tt.Ranking.from_scores(SCORES, GAINS, k),
    ]
    for make in makers:
        with raises(kind, part):
            make(k)


@pytest.mark.parametrize("k", [np.int64(3), np.array([1, 3]), torch.tensor([1, 3]), (1, 3), range(1, 4)], ids=repr)
def test_k_of_another_library(k: Any) -> None:
    assert all(type(cutoff) is int for cutoff in tt.NDCG(k=k).cutoffs)


BAD_OPTIONS: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "ties": (lambda: tt.NDCG(ties="random"), ValueError, ("ties must be one of 'index', 'reverse'", "'random'")),
    "empty": (
        lambda: tt.NDCG(empty="drop"),
        ValueError,
        ("empty must be one of 'zero', 'one', 'skip', 'nan', 'error'", "'drop'"),
    ),
    "non_finite": (
        lambda: tt.NDCG(non_finite="first"),
        ValueError,
        ("non_finite must be one of 'error', 'last'", "'first'"),
    ),
    "duplicates": (
        lambda: tt.NDCG(duplicates="last"),
        ValueError,
        ("duplicates must be one of 'error', 'first'", "'last'"),
    ),
    "validate": (
        lambda: tt.TopKMetrics(["ndcg"], validate="never"),
        ValueError,
        ("validate must be one of 'compute', 'now', 'off'", "'never'"),
    ),
    "min_relevance of 0": (
        lambda: tt.NDCG(min_relevance=0),
        ValueError,
        ("min_relevance must be", "above 0", "0"),
    ),
    "min_relevance of NaN": (lambda: tt.NDCG(min_relevance=math.nan), ValueError, ("min_relevance must be", "nan")),
    "min_relevance of text": (
        lambda: tt.NDCG(min_relevance="2"),
        ValueError,
        ("min_relevance must be", "'2'"),
    ),
    "ignore_index": (lambda: tt.NDCG(ignore_index=1.5), ValueError, ("ignore_index must be an int, but is 1.5",)),
    "dataset_size of 0": (
        lambda: tt.NDCG(dataset_size=0),
        ValueError,
        ("dataset_size must be an int of at least 1, but is 0",),
    ),
    "dataset_size of True": (lambda: tt.NDCG(dataset_size=True), ValueError, ("dataset_size", "True")),
    "beta": (lambda: tt.FBeta(beta=0), ValueError, ("beta must be a finite number above 0, but is 0",)),
    "beta of text": (lambda: tt.FBeta(beta="1"), ValueError, ("beta must be a finite number above 0, but is '1'",)),
    "average": (
        lambda: tt.Precision(average="samples"),
        ValueError,
        ("average must be one of 'macro', 'micro'", "'samples'"),
    ),
    "pooled empty": (
        lambda: tt.Recall(average="micro", empty="one"),
        ValueError,
        ("empty='one'", "average='micro'"),
    ),
    "denominator of precision": (
        lambda: tt.Precision(denominator="n"),
        ValueError,
        ("denominator must be one of 'k', 'retrieved', 'relevant'", "'n'"),
    ),
    "denominator of recall": (
        lambda: tt.Recall(denominator="k"),
        ValueError,
        ("denominator must be one of 'relevant', 'capped'", "'k'"),
    ),
    "denominator of map": (
        lambda: tt.MAP(denominator="r"),
        ValueError,
        ("denominator must be one of 'capped', 'relevant', 'hits', 'k'", "'r'"),
    ),
    "gain": (
        lambda: tt.NDCG(gain="log"),
        ValueError,
        ("gain must be 'linear', 'exp', 'binary' or a mapping of grades", "'log'"),
    ),
    "gain of nothing": (lambda: tt.NDCG(gain={}), ValueError, ("gain must map grades to finite numbers", "{}")),
    "gain below 0": (lambda: tt.DCG(gain={1: -1}), ValueError, ("gain must map grades", "at least 0", "{1: -1}")),
    "gain of grade 0": (lambda: tt.DCG(gain={0: 1, 1: 2}), ValueError, ("gain must map grades of 0 or less", "to 0")),
    "gain of names": (
        lambda: tt.DCG(gain={"good": 1}),
        ValueError,
        ("gain must map grades", "{'good': 1}"),
    ),
    "ideal": (
        lambda: tt.NDCG(ideal="retrieved"),
        ValueError,
        ("ideal must be one of 'relevant', 'candidates'", "'retrieved'"),
    ),
    "unknown option of a class": (
        lambda: tt.NDCG(k=3, gian="exp"),
        TypeError,
        ("NDCG has no option 'gian'", "Did you mean 'gain'?", "It takes k, gain, ideal, ties"),
    ),
    "unknown option of a twin": (
        lambda: tt.functional.map(SCORES, GAINS, denominater="k"),
        TypeError,
        ("MAP has no option 'denominater'", "Did you mean 'denominator'?"),
    ),
    "unknown option by name": (
        lambda: tt.TopKMetrics(["map(denominater=k)"]),
        TypeError,
        ("MAP has no option 'denominater'", "Did you mean 'denominator'?", "It takes k, denominator, ties"),
    ),
    "option of another metric": (
        lambda: tt.TopKMetrics([{"name": "mrr", "gain": "exp"}]),
        TypeError,
        ("MRR has no option 'gain'", "It takes k, ties"),
    ),
    "unknown argument of a suite": (
        lambda: tt.TopKMetrics(["ndcg"], prefux="val/"),
        TypeError,
        ("'prefux'", "Did you mean 'prefix'?"),
    ),
    "unknown name": (
        lambda: tt.TopKMetrics(["ngcd@10"]),
        ValueError,
        ("'ngcd' is no metric", "Did you mean 'ndcg'?", "Known are precision, recall"),
    ),
    "unknown long name": (
        lambda: tt.TopKMetrics(["reccall"]),
        ValueError,
        ("'reccall' is no metric", "Did you mean 'recall'?"),
    ),
    "name unlike any": (lambda: tt.TopKMetrics(["qqqqq"]), ValueError, ("'qqqqq' is no metric. Known are precision",)),
    "unknown twin": (
        lambda: tt.functional.ndgc,
        AttributeError,
        ("torch_topk.functional has no 'ndgc'", "precision, recall"),
    ),
    "equal keys": (
        lambda: tt.TopKMetrics(["ndcg@5", "ndcg"], k=[1, 5]),
        ValueError,
        ("Two metrics have the key 'ndcg@5'", "rename one", "{'new_name': metric}"),
    ),
    "equal names after renaming": (
        lambda: tt.TopKMetrics([tt.NDCG(k=5), tt.NDCG(k=5, gain="exp")], prefix="val/"),
        ValueError,
        ("Two metrics have the key 'val/ndcg@5'",),
    ),
    "no metric": (lambda: tt.TopKMetrics([]), ValueError, ("metrics must name at least one metric, but is empty",)),
    "number as metrics": (lambda: tt.TopKMetrics(3), TypeError, ("metrics must be names, metrics, or a mapping", "3")),
    "number as metric": (
        lambda: tt.TopKMetrics(["ndcg", 3]),
        TypeError,
        ("A metric must be a name, a metric, or a mapping with a name", "3"),
    ),
    "options without a name": (
        lambda: tt.TopKMetrics([{"k": 3}]),
        TypeError,
        ("A metric must be a name", "{'k': 3}"),
    ),
    "prefix": (lambda: tt.TopKMetrics(["ndcg"], prefix=3), TypeError, ("prefix must be a str, but is 3",)),
    "at": (lambda: tt.TopKMetrics(["ndcg"], at=None), TypeError, ("at must be a str, but is None",)),
    "level": (lambda: tt.NDCG().intervals(95), ValueError, ("level must be between 0 and 1, but is 95",)),
    **{
        f"{name} of a metric that the suite has otherwise": (
            lambda name=name, value=value: tt.TopKMetrics(["mrr", tt.NDCG(**{name: value})]),
            ValueError,
            ("NDCG(k=10", f"has {name}={value!r}", "one ranking serves the whole suite"),
        )
        for name, value in {
            "ties": "reverse",
            "duplicates": "first",
            "non_finite": "last",
            "validate": "now",
            "ignore_index": -1,
            "dataset_size": 9,
        }.items()
    },
}


@pytest.mark.parametrize(("make", "kind", "parts"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_definition(make: Callable[[], Any], kind: Any, parts: tuple[str, ...]) -> None:
    with raises(kind, *parts):
        make()


def test_metric_with_the_policies_of_the_suite_is_taken() -> None:
    suite = tt.TopKMetrics([tt.NDCG(ties="reverse", empty="skip"), tt.MRR()], ties="reverse")
    assert suite.keys() == ("ndcg@10", "mrr@10")


# Rankings given in place of scores --------------------------------------------------------------------

BAD_RANKINGS: dict[str, tuple[Callable[[tt.Ranking], Any], tuple[str, ...]]] = {
    "too shallow": (lambda ranking: tt.NDCG(k=3).update(ranking), ("The Ranking holds 2 ranks", "needs k=3")),
    "too shallow for a suite": (
        lambda ranking: tt.TopKMetrics(["mrr@2", "ndcg@1,4"]).update(ranking),
        ("The Ranking holds 2 ranks", "needs k=4"),
    ),
    "too shallow for the whole list": (
        lambda ranking: tt.NDCG(k=None).update(ranking),
        ("The Ranking holds 2 ranks", "needs k=None, the whole list"),
    ),
    "too shallow for forward": (tt.NDCG(k=3), ("holds 2 ranks",)),
    "too shallow for a twin": (lambda ranking: tt.functional.ndcg(ranking, k=3), ("holds 2 ranks", "needs k=3")),
    "other ties": (
        lambda ranking: tt.NDCG(k=2, ties="reverse").update(ranking),
        ("The Ranking has ties='index'", "ties='reverse'"),
    ),
    "truth given twice": (
        lambda ranking: tt.NDCG(k=2).update(ranking, GAINS, weights=torch.ones(3)),
        ("A Ranking holds its truth, exclusions and weights", "target, weights"),
    ),
}


@pytest.mark.parametrize(("use", "parts"), BAD_RANKINGS.values(), ids=BAD_RANKINGS)
def test_ranking_that_does_not_serve(use: Callable[[tt.Ranking], Any], parts: tuple[str, ...]) -> None:
    ranking = tt.Ranking.from_scores(SCORES, GAINS, 2)
    with raises(ValueError, *parts):
        use(ranking)


def test_order_that_was_given_serves_any_ties() -> None:
    ranking = tt.Ranking.from_ids(LISTS, GAINS.bool())
    for ties in ("index", "reverse"):
        tt.MRR(k=None, ties=ties).update(ranking)
        tt.MRR(k=50, ties=ties).update(ranking)


# Faults that only the data show -----------------------------------------------------------------------


def scores_with_nan() -> dict[str, Any]:
    broken = SCORES.clone()
    broken[[0, 2], [1, 4]] = math.nan
    return {"preds": broken, "target": GAINS}


def ranked(lists: Any, target: Any = None, **given: Any) -> dict[str, Any]:
    target = GAINS.bool() if target is None else target
    return {"preds": tt.Ranking.from_ids(torch.as_tensor(lists), target, **given)}


def ids(rows: list[list[int]], gains: list[list[float]] | None = None) -> tt.Relevance:
    return tt.Relevance.from_ids(torch.tensor(rows), None if gains is None else torch.tensor(gains))


Fault = tuple[Callable[[], dict[str, Any]], dict[str, Any], tuple[str, ...]]
FAULTS: dict[str, Fault] = {
    "NaN scores": (scores_with_nan, {}, ("2 queries have a NaN score", "non_finite='last'")),
    "NaN scores and labels": (
        lambda: {**scores_with_nan(), "target": torch.tensor([0, 1, 2])},
        {},
        ("2 queries have a NaN score",),
    ),
    "label below 0": (
        lambda: {"preds": SCORES, "target": torch.tensor([0, -1, 2])},
        {},
        ("1 query has a relevant item id below 0 or not below the number of items", "ignore_index"),
    ),
    "label of another ignore_index": (
        lambda: {"preds": SCORES, "target": torch.tensor([0, -1, -100])},
        {"ignore_index": -100},
        ("1 query has a relevant item id below 0",),
    ),
    "label beyond the last item": (
        lambda: {"preds": SCORES, "target": torch.tensor([5, 1, 9])},
        {},
        ("2 queries have a relevant item id", "not below the number of items"),
    ),
    "relevant id beyond the last item": (
        lambda: {"preds": SCORES, "target": ids([[0, 7], [1, -1], [2, 3]])},
        {},
        ("1 query has a relevant item id",),
    ),
    "relevant id below 0": (
        lambda: {"preds": SCORES, "target": ids([[0, -2], [1, -1], [2, -3]])},
        {},
        ("2 queries have a relevant item id below 0",),
    ),
    "relevant pair beyond the last item": (
        lambda: {
            "preds": SCORES,
            "target": tt.Relevance.from_coo(torch.tensor([0, 2]), torch.tensor([5, 4]), num_queries=3),
        },
        {},
        ("1 query has a relevant item id",),
    ),
    "excluded id beyond the last item": (
        lambda: {"preds": SCORES, "target": GAINS, "exclude": torch.tensor([[0, 5], [1, -1], [6, 7]])},
        {},
        ("2 queries have an excluded id", "padding, -1"),
    ),
    "excluded id below -1": (
        lambda: {"preds": SCORES, "target": GAINS, "exclude": torch.tensor([-2, 3])},
        {},
        ("3 queries have an excluded id below 0",),
    ),
    "ranked id below 0": (
        lambda: ranked([[1, -2], [0, -1], [2, 3]]),
        {},
        ("1 query has a ranked item id below 0",),
    ),
    "ranked id beyond the last item": (
        lambda: ranked([[1, 5], [0, 6], [2, 3]]),
        {},
        ("2 queries have a ranked item id", "not below the number of items"),
    ),
    "item ranked twice": (
        lambda: ranked([[1, 1], [0, 2], [3, 3]]),
        {},
        ("2 queries have an item that is ranked more than once", "duplicates='first'"),
    ),
    "item named twice": (
        lambda: {"preds": SCORES, "target": GAINS, "items": torch.tensor([0, 1, 1, 2, 3])},
        {},
        ("3 queries have an item that is ranked more than once",),
    ),
    "NaN gain": (
        lambda: {"preds": SCORES, "target": GAINS.float().masked_fill(GAINS == 3, math.nan)},
        {},
        ("1 query has a gain that is NaN or infinite",),
    ),
    "infinite gain": (
        lambda: {"preds": SCORES, "target": GAINS.float().masked_fill(GAINS == 3, math.inf)},
        {},
        ("1 query has a gain that is NaN or infinite",),
    ),
    "NaN gain of a listed id": (
        lambda: {"preds": SCORES, "target": ids([[0], [1], [2]], [[1.0], [math.nan], [2.0]])},
        {},
        ("1 query has a gain that is NaN or infinite",),
    ),
    "grade without a worth": (
        lambda: {"preds": SCORES, "target": GAINS},
        {"gain": {1: 1, 2: 3}},
        ("1 query has a positive grade that the mapping given as gain does not list", "add it"),
    ),
    "negative weight": (
        lambda: {"preds": SCORES, "target": GAINS, "weights": torch.tensor([1.0, -1.0, 0.0])},
        {},
        ("1 query has a weight that is negative, NaN or infinite",),
    ),
    "NaN and infinite weights": (
        lambda: {"preds": SCORES, "target": GAINS, "weights": torch.tensor([math.nan, 1.0, math.inf])},
        {},
        ("2 queries have a weight that is negative, NaN or infinite",),
    ),
    "no relevant item": (
        lambda: {"preds": SCORES, "target": GAINS * torch.tensor([[1], [0], [0]])},
        {"empty": "error"},
        ("2 queries have no relevant item, which empty='error' forbids", "another value, such as 'zero' or 'skip'"),
    ),
    "two faults": (
        lambda: {**scores_with_nan(), "weights": torch.tensor([1.0, 1.0, -1.0])},
        {},
        ("2 queries have a NaN score", "; 1 query has a weight that is negative", "."),
    ),
}
each_fault = pytest.mark.parametrize(("make", "options", "parts"), FAULTS.values(), ids=FAULTS)


def state_of(metric: Any) -> Tensor:
    state: Tensor = next(iter(metric.metric_state.values()))
    return state


@each_fault
def test_fault_waits_for_compute(
    make: Callable[[], dict[str, Any]], options: dict[str, Any], parts: tuple[str, ...]
) -> None:
    metric = tt.NDCG(k=2, **options)
    suite = tt.TopKMetrics([{"name": "ndcg", **options}], k=2, **{k: v for k, v in options.items() if k != "gain"})
    expected = tt.NDCG(k=2, gain=options.get("gain", "linear"))
    good = GAINS.clamp(max=2)
    expected.update(SCORES, good)
    for each, name in ((metric, "NDCG: "), (suite, "TopKMetrics: ")):
        each.update(**make())
        each.update(SCORES, good)
        for _ in range(2):  # and again: it is not forgotten
            with raises(tt.InputError, name, *parts):
                each.compute()
            assert not each._is_synced
        with raises(tt.InputError, name, *parts):
            each.intervals()
        each.reset()
        each.update(SCORES, good)
        value = each.compute()
        assert (value["ndcg@2"] if isinstance(value, dict) else value) == expected.compute()
        each(**make())  # the batch's own value, without a read
        with raises(tt.InputError, name, *parts):
            each.compute()


@each_fault
def test_fault_is_raised_at_once(
    make: Callable[[], dict[str, Any]], options: dict[str, Any], parts: tuple[str, ...]
) -> None:
    metric = tt.NDCG(k=2, validate="now", **options)
    metric.update(SCORES, GAINS.clamp(max=2))
    before, value = state_of(metric).clone(), metric.compute()
    with raises(tt.InputError, *parts):
        metric.update(**make())
    with raises(tt.InputError, *parts):
        metric(**make())
    assert torch.equal(state_of(metric), before)  # nothing of the batch was added
    assert metric.compute() == value
    with raises(tt.InputError, *parts):
        tt.functional.ndcg(**make(), k=2, **options)


@each_fault
def test_fault_is_not_looked_for(
    make: Callable[[], dict[str, Any]], options: dict[str, Any], parts: tuple[str, ...]
) -> None:
    metric = tt.NDCG(k=2, validate="off", **options)
    metric.update(**make())
    metric.compute()
    assert tt.functional.ndcg(**make(), k=2, validate="off", **options).shape == (3,)


# What only the numbers or labels that a metric was made for make a fault.
OWN_FAULTS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = {
    "ranked item beyond the propensities": (
        partial(tt.PSP, k=2, propensities=PROPENSITIES[:4]),
        {"target": torch.tensor([1, 3, 2])},
        ("PSP: 1 query has a ranked or relevant item id for which propensities", "give one for each item"),
    ),
    "label beyond the propensities": (
        partial(tt.PSNDCG, k=1, propensities=PROPENSITIES[:4]),
        {"target": torch.tensor([4, 0, 4]), "exclude": torch.tensor([4])},
        ("PSNDCG: 2 queries have a ranked or relevant item id for which propensities", "give one for each item"),
    ),
    "relevant id beyond the propensities": (
        partial(tt.PSP, k=1, propensities=PROPENSITIES[:4]),
        {"target": ids([[0, 4], [1, -1], [2, 3]])},
        ("PSP: 1 query has a ranked or relevant item id for which propensities", "give one for each item"),
    ),
    "counts without a target": (
        tt.MeanRank,
        {
            "preds": tt.RankCounts.from_counts(
                greater=torch.tensor([0, 0]), at_least=torch.tensor([0, 1]), candidates=torch.tensor([3, 3])
            )
        },
        ("MeanRank: 1 query has counts that contradict each other",),
    ),
    "target that is no candidate": (
        tt.MeanRank,
        {"target": torch.tensor([0, 1, 2]), "preds": torch.full((3, 5), float("-inf"))},
        ("MeanRank: 3 queries have a target of the lowest score",),
    ),
    "grade beyond the scale": (
        partial(tt.ERR, k=1, max_grade=1),
        {"target": GAINS},
        ("ERR: 2 queries have a grade above max_grade, the highest of the scale",),
    ),
    "half a row": (
        partial(tt.LabelPrecision, 5, k=2),
        {"target": GAINS, "weights": torch.tensor([1.0, 0.5, 0.0])},
        (
            "LabelPrecision: 1 query has a weight other than 0 and 1",
            "where rows are counted in whole numbers",
        ),
    ),
}


@pytest.mark.parametrize(("maker", "given", "parts"), OWN_FAULTS.values(), ids=OWN_FAULTS)
def test_fault_of_one_metric(maker: Callable[..., Any], given: dict[str, Any], parts: tuple[str, ...]) -> None:
    metric, at_once, unseeing = (maker(validate=when) for when in ("compute", "now", "off"))
    batch = {"preds": SCORES, **given}
    metric.update(**batch)
    for _ in range(2):
        with raises(tt.InputError, *parts):
            metric.compute()
    with raises(tt.InputError, *parts):
        at_once.update(**batch)
    assert not any(state.any() for state in at_once.metric_state.values())
    unseeing.update(**batch)
    assert 0 <= unseeing.compute() <= 1


@pytest.mark.parametrize("name", ["psp", "psndcg"])
def test_truth_of_more_items_than_have_numbers(name: str) -> None:
    """A matrix has no id to be at fault, and its width is known at once."""
    metric = tt.registry[name](k=2, propensities=PROPENSITIES[:4])
    twin = partial(getattr(tt.functional, name), k=2, propensities=PROPENSITIES[:4])
    ranking = tt.Ranking.from_ids(LISTS, tt.Relevance.from_dense(GAINS))
    for use in (metric.update, metric, twin):
        for given in ((SCORES, GAINS), (ranking,)):
            with raises(ValueError, "propensities are of 4 labels, but the truth speaks of 5"):
                use(*given)
    assert metric.num_queries == 0


NO_INDEX = "2 queries have an index below 0 or not below num_queries"


def test_row_of_no_query() -> None:
    index = torch.tensor([0, -1, 1, 2])
    ranking = tt.Ranking.from_flat(torch.rand(4), torch.tensor([1, 1, 0, 0]), index, 2, num_queries=2)
    with raises(tt.InputError, NO_INDEX):
        ranking.check()
    assert ranking.ids.tolist() == [[0, -1], [2, -1]]


NO_GROUP = "2 queries have a group below 0 (and not -1, for none) or not below the number of groups"


def test_group_that_there_is_not() -> None:
    suites = [tt.TopKMetrics(["ndcg"], k=2, slices={"way": 2}, validate=when) for when in ("compute", "now", "off")]
    given = {"preds": SCORES, "target": GAINS, "groups": {"way": torch.tensor([-2, 1, 2])}}
    suites[0].update(**given)
    with raises(tt.InputError, NO_GROUP):
        suites[0].compute()
    with raises(tt.InputError, NO_GROUP):
        suites[1].update(**given)
    suites[2].update(**given)
    assert suites[2].compute()["ndcg@2/way/0"].isnan()


def test_every_fault_is_met_above() -> None:
    parts = [NO_GROUP, NO_INDEX, *(part for *_, parts in (*FAULTS.values(), *OWN_FAULTS.values()) for part in parts)]
    met = [re.sub(r".*\d quer(y has|ies have) ", "", part) for part in parts]
    assert not [name for name, said in inputs.FAULTS.items() if not any(map(said.startswith, met))]


def test_counts_are_of_queries_over_all_batches() -> None:
    suite = tt.TopKMetrics(["ndcg", "recall", "mrr"], k=[1, 2])
    for _ in range(3):
        suite.update(**scores_with_nan())
    with raises(tt.InputError, "6 queries have a NaN score"):
        suite.compute()


def test_faults_travel_with_the_state() -> None:
    faulty, metric = tt.NDCG(k=2), tt.NDCG(k=2)
    faulty.update(**scores_with_nan())
    metric.update(SCORES, GAINS)
    metric.merge_state(faulty)
    with raises(tt.InputError, "2 queries have a NaN score"):
        metric.compute()


def test_ranking_raises_when_asked() -> None:
    given = scores_with_nan()
    scores, target = given["preds"], given["target"]
    with raises(tt.InputError, "Ranking: 2 queries have a NaN score"):
        tt.Ranking.from_scores(scores, target, 2).check()
    with raises(tt.InputError, "Ranking: 2 queries have a NaN score"):
        tt.Ranking.from_scores(scores, target, 2, validate="now")
    tt.Ranking.from_scores(scores, target, 2, validate="off").check()
    with raises(tt.InputError, "Ranking: 1 query has an item that is ranked more than once"):
        tt.Ranking.from_ids(torch.tensor([[1, 1], [1, 2], [2, 3]]), GAINS.bool(), validate="now")


def test_query_that_does_not_count_has_no_fault() -> None:
    metric = tt.NDCG(k=2, ignore_index=-100, empty="error")
    metric.update(**{**scores_with_nan(), "target": torch.tensor([-100, 1, -100])})
    metric.compute()


def test_nan_that_is_excluded_has_no_fault() -> None:
    given = scores_with_nan()
    metric = tt.NDCG(k=2)
    metric.update(**given, exclude=given["preds"].isnan())
    metric.compute()


def test_infinite_scores_are_no_fault() -> None:
    metric = tt.MRR(k=None)
    metric.update(torch.tensor([[math.inf, 1.0, -math.inf]]), torch.tensor([1]))
    assert metric.compute().item() == 0.5


@pytest.mark.parametrize("given", [GAINS, GAINS.bool(), torch.tensor([0, 1, 2])], ids=["grades", "bool", "labels"])
def test_error_kind_can_be_caught_as_a_value_error(given: Tensor) -> None:
    with pytest.raises(ValueError, match="NaN score"):
        tt.functional.ndcg(SCORES * math.nan, given)


# State ------------------------------------------------------------------------------------------------


def test_more_samples_than_the_data_set_has() -> None:
    metric = tt.NDCG(k=2, dataset_size=5)
    metric.update(SCORES, GAINS)
    with raises(ValueError, "dataset_size is 5", "at most 5 samples", "6 were seen since the last reset()"):
        metric.update(SCORES, GAINS)
    metric.reset()
    metric.update(SCORES, GAINS)


def test_merging_another_metric() -> None:
    for other in (tt.NDCG(k=3), tt.NDCG(k=2, gain="exp"), tt.DCG(k=2), tt.TopKMetrics(["ndcg"], k=2)):
        with raises(ValueError, "The state to merge belongs to another metric or other options than NDCG(k=2"):
            tt.NDCG(k=2).merge_state(other)


def test_loading_the_state_of_other_options() -> None:
    saved, metric = tt.NDCG(k=3), tt.NDCG(k=2)
    for each in (saved, metric):
        each.persistent(mode=True)
    with raises(RuntimeError, "is the state of another metric or other options than NDCG(k=2"):
        metric.load_state_dict(saved.state_dict())


def test_scores_on_another_device() -> None:
    with raises(RuntimeError, "the scores are on meta, but this NDCG is on cpu", ".to('meta')"):
        tt.NDCG(k=2).update(SCORES.to("meta"), GAINS.to("meta"))


def test_compute_before_any_update() -> None:
    for each in (tt.NDCG(k=[1, 2]), tt.TopKMetrics(["ndcg"], k=[1, 2])):
        with pytest.warns(UserWarning, match="before the ``update`` method"):
            value = each.compute()
        values = list(value.values()) if isinstance(value, dict) else value
        assert torch.stack(list(values)).isnan().all()
