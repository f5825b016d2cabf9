"""How the benchmarks measure: how much, times in turn, peak memory, growth, results, and the machine it was all on."""

from __future__ import annotations

import gc
import importlib.util
import math
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor
from torch.profiler import ProfilerActivity, profile
from torchmetrics import Metric

Row: TypeAlias = dict[str, Any]
Shape: TypeAlias = tuple[int, int]
Work: TypeAlias = dict[str, Callable[[], object]]
Kind: TypeAlias = Callable[[int, int, Generator], Tensor]

_SHORTEST = 5e-4  # seconds a sample takes at least: shorter work is repeated within it


@dataclass(frozen=True)
class Effort:
    """How long a comparison may take: rounds until the time is up, but no fewer than `least` nor more than `most`."""

    seconds: float
    least: int = 3
    most: int = 60


@dataclass(frozen=True)
class Times:
    """Milliseconds of each piece of work, one entry a round."""

    samples: dict[str, list[float]]

    def median(self, name: str) -> float:
        """The median of one piece of work."""
        return statistics.median(self.samples[name])

    def ratio(self, over: str, under: str) -> float:
        """The median of the ratios of two pieces of work within a round: what slows a round down slows both."""
        pairs = zip(self.samples[over], self.samples[under], strict=True)
        return statistics.median(a / b for a, b in pairs)


