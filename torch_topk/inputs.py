"""What is refused, and in which words: the names, numbers and arrays that users hand in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = Tensor | NDArray[Any]
Cutoffs: TypeAlias = tuple[int, ...] | tuple[None]

FAULTS = {
    "nan_scores": "a NaN score: mend the model, or rank NaN last with non_finite='last'",
    "target": "a relevant item id below 0 or not below the number of items: check how labels are encoded, or name "
    "the label to skip with ignore_index",
    "exclude": "an excluded id below 0 (and not the padding, -1) or not below the number of items",
    "ranked": "a ranked item id below 0 (and not the padding) or not below the number of items",
    "duplicates": "an item that is ranked more than once: mend the list, or keep the item's best place with "
    "duplicates='first'",
    "gains": "a gain that is NaN or infinite, or is made so by gain='exp'",
    "grades": "a positive grade that the mapping given as gain does not list: add it, if only as 0",
    "max_grade": "a grade above max_grade, the highest of the scale",
    "weights": "a weight that is negative, NaN or infinite",
    "numbers": "a ranked or relevant item id for which propensities, values, item_counts or embeddings hold nothing: "
    "give one for each item",
    "counts": "counts that contradict each other: greater < at_least <= candidates must hold",
    "fractions": "a weight other than 0 and 1, where rows are counted in whole numbers",
    "groups": "a group below 0 (and not -1, for none) or not below the number of groups that slices names",
    "indexes": "an index below 0 or not below num_queries: number queries from 0, or leave num_queries out",
    "no_candidate": "a target of the lowest score, minus infinity, which means that it is no candidate: mend the model",
    "empty": "no relevant item, which empty='error' forbids: go on with another value, such as 'zero' or 'skip'",
}
"""Faults that only the data can show: their names, and what is said of the queries that have them."""


CHOICES: dict[str, tuple[str, ...]] = {
    "ties": ("index", "reverse", "realistic", "optimistic", "pessimistic", "expected"),
    "empty": ("zero", "one", "skip", "nan", "error"),
    "duplicates": ("error", "first"),
    "non_finite": ("error", "last"),
    "validate": ("compute", "now", "off"),
}
"""The policies that are a choice, and their values."""

RANK_TIES = ("index", "reverse", "optimistic", "pessimistic", "expected")
COUNT_TIES = ("realistic", "optimistic", "pessimistic", "expected")
"""The tie rules that a Ranking can be made by, and those that counts can be read by."""


def nearest(word: object, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for a word that is nearly a known one, otherwise nothing."""
    near = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


class InputError(ValueError):
    """Scores, truth, lists or weights hold values that no metric can be computed from."""


def raise_faults(counts: Sequence[float], where: str) -> None:
    """Raise an InputError that names every fault with its count, in the order of FAULTS."""
    found = [
        f"{int(count)} {'query has' if count == 1 else 'queries have'} {text}"
        for count, text in zip(counts, FAULTS.values(), strict=True)
        if count
    ]
    if found:
        raise InputError(f"{where}: " + "; ".join(found) + ". With validate='now' it raises at the batch.")


def read_cutoffs(k: int | Sequence[int] | None) -> Cutoffs:
    """The cut-offs as a tuple; (None,) for the whole list. Raises TypeError or ValueError that names k."""
    if k is None:
        return (None,)
    if isinstance(k, (Tensor, np.ndarray)):
        k = k.tolist()
    several = list(k) if isinstance(k, Sequence) and not isinstance(k, str) else [k]
    cutoffs = []
    for value in several:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"k must be an int, a sequence of ints, or None for the whole list, but is {k!r}.")
        if value < 1:
            raise ValueError(f"k must be at least 1, but is {k!r}.")
        cutoffs.append(int(value))
    if not cutoffs or len(set(cutoffs)) < len(cutoffs):
        raise ValueError(f"k must hold at least one cut-off, and each only once, but is {k!r}.")
    return tuple(cutoffs)


def is_single(k: int | Sequence[int] | None) -> bool:
    """Whether k is one cut-off, or none, and not several: what gives a scalar, and not a vector."""
    return k is None or np.ndim(k) == 0


def read_int(name: str, value: object, least: int) -> int:
    """An int of at least so much; a ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}, but is {value!r}.")
    return int(value)


def read_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise a ValueError that lists the choices unless the value is one of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, but is {value!r}.")


def as_tensor(name: str, value: object, device: torch.device | None = None) -> Tensor:
    """A tensor as it is (it must be on ``device``), or a NumPy array as a tensor there."""
    if isinstance(value, Tensor):
        if name == "scores" and value.layout != torch.strided:
            raise TypeError(
                f"scores must be dense, but are {value.layout}: stored entries go through Ranking.from_sparse."
            )
        if device is not None and value.device != device:
            raise ValueError(f"{name} is on {value.device}, but the scores are on {device}; move it there first.")
        return value.detach()
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if any(step < 0 for step in array.strides) or not array.flags.writeable:
            array = array.copy()  # torch takes neither negative strides nor read-only memory
        try:
            return torch.from_numpy(array).to(device, non_blocking=True)  # the copy is made; nobody waits for it
        except TypeError as error:
            raise TypeError(f"{name} must hold numbers that torch has a type for, but holds {array.dtype}.") from error
    hint = " Pass torch.tensor(...) of it." if isinstance(value, (list, tuple, int, float)) else ""
    hint = " Pass .to_numpy() of it." if hasattr(value, "to_numpy") else hint
    raise TypeError(f"{name} must be a tensor or a NumPy array, but is of type {type(value).__name__}.{hint}")


def unravel(lists: Any, padding: float) -> Any:
    """Lists of uneven lengths, a nested tensor, as padded ones; anything else as it is."""
    if not isinstance(lists, Tensor) or not lists.is_nested:
        return lists
    if lists.layout != torch.jagged:
        return lists.to_padded_tensor(padding)
    nested: Any = lists
    values, offsets = nested.values(), nested.offsets()  # whose own way to pad would trace itself first
    lengths = offsets.diff()
    row = torch.arange(len(lengths), device=values.device).repeat_interleave(lengths)
    padded = values.new_full((len(lengths), int(lengths.max()) if len(lengths) else 0), padding)
    padded[row, torch.arange(len(row), device=values.device) - offsets[row]] = values
    return padded


def as_array(values: Any) -> NDArray[Any]:
    """A list of ids or names as an array; of none, NumPy would make floating-point numbers."""
    array = np.asarray(values)
    return array if array.size else array.astype(np.int64)


def require_integer(name: str, value: Tensor) -> Tensor:
    """The same numbers as int64; a TypeError for bool, floating-point and complex ones."""
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise TypeError(f"{name} must hold integer ids, but is {value.dtype}.")
    return value.long()
