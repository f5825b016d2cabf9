"""The metrics: a class is a whole metric."""

from torch_topk.metrics.binary import F1, MAP, MRR, FBeta, FullRecall, HitRate, Precision, Recall
from torch_topk.metrics.graded import DCG, NDCG
from torch_topk.metrics.labels import (
    LabelCoverage,
    LabelFBeta,
    LabelPrecision,
    LabelRecall,
    LabelReport,
    TopKAccuracy,
    frequency_groups,
)
from torch_topk.metrics.propensity import PSNDCG, PSP, propensities
from torch_topk.metrics.ranks import (
    ZMRR,
    AdjustedHitRate,
    AdjustedMeanRank,
    AdjustedMeanRankIndex,
    AdjustedMRR,
    GeometricMeanRank,
    MeanRank,
    MedianRank,
    ZHitRate,
    ZMeanRank,
)

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
    "FBeta",
    "FullRecall",
    "GeometricMeanRank",
    "HitRate",
    "LabelCoverage",
    "LabelFBeta",
    "LabelPrecision",
    "LabelRecall",
    "LabelReport",
    "MeanRank",
    "MedianRank",
    "Precision",
    "Recall",
    "TopKAccuracy",
    "ZHitRate",
    "ZMeanRank",
    "frequency_groups",
    "propensities",
]
