"""Presets beside the systems that they are named after: run here, or by the values that are known of them."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import dcg_score, ndcg_score
from torch import Tensor

import torch_topk as tt

QUERIES, ITEMS = 40, 30


def batch(seed: int, *, graded: bool = False, ties: bool = False, full: bool = False) -> tuple[Tensor, Tensor]:
    """Scores and gains; some queries have nothing relevant, unless `full`."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(QUERIES, ITEMS, generator=generator)
    if ties:
        scores = (scores * 4).floor()
    gains = (torch.rand(QUERIES, ITEMS, generator=generator) < 0.15).long()
    gains[::9] = 0
    if full:
        gains[:, 3] = 1
    return scores, gains * torch.randint(1, 4, gains.shape, generator=generator) if graded else gains


def suite(preset: str, names: list[str], k: Any, scores: Any, target: Any, **options: Any) -> dict[str, float]:
    metrics = tt.TopKMetrics(names, k, preset=preset, **options)
    metrics.update(scores, target)
    return {key: value.item() for key, value in metrics.compute().items()}


# Systems that run here ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_torchmetrics(seed: int) -> None:
    from torchmetrics import retrieval as peer

    scores, gains = batch(seed)
    graded = batch(seed, graded=True)[1]
    index = torch.arange(QUERIES)[:, None].expand(-1, ITEMS)
    for k in (1, 5, 50):
        found = suite("torchmetrics", ["precision", "recall", "hits", "mrr", "map", "fall_out"], k, scores, gains)
        found |= suite("torchmetrics", ["ndcg"], k, scores, graded)
        found |= suite("torchmetrics", ["rprec"], None, scores, gains)
        peers: dict[str, tuple[Any, Tensor]] = {
            f"precision@{k}": (peer.RetrievalPrecision(top_k=k), gains),
            f"recall@{k}": (peer.RetrievalRecall(top_k=k), gains),
            f"hits@{k}": (peer.RetrievalHitRate(top_k=k), gains),
            f"mrr@{k}": (peer.RetrievalMRR(top_k=k), gains),
            f"map@{k}": (peer.RetrievalMAP(top_k=k), gains),
            f"fall_out@{k}": (peer.RetrievalFallOut(top_k=k), gains),
            f"ndcg@{k}": (peer.RetrievalNormalizedDCG(top_k=k), graded),
            "rprec": (peer.RetrievalRPrecision(), gains),
        }
        assert found.keys() == peers.keys()
        for key, (metric, truth) in peers.items():
            metric.update(scores.reshape(-1), truth.reshape(-1), indexes=index.reshape(-1))
            assert found[key] == pytest.approx(metric.compute().item(), abs=2e-6), key


@pytest.mark.parametrize("k", [1, 5, 50])
def test_scikit_learn(k: int) -> None:
    scores, gains = batch(0, graded=True, ties=True, full=True)
    found = suite("sklearn", ["ndcg", "dcg"], k, scores, gains)
    assert found[f"ndcg@{k}"] == pytest.approx(ndcg_score(gains.numpy(), scores.numpy(), k=k))
    assert found[f"dcg@{k}"] == pytest.approx(dcg_score(gains.numpy(), scores.numpy(), k=k))


@pytest.mark.filterwarnings(r"ignore:.torch\.jit\.\w+. is deprecated:DeprecationWarning")
def test_pyg() -> None:
    peer = pytest.importorskip("torch_geometric.metrics", reason="torch-geometric is not installed.")
    scores, gains = batch(1)
    graded = batch(1, graded=True)[1]
    for k in (1, 5, 20):
        names = {
            "precision": peer.LinkPredPrecision(k),
            "recall": peer.LinkPredRecall(k),
            "f1": peer.LinkPredF1(k),
            "map": peer.LinkPredMAP(k),
            "ndcg": peer.LinkPredNDCG(k),
            "mrr": peer.LinkPredMRR(k),
            "hits": peer.LinkPredHitRatio(k),
        }
        found = suite("pyg", list(names), k, scores, gains)
        top, edges = scores.topk(k).indices, gains.nonzero().T
        for name, metric in names.items():
            metric.update(top, edges)
            assert found[f"{name}@{k}"] == pytest.approx(metric.compute().item(), abs=1e-6), name
        weighted = peer.LinkPredNDCG(k, weighted=True)
        weighted.update(top, edges, graded[gains > 0].float())
        linear = suite("pyg", [f"ndcg(gain=linear)@{k}"], None, scores, graded)
        assert linear[f"ndcg(gain=linear)@{k}"] == pytest.approx(weighted.compute().item(), abs=1e-6)


def names_of(rows: Tensor) -> list[dict[str, float]]:
    """Documents whose names sort, as bytes, as their numbers do."""
    return [{f"d{item:03}": value for item, value in enumerate(row)} for row in rows.tolist()]


