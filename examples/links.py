"""Train DistMult and ComplEx on UMLS with Lightning, and print the table of a paper on link prediction.

    python examples/links.py                        # beside a baseline, on a graph of 135 medical concepts
    python examples/links.py --data DIR             # on the train.txt, valid.txt and test.txt of another one

A line of a file is head, relation and tail, with tabs between them.

Both sides of every triple are ranked among all entities. The ranks are filtered, while validating as in the test: what
else is true by training, validation or test triples is left out. Level scores share the mean of their ranks, so that
the baseline, which counts and has many of them, is not ranked first for it.
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
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

import torch_topk as tt

warnings.filterwarnings("ignore", module="lightning")  # its advice is for data that do not lie in memory

METRICS = {"MRR": "mrr", "Hits@1": "hits@1", "Hits@3": "hits@3", "Hits@10": "hits@10", "MR": "mr"}
SPLITS = ("train", "valid", "test")

# The UMLS data set (McCray 2003; Kok & Domingos 2007) travels in the wheel of PyKEEN.
PACKAGE = "pykeen==1.11.1"
SHA256 = "b6cc0ab012fc6ba4f37b58fb7081a409a5c1f04cbbb0e0e9c2256e911757d4ba"
MEMBER = "pykeen/datasets/umls/{}.txt"


def download() -> Path:
    """Return the folder of the data, in the user's cache, and fill it from the wheel that carries them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch-topk" / "umls"
    paths = {split: cache / f"{split}.txt" for split in SPLITS}
    if all(path.exists() for path in paths.values()):
        return cache
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - nothing of the user's is in it
            sys.exit(f"{PACKAGE} could not be downloaded: give a folder of triples with --data.")
        wheel = next(Path(folder).iterdir())
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
            sys.exit(f"{wheel.name} is not the file that was expected: its SHA-256 differs.")
        cache.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for split, path in paths.items():
                part = path.with_suffix(f".{os.getpid()}")
                part.write_bytes(archive.read(MEMBER.format(split)))
                part.replace(path)  # whole or not at all
    return cache


@dataclass
class Graph:
    """The triples of each split, and all that is known."""

    train: Tensor
    valid: Tensor
    test: Tensor
    known: tt.KnownTriples

    @classmethod
    def read(cls, folder: Path) -> Graph:
        """Read lines of head, relation and tail, and number the labels in alphabetical order."""
        texts = [(folder / f"{split}.txt").read_text(encoding="utf-8") for split in SPLITS]
        tables = [np.array([line.split("\t") for line in text.splitlines()]) for text in texts]
        table = np.concatenate(tables)
        entities, ends = np.unique(table[:, [0, 2]], return_inverse=True)
        relations, links = np.unique(table[:, 1], return_inverse=True)
        heads, tails = ends.reshape(-1, 2).T
        triples = torch.from_numpy(np.stack([heads, links, tails], axis=1))
        train, valid, test = triples.split([len(each) for each in tables])
        known = tt.KnownTriples(train, valid, test, num_entities=len(entities), num_relations=len(relations))
        return cls(train, valid, test, known)


class Scorer(Protocol):
    """What scores every entity as a tail, or as a head."""

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Score all tails, ``(B, num_entities)``."""

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Score all heads, ``(B, num_entities)``."""


class Frequency:
    """How often training has an entity on this side of the relation, whatever stands on the other."""

    def __init__(self, graph: Graph) -> None:
        head, relation, tail = graph.train.T
        empty = torch.zeros(graph.known.num_relations, graph.known.num_entities)
        one = torch.ones(len(relation))
        self.as_tail = empty.index_put((relation, tail), one, accumulate=True)
        self.as_head = empty.index_put((relation, head), one, accumulate=True)

    def tails(self, _heads: Tensor, relations: Tensor) -> Tensor:
        """Look the tails up."""
        return self.as_tail[relations]

    def heads(self, relations: Tensor, _tails: Tensor) -> Tensor:
        """Look the heads up."""
        return self.as_head[relations]


def rank(suite: tt.TopKMetrics, scorer: Scorer, triples: Tensor, known: tt.KnownTriples) -> None:
    """Update a suite with the filtered ranks of both sides."""
    ranks = tt.evaluate_links(scorer.tails, scorer.heads, triples, known)
    for _raw, filtered in ranks.counts.values():
        suite.update(filtered)


