"""Train a recommender on MovieLens-100K with Lightning, and read every metric off its first 20 films.

    python examples/movielens.py                        # train, validate each epoch, test the best one
    python examples/movielens.py --devices 2            # the same in two processes
    python examples/movielens.py --checkpoint FILE      # only test these weights

Of each user, the last interaction tests, the one before it validates, and the others train; interactions of the same
second stand in the order of the file. All films that the user has not seen are ranked, never a sample of them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torch_topk as tt

# Its advice does not apply: the data lie in memory, and dataset_size leaves out what a DistributedSampler repeats.
warnings.filterwarnings("ignore", module="lightning")

MONITOR = "val/ndcg@10"
HISTORY = 20  # as many films describe a user

# The MovieLens-100K data set (Harper & Konstan 2015) travels in the wheel of RecBole.
PACKAGE = "recbole==1.2.1"
SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
MEMBER = "recbole/dataset_example/ml-100k/ml-100k.inter"


def download() -> Path:
    """Return the data file, from the user's cache or else from the wheel that carries it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch-topk"
    path = cache / "ml-100k.inter"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - nothing of the user's is in it
            sys.exit(f"{PACKAGE} could not be downloaded: give the file of MovieLens-100K with --data.")
        wheel = next(Path(folder).iterdir())
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
            sys.exit(f"{wheel.name} is not the file that was expected: its SHA-256 differs.")
        cache.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            part.write_bytes(archive.read(MEMBER))
        part.replace(path)  # whole or not at all
    return path


class Split(TensorDataset):
    """(user, films watched before, film watched next), and all that a user had seen by then."""

    def __init__(self, seen: tt.Relevance, *tensors: Tensor) -> None:
        super().__init__(*tensors)
        self.seen = seen

    __getitems__ = TensorDataset.__getitem__  # a whole batch in one go


@dataclass
class MovieLens:
    """The three splits, and how often each film was watched in the first."""

    train: Split
    val: Split
    test: Split
    counts: Tensor

    @classmethod
    def read(cls, path: Path) -> MovieLens:
        """Read lines of user, item, rating and time, with or without a header."""
        lines = path.read_text(encoding="utf-8").splitlines()
        table = np.array([line.split("\t") for line in lines if not line.startswith("user_id")])
        users, items = (np.unique(column, return_inverse=True)[1] for column in table[:, :2].T)
        order = np.lexsort((table[:, 3].astype(float), users))  # by user, then time; stable
        user, item = torch.from_numpy(users[order]), torch.from_numpy(items[order])
        num_users, num_items = int(user.max()) + 1, int(item.max()) + 1

        row, length = torch.arange(len(user)), torch.bincount(user)
        first = (length.cumsum(0) - length)[user]  # the row of the user's first interaction
        ahead = first + length[user] - 1 - row  # how many more the user has
        before = row[:, None] - torch.arange(HISTORY, 0, -1)
        history = torch.where(before >= first[:, None], item[before.clamp(min=0)], num_items)

        def split(rows: Tensor, seen: Tensor) -> Split:
            truth = tt.Relevance.from_coo(user[seen], item[seen], num_queries=num_users)
            return Split(truth, user[rows], history[rows], item[rows])

        return cls(
            train=split((ahead > 1) & (row > first), seen=ahead > 1),
            val=split(ahead == 1, seen=ahead > 1),
            test=split(ahead == 0, seen=ahead > 0),
            counts=torch.bincount(item[ahead > 1], minlength=num_items),
        )


