"""Updating reads nothing from the device: a trap for every way to do so, and tensors that hold no data at all."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import scipy.sparse
import torch
from helpers import DEFINITIONS, Cutoffs, definitions, everything, metric_of
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torch_topk as tt
from torch_topk import kernels

aten = torch.ops.aten
QUERIES, ITEMS = 6, 9

# What waits for the device: its result, or the shape of its result, depends on data.
READS = {
    aten._local_scalar_dense,  # item(), bool(), int(), if
    aten.item,
    aten.is_nonzero,
    aten.equal,
    aten.allclose,
    aten.nonzero,
    aten.nonzero_numpy,
    aten.argwhere,
    aten.masked_select,
    aten._unique,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.bincount,
    aten._to_sparse,
    aten._to_sparse_csr,
    aten._coalesce,
}
METHODS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.cpu}


class HostReadError(Exception):
    """Raised where data travel between device and host."""


def host_read(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Name what an operation would read or copy on a GPU, where it would."""
    packet = func.overloadpacket
    if packet in READS:
        return str(packet)
    if packet is aten.lift_fresh:
        return "a tensor made of Python numbers, which is copied from the host"
    if packet is aten.repeat_interleave and kwargs.get("output_size") is None:
        return "repeat_interleave without output_size"
    if packet in {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}:
        masks = [index for index in args[1] if index is not None and index.dtype in {torch.bool, torch.uint8}]
        return "an index that is a mask" if masks else None
    return None


class Operations(TorchDispatchMode):
    """Hands each operation that reaches a kernel to a check."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self.report = report

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        read = host_read(func, args, kwargs or {})
        if read is not None:
            self.report(read)
        return func(*args, **(kwargs or {}))


class Methods(TorchFunctionMode):
    """Hands on the methods that read memory without an operation, as far as CPU tensors are concerned."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__()
        self.report = report

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func in METHODS:
            self.report(func.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def trap(*, counting: bool = False) -> Iterator[list[str]]:
    """Raise a HostReadError where the host is read, or list what read it; take the paths that a GPU takes."""
    reads: list[str] = []

    def report(read: str) -> None:
        reads.append(read)
        if not counting:
            raise HostReadError(read)

    with ExitStack() as stack:
        for context in (kernels.branch_free(), Operations(report), Methods(report)):
            stack.enter_context(context)
        yield reads


# The trap ---------------------------------------------------------------------------------------------

CAUGHT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "item": lambda x, mask: x.sum().item(),
    "tolist": lambda x, mask: x.tolist(),
    "numpy": lambda x, mask: x.numpy(),
    "cpu": lambda x, mask: x.cpu(),
    "bool": lambda x, mask: bool(mask.any()),
    "int": lambda x, mask: int(x[0]),
    "float": lambda x, mask: float(x[0]),
    "format": lambda x, mask: f"{x[0]}",
    "index": lambda x, mask: x[: x[0]],
    "in": lambda x, mask: 1 in x,
    "equal": lambda x, mask: torch.equal(x, x),
    "allclose": lambda x, mask: torch.allclose(x, x),
    "nonzero": lambda x, mask: mask.nonzero(),
    "where": lambda x, mask: torch.where(mask),
    "argwhere": lambda x, mask: torch.argwhere(mask),
    "mask": lambda x, mask: x[mask],
    "byte mask": lambda x, mask: torch.ops.aten.index(x, [mask.byte()]),
    "masked_select": lambda x, mask: x.masked_select(mask),
    "assignment to a mask": lambda x, mask: x.index_put_((mask,), x.sum()),
    "unique": lambda x, mask: x.unique(),
    "unique rows": lambda x, mask: x.unique(dim=0),
    "unique_consecutive": lambda x, mask: x.unique_consecutive(),
    "bincount": lambda x, mask: x.bincount(),
    "repeat_interleave": lambda x, mask: x.repeat_interleave(x),
    "one_hot": lambda x, mask: torch.nn.functional.one_hot(x),
    "list index": lambda x, mask: x[[0, 1]],
    "tensor of numbers": lambda x, mask: torch.tensor([1, 2]),
    "to_sparse": lambda x, mask: x.to_sparse(),
}


