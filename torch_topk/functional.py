"""The stateless twins: each metric as a function of a batch, which gives each query's own value.

Every metric of the registry has one here under its names, with its options:
``ndcg(scores, target, k=10, gain="exp")``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import torch_topk.metrics  # noqa: F401 - fills the registry
from torch_topk.inputs import raise_faults
from torch_topk.metric import TopKMetric, find, registry

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
        if "dataset_size" in options:
            raise TypeError(f"{cls.name}() is a function of one batch: dataset_size is for {cls.__name__}.")
        metric = cls(k, **options)
        ranking = metric.rank(preds, target, items=items, exclude=exclude, weights=weights)
        result = metric.values(ranking)
        on_meta = ranking.ids.device.type == "meta"
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
        return _twin(find(name))
    except ValueError as error:
        raise AttributeError(f"torch_topk.functional has no {name!r}: {error}") from error


def __dir__() -> list[str]:
    return sorted(registry)
