"""Poisson resamples of a stream of queries: how often each resample draws a query, from a hash of what it is called."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from itertools import count
from math import exp, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_topk.inputs import as_array, require_integer

_BAND = 1 << 12  # queries drawn at a time, so that memory is bounded
_STEP, _MIX = -7046029254386353131, (-4658895280553007687, -7723592293110705685)  # of splitmix64, as signed numbers


@cache
def _table() -> tuple[int, ...]:
    """How often a Poisson variable of mean 1 draws, at each of 65,536 quantiles."""
    table: list[int] = []
    mass = below = exp(-1)
    for draws in count():
        table += [draws] * (min(round(below * 65536), 65536) - len(table))
        if len(table) == 65536:
            return tuple(table)
        mass /= draws + 1
        below = min(1.0, below + mass)
    raise AssertionError


def _mix(state: Tensor) -> Tensor:
    """Steele, Lea & Flood, Fast splittable pseudorandom number generators, 2014: the finaliser of splitmix64."""
    for shift, factor in zip((30, 27), _MIX, strict=True):
        state = (state ^ _shifted(state, shift)) * factor
    return state ^ _shifted(state, 31)


def _shifted(state: Tensor, shift: int) -> Tensor:
    """Shift to the right as unsigned numbers do."""
    return (state >> shift) & ((1 << (64 - shift)) - 1)


def _signed(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def name_keys(names: Iterable[object]) -> Tensor:
    """A 64-bit number for each name, the same in every process: int64, on the CPU."""
    return torch.tensor(
        [int.from_bytes(blake2b(str(name).encode(), digest_size=8).digest(), "little", signed=True) for name in names],
        dtype=torch.int64,
    )


def read_ids(query_ids: Any, shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Any]:
    """What queries are called, as int64 keys ``(Q,)`` on a device, and as it was given, ``(Q,)``."""
    given = query_ids if isinstance(query_ids, Tensor) else as_array(query_ids)
    if isinstance(query_ids, (list, tuple)) and isinstance(given, np.ndarray) and given.dtype.kind == "U":
        given = np.array(query_ids, dtype=object)  # in which numbers among strings stay what they are
    if tuple(given.shape) not in {shape, (prod(shape),)}:
        raise ValueError(f"query_ids must be {shape}, one a query, but are {tuple(given.shape)}.")
    given = given.reshape(-1)
    if isinstance(given, np.ndarray) and given.dtype.kind not in "iu":
        kinds = {type(each) for each in given.tolist()}
        if all(issubclass(kind, str) for kind in kinds):
            return name_keys(given).to(device, non_blocking=True), given
        if kinds != {int}:
            held = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"query_ids must be all integers or all strings, but hold {held}.")
        given = given.astype(np.int64)
    ids = given if isinstance(given, Tensor) else torch.from_numpy(given)
    return require_integer("query_ids", ids).to(device, non_blocking=True), given


class Resampler:
    """Draws each query of a stream a Poisson(1) number of times in each resample.

    The number depends on the seed, the stream, the resample and the query's key alone, and not on the batch, the
    device or the process that the query is seen by: Hanley & MacGibbon, Creating non-parametric bootstrap samples using
    Poisson frequencies, 2006; Chamandy et al., Estimating uncertainty for massive data streams, 2012.
    """

    def __init__(self, resamples: int, seed: int, stream: int) -> None:
        self.resamples = resamples
        self._seed = _signed(seed * 0x9E3779B97F4A7C15 + (stream + 1) * 0xD1342543DE82EF95)
        self._quantiles: Tensor | None = None

    def prepare(self, device: torch.device) -> None:
        """Have the table of draws on a device, so that no update waits for it."""
        if self._quantiles is None or self._quantiles.device != device:
            self._quantiles = torch.tensor(_table(), dtype=torch.uint8, device=device)

    def draws(self, keys: Tensor) -> Tensor:
        """How often each resample draws each query of int64 keys ``(Q,)``: uint8 ``(Q, resamples)``."""
        assert self._quantiles is not None  # noqa: S101 - prepare() has been called
        blocks = -(-self.resamples // 4)  # a hash is four draws of 16 bits
        offsets = torch.arange(1, blocks + 1, device=keys.device) * _STEP
        bits = _mix(_mix(keys + self._seed)[:, None] + offsets).view(torch.int16)[:, : self.resamples]
        return self._quantiles.index_select(0, bits.reshape(-1).int() + (1 << 15)).view(-1, self.resamples)

    def sums(self, keys: Tensor, values: Tensor) -> Tensor:
        """Sum each query's values ``(Q, C)`` as often as a resample draws it: ``(resamples, C)``."""
        total = values.new_zeros((self.resamples, values.shape[1]))
        for some, part in zip(keys.split(_BAND), values.split(_BAND), strict=True):
            total = total + self.draws(some).T.to(values.dtype) @ part
        return total
