"""Tell from a module's docstrings what it imports: many labels, most of them rare.

    python examples/multilabel.py                           # three rankings, on frequent and on rare labels
    python examples/multilabel.py --out runs/multilabel     # with pictures

The rows are the modules of Python's standard library, and their labels the modules of it that they import: real data
that every Python has, so that figures differ a little between versions. A few labels, such as sys and os, are much of
the truth. Precision and nDCG reward a ranking that puts these first in every row; propensity-scored metrics, averages
over rare labels and coverage show what it does for the others.
"""

from __future__ import annotations

import argparse
import ast
import sys
import sysconfig
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MultiLabelBinarizer
from torch import Tensor, nn

import torch_topk as tt

KS = [1, 3, 5]
EDGES = (4, 40)  # in training: below 4 rows a label is of the tail, from 40 on of the head
LEFT_OUT = {"encodings", "idlelib", "lib2to3", "site-packages", "test", "tests"}


@dataclass
class Module:
    """What a module says of itself, and what it imports."""

    text: str
    imports: set[str]

    @classmethod
    def read(cls, path: Path) -> Module:
        """Take the names and docstrings of a module, its classes and functions, and no other line of its source."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in somebody else's text
            tree = ast.parse(path.read_text(encoding="utf-8"))
        words, imports = [path.stem], set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                words += [getattr(node, "name", ""), ast.get_docstring(node) or ""]
            elif isinstance(node, ast.Import):
                imports |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imports.add(node.module.partition(".")[0])
        return cls(" ".join(words), (imports & sys.stdlib_module_names) - {"__future__"})


@dataclass
class Split:
    """What the words of each row weigh, and which labels it holds."""

    words: Tensor
    truth: Tensor


def read(seed: int) -> tuple[list[str], Split, Split]:
    """Return the labels' names, and the rows to train and to test on."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(library.rglob("*.py")) if LEFT_OUT.isdisjoint(path.relative_to(library).parts)]
    modules = [module for module in map(Module.read, paths) if module.imports]
    train, test = train_test_split(modules, test_size=0.3, random_state=seed)
    labels = MultiLabelBinarizer().fit([module.imports for module in modules])
    words = TfidfVectorizer(sublinear_tf=True, max_features=2000).fit([module.text for module in train])

    def split(part: list[Module]) -> Split:
        weights = words.transform([module.text for module in part]).toarray()
        truth = labels.transform([module.imports for module in part])
        return Split(torch.from_numpy(weights).float(), torch.from_numpy(truth).bool())

    return [*labels.classes_], split(train), split(test)


def fit(data: Split, epochs: int) -> nn.Module:
    """Fit a linear model, each label for itself."""
    model = nn.Linear(data.words.shape[1], data.truth.shape[1])
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(epochs):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(data.words), data.truth.float()).backward()
        optimiser.step()
    return model


class Evaluation:
    """All that is said of one ranking of the labels, read off its first five."""

    def __init__(self, scores: Tensor, truth: Tensor, names: list[str], counts: Tensor, chance: Tensor) -> None:
        scored = [tt.PSP(KS, propensities=chance), tt.PSNDCG(KS, propensities=chance)]
        self.metrics = tt.TopKMetrics(["precision", "ndcg", *scored], k=KS)
        self.coverage = tt.LabelCoverage(len(names), KS)
        # A label that no test row holds has no recall: it is left out of averages.
        groups = tt.frequency_groups(counts, edges=EDGES)
        self.report = tt.LabelReport(len(names), KS, target_names=names, groups=groups, zero_division=float("nan"))
        ranking = self.metrics.rank(scores, truth)
        for metric in (self.metrics, self.coverage, self.report):
            metric.update(ranking)

    def values(self) -> dict[str, Tensor]:
        """Name everything as a logger would."""
        coverage = {f"coverage@{k}": value for k, value in zip(KS, self.coverage.compute(), strict=True)}
        recall = {key: value for key, value in self.report.scalars().items() if key.startswith("recall@5")}
        return {**self.metrics.compute(), **coverage, **recall}


def lay_out(evaluations: dict[str, Evaluation]) -> Table:
    """Put the rankings side by side."""
    table = Table(title="Labels ranked by")
    table.add_column("")
    for name in evaluations:
        table.add_column(name, justify="right")
    values = [evaluation.values() for evaluation in evaluations.values()]
    above = ""
    for key in values[0]:
        if key.partition("@")[0] != above:
            table.add_section()
        above = key.partition("@")[0]
        table.add_row(key, *(f"{each[key]:.4f}" for each in values))
    return table


def pictures(evaluations: dict[str, Evaluation], out: Path) -> None:
    """Draw the metrics of each ranking over K, and recall of the most frequent labels by the last."""
    out.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, len(evaluations), figsize=(12, 4.8), sharey=True, layout="constrained")
    for ax, (name, evaluation) in zip(axes, evaluations.items(), strict=True):
        evaluation.metrics.plot(ax=ax)
        ax.set_title(f"By {name}")
    figure.savefig(out / "curves.png", dpi=150)
    figure, _ = [*evaluations.values()][-1].report.plot(kind="heatmap", score="recall", limit=40)
    figure.savefig(out / "heatmap.png", dpi=150)


def main() -> None:
    """Train, rank, and compare."""
    parser = argparse.ArgumentParser(description="Evaluate rankings of many labels, frequent and rare.")
    parser.add_argument("--out", type=Path, help="folder of pictures; nothing is written without it")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.perf_counter()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # for small matrices, more would mostly wait for one another
    names, train, test = read(args.seed)
    counts, (rows, labels) = train.truth.sum(0), train.truth.shape
    sizes = ", ".join(f"{int(mask.sum())} {name}" for name, mask in tt.frequency_groups(counts, edges=EDGES).items())
    print(f"{rows} modules to train on, {len(test.truth)} to test on, {labels} labels: {sizes}.")

    logits = fit(train, args.epochs)(test.words).detach()
    chance = tt.propensities(counts, rows)
    rankings = {
        "frequency": counts.expand(len(logits), -1),
        "model": logits,
        "model / p": logits.sigmoid() / chance,  # a rare label that is nearly as likely goes before a frequent one
    }
    evaluations = {name: Evaluation(scores, test.truth, names, counts, chance) for name, scores in rankings.items()}
    Console().print(lay_out(evaluations))
    print("\nBy model / p, at K = 5, the labels with the most rows:\n")
    print(evaluations["model / p"].report.report(5, sort="support", limit=15))
    if args.out:
        pictures(evaluations, args.out)
        print(f"Pictures are in {args.out}.")
    print(f"{time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
