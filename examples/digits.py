"""Train a classifier of handwritten digits, and report on its first, second and third guess.

    python examples/digits.py                       # reports at K = 1 and 2, and a search by nDCG@3
    python examples/digits.py --out runs/digits     # with a heat map of digits over K, and averages over K

The data are scikit-learn's, and nothing is downloaded. A report at K = 1 is scikit-learn's classification report; at
K = 2, a digit is predicted wherever it is one of the first two guesses, so that recall is how often it was among them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torch_topk as tt
from torch_topk.scorers import Scorer

KS = [1, 2, 3]
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def train(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Fit a linear classifier."""
    model = nn.Linear(images.shape[1], len(NAMES))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for batch, target in DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(batch), target).backward()
            optimiser.step()
    return model


@torch.no_grad()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> tt.LabelReport:
    """Count, a batch at a time, what the first guesses hold."""
    report = tt.LabelReport(len(NAMES), k=KS, target_names=NAMES)
    for batch, target in DataLoader(TensorDataset(images, labels), batch_size=256):
        report.update(model(batch), target)
    return report


def scalars(report: tt.LabelReport) -> Table:
    """Lay the averages out by K, as `log_dict` would log them."""
    table = Table(title="Macro averages")
    table.add_column("")
    for k in KS:
        table.add_column(f"@{k}", justify="right")
    values = report.scalars()
    for score in ("precision", "recall", "f1"):
        table.add_row(score, *(f"{values[f'{score}@{k}']:.4f}" for k in KS))
    return table


def search(images: Tensor, labels: Tensor) -> tuple[GridSearchCV, Table]:
    """Choose the number of neighbours by nDCG@3, beside what the first guess alone would choose."""
    grid = {"n_neighbors": [1, 3, 5, 10, 20]}
    scorer = Scorer(["top_k_accuracy@1", "ndcg@3"])
    found = GridSearchCV(KNeighborsClassifier(), grid, scoring=scorer, refit="ndcg@3", cv=5)
    found.fit(images.numpy(), labels.numpy())

    table = Table(title="Five folds; * is the best")
    table.add_column("neighbours", justify="right")
    columns = []
    for key in ("top_k_accuracy@1", "ndcg@3"):
        table.add_column(key, justify="right")
        means = found.cv_results_[f"mean_test_{key}"]
        columns.append([f"{'* ' if mean == means.max() else ''}{mean:.4f}" for mean in means])
    for neighbours, *cells in zip(grid["n_neighbors"], *columns, strict=True):
        table.add_row(str(neighbours), *cells)
    return found, table


def pictures(report: tt.LabelReport, out: Path) -> None:
    """Draw recall of each digit at each K, and the averages over K."""
    out.mkdir(parents=True, exist_ok=True)
    for name, (figure, _) in {
        "heatmap.png": report.plot(kind="heatmap", score="recall"),
        "curves.png": report.plot(kind="curve"),
    }.items():
        figure.savefig(out / name, dpi=150)


def main() -> None:
    """Train, report, search."""
    parser = argparse.ArgumentParser(description="Report on the first K guesses of a classifier of digits.")
    parser.add_argument("--out", type=Path, help="folder of pictures; nothing is written without it")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.perf_counter()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # for small matrices, more would mostly wait for one another
    pixels, digits = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16, digits, stratify=digits, random_state=args.seed)
    images, test_images = (torch.from_numpy(part).float() for part in parts[:2])
    labels, test_labels = (torch.from_numpy(part) for part in parts[2:])

    report = evaluate(train(images, labels, args.epochs), test_images, test_labels)
    console = Console()
    for k in KS[:2]:
        console.print(f"\nAmong the first {k}:\n" if k > 1 else "\nThe first guess:\n")
        print(report.report(k))
    console.print(scalars(report))

    best, table = search(images, labels)
    console.print(table)
    value = best.score(test_images.numpy(), test_labels.numpy())
    print(f"{best.best_params_['n_neighbors']} neighbours are best by nDCG@3: {value:.4f} on the test rows.")
    if args.out:
        pictures(report, args.out)
        print(f"Pictures are in {args.out}.")
    print(f"{time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
