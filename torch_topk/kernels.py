"""Exact, deterministic top-k: tensors in, tensors out, no policy.

Every other module trusts the order made here, so the order is fixed once: score descending, then position
ascending (``ties="index"``) or descending (``"reverse"``), the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isqrt, prod
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_topk.inputs import as_tensor

_branch_free = False
# Types whose smallest value is a legitimate score, or that sorting kernels lack, and the wider ones they are read as.
_WIDER = {torch.bool: torch.int16, torch.uint8: torch.int16, torch.uint16: torch.int32, torch.uint32: torch.int64}
_TAKEN = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
}
_PLAIN = {Tensor, torch.nn.Parameter}  # what others wrap may hold no numbers, as under FakeTensorMode
_CACHED = 1 << 17  # scores of which a processor's cache holds two copies
_FEW = 2  # threads, with which torch is no faster than NumPy on its one
_LONG = 4096  # items from which a row may be worth cutting into blocks


@contextmanager
def branch_free() -> Iterator[None]:
    """Take the path that never reads tensor data on the host, even for CPU tensors (as tests of it need)."""
    global _branch_free  # noqa: PLW0603 - one switch for the process
    before, _branch_free = _branch_free, True
    try:
        yield
    finally:
        _branch_free = before


def may_branch(tensor: Tensor) -> bool:
    """Whether a kernel may read this tensor's data on the host to take a faster path."""
    if tensor.device.type != "cpu" or type(tensor) not in _PLAIN or _branch_free or torch.compiler.is_compiling():
        return False
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # what NumPy finds would be a constant
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001 - under vmap, which tells no other way


