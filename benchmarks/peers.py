"""The suite of the benchmarks, and the same numbers from other libraries, each in the form that it likes best.

Every library but torch and torchmetrics is optional, so each is imported by the function that needs it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from measuring import missing
from torch import Tensor
from torchmetrics import Metric, MetricCollection, retrieval
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)

import torch_topk as tt

METRICS = ["precision", "recall", "f1", "hit_rate", "mrr", "map", "ndcg"]
PYG = ["Precision", "Recall", "F1", "HitRatio", "MRR", "MAP", "NDCG"]
CUTOFFS = [1, 5, 10, 20]
FIVE = ["precision", "recall", "mrr", "map", "ndcg"]

PACKAGES = {
    "torch_geometric": "torch-geometric",
    "torcheval": "torcheval",
    "ignite": "pytorch-ignite",
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "pytrec_eval": "pytrec_eval-terrier",
    "ranx": "ranx",
    "pykeen": "pykeen",
}
"""The optional peers: module and package."""

OURS = "torch-topk"
Values: TypeAlias = Mapping[str, float]
Peers: TypeAlias = dict[str, Callable[[], Values]]


def make_suite(metrics: list[str] | None = None, cutoffs: list[int] | None = None) -> tt.TopKMetrics:
    """The suite of the bars, or a part of it."""
    return tt.TopKMetrics(metrics or METRICS, k=cutoffs or CUTOFFS)


def make_pyg(names: list[str] | None = None, cutoffs: list[int] | None = None) -> Any:
    """PyTorch Geometric's collection of the same metrics."""
    from torch_geometric import metrics

    pairs = [(name, k) for name in names or PYG for k in cutoffs or CUTOFFS]
    return metrics.LinkPredMetricCollection([getattr(metrics, f"LinkPred{name}")(k=k) for name, k in pairs])


def make_collection(labels: int, k: int = 5) -> MetricCollection:
    """TorchMetrics' collection of macro precision, recall and F1 of labels, one update for all three."""
    scores = {"precision": MulticlassPrecision, "recall": MulticlassRecall, "f1": MulticlassF1Score}
    return MetricCollection({name: score(labels, top_k=k, validate_args=False) for name, score in scores.items()})


def edges_of(ids: Tensor) -> Tensor:
    """Relevant ids as PyTorch Geometric takes them."""
    return torch.stack([torch.arange(len(ids)).repeat_interleave(ids.shape[1]), ids.flatten()])


def differs_from_pyg(scores: Tensor, ids: Tensor) -> float:
    """The largest difference between a value of the suite and PyTorch Geometric's."""
    ours, peer = make_suite(), make_pyg()
    ours.update(scores, tt.Relevance.from_ids(ids))
    peer.update(scores.topk(max(CUTOFFS)).indices, edges_of(ids))
    pairs = zip(ours.compute().values(), peer.compute().values(), strict=True)
    return max(abs(float(a) - float(b)) for a, b in pairs)


def _ours(metrics: list[str], scores: Tensor, target: Tensor) -> Callable[[], Values]:
    suite = tt.TopKMetrics(metrics, k=10)

    def run() -> Values:
        suite.reset()
        suite.update(scores, target)
        return {key.partition("@")[0]: float(value) for key, value in suite.compute().items()}

    return run


def _of_batch(metric: Metric | MetricCollection, *args: Tensor, **kwargs: Tensor) -> Any:
    metric.reset()
    metric.update(*args, **kwargs)
    return metric.compute()


def _pyg(keys: list[str], collection: Any, scores: Tensor, *truth: Tensor) -> Callable[[], Values]:
    def run() -> Values:
        for metric in collection.values():
            metric.reset()
        collection.update(scores.topk(10).indices, *truth)
        return dict(zip(keys, map(float, collection.compute().values()), strict=True))

    return run


