"""What `gpu.py` runs on the CPU and on the device: a piece of the package each, by name.

A case is made on a device, of numbers that are the same on every device. Then it is run, once or several times, which
may promise to read nothing from the device; and its result is read.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from operator import getitem
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import torch
from torch import Generator, Tensor

import torch_topk as tt
from torch_topk import retrieval
from torch_topk.inputs import COUNT_TIES, RANK_TIES
from torch_topk.metric import options_of
from torch_topk.resampling import Resampler

CUTOFFS = (1, 5, 10, 20)
SHORT = 64, 300
LONG = 8, 100_000
"""Queries and items; of long rows `topk` looks at blocks, and lists that are excluded are looked up."""
NUMBERS = {300: 1 << 13, 100_000: 1 << 17}
"""For how many items metrics that ask for numbers of items have some: also for those of flat pairs, which are rows."""
GRADES = {1: 0.2, 2: 0.5, 3: 2.5}
SPECIAL = 1e-9
"""How close sums of special functions come, which devices work out in ways of their own."""


def now(value: Any) -> Any:
    """What is made when it is used, as `update` is to read nothing, made; anything else as it is."""
    return value() if callable(value) else value


class Draw:
    """Random whole numbers on a device: of one seed the same on every device."""

    def __init__(self, device: torch.device, seed: int, shape: tuple[int, int] = SHORT) -> None:
        self.device, self.seed = device, seed
        self.queries, self.items = shape
        self._generator = Generator().manual_seed(seed)

    def whole(self, *shape: int, low: int = 0, high: int = 4) -> Tensor:
        """Integers from low to below high."""
        return torch.randint(low, high, shape, generator=self._generator).to(self.device)

    def count(self, number: int) -> Tensor:
        """0, 1, 2, ..."""
        return torch.arange(number, device=self.device)


Make: TypeAlias = Callable[[Draw], Any]
Work: TypeAlias = tuple[Callable[[], object], Callable[[], Any]]
"""What is run, and what reads the result."""


@dataclass(frozen=True)
class Case:
    """A piece of the package.

    Attributes:
        make: Makes it of random numbers.
        unread: Whether running it promises to read nothing from the device.
        tolerance: How close a result must come, relatively and absolutely; whole numbers are to be equal.
        collective: Whether it speaks to other ranks, where there is a group.
        shape: How many queries and items.
    """

    make: Callable[[Draw], Work]
    unread: bool = False
    tolerance: float = 1e-12
    collective: bool = False
    shape: tuple[int, int] = SHORT

    def of(self, device: torch.device, seed: int) -> Work:
        """Make it on a device."""
        return self.make(Draw(device, seed, self.shape))


def of_function(make: Callable[[Draw], Callable[[], Any]], **how: Any) -> Case:
    """A case that is a function's result."""

    def work(draw: Draw) -> Work:
        run, found = make(draw), []
        return lambda: found.append(run()), lambda: found[-1]

    return Case(work, **how)


# Every metric.


def choices(hint: Any) -> list[Any]:
    """The values of an option that is a choice, by its type."""
    kinds = [hint, *get_args(hint)]
    found = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    found += [GRADES] if any(get_origin(kind) is Mapping for kind in kinds) else []
    return [*found, False, True] if bool in kinds else found


