"""Compare three ways to look digits up: by pixels, by a few principal components, and by chance directions.

    python examples/compare.py

Half of scikit-learn's digits are looked up in the other half; what shows the same digit is relevant. Each way is a
suite that keeps every query's values, and `compare` tells which differences are more than luck.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor

import torch_topk as tt

METRICS = ["ndcg@10", "precision@1,10", "mrr@10"]


def evaluate(images: Tensor, digits: Tensor) -> tt.TopKMetrics:
    """Look the first half up in the second by the cosine of what stands for the images, ``(images, features)``."""
    unit = torch.nn.functional.normalize(images)
    half = len(images) // 2
    suite = tt.TopKMetrics(METRICS, collect=True)
    suite.update(unit[:half] @ unit[half:].T, digits[:half, None] == digits[half:])
    return suite


def main() -> None:
    """Print the table, the pairs behind it, and the queries that lost most."""
    images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images - images.mean(0)
    components = torch.linalg.svd(images, full_matrices=False).Vh
    chance = torch.randn(images.shape[1], 8, dtype=images.dtype, generator=torch.Generator().manual_seed(0))
    systems = {
        "64 pixels": evaluate(images, digits),
        "20 components": evaluate(images @ components[:20].T, digits),
        "8 directions": evaluate(images @ chance, digits),
    }
    comparison = tt.compare(systems)
    print(comparison)
    print()
    for pair in comparison.pairs:
        print(
            f"{pair.metric:12}  {pair.b:13} {pair.difference:+.4f} [{pair.low:+.4f}, {pair.high:+.4f}], corrected "
            f"p {pair.p_corrected:.4f}, better on {pair.wins} digits, worse on {pair.losses}"
        )
    print()
    for loss in comparison.regressions(3, metric="ndcg@10", system="20 components"):
        digit = digits[loss.query_id].item()
        print(f"Image {loss.query_id}, a {digit}: {loss.baseline:.3f} by pixels, {loss.value:.3f} by components")


if __name__ == "__main__":
    main()
