"""Check and time the package on a CUDA device: agreement with the CPU, no waiting for the device, graphs, and times.

    python benchmarks/gpu.py                  # under four minutes; writes docs/figures-gpu.json
    python benchmarks/gpu.py --cpu-dry-run    # the same steps on the CPU at small sizes; proves nothing of a GPU

It needs torch, torchmetrics and this package (installed, or PYTHONPATH=. before the command), and torch-geometric for
the comparison with a peer. What is run, beside top-k and counts themselves, is in `gpu_cases.py`. Inputs are drawn anew
each time; the seed is printed, and `--seed` repeats it. Where there is no CUDA device it says so. It exits with 1 if a
check fails, or is left out because its part took too long, and lists these at the end; what differs between two runs
and what deterministic mode refuses are findings. `python benchmarks/bars.py --page` puts the figures on the page.

The time to read the scores once is half the time of a copy from device to device, which reads and writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from importlib.metadata import distributions
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
import torchmetrics.retrieval as peer
from gpu_cases import CUTOFFS, LONG, Case, Draw, Model, cases, each_alone, everything
from torch import Generator, Tensor

import torch_topk as tt
from torch_topk import kernels, retrieval

METRICS = ["precision", "recall", "f1", "hit_rate", "mrr", "map", "ndcg"]
PYG = ["Precision", "Recall", "F1", "HitRatio", "MRR", "MAP", "NDCG"]
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
)
SHAPES = ((7, 50), (5, 1_000), (3, 4_097), (2, 40_000), (1, 300_001), (600, 130), (0, 10), (4, 1))
TIMED = ((1_024, 100_000), (128, 1_000_000), (512, 14_541), (4_096, 1_000), (1_024, 20_000))


Row = TypeVar("Row")
Inputs: TypeAlias = tuple[Tensor, Tensor]


def normal(queries: int, items: int, generator: Generator) -> Tensor:
    """Scores like a model's."""
    return torch.randn(queries, items, generator=generator)


def heavy_tailed(queries: int, items: int, generator: Generator) -> Tensor:
    """Student's t of two degrees of freedom."""
    return normal(queries, items, generator) / torch.empty(queries, items).exponential_(generator=generator).sqrt()


def tied(queries: int, items: int, generator: Generator) -> Tensor:
    """Eight values, so that every row is full of ties."""
    return torch.randint(8, (queries, items), generator=generator).float()


def equal(queries: int, items: int, generator: Generator) -> Tensor:
    """One value a row."""
    return torch.randint(1, 90, (queries, 1), generator=generator).float().expand(queries, items).contiguous()


def ascending(queries: int, items: int, generator: Generator) -> Tensor:
    """Sorted rows, with the best item last."""
    return normal(queries, items, generator).sort(dim=1).values


def descending(queries: int, items: int, generator: Generator) -> Tensor:
    """Sorted rows, with the best item first."""
    return ascending(queries, items, generator).flip(1)


def special(queries: int, items: int, generator: Generator) -> Tensor:
    """Infinities, both zeros and a few NaN among ties."""
    values = torch.tensor([float("-inf"), float("inf"), -0.0, 0.0, 1.0, -1.0, 0.0, -0.0])
    scores = values[torch.randint(8, (queries, items), generator=generator)]
    broken = torch.rand(queries, items, generator=generator) < 0.5 / max(items, 1)
    return scores.masked_fill(broken, float("nan"))


KINDS: dict[str, Callable[[int, int, Generator], Tensor]] = {
    "normal": normal,
    "Student t": heavy_tailed,
    "ties": tied,
    "all equal": equal,
    "ascending": ascending,
    "descending": descending,
    "infinities, zeros, NaN": special,
}


