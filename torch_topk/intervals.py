"""Intervals around ratios of sums over queries, from the sums alone."""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor


def student(moments: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Ends of the t interval around num / den, by the delta method.

    Args:
        moments: ``(5, ...)``: the sums over queries of den, num, den^2, den num and num^2, each weighted.
        level: The share of repetitions that should cover the true value.

    Returns:
        Low and high, ``(...)`` each; NaN where fewer than two queries count.
    """
    from scipy.special import stdtrit

    den, num, den2, cross, num2 = moments
    theta, n = num / den, den * den / den2
    spread = (num2 - 2 * theta * cross + theta * theta * den2).clamp(min=0)
    freedom = torch.where(n > 1, n - 1, torch.nan)
    quantile = torch.as_tensor(stdtrit(freedom.cpu().numpy(), (1 + level) / 2)).to(theta)
    margin = quantile * (spread * n / freedom).sqrt() / den
    return theta - margin, theta + margin


def wilson(moments: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Ends of Wilson's score interval around a proportion: Wilson, Probable inference, JASA, 1927. As `student`."""
    den, num, den2, *_ = moments
    share, n, z = num / den, den * den / den2, NormalDist().inv_cdf((1 + level) / 2)
    middle = share + z * z / (2 * n)
    margin = z * (share * (1 - share) / n + z * z / (4 * n * n)).clamp(min=0).sqrt()
    scale = torch.where(n > 1, 1 + z * z / n, torch.nan)
    # Of none or of all, one end is the share itself but for rounding.
    return torch.minimum((middle - margin) / scale, share), torch.maximum((middle + margin) / scale, share)


def are_proportions(moments: Tensor) -> Tensor:
    """Where every query's value is 0 or 1, of values in [0, 1]: only there is each its square, and so the sums."""
    return moments[3] == moments[4]
