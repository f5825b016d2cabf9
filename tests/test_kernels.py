"""Top-k beside a stable sort: every type, tie rule, stride and size, on both of its paths."""

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

import torch_topk as tt
from torch_topk import kernels

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.bool, torch.uint8, torch.uint16, torch.uint32)


def levels(dtype: torch.dtype) -> Tensor:
    """Values that are often equal or nearly so, the extreme ones among them."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        values = [-math.inf, info.min, -1.0, -info.tiny, -0.0, 0.0, info.tiny, 1.0, 1.0 + info.eps, info.max, math.inf]
        return torch.tensor(values, dtype=dtype)
    if dtype == torch.bool:
        return torch.tensor([False, True])
    limits = torch.iinfo(dtype)
    return torch.tensor([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype=dtype)


def exact(scores: Tensor) -> Tensor:
    """The same numbers in a type that holds them all and has every kernel."""
    return scores.detach().double() if scores.is_floating_point() else scores.long()


def by_stable_sort(scores: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """The k largest by a stable sort; adding 0 makes -0.0 the 0.0 that it equals."""
    rows = exact(scores) + 0
    if ties == "reverse":
        rows = rows.flip(-1)
    values, indices = rows.sort(dim=-1, descending=True, stable=True)
    if ties == "reverse":
        indices = scores.shape[-1] - 1 - indices
    return values[..., :k], indices[..., :k]


def on_both_paths(scores: Tensor, k: int, ties: str) -> Iterator[tuple[Tensor, Tensor]]:
    """What `topk` gives where it may branch on the data, and where it may not."""
    for path in (nullcontext, kernels.branch_free):
        with path():
            yield tt.topk(scores, k, ties=ties)


def check(scores: Tensor, k: int) -> None:
    """Both rules and paths agree with the stable sort in values, indices, types and shapes, and leave their input."""
    before = exact(scores).clone()
    for ties in ("index", "reverse"):
        expected_values, expected_indices = by_stable_sort(scores, k, ties)
        for values, indices in on_both_paths(scores, k, ties):
            assert indices.dtype == torch.int64
            assert values.dtype == scores.dtype
            assert values.shape == indices.shape == (*scores.shape[:-1], k)
            assert torch.equal(indices, expected_indices)
            assert torch.equal(exact(values), expected_values)
            values.fill_(1)
            assert torch.equal(exact(scores), before)
            assert torch.equal(exact(scores).signbit(), before.signbit())


@st.composite
def scores_and_k(draw: st.DrawFn, dtype: torch.dtype) -> tuple[Tensor, int]:
    """Scores of some leading dimensions, sizes of 0 among them, and a k from 0 to N."""
    shape = (*draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,), (2, 0)])), draw(st.integers(0, 12)))
    values = levels(dtype)
    places = draw(arrays(np.int64, shape, elements=st.integers(0, len(values) - 1)))
    return values[torch.from_numpy(places)], draw(st.integers(0, shape[-1]))


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, *UNSIGNED], ids=str)
@given(data=st.data())
def test_agrees_with_a_stable_sort(dtype: torch.dtype, data: st.DataObject) -> None:
    check(*data.draw(scores_and_k(dtype)))


LONG: dict[str, Callable[[int], Tensor]] = {
    "random": lambda items: torch.randn(4, items, generator=torch.Generator().manual_seed(0)) * 20,
    "few levels": lambda items: torch.randint(-3, 3, (4, items), generator=torch.Generator().manual_seed(0)).float(),
    "constant": lambda items: torch.full((2, items), -3.0),
    "both zeros": lambda items: (torch.arange(2 * items).view(2, items) % 3 - 1) * 0.0,
    "rising": lambda items: torch.arange(items).float().div(7).floor().expand(2, -1),
    "falling": lambda items: -torch.arange(items).float().div(7).floor().expand(2, -1),
    "few candidates": lambda items: torch.where(torch.arange(2 * items).view(2, items) % 997 == 0, 1.0, -math.inf),
}


@pytest.mark.parametrize("scores", LONG.values(), ids=LONG)
@pytest.mark.parametrize(("items", "k"), [(1000, 10), (1000, 499), (1000, 700), (4096, 1), (9001, 10), (50_003, 100)])
def test_long_rows(scores: Callable[[int], Tensor], items: int, k: int) -> None:
    """So long that they may be cut into blocks, and with a rest at the end of the row."""
    for dtype in (torch.float32, torch.bfloat16):
        check(scores(items).to(dtype), k)
    check(scores(items).clamp(min=-128).to(torch.int8), k)


def test_nan_in_a_long_row() -> None:
    scores = torch.randn(3, 9001, generator=torch.Generator().manual_seed(3))
    scores[0, 5], scores[1, 9000] = math.nan, math.nan
    for ties in ("index", "reverse"):
        for values, indices in on_both_paths(scores, 10, ties):
            assert values[:, 0].isnan().tolist() == [True, True, False]
            assert indices[:2, 0].tolist() == [5, 9000]
            assert torch.equal(indices[2:], by_stable_sort(scores[2:], 10, ties)[1])


STRIDES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda scores: scores.t().contiguous().t(),
    "sliced": lambda scores: scores.repeat_interleave(2, 1)[:, ::2],
    "part of a row": lambda scores: torch.cat([scores, scores], 1)[:, : scores.shape[1]],
    "expanded over rows": lambda scores: scores[:1].expand(4, -1),
    "expanded over columns": lambda scores: scores[:, :1].expand(-1, scores.shape[1]),
    "flipped": lambda scores: scores.flip(0).flip(1),
    "leading dimensions": lambda scores: scores.view(2, 2, -1).transpose(0, 1),
    "offset": lambda scores: torch.cat([scores.new_zeros(1), scores.reshape(-1)])[1:].view_as(scores),
    "requires grad": lambda scores: scores.clone().requires_grad_(),
    "negated when read": lambda scores: torch.complex(scores, -scores).conj().imag,
}


@pytest.mark.parametrize("stride", STRIDES.values(), ids=STRIDES)
@pytest.mark.parametrize(("items", "k"), [(9, 0), (9, 1), (9, 3), (9, 9), (9001, 3), (9001, 500)])
def test_strides(stride: Callable[[Tensor], Tensor], items: int, k: int) -> None:
    scores = torch.randint(-2, 3, (4, items), generator=torch.Generator().manual_seed(1)).float()
    check(stride(scores), k)


def test_inference_tensors() -> None:
    with torch.inference_mode():
        scores = torch.tensor([[1.0, 3.0, 3.0, 2.0, 0.0, 0.0]])
    assert tt.topk(scores, 2)[1].tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@given(data=st.data(), ties=st.sampled_from(["index", "reverse"]))
def test_nan_is_shown_at_rank_1(dtype: torch.dtype, data: st.DataObject, ties: str) -> None:
    scores, k = data.draw(scores_and_k(dtype))
    broken = torch.from_numpy(data.draw(arrays(np.bool_, tuple(scores.shape))))
    scores = scores.masked_fill(broken, math.nan)
    sound = ~broken.any(-1)
    for values, indices in on_both_paths(scores, k, ties):
        if k:
            assert torch.equal(values[..., 0].isnan(), ~sound)
            assert ((indices >= 0) & (indices < scores.shape[-1])).all()
        ordered = indices.sort(-1).values
        assert (ordered[..., 1:] != ordered[..., :-1]).all()
        torch.testing.assert_close(values, scores.gather(-1, indices), rtol=0, atol=0, equal_nan=True)
        # A row without NaN is ordered as ever, whatever its neighbours hold.
        assert torch.equal(indices[sound], by_stable_sort(scores[sound], k, ties)[1])


def test_batch_of_which_some_rows_are_tied() -> None:
    scores = torch.randn(200, 50, generator=torch.Generator().manual_seed(2))
    scores[::3] = scores[::3].round()
    check(scores, 5)


def test_the_switch_is_turned_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="k must"), kernels.branch_free():
        tt.topk(torch.zeros(3), 7)
    assert not kernels._branch_free


# The path of strided classes ------------------------------------------------------------------------------


def distinct(rows: int, items: int) -> Tensor:
    """Rows without ties: whole numbers below 0, shuffled."""
    generator = torch.Generator().manual_seed(5)
    return torch.stack([-1.0 - torch.randperm(items, generator=generator) for _ in range(rows)])


def calls(name: str) -> Any:
    """Counts the calls of a function of the kernels, which do their work as ever."""
    return mock.patch.object(kernels, name, wraps=getattr(kernels, name))


@pytest.mark.parametrize("k", [1, 10, 100])
@pytest.mark.parametrize(
    ("tied", "places"), [(0, "any"), (3, "any"), (5, "any"), (8, "any"), (4, "left"), (5, "right")]
)
def test_ties_that_the_classes_looked_at_may_not_hold(k: int, tied: int, places: str) -> None:
    """They stand near one end, near the other, near neither, and so far apart that some are near and others are not."""
    items = 50_003
    assert kernels._stride(items, k) is not None
    scores = distinct(8, items)
    many = 2 * k + 8  # more than there are classes looked at
    near_left, near_right, apart = (0, 1), (items - many, 1), (17, (items - 1) // many)
    anywhere = [(4000, 1), near_left, (25_000, 1), near_right, apart]
    chosen = {"any": anywhere, "left": [near_left], "right": [near_right]}[places]
    for row in range(tied):
        first, step = chosen[row % len(chosen)]
        scores[row, first : first + many * step : step] = 7
        scores[row, items // 3 : items // 3 + k // 2] = torch.arange(8.0, 8 + k // 2)
    with calls("_nearest") as searched, mock.patch.object(kernels, "band", return_value=3):
        check(scores.roll(3, 0), k)
    assert searched.called == (tied > 0)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_ties_within_a_class_and_at_the_end_of_the_row(k: int) -> None:
    """What is left over at the end of the row belongs to no class, whatever ties with it and whatever precedes it."""
    items = 9003
    size = kernels._stride(items, k)
    assert size is not None
    whole = items // size * size
    assert whole < items
    one_class = torch.arange(11, whole, items // size)
    left_over = torch.arange(whole, items)
    for tied in (one_class, left_over, torch.cat([one_class, left_over])):
        scores = distinct(5, items)
        scores[:, tied] = 7
        scores[1, : k - 1] = 8
        scores[2, left_over[-1]] = 9
        scores[3, one_class[::2]] = 9
        scores[4, items // 2 : items // 2 + 3 * k] = 7
        check(scores, k)


@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode], ids=["", "in inference mode"])
def test_maxima_so_many_that_they_are_cut_into_classes_themselves(mode: Callable[[], Any]) -> None:
    scores = torch.randn(2, 300_007, generator=torch.Generator().manual_seed(6))
    with mode(), calls("_contenders") as looked:
        check(scores, 1)
        assert looked.call_count == 4  # of scores and of maxima, under either rule
        check(scores.bfloat16(), 3)


@pytest.mark.parametrize("few", [2, 0], ids=["NumPy selects", "torch selects"])
@pytest.mark.parametrize(("items", "k"), [(70, 9), (9001, 150), (9001, 701)])
def test_much_of_a_row(items: int, k: int, few: int) -> None:
    """So much that NumPy selects it faster than torch on few threads, some rows at a time."""
    scores = torch.randn(10, items, generator=torch.Generator().manual_seed(7))
    scores[::2] = (scores[::2] * 8).round()
    with mock.patch.object(kernels, "_FEW", few), mock.patch.object(kernels, "_CACHED", 4 * items):
        for dtype in (torch.float32, torch.bfloat16, torch.int8):
            check(scores.to(dtype), k)


@pytest.mark.parametrize(("items", "k"), [(1000, 2), (1000, 40), (9001, 2), (9001, 10), (9001, 150)])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinity_in_long_rows(dtype: torch.dtype, items: int, k: int) -> None:
    """NaN of either sign stand first, in the order of ties; the rows beside them are ordered as ever."""
    scores = torch.randn(8, items, generator=torch.Generator().manual_seed(8)).to(dtype)
    # By its bits, since not every type keeps the sign of a NaN that it is given.
    negative = torch.full((dtype.itemsize,), 255, dtype=torch.uint8).view(dtype)
    nan = torch.cat([negative, torch.full_like(negative, math.nan)])
    scores[0, [items - 1, 40, 400]] = nan[[0, 1, 0]]
    scores[1] = nan[0]
    scores[2, 100:] = nan[1]
    scores[3, 7::11] = nan[1]
    scores[4, : k // 2] = nan[0]
    scores[4, items // 2 :] = math.inf
    scores[5] = -math.inf
    scores[6, items // 2 :] = math.inf
    for ties in ("index", "reverse"):
        expected_values, expected = by_stable_sort(scores, k, ties)
        for values, indices in on_both_paths(scores, k, ties):
            assert torch.equal(indices, expected)
            torch.testing.assert_close(exact(values), expected_values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED], ids=str)
@pytest.mark.parametrize("items", [1, 60, 9001])
def test_values_alone(dtype: torch.dtype, items: int) -> None:
    places = torch.randint(0, len(levels(dtype)), (40, items), generator=torch.Generator().manual_seed(9))
    rows = levels(dtype)[places]
    rows[::2] = (torch.randn(20, items, generator=torch.Generator().manual_seed(10)) * 40).to(dtype)
    if dtype.is_floating_point:
        rows[7, ::3] = math.nan
        rows[8] = -math.inf
    before = rows.clone()
    for k in {0, 1, items // 100, items // 30, items // 2, items}:
        expected = exact(rows).sort(dim=1, descending=True).values[:, :k]
        for path in (nullcontext, kernels.branch_free):
            for laid_out in (rows, rows.t().contiguous().t()):
                with path():
                    values = kernels.top_values(laid_out, k)
                assert values.dtype == dtype
                torch.testing.assert_close(exact(values), expected, rtol=0, atol=0, equal_nan=True)
                values.fill_(1)
    torch.testing.assert_close(rows, before, rtol=0, atol=0, equal_nan=True)


PATHS = pytest.mark.parametrize("path", [nullcontext, kernels.branch_free], ids=["branching", "branch-free"])


@PATHS
@pytest.mark.parametrize("items", [20, 9001])
def test_scores_stay_on_their_device_whatever_the_default_is(
    items: int, path: Callable[[], AbstractContextManager[None]]
) -> None:
    scores = torch.randn(2, items)
    with path(), torch.device("meta"):
        values, indices = tt.topk(scores, 3)
        best = kernels.top_values(scores, 3)
        greater, _ = tt.rank_counts(scores, scores[:, 0])
    assert values.device == indices.device == best.device == greater.device == scores.device


@PATHS
@pytest.mark.parametrize(("dtype", "autocast"), [(torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)])
@pytest.mark.parametrize("items", [9000, 9001])
def test_halves_of_one_kind_under_autocast_to_the_other(
    items: int, dtype: torch.dtype, autocast: torch.dtype, path: Callable[[], AbstractContextManager[None]]
) -> None:
    scores = torch.randn(2, items).to(dtype)
    with path(), torch.autocast("cpu", autocast):
        values, indices = tt.topk(scores, 3)
        assert torch.equal(values, kernels.top_values(scores, 3))
    assert torch.equal(indices, by_stable_sort(scores, 3, "index")[1])


def test_a_traced_topk_holds_no_numbers_of_its_example() -> None:
    first, second = torch.randn(2, 3, 9001).unbind()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.jit, which is on its way out
        traced = torch.jit.trace(lambda scores: tt.topk(scores, 5)[1], first, check_trace=False)
    assert torch.equal(traced(second), tt.topk(second, 5)[1])


def test_masks_that_start_anywhere_in_memory_are_counted() -> None:
    memory = torch.rand(4010) < 0.5
    for start in range(9):
        mask = memory[start : start + 4000].view(2, 2000)
        assert kernels.count_true(mask).tolist() == mask.sum(1).tolist()


# Counting ----------------------------------------------------------------------------------------------


def plain_counts(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """By comparing numbers in a type that holds them all."""
    rows, limits = exact(scores), exact(targets)[..., None]
    return (rows > limits).sum(-1), (rows >= limits).sum(-1)


def check_counts(scores: Tensor, targets: Tensor) -> None:
    before = exact(scores).clone()
    for found, expected in zip(tt.rank_counts(scores, targets), plain_counts(scores, targets), strict=True):
        assert found.dtype == torch.int64
        assert torch.equal(found, expected)
    torch.testing.assert_close(exact(scores), before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *SIGNED, *UNSIGNED], ids=str)
@given(data=st.data(), cells=st.sampled_from([1, 7, 30, 1 << 17]))
def test_counts_agree_with_comparisons(dtype: torch.dtype, data: st.DataObject, cells: int) -> None:
    """In blocks of a row, in whole rows, and in a last block that is smaller."""
    scores, _ = data.draw(scores_and_k(dtype))
    places = data.draw(arrays(np.int64, tuple(scores.shape[:-1]), elements=st.integers(0, len(levels(dtype)) - 1)))
    targets = levels(dtype)[torch.from_numpy(places)]
    if dtype.is_floating_point:
        scores = scores.masked_fill(torch.from_numpy(data.draw(arrays(np.bool_, tuple(scores.shape)))), math.nan)
        targets = targets.masked_fill(torch.from_numpy(data.draw(arrays(np.bool_, tuple(targets.shape)))), math.nan)
    with mock.patch.object(kernels, "_CACHED", cells):
        check_counts(scores, targets)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(3, 200_000), (300, 1000), (2, 131_072)], ids=str)
def test_counts_of_long_rows(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    scores = (torch.randn(shape, generator=torch.Generator().manual_seed(4)) * 50).to(dtype)
    check_counts(scores, scores[:, 17].clone())
    check_counts(scores.t().contiguous().t(), scores[:, 17])


def test_counts_tell_integers_apart_that_no_float_does() -> None:
    large = 1 << 60
    greater, at_least = tt.rank_counts(torch.tensor([[large, large + 1, large - 1]]), torch.tensor([large]))
    assert (greater.item(), at_least.item()) == (1, 2)


# Arrays and errors -------------------------------------------------------------------------------------


def test_numpy_arrays_and_integers() -> None:
    values, indices = tt.topk(np.array([[1.0, 3.0, 3.0, 2.0]], dtype=np.float16), np.int64(3))
    assert indices.tolist() == [[1, 2, 3]]
    assert values.tolist() == [[3, 3, 2]]
    assert values.dtype == torch.float16


@pytest.mark.parametrize("k", [-1, 5, 2.0, True, None, "2", np.bool_(True)], ids=repr)
def test_k_out_of_range(k: Any) -> None:
    with pytest.raises(ValueError, match=rf"k must be an int from 0 to the 4 items .* but is {re.escape(repr(k))}\.$"):
        tt.topk(torch.zeros(2, 4), k)


def test_unknown_ties() -> None:
    with pytest.raises(ValueError, match=r"ties must be 'index' or 'reverse', but is 'first'"):
        tt.topk(torch.zeros(2, 4), 1, ties="first")


def test_no_dimension() -> None:
    with pytest.raises(ValueError, match=r"at least one dimension, \(\.\.\., N\), .* 0-dimensional"):
        tt.topk(torch.tensor(1.0), 0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint64, torch.float8_e4m3fn], ids=str)
def test_types_without_an_order(dtype: torch.dtype) -> None:
    expected = rf"scores must be one of .*bool.*float64.*uint8, but are {dtype}\.$"
    with pytest.raises(TypeError, match=expected):
        tt.topk(torch.zeros(2, 4).to(dtype), 1)
