"""What other systems mean by the same names: each a named set of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """The conventions of a system: what a suite and its metrics are made with, where nothing else is asked for.

    Attributes:
        name: The system, and the release whose conventions these are.
        policies: For the suite: see `Policies`.
        metrics: For each metric by its name, its own options.
        notes: What no option says.
    """

    name: str
    policies: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.name}", "  all: " + (_shown(self.policies) or "the defaults")]
        lines += [f"  {name}: {_shown(options)}" for name, options in self.metrics.items()]
        return "\n".join([*lines, *(f"  * {note}" for note in self.notes)])


def _shown(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


_BINARY = {"ndcg": {"gain": "binary"}, "dcg": {"gain": "binary"}}
_OF_CANDIDATES = {"gain": "linear", "ideal": "candidates"}

presets: dict[str, Preset] = {
    "trec_eval": Preset(
        "trec_eval 10, pytrec_eval",
        {"ties": "reverse", "empty": "zero", "min_relevance": 1},
        {
            "precision": {"denominator": "k"},
            "map": {"denominator": "relevant"},
            "ndcg": {"gain": "linear", "ideal": "relevant"},
            "rbp": {"persistence": 0.9},
        },
        (
            "Ties stand in descending order of document names, as bytes: number items in that order, or use evaluate.",
            "Without -c, queries that the run lacks are left out: evaluate(missing='skip').",
            "Its rbp weighs grades; here an item is relevant or not.",
        ),
    ),
    "ranx": Preset(
        "ranx 0.3.21",
        {"empty": "zero", "min_relevance": 1},
        {"map": {"denominator": "relevant"}, "ndcg": {"gain": "linear", "ideal": "relevant"}},
        ("Equal scores stand in no particular order.", "ndcg_burges is ndcg(gain='exp')."),
    ),
    "torchmetrics": Preset(
        "TorchMetrics 1.9 retrieval",
        {"empty": "zero"},
        {"precision": {"denominator": "k"}, "map": {"denominator": "hits"}, "ndcg": _OF_CANDIDATES},
        (
            "A document with a score of 0 or less is no prediction there in P, R, AP and RR: a fault not followed.",
            "Its nDCG, and no other metric, is averaged over the orders of equal scores: ties='expected'.",
            "adaptive_k is denominator='retrieved'. For queries split over batches there is torch_topk.retrieval.",
        ),
    ),
    "sklearn": Preset(
        "scikit-learn 1.9 ndcg_score, dcg_score",
        {"ties": "expected", "empty": "zero"},
        {"ndcg": _OF_CANDIDATES, "dcg": {"gain": "linear"}},
        ("With ignore_ties=True equal scores stand in no particular order.",),
    ),
    "pyg": Preset(
        "PyTorch Geometric 2.8 LinkPred metrics",
        {"empty": "skip"},
        {"precision": {"denominator": "k"}, "map": {"denominator": "capped"}, **_BINARY},
        ("With edge weights its nDCG is ndcg(gain='linear').",),
    ),
    "recbole": Preset(
        "RecBole 1.2.1",
        {"empty": "zero"},
        {"precision": {"denominator": "k"}, "map": {"denominator": "capped"}, **_BINARY},
        ("It refuses a k beyond the list.",),
    ),
    "rectools": Preset(
        "RecTools 0.19",
        {"empty": "zero"},
        {
            "precision": {"denominator": "k"},
            "map": {"denominator": "relevant"},
            "ndcg": {"gain": "binary", "ideal": "k"},
            "dcg": {"gain": "binary"},
        },
        (
            "MAP's divide_by_k is denominator='k', Precision's r_precision denominator='relevant'.",
            "Users without an interaction in the test are not in its mean.",
        ),
    ),
    "sentence_transformers": Preset(
        "sentence-transformers InformationRetrievalEvaluator",
        {"empty": "skip"},
        {"precision": {"denominator": "k"}, "map": {"denominator": "capped"}, **_BINARY},
        ("accuracy@k is hits@k.",),
    ),
}
"""The systems whose numbers `TopKMetrics(preset=...)` and `evaluate(preset=...)` give."""
