"""Check and time the package on a CUDA device: agreement with the CPU, no waiting for the device, graphs, and times.

    python benchmarks/gpu.py                  # under four minutes; writes docs/figures-gpu.json
    python benchmarks/gpu.py --cpu-dry-run    # the same steps on the CPU at small sizes; proves nothing of a GPU

It needs torch, torchmetrics and this package, and torch-geometric for the comparison with a peer. Inputs are drawn anew
each time; the seed is printed, and `--seed` repeats it. Where there is no CUDA device it says so. It exits with 1 if a
check fails. `python benchmarks/bars.py --page` puts the figures on the page.

The time to read the scores once is half the time of a copy from device to device, which reads and writes them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import distributions
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor

import torch_topk as tt
from torch_topk import kernels
from torch_topk.metric import options_of

METRICS = ["precision", "recall", "f1", "hit_rate", "mrr", "map", "ndcg"]
PYG = ["Precision", "Recall", "F1", "HitRatio", "MRR", "MAP", "NDCG"]
CUTOFFS = [1, 5, 10, 20]
POLICIES: tuple[dict[str, Any], ...] = (
    {"empty": "skip"},
    {"empty": "error"},
    {"min_relevance": 2},
    {"ties": "reverse"},
    {"non_finite": "last"},
    {"validate": "off"},
    {"dataset_size": 10_000},
    {"ignore_index": -1},
)
NUMBERS = {  # without which a metric cannot be made
    "propensities": 1 / (1 + torch.arange(1 << 16) % 7),
    "item_counts": torch.arange(1 << 16) % 6,
    "num_users": 5,
    "embeddings": torch.arange(1 << 18).view(-1, 4).sin(),
    "num_items": 1 << 16,
}
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


Batch: TypeAlias = dict[str, Any]
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
        self.shapes = tuple((max(2, q // 64), max(300, n // 50)) for q, n in TIMED) if dry else TIMED
        self.rounds = 2 if dry else 15

    def generator(self, *salt: int) -> Generator:
        """Random numbers on the CPU: the same for the same salt within a session."""
        return Generator().manual_seed(hash((self.seed, *salt)) % 2**31)

    def check(self, what: str, run: Callable[[], object]) -> None:
        """Run a check, and note whether it held."""
        said = ""
        try:
            run()
        except Exception as error:  # noqa: BLE001 - a check that fails is a finding, and the others still count
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self.checks.append({"what": what, "passed": not said, "said": said})
        print(f"  {'holds' if not said else 'FAILS':6} {what}{said and ': ' + said}", flush=True)

    def aim(self, what: str, figure: float, unit: str, most: float | None, *, ours: str, peer: str) -> None:
        """Note a figure, and what it is to be at most."""
        met = None if most is None or self.dry else figure <= most
        aim = "" if most is None else f"≤ {most:g}{unit}"
        self.bars.append(
            {"what": what, "figure": figure, "unit": unit, "aim": aim, "met": met, "ours": ours, "peer": peer}
        )
        verdict = {True: "met", False: "not met", None: ""}[met]
        print(f"  {figure:8.2f}{unit:3} {aim:8} {verdict:8} {what}  ({ours}; {peer})", flush=True)


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


def cases(session: Session) -> Iterator[tuple[Tensor, int, str]]:
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
    for scores, k, ties in cases(session):
        found = tt.topk(scores.to(session.device), k, ties=ties)
        same(found, tt.topk(scores, k, ties=ties))
        same(found, by_sort(scores, k, ties))


def agree_counts(session: Session) -> None:
    """Hold counts to the CPU's and to plain comparisons."""
    for scores, _, _ in cases(session):
        if scores.numel():
            targets = scores[:, -1]
            found = tt.rank_counts(scores.to(session.device), targets.to(session.device))
            same(found, tt.rank_counts(scores, targets))
            same(found, ((scores > targets[:, None]).sum(1), (scores >= targets[:, None]).sum(1)))