class Session:
    """The device, the seed, and what was found."""

    def __init__(self, device: str, seed: int, *, dry: bool) -> None:
        self.device, self.seed, self.dry = torch.device(device), seed, dry
        self.checks: list[dict[str, Any]] = []
        self.bars: list[dict[str, Any]] = []
        self.unsteady: list[dict[str, str]] = []
        self.parts: list[dict[str, Any]] = []
        self.shapes = tuple((max(2, q // 64), max(300, n // 50)) for q, n in TIMED) if dry else TIMED
        self.rounds = 2 if dry else 15
        self.until = math.inf

    def generator(self, *salt: int) -> Generator:
        """Random numbers on the CPU: the same for the same salt within a session."""
        return Generator().manual_seed(hash((self.seed, *salt)) % 2**31)

    def some(self, rows: Iterable[Row], step: int) -> list[Row]:
        """All of them; in a dry run, which would take long, one in a few."""
        return list(rows)[:: step if self.dry else 1]

    def there(self) -> AbstractContextManager[None]:
        """The paths of the device, which in a dry run are taken on the CPU."""
        return kernels.branch_free() if self.dry else nullcontext()

    def part(self, run: Callable[[Session], None], until: float) -> None:
        """Run a part, whose checks are left out and whose rounds come to an end once its time is up."""
        what, start, before = (run.__doc__ or "").splitlines()[0], time.perf_counter(), len(self.checks)
        print(f"\n{what}", flush=True)
        self.until = until
        try:
            run(self)
        except Exception as error:  # noqa: BLE001 - the other parts still count
            self.note(f"`{run.__name__}` came to its end", error)
        found, seconds = self.checks[before:], time.perf_counter() - start
        held = sum(row["passed"] for row in found)
        self.parts.append({"what": what, "checks": len(found), "held": held, "seconds": seconds})
        print(f"  {f'{held} of {len(found)} checks hold; ' if found else ''}{seconds:.1f} s", flush=True)

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The checks that did not hold."""
        return [row for row in self.checks if not row["passed"]]

    @property
    def late(self) -> bool:
        """Whether the time of the part that is running is up."""
        return time.perf_counter() > self.until

    def check(self, what: str, run: Callable[[], object]) -> None:
        """Run a check, and note whether it held."""
        error: Exception | None = None
        try:
            if self.late:
                raise TimeoutError("left out, as the time of its part was up")  # noqa: TRY301 - noted like any other
            run()
        except Exception as found:  # noqa: BLE001 - a check that fails is a finding, and the others still count
            error = found
        self.note(what, error)

    def note(self, what: str, error: Exception | None) -> None:
        """Note that a check held, or what became of it."""
        said = "" if error is None else brief(error)
        self.checks.append({"what": what, "passed": error is None, "said": said})
        if error is not None:
            print(f"  FAILS {what}: {said}", flush=True)

    def aim(self, what: str, figure: float, unit: str, most: float | None, *, ours: str, peer: str) -> None:
        """Note a figure, and what it is to be at most."""
        met = None if most is None or self.dry else figure <= most
        aim = "" if most is None else f"≤ {most:g}{unit}"
        self.bars.append(
            {"what": what, "figure": figure, "unit": unit, "aim": aim, "met": met, "ours": ours, "peer": peer}
        )
        verdict = {True: "met", False: "not met", None: ""}[met]
        print(f"  {figure:8.2f}{unit:3} {aim:8} {verdict:8} {what}  ({ours}; {peer})", flush=True)


def brief(error: Exception) -> str:
    """What an error says, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def same(ours: Any, expected: Any) -> None:
    """Raise unless two results are equal to the last bit, NaN with NaN."""
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)


# Agreement with the CPU, and of both with a stable sort.


def by_sort(scores: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """The top k by a stable sort, in which -0.0 equals 0.0."""
    scores = scores + 0 if scores.is_floating_point() else scores
    if ties == "index":
        values, indices = scores.sort(dim=-1, descending=True, stable=True)
    else:
        values, indices = scores.flip(-1).sort(dim=-1, descending=True, stable=True)
        indices = scores.shape[-1] - 1 - indices
    return values[..., :k], indices[..., :k]


def inputs(session: Session) -> Iterator[tuple[Tensor, int, str]]:
    """Scores of every type, kind and shape, a depth, and a tie rule."""
    pick = random.Random(session.seed)  # noqa: S311 - test data
    for i, (dtype, (kind, make), (queries, items)) in enumerate(product(DTYPES, KINDS.items(), SHAPES)):
        whole = not dtype.is_floating_point
        if whole and kind == "infinities, zeros, NaN":
            continue
        scores = make(queries, items, session.generator(i))
        if whole:
            scores = (scores * 40).clamp(0 if dtype == torch.uint8 else -120, 120)
        scores = scores.to(dtype)
        if dtype == torch.int64:  # more than float64 could tell apart
            scores = scores * (1 << 55) + torch.arange(items) % 2
        if i % 3 == 0:  # any strides
            scores = scores.T.contiguous().T
        depths = [k for k in (1, 3, 10, 100, items // 2, items) if k <= items]
        yield scores, pick.choice(depths), pick.choice(["index", "reverse"])


def agree_topk(session: Session) -> None:
    """Hold the top k to the CPU's and to a stable sort."""
    for scores, k, ties in inputs(session):
        with session.there():
            found = tt.topk(scores.to(session.device), k, ties=ties)
        same(found, tt.topk(scores, k, ties=ties))
        same(found, by_sort(scores, k, ties))


def agree_counts(session: Session) -> None:
    """Hold counts to the CPU's and to plain comparisons."""
    for scores, _, _ in inputs(session):
        if scores.numel():
            targets = scores[:, -1]
            with session.there():
                found = tt.rank_counts(scores.to(session.device), targets.to(session.device))
            same(found, tt.rank_counts(scores, targets))
            same(found, ((scores > targets[:, None]).sum(1), (scores >= targets[:, None]).sum(1)))


def agree_wide(session: Session) -> None:
    """Hold rows to their order and number where a float32 would lose count."""
    items = 2**24 + 3
    scores = torch.zeros(1, items, device=session.device)
    scores[0, -1] = -1
    first = torch.tensor([[0, 1, 2]])
    with session.there():
        same(tt.topk(scores, 3), (torch.zeros(1, 3), first))
        same(tt.topk(scores, 3, ties="reverse"), (torch.zeros(1, 3), items - 2 - first))
        same(tt.rank_counts(scores, scores[:, 0]), (torch.tensor([0]), torch.tensor([items - 1])))
        same(tt.rank_counts(scores, scores[:, -1]), (torch.tensor([items - 1]), torch.tensor([items])))


def agree_search(session: Session) -> None:
    """Hold a search to a stable sort of the whole product; small integers have the same products on all devices."""
    generator = session.generator(10**6)
    query = torch.randint(-4, 5, (33, 16), generator=generator).float()
    items = torch.randint(-4, 5, (5_003, 16), generator=generator).float()
    with session.there():
        found = tt.search(query.to(session.device), items.to(session.device), 20)
    same(found, by_sort(query @ items.T, 20, "index"))


def order(session: Session) -> None:
    """The order of the top k, and counts, are those of the CPU and of a stable sort."""
    number = f"{sum(1 for _ in inputs(session))} inputs"
    session.check(f"`tt.topk` is the CPU's and a stable sort's, {number}", partial(agree_topk, session))
    session.check("more than 2^24 items are ranked and counted exactly", partial(agree_wide, session))
    session.check(f"`tt.rank_counts` is the CPU's, {number}", partial(agree_counts, session))
    session.check("`tt.search` is a stable sort of the whole product", partial(agree_search, session))


# Agreement of all that is made of them with the CPU.


def ran(case: Case, device: torch.device, seed: int) -> Any:
    """Make a case, run it, and take its result to the CPU."""
    step, result = case.of(device, seed)
    step()
    return fetched(result())


def fetched(result: Any) -> Any:
    """A result with every tensor on the CPU."""
    if isinstance(result, Mapping):
        return {key: fetched(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [fetched(value) for value in result]
    return result.cpu() if isinstance(result, Tensor) else result


def agree(session: Session, case: Case) -> None:
    """Hold the result of a case to the CPU's: whole numbers exactly, others as closely as the case says."""
    expected = ran(case, torch.device("cpu"), session.seed)
    with session.there():
        found = ran(case, session.device, session.seed)
    tolerance = {"rtol": case.tolerance, "atol": case.tolerance}
    torch.testing.assert_close(found, expected, **tolerance, equal_nan=True)


def agreement(session: Session) -> None:
    """Every part of the package has the CPU's values and ids."""
    for name, case in cases().items():
        session.check(f"as the CPU: {name}", partial(agree, session, case))


def together(session: Session) -> None:
    """What ranks do together is right in a group of this process alone."""
    backend = "gloo" if session.dry else "cpu:gloo,cuda:nccl"
    store, limit = torch.distributed.HashStore(), timedelta(seconds=30)
    torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1, timeout=limit)
    try:
        for name, case in cases().items():
            if case.collective:
                session.check(f"in a group: {name}", partial(agree, session, case))
    finally:
        torch.distributed.destroy_process_group()


# Nothing waits for the device.


@contextmanager
def no_waiting(session: Session) -> Iterator[None]:
    """Make torch raise where the host waits for the device; on the CPU only take the paths that a GPU takes."""
    if session.dry:
        with kernels.branch_free():
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def catch_item(session: Session) -> None:
    """Raise unless the trap catches a plain read."""
    number = torch.ones(3, device=session.device)
    try:
        with no_waiting(session):
            number.sum().item()
    except RuntimeError:
        return
    raise AssertionError("item() was let pass, so the checks below would show nothing")


def run_unwaited(session: Session, case: Case) -> None:
    """Make a case, and run it for the first time without waiting."""
    step, _ = case.of(session.device, session.seed)
    with no_waiting(session):
        step()


def waiting(session: Session) -> None:
    """What promises to read nothing never waits for the device; the trap itself is tried first."""
    if not session.dry:
        session.check("torch's trap catches item()", partial(catch_item, session))
    for name, case in session.some([*cases().items(), *each_alone()], 3):
        if case.unread:
            session.check(f"no wait: {name}", partial(run_unwaited, session, case))


# Graphs.


def captured(session: Session, run: Callable[[], Tensor]) -> tuple[Callable[[], object], Callable[[], Tensor]]:
    """Capture work in a CUDA graph: what replays it, and what gives its result. On the CPU, the work itself."""
    if session.dry:
        held: list[Tensor] = []

        def again() -> None:
            with session.there():
                held.append(run())

        return again, lambda: held[-1]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return graph.replay, lambda: out


def graph_inputs(session: Session, salt: int, shape: tuple[int, int], dtype: torch.dtype, form: str) -> Inputs:
    """Scores and truth of one form, on the CPU."""
    (queries, items), generator = shape, session.generator(3 * 10**6 + salt)
    scores = normal(queries, items, generator).to(dtype)
    if form in {"labels", "counts"}:
        return scores, torch.randint(items, (queries,), generator=generator)
    ids = torch.randint(items // 9, (queries, 9), generator=generator) + items // 9 * torch.arange(9)
    if form == "ids":
        return scores, ids
    return scores, torch.zeros(queries, items, dtype=torch.bool).scatter_(1, ids, value=True)


def packed_sums(suite: tt.TopKMetrics, scores: Tensor, truth: Tensor, form: str) -> Tensor:
    """Rank a batch, and add its queries up as the suite does before it adds them to its state."""
    ranking = suite.rank(scores, tt.Relevance.from_ids(truth) if form == "ids" else truth)
    return suite._sums_of(suite._batch(ranking))  # noqa: SLF001 - what update() adds


def replay(session: Session, shape: tuple[int, int], dtype: torch.dtype, form: str) -> None:
    """Capture a graph, and hold its replays on other inputs to the CPU's sums."""
    reads = "counts" if form == "counts" else "ranking"
    there, here = (
        [everything(device, k, LONG[1], reads=reads) for k in (CUTOFFS, None)]
        for device in (session.device, torch.device("cpu"))
    )
    scores, truth = (each.to(session.device) for each in graph_inputs(session, 0, shape, dtype, form))
    run, result = captured(session, lambda: torch.cat([packed_sums(suite, scores, truth, form) for suite in there]))
    for salt in (1, 2):
        fresh = graph_inputs(session, salt, shape, dtype, form)
        scores.copy_(fresh[0])
        truth.copy_(fresh[1])
        run()
        expected = torch.cat([packed_sums(suite, *fresh, form) for suite in here])
        torch.testing.assert_close(result().cpu(), expected, rtol=1e-9, atol=1e-9)


def graphs(session: Session) -> None:
    """A graph captures the record and packed sums, and replays them on other scores and truth."""
    shapes = ((64, 900), (16, 6_000 if session.dry else 60_000))
    for shape, dtype in product(shapes, (torch.float32, torch.bfloat16)):
        for form in ("ids", "mask", "labels", "counts"):
            what = f"a graph of a record and packed sums, replayed on other inputs, {shape[0]} × {shape[1]:,}"
            what += f" {str(dtype).removeprefix('torch.')}, truth as {form}"
            session.check(what, partial(replay, session, shape, dtype, form))


# Times.


def interleaved(session: Session, work: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Milliseconds on the device of each piece of work, once a round, in a new order each round."""
    samples: dict[str, list[float]] = {name: [] for name in work}
    order, shuffle = list(work), random.Random(0)  # noqa: S311 - an order, no secret
    for round_ in range(session.rounds + 2):
        if session.late:
            if round_ > 2:
                break
            raise TimeoutError("the time of the part was up before it was measured")
        shuffle.shuffle(order)
        for name in order:
            took = timed(session, work[name])
            if round_ >= 2:  # before that, memory is being claimed and kernels are being loaded
                samples[name].append(took)
    return samples


def timed(session: Session, run: Callable[[], object], loops: int = 5) -> float:
    """Milliseconds of one run, the mean over a few that follow one another as the batches of an epoch do."""
    if session.dry:
        start = time.perf_counter()
        with session.there():
            run()
        return (time.perf_counter() - start) * 1e3
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    first.record()
    for _ in range(loops):
        run()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / loops


def pyg_collection(device: torch.device) -> Any:
    """PyTorch Geometric's collection of the same metrics; None where it is not installed."""
    try:
        from torch_geometric import metrics
    except ImportError:
        return None
    pairs = [getattr(metrics, f"LinkPred{name}")(k=k) for name in PYG for k in CUTOFFS]
    return metrics.LinkPredMetricCollection(pairs).to(device)


def timed_work(session: Session, shape: tuple[int, int], kind: str) -> dict[str, Callable[[], object]]:
    """What is timed on scores of one shape and kind."""
    (queries, items), device, depth = shape, session.device, max(CUTOFFS)
    make = tied if kind == "ties" else normal
    drawn = make(min(queries, 128), items, session.generator(4 * 10**6)).to(device)
    scores = drawn.repeat(-(-queries // len(drawn)), 1)[:queries].contiguous()
    if kind == "bfloat16":
        scores = scores.bfloat16()
    part = items // 10
    ids = torch.randint(part, (queries, 10), device=device) + part * torch.arange(10, device=device)
    mask = torch.zeros(queries, items, dtype=torch.bool, device=device).scatter_(1, ids, value=True)
    edges = torch.stack([torch.arange(queries, device=device).repeat_interleave(10), ids.flatten()])
    suite, targets = tt.TopKMetrics(METRICS, k=CUTOFFS).to(device), scores[:, 0].contiguous()
    work: dict[str, Callable[[], object]] = {
        "copy": partial(torch.empty_like(scores).copy_, scores),
        "amax": partial(scores.amax, 1),
        "tt.topk": partial(tt.topk, scores, depth),
        "torch.topk": partial(scores.topk, depth),
        "update": lambda: suite.update(scores, tt.Relevance.from_ids(ids)),
        "update, mask": partial(suite.update, scores, mask),
        "graph": captured(session, lambda: packed_sums(suite, scores, ids, "ids"))[0],
        "rank_counts": partial(tt.rank_counts, scores, targets),
    }
    pyg = pyg_collection(device)
    if pyg is not None:
        work["pyg"] = lambda: pyg.update(scores.topk(depth).indices, edges)
    return work


def times(session: Session) -> None:
    """Times as a share of one read of the scores, beside torch.topk and PyTorch Geometric."""
    for shape, kind in product(session.shapes, ("normal", "ties", "bfloat16")):
        where = f"{shape[0]:,} × {shape[1]:,}, {kind}"
        session.check(f"timed: {where}", partial(time_shape, session, shape, kind, where))


def time_shape(session: Session, shape: tuple[int, int], kind: str, where: str) -> None:
    """Time what reads scores of one shape and kind."""
    work = timed_work(session, shape, kind)
    judge(session, where, interleaved(session, work), extra_memory(session, work["update"]))


def judge(session: Session, where: str, samples: dict[str, list[float]], extra: str) -> None:
    """Note the times of one shape and kind of scores."""
    took = {name: statistics.median(each) for name, each in samples.items()}

    def ratio(over: str, under: str) -> float:
        return statistics.median(a / b for a, b in zip(samples[over], samples[under], strict=True))

    def beside(name: str) -> str:
        return f"{took[name]:.3f} ms"

    read = f"one read {took['copy'] / 2:.3f} ms, `amax` {beside('amax')}"
    labels = {
        "tt.topk": "`tt.topk`, k = 20, in reads of the scores",
        "update": "Update of 7 metrics × 4 K, truth as ids, in reads of the scores",
        "update, mask": "The same, truth as a mask",
        "graph": "The same, truth as ids, replayed from a graph",
        "rank_counts": "`tt.rank_counts`, in reads of the scores",
    }
    large = where.startswith(("1,024 × 100,000", "128 × 1,000,000"))
    for name, label in labels.items():
        if name in took:
            most = 2.0 if large and name in {"update", "graph"} else None
            peer = f"{read}; {extra}" if name == "update" else read
            session.aim(f"{label}, {where}", 2 * ratio(name, "copy"), "×", most, ours=beside(name), peer=peer)
    pairs = [("torch.topk", "tt.topk", "`tt.topk`"), ("pyg", "update", "Update")]
    for other, own, label in pairs:
        if other in took:
            named = "PyG's collection + `torch.topk`" if other == "pyg" else "`torch.topk`"
            what = f"{label}, times as fast as {named}, {where}"
            session.aim(what, ratio(other, own), "×", None, ours=beside(own), peer=f"{named} {beside(other)}")


def extra_memory(session: Session, run: Callable[[], object]) -> str:
    """The most memory that a piece of work takes beyond what is there."""
    if session.dry:
        return "memory not measured"
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return f"{(torch.cuda.max_memory_allocated() - before) / 2**20:.1f} MiB more at its peak"


Timed: TypeAlias = tuple[dict[str, Callable[[], object]], dict[tuple[str, str], str]]
"""Pieces of work; and of pairs of them, which to divide by which, what the ratio is."""


def suites(draw: Draw) -> Timed:
    """A suite that keeps resamples, groups, or each query's values, beside one that does not."""
    part = draw.items // 10
    scores, truth = normal_on(draw, draw.queries, draw.items), draw.whole(draw.queries, 10, high=part)
    ids = truth + part * draw.count(10)
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "1,000 resamples": {"bootstrap": 1_000},
        "1,000 groups": {"slices": {"group": 1_000}},
        "each query's values": {"collect": True},
    }
    work: dict[str, Callable[[], object]] = {}
    for name, more in options.items():
        given = {"groups": {"group": draw.whole(draw.queries, high=1_000)}} if "slices" in more else {}
        work[name] = partial(update_by, tt.TopKMetrics(METRICS, k=10, **more).to(draw.device), scores, ids, **given)
    return work, {
        (name, "plain"): f"Update of 7 metrics with {name}, in plain ones" for name in work if name != "plain"
    }


def update_by(suite: tt.TopKMetrics, scores: Tensor, ids: Tensor, **more: Any) -> None:
    """Update a suite with lists of relevant ids."""
    suite.update(scores, tt.Relevance.from_ids(ids), **more)


def normal_on(draw: Draw, *size: int) -> Tensor:
    """Scores like a model's, on the device."""
    return torch.randn(size, generator=Generator(draw.device).manual_seed(draw.seed), device=draw.device)


def report(draw: Draw) -> Timed:
    """A report of labels, beside a copy of the scores."""
    scores, held = normal_on(draw, draw.queries, draw.items), draw.whole(draw.queries, 5, high=draw.items)
    counts = tt.LabelReport(draw.items, (1, 3, 5)).to(draw.device)
    work = {
        "report": lambda: counts.update(scores, tt.Relevance.from_ids(held)),
        "copy": partial(torch.empty_like(scores).copy_, scores),
    }
    return work, {("report", "copy"): "Update of `LabelReport`, k = 1, 3, 5, in copies of the scores"}


def links(draw: Draw) -> Timed:
    """Ranks of links, beside the bare products."""
    model, size = Model(draw, draw.items, dim=200), 20 * draw.items
    head, relation, tail = (draw.whole(size, high=high) for high in (draw.items, 5, draw.items))
    graph = torch.stack([head, relation, tail], dim=1)
    known = tt.KnownTriples(graph, num_entities=draw.items, num_relations=5)
    first = [each[: draw.queries] for each in (head, relation, tail)]
    work = {
        "links": lambda: tt.evaluate_links(model.tails, model.heads, graph[: draw.queries], known, memory=1 << 30),
        "products": lambda: (model.tails(*first[:2]), model.heads(*first[1:])),
    }
    return work, {("links", "products"): "`tt.evaluate_links`, raw and filtered, in bare products"}


def searches(draw: Draw) -> Timed:
    """A search, beside the bare product and the top k of it."""
    queries, items = normal_on(draw, draw.queries, 64), normal_on(draw, draw.items, 64)
    out = draw.whole(draw.queries, 50, high=draw.items)
    work = {
        "search": lambda: tt.search(queries, items, 20),
        "search without": lambda: tt.search(queries, items, 20, exclude=out),
        "product": lambda: queries @ items.T,
        "product and topk": lambda: (queries @ items.T).topk(20),
    }
    named = {"search": "`tt.search`, k = 20", "search without": "`tt.search`, k = 20, 50 ids excluded"}
    pairs = product(named, (("product", "bare products"), ("product and topk", "products with `torch.topk`")))
    return work, {(name, other): f"{named[name]}, in {what}" for name, (other, what) in pairs}


def retrievals(draw: Draw) -> Timed:
    """What is computed of rows, beside TorchMetrics' own average precision, which loops over queries."""
    rows = draw.queries * draw.items
    scores = (normal_on(draw, rows).argsort() + 1) / rows
    target, indexes = draw.whole(rows, high=10) // 9, draw.count(rows) // draw.items
    work: dict[str, Callable[[], object]] = {}
    for package, name in ((retrieval, "RetrievalMAP"), (retrieval, "RetrievalNormalizedDCG"), (peer, "RetrievalMAP")):
        metric = getattr(package, name)(compute_with_cache=False).to(draw.device)
        metric.update(scores, target, indexes=indexes)
        work[f"TorchMetrics' {name}" if package is peer else name] = metric.compute
    slow = "TorchMetrics' RetrievalMAP"
    said = "times as fast as TorchMetrics' `RetrievalMAP`"
    return work, {(slow, name): f"`{name}`, {said}" for name in work if name != slow}


PARTS: tuple[tuple[Callable[[Draw], Timed], tuple[int, int]], ...] = (
    (suites, (1_024, 20_000)),
    (report, (1_024, 10_000)),
    (links, (2_000, 14_541)),
    (searches, (1_024, 500_000)),
    (retrievals, (2_000, 100)),
)


def times_of_parts(session: Session) -> None:
    """Times of suites that keep more, reports, links, searches and the retrieval package."""
    for make, (queries, items) in PARTS:
        shape = (max(2, queries // 50), max(50, items // 50)) if session.dry else (queries, items)
        where = f"{shape[0]:,} × {shape[1]:,}"
        session.check(f"timed: {make.__name__}, {where}", partial(time_part, session, make, shape, where))


def time_part(session: Session, make: Callable[[Draw], Timed], shape: tuple[int, int], where: str) -> None:
    """Time pieces of work and note their ratios."""
    work, ratios = make(Draw(session.device, session.seed, shape))
    slow = {name: run for name, run in work.items() if name.startswith("TorchMetrics")}
    samples = interleaved(session, {name: run for name, run in work.items() if name not in slow})
    for name, run in slow.items():  # once, as it takes seconds
        samples[name] = [timed(session, run, loops=1)] * len(next(iter(samples.values())))
    took = {name: statistics.median(each) for name, each in samples.items()}
    for (over, under), what in ratios.items():
        ratio = statistics.median(a / b for a, b in zip(samples[over], samples[under], strict=True))
        ours, other = (over, under) if over not in slow else (under, over)
        told = [f"{took[ours]:.3f} ms", f"{other} {took[other]:.3f} ms"]
        session.aim(f"{what}, {where}", ratio, "×", None, ours=told[0], peer=told[1])


# Two runs.


def steady(session: Session) -> None:
    """What differs in its last bits between two runs, and what deterministic mode refuses: no failures."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without which torch refuses every product in that mode
    families: dict[str, tuple[str, Case]] = {}
    for name, case in cases().items():
        families.setdefault(re.split("[:,(]", name)[0], (name, case))
    chosen = session.some([*each_alone(), *families.values()], 20)
    for name, case in chosen:
        if session.late:
            raise TimeoutError(f"the time of the part was up before {name!r}")
        found = {"what": name, "plain": twice(session, case), "strict": ""}
        torch.use_deterministic_algorithms(mode=True)
        try:
            found["strict"] = twice(session, case)
        finally:
            torch.use_deterministic_algorithms(mode=False)
        if found["plain"] or found["strict"]:
            session.unsteady.append(found)
            said = [found[mode] or "the same" for mode in ("plain", "strict")]
            print(f"  {name}: {said[0]}; in deterministic mode {said[1]}", flush=True)
    print(f"  {len(chosen) - len(session.unsteady)} of {len(chosen)} are the same to the last bit, in both modes")


def twice(session: Session, case: Case) -> str:
    """Run a case twice: nothing if both results are the same, or what became of them."""
    try:
        with session.there():
            first, second = (ran(case, session.device, session.seed) for _ in range(2))
    except Exception as error:  # noqa: BLE001 - a refusal is what is looked for
        return brief(error)[:120]
    try:
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return "differs"
    return ""


def about(session: Session) -> dict[str, Any]:
    """What it ran on."""
    installed = {each.metadata["Name"]: each.version for each in distributions()}
    names = ("torch-topk", "torch", "torchmetrics", "torch-geometric")
    card = "no GPU: a dry run on the CPU" if session.dry else torch.cuda.get_device_name()
    versions = {name: installed[name] for name in names if name in installed}
    return {"card": card, "cuda": torch.version.cuda, "versions": versions, "seed": session.seed}


RUN: tuple[tuple[Callable[[Session], None], int], ...] = (
    (order, 25),
    (agreement, 80),
    (waiting, 35),
    (graphs, 20),
    (times, 30),
    (times_of_parts, 15),
    (steady, 20),
    (together, 10),
)
"""The parts, and how many seconds each may take, beside what those before it left over."""


def run(session: Session, out: Path | None = None) -> dict[str, Any]:
    """Check and time everything, and write what is found after each part, lest one should end it all."""
    found = {"about": about(session), "parts": session.parts, "bars": session.bars, "unsteady": session.unsteady}
    print(f"{found['about']['card']}, CUDA {found['about']['cuda']}, {found['about']['versions']}, seed {session.seed}")
    until = time.perf_counter()
    for part, seconds in RUN:
        until += math.inf if session.dry else seconds
        session.part(part, until)
        found["checks"] = [summary(row) for row in session.parts if row["checks"]] + session.failed
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return found


def summary(part: dict[str, Any]) -> dict[str, Any]:
    """How many checks of a part hold, as one."""
    failed = part["checks"] - part["held"]
    return {"what": f"{part['what']} ({part['checks']} checks)", "passed": not failed, "said": f"{failed} fail"}


def main() -> int:
    """Run on the CUDA device, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-dry-run", action="store_true", help="go through the steps on the CPU")
    parser.add_argument("--seed", type=int, help="repeat a run's inputs")
    parser.add_argument("--out", type=Path, help="the JSON file (default: docs/figures-gpu.json; a dry run: none)")
    options = parser.parse_args()
    if not torch.cuda.is_available() and not options.cpu_dry_run:
        print("There is no CUDA device here, so nothing was measured. --cpu-dry-run goes through the steps on the CPU.")
        return 0
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    session = Session("cpu" if options.cpu_dry_run else "cuda", seed, dry=options.cpu_dry_run)
    docs = Path(__file__).resolve().parent.parent / "docs"
    out = options.out or (None if session.dry else docs / "figures-gpu.json")
    run(session, out)
    if out is not None:
        print(f"\nWritten: {out.name}")
    number, seconds = len(session.checks), sum(part["seconds"] for part in session.parts)
    print(f"\n{number - len(session.failed)} of {number} checks hold, in {seconds:.0f} s.")
    for row in session.failed:
        print(f"  {row['what']}: {row['said']}")
    return 1 if session.failed else 0


if __name__ == "__main__":
    sys.exit(main())