class Recommender(LightningModule):
    """Two towers: a user is a weighted sum of the films last watched, a film is its embedding."""

    def __init__(self, data: MovieLens, config: Path, dim: int = 64, dropout: float = 0.5) -> None:
        super().__init__()
        self.data, num_items = data, len(data.counts)
        self.films = nn.Embedding(num_items + 1, dim, padding_idx=num_items)
        nn.init.normal_(self.films.weight[:num_items], std=0.1)
        self.recency = nn.Parameter(torch.full((HISTORY, dim), HISTORY**-0.5))
        self.bias = nn.Parameter(torch.zeros(num_items))
        self.dropout = nn.Dropout(dropout)

        self.metrics = tt.TopKMetrics.from_config(config, prefix="val/", dataset_size=len(data.val))
        self.test_metrics = tt.TopKMetrics.from_config(config, dataset_size=len(data.test))
        self.popularity = self.test_metrics.clone()

    def forward(self, history: Tensor) -> Tensor:
        """Score all films for histories ``(B, HISTORY)``: ``(B, num_items)``."""
        user: Tensor = (self.films(history) * self.recency).sum(1)
        scores: Tensor = self.dropout(user) @ self.films.weight[:-1].T + self.bias
        return scores

    def training_step(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Learn the next film, among all."""
        _users, history, target = batch
        return nn.functional.cross_entropy(self(history), target)

    def validation_step(self, batch: tuple[Tensor, ...]) -> None:
        """Rank the films not seen before, and log every metric."""
        users, history, target = batch
        self.metrics.update(self(history), target, exclude=self.data.val.seen[users])
        self.log_dict(self.metrics)
        self.log("ndcg@10", self.metrics[MONITOR], prog_bar=True, logger=False)

    def test_step(self, batch: tuple[Tensor, ...]) -> None:
        """Hold the model against the same truth as popularity, the order of what was watched most in training."""
        users, history, target = batch
        seen = self.data.test.seen[users]
        self.test_metrics.update(self(history), target, exclude=seen)
        self.popularity.update(self.data.counts.expand(len(users), -1), target, exclude=seen)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def ladder(trained: tt.TopKMetrics, popularity: tt.TopKMetrics) -> Table:
    """Lay both out by metric and K."""
    results = [(suite.compute(), suite.intervals(0.95)) for suite in (trained, popularity)]
    table = Table(title=f"Test split, {int(trained.num_queries)} users")
    for heading in ("metric", "K", "trained", "95 % interval", "popularity", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    above = ""
    for key in trained:
        name, _, k = key.partition("@")
        if name != above:
            table.add_section()
        cells = [(f"{values[key]:.4f}", "{:.4f} – {:.4f}".format(*intervals[key])) for values, intervals in results]
        table.add_row("" if name == above else name, k, *cells[0], *cells[1])
        above = name
    return table


def picture(trained: tt.TopKMetrics, popularity: tt.TopKMetrics, path: Path) -> None:
    """Draw both as curves over K, with the intervals as bands."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    for ax, suite, title in zip(axes, (trained, popularity), ("Trained model", "Popularity"), strict=True):
        suite.plot(ax=ax)
        ax.set_title(title)
    axes[1].get_legend().remove()  # the same as on the left
    figure.suptitle("The first K films, with 95 % intervals (one right answer a user: recall = hit rate, MAP = MRR)")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train, test, and report."""
    parser = argparse.ArgumentParser(description="Train and evaluate a recommender on MovieLens-100K.")
    parser.add_argument("--data", type=Path, help="ml-100k.inter or u.data; downloaded and cached if left out")
    parser.add_argument("--out", type=Path, default=Path("runs/movielens"), help="folder of logs, weights and picture")
    suite = Path(__file__).parents[1] / "configs" / "recommender.yaml"
    parser.add_argument("--config", type=Path, default=suite, help="the metrics, with ndcg@10 among them")
    parser.add_argument("--checkpoint", type=Path, help="only test these weights")
    parser.add_argument("--epochs", type=int, default=20, help="at most so many; early stopping usually ends it")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--devices", type=int, default=1, help="processes; several run under DDP")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.perf_counter()

    seed_everything(args.seed)
    torch.set_num_threads(1)  # for small matrices, more would mostly wait for one another
    data = MovieLens.read(args.data or download())
    model = Recommender(data, args.config)
    loader = partial(DataLoader, batch_size=args.batch_size // args.devices, collate_fn=tuple)
    trainer = Trainer(
        accelerator="cpu",
        devices=args.devices,
        strategy="ddp" if args.devices > 1 else "auto",
        max_epochs=args.epochs,
        deterministic=True,
        enable_model_summary=False,
        logger=CSVLogger(args.out),
        callbacks=[
            EarlyStopping(MONITOR, mode="max", patience=2),
            ModelCheckpoint(args.out, "best", MONITOR, mode="max", enable_version_counter=False),
            TQDMProgressBar(leave=True),
        ],
    )
    if not args.checkpoint:
        trainer.fit(model, loader(data.train, shuffle=True), loader(data.val))
    trainer.test(model, loader(data.test), ckpt_path=args.checkpoint or "best")

    suites = model.test_metrics, model.popularity
    table = ladder(*suites)  # in every process: together they add up their sums
    if trainer.is_global_zero:
        Console().print(table)
        picture(*suites, args.out / "curves.png")
        ours, theirs = (each.compute()["ndcg@10"] for each in suites)
        print(f"nDCG@10 {ours:.4f} against popularity's {theirs:.4f}: {ours - theirs:+.4f}, {ours / theirs - 1:+.0%}.")
        print(f"{time.perf_counter() - began:.0f} s. Picture, weights and logs are in {args.out}.")


if __name__ == "__main__":
    main()