def agree_wide(session: Session) -> None:
    """Hold rows to their order and number where a float32 would lose count."""
    items = 2**24 + 3
    scores = torch.zeros(1, items, device=session.device)
    scores[0, -1] = -1
    first = torch.tensor([[0, 1, 2]])
    same(tt.topk(scores, 3), (torch.zeros(1, 3), first))
    same(tt.topk(scores, 3, ties="reverse"), (torch.zeros(1, 3), items - 2 - first))
    if hasattr(tt, "rank_counts"):
        same(tt.rank_counts(scores, scores[:, 0]), (torch.tensor([0]), torch.tensor([items - 1])))
        same(tt.rank_counts(scores, scores[:, -1]), (torch.tensor([items - 1]), torch.tensor([items])))


def agree_search(session: Session) -> None:
    """Hold a search to a stable sort of the whole product; small integers have the same products on all devices."""
    generator = session.generator(10**6)
    query = torch.randint(-4, 5, (33, 16), generator=generator).float()
    items = torch.randint(-4, 5, (5_003, 16), generator=generator).float()
    same(tt.search(query.to(session.device), items.to(session.device), 20), by_sort(query @ items.T, 20, "index"))


def agree_suite(session: Session, name: str) -> None:
    """Hold the value of every metric on one form of input to the CPU's."""
    here, there = everything(), everything().to(session.device)
    here.update(**batches(torch.device("cpu"), session)[name])
    there.update(**batches(session.device, session)[name])
    found = there.compute()
    for key, value in here.compute().items():
        torch.testing.assert_close(found[key].cpu(), value, rtol=1e-12, atol=1e-12, msg=key)


def agreement(session: Session) -> None:
    """Ids and values are those of the CPU, and of a stable sort."""
    inputs = f"{sum(1 for _ in cases(session))} inputs"
    session.check(f"`tt.topk` is the CPU's and a stable sort's, {inputs}", partial(agree_topk, session))
    session.check("more than 2^24 items are ranked and counted exactly", partial(agree_wide, session))
    if hasattr(tt, "rank_counts"):
        session.check(f"`tt.rank_counts` is the CPU's, {inputs}", partial(agree_counts, session))
    if hasattr(tt, "search"):
        session.check("`tt.search` is a stable sort of the whole product", partial(agree_search, session))
    for name in batches(torch.device("cpu"), session):
        session.check(f"every metric has the CPU's value, {name}", partial(agree_suite, session, name))


# Every form of truth and exclusion.


def everything(**policies: Any) -> tt.TopKMetrics:
    """Every metric that there is."""
    metrics = [
        {"name": name, **{option: NUMBERS[option] for option in options_of(cls) if option in NUMBERS}}
        for name, cls in tt.registry.items()
        if "ranking" in cls.reads
    ]
    return tt.TopKMetrics(metrics, k=CUTOFFS, **policies)