@pytest.mark.parametrize("read", CAUGHT.values(), ids=CAUGHT)
def test_the_trap_catches(read: Callable[[Tensor, Tensor], Any]) -> None:
    x = torch.arange(1, 4)
    with pytest.raises(HostReadError), trap():
        read(x, x > 1)


def test_the_trap_lets_pass_what_reads_nothing() -> None:
    x = torch.arange(1, 4)
    with trap():
        x[x - 1].sort().values.cumsum(0).masked_fill(x > 1, 0).repeat_interleave(x, output_size=6)
        torch.where(x > 1, 1.0, x)[1:].unbind()


def test_the_trap_catches_an_update_that_checks_at_once() -> None:
    update = {"preds": torch.rand(3, 5), "target": torch.tensor([0, 1, 2])}
    for metric in (tt.NDCG(k=2, validate="now"), tt.TopKMetrics(["ndcg"], k=2, validate="now")):
        with pytest.raises(HostReadError, match="tolist"), trap():
            metric.update(**update)
        with pytest.raises(HostReadError, match="tolist"), trap():
            metric(**update)


def test_the_trap_catches_the_path_of_cpu_tensors() -> None:
    with pytest.raises(HostReadError), Operations(raise_host_read):
        tt.topk(torch.zeros(3, 9), 2)


def raise_host_read(read: str) -> None:
    raise HostReadError(read)


# Inputs -----------------------------------------------------------------------------------------------


