"""The chunked, sharded search beside the whole product in plain Python: ids, values, memory, and what is refused."""

import importlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from test_distributed import Workers
from test_no_host_reads import trap
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import torch_topk as tt
from torch_topk import kernels

module = importlib.import_module("torch_topk.search")  # its name in the package is the function's
EXAMPLE = Path(__file__).parents[1] / "examples" / "sharded.py"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MIB = 2**20


@pytest.fixture(scope="module", autouse=True)
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Processes that start while the first tests run."""
    workers = Workers(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


@contextmanager
def budget(size: int | None) -> Iterator[None]:
    """Search as if there were less memory, so that small inputs are cut in many blocks and chunks."""
    with pytest.MonkeyPatch.context() as patch:
        if size is not None:
            patch.setitem(module._BUDGET, "cpu", size)
        yield


def whole_numbers(*shape: int, seed: int = 0, most: int = 2) -> Tensor:
    """Vectors whose products are exact in every type, and often equal."""
    return torch.randint(-most, most + 1, shape, generator=torch.Generator().manual_seed(seed)).float()


def by_hand(scores: Tensor, k: int, ids: list[int] | None = None, out: Any = None) -> tuple[list[Any], list[Any]]:
    """The k best of each row in plain Python: candidates in order of score, then of id."""
    names = range(scores.shape[1]) if ids is None else ids
    values, found = [], []
    for row, line in enumerate(scores.tolist()):
        left = [] if out is None else out[row]
        pairs = [(-score, item) for score, item in zip(line, names, strict=True) if item >= 0 and item not in left]
        best = sorted(pair for pair in pairs if pair[0] < math.inf)[:k]
        rest = k - len(best)
        values.append([-score for score, _ in best] + [-math.inf] * rest)
        found.append([item for _, item in best] + [-1] * rest)
    return values, found


def lists(result: tuple[Tensor, Tensor]) -> tuple[list[Any], list[Any]]:
    """Values and ids as lists."""
    return result[0].tolist(), result[1].tolist()


def on_both_paths(function: Callable[..., Any], *args: Any, **options: Any) -> Iterator[Any]:
    """What a function gives where kernels may branch on data, and where they may not."""
    for path in (nullcontext, kernels.branch_free):
        with path():
            yield function(*args, **options)


# Beside the whole product ---------------------------------------------------------------------------------

FORMS = ("mask", "common mask", "ids", "common ids", "csr", "scipy", "dense gains", "coo")


def excluding(form: str, out: Tensor) -> Any:
    """Exclusions in one of their forms; `out` is a bool matrix over all ids, and common forms use its first row."""
    queries, width = out.shape
    if form.startswith("common"):
        row = out.any(0) if queries == 0 else out[0]
        if form == "common mask":
            return row
        ids = row.nonzero().squeeze(1)
        return torch.nn.functional.pad(
            ids, (0, 2 if len(ids) + 1 == width else 1), value=-1
        )  # a width that no mask has
    if form == "ids":
        # Ids in no order, some of them twice, with padding, and a width that no mask has.
        padded = torch.where(out, torch.arange(width), -1).flip(1)
        return torch.cat([padded, padded[:, :1], torch.full((queries, 1), -1)], dim=1).int()
    if form == "coo":
        query, item = out.nonzero(as_tuple=True)
        # Of a larger data set, in another order.
        truth = tt.Relevance.from_coo(queries - query, item, num_queries=queries + 1)
        return truth[torch.arange(queries, 0, -1)]
    sparse = {"csr": lambda: out.float().to_sparse_csr(), "scipy": lambda: scipy.sparse.csr_array(out.numpy())}
    return sparse[form]() if form in sparse else out if form == "mask" else tt.Relevance.from_dense(out.double() * 2.5)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    queries, items, length = draw(st.integers(0, 4)), draw(st.integers(0, 20)), draw(st.integers(0, 3))
    seed = draw(st.integers(0, 2**32))
    random = torch.Generator().manual_seed(seed)
    ids = None
    if draw(st.booleans()):  # spread over a larger catalogue, in no order, with rows that are no item
        ids = torch.randperm(2 * items + 3, generator=random)[:items]
        if draw(st.booleans()):
            ids = ids.sort().values
        if draw(st.booleans()):
            ids = torch.where(torch.rand(items, generator=random) < 0.2, -1, ids)
    width = items if ids is None else 2 * items + 3
    share = draw(st.sampled_from([0.0, 0.2, 0.8]))
    forms = draw(st.lists(st.sampled_from(FORMS), max_size=3))
    outs = [torch.rand(queries, width, generator=random) < share for _ in forms]
    return {
        "queries": whole_numbers(queries, length, seed=seed).to(draw(st.sampled_from((*FLOATS, torch.int8)))),
        "items": whole_numbers(items, length, seed=seed + 1).to(draw(st.sampled_from((*FLOATS, torch.int64)))),
        "ids": ids,
        "k": draw(st.integers(1, items + 2)),
        "chunk": draw(st.none() | st.integers(1, items + 2)),
        "budget": draw(st.sampled_from([None, None, 1, 3000])),
        "forms": forms,
        "outs": outs,
        "numpy": draw(st.booleans()),
        "score": draw(st.booleans()),
    }


def score(queries: Tensor, chunk: Tensor) -> Tensor:
    """The inner product, as a model that is known from outside alone."""
    return (queries.double() @ chunk.double().T).to(torch.int32)


@given(cases())
def test_it_is_the_top_of_the_whole_product(case: dict[str, Any]) -> None:
    queries, items, ids, k = (case[name] for name in ("queries", "items", "ids", "k"))
    out = [set() for _ in queries]
    for form, each in zip(case["forms"], case["outs"], strict=True):
        for row in range(len(queries)):
            out[row] |= set(each[0 if form.startswith("common") else row].nonzero().squeeze(1).tolist())
    names = None if ids is None else ids.tolist()
    expected = by_hand(queries.double() @ items.double().T, k, names, out)
    exclude = [excluding(form, each) for form, each in zip(case["forms"], case["outs"], strict=True)]
    given_items = items.numpy() if case["numpy"] and items.dtype != torch.bfloat16 else items
    with budget(case["budget"]):
        for values, found in on_both_paths(
            tt.search,
            queries,
            given_items,
            k,
            exclude=exclude or None,
            score=score if case["score"] else None,
            item_ids=ids,
            chunk=case["chunk"],
        ):
            assert found.tolist() == expected[1]
            assert values.shape == found.shape == (len(queries), k)
            if case["score"]:  # whole numbers have no infinity, but a smallest one
                assert values.dtype == torch.int32
                values = torch.where(values == torch.iinfo(torch.int32).min, -math.inf, values.double())  # noqa: PLW2901
            assert values.tolist() == expected[0]


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize(
    ("items", "chunk", "size"),
    [(20_011, None, None), (20_011, None, MIB), (20_011, 5000, None), (9_000, 9_000, MIB), (611, 7, None)],
)
def test_large_inputs(items: int, chunk: int | None, size: int | None, ids: bool) -> None:
    queries, vectors = whole_numbers(30, 6), whole_numbers(items, 6, seed=1)
    names = torch.randperm(items, generator=torch.Generator().manual_seed(0)) if ids else torch.arange(items)
    # In order of id, the columns' own order is that of ties.
    scores = torch.empty(30, items).index_copy_(1, names, queries @ vectors.T)
    for k in (1, 150):
        expected = tt.topk(scores, k)
        with budget(size):
            options = {"item_ids": names if ids else None, "chunk": chunk}
            for values, found in on_both_paths(tt.search, queries, vectors, k, **options):
                assert torch.equal(values, expected[0])
                assert torch.equal(found, expected[1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_leading_dimensions(shape: tuple[int, ...], form: str) -> None:
    items, count = whole_numbers(40, 4, seed=1), math.prod(shape)
    queries, out = whole_numbers(count, 4), torch.rand(count, 40) < 0.3
    exclude = excluding(form, out)
    if form in {"mask", "ids"}:
        exclude = exclude.reshape(*shape, -1)
    values, ids = tt.search(queries.reshape(*shape, 4), items, 5, exclude=exclude, chunk=9)
    flat = tt.search(queries, items, 5, exclude=excluding(form, out))
    assert values.shape == ids.shape == (*shape, 5)
    assert torch.equal(values.view(count, 5), flat[0])
    assert torch.equal(ids.view(count, 5), flat[1])


def test_half_precision_is_added_up_in_float32() -> None:
    for dtype, length in ((torch.float16, 2049), (torch.bfloat16, 257)):
        ones = torch.ones(1, length, dtype=dtype)
        assert (ones @ ones.T).item() != length
        for enabled in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                values, _ = tt.search(ones, ones, 1)
            assert values.dtype == torch.float32
            assert values.item() == length
    large = torch.full((1, 2), 300, dtype=torch.float16)  # the square of which float16 does not hold
    assert tt.search(large, large.float(), 1)[0].item() == 180_000


@pytest.mark.parametrize(
    ("queries", "items", "expected"),
    [
        (torch.float32, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.bfloat16, torch.float16, torch.float32),
        (torch.int8, torch.int8, torch.float64),
        (torch.bool, torch.uint8, torch.float64),
        (torch.int8, torch.float16, torch.float32),
    ],
)
def test_type_of_the_values(queries: torch.dtype, items: torch.dtype, expected: torch.dtype) -> None:
    values, ids = tt.search(torch.ones(2, 3, dtype=queries), torch.ones(4, 3, dtype=items), 2)
    assert values.dtype == expected
    assert values.tolist() == [[3, 3]] * 2
    assert ids.tolist() == [[0, 1]] * 2


def test_integers_are_exact() -> None:
    codes = torch.full((1, 5000), 127, dtype=torch.int8)
    assert tt.search(codes, codes, 1)[0].item() == 127 * 127 * 5000  # which float32 would round


def test_cosine() -> None:
    # Axes of any length, where cosines are exact; a vector of zeros is as far from all as a right angle.
    items = torch.tensor([[0.0, 5.0], [0.0, 0.0], [0.25, 0.0], [-3.0, 0.0], [900.0, 0.0]])
    queries = torch.tensor([[7.0, 0.0], [0.0, 0.0]])
    for chunk in (None, 1, 2):
        values, ids = tt.search(queries, items.half(), 5, normalize=True, chunk=chunk)
        assert ids.tolist() == [[2, 4, 0, 1, 3], [0, 1, 2, 3, 4]]
        assert values.tolist() == [[1, 1, 0, 0, -1], [0] * 5]
    torch.manual_seed(0)
    queries, items = torch.randn(20, 16), torch.randn(500, 16)
    values, ids = tt.search(queries, items, 10, normalize=True, chunk=64)
    whole = torch.nn.functional.cosine_similarity(queries[:, None], items, dim=2)
    assert torch.equal(ids, tt.topk(whole, 10)[1])
    torch.testing.assert_close(values, tt.topk(whole, 10)[0])


def test_nan() -> None:
    queries, items = whole_numbers(3, 4), whole_numbers(50, 4, seed=1)
    broken = items.clone()
    broken[45, 0], queries[1, 0] = math.nan, 0  # NaN times 0 is NaN too
    for values, ids in on_both_paths(tt.search, queries, broken, 5, chunk=8):
        assert values[:, 0].isnan().all()
        assert ids[:, 0].tolist() == [45] * 3
    without = torch.arange(50) == 45
    for values, ids in on_both_paths(tt.search, queries, broken, 5, chunk=8, exclude=without):
        assert lists((values, ids)) == lists(tt.search(queries, items, 5, exclude=without))
    queries[1] = math.nan
    for values, ids in on_both_paths(tt.search, queries, items, 5, chunk=8):
        assert values.isnan().any(1).tolist() == [False, True, False]
        assert sorted(set(ids[1].tolist())) == sorted(ids[1].tolist())


def test_minus_infinity_is_no_candidate() -> None:
    items = torch.tensor([[-math.inf], [2.0], [-math.inf], [1.0]])
    values, ids = tt.search(torch.ones(1, 1), items, 3)
    assert ids.tolist() == [[1, 3, -1]]
    assert values.tolist() == [[2, 1, -math.inf]]


def test_nothing_to_search() -> None:
    for size in (0, 3):
        values, ids = tt.search(torch.zeros(size, 4), torch.zeros(0, 4), 2, exclude=torch.zeros(0, dtype=torch.bool))
        assert lists((values, ids)) == ([[-math.inf] * 2] * size, [[-1, -1]] * size)
    assert tt.search(torch.zeros(2, 0, 4), torch.zeros(3, 4), 2)[1].shape == (2, 0, 2)
    _, ids = tt.search(torch.zeros(2, 4), torch.zeros(2, 4), 2, item_ids=torch.tensor([-1, -1]))
    assert ids.tolist() == [[-1, -1]] * 2


@pytest.mark.parametrize("rows", [1, 5])
def test_groups_are_left_out(rows: int) -> None:
    generator = torch.Generator().manual_seed(6)
    queries, items = torch.randn(rows, 4, generator=generator), torch.randn(30, 4, generator=generator)
    of_queries, of_items = torch.randint(3, (rows,), generator=generator), torch.randint(3, (30,), generator=generator)
    groups = tt.Relevance.from_groups(of_queries, of_items)
    mask = of_queries[:, None] == of_items
    for ids in (None, torch.randperm(30, generator=generator)):
        named = mask if ids is None else mask[:, ids]  # of the item of each place
        expected = (queries @ items.T).masked_fill(named, -math.inf).topk(4).indices
        _, found = tt.search(queries, items, 4, exclude=groups, item_ids=ids, chunk=8)
        assert torch.equal(found, expected if ids is None else ids[expected])


def test_ids_that_no_item_has_exclude_nothing() -> None:
    queries, items = whole_numbers(3, 4), whole_numbers(10, 4, seed=1)
    seen = torch.tensor([[2**40, -7, 10], [3, -1, 99], [-1, -1, -1]])
    for ids in (None, torch.arange(10).flip(0)):
        for values, found in on_both_paths(tt.search, queries, items, 10, exclude=seen, item_ids=ids):
            assert (found >= 0).sum(1).tolist() == [10, 9, 10]
            assert 3 not in found[1].tolist()
            assert values[1, -1] == -math.inf
    short = torch.tensor([False, True])  # a mask that ends before the largest id
    _, found = tt.search(queries, items, 10, exclude=short, item_ids=torch.arange(10))
    assert found.sort(1).values.tolist() == [[-1, 0, 2, 3, 4, 5, 6, 7, 8, 9]] * 3


def test_arguments_stay_as_they_are() -> None:
    queries, items, scores = whole_numbers(3, 4), whole_numbers(10, 4, seed=1), whole_numbers(3, 10, seed=2)
    arguments = queries, items, torch.arange(10).flip(0), torch.rand(3, 10) < 0.5, scores
    before = [each.clone() for each in arguments]
    tt.search(queries, items, 3, normalize=True, item_ids=arguments[2], exclude=arguments[3])[0].fill_(7)
    tt.search(queries, items, 3, score=lambda *_: scores, exclude=arguments[3])[0].fill_(7)
    tt.search(queries, items, 3, score=lambda *_: scores)[0].fill_(7)
    values, ids = scores.clone(), arguments[2].expand(3, -1).clone()
    merged = tt.merge_topk(values, ids, 20)
    merged[0].fill_(7)
    assert torch.equal(values, scores)
    assert torch.equal(ids, arguments[2].expand(3, -1))
    for each, copy in zip(arguments, before, strict=True):
        assert torch.equal(each, copy)


def test_no_graph_is_kept() -> None:
    layer = torch.nn.Linear(4, 1)
    items, queries = torch.nn.Parameter(whole_numbers(10, 4)), whole_numbers(3, 4).requires_grad_()

    def model(some: Tensor, chunk: Tensor) -> Tensor:
        scores = layer(some[:, None] * chunk)[..., 0]
        assert not scores.requires_grad
        return scores

    for each in (None, model):
        for exclude in (None, torch.tensor([1])):
            assert not tt.search(queries, items, 3, score=each, exclude=exclude)[0].requires_grad
            with torch.inference_mode():
                tt.search(queries, items, 3, score=each, exclude=exclude)


def test_memory_map(tmp_path: Path) -> None:
    queries, items = whole_numbers(3, 4), whole_numbers(100, 4, seed=1)
    np.save(tmp_path / "items.npy", items.half().numpy())
    stored = np.load(tmp_path / "items.npy", mmap_mode="r")
    for ids in (None, np.arange(100)[::-1]):
        found = tt.search(queries.numpy(), stored, 5, chunk=7, item_ids=ids)
        as_tensors = tt.search(queries, items, 5, item_ids=None if ids is None else torch.from_numpy(ids.copy()))
        assert lists(found) == lists(as_tensors)


# Models that are no inner product -------------------------------------------------------------------------


def test_score_gets_rows_as_they_are() -> None:
    queries, items = whole_numbers(9, 2, 3).half(), torch.arange(40, dtype=torch.int16).view(20, 2)
    met = torch.zeros(9, 20)

    def distance(some: Tensor, chunk: Tensor) -> Tensor:
        assert some.dtype == torch.float16
        assert chunk.dtype == torch.int16
        assert some.shape[1:] == (2, 3)
        assert len(chunk) <= 6
        row = (some[:, None] == queries).flatten(2).all(2).int().argmax(1)
        met[row[:, None], chunk[:, 0].long() // 2] += 1
        return -(some.float().mean((1, 2))[:, None] - chunk[:, 0]).abs()

    with budget(2000):
        values, ids = tt.search(queries, items, 4, score=distance, chunk=6, item_ids=torch.arange(20).flip(0))
    assert values.dtype == torch.float32
    assert (met == 1).all()
    whole = -(queries.float().mean((1, 2))[:, None] - items[:, 0]).abs()
    assert lists((values, ids)) == by_hand(whole, 4, list(range(19, -1, -1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_type_of_a_models_scores(dtype: torch.dtype) -> None:
    calls = []

    def constant(queries: Tensor, chunk: Tensor) -> Tensor:
        calls.append((len(queries), len(chunk)))
        return torch.ones(len(queries), len(chunk), dtype=dtype)

    for size in (3, 0):
        values, ids = tt.search(torch.zeros(2, 1), torch.zeros(size, 1), 4, score=constant, exclude=torch.tensor([1]))
        assert ids.tolist() == [[0, 2, -1, -1] if size else [-1] * 4] * 2
        if dtype not in {torch.uint8, torch.bool}:  # which have no value below all others
            assert values.dtype == dtype
        assert (values[:, -1] == kernels.lowest(values.dtype)).all()
    assert calls == [(2, 3), (2, 0)]


# Merging --------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 4),
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(0, 2**32),
    st.sampled_from((*FLOATS, torch.int8, torch.int64)),
)
def test_merge_is_the_top_of_the_concatenation(
    rows: int, widths: list[int], k: int, seed: int, dtype: torch.dtype
) -> None:
    random, width = torch.Generator().manual_seed(seed), sum(widths)
    values = torch.randint(-1, 3, (rows, width), generator=random).to(dtype)
    ids = torch.stack([torch.randperm(2 * width + 1, generator=random)[:width] for _ in range(rows)] or [values[0:0]])
    ids = torch.where(torch.rand(ids.shape, generator=random) < 0.2, -1, ids.long()).view(rows, width)
    low = kernels.lowest(dtype)
    values = torch.where(torch.rand(values.shape, generator=random) < 0.1, low, values)
    for ties in ("index", "reverse"):
        expected = []
        for line, names in zip(values.tolist(), ids.tolist(), strict=True):
            pairs = [pair for pair in zip(line, names, strict=True) if pair[1] >= 0 and pair[0] != low]
            pairs.sort(key=lambda pair: (-pair[0], pair[1] if ties == "index" else -pair[1]))
            expected.append((pairs + [(low, -1)] * k)[:k])
        for whole in (False, True):
            given_values, given_ids = (values, ids) if whole else (values.split(widths, 1), ids.split(widths, 1))
            for merged, found in on_both_paths(tt.merge_topk, given_values, given_ids, k, ties=ties):
                assert merged.dtype == dtype
                assert [list(zip(*row, strict=True)) for row in zip(*lists((merged, found)), strict=True)] == expected


def test_merge_of_leading_dimensions_arrays_and_nan() -> None:
    values, ids = np.array([[[1.0, 3.0]], [[np.nan, 2.0]]]), np.array([[[5, 2]], [[9, -1]]])
    merged, found = tt.merge_topk([values, values - 1], [ids, ids + 10], 3)
    assert merged[0].tolist() == [[3, 2, 1]]
    assert found[0].tolist() == [[2, 12, 5]]
    assert math.isnan(merged[1, 0, 0])
    # A value beside a padding id is no candidate, NaN or not.
    assert lists(tt.merge_topk(torch.tensor([math.nan, 1.0, 0.0]), torch.tensor([-1, -5, 3]), 2)) == (
        [0.0, -math.inf],
        [3, -1],
    )


def test_merging_what_was_searched_in_parts() -> None:
    queries, items = whole_numbers(5, 4), whole_numbers(90, 4, seed=1)
    bounds = [(0, 20), (20, 21), (21, 90)]
    parts = [tt.search(queries, items[a:b], 8, item_ids=torch.arange(a, b)) for a, b in bounds]
    merged = tt.merge_topk(*zip(*parts, strict=True), 8)
    assert lists(merged) == lists(tt.search(queries, items, 8))


# Memory, and reads of the host ----------------------------------------------------------------------------


class Allocations(TorchDispatchMode):
    """The largest sum of bytes that live tensors held which were made in it."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self._alive, self._known = 0, {}, set()

    def ignoring(self, *tensors: Any) -> "Allocations":
        self._known |= {each.untyped_storage()._cdata for each in tensors if isinstance(each, Tensor)}
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known and storage._cdata not in self._alive:
                    self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {key: held for key, held in self._alive.items() if not held[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


def test_allocations_are_seen() -> None:
    queries, items = whole_numbers(50, 4), whole_numbers(3000, 4)
    with Allocations().ignoring(queries, items) as seen:
        (queries @ items.T).topk(5)
    assert 50 * 3000 * 4 <= seen.peak <= 50 * 3000 * 4 + 50 * 5 * 12
    with Allocations().ignoring(queries, items) as seen:
        for _ in range(9):
            queries + 1
    assert seen.peak == queries.nbytes


QUERIES, ITEMS, LENGTH, K = 60, 10_000, 8, 10
BUDGET = 2**19  # less than a quarter of the scores of all pairs


def memory_cases() -> Iterator[tuple[str, dict[str, Any], int]]:
    """Arguments of a search, and the bytes that the docstring allows them beyond the budget and the results."""
    queries, items = torch.randn(QUERIES, LENGTH), torch.randn(ITEMS, LENGTH)
    seen = torch.randint(0, ITEMS, (QUERIES, 50))
    mask = torch.rand(QUERIES, ITEMS) < 0.01
    shuffled = torch.randperm(ITEMS)
    lists = 16 * seen.numel()
    # An exclusion of raw ids is read first: sorted, with a mark beside each.
    reading = 6 * 8 * seen.numel()
    skewed = tt.Relevance.from_coo(
        torch.cat([torch.arange(QUERIES), torch.zeros(500, dtype=torch.long)]),
        torch.randint(0, ITEMS, (QUERIES + 500,)),
        num_queries=QUERIES,
    )
    yield "plain", {}, 0
    yield "ties", {"items": torch.zeros(ITEMS, LENGTH)}, 0
    yield "float64", {"items": items.double()}, 2 * queries.nbytes
    yield "half", {"items": items.half()}, 0
    yield "cosine of half", {"items": items.half(), "normalize": True}, 2 * queries.nbytes
    yield "many", {"k": 200}, 0
    long = {"queries": torch.randn(QUERIES, 300), "items": torch.randn(4000, 300).half()}
    yield "long vectors", long, long["queries"].nbytes
    yield "cosine of long vectors", {**long, "normalize": True}, 2 * long["queries"].nbytes
    yield "ids", {"item_ids": shuffled}, 26 * ITEMS
    yield (
        "ids, cosine of half",
        {"item_ids": shuffled, "items": items.half(), "normalize": True},
        26 * ITEMS + 2 * queries.nbytes,
    )
    yield "an array", {"items": items.numpy()}, 0
    yield "mask", {"exclude": mask}, 0
    yield "mask and ids", {"exclude": mask, "item_ids": shuffled}, 26 * ITEMS
    yield "one mask and list", {"exclude": [mask[0], seen[0], seen[1]]}, 3 * ITEMS
    yield "lists", {"exclude": seen}, lists + reading
    yield "Relevance", {"exclude": tt.Relevance.from_ids(seen)}, lists
    yield "Relevance and ids", {"exclude": tt.Relevance.from_ids(seen), "item_ids": shuffled}, 26 * ITEMS + lists
    yield "one long list", {"exclude": skewed}, 16 * (QUERIES + 500)
    yield "score", {"score": lambda a, b: a @ b.T}, 0
    yield "chunk", {"chunk": 2000}, 0
    # One query and all items are more than the budget.
    yield "all items", {"chunk": ITEMS}, ITEMS * 44
    yield "all items of half", {"chunk": ITEMS, "items": items.half()}, ITEMS * (44 + 4 * LENGTH)


MEMORY = list(memory_cases())


@pytest.mark.parametrize(("arguments", "more"), [each[1:] for each in MEMORY], ids=[each[0] for each in MEMORY])
def test_memory(arguments: dict[str, Any], more: int) -> None:
    arguments = {"queries": torch.randn(QUERIES, LENGTH), "items": torch.randn(ITEMS, LENGTH), "k": K, **arguments}
    exclude = arguments.get("exclude")
    known = [*arguments.values(), *(exclude if isinstance(exclude, list) else [])]
    for record in (exclude, getattr(exclude, "entries", None)):
        known += vars(record).values() if isinstance(exclude, tt.Relevance) and record is not None else []
    results = QUERIES * arguments["k"] * 12
    with budget(BUDGET):
        for path in (nullcontext, kernels.branch_free):
            with path(), Allocations().ignoring(*known) as seen:
                tt.search(**arguments)
            assert seen.peak <= BUDGET + 2 * results + more


def test_memory_of_a_large_search() -> None:
    queries, items = torch.randn(100, 4), torch.randn(200_000, 4)
    with Allocations().ignoring(queries, items) as seen:
        tt.search(queries, items, 10)
    assert 4 * MIB < seen.peak <= 64 * MIB < 100 * 200_000 * 4


def test_the_host_reads_nothing() -> None:
    queries, items = whole_numbers(5, 4), whole_numbers(23, 4, seed=1)
    out = torch.rand(5, 23) < 0.3
    everything = [excluding(form, out) for form in FORMS if form != "scipy"]
    with budget(20_000), trap():
        for ids in (None, torch.randperm(23)):
            for exclude in (None, everything):
                tt.search(queries, items, 5, exclude=exclude, item_ids=ids, normalize=True)
                tt.search(queries, items.half(), 30, exclude=exclude, item_ids=ids, chunk=9)
                tt.search(queries, items, 5, exclude=exclude, item_ids=ids, score=score)


# Several processes ----------------------------------------------------------------------------------------


class Collectives(TorchDispatchMode):
    """Counts what is sent between processes."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.namespace == "c10d"
        return func(*args, **(kwargs or {}))


def sharded_cases() -> dict[str, dict[str, Any]]:
    """Arguments of a search of 60 items, in any process the same."""
    out = torch.rand(9, 60, generator=torch.Generator().manual_seed(0)) < 0.3
    nan = whole_numbers(60, 4, seed=1)
    nan[37] = math.nan
    return {
        "plain": {},
        "small chunks": {"chunk": 7},
        "half": {"items": whole_numbers(60, 4, seed=1).bfloat16()},
        "float64": {"items": whole_numbers(60, 4, seed=1).double() + 2.0**-40},
        "int8": {"items": whole_numbers(60, 4, seed=1).to(torch.int8), "queries": whole_numbers(9, 4).to(torch.int8)},
        "more than there are": {"k": 70},
        "no query": {"queries": torch.zeros(0, 4)},
        "score": {"score": score, "k": 70},
        "NaN": {"items": nan},
        "one": {"queries": torch.ones(4)},
        **{form: {"exclude": excluding(form, out), "k": 60} for form in FORMS if form not in {"csr", "scipy"}},
        "mask and list": {"exclude": [excluding("mask", out), torch.tensor([7, 9])]},
    }


def whole_search(case: dict[str, Any]) -> tuple[Any, Any]:
    arguments = {"queries": whole_numbers(9, 4), "items": whole_numbers(60, 4, seed=1), "k": 5, **case}
    return tt.search(**arguments, item_ids=torch.arange(60))


def sharded_search(rank: int, bounds: list[int], shuffle: bool) -> list[Any]:
    """The same search, of which each process holds the items between two bounds; and its collectives."""
    ids = torch.randperm(60, generator=torch.Generator().manual_seed(3)) if shuffle else torch.arange(60)
    ids = ids[bounds[rank] : bounds[rank + 1]]
    answers = []
    for case in sharded_cases().values():
        arguments = {"queries": whole_numbers(9, 4), "items": whole_numbers(60, 4, seed=1), "k": 5, **case}
        arguments["items"] = arguments["items"][ids]
        with Collectives() as sent:
            values, found = tt.search(**arguments, item_ids=ids, process_group=dist.group.WORLD)
        answers.append((values.double().nan_to_num(nan=9e9).tolist(), str(values.dtype), found.tolist(), sent.count))
    with Collectives() as sent:  # without a group, each process searches its own
        alone = tt.search(whole_numbers(9, 4), whole_numbers(60, 4, seed=1)[ids], 5, item_ids=ids)
    assert sent.count == 0
    assert set(alone[1].flatten().tolist()) <= {-1, *ids.tolist()}
    with budget(1):  # a query at a time is merged
        small = tt.search(
            whole_numbers(9, 4), whole_numbers(60, 4, seed=1)[ids], 5, item_ids=ids, process_group=dist.group.WORLD
        )
    assert small[1].tolist() == answers[0][2]
    return answers


@pytest.mark.parametrize(
    ("bounds", "shuffle"),
    [([0, 13, 60], True), ([0, 60, 60], False), ([0, 0, 3, 60], True)],
    ids=["2 processes", "2 processes, one without items", "3 processes, one without items"],
)
def test_processes_find_the_best_of_all(bounds: list[int], shuffle: bool, workers: Workers) -> None:
    expected = [whole_search(case) for case in sharded_cases().values()]
    answers = workers.run(len(bounds) - 1, sharded_search, bounds, shuffle)
    for answer in answers:
        for name, (values, ids), found in zip(sharded_cases(), expected, answer, strict=True):
            whole = (values.double().nan_to_num(nan=9e9).tolist(), str(values.dtype), ids.tolist(), 1)
            assert found == whole, name


def refused_group(rank: int) -> str:
    first = dist.new_group([0])
    assert rank in {0, 1}
    arguments = torch.ones(1, 2), torch.ones(3, 2), 1
    with pytest.raises(ValueError, match=r"item_ids are missing.*torch\.arange\(first, last\)"):
        tt.search(*arguments, process_group=dist.group.WORLD)
    if rank == 0:
        return str(tt.search(*arguments, item_ids=torch.arange(3), process_group=first)[1].tolist())
    with pytest.raises(TypeError) as caught:
        tt.search(*arguments, item_ids=torch.arange(3), process_group=first)
    return str(caught.value)


def test_groups_that_are_refused(workers: Workers) -> None:
    of_one, outside = workers.run(2, refused_group)
    assert of_one == "[[0]]"
    assert "a group of torch.distributed that this process belongs to" in outside


# What is refused ------------------------------------------------------------------------------------------

QUERY_ROWS, ITEM_ROWS = torch.zeros(3, 4), torch.zeros(7, 4)

REFUSED: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "list of queries": ({"queries": [[1.0]]}, TypeError, ("queries must be a tensor or a NumPy array", "list")),
    "list of items": ({"items": [[1.0]]}, TypeError, ("items must be a tensor or a NumPy array", "list")),
    "queries without a dimension": (
        {"queries": torch.tensor(1.0)},
        ValueError,
        ("queries must be (..., D) and items (N, D)", "() and (7, 4)", "score="),
    ),
    "items of one dimension": ({"items": torch.zeros(4)}, ValueError, ("items (N, D)", "(3, 4) and (4,)")),
    "vectors of two lengths": ({"items": np.zeros((7, 5))}, ValueError, ("of one length", "(3, 4) and (7, 5)")),
    "complex": (
        {"items": torch.zeros(7, 4, dtype=torch.complex64)},
        TypeError,
        ("queries and items must hold real numbers", "torch.float32 and torch.complex64"),
    ),
    "another device": (
        {"items": ITEM_ROWS.to("meta")},
        ValueError,
        ("items are on meta, but the queries are on cpu", "move them there"),
    ),
    "k of 0": ({"k": 0}, ValueError, ("k must be at least 1, but is 0",)),
    "k of 2.5": ({"k": 2.5}, TypeError, ("k must be an int, but is 2.5",)),
    "k of True": ({"k": True}, TypeError, ("k must be an int, but is True",)),
    "several k": ({"k": [1, 5]}, TypeError, ("k must be an int, but is [1, 5]",)),
    "chunk of 0": ({"chunk": 0}, ValueError, ("chunk must be at least 1, but is 0",)),
    "chunk of a text": ({"chunk": "auto"}, TypeError, ("chunk must be an int, but is 'auto'",)),
    "ids of another length": (
        {"item_ids": torch.arange(6)},
        ValueError,
        ("item_ids must hold one id a row of items, shape (7,), on cpu", "shape (6,) on cpu"),
    ),
    "ids on another device": (
        {"item_ids": torch.arange(7, device="meta")},
        ValueError,
        ("item_ids must hold one id a row of items, shape (7,), on cpu", "on meta"),
    ),
    "ids that are floats": ({"item_ids": torch.zeros(7)}, TypeError, ("item_ids must hold integer ids", "float32")),
    "score that is no function": ({"score": "cosine"}, TypeError, ("score must be a function", "'cosine'")),
    "score and normalize": (
        {"score": score, "normalize": True},
        TypeError,
        ("score must be a function of (queries, chunk), and goes without normalize", "normalize is True"),
    ),
    "score, and no rows": (
        {"score": score, "queries": torch.tensor(1.0)},
        ValueError,
        ("queries and items must have a leading dimension", "() and (7, 4)"),
    ),
    "score of another shape": (
        {"score": lambda a, b: b @ a.T},
        ValueError,
        ("score(queries, chunk) must return a tensor (B, C)", "here (3, 7) on cpu", "returned (7, 3) on cpu"),
    ),
    "score that is a list": (
        {"score": lambda a, b: (a @ b.T).tolist()},
        ValueError,
        ("must return a tensor (B, C)", "returned list"),
    ),
    "complex score": (
        {"score": lambda a, b: (a @ b.T).to(torch.complex64)},
        TypeError,
        ("The results of score(queries, chunk) must be one of", "torch.complex64"),
    ),
    "mask of other items": (
        {"exclude": torch.zeros(3, 6, dtype=torch.bool)},
        ValueError,
        ("exclude is a mask of 6 items, but there are 7",),
    ),
    "integer mask": (
        {"exclude": torch.zeros(3, 7, dtype=torch.long)},
        TypeError,
        ("exclude is torch.int64 with as many columns as there are items, 7", "exclude.bool()"),
    ),
    "Relevance of other items": (
        {"exclude": tt.Relevance.from_dense(torch.zeros(3, 6))},
        ValueError,
        ("exclude speaks of 6 items, but there are 7",),
    ),
    "Relevance of other queries": (
        {"exclude": tt.Relevance.from_ids(torch.zeros(4, 2, dtype=torch.long))},
        ValueError,
        ("exclude holds 4 queries", "3", "exclude[rows]"),
    ),
    "group that is none": (
        {"process_group": "WORLD"},
        TypeError,
        ("process_group must be a group of torch.distributed that this process belongs to", "'WORLD'"),
    ),
}


@pytest.mark.parametrize(("change", "kind", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(change: dict[str, Any], kind: type[Exception], parts: tuple[str, ...]) -> None:
    with pytest.raises(kind, match=".*".join(map(re.escape, parts))):
        tt.search(**{"queries": QUERY_ROWS, "items": ITEM_ROWS, "k": 2, **change})


REFUSED_MERGES: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "ids of another shape": (
        {"ids": torch.zeros(2, 4, dtype=torch.long)},
        ValueError,
        ("ids must have the shape and device of values, (..., M)", "(2, 4) on cpu, and values (2, 3) on cpu"),
    ),
    "no dimension": (
        {"values": torch.tensor(1.0), "ids": torch.tensor(1)},
        ValueError,
        ("(..., M)", "() on cpu"),
    ),
    "ids that are floats": ({"ids": torch.zeros(2, 3)}, TypeError, ("ids must hold integer ids", "float32")),
    "lists of two sizes": (
        {"values": [torch.zeros(2, 3), torch.zeros(3, 3)]},
        ValueError,
        ("values must be tensors (..., M) that differ in M alone", "[(2, 3), (3, 3)]"),
    ),
    "no list at all": ({"values": []}, ValueError, ("values must be tensors (..., M)", "[]")),
    "a list of numbers": ({"values": [1.0]}, TypeError, ("values must be a tensor or a NumPy array", "float")),
    "complex values": ({"values": torch.zeros(2, 3, dtype=torch.complex64)}, TypeError, ("values must be one of",)),
    "k of 0": ({"k": 0}, ValueError, ("k must be at least 1",)),
    "tie rule": ({"ties": "random"}, ValueError, ("ties must be one of 'index', 'reverse'", "'random'")),
}


@pytest.mark.parametrize(("change", "kind", "parts"), REFUSED_MERGES.values(), ids=REFUSED_MERGES.keys())
def test_merge_refused(change: dict[str, Any], kind: type[Exception], parts: tuple[str, ...]) -> None:
    given_arguments = {"values": torch.zeros(2, 3), "ids": torch.arange(6).view(2, 3), "k": 2, **change}
    with pytest.raises(kind, match=".*".join(map(re.escape, parts))):
        tt.merge_topk(**given_arguments)


# The example ----------------------------------------------------------------------------------------------


def table(printed: str) -> list[str]:
    """The lines of metrics, each of which stands once."""
    lines = [line for line in printed.splitlines() if re.match(r"\w+@\d+ +0\.\d{4}   0\.\d{4} – 0\.\d{4}$", line)]
    assert len(lines) == len({line.split()[0] for line in lines}) == 12
    return lines


def test_example_prints_the_same_table_for_any_number_of_ranks() -> None:
    sizes = ["--users", "41", "--items", "2345", "--dim", "16"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    runs = [
        subprocess.Popen(
            [sys.executable, *launcher, str(EXAMPLE), *sizes],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        )
        for launcher in ([], torchrun)
    ]
    printed = []
    for run in runs:
        out, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
        printed.append(out)
    assert "1 rank," in printed[0]
    assert "2 ranks," in printed[1]
    assert table(printed[0]) == table(printed[1])
