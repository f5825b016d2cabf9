"""The groups of queries that a suite tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_topk.inputs import as_array, as_tensor, nearest, require_integer


class Slices:
    """Ways to part queries into groups, each with a name and named groups; rows of a table stand for all groups.

    Args:
        slices: For each way the names of its groups, or how many there are; None: no way.

    Attributes:
        names: For each way the names of its groups.
    """

    def __init__(self, slices: Mapping[str, Any] | None) -> None:
        if slices is not None and not isinstance(slices, Mapping):
            raise TypeError(f"slices must be a mapping such as {{'segment': ['new', 'loyal']}}, but is {slices!r}.")
        self.names = {str(way): _read_names(str(way), groups) for way, groups in (slices or {}).items()}

    def __len__(self) -> int:
        return sum(map(len, self.names.values()))

    def __repr__(self) -> str:
        return repr(self.names)

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The way and the group that each row stands for."""
        return tuple((way, group) for way, groups in self.names.items() for group in groups)

    def read(self, groups: Any, shape: tuple[int, ...], queries: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Find the rows that queries belong to.

        Args:
            groups: For each way a group a query: its name, or its place among them; None or -1 for none.
            shape: The queries' own shape.
            queries: How many there are.
            device: Where the rows are wanted.

        Returns:
            The row of each query in each way, int64 ``(len(names), queries)``, ``len(self)`` where it has none; and the
            number of queries with a group that there is not.

        Raises:
            TypeError, ValueError: For ways that are missing or unknown, names that no group has, and other shapes.
        """
        if not isinstance(groups, Mapping):
            raise TypeError(f"groups must be a mapping, with {', '.join(map(repr, self.names))}, but is {groups!r}.")
        for way in groups:
            if way not in self.names:
                raise ValueError(f"groups has {way!r}, but slices has not.{nearest(way, self.names)}")
        rows, faulty, start = [], torch.zeros(queries, dtype=torch.bool, device=device), 0
        for way, names in self.names.items():
            if way not in groups:
                raise ValueError(f"groups lacks {way!r}: give a group a query, -1 for one that belongs to none.")
            number = _read_numbers(way, groups[way], names, device)
            if tuple(number.shape) not in {shape, (queries,)}:
                raise ValueError(f"groups[{way!r}] must be {shape}, one a query, but is {tuple(number.shape)}.")
            number = number.reshape(-1)
            inside = (number >= 0) & (number < len(names))
            faulty = faulty | (~inside & (number != -1))
            rows.append(torch.where(inside, number + start, len(self)))
            start += len(names)
        return torch.stack(rows), faulty.sum()


def _read_names(way: str, groups: Any) -> tuple[str, ...]:
    if isinstance(groups, Integral) and not isinstance(groups, bool):
        groups = range(int(groups))
    if isinstance(groups, str) or not isinstance(groups, (Sequence, np.ndarray)) or len(groups) == 0:
        raise TypeError(f"slices[{way!r}] must be the names of its groups, or their number, but is {groups!r}.")
    if not isinstance(groups, range) and not all(isinstance(name, str) for name in groups):
        raise TypeError(
            f"slices[{way!r}] must name its groups by strings, since a number given as a group is a place among them, "
            f"but is {list(groups)!r}: write map(str, ...) of it, and of what groups= is given."
        )
    names = tuple(str(name) for name in groups)
    if len(set(names)) < len(names):
        raise ValueError(f"slices[{way!r}] names a group twice: {', '.join(names)}.")
    return names


def _read_numbers(way: str, given: Any, names: tuple[str, ...], device: torch.device) -> Tensor:
    if hasattr(given, "to_numpy"):
        given = given.to_numpy()
    if isinstance(given, (list, tuple)):
        named = any(isinstance(each, str) for each in given)
        given = np.array(given, dtype=object) if named else as_array(given)
    if isinstance(given, np.ndarray) and given.dtype.kind in "UO":
        number: dict[Any, int] = {None: -1, -1: -1, **{name: i for i, name in enumerate(names)}}
        for name in given.reshape(-1).tolist():
            if name not in number:
                raise ValueError(
                    f"groups[{way!r}] has {name!r}, but slices has {', '.join(names)}; None is for no group."
                )
        given = np.array([number[name] for name in given.reshape(-1).tolist()], dtype=np.int64).reshape(given.shape)
    return require_integer(f"groups[{way!r}]", as_tensor(f"groups[{way!r}]", given, device))
