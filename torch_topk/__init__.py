"""Evaluation of the first K: rank once, then read every number off the same small record."""

from torch_topk import functional, metrics
from torch_topk.inputs import InputError
from torch_topk.kernels import rank_counts, topk
from torch_topk.metric import TopKMetric, registry
from torch_topk.metrics import DCG, F1, MAP, MRR, NDCG, FBeta, FullRecall, HitRate, Precision, Recall
from torch_topk.packed import Policies
from torch_topk.ranking import Ranking
from torch_topk.relevance import Relevance
from torch_topk.search import merge_topk, search
from torch_topk.suite import TopKMetrics

__version__ = "0.1.0"

__all__ = [
    "DCG",
    "F1",
    "MAP",
    "MRR",
    "NDCG",
    "FBeta",
    "FullRecall",
    "HitRate",
    "InputError",
    "Policies",
    "Precision",
    "Ranking",
    "Recall",
    "Relevance",
    "TopKMetric",
    "TopKMetrics",
    "__version__",
    "functional",
    "merge_topk",
    "metrics",
    "rank_counts",
    "registry",
    "search",
    "topk",
]