def batches(device: torch.device, session: Session) -> dict[str, Batch]:
    """A batch for every form of truth and of exclusion, with the same numbers on every device."""
    queries, items = 64, 1_000
    generator = session.generator(2 * 10**6)

    def whole(*shape: int, low: int = 0, high: int = 4) -> Tensor:
        return torch.randint(low, high, shape, generator=generator).to(device)

    scores = whole(queries, items, high=500).float()
    grades, labels = whole(queries, items, low=-3), whole(queries, high=items)
    ids = (whole(queries, 9, high=100) + 100 * torch.arange(9, device=device)).index_fill(
        1, torch.tensor([4], device=device), -1
    )
    rows, some = whole(queries, high=queries), whole(items, high=2).bool()
    pairs = whole(900, high=queries), whole(900, high=items)
    mask = whole(queries, items, high=20) == 0

    def coo() -> Tensor:
        ones = torch.ones(900, device=device)
        return torch.sparse_coo_tensor(torch.stack(pairs), ones, (queries, items), check_invariants=False)

    def csr() -> Tensor:
        starts = torch.arange(queries + 1, device=device) * 9
        columns = (torch.arange(queries * 9, device=device) * 37) % items
        values = torch.ones(queries * 9, device=device)
        return torch.sparse_csr_tensor(starts, columns, values, (queries, items), check_invariants=False)

    relevance = tt.Relevance
    truths = {
        "grades": grades,
        "half-precision grades": grades.half(),
        "a bool mask": mask,
        "labels": labels,
        "from_dense": relevance.from_dense(grades),
        "from_ids": relevance.from_ids(ids),
        "from_ids with gains": relevance.from_ids(ids, whole(queries, 9)),
        "from_labels": relevance.from_labels(labels),
        "from_coo": relevance.from_coo(*pairs, num_queries=queries),
        "from_coo with gains": relevance.from_coo(*pairs, whole(900), num_queries=queries),
        "a CSR matrix": csr(),
        "a COO matrix": coo(),
        "from_sparse of CSR": relevance.from_sparse(csr()),
        "from_sparse of COO": relevance.from_sparse(coo()),
        "kept items": relevance.from_ids(ids).keep(some),
        "rows of dense truth": relevance.from_dense(grades)[rows],
        "rows of ids": relevance.from_ids(ids)[rows],
        "rows of pairs": relevance.from_coo(*pairs, num_queries=queries)[rows],
        "a slice of pairs": relevance.from_coo(*pairs, num_queries=queries)[0:queries],
    }
    exclusions = {
        "a mask": mask,
        "a mask for all": some,
        "ids": ids,
        "ids for all": ids[0],
        "dense truth": relevance.from_dense(mask),
        "truth of ids": relevance.from_ids(ids),
        "pairs": relevance.from_coo(*pairs, num_queries=queries),
        "rows of pairs": relevance.from_coo(*pairs, num_queries=queries)[rows],
        "a CSR matrix": csr(),
        "a COO matrix": coo(),
        "a list of these": [mask, ids, relevance.from_coo(*pairs, num_queries=queries)],
    }
    found: dict[str, Batch] = {f"truth: {name}": {"preds": scores, "target": truth} for name, truth in truths.items()}
    for name, exclude in exclusions.items():
        found[f"exclude: {name}"] = {"preds": scores, "target": grades, "exclude": exclude}
    found["exclude beside labels"] = {"preds": scores, "target": labels, "exclude": mask}
    found["weights"] = {"preds": scores, "target": grades, "weights": whole(queries).float()}
    found["items"] = {
        "preds": scores,
        "target": relevance.from_ids(ids),
        "items": torch.arange(items, device=device).flip(0),
    }
    found["bfloat16 scores"] = {"preds": scores.bfloat16(), "target": grades}
    return found


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


def update_unwaited(session: Session, batch: Batch, policy: dict[str, Any]) -> None:
    """Update, and call, a suite of everything without waiting."""
    suite = everything(**policy).to(session.device)
    suite.update(**batch)  # what is set up once, in torch and in its libraries
    with no_waiting(session):
        suite.update(**batch)
        suite(**batch)


def waiting(session: Session) -> None:
    """`update` and `forward` never wait for the device; the trap itself is tried first."""
    if not session.dry:
        session.check("torch's trap catches item()", partial(catch_item, session))
    found = batches(session.device, session)
    for name, batch in found.items():
        session.check(f"no wait in update and forward, {name}", partial(update_unwaited, session, batch, {}))
    batch = found["truth: grades"]
    for policy in POLICIES:
        what = ", ".join(f"{name}={value!r}" for name, value in policy.items())
        session.check(f"no wait in update and forward, {what}", partial(update_unwaited, session, batch, policy))


# Graphs.