class Factors(LightningModule):
    """A triple scores the real part of the sum of head × relation × conjugate of tail.

    In real numbers that is DistMult, to which a link is as true backwards; in complex ones ComplEx, which tells the
    directions apart. A vector has ``dim`` real numbers either way.
    """

    def __init__(self, graph: Graph, dim: int, dtype: torch.dtype, dropout: float = 0.5) -> None:
        super().__init__()
        size = dim // 2 if dtype.is_complex else dim
        self.known = graph.known
        self.entities = nn.Parameter(0.1 * torch.randn(graph.known.num_entities, size, dtype=dtype))
        self.relations = nn.Parameter(0.1 * torch.randn(graph.known.num_relations, size, dtype=dtype))
        self.dropout = nn.Dropout(dropout)
        self.metrics = tt.TopKMetrics([*METRICS.values()], prefix="val/")
        self.test_metrics = tt.TopKMetrics([*METRICS.values()])

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Score all tails."""
        return self.products(self.entities[heads] * self.relations[relations], self.entities.conj())

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Score all heads."""
        return self.products(self.relations[relations] * self.entities[tails].conj(), self.entities)

    def products(self, queries: Tensor, entities: Tensor) -> Tensor:
        """Multiply each query with all entities; both parts of a complex number are dropped together."""
        kept: Tensor = self.dropout(torch.ones_like(queries.real))
        return ((queries * kept) @ entities.T).real

    def training_step(self, batch: tuple[Tensor]) -> Tensor:
        """Learn the tail and the head, each among all entities."""
        head, relation, tail = batch[0].T
        loss = nn.functional.cross_entropy
        return loss(self.tails(head, relation), tail) + loss(self.heads(relation, tail), head)

    def validation_step(self, batch: tuple[Tensor]) -> None:
        """Log every metric."""
        rank(self.metrics, self, batch[0], self.known)
        self.log_dict(self.metrics)
        self.log("mrr", self.metrics["val/mrr"], prog_bar=True, logger=False)

    def test_step(self, batch: tuple[Tensor]) -> None:
        """Rank what the table is made of."""
        rank(self.test_metrics, self, batch[0], self.known)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def loader(triples: Tensor, batch_size: int, *, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    """Yield ``(B, 3)`` triples, a whole batch in one go."""
    data = TensorDataset(triples)
    order = RandomSampler(data) if shuffle else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(order, batch_size, drop_last=False), batch_size=None)


def fit(name: str, model: Factors, graph: Graph, *, epochs: int, batch_size: int, out: Path) -> tt.TopKMetrics:
    """Train a model, and test it as it was when it validated best."""
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        deterministic=True,
        enable_model_summary=False,
        logger=CSVLogger(out, name),
        callbacks=[
            ModelCheckpoint(out, name, "val/mrr", mode="max", enable_version_counter=False),
            TQDMProgressBar(refresh_rate=100),
        ],
    )
    trainer.fit(model, loader(graph.train, batch_size, shuffle=True), loader(graph.valid, batch_size))
    trainer.test(model, loader(graph.test, batch_size), ckpt_path="best", verbose=False)
    return model.test_metrics


def lay_out(suites: dict[str, tt.TopKMetrics]) -> Table:
    """Put the models side by side: the best in bold, and below each value its interval."""
    first, *_ = suites.values()
    title = f"Test split, {int(first.num_queries)} filtered ranks, with 95 % intervals"
    table = Table("", title=title, show_lines=True)
    for name in suites:
        table.add_column(name, justify="right")
    results = [(suite.compute(), suite.intervals(0.95)) for suite in suites.values()]
    for heading, key in METRICS.items():
        best = (max if first[key].higher_is_better else min)(values[key] for values, _ in results)
        cells = []
        for values, intervals in results:
            value = f"[bold]{values[key]:.4f}[/]" if values[key] == best else f"{values[key]:.4f}"
            cells.append(value + "\n[dim]{:.4f} – {:.4f}[/]".format(*intervals[key]))
        table.add_row(heading, *cells)
    return table


def main() -> None:
    """Train, test, and compare."""
    parser = argparse.ArgumentParser(description="Train and evaluate DistMult and ComplEx on a knowledge graph.")
    parser.add_argument("--data", type=Path, help="folder of three files; UMLS is downloaded and cached if left out")
    parser.add_argument("--out", type=Path, default=Path("runs/links"), help="folder of logs and weights")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--dim", type=int, default=256, help="real numbers a vector; two make a complex one")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.perf_counter()

    torch.set_num_threads(1)  # for small matrices, more would mostly wait for one another
    graph = Graph.read(args.data or download())
    print(f"{graph.known.num_entities} entities, {graph.known.num_relations} relations, {len(graph.train)} triples.")

    suites = {"frequency": tt.TopKMetrics([*METRICS.values()])}
    rank(suites["frequency"], Frequency(graph), graph.test, graph.known)
    for name, dtype in {"DistMult": torch.float32, "ComplEx": torch.complex64}.items():
        seed_everything(args.seed, verbose=False)  # for each, so that none hangs on those before it
        model = Factors(graph, args.dim, dtype)
        suites[name] = fit(name, model, graph, epochs=args.epochs, batch_size=args.batch_size, out=args.out)

    Console().print(lay_out(suites))
    print("An interval takes the two ranks of a triple for independent ones.")
    print(f"{time.perf_counter() - began:.0f} s. Weights and logs are in {args.out}.")


if __name__ == "__main__":
    main()