def of_grades(scores: Tensor, grades: Tensor, *, compiling: bool) -> tuple[Peers, Values]:
    """NDCG at 10 of graded truth from every peer, ours first; and our values."""
    found: Peers = {OURS: _ours(["ndcg"], scores, grades)}
    index = torch.arange(len(scores)).repeat_interleave(scores.shape[1])
    metric = retrieval.RetrievalNormalizedDCG(top_k=10)
    flat = scores.flatten(), grades.flatten()
    found["TorchMetrics RetrievalNormalizedDCG"] = lambda: {"ndcg": float(_of_batch(metric, *flat, indexes=index))}
    if not missing("torch_geometric"):
        from torch_geometric.metrics import LinkPredMetricCollection, LinkPredNDCG

        edges = grades.nonzero().T
        collection = LinkPredMetricCollection([LinkPredNDCG(k=10, weighted=True)])
        weights = grades[edges[0], edges[1]].float()
        found["PyG + torch.topk"] = _pyg(["ndcg"], collection, scores, edges, weights)
    if not missing("sklearn"):
        from sklearn.metrics import ndcg_score

        matrices = grades.numpy(), scores.numpy()
        found["scikit-learn ndcg_score"] = lambda: {"ndcg": float(ndcg_score(*matrices, k=10, ignore_ties=True))}
    if not missing("ignite"):
        from ignite.metrics.rec_sys import NDCG

        found["pytorch-ignite NDCG"] = _ignite("ndcg", NDCG([10], gain_function="linear_rank"), scores, grades.float())
    found |= _of_dicts(["ndcg"], scores, grades, compiling=compiling)
    return found, found[OURS]()


def of_five(scores: Tensor, relevant: Tensor, *, compiling: bool) -> tuple[Peers, Values]:
    """Five measures at 10 of binary truth from every peer that has them, ours first; and our values.

    A peer's average precision is named after its denominator, and held to ours of the same one: torchmetrics divides by
    the hits among the first K, trec_eval and ranx by all relevant items, PyTorch Geometric as ours by default.
    """
    found: Peers = {OURS: _ours(FIVE, scores, relevant)}
    values = dict(found[OURS]())
    for name in ("hits", "relevant", "capped"):
        values[f"map ({name})"] = float(tt.functional.map(scores, relevant, 10, denominator=name).mean())
    values["mrr (whole list)"] = float(tt.functional.mrr(scores, relevant, None).mean())
    index = torch.arange(len(scores)).repeat_interleave(scores.shape[1])
    flat = scores.flatten(), relevant.flatten()
    collection = MetricCollection(
        {
            "precision": retrieval.RetrievalPrecision(top_k=10),
            "recall": retrieval.RetrievalRecall(top_k=10),
            "mrr": retrieval.RetrievalMRR(top_k=10),
            "map (hits)": retrieval.RetrievalMAP(top_k=10),
            "ndcg": retrieval.RetrievalNormalizedDCG(top_k=10),
        }
    )
    found["TorchMetrics retrieval"] = lambda: {
        key: float(value) for key, value in _of_batch(collection, *flat, indexes=index).items()
    }
    if not missing("torch_geometric"):
        keys = ["precision", "recall", "mrr", "map (capped)", "ndcg"]
        pyg = make_pyg(["Precision", "Recall", "MRR", "MAP", "NDCG"], [10])
        found["PyG + torch.topk"] = _pyg(keys, pyg, scores, relevant.nonzero().T)
    found |= _of_dicts(FIVE, scores, relevant, compiling=compiling)
    return found, values


def of_labels(scores: Tensor, labels: Tensor) -> tuple[Peers, Values]:
    """Hit rate and MRR at 10 of one label a query from every peer that has either, ours first; and our values."""
    found: Peers = {OURS: _ours(["hit_rate", "mrr"], scores, labels)}
    queries, items = scores.shape
    accuracy = MulticlassAccuracy(items, top_k=10, average="micro", validate_args=False)
    found["TorchMetrics MulticlassAccuracy (hit rate alone)"] = lambda: {
        "hit_rate": float(_of_batch(accuracy, scores, labels))
    }
    if not missing("torcheval"):
        from torcheval.metrics import HitRate, ReciprocalRank

        pair: dict[str, Any] = {"hit_rate": HitRate(k=10), "mrr": ReciprocalRank(k=10)}
        found["torcheval"] = lambda: {
            key: float(metric.reset().update(scores, labels).compute().mean()) for key, metric in pair.items()
        }
    if not missing("ignite"):
        from ignite.metrics.rec_sys import HitRate as IgniteHitRate

        truth = torch.zeros(queries, items).scatter_(1, labels[:, None], 1.0)
        found["pytorch-ignite HitRate (hit rate alone)"] = _ignite("hit_rate", IgniteHitRate([10]), scores, truth)
    if not missing("torch_geometric"):
        edges = torch.stack([torch.arange(queries), labels])
        found["PyG + torch.topk"] = _pyg(["hit_rate", "mrr"], make_pyg(["HitRatio", "MRR"], [10]), scores, edges)
    return found, found[OURS]()


