"""The metrics: a class is a whole metric."""

from torch_topk.metrics.binary import F1, MAP, MRR, FBeta, FullRecall, HitRate, Precision, Recall
from torch_topk.metrics.graded import DCG, NDCG

__all__ = ["DCG", "F1", "MAP", "MRR", "NDCG", "FBeta", "FullRecall", "HitRate", "Precision", "Recall"]
