"""What relevant items are worth: by their grade, or each for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from torch_topk.inputs import Array, as_tensor
from torch_topk.kernels import sum_dtype


def is_relevant(gains: Tensor, min_relevance: float | None) -> Tensor:
    """Where a gain counts as relevant: above 0, or at least ``min_relevance``."""
    return gains > 0 if min_relevance is None else gains >= min_relevance


class ItemTable:
    """Numbers of items, 0 .. N - 1, ``(N, ...)``, of which a copy is kept on each device it is asked for on.

    Two that hold the same numbers are equal, have one name, and share tables.
    """

    def __init__(self, numbers: Tensor) -> None:
        kept = numbers.cpu().clone(memory_format=torch.contiguous_format)
        content = f"{kept.dtype}{tuple(kept.shape)}".encode() + kept.numpy().tobytes()
        self._name = blake2b(content, digest_size=8).hexdigest()
        self._on = {kept.device: kept}

    def __len__(self) -> int:
        return self._on[torch.device("cpu")].shape[0]

    def on(self, device: torch.device) -> Tensor:
        """The numbers on a device, ``(N, ...)``."""
        if device not in self._on:
            kept = self._on[torch.device("cpu")]
            self._on[device] = kept.to(device, sum_dtype(device) if kept.dtype == torch.float64 else kept.dtype)
        return self._on[device]

    def of(self, ids: Tensor) -> Tensor:
        """The numbers of each item, ``(*ids.shape, ...)``; 0 for an id that is none."""
        values = self.on(ids.device)
        stray = ((ids < 0) | (ids >= values.shape[0])).view(*ids.shape, *[1] * (values.dim() - 1))
        return values[ids.clamp(0, values.shape[0] - 1)].masked_fill(stray, 0)

    def __deepcopy__(self, memo: object) -> ItemTable:
        return self  # it never changes, and may be large

    def __getstate__(self) -> dict[str, Any]:
        cpu = torch.device("cpu")
        return {"_name": self._name, "_on": {cpu: self._on[cpu]}}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ItemTable) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"<{len(self)} numbers {self._name}>"


class ItemValues(ItemTable):
    """A number of at least 0 for each item: what it is worth to whoever it is relevant to, or how often it was seen."""

    def __init__(self, name: str, values: Array) -> None:
        numbers = as_tensor(name, values).cpu()
        if numbers.dim() != 1 or numbers.is_complex() or not numbers.shape[0]:
            raise ValueError(f"{name} must be a number an item, (N,), but is {numbers.dtype} {tuple(numbers.shape)}.")
        numbers = numbers.double()
        if not bool(((numbers >= 0) & numbers.isfinite()).all()):
            raise ValueError(f"{name} must be finite numbers of at least 0, but one is {_worst(numbers)}.")
        super().__init__(numbers)


class ItemVectors(ItemTable):
    """A vector for each item, such as an embedding; kept in its own type."""

    def __init__(self, name: str, vectors: Array) -> None:
        numbers = as_tensor(name, vectors)
        if numbers.dim() != 2 or numbers.is_complex() or 0 in numbers.shape:
            raise ValueError(f"{name} must be a vector an item, (N, D), but is {numbers.dtype} {tuple(numbers.shape)}.")
        numbers = numbers if numbers.dtype in {torch.float16, torch.float32, torch.float64} else numbers.float()
        broken = int((~numbers.isfinite()).any(1).sum())
        if broken:
            rows = f"{broken} {'row is' if broken == 1 else 'rows are'}"
            raise ValueError(f"{name} must be finite numbers, but {rows} not.")
        super().__init__(numbers)


def _worst(numbers: Tensor) -> float:
    return float(numbers[(numbers < 0) | ~numbers.isfinite()][0])


@dataclass(frozen=True)
class Gain:
    """What a grade is worth in a discounted sum: a name (linear, exp, binary) or a mapping of grades.

    linear is max(g, 0) (Järvelin & Kekäläinen 2002), exp is 2^max(g, 0) - 1 (Burges 2005), binary is 1 for a
    relevant item. A mapping gives each grade its own worth; a positive grade that it lacks is a fault. With values of
    items (name "items"), a relevant item is worth its own, whatever its grade.
    """

    name: str
    grades: tuple[tuple[float, float], ...] = ()
    min_relevance: float | None = None
    items: ItemValues | None = None

    @classmethod
    def of(cls, gain: str | Mapping[float, float], min_relevance: float | None = None) -> Gain:
        """Read the user's ``gain=``; raises ValueError for what is neither a name nor a sensible mapping."""
        if isinstance(gain, Mapping):
            if not all(isinstance(number, Real) for pair in gain.items() for number in pair):
                raise ValueError(f"gain must map grades to numbers, but is {dict(gain)!r}.")
            grades = tuple(sorted((float(grade), float(worth)) for grade, worth in gain.items()))
            if not grades or any(not 0 <= worth < float("inf") for _, worth in grades):
                raise ValueError(f"gain must map grades to finite numbers of at least 0, but is {dict(gain)!r}.")
            if any(worth != 0 for grade, worth in grades if grade <= 0):
                raise ValueError(
                    f"gain must map grades of 0 or less, which no relevant item has, to 0, but is {dict(gain)!r}."
                )
            return cls("mapping", grades)
        if not isinstance(gain, str) or gain not in {"linear", "exp", "binary"}:
            raise ValueError(f"gain must be 'linear', 'exp', 'binary' or a mapping of grades, but is {gain!r}.")
        return cls(gain, min_relevance=min_relevance if gain == "binary" else None)

    def __call__(self, gains: Tensor, ids: Tensor) -> Tensor:
        """What grades of items are worth: of one shape, which the result has too, in the type that sums are kept in."""
        if self.items is not None:
            return self.items.of(ids).masked_fill(~is_relevant(gains, self.min_relevance), 0)
        if self.name == "binary":
            return is_relevant(gains, self.min_relevance).to(sum_dtype(gains.device))
        worths = gains.to(sum_dtype(gains.device))
        if self.name == "linear":
            return worths.clamp(min=0)
        if self.name == "exp":
            return torch.exp2(worths.clamp(min=0)) - 1
        worths = torch.where(gains.isnan(), torch.nan, torch.zeros_like(worths))
        for grade, worth in self.grades:  # compared in the gains' own type, where .1 is the nearest number to .1
            worths = torch.where(gains == grade, worth, worths)
        return worths

    def lacks(self, gains: Tensor) -> Tensor:
        """Where a positive grade has no worth in the mapping."""
        known = torch.zeros_like(gains, dtype=torch.bool)
        for grade, _ in self.grades:
            known |= gains == grade
        return (gains > 0) & ~known

    def on(self, device: torch.device) -> None:
        """Have on a device what worths are looked up in."""
        if self.items is not None:
            self.items.on(device)

    @property
    def monotone(self) -> bool:
        """Whether a higher grade is never worth less, so that the best grades are the best worths."""
        if self.items is not None:
            return False
        worths = [worth for _, worth in self.grades]
        return worths == sorted(worths)