def band(items: int) -> int:
    """How many rows of so many items are worked on at a time, so that what is written meanwhile stays small."""
    return max(1, (1 << 22) // max(items, 1))


def sum_dtype(device: torch.device) -> torch.dtype:
    """The type that sums are kept in: float64, or float32 where the device has no float64 (MPS)."""
    return torch.float32 if device.type == "mps" else torch.float64


def orderable(scores: Tensor, name: str = "scores") -> Tensor:
    """The scores in a signed type that every kernel takes; only bool and unsigned integers are copied.

    Raises:
        TypeError: For complex numbers, and types without an order of their own on some device.
    """
    dtype = _WIDER.get(scores.dtype, scores.dtype)
    if dtype not in _TAKEN:
        names = ", ".join(sorted(str(each).removeprefix("torch.") for each in {*_TAKEN, *_WIDER}))
        raise TypeError(f"{name} must be one of {names}, but are {scores.dtype}.")
    return scores.to(dtype)


def lowest(dtype: torch.dtype) -> float | int:
    """The value that stands for 'not a candidate': minus infinity, or the smallest integer."""
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def topk(scores: Tensor, k: int, *, ties: str = "index") -> tuple[Tensor, Tensor]:
    """The k largest scores of each row, exactly and in one fixed order on every device.

    Args:
        scores: ``(..., N)``, any real type and any strides; never written to.
        k: How many, ``0 <= k <= N``.
        ties: Equal scores stand in order of their index: ascending with ``"index"``, descending with
            ``"reverse"``. ``-0.0`` equals ``0.0``.

    Returns:
        ``(values, indices)``, each ``(..., k)``; values descend, indices are int64. A row that holds a NaN
        shows NaN at rank 1, as `torch.topk` has it.

    Raises:
        TypeError: For complex scores and other types without an order.
        ValueError: For a k outside 0..N, a 0-dimensional tensor, or an unknown tie rule.

    Example:
        >>> values, indices = topk(torch.tensor([1.0, 3.0, 3.0, 2.0]), 3)
        >>> indices.tolist()
        [1, 2, 3]
        >>> topk(torch.tensor([1.0, 3.0, 3.0, 2.0]), 3, ties="reverse")[1].tolist()
        [2, 1, 3]
    """
    scores = as_tensor("scores", scores)
    if scores.dim() == 0:
        raise ValueError("scores must have at least one dimension, (..., N), but are 0-dimensional.")
    items = scores.shape[-1]
    if isinstance(k, bool) or not isinstance(k, Integral) or not 0 <= k <= items:
        raise ValueError(f"k must be an int from 0 to the {items} items a row of scores holds, but is {k!r}.")
    if ties not in {"index", "reverse"}:
        raise ValueError(f"ties must be 'index' or 'reverse', but is {ties!r}.")
    rows = orderable(scores).reshape(prod(scores.shape[:-1]), items)
    values, indices = _largest(rows, k, ties)
    shape = (*scores.shape[:-1], k)
    return values.to(scores.dtype).view(shape), indices.view(shape)


def _largest(rows: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """`topk` of checked rows, ``(Q, N)``, by the path that suits their shape and device."""
    items = rows.shape[1]
    if k == 0:
        return rows.new_empty((len(rows), 0)), rows.new_empty((len(rows), 0), dtype=torch.int64)
    if 2 * k > items:
        return _by_sort(rows, k, ties)
    if may_branch(rows):
        size = _stride(items, k)
        return _by_neighbours(rows, k, ties) if size is None else _by_strides(rows, k, ties, size)
    size = _block_size(items, k)
    return _by_threshold(rows, k, ties) if size is None else _by_blocks(rows, k, ties, size)


def _positive_zero(values: Tensor) -> Tensor:
    # Kernels that sort by bits set 0.0 above -0.0; adding 0 makes the two one.
    return values + 0 if values.is_floating_point() else values


def _by_sort(rows: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """A stable sort of the whole row: the best path where most of the row is asked for."""
    rows = _positive_zero(rows)
    if ties == "index":
        values, indices = rows.sort(dim=1, descending=True, stable=True)
    else:
        values, indices = rows.flip(1).sort(dim=1, descending=True, stable=True)
        indices = rows.shape[1] - 1 - indices
    return values[:, :k], indices[:, :k]


def _block_size(items: int, k: int) -> int | None:
    """The size of block that leaves the least to look at after one read of the row; None where blocks do not pay."""
    size = 32  # near the square root of items / k, where block maxima and gathered items are equally many
    while size < 256 and size * size * k < items:
        size *= 2
    return size if items >= _LONG and 4 * (items // size + k * size) <= items else None


def reads_little(items: int, k: int) -> bool:
    """Whether blocks pay so well that `topk` looks at no more than a sixteenth of a row after the one read of it."""
    size = _block_size(items, k)
    return size is not None and 16 * (items // size + k * size) <= items


def _by_blocks(rows: Tensor, k: int, ties: str, size: int) -> tuple[Tensor, Tensor]:
    """The top k of the k best blocks, a block being as good as its maximum: one read of long rows, and little more.

    Were an item of the top k in another block, each of those k blocks would hold one that precedes it. That is as
    true under ties, since blocks of equal maxima are taken in the order of their place, which is that of the ids in
    them; and the blocks taken are laid out in that order again. What is left over at the row's end is always looked at.
    """
    items = rows.shape[1]
    count = items // size
    blocks = rows[:, : count * size].unflatten(1, (count, size))
    best = ascending(_largest(blocks.amax(2), k, ties)[1])
    looked_at = blocks.gather(1, best[:, :, None].expand(-1, -1, size)).flatten(1)
    place = torch.arange(size, device=rows.device)
    ids = (best[:, :, None] * size + place).flatten(1)
    looked_at, ids = _with_rest(looked_at, ids, rows, count * size)
    values, places = _largest(looked_at, k, ties)
    return values, ids.gather(1, places)


def _with_rest(looked_at: Tensor, ids: Tensor, rows: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """The scores looked at and their ids, with those left over at the row's end."""
    width, items = looked_at.shape[1], rows.shape[1]
    if start == items:
        return looked_at, ids
    # Under autocast `torch.cat` refuses half precision of the other kind.
    both = looked_at.new_empty((len(rows), width + items - start))
    both[:, :width], both[:, width:] = looked_at, rows[:, start:]
    return both, torch.cat([ids, torch.arange(start, items, device=rows.device).expand(len(rows), -1)], dim=1)


def _stride(items: int, k: int, least: int = 2 * _LONG) -> int | None:
    """How many members each class of `_contenders` has, so that the least is looked at; None where they do not pay."""
    size = min(16, max(4, isqrt(items // (5 * k))))
    return size if items >= least and 3 * (items // size + k * size) <= items else None


def _contenders(rows: Tensor, k: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The items that may be among the k best: those of the k classes whose maxima are largest.

    A class holds every ``items // size``-th item. Its members do not stand together, so maxima of classes are maxima of
    long slices, which processors take at the speed of memory; those of small blocks take twice as long. What is left
    over at the row's end belongs to no class and is always looked at.

    Returns:
        The scores looked at and their ids, ascending, ``(Q, M)``; and ``(Q,)``, what no other score exceeds.
    """
    items = rows.shape[1]
    count = items // size
    members = rows[:, : count * size].unflatten(1, (size, count))
    bound, best = _in_any_order(members.amax(1), k)
    best = ascending(best)[:, None, :]
    looked_at = members.gather(2, best.expand(-1, size, -1)).flatten(1)
    ids = (best + torch.arange(0, count * size, count, device=rows.device)[:, None]).flatten(1)
    return *_with_rest(looked_at, ids, rows, count * size), bound[:, -1]


def _in_any_order(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """What `torch.topk` gives, by `_contenders` where they pay."""
    size = _stride(rows.shape[1], k, _LONG)  # sooner than where ties are settled
    if size is None:
        return _select(rows, k)
    looked_at, ids, _ = _contenders(rows, k, size)
    values, places = _select(looked_at, k)
    return values, ids.gather(1, places)


def _select(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """What `torch.topk` gives, ties in any order.

    More than a few of a row NumPy (2.4, AVX-512) selects two to three times as fast as torch does on a thread; torch
    may have many.
    """
    items = rows.shape[1]
    if 64 * k <= items or torch.get_num_threads() > _FEW or _level(rows):
        return rows.topk(k)
    found = []
    for part in map(_as_numpy, rows.split(max(1, _CACHED // items))):
        chosen = np.argpartition(part, items - k, axis=1)[:, items - k :]
        order = np.take_along_axis(part, chosen, axis=1).argsort(axis=1)[:, ::-1]
        found.append(np.take_along_axis(chosen, order, axis=1))
    indices = torch.from_numpy(np.concatenate(found))
    return rows.gather(1, indices), indices


def _level(rows: Tensor) -> bool:
    """Whether much of a row is one number, in a few of them: then NumPy selects several times as slowly."""
    few = np.sort(_as_numpy(rows[:: 1 + len(rows) // 64, :: 1 + rows.shape[1] // 64]), axis=1)
    return bool((few == few[:, few.shape[1] // 2, None]).mean() > 0.25) if len(few) else True


def top_values(rows: Tensor, k: int) -> Tensor:
    """The k largest of each row, ``(Q, k)``, descending: what `torch.topk` gives, where places do not matter.

    The rows are of a type that `orderable` gives.
    """
    if not may_branch(rows) or k == 0:
        return rows.topk(k).values
    if 2 * k <= rows.shape[1]:
        return _in_any_order(rows, k)[0]
    parts = [np.sort(_as_numpy(part), axis=1) for part in rows.split(band(rows.shape[1]))]
    return torch.from_numpy(np.concatenate(parts)).flip(1)[:, :k].to(rows.dtype)


def _by_strides(rows: Tensor, k: int, ties: str, size: int) -> tuple[Tensor, Tensor]:
    """The top k of `_contenders`, mended where what they leave out may hold more that equal the k-th.

    Nothing left out exceeds the least maximum of the classes looked at; so a few more than k leave few rows to mend.
    """
    looked_at, ids, bound = _contenders(rows, k + k // 8 + 3, size)
    values, places = _largest(looked_at, k, ties)
    missed = ~(values[:, -1] > bound)  # where the k-th is NaN as well
    return values, _mended(missed, ids.gather(1, places), values, rows, ties)


def _by_neighbours(rows: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """`torch.topk`, mended where a look at the first k + 1 values shows that its order is not the one wanted."""
    values, indices = _select(rows, k + 1)
    same, broken = values[:, 1:] == values[:, :-1], values[:, 0].isnan()
    split = same[:, -1] | values[:, k - 1].isnan()  # a group of ties reaches past k
    values, indices = _positive_zero(values[:, :k]), indices[:, :k]
    if bool(same.any()) or bool(broken.any()):
        indices = _mended(split, indices, values, rows, ties)
        order = partial(_order, items=rows.shape[1], ties=ties)
        indices = _where(same.any(1) | broken, order, indices, indices, values)
    return values, indices


def _by_threshold(rows: Tensor, k: int, ties: str) -> tuple[Tensor, Tensor]:
    """Without a branch on data: `torch.topk` finds the right values whatever it does about ties."""
    values, indices = rows.topk(k)
    values = _positive_zero(values)
    return values, _order(_pick(indices, values, rows, ties), values, rows.shape[1], ties)


def _mended(split: Tensor, indices: Tensor, values: Tensor, rows: Tensor, ties: str) -> Tensor:
    """The indices of right values, with those of the rows, ``(Q,)``, in which ties may reach past k picked anew."""
    parts = zip(*(each.split(band(rows.shape[1])) for each in (split, indices, values, rows)), strict=True)
    return torch.cat([_where(some, partial(_pick, ties=ties), found, found, *given) for some, found, *given in parts])


def _where(mask: Tensor, change: Callable[..., Tensor], found: Tensor, *given: Tensor) -> Tensor:
    """What was found, but in the rows of a mask what a function makes of what is given; of all where it holds most."""
    count = int(mask.sum())
    if count == 0:
        return found
    if 2 * count > len(mask):
        return change(*given)
    some = mask.nonzero().squeeze(1)
    return found.index_copy(0, some, change(*(each[some] for each in given)))


def _pick(indices: Tensor, values: Tensor, rows: Tensor, ties: str) -> Tensor:
    """Which items take the places of the k-th value: of all that equal it, those of smallest (or largest) index.

    Items above it are all winners, and stay as they are.
    """
    k, threshold = values.shape[1], values[:, -1:]
    above = (values > threshold) | (values.isnan() & ~threshold.isnan())
    nth = (torch.arange(k, device=rows.device) - above.sum(1, keepdim=True)).clamp(min=0)
    if may_branch(rows):
        return torch.where(above, indices, _nearest(nth, threshold, rows, ties, max(4 * k, (1 << 15) // len(rows))))
    equal = rows == threshold
    if rows.is_floating_point():
        equal |= rows.isnan() & threshold.isnan()  # a row of NaNs must still give k different indices
    # The nth item that equals it stands where the running count first reaches n, counting from 1.
    items = rows.shape[1]
    count = equal.cumsum(1, dtype=torch.int16 if items < 1 << 15 else torch.int32)
    place = nth + 1 if ties == "index" else (count[:, -1:] - nth).clamp(min=1)
    return torch.where(above, indices, torch.searchsorted(count, place.to(count.dtype)).clamp(max=items - 1))


def _nearest(nth: Tensor, threshold: Tensor, rows: Tensor, ties: str, width: int) -> Tensor:
    """Where the nth item from the left (or right) stands that equals a row's threshold, counted from 0.

    Where many do, they stand near that end; so more and more is looked at of the rows in which too few were found.
    NumPy compares and lists several times as fast as torch does.
    """
    items, found, left = rows.shape[1], torch.zeros_like(nth), torch.arange(len(rows), device=rows.device)
    while len(left):
        width = width if 2 * width <= items else items
        start = 0 if ties == "index" else items - width
        part = rows[:, start : start + width]
        part, limit = (_as_numpy(each if len(left) == len(rows) else each[left]) for each in (part, threshold))
        equal = part == limit
        if np.isnan(limit).any():
            equal |= np.isnan(part) & np.isnan(limit)
        places = torch.from_numpy(np.append(np.flatnonzero(equal), 0))  # of all rows; one more, lest there be none
        edges = torch.arange(0, (len(left) + 1) * width, width, device=rows.device)
        bounds = torch.searchsorted(places[:-1], edges)
        first, last, wanted = bounds[:-1, None], bounds[1:, None] - 1, nth[left]
        chosen = torch.minimum(first + wanted, last) if ties == "index" else torch.maximum(last - wanted, first)
        found[left] = places[chosen] - edges[:-1, None] + start
        left = left[(last - first < wanted[:, -1:]).squeeze(1)] if width < items else left[:0]
        width *= 4
    return found


def _as_numpy(values: Tensor) -> Any:
    """As an array, of at least 32 bits a number, which processors compare and select several at a time."""
    if values.element_size() < 4:
        values = values.float() if values.is_floating_point() else values.int()
    return values.numpy(force=True)


def _order(indices: Tensor, values: Tensor, items: int, ties: str) -> Tensor:
    """Order the indices of equal values, which stand side by side."""
    new = (values[:, 1:] != values[:, :-1]) & ~values[:, 1:].isnan()
    group = torch.nn.functional.pad(new.cumsum(1), (1, 0)) * items
    if ties == "reverse":
        return items - 1 - ascending(group + (items - 1 - indices)) + group
    return ascending(group + indices) - group


def ascending(numbers: Tensor) -> Tensor:
    """Integers sorted along the last dimension, maybe in place: NumPy is several times as fast as torch on a core."""
    if not may_branch(numbers):
        return numbers.sort().values
    numbers.numpy().sort()
    return numbers


def rank_counts(scores: Tensor, target_scores: Tensor) -> tuple[Tensor, Tensor]:
    """How many scores of each row are above a target's score, and how many are at least as high.

    Args:
        scores: ``(..., N)``, any real type; never written to, and no mask of their size is made.
        target_scores: ``(...)``: the target's score in each row, from the same tensor: another kernel's product may
            differ in its last bit and miss a tie.

    Returns:
        ``(greater, at_least)``, int64 of the leading shape. ``at_least`` counts the target's own entry, so the rank is
        ``greater + 1`` (optimistic) to ``at_least`` (pessimistic). Both add up over chunks of items and over shards. A
        NaN counts nowhere; where the target is NaN, both are 0.

    Raises:
        TypeError: For complex scores and other types without an order.
        ValueError: For shapes that do not fit.

    Example:
        >>> scores = torch.tensor([[0.3, 0.9, 0.3, 0.1]])
        >>> greater, at_least = rank_counts(scores, scores[:, 0])
        >>> greater.item(), at_least.item()
        (1, 3)
    """
    scores, targets = as_tensor("scores", scores), as_tensor("target_scores", target_scores)
    if scores.dim() == 0 or targets.shape != scores.shape[:-1]:
        raise ValueError(
            f"target_scores must hold one score a row, shape {tuple(scores.shape[:-1])} for scores of shape "
            f"{tuple(scores.shape)}, but have shape {tuple(targets.shape)}."
        )
    shape, items = scores.shape[:-1], scores.shape[-1]
    rows, limits = orderable(scores).reshape(prod(shape), items), orderable(targets, "target_scores").reshape(-1, 1)
    if torch.compiler.is_compiling():  # a compiler makes one pass of it
        return (rows > limits).sum(1).view(shape), (rows >= limits).sum(1).view(shape)
    # Comparisons are written to one buffer that stays in the processor's cache, as numbers: vectorised where masks of
    # bytes are not. Its sums are exact, being integers far below 2^24.
    cells = _CACHED if rows.is_cpu else 1 << 26
    width = max(1, min(items, cells, 1 << 24))
    height = max(1, cells // width)
    dtype = torch.float32 if rows.is_floating_point() else torch.int64
    buffer, widened = rows.new_empty((height, width), dtype=dtype), None
    if rows.is_cpu and rows.element_size() == 2 and rows.is_floating_point():  # processors compare these as float32
        widened, limits = torch.empty_like(buffer), limits.float()
    above: list[Tensor] = []
    not_below: list[Tensor] = []
    blocks: Iterable[tuple[Tensor, Tensor]] = zip(rows.split(height), limits.split(height), strict=True)
    if width < items:
        blocks = ((block, limit) for row, limit in blocks for block in row.split(width, dim=1))
    for block, limit in blocks:
        held = _start(buffer, block)
        compared = block if widened is None else _start(widened, block).copy_(block)
        above.append(torch.gt(compared, limit, out=held).sum(1))
        not_below.append(torch.ge(compared, limit, out=held).sum(1))
    # Either a block is many whole rows, or a row is many blocks.
    greater, at_least = (
        torch.cat(sums).view(len(rows), -1 if len(rows) else 1).long().sum(1) for sums in (above, not_below)
    )
    return greater.view(shape), at_least.view(shape)


def _start(buffer: Tensor, block: Tensor) -> Tensor:
    """As much of a buffer as a block fills."""
    return buffer if block.shape == buffer.shape else buffer[: block.shape[0], : block.shape[1]]


def count_true(mask: Tensor) -> Tensor:
    """How many of each row of a bool ``(Q, N)`` are True: int64 ``(Q,)``.

    Sums of up to 250 bytes fit a byte, and adding bytes, eight to a word where rows are whole words, is some 25 to 75
    times faster than widening each one.
    """
    items = mask.shape[1]
    words = (
        items >= 2000
        and items % 8 == 0 == mask.storage_offset() % 8
        and mask.is_contiguous()
        and not torch.compiler.is_compiling()
    )
    size = 8 if words else 1
    whole = items // (250 * size) * 250 * size
    head = mask[:, :whole].view(torch.uint8)
    counts: Tensor = mask[:, whole:].sum(1)
    if words:
        lanes = head.view(torch.int64).unflatten(1, (whole // 2000, 250)).sum(2)
        for lane in range(8):
            counts = counts + (lanes >> (8 * lane) & 255).sum(1)
    else:
        counts = counts + head.unflatten(1, (whole // 250, 250)).sum(2, dtype=torch.uint8).sum(1)
    return counts


def count_columns(mask: Tensor) -> Tensor:
    """How many of each column of a bool ``(Q, N)`` are True: int64 ``(N,)``; bytes are added as in `count_true`."""
    whole, rows = mask.shape[0] // 250 * 250, mask.view(torch.uint8)
    bands = rows[:whole].unflatten(0, (whole // 250, 250)).sum(1, dtype=torch.uint8)
    counts: Tensor = bands.sum(0) + rows[whole:].sum(0, dtype=torch.uint8)
    return counts