def number(device: str, *shape: int, below: int = 4, least: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(least, below, shape, generator=generator).to(device)


def scores(device: str) -> Tensor:
    return number(device, QUERIES, ITEMS).float()


def gains(device: str) -> Tensor:
    return number(device, QUERIES, ITEMS, least=-1)


def ids(device: str) -> Tensor:
    """Distinct ids, padded."""
    return torch.stack([torch.arange(4) * 2 - 1, torch.arange(4) * 2]).repeat(QUERIES // 2, 1).to(device)


def mask(device: str) -> Tensor:
    return number(device, QUERIES, ITEMS, below=2).bool()


def pairs(device: str) -> tuple[Tensor, Tensor]:
    return number(device, 20, below=QUERIES), number(device, 20, below=ITEMS)


def csr(device: str) -> Tensor:
    starts = torch.tensor([0, 2, 2, 3, 3, 5, 6]).to(device)
    columns = torch.tensor([1, 4, 0, 2, 8, 3]).to(device)
    return torch.sparse_csr_tensor(
        starts, columns, torch.ones(6, device=device), (QUERIES, ITEMS), check_invariants=False
    )


def coo(device: str) -> Tensor:
    values = torch.ones(20, device=device)
    return torch.sparse_coo_tensor(torch.stack(pairs(device)), values, (QUERIES, ITEMS), check_invariants=False)


def scipy_csr(device: str) -> Any:
    return scipy.sparse.csr_matrix(mask("cpu").numpy())


Make = Callable[[str], Any]
SPARSE: dict[str, Make] = {
    "torch CSR": csr,
    "torch COO": coo,
    "from_sparse CSR": lambda device: tt.Relevance.from_sparse(csr(device)),
    "from_sparse COO": lambda device: tt.Relevance.from_sparse(coo(device)),
    "from_coo": lambda device: tt.Relevance.from_coo(*pairs(device), num_queries=QUERIES),
    "from_coo with gains": lambda device: tt.Relevance.from_coo(
        *pairs(device), number(device, 20), num_queries=QUERIES
    ),
}
TARGETS: dict[str, Make] = {
    "gains": gains,
    "floating-point gains": lambda device: gains(device).half(),
    "bool gains": mask,
    "labels": lambda device: number(device, QUERIES, below=ITEMS),
    "from_dense": lambda device: tt.Relevance.from_dense(gains(device)),
    "from_ids": lambda device: tt.Relevance.from_ids(ids(device)),
    "from_ids with gains": lambda device: tt.Relevance.from_ids(ids(device), number(device, QUERIES, 4)),
    "from_labels": lambda device: tt.Relevance.from_labels(number(device, QUERIES, below=ITEMS)),
    "kept items": lambda device: tt.Relevance.from_ids(ids(device)).keep(mask(device)[0]),
    "rows of dense": lambda device: tt.Relevance.from_dense(gains(device))[number(device, QUERIES)],
    "rows of ids": lambda device: tt.Relevance.from_ids(ids(device))[number(device, QUERIES)],
    "rows of sparse": lambda device: tt.Relevance.from_sparse(csr(device))[number(device, QUERIES)],
    "slice of sparse": lambda device: tt.Relevance.from_sparse(csr(device))[0:QUERIES],
    **SPARSE,
}
EXCLUSIONS: dict[str, Make] = {
    "mask": mask,
    "mask for all": lambda device: mask(device)[0],
    "ids": ids,
    "ids for all": lambda device: ids(device)[0],
    "dense Relevance": lambda device: tt.Relevance.from_dense(mask(device)),
    "Relevance of ids": lambda device: tt.Relevance.from_ids(ids(device)),
    "rows of sparse": lambda device: tt.Relevance.from_sparse(csr(device))[number(device, QUERIES)],
    "list": lambda device: [mask(device), ids(device), csr(device)],
    **SPARSE,
}
BATCHES: dict[str, Make] = {
    **{
        f"target: {name}": lambda device, make=make: {"preds": scores(device), "target": make(device)}
        for name, make in TARGETS.items()
    },
    **{
        f"exclude: {name}": lambda device, make=make: {
            "preds": scores(device),
            "target": gains(device),
            "exclude": make(device),
        }
        for name, make in EXCLUSIONS.items()
    },
    "exclude beside labels": lambda device: {
        "preds": scores(device),
        "target": number(device, QUERIES, below=ITEMS),
        "exclude": mask(device),
    },
    "weights": lambda device: {
        "preds": scores(device),
        "target": gains(device),
        "weights": number(device, QUERIES).float(),
    },
    "items for all": lambda device: {
        "preds": scores(device),
        "target": gains(device),
        "items": torch.arange(ITEMS).flip(0).to(device),
    },
    "items of each": lambda device: {
        "preds": scores(device),
        "target": tt.Relevance.from_ids(ids(device)),
        "items": torch.arange(ITEMS).expand(QUERIES, -1).to(device),
        "exclude": ids(device),
    },
    "leading dimensions": lambda device: {
        "preds": scores(device).view(2, 3, ITEMS),
        "target": number(device, 2, 3, below=ITEMS),
        "weights": number(device, 2, 3).float(),
    },
    "one query": lambda device: {"preds": scores(device)[0], "target": gains(device)[0]},
    "no query": lambda device: {"preds": scores(device)[:0], "target": gains(device)[:0]},
    "no item": lambda device: {"preds": scores(device)[:, :0], "target": gains(device)[:, :0]},
    "integer scores": lambda device: {"preds": scores(device).to(torch.uint8), "target": gains(device)},
    "bfloat16 scores": lambda device: {"preds": scores(device).bfloat16(), "target": gains(device)},
}
LISTS: dict[str, Make] = {
    "gains": lambda device: gains(device).float(),
    "labels": lambda device: number(device, QUERIES, below=ITEMS),
    "ids": lambda device: tt.Relevance.from_ids(ids(device)),
    "sparse": lambda device: tt.Relevance.from_sparse(csr(device)),
}
POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    **{f"empty={empty}": ({"empty": empty}, "target: gains") for empty in ("zero", "one", "skip", "nan", "error")},
    "min_relevance": ({"min_relevance": 2}, "target: gains"),
    "ties": ({"ties": "reverse"}, "target: gains"),
    "non_finite": ({"non_finite": "last"}, "target: gains"),
    "duplicates": ({"duplicates": "first"}, "items for all"),
    "validate": ({"validate": "off"}, "target: gains"),
    "ignore_index of labels": ({"ignore_index": 3}, "target: labels"),
    "ignore_index of gains": ({"ignore_index": -1}, "target: gains"),
    "dataset_size": ({"dataset_size": 9}, "leading dimensions"),
    "bootstrap": ({"bootstrap": 9}, "leading dimensions"),
    "dataset_size of sparse": ({"dataset_size": 18}, "target: from_sparse CSR"),
}
DEPTHS = ((1, 3), (2, 12), None)
each_depth = pytest.mark.parametrize("k", DEPTHS, ids=str)
each_batch = pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
each_policy = pytest.mark.parametrize(("policy", "batch"), POLICIES.values(), ids=POLICIES)
each_list = pytest.mark.parametrize("target", LISTS.values(), ids=LISTS)
each_exclusion = pytest.mark.parametrize("exclude", [None, *EXCLUSIONS.values()], ids=["none", *EXCLUSIONS])


def suite_on_meta(k: Cutoffs, **policies: Any) -> tt.TopKMetrics:
    """One metric of each kind and the one whose ideal is of candidates: operations without data are slow."""
    first = {spec["name"]: spec for spec in reversed(definitions(policies.get("empty", "zero")).values())}
    ideal = {"ideal": {"name": "ndcg", "ideal": "candidates"}}
    return tt.TopKMetrics(first | ideal, k, **policies).to("meta")


# Updating ---------------------------------------------------------------------------------------------


@each_depth
@each_batch
def test_everything_on_every_input(make: Make, k: Cutoffs) -> None:
    suite, batch = everything(k), make("cpu")
    with trap():
        suite.update(**batch)
    suite.compute()


@each_batch
def test_every_input_without_data(make: Make) -> None:
    for k in ((1, 3), None):
        suite = suite_on_meta(k)
        suite.update(**make("meta"))
        value = suite.compute()
        assert tuple(value) == suite.keys()
        assert all(entry.is_meta and entry.dtype == torch.float64 and entry.shape == () for entry in value.values())


@each_depth
@each_policy
def test_everything_under_every_policy(policy: dict[str, Any], batch: str, k: Cutoffs) -> None:
    suite, update = everything(k, **policy), BATCHES[batch]("cpu")
    with trap():
        suite.update(**update)


@each_policy
def test_every_policy_without_data(policy: dict[str, Any], batch: str) -> None:
    suite_on_meta((1, 3), **policy).update(**BATCHES[batch]("meta"))


@pytest.mark.parametrize("spec", DEFINITIONS.values(), ids=DEFINITIONS)
@pytest.mark.parametrize("batch", ["target: gains", "target: labels", "exclude: torch CSR"])
def test_each_metric(spec: dict[str, Any], batch: str) -> None:
    metric, update = metric_of(spec, (1, 3)), BATCHES[batch]("cpu")
    with trap():
        metric.update(**update)
        metric(**update)
    metric.compute()
    metric, update = metric_of(spec, (1, 3)).to("meta"), BATCHES[batch]("meta")
    metric.update(**update)
    assert metric(**update).is_meta
    assert metric.compute().is_meta


# Rankings ---------------------------------------------------------------------------------------------


def ranked(device: str) -> Tensor:
    """Lists with empty ranks, and in the last row an item twice."""
    lists = torch.stack([torch.arange(7), torch.arange(7).flip(0)]).repeat(QUERIES // 2, 1)
    lists[1::2, 2:4] = -1
    lists[-1, 0] = lists[-1, -1]
    return lists.to(device)


@each_exclusion
@each_list
def test_ranked_lists(target: Make, exclude: Make | None) -> None:
    suite = everything((1, 3))
    lists, weights, truth = ranked("cpu"), number("cpu", QUERIES).float(), target("cpu")
    out = None if exclude is None else exclude("cpu")
    with trap():
        ranking = tt.Ranking.from_ids(lists, truth, k=3, exclude=out, weights=weights, duplicates="first")
        suite.update(ranking)


@each_list
def test_ranked_lists_without_data(target: Make) -> None:
    lists, exclude = ranked("meta"), EXCLUSIONS["list"]("meta")
    for duplicates in ("first", "error"):
        ranking = tt.Ranking.from_ids(lists, target("meta"), exclude=exclude, duplicates=duplicates)
        for k in ((1, 3), None):
            suite_on_meta(k).update(ranking)


def test_the_suite_and_forward() -> None:
    suite, batch = everything((1, 3)), BATCHES["weights"]("cpu")
    with trap():
        suite(**batch)
        suite(tt.Ranking.from_scores(batch["preds"], batch["target"], 3))
    suite = suite_on_meta((1, 3))
    assert all(value.is_meta for value in suite(**BATCHES["weights"]("meta")).values())


@pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS)
def test_rows_of_a_whole_truth(make: Make) -> None:
    truth = make("cpu")
    if not isinstance(truth, tt.Relevance):
        truth = tt.Relevance.from_dense(gains("cpu"))
    preds, rows, kept = scores("cpu"), number("cpu", QUERIES), mask("cpu")[0]
    suite = everything((1, 3))
    with trap():
        suite.update(preds, truth[rows])
        suite.update(preds[:3], truth[1:4])
        suite.update(preds, truth.keep(kept))


# Computing --------------------------------------------------------------------------------------------


def test_compute_reads_once() -> None:
    suite = everything((1, 3))
    suite.update(scores("cpu"), gains("cpu"))
    with trap(counting=True) as reads:
        suite.compute()
        suite.compute()
    assert reads == ["tolist"]


def test_compute_that_does_not_look_for_faults_reads_nothing() -> None:
    metric = tt.NDCG(k=3, validate="off")
    metric.update(scores("cpu"), gains("cpu"))
    with trap():
        metric.compute()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("names", [["ndcg", "recall(average=micro)"], ["mrr", "median_rank"]], ids=str)
def test_tags_of_queries(device: str, names: list[str]) -> None:
    suite = tt.TopKMetrics(names, k=[1, 3], bootstrap=9, slices={"x": 3, "y": ["a", "b"]}).to(device)
    batch = {
        "preds": scores(device),
        "target": number(device, QUERIES, below=ITEMS),
        "query_ids": number(device, QUERIES),
        "groups": {"x": number(device, QUERIES, below=3), "y": number(device, QUERIES, least=-1, below=2)},
    }
    with trap():
        suite.update(**batch)
        suite(**batch)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "batch", ["target: gains", "target: labels", "target: from_ids", "exclude: ids", "bfloat16 scores"]
)
@pytest.mark.parametrize("ties", ["optimistic", "pessimistic", "expected"])
def test_rules_of_ties(ties: str, batch: str, device: str) -> None:
    names = ["ndcg", "mrr", "map", "hits", "full_recall", "judged", "tie_rate"]
    suite = tt.TopKMetrics(names, k=(1, 3), ties=ties).to(device)
    given = BATCHES[batch](device)
    with trap():
        suite.update(**given)
        suite(**given)
    suite.compute()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_pairs_of_a_known_number_of_queries(device: str) -> None:
    given = (number(device, 20).float(), number(device, 20), number(device, 20, below=5))
    suite = tt.TopKMetrics(["ndcg", "recall", "mrr"], k=(1, 3)).to(device)
    with trap():
        suite.update(tt.Ranking.from_flat(*given, 3, num_queries=5))


def test_groups_for_truth() -> None:
    suite = tt.TopKMetrics(["ndcg", "recall", "mrr"], k=(1, 3))
    classes, given = number("cpu", ITEMS, below=3), scores("cpu")
    with trap():
        suite.update(given, tt.Relevance.from_groups(number("cpu", QUERIES, below=3), classes, torch.arange(QUERIES)))