@cache
def definitions(items: int) -> dict[str, dict[str, Any]]:
    """Every metric of the registry with every value of its options that are a choice; numbers are for so many items."""
    places = torch.arange(items)
    numbers = {
        "propensities": 1 / (1 + places % 7),
        "item_counts": places % 6,
        "num_users": 5,
        "embeddings": torch.stack([places, places * places, places // 7], dim=1).sin(),
        "num_items": items,
    }
    found = {"value of items": {"name": "value", "item_values": places % 5 + 0.25, "normalized": True}}
    for name, cls in tt.registry.items():
        hints, options = get_type_hints(cls.__init__), options_of(cls)
        needed = {option: numbers[option] for option in options if option in numbers}
        several = {option: choices(hints[option]) for option in options if choices(hints[option])}
        for chosen in product(*several.values()):
            shown = ", ".join(f"{option}={value}" for option, value in zip(several, chosen, strict=True))
            spec = {"name": name, **needed, **dict(zip(several, chosen, strict=True))}
            found[f"{name}({shown})" if shown else name] = spec
    return found


def can_be(spec: dict[str, Any], k: Any, **policies: Any) -> bool:
    """Whether a metric has such options, cut-offs and policies."""
    try:
        tt.registry[spec["name"]](k, **{name: value for name, value in spec.items() if name != "name"}, **policies)
    except ValueError:
        return False
    return True


@cache
def _suite(device: torch.device, k: Any, items: int, which: Callable[[str], bool], policies: Any) -> tt.TopKMetrics:
    options, specs = dict(policies), {}
    every, reads = options.pop("every"), options.pop("reads")
    for key, spec in definitions(items).items():
        cls = tt.registry[spec["name"]]
        new = every or spec["name"] not in {other["name"] for other in specs.values()}
        fits = reads in cls.reads and (k is None or not cls.whole)  # one of whole lists would have all read them
        if new and fits and which(spec["name"]) and can_be(spec, k, **options):
            specs[key] = {"k": k, **spec}
    return tt.TopKMetrics(specs, **options).to(device)


def everything(
    device: torch.device,
    k: Any,
    items: int = SHORT[1],
    *,
    which: Callable[[str], bool] = bool,
    every: bool = False,
    reads: str = "ranking",
    **policies: Any,
) -> tt.TopKMetrics:
    """A suite of every metric, or those of some names, without data. It is made once and shared: use one at a time.

    With ``every`` it has each metric with every value of its options, and not with the first one alone.
    """
    suite = _suite(device, k, NUMBERS[items], which, (("every", every), ("reads", reads), *policies.items()))
    suite.reset()
    return suite


def of_suites(give: Make, cutoffs: tuple[Any, ...] = (CUTOFFS, None), **how: Any) -> Case:
    """A batch for a suite of every metric down to some ranks, and one of whole lists: `update` and a call.

    How is that of a `Case`, what the suites are called ``within``, and otherwise that of `everything`.
    """
    kept = {name: how.pop(name) for name in ("tolerance", "shape", "collective") if name in how}
    unread, within = how.pop("unread", True), how.pop("within", lambda _: nullcontext())

    def work(draw: Draw) -> Work:
        given = give(draw)
        suites = [everything(draw.device, k, draw.items, **how) for k in cutoffs]
        called: list[Any] = []

        def step() -> None:
            with within(draw.device):
                for suite in suites:
                    suite.update(**{name: now(value) for name, value in given.items()})
                called[:] = [suites[-1](**{name: now(value) for name, value in given.items()})]

        return step, lambda: [[suite.compute() for suite in suites], called]

    return Case(work, unread, **kept)


def each_alone() -> Iterator[tuple[str, Case]]:
    """Each metric by itself, under every rule for ties that it has."""
    for key, spec in definitions(NUMBERS[SHORT[1]]).items():
        cls = tt.registry[spec["name"]]
        rules, give = (RANK_TIES, batch()) if "ranking" in cls.reads else (COUNT_TIES, batch(labels))
        for ties in rules:
            if can_be(spec, 10, ties=ties):

                def work(draw: Draw, spec: Any = spec, ties: str = ties, give: Make = give) -> Work:
                    suite, given = tt.TopKMetrics({"it": {"k": CUTOFFS, **spec}}, ties=ties).to(draw.device), give(draw)
                    return partial(suite.update, **given), suite.compute

                yield f"{key}, ties={ties!r}", Case(work, unread=True, tolerance=SPECIAL)


# Every form of scores, truth and exclusion.


def scores(draw: Draw) -> Tensor:
    """Whole numbers, so that many are equal."""
    return draw.whole(draw.queries, draw.items, high=draw.items // 2).float()


def broken(draw: Draw) -> Tensor:
    """Scores among which are NaN and infinities."""
    values, where = scores(draw), draw.whole(draw.queries, draw.items, high=50)
    return (
        values.masked_fill(where == 0, torch.nan).masked_fill(where == 1, -torch.inf).masked_fill(where == 2, torch.inf)
    )


def grades(draw: Draw) -> Tensor:
    """A grade for each item, some below 0."""
    return draw.whole(draw.queries, draw.items, low=-3)


def labels(draw: Draw) -> Tensor:
    """A label a query."""
    return draw.whole(draw.queries, high=draw.items)


def ids(draw: Draw) -> Tensor:
    """Nine different ids a query, one of which is padding."""
    part = draw.items // 10
    return (draw.whole(draw.queries, 9, high=part) + part * draw.count(9)).index_fill(1, draw.count(1) + 4, -1)


def mask(draw: Draw) -> Tensor:
    """A twentieth of the items."""
    return draw.whole(draw.queries, draw.items, high=20) == 0


def some(draw: Draw) -> Tensor:
    """Half of the items, for all queries."""
    return draw.whole(draw.items, high=2).bool()


def rows(draw: Draw) -> Tensor:
    """Queries in any order, some of them twice."""
    return draw.whole(draw.queries, high=draw.queries)


def pairs(draw: Draw) -> tuple[Tensor, Tensor]:
    """Queries and items, some pairs twice."""
    return draw.whole(900, high=draw.queries), draw.whole(900, high=draw.items)


def coo(draw: Draw) -> Tensor:
    """A COO matrix of pairs."""
    return torch.sparse_coo_tensor(
        torch.stack(pairs(draw)),
        torch.ones(900, device=draw.device),
        (draw.queries, draw.items),
        check_invariants=False,
    )


def csr(draw: Draw, each: int = 9) -> Tensor:
    """A CSR matrix with so many different items a query, and small numbers."""
    columns = draw.count(draw.queries * each) * 37 % draw.items
    values = draw.whole(draw.queries * each, low=1).float()
    size = draw.queries, draw.items
    return torch.sparse_csr_tensor(draw.count(draw.queries + 1) * each, columns, values, size, check_invariants=False)


def groups(draw: Draw) -> Callable[[], tt.Relevance]:
    """Twenty groups of queries and items, where queries are items too."""
    query, item = draw.whole(draw.queries, high=20), draw.whole(draw.items, high=20)
    return partial(tt.Relevance.from_groups, query, item, draw.count(draw.queries))


def from_coo(draw: Draw) -> tt.Relevance:
    """Pairs as truth."""
    return tt.Relevance.from_coo(*pairs(draw), num_queries=draw.queries)


def batch(target: Make = grades, preds: Make = scores, **others: Make) -> Make:
    """What makes the arguments of `update`, or `now` makes them."""
    made = {"preds": preds, "target": target, **others}
    return lambda draw: {name: make(draw) for name, make in made.items()}


_R = tt.Relevance
LISTED: dict[str, Make] = {
    "truth of ids": lambda draw: partial(_R.from_ids, ids(draw)),
    "pairs": from_coo,
    "rows of pairs": lambda draw: partial(getitem, from_coo(draw), rows(draw)),
    "a CSR matrix": csr,
    "a COO matrix": coo,
    "from_sparse of CSR": lambda draw: partial(_R.from_sparse, csr(draw)),
    "from_sparse of COO": lambda draw: partial(_R.from_sparse, coo(draw)),
}
TRUTHS: dict[str, Make] = {
    "grades": grades,
    "half-precision grades": lambda draw: grades(draw).half(),
    "a bool mask": mask,
    "labels": labels,
    "from_dense": lambda draw: partial(_R.from_dense, grades(draw)),
    "from_ids with gains": lambda draw: partial(_R.from_ids, ids(draw), draw.whole(draw.queries, 9)),
    "from_labels": lambda draw: partial(_R.from_labels, labels(draw)),
    "from_coo with gains": lambda draw: _R.from_coo(*pairs(draw), draw.whole(900), num_queries=draw.queries),
    "from_groups": groups,
    "kept items": lambda draw: partial(_R.from_ids(ids(draw)).keep, some(draw)),
    "kept items of pairs": lambda draw: partial(from_coo(draw).keep, some(draw)),
    "kept items of groups": lambda draw: partial(groups(draw)().keep, some(draw)),
    "rows of dense truth": lambda draw: partial(getitem, _R.from_dense(grades(draw)), rows(draw)),
    "rows of ids": lambda draw: partial(getitem, _R.from_ids(ids(draw)), rows(draw)),
    "rows of groups": lambda draw: partial(getitem, groups(draw)(), rows(draw)),
    "a slice of pairs": lambda draw: partial(getitem, from_coo(draw), slice(0, draw.queries)),
    **LISTED,
}
EXCLUSIONS: dict[str, Make] = {
    "a mask": mask,
    "a mask for all": some,
    "ids": ids,
    "ids for all": lambda draw: ids(draw)[0],
    "dense truth": lambda draw: _R.from_dense(mask(draw)),
    "groups": groups,
    "a list of these": lambda draw: [mask(draw), ids(draw), ids(draw)[0], from_coo(draw), csr(draw)],
    "a list of lists": lambda draw: [ids(draw), ids(draw)[0], from_coo(draw)],
    **LISTED,
}
POLICIES: tuple[tuple[dict[str, Any], Make], ...] = (
    *(({"empty": empty}, batch(LISTED["truth of ids"])) for empty in ("one", "skip", "nan", "error")),
    ({"min_relevance": 2}, batch()),
    ({"non_finite": "last"}, batch(preds=broken)),
    ({"validate": "off"}, batch()),
    ({"ignore_index": 3}, batch(labels)),
    ({"ignore_index": -1}, batch()),
    ({"dataset_size": 10_000}, batch(from_coo)),
    (
        {"duplicates": "first"},
        batch(LISTED["truth of ids"], items=lambda draw: draw.whole(draw.items, high=draw.items)),
    ),
)


def forms() -> Iterator[tuple[str, Case]]:
    """Every metric on every form of scores, truth and exclusion, and under every policy."""
    for name, target in TRUTHS.items():
        how = {"every": name in {"grades", "labels", "truth of ids"}, "collective": name == "grades"}
        yield f"truth: {name}", of_suites(batch(target), **how)
    for name, exclude in EXCLUSIONS.items():
        yield f"exclude: {name}", of_suites(batch(exclude=exclude))
    for name in ("grades", "a bool mask", "labels", "truth of ids", "a CSR matrix", "from_groups"):
        yield f"truth: {name}, long rows", of_suites(batch(TRUTHS[name]), (CUTOFFS,), shape=LONG)
    for name in ("a mask", "ids", "ids for all", "pairs", "a CSR matrix", "a list of lists"):
        exclude = batch(LISTED["truth of ids"], exclude=EXCLUSIONS[name])
        yield f"exclude: {name}, long rows", of_suites(exclude, (CUTOFFS,), shape=LONG)
    for policy, give in POLICIES:
        yield ", ".join(f"{name}={value!r}" for name, value in policy.items()), of_suites(give, **policy)
    others: dict[str, Make] = {
        "exclude beside labels": batch(labels, exclude=mask),
        "ids excluded beside labels": batch(labels, exclude=ids),
        "weights of 0 and 1": batch(weights=lambda draw: draw.whole(draw.queries, high=2).float()),
        "items for all": batch(LISTED["truth of ids"], items=lambda draw: draw.count(draw.items).flip(0), exclude=ids),
        "items of each": batch(items=lambda draw: draw.count(draw.items).expand(draw.queries, -1)),
        "leading dimensions": lambda draw: {
            "preds": scores(draw).view(4, -1, draw.items),
            "target": labels(draw).view(4, -1),
            "exclude": mask(draw).view(4, -1, draw.items),
        },
        "one query": lambda draw: {"preds": scores(draw)[0], "target": grades(draw)[0]},
        "no query": lambda draw: {"preds": scores(draw)[:0], "target": grades(draw)[:0]},
        "no item": lambda draw: {"preds": scores(draw)[:, :0], "target": grades(draw)[:, :0]},
        "integer scores": batch(preds=lambda draw: draw.whole(draw.queries, draw.items, high=256).to(torch.uint8)),
        "bfloat16 scores": batch(preds=lambda draw: scores(draw).bfloat16()),
        "float64 scores": batch(preds=lambda draw: scores(draw).double()),
    }
    for name, give in others.items():
        yield name, of_suites(give)
    fractions = batch(weights=lambda draw: draw.whole(draw.queries).float() / 2)
    yield "weights", of_suites(fractions, which=_is_mean)
    yield "deep cut-offs", of_suites(batch(LISTED["truth of ids"]), ((10, 5_000),), shape=LONG)
    yield "under inference_mode", of_suites(batch(), within=lambda _: torch.inference_mode())
    yield "under autocast", of_suites(batch(), within=_autocast)


def _is_mean(name: str) -> bool:
    return not tt.registry[name].per_run


def _autocast(device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16)


# Equal scores, and other ways to a record.


def flat(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of a score, a grade and a query each."""
    return draw.whole(3_000, high=40).float(), draw.whole(3_000), draw.whole(3_000, high=draw.queries)


def lists(draw: Draw) -> Tensor:
    """Lists of ids, some of which stand twice, and of padding."""
    return draw.whole(draw.queries, 30, low=-1, high=60)


def sampled(draw: Draw) -> tuple[Tensor, Tensor]:
    """Scores of three right answers a query, and of wrong ones, a few of which are missing."""
    wrong = draw.whole(draw.queries, 50, high=40)
    return draw.whole(draw.queries, 3, high=40).float(), wrong.float().masked_fill(wrong == 0, -torch.inf)


def records(ties: str) -> dict[str, Make]:
    """Rankings that are made of other things than dense scores."""
    ranking = tt.Ranking
    return {
        "from_flat": lambda draw: partial(ranking.from_flat, *flat(draw), None, ties=ties),
        "from_flat of known size": lambda draw: partial(
            ranking.from_flat, *flat(draw), None, num_queries=draw.queries, ties=ties
        ),
        "from_sparse of CSR": lambda draw: partial(ranking.from_sparse, csr(draw, 30), grades(draw), None, ties=ties),
        "from_sparse of COO": lambda draw: partial(
            ranking.from_sparse, mask(draw).float().to_sparse(), csr(draw), None, ties=ties
        ),
        "from_sampled": lambda draw: partial(ranking.from_sampled, *sampled(draw), None, ties=ties),
    }


def ranked() -> Iterator[tuple[str, Case]]:
    """Every metric under every rule for equal scores, and of every way to a Ranking."""
    targets = ("grades", "a bool mask", "labels", "truth of ids", "from_coo with gains", "from_groups")
    for ties in RANK_TIES:
        how: dict[str, Any] = {"ties": ties, "tolerance": SPECIAL}
        for name in targets:
            every = name in {"grades", "labels"}
            yield f"ties={ties!r}, truth: {name}", of_suites(batch(TRUTHS[name]), every=every, **how)
        yield f"ties={ties!r}, excluding", of_suites(batch(exclude=EXCLUSIONS["a list of these"]), **how)
        long = batch(LISTED["truth of ids"], exclude=ids)
        yield f"ties={ties!r}, long rows", of_suites(long, (CUTOFFS,), shape=LONG, **how)
        for name, make in records(ties).items():
            unread = name == "from_sampled"
            yield f"{name}, ties={ties!r}", of_suites(partial(_given, make), unread=unread, **how)
    for name, make in (("from_flat", _flat_to), ("from_sparse", _sparse_to)):
        give = partial(_given, make)  # for metrics of which none reads whole lists
        yield f"{name} to a depth", of_suites(give, (CUTOFFS,), which={"recall", "mrr", "map"}.__contains__)
    for name in targets:
        if name not in {"grades", "a bool mask"}:
            yield f"from_ids, truth: {name}", of_suites(partial(_listed, TRUTHS[name], None))
    for name, exclude in EXCLUSIONS.items():
        yield f"from_ids, exclude: {name}", of_suites(partial(_listed, lambda draw: grades(draw).float(), exclude))


def _given(make: Make, draw: Draw) -> Any:
    return {"preds": make(draw)}


def _flat_to(draw: Draw) -> Any:
    return partial(tt.Ranking.from_flat, *flat(draw), max(CUTOFFS), num_queries=draw.queries)


def _sparse_to(draw: Draw) -> Any:
    return partial(tt.Ranking.from_sparse, csr(draw, 30), labels(draw), max(CUTOFFS))


def _listed(target: Make, exclude: Make | None, draw: Draw) -> Any:
    ranked, truth, out = lists(draw), target(draw), None if exclude is None else exclude(draw)
    return {"preds": lambda: tt.Ranking.from_ids(ranked, now(truth), exclude=now(out), duplicates="first")}


def counted() -> Iterator[tuple[str, Case]]:
    """Every metric of one target's rank, under every rule for equal scores and with every form of exclusion."""
    how: dict[str, Any] = {"reads": "counts", "tolerance": SPECIAL}
    plain: dict[str, Make] = {
        "labels": batch(labels),
        "weights of 0 and 1": batch(labels, weights=lambda draw: draw.whole(draw.queries, high=2)),
        "integer scores": batch(labels, preds=lambda draw: draw.whole(draw.queries, draw.items, high=90).short()),
        "bfloat16 scores": batch(labels, preds=lambda draw: scores(draw).bfloat16()),
    }
    for ties in COUNT_TIES:
        for name, give in plain.items():
            yield f"RankCounts, ties={ties!r}, {name}", of_suites(give, ties=ties, **how)
        long = batch(labels, exclude=ids)
        yield f"RankCounts, ties={ties!r}, long rows", of_suites(long, ties=ties, shape=LONG, **how)
    for name, exclude in EXCLUSIONS.items():
        yield f"RankCounts, exclude: {name}", of_suites(batch(labels, exclude=exclude), ties="realistic", **how)
    for policy in ({"ignore_index": 3}, {"validate": "off"}):
        name = next(iter(policy))
        yield f"RankCounts, {name}", of_suites(batch(labels), ties="realistic", **policy, **how)
    yield "RankCounts, non_finite='last'", of_suites(_unranked, ties="realistic", non_finite="last", **how)
    for name in ("ids", "truth of ids", "pairs", "a CSR matrix", "a list of lists"):
        give = partial(_filtered, EXCLUSIONS[name])
        yield f"RankCounts.without {name}", of_suites(give, ties="realistic", **how)


def _unranked(draw: Draw) -> Any:
    """Scores among which are NaN, also as some targets' own; but none is minus infinity, which is a fault."""
    values, target = broken(draw), labels(draw)
    own = values.gather(1, target[:, None])
    return {"preds": values.scatter(1, target[:, None], own.where(own > -torch.inf, torch.nan)), "target": target}


def _filtered(exclude: Make, draw: Draw) -> Any:
    values, target, out = scores(draw), labels(draw), exclude(draw)
    return {"preds": lambda: tt.RankCounts.from_scores(values, target).without(now(out))}


# Suites that keep more.


def tagged(names: list[str], **options: Any) -> Case:
    """A suite that draws resamples, tells groups apart and keeps values: all that it says, and what it draws."""
    called = options.pop("called", lambda draw: draw.whole(draw.queries, high=1 << 60))
    parted = options.pop("parted", lambda draw: draw.whole(draw.queries, low=-1, high=2))
    kept = {"bootstrap": 50, "slices": {"x": 3, "y": ["a", "b"]}, "collect": True, **options}

    def work(draw: Draw) -> Work:
        suite = tt.TopKMetrics(names, k=[1, 10], seed=3, **kept).to(draw.device)
        given = {"preds": scores(draw), "target": labels(draw)}
        own = {"query_ids": called(draw), "groups": {"x": draw.whole(draw.queries, high=3), "y": parted(draw)}}
        given |= {name: own[name] for name in own if kept["bootstrap" if name == "query_ids" else "slices"]}

        def result() -> Any:
            values = suite.collected()
            named = torch.tensor([*map(int, values.ids)]), torch.from_numpy(values.values)
            return suite.compute(), suite.intervals(), suite.intervals(0.9, "t"), named

        return partial(suite.update, **given), result

    return Case(work, unread=True, tolerance=SPECIAL, collective=True, shape=(64, 40))


def resampled(draw: Draw) -> Callable[[], Tensor]:
    """How often resamples draw queries."""
    resampler = Resampler(1_000, draw.seed, 1)
    resampler.prepare(draw.device)
    keys = draw.whole(5_000, low=-(1 << 62), high=1 << 62)
    return lambda: resampler.draws(keys)


def moved(draw: Draw) -> Work:
    """A suite that is saved, loaded, merged, pickled and taken back to the CPU."""
    suite, given = everything(draw.device, CUTOFFS), batch()(draw)

    def result() -> Any:
        copy, buffer = suite.clone(), io.BytesIO()
        suite.persistent(mode=True)
        torch.save(suite.state_dict(), buffer)
        buffer.seek(0)
        copy.reset()
        copy.load_state_dict(torch.load(buffer))
        copy.update(**given)
        copy.merge_state(suite)
        suite.persistent(mode=False)
        return copy.compute(), copy.to("cpu").compute(), pickle.loads(pickle.dumps(suite)).compute()  # noqa: S301 - its own

    return partial(suite.update, **given), result


def faults(draw: Draw) -> Callable[[], Any]:
    """How many queries have which fault."""
    stray = draw.whole(draw.queries, 9, low=-3, high=draw.items + 9)
    wide = draw.whole(draw.queries, 30, low=-3, high=40)
    items = draw.whole(draw.queries, draw.items, low=-3, high=draw.items)
    weights = draw.whole(draw.queries, low=-1) / draw.whole(draw.queries)
    values, target, out = broken(draw), labels(draw), draw.whole(draw.queries, 9, low=-3, high=2 * draw.items)
    gains = grades(draw).float().masked_fill(mask(draw), torch.inf)
    truth = tt.Relevance.from_ids(stray)
    return lambda: [
        record.fault_counts()
        for record in (
            tt.Ranking.from_scores(values, truth, 10, weights=weights, exclude=out),
            tt.Ranking.from_scores(values, gains, 10, items=items),
            tt.Ranking.from_ids(wide, truth),
            tt.RankCounts.from_scores(values, target, exclude=out, weights=weights),
        )
    ]


def kept() -> Iterator[tuple[str, Case]]:
    """Suites with resamples, groups and each query's values; suites that are moved."""
    for names in (["ndcg", "recall(average=micro)", "map"], ["mrr", "mr", "gmr", "median_rank"]):
        shown = ", ".join(names)
        yield f"resamples, slices and values of {shown}", tagged(names)
        yield f"slices of {shown}", tagged(names, bootstrap=None)
        yield f"resamples of {shown}", tagged(names, slices=None)
        yield f"resamples by position of {shown}", tagged(names, called=lambda _: None)
    yield "query_ids that are strings", tagged(["ndcg"], called=lambda draw: list(map(str, range(draw.queries))))
    names = tagged(["ndcg"], parted=lambda draw: ["a", "b"] * (draw.queries // 2))
    yield "groups that are names", replace(names, unread=False)  # copied to the device, which is waited for
    yield "what resamples draw", of_function(resampled, unread=True)
    yield "a suite that is saved, merged and moved", Case(moved, unread=True)
    yield "counts of faults", of_function(faults, unread=True)


# Labels.


def reports(items: int) -> list[Any]:
    """Metrics of labels."""
    return [
        tt.LabelReport(items, (5, 1), labels=[4, 0], groups={"few": [4, 5], "most": list(range(6, items))}),
        tt.LabelReport(items, (1, 5), labels="seen"),
        tt.LabelPrecision(items, None, average="samples", labels=[4, 0]),
        tt.LabelFBeta(items, 2, average=None, labels=[4, 0]),
        tt.LabelRecall(items, 12, average="weighted", labels="seen"),
        tt.LabelPrecision(items, (1, 3), average="micro", zero_division=1.0, empty="skip"),
        tt.LabelCoverage(items, (3, 1), labels=[4, 0]),
    ]


def labelled() -> Iterator[tuple[str, Case]]:
    """Metrics of labels, on every form of truth."""

    def of(give: Make) -> Callable[[Draw], Work]:
        def work(draw: Draw) -> Work:
            given, metrics = give(draw), [each.to(draw.device) for each in reports(draw.items)]

            def step() -> None:
                for each in metrics:
                    each.update(**{name: now(value) for name, value in given.items()})
                    each(**{name: now(value) for name, value in given.items()})

            def result() -> Any:
                averages = [[each.scalars(average) for average in ("macro", "micro")] for each in metrics[:2]]
                printed = [each.report(1).to_dict() for each in metrics[:2]]
                return [each.compute() for each in metrics], averages, printed

            return step, result

        return work

    for name, target in TRUTHS.items():
        yield f"labels, truth: {name}", Case(of(batch(target)), unread=True)
    given = batch(labels, exclude=EXCLUSIONS["a list of these"])
    yield "labels, excluding", Case(of(given), unread=True, collective=True)
    yield "labels, from_ids", Case(of(partial(_listed, LISTED["truth of ids"], None)), unread=True)


# Functions.


def twins(draw: Draw) -> Callable[[], Any]:
    """Each metric as a function: the values of queries."""
    given = {"preds": scores(draw), "target": labels(draw), "k": CUTOFFS}
    known = {"propensities", "item_counts", "num_users", "embeddings"}
    specs = {spec["name"]: spec for spec in definitions(NUMBERS[draw.items]).values()}
    needed = {name: {option: specs[name][option] for option in known & set(specs[name])} for name in dir(tt.functional)}
    return lambda: {name: getattr(tt.functional, name)(**given, **options) for name, options in needed.items()}


def evaluated(draw: Draw) -> Callable[[], Any]:
    """A run held against judgments, in a suite on the device."""
    document, score, grade = (each.tolist() for each in (lists(draw), draw.whole(draw.queries, 30), lists(draw) % 4))
    queries = range(draw.queries)
    run = {f"q{q}": dict(zip(map(str, document[q]), map(float, score[q]), strict=True)) for q in queries}
    qrels = {f"q{q}": dict(zip(map(str, document[-q]), grade[q], strict=True)) for q in queries}
    suite = tt.TopKMetrics(["ndcg", "map", "bpref", "err"], k=[5, 20], collect=True).to(draw.device)
    return lambda: (tt.evaluate(qrels, run, suite), torch.from_numpy(suite.collected().values))


class Model:
    """DistMult in small whole numbers, whose products are the same on all devices."""

    def __init__(self, draw: Draw, entities: int, dim: int = 8) -> None:
        self.entities, self.relations = (draw.whole(size, dim, low=-2, high=3).float() for size in (entities, 5))

    def tails(self, heads: Tensor, relations: Tensor, entities: Tensor | None = None) -> Tensor:
        """Score all tails, some, or some of each row."""
        query = self.entities[heads] * self.relations[relations]
        if entities is not None and entities.dim() == 2:
            return (query[:, None] * self.entities[entities]).sum(2)
        return query @ (self.entities if entities is None else self.entities[entities]).T

    def heads(self, relations: Tensor, tails: Tensor, entities: Tensor | None = None) -> Tensor:
        """Score heads, which is the same to this model."""
        return self.tails(tails, relations, entities)


def linked(draw: Draw, **how: Any) -> Callable[[], Any]:
    """Ranks of links: their counts, what is computed and estimated of them, and tables."""
    entities, size = 300, 200
    triples = torch.stack([draw.whole(600, high=entities), draw.whole(600, high=5), draw.whole(600, high=entities)], 1)
    known = tt.KnownTriples(triples[:400].cpu(), triples[300:].cpu(), num_entities=entities, num_relations=5)
    known, model = known.to(draw.device), Model(draw, entities)
    group = torch.distributed.group.WORLD
    if group is not None:
        how |= {"shard": range(entities), "process_group": group}
    if how.pop("negatives", False):
        how["negatives"] = {side: draw.whole(size, 50, low=-1, high=entities) for side in ("head", "tail")}

    def run() -> Any:
        ranks = tt.evaluate_links(model.tails, model.heads, triples[:size], known, memory=1 << 17, **how)
        counts = [(each.greater, each.at_least, each.candidates) for both in ranks.counts.values() for each in both]
        names = ["mr", "mrr", "gmr", "hits@1,10", "amri", "z_mr", "median_rank"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ranks among a sample
            said = [ranks.compute(names, filtered=each, ties=ties) for each in (True, False) for ties in COUNT_TIES[:3]]
            tables = [ranks.table(by) for by in ("side", "relation", "category")]
        estimated = None if ranks.sizes is None else ranks.estimate()
        chance = [tt.chance(name, ranks.counts["head"][1].candidates) for name in ("mr", "mrr@10", "hits@10", "gmr")]
        return counts, said, tables, estimated, chance, known.categories()

    return run


def searched(draw: Draw, exclude: Any = None, *, named: bool = False, **how: Any) -> Callable[[], Any]:
    """The best items of each query."""
    queries, items = draw.whole(draw.queries, 16, low=-4, high=5), draw.whole(draw.items, 16, low=-4, high=5)
    order = draw.whole(draw.items, high=1 << 60).argsort() if named else None
    out = None if exclude is None else exclude(draw)
    array = items.cpu().numpy() if how.pop("array", False) else items.float()
    how["process_group"] = torch.distributed.group.WORLD if named else None
    return lambda: tt.search(queries.float(), array, 20, exclude=now(out), item_ids=order, **how)


def merged(draw: Draw) -> Callable[[], Any]:
    """The best of lists of candidates."""
    values = [draw.whole(draw.queries, 30, high=40).float() for _ in range(2)]
    names = [draw.count(30) + start + draw.whole(draw.queries, 1) * 100 for start in (0, 50)]
    return lambda: tt.merge_topk(values, names, 20)


def negated(queries: Tensor, items: Tensor) -> Tensor:
    """Score by a function of one's own."""
    return -(queries @ items.T).abs()


def found() -> Iterator[tuple[str, Case]]:
    """Search, links, and functions of whole data."""
    for name, exclude in {"nothing": None, **EXCLUSIONS}.items():
        if name == "groups":  # which it does not take
            continue
        for named in (False, True):
            what = f"search, excluding {name}{', with item_ids' if named else ''}"
            yield what, of_function(partial(searched, exclude=exclude, named=named), unread=True, collective=named)
    lists = EXCLUSIONS["a list of lists"]
    yield "search in chunks", of_function(partial(searched, exclude=lists, named=True, chunk=99), unread=True)
    yield "search by a score", of_function(partial(searched, exclude=lists, score=negated), unread=True)
    yield "search in long rows", of_function(partial(searched, exclude=lists), unread=True, shape=LONG)
    yield "search in an array", of_function(partial(searched, named=True, array=True, chunk=99))
    yield "merge_topk", of_function(merged, unread=True)
    for name, how in {"links": {}, "links in chunks": {"chunk": 37}, "links sampled": {"negatives": True}}.items():
        alone = name == "links sampled"
        yield name, of_function(partial(linked, **how), tolerance=SPECIAL, collective=not alone)
    yield "metrics as functions", of_function(twins)
    yield "evaluate", of_function(evaluated)


# The retrieval package.

TRIVIAL = ("fall_out", "hit_rate", "recall", "FallOut", "HitRate", "Recall")  # of whole lists
RETRIEVED: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {"top_k": 3} if name.endswith(TRIVIAL) else {}) for name in retrieval.__all__ if name[0] == "R"),
    ("RetrievalMAP", {"top_k": 7, "empty_target_action": "pos", "aggregation": "median"}),
    ("RetrievalMRR", {"ignore_index": -9, "empty_target_action": "skip"}),
    ("RetrievalPrecision", {"top_k": 50, "adaptive_k": True}),
    ("RetrievalNormalizedDCG", {"top_k": 7, "aggregation": "min"}),
    ("RetrievalAUROC", {"max_fpr": 0.4, "aggregation": "max"}),
    ("RetrievalAUROC", {"top_k": 7}),
    ("RetrievalFallOut", {"top_k": 7, "empty_target_action": "neg"}),
    ("RetrievalPrecisionRecallCurve", {"max_k": 90, "adaptive_k": True}),
    ("RetrievalRecallAtFixedPrecision", {"min_precision": 0.313, "max_k": 30}),
)


def retrieved() -> Iterator[tuple[str, Case]]:
    """Each class of `torch_topk.retrieval`, of rows in any order, in batches, and each function."""
    for name, options in RETRIEVED:

        def work(draw: Draw, name: str = name, options: Any = options) -> Work:
            metric = getattr(retrieval, name)(**options).to(draw.device)
            parts = [flat(draw) for _ in range(3)]
            graded = name == "RetrievalNormalizedDCG"

            def step() -> None:
                for values, target, indexes in parts:
                    truth = target if graded else target // 3
                    if "ignore_index" in options:
                        truth = truth.where(values > 9, options["ignore_index"])
                    metric.update(values / 64, truth, indexes=indexes * indexes)

            return step, metric.compute

        shown = ", ".join(f"{option}={value!r}" for option, value in options.items())
        yield f"{name}({shown})", Case(work, tolerance=2e-6, collective=len(options) < 2)
    for name in retrieval.__all__:
        if name[0] == "r":
            options = {"top_k": 3} if name.endswith(TRIVIAL) else {}
            yield name, of_function(partial(_retrieved_by, name, options), tolerance=2e-6)


def _retrieved_by(name: str, options: dict[str, Any], draw: Draw) -> Callable[[], Any]:
    values, target, _ = (each[:500] for each in flat(draw))
    return lambda: getattr(retrieval, name)(values / 64, target // 3, **options)


@cache
def cases() -> dict[str, Case]:
    """Every case by its name."""
    return dict([*forms(), *ranked(), *counted(), *kept(), *labelled(), *found(), *retrieved()])