def _seconds(run: Callable[[], object], loops: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        run()
    return time.perf_counter() - start


def interleaved(work: Mapping[str, Callable[[], object]], effort: Effort) -> Times:
    """Run every piece of work once a round, in a new order each round, after a run that is not counted."""
    loops = {}
    for name, run in work.items():
        took = _seconds(run)
        if took < 0.1:  # the first time may be slower than the others
            took = _seconds(run)
        loops[name] = max(1, math.ceil(_SHORTEST / took))
    samples: dict[str, list[float]] = {name: [] for name in work}
    order, shuffle = list(work), random.Random(0)  # noqa: S311 - an order, no secret
    end, rounds = time.perf_counter() + effort.seconds, 0
    while rounds < effort.least or (rounds < effort.most and time.perf_counter() < end):
        shuffle.shuffle(order)
        for name in order:
            samples[name].append(_seconds(work[name], loops[name]) / loops[name] * 1e3)
        rounds += 1
    return Times(samples)


def peak_bytes(run: Callable[[], object]) -> int:
    """The most memory that tensors made by this work take at one time, beyond what was there before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler would announce itself
    run()  # what is made once and kept is no part of it
    gc.collect()  # nor is what others left, were it given back meanwhile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    results = profiler.profiler.kineto_results
    events = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    now = peak = 0
    for _, change in events:
        now += change
        peak = max(peak, now)
    return peak


def state_bytes(metric: Metric) -> int:
    """The bytes of a metric's state."""
    return sum(torch.as_tensor(each).nbytes for each in metric.metric_state.values())


def exponent(sizes: Sequence[float], figures: Sequence[float]) -> float:
    """The power of the size that a figure grows with: the slope of the least-squares line through the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(max(figure, 1e-12)) for figure in figures]
    slope: float = statistics.linear_regression(x, y).slope
    return slope


# Scores like a model's.


def _heavy_tailed(queries: int, items: int, generator: Generator) -> Tensor:
    """Student's t of two degrees of freedom: a normal over the root of an exponential."""
    spread = torch.empty(queries, items).exponential_(generator=generator).sqrt_()
    return torch.randn(queries, items, generator=generator).div_(spread)


SCORES: dict[str, Kind] = {
    "normal": lambda q, n, generator: torch.randn(q, n, generator=generator),
    "Student t": _heavy_tailed,
    "ascending": lambda q, n, generator: torch.arange(n).expand(q, n) / n + torch.rand(q, 1, generator=generator),
    "descending": lambda q, n, generator: -torch.arange(n).expand(q, n) / n + torch.rand(q, 1, generator=generator),
    "bfloat16": lambda q, n, generator: torch.randn(q, n, generator=generator).bfloat16(),
    "small integers": lambda q, n, generator: torch.randint(8, (q, n), generator=generator).float(),
    "all equal": lambda q, n, generator: torch.rand(q, 1, generator=generator).expand(q, n).contiguous(),
}
TIED = {"bfloat16", "small integers", "all equal"}
"""The kinds whose rows are full of ties."""
MODELS = ("normal", "bfloat16", "small integers")
"""The kinds of scores that the slower comparisons use."""


def make_scores(kind: str, queries: int, items: int) -> Tensor:
    """Scores of a kind, the same ones each time."""
    return SCORES[kind](queries, items, torch.Generator().manual_seed(0))


def make_ids(queries: int, items: int, relevant: int = 10) -> Tensor:
    """Distinct relevant ids a query, in no order."""
    generator, stride = torch.Generator().manual_seed(1), items // relevant
    ids = torch.randint(stride, (queries, relevant), generator=generator) + torch.arange(relevant) * stride
    return ids[:, torch.randperm(relevant, generator=generator)]


def make_mask(ids: Tensor, items: int) -> Tensor:
    """The same truth as a mask."""
    return torch.zeros(len(ids), items, dtype=torch.bool).scatter_(1, ids, value=True)


def make_lists(queries: int, labels: int, share: float = 1.0) -> tuple[Tensor, Tensor]:
    """Five ranked labels a row, and a share of five true ones, padded with −1: those at ranks 1, 3, 5, and two more."""
    generator = torch.Generator().manual_seed(2)
    ids = (make_ids(queries, labels) + torch.randint(labels, (queries, 1), generator=generator)) % labels
    kept = torch.rand(queries, 5, generator=generator) < share
    return ids[:, :5].contiguous(), ids[:, ::2].where(kept, -1)


def plant(scores: Tensor, ids: Tensor) -> Tensor:
    """Raise the scores of relevant items in place, so that some are found, as a model would."""
    return scores.scatter_(1, ids, scores.gather(1, ids) + 2)


# How much is measured, and what is found.


@dataclass(frozen=True)
class Scale:
    """How much is measured: how long each comparison may take, and divisors of the sizes."""

    effort: Effort
    queries: int = 1
    items: int = 1
    kinds: tuple[str, ...] = tuple(SCORES)
    batches: int = 10_000
    processes: int = 5
    world: int = 2  # processes that meet to count collectives
    step: int = 1  # every how many-th point of the growth curves is measured
    compiling: bool = True  # whether peers are measured that compile themselves first

    def of(self, shape: Shape) -> Shape:
        """The shape as it is measured at this scale."""
        return max(4, shape[0] // self.queries), max(100, shape[1] // self.items)

    @property
    def judges(self) -> bool:
        """Whether sizes are those that the bars speak of."""
        return self.queries == self.items == 1


@dataclass
class Bar:
    """Something aimed at, and what was reached."""

    what: str
    figure: float | None
    unit: str = ""
    aim: str = ""
    met: bool | None = None
    ours: str = ""
    peer: str = ""


@dataclass
class Results:
    """Everything measured, as it goes into the JSON file."""

    scale: Scale
    bars: list[Bar] = field(default_factory=list)
    topk: list[Row] = field(default_factory=list)
    suite: list[Row] = field(default_factory=list)
    counts: list[Row] = field(default_factory=list)
    peers: list[Row] = field(default_factory=list)
    labels: list[Row] = field(default_factory=list)
    coverage: list[Row] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    growth: list[Row] = field(default_factory=list)

    def aim(
        self,
        what: str,
        figure: float,
        unit: str,
        *,
        least: float | None = None,
        most: float | None = None,
        ours: str = "",
        peer: str = "",
    ) -> None:
        """Note a figure beside what it is to be at least or at most; a smaller scale judges nothing."""
        aim, met = "", None
        if least is not None:
            aim, met = f"≥ {least:g}{unit}", figure >= least
        elif most is not None:
            aim, met = f"≤ {most:g}{unit}", figure <= most
        self.bars.append(Bar(what, figure, unit, aim, met if self.scale.judges else None, ours, peer))

    def leave(self, what: str, reason: str) -> None:
        """Note what could not be measured, and why."""
        self.bars.append(Bar(what, None, peer=reason))
        print(f"  {what.replace('`', '')}: {reason}")


def show(shape: Shape) -> str:
    """A shape in words."""
    return f"{shape[0]:,} × {shape[1]:,}"


# Where it was measured.


def missing(module: str) -> bool:
    """Whether a peer is not installed."""
    return importlib.util.find_spec(module) is None


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of what is installed of these packages, and of Python."""
    installed = {each.metadata["Name"]: each.version for each in distributions()}
    return {"python": platform.python_version()} | {name: installed[name] for name in packages if name in installed}