def test_trec_eval() -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pytrec_eval-terrier is not installed.")
    scores, gains = batch(2, graded=True, ties=True)
    gains[5] = -1
    graded = [{doc: int(gain) for doc, gain in row.items()} for row in names_of(gains)]
    truth = {f"q{query:03}": row for query, row in enumerate(graded)}
    run = {f"q{query:03}": row for query, row in enumerate(names_of(scores))}
    cut = {
        "P@5": "P.5",
        "recall@5": "recall.5",
        "map@10": "map_cut.10",
        "ndcg@10": "ndcg_cut.10",
        "success@1": "success.1",
    }
    whole = {"recip_rank": "recip_rank", "rprec": "Rprec", "bpref": "bpref", "map": "map", "ndcg": "ndcg"}
    measures = {**cut, **whole}
    for level in (1, 2):
        evaluator = pytrec_eval.RelevanceEvaluator(truth, set(measures.values()), relevance_level=level)
        each = evaluator.evaluate(run)
        found = suite("trec_eval", list(measures), None, scores, gains, min_relevance=level)
        for name, measure in measures.items():
            expected = np.mean([values[measure.replace(".", "_")] for values in each.values()])
            assert found[name] == pytest.approx(expected, abs=1e-12), (name, level)


# Systems by their values --------------------------------------------------------------------------------

GRADES = torch.tensor([[3, 2, 3, 0, 1, 2, 3, 2]])  # of the first six in the order ranked; two were not retrieved
HITS = torch.tensor([[1, 1, 0, 1, 1, 1, 0, 0]])
NDCG = {  # at 5 and at 10; what the systems give for these grades
    "trec_eval": (0.7659, 0.7562),
    "ranx": (0.7659, 0.7562),
    "recbole": (0.8539, 0.7900),
    "sentence_transformers": (0.8539, 0.7900),
    "pyg": (0.8539, 0.7900),
    "rectools": (0.8539, 0.6325),
    "torchmetrics": (0.8610, 0.9608),
    "sklearn": (0.8610, 0.9608),
}
AP = {  # at 3, of hits at ranks 1, 2, 4, 5 and 6, R = 5
    "trec_eval": 0.4,
    "ranx": 0.4,
    "rectools": 0.4,
    "recbole": 0.6667,
    "pyg": 0.6667,
    "sentence_transformers": 0.6667,
    "torchmetrics": 1.0,
}


@pytest.mark.parametrize("preset", tt.presets)
def test_known_values(preset: str) -> None:
    ranking = tt.Ranking.from_ids(torch.arange(6)[None], tt.Relevance.from_ids(torch.arange(8)[None], GRADES))
    found = tuple(suite(preset, ["ndcg"], [5, 10], ranking, None).values())
    assert found == pytest.approx(NDCG[preset], abs=5e-5)
    if preset in AP:
        scores = -torch.arange(8.0)[None]
        assert suite(preset, ["map"], 3, scores, HITS)["map@3"] == pytest.approx(AP[preset], abs=5e-5)


@pytest.mark.parametrize("preset", tt.presets)
def test_queries_with_nothing_to_find(preset: str) -> None:
    scores, gains = batch(3)
    skipped = preset in {"pyg", "sentence_transformers"}
    found = suite(preset, ["recall"], 5, scores, gains)["recall@5"]
    kept = gains.sum(1) > 0 if skipped else gains.sum(1) >= 0
    assert found == pytest.approx(tt.functional.recall(scores, gains, k=5)[kept].mean().item())


# What a preset is ---------------------------------------------------------------------------------------


def test_what_is_asked_for_goes_before_the_preset() -> None:
    made = tt.TopKMetrics(["map", "map(denominator=k)", tt.NDCG], 3, preset="rectools", empty="skip")
    assert [repr(metric) for _, metric in made.named] == [
        "MAP(k=3, denominator='relevant', empty='skip')",
        "MAP(k=3, denominator='k', empty='skip')",
        "NDCG(k=3, gain='binary', ideal='k', empty='skip')",
    ]
    assert made.preset is tt.presets["rectools"]
    assert tt.TopKMetrics.from_config({"metrics": ["ndcg"], "k": 3, "preset": "sklearn"}).policies.ties == "expected"


def test_preset_prints_what_it_stands_for() -> None:
    for preset in tt.presets.values():
        text = str(preset)
        assert text.startswith(preset.name)
        for options in (preset.policies, *preset.metrics.values()):
            assert all(f"{name}={value!r}" in text for name, value in options.items())
        assert all(note in text for note in preset.notes)
        for name, options in preset.metrics.items():
            tt.registry[name](3, **options)  # each option is one that there is


def test_preset_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"'trec' is no preset\. Did you mean 'trec_eval'"):
        tt.TopKMetrics(["ndcg"], preset="trec")
    with pytest.raises(ValueError, match="ideal='k' is for gain='binary'"):
        tt.NDCG(3, ideal="k")