def of_lists(ranked: Tensor, truth: Tensor, num_labels: int) -> tuple[Peers, Values]:
    """Macro precision, recall and F1 of labels from lists and from indicator matrices, ours first; and our values."""
    labels, y_ranked = list(range(num_labels)), ranked.tolist()
    y_true = [[label for label in row if label >= 0] for row in truth.tolist()]
    options: dict[str, Any] = {"average": "macro", "zero_division": 0}

    def named(values: tuple[Any, ...]) -> Values:
        return dict(zip(("precision", "recall", "f1"), values, strict=False))

    k = ranked.shape[1]
    found: Peers = {
        OURS: lambda: named(tt.precision_recall_fscore_at_k(y_true, y_ranked, k=k, labels=labels, **options))
    }
    if not missing("sklearn"):
        from sklearn.metrics import precision_recall_fscore_support
        from sklearn.preprocessing import MultiLabelBinarizer

        binarizer = MultiLabelBinarizer(classes=labels, sparse_output=True).fit(y_true)
        matrices = binarizer.transform(y_true), binarizer.transform(y_ranked)
        found["scikit-learn, sparse matrices ready"] = lambda: named(
            precision_recall_fscore_support(*matrices, **options)
        )
        found["scikit-learn, matrices made of the lists"] = lambda: named(
            precision_recall_fscore_support(*map(binarizer.transform, (y_true, y_ranked)), **options)
        )
    return found, found[OURS]()


def _ignite(key: str, metric: Any, scores: Tensor, truth: Tensor) -> Callable[[], Values]:
    def run() -> Values:
        metric.reset()
        metric.update((scores, truth))
        return {key: metric.compute()[0]}

    return run


def _of_dicts(measures: list[str], scores: Tensor, gains: Tensor, *, compiling: bool) -> Peers:
    """Peers that take dicts of names, which are made before the clock starts."""
    found: Peers = {}
    run = {f"q{q}": {f"d{d}": score for d, score in enumerate(row)} for q, row in enumerate(scores.tolist())}
    truth = {f"q{q}": {f"d{d}": gain for d, gain in enumerate(row)} for q, row in enumerate(gains.tolist())}
    if not missing("pytrec_eval"):
        found["pytrec_eval"] = _pytrec_eval(measures, run, truth)
    if compiling and not missing("ranx"):
        found["ranx"] = _ranx(measures, run, truth)
    return found


def _pytrec_eval(
    measures: list[str], run: dict[str, dict[str, float]], truth: dict[str, dict[str, int]]
) -> Callable[[], Values]:
    import pytrec_eval

    names = {
        "precision": ("P.10", "P_10", "precision"),
        "recall": ("recall.10", "recall_10", "recall"),
        "mrr": ("recip_rank", "recip_rank", "mrr (whole list)"),  # it knows no cut-off
        "map": ("map_cut.10", "map_cut_10", "map (relevant)"),
        "ndcg": ("ndcg_cut.10", "ndcg_cut_10", "ndcg"),
    }
    chosen = [names[measure] for measure in measures]
    evaluator = pytrec_eval.RelevanceEvaluator(truth, {asked for asked, _, _ in chosen})

    def evaluate() -> Values:
        each = evaluator.evaluate(run).values()
        return {name: sum(query[key] for query in each) / len(run) for _, key, name in chosen}

    return evaluate


def _ranx(
    measures: list[str], run: dict[str, dict[str, float]], truth: dict[str, dict[str, int]]
) -> Callable[[], Values]:
    import ranx

    names = {"map": "map (relevant)"}
    keys = [f"{measure}@10" for measure in measures]
    qrels = ranx.Qrels({query: {item: gain for item, gain in row.items() if gain} for query, row in truth.items()})

    def evaluate() -> Values:
        with warnings.catch_warnings():  # numba's, about ranx's own casts
            warnings.simplefilter("ignore")
            # A run stays sorted once it has been evaluated, so it is made anew.
            got = ranx.evaluate(qrels, ranx.Run(run), keys)
        each = got.values() if isinstance(got, dict) else [got]  # of one measure, the number alone
        return {names.get(name, name): float(value) for name, value in zip(measures, each, strict=True)}

    return evaluate
