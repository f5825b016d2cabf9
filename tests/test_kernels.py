"""Top-k beside a stable sort: every type, tie rule, stride and size, on both of its paths."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
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
    "expanded over columns": lambda scores: scores[:, :1].expand(-1, 9),
    "flipped": lambda scores: scores.flip(0).flip(1),
    "leading dimensions": lambda scores: scores.view(2, 2, -1).transpose(0, 1),
    "offset": lambda scores: torch.cat([scores.new_zeros(1), scores.reshape(-1)])[1:].view_as(scores),
    "requires grad": lambda scores: scores.clone().requires_grad_(),
}


@pytest.mark.parametrize("stride", STRIDES.values(), ids=STRIDES)
@pytest.mark.parametrize("k", [0, 1, 3, 9])
def test_strides(stride: Callable[[Tensor], Tensor], k: int) -> None:
    scores = torch.randint(-2, 3, (4, 9), generator=torch.Generator().manual_seed(1)).float()
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