def captured(session: Session, run: Callable[[], Tensor]) -> tuple[Callable[[], object], Callable[[], Tensor]]:
    """Capture work in a CUDA graph: what replays it, and what gives its result. On the CPU, the work itself."""
    if session.dry:
        held: list[Tensor] = []
        return lambda: held.append(run()), lambda: held[-1]
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
    if form == "labels":
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
    suite, here = everything().to(session.device), everything()
    scores, truth = (each.to(session.device) for each in graph_inputs(session, 0, shape, dtype, form))
    run, result = captured(session, lambda: packed_sums(suite, scores, truth, form))
    for salt in (1, 2):
        fresh = graph_inputs(session, salt, shape, dtype, form)
        scores.copy_(fresh[0])
        truth.copy_(fresh[1])
        run()
        torch.testing.assert_close(result().cpu(), packed_sums(here, *fresh, form), rtol=1e-12, atol=1e-12)


def graphs(session: Session) -> None:
    """A graph captures Ranking and packed sums, and replays them on other scores and truth."""
    for shape, dtype in product(((64, 900), (16, 60_000)), (torch.float32, torch.bfloat16)):
        for form in ("ids", "mask", "labels"):
            what = f"a graph of Ranking and packed sums, replayed on other inputs, {shape[0]} × {shape[1]:,}"
            what += f" {str(dtype).removeprefix('torch.')}, truth as {form}"
            session.check(what, partial(replay, session, shape, dtype, form))


# Times.


def interleaved(session: Session, work: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Milliseconds on the device of each piece of work, once a round, in a new order each round."""
    samples: dict[str, list[float]] = {name: [] for name in work}
    order, shuffle = list(work), random.Random(0)  # noqa: S311 - an order, no secret
    for round_ in range(session.rounds + 2):
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
    }
    if hasattr(tt, "rank_counts"):
        work["rank_counts"] = partial(tt.rank_counts, scores, targets)
    pyg = pyg_collection(device)
    if pyg is not None:
        work["pyg"] = lambda: pyg.update(scores.topk(depth).indices, edges)
    return work


def times(session: Session) -> None:
    """Times as a share of one read of the scores, beside torch.topk and PyTorch Geometric."""
    for (queries, items), kind in product(session.shapes, ("normal", "ties", "bfloat16")):
        work = timed_work(session, (queries, items), kind)
        samples = interleaved(session, work)
        judge(session, f"{queries:,} × {items:,}, {kind}", samples, extra_memory(session, work["update"]))


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


def about(session: Session) -> dict[str, Any]:
    """What it ran on."""
    installed = {each.metadata["Name"]: each.version for each in distributions()}
    names = ("torch-topk", "torch", "torchmetrics", "torch-geometric")
    card = "no GPU: a dry run on the CPU" if session.dry else torch.cuda.get_device_name()
    versions = {name: installed[name] for name in names if name in installed}
    return {"card": card, "cuda": torch.version.cuda, "versions": versions, "seed": session.seed}


def run(session: Session) -> dict[str, Any]:
    """Check and time everything."""
    found = about(session)
    print(f"{found['card']}, CUDA {found['cuda']}, {found['versions']}, seed {session.seed}")
    start = time.perf_counter()
    for part in (agreement, waiting, graphs, times):
        print(f"\n{(part.__doc__ or '').splitlines()[0]}", flush=True)
        with kernels.branch_free() if session.dry else nullcontext():
            part(session)
        print(f"  ({time.perf_counter() - start:.0f} s since the start)", flush=True)
    return {"about": found, "checks": session.checks, "bars": session.bars}


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
    found = run(session)
    docs = Path(__file__).resolve().parent.parent / "docs"
    out = options.out or (None if session.dry else docs / "figures-gpu.json")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"\nWritten: {out.name}")
    failed = [row["what"] for row in found["checks"] if not row["passed"]]
    print(f"\n{len(found['checks']) - len(failed)} of {len(found['checks'])} checks hold.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
