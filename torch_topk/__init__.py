"""Evaluation of the first K: rank once, then read every number off the same small record."""

from torch_topk import functional, metrics
from torch_topk.classification import classification_report_at_k, precision_recall_fscore_at_k
from torch_topk.inputs import InputError
from torch_topk.kernels import rank_counts, topk
from torch_topk.links import KnownTriples, LinkRanks, evaluate_links
from torch_topk.metric import TopKMetric, registry
from torch_topk.metrics import (
    DCG,
    F1,
    MAP,
    MRR,
    NDCG,
    PSNDCG,
    PSP,
    ZMRR,
    AdjustedHitRate,
    AdjustedMeanRank,
    AdjustedMeanRankIndex,
    AdjustedMRR,
    FBeta,
    FullRecall,
    GeometricMeanRank,
    HitRate,
    LabelCoverage,
    LabelFBeta,
    LabelPrecision,
    LabelRecall,
    LabelReport,
    MeanRank,
    MedianRank,
    Precision,
    Recall,
    TopKAccuracy,
    ZHitRate,
    ZMeanRank,
    frequency_groups,
    propensities,
)
from torch_topk.packed import Policies
from torch_topk.ranking import Ranking
from torch_topk.ranks import RankCounts
from torch_topk.relevance import Relevance
from torch_topk.report import Report
from torch_topk.search import merge_topk, search
from torch_topk.stats import Comparison, compare
from torch_topk.suite import TopKMetrics
from torch_topk.values import QueryValues

__version__ = "0.1.0"

__all__ = [
    "DCG",
    "F1",
    "MAP",
    "MRR",
    "NDCG",
    "PSNDCG",
    "PSP",
    "ZMRR",
    "AdjustedHitRate",
    "AdjustedMRR",
    "AdjustedMeanRank",
    "AdjustedMeanRankIndex",
    "Comparison",
    "FBeta",
    "FullRecall",
    "GeometricMeanRank",
    "HitRate",
    "InputError",
    "KnownTriples",
    "LabelCoverage",
    "LabelFBeta",
    "LabelPrecision",
    "LabelRecall",
    "LabelReport",
    "LinkRanks",
    "MeanRank",
    "MedianRank",
    "Policies",
    "Precision",
    "QueryValues",
    "RankCounts",
    "Ranking",
    "Recall",
    "Relevance",
    "Report",
    "TopKAccuracy",
    "TopKMetric",
    "TopKMetrics",
    "ZHitRate",
    "ZMeanRank",
    "__version__",
    "classification_report_at_k",
    "compare",
    "evaluate_links",
    "frequency_groups",
    "functional",
    "merge_topk",
    "metrics",
    "precision_recall_fscore_at_k",
    "propensities",
    "rank_counts",
    "registry",
    "search",
    "topk",
]
