"""The stateless twins: each metric as a function of a batch, which gives each query's own value.

Every metric of the registry that has a value of a query has one here under its names, with its options:
``ndcg(scores, target, k=10, gain="exp")``. They compile to one graph (but for a mapping as gain, and numbers of
items), which serves every batch size; nothing can be raised from it, so faults in the data go unnoticed there.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import count
from operator import index
from typing import Any

import torch
from torch import Tensor

import torch_topk.metrics  # noqa: F401 - fills the registry
from torch_topk.gain import ItemTable, ItemValues, ItemVectors
from torch_topk.inputs import raise_faults
from torch_topk.metric import TopKMetric, find, options_of, registry

_ARGUMENTS = """
    Args:
        preds: Scores ``(..., N)``, or a Ranking (then target, exclude, items and weights are left out).
        target: The truth, as `Ranking.from_scores` takes it.
        k: The cut-off, several, or None for the whole list.
        items, exclude, weights: As `Ranking.from_scores` takes them. A query of weight 0 has the value NaN.
        options: The options of `{name}`, and the fields of `Policies`.

    Returns:
        float64 values of the queries' own shape, ``(Q,)`` for scores ``(Q, N)``, with a last dimension for several
        cut-offs. A query that counts nowhere (skipped, ignored) has NaN.

    Raises:
        InputError: For faults in the data, at once (a host read); ``validate="off"`` does not look.
"""


class _Definitions:
    """The metrics that were asked for, made once. A compiler cannot make one, but it can guard an attribute."""


_definitions = _Definitions()
_names: dict[tuple[type[TopKMetric], str], str] = {}
_with_tables: deque[tuple[type[TopKMetric], str]] = deque()
_numbers = count()
_MOST_TABLES = 16


def _define(cls: type[TopKMetric], k: Any, options: dict[str, Any]) -> str:
    """Make the metric if it is new, and return the name of the attribute that holds it."""
    cutoffs = k.tolist() if hasattr(k, "tolist") else k  # a long array shows but its ends
    tables: dict[int, Callable[..., Any]] = {1: ItemValues, 2: ItemVectors}
    options = {
        name: tables[value.ndim](name, value) if getattr(value, "ndim", 0) in tables else value
        for name, value in options.items()
    }
    key = cls, f"{cutoffs!r} {sorted(options.items())!r}"
    if key not in _names:
        if "dataset_size" in options:
            raise TypeError(f"{cls.name}() is a function of one batch: dataset_size is for {cls.__name__}.")
        name = f"definition_{next(_numbers)}"
        whole = {"average": "macro"} if "average" in options_of(cls) else {}  # values of one query are not averaged
        setattr(_definitions, name, cls(k, **{**whole, **options}))
        _names.setdefault(key, name)  # of two threads that made it, the first
        if any(isinstance(value, ItemTable) for value in options.values()):
            _with_tables.append(key)
            if len(_with_tables) > _MOST_TABLES:  # a model in training has new ones at each step
                delattr(_definitions, _names.pop(_with_tables.popleft()))
    return _names[key]


# As torch.compiler.assume_constant_result marks it, which would import the compiler here, a second's work.
_define._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


@cache
def _twin(cls: type[TopKMetric]) -> Callable[..., Tensor]:
    def values(
        preds: Any,
        target: Any = None,
        k: Any = 10,
        *,
        items: Any = None,
        exclude: Any = None,
        weights: Any = None,
        **options: Any,
    ) -> Tensor:
        if torch.compiler.is_compiling():  # whose numbers may be symbols, until index() asks for their value
            k = tuple([index(each) for each in k]) if isinstance(k, (list, tuple)) else None if k is None else index(k)
        metric: TopKMetric = getattr(_definitions, _define(cls, k, options))
        ranking = metric.rank(preds, target, items=items, exclude=exclude, weights=weights)
        result = metric.values(ranking)
        on_meta = ranking.device.type == "meta"
        if metric.policies.validate != "off" and not torch.compiler.is_compiling() and not on_meta:
            raise_faults(ranking.fault_counts(metric.faults(ranking)).tolist(), cls.name)
        return result

    values.__name__ = values.__qualname__ = cls.name
    first, _, rest = (inspect.getdoc(cls) or "").partition("\n")
    formula = rest.partition("Args:")[0].strip("\n")
    values.__doc__ = (
        f"{first} The values of each query; `{cls.__name__}` is their mean.\n\n{formula}\n\n"
        + inspect.cleandoc(_ARGUMENTS.format(name=cls.__name__))
    )
    return values


def __getattr__(name: str) -> Callable[..., Tensor]:
    try:
        cls = find(name)
    except ValueError as error:
        raise AttributeError(f"torch_topk.functional has no {name!r}: {error}") from error
    if cls.per_run:
        raise AttributeError(
            f"torch_topk.functional has no {name!r}: it is of all lists together, and of one query there is no value. "
            f"Use {cls.__name__}."
        )
    return _twin(cls)


def __dir__() -> list[str]:
    return sorted(name for name, cls in registry.items() if not cls.per_run)
