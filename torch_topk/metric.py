"""What a metric of the first K is, and the registry of all."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Unpack, override

from torch_topk.inputs import COUNT_TIES, RANK_TIES, Cutoffs, is_single, nearest, read_cutoffs
from torch_topk.kernels import sum_dtype
from torch_topk.packed import PackedMetric, Policies, PolicyOptions, split_policies
from torch_topk.ranking import Ranking


class TopKMetric(PackedMetric):
    """A metric of the first K ranks. A subclass is a whole metric: it names itself and says `per_query`.

    Declared with the class: ``name``, the grammar's and registry's; ``aliases``; ``bounds`` of its values;
    ``higher_is_better``; what it ``reads``: "ranking" (a `Ranking`), "counts" (`RankCounts`), or both; and whether it
    is of the ``whole`` list, so that a suite's own k is not for it, and whether it has a mean over orders of equal
    scores, which ties="expected" asks for. Its options are the keyword arguments of its own ``__init__``, which hands
    them to this one as ``_options``, a mapping by name; they become attributes. One that is no mean, but read off
    counts over the whole run, says how many as ``_tallies``, and defines `tally` and `summary`.

    Args:
        k: The cut-off, several of them, or None for the whole list.
        kwargs: The fields of `Policies`, and torchmetrics' own keyword arguments.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]]
    bounds: ClassVar[tuple[float, float]]
    whole: ClassVar[bool] = False
    expected: ClassVar[bool] = False
    per_run: ClassVar[bool] = False
    """Whether it is of all lists together, so that a single query has no value."""

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        bounds: tuple[float, float] = (0.0, 1.0),
        higher_is_better: bool = True,
        reads: tuple[str, ...] = (),
        whole: bool = False,
        expected: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.reads, cls.whole, cls.expected = reads or cls.reads, whole, expected
        if name is None:  # a base of metrics, not a metric
            return
        cls.name, cls.aliases, cls.bounds, cls.higher_is_better = name, aliases, bounds, higher_is_better
        cls.plot_lower_bound, cls.plot_upper_bound = (bound if abs(bound) < float("inf") else None for bound in bounds)
        for key in (name, *aliases):
            other = by_name.get(key, cls)
            # A class defined anew, as in a notebook, takes its own place.
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"{cls.__name__} takes the name {key!r}, which {other.__name__} has already.")
        by_name.update(dict.fromkeys((name, *aliases), cls))
        registry[name] = cls

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        _options: Mapping[str, Any] | None = None,
        _tallies: int = 0,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        given, others = split_policies(kwargs, type(self).__name__, options_of(type(self)))
        asked = frozenset(given)
        if "ranking" not in self.reads:
            given.setdefault("ties", "realistic")
        cutoffs, options, policies = read_cutoffs(k), dict(_options or {}), Policies(**given)
        config = f"{type(self).__name__}{cutoffs}{sorted(options.items())}{policies}"
        super().__init__(len(cutoffs), config, policies, others, tallies=_tallies)
        self.cutoffs: Cutoffs = cutoffs
        self.tallies = _tallies
        self.options, self.given = options, asked
        for name, value in options.items():
            setattr(self, name, value)
        self.check_ties(policies.ties)
        self._one = is_single(k)

    def check_ties(self, ties: str) -> None:
        """Raise a ValueError for a tie rule under which the metric has no value."""
        known = [*(RANK_TIES if "ranking" in self.reads else ()), *(COUNT_TIES if "counts" in self.reads else ())]
        rules = [rule for rule in dict.fromkeys(known) if rule != "expected" or self.expected]
        if ties not in rules:
            name, allowed = type(self).__name__, ", ".join(map(repr, rules))
            raise ValueError(f"{name} has no value with ties={ties!r}, only with {allowed}.")

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean, or a ratio of sums, of values that each query has."""
        return not self.tallies and type(self).read is PackedMetric.read

    def prepare(self, device: torch.device) -> None:
        """Copy to a device what the metric holds of items, so that no update waits for it."""

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        super()._apply(fn, exclude_state)
        self.prepare(self.device)
        return self

    @abstractmethod
    def per_query(self, ranking: Ranking) -> Tensor:
        """Return each query's value at each cut-off, ``(Q, len(cutoffs))``; 0 for an empty query."""

    def summary(self, counts: Tensor, queries: Tensor) -> Tensor:
        """Read the values off the tallies of a run, given how many queries were counted: ``(len(cutoffs),)`` each."""
        raise NotImplementedError(f"{type(self).__name__} has tallies, but no summary of them.")

    def margins(self, counts: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """The ends of an interval around `summary`, ``(len(cutoffs),)`` each: NaN where there is none."""
        del level
        none = torch.full((len(self.cutoffs),), torch.nan, dtype=sum_dtype(counts.device), device=counts.device)
        return none, none

    @override
    def _values(self, sums: Tensor, counts: Tensor | None = None) -> Tensor:
        return super()._values(sums) if counts is None else self.summary(counts, sums[: self._columns])

    @override
    def _ends(self, sums: Tensor, counts: Tensor | None, level: float, method: str) -> tuple[Tensor, Tensor]:
        return super()._ends(sums, counts, level, method) if counts is None else self.margins(counts, level)

    def is_empty(self, ranking: Ranking) -> Tensor:
        """Tell which queries have no relevant item, ``(Q, 1)`` or a column a cut-off: what ``empty=`` settles."""
        return ranking.is_empty(self.policies.min_relevance)

    @override
    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        return self._means(ranking)

    def _means(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """For a mean over queries: the value and 1, or 0 and 0 where an empty query is skipped."""
        values, policy = self.per_query(ranking), self.policies.empty
        if policy in {"zero", "error"}:
            return values, ranking.ones()
        empty = self.is_empty(ranking)
        fill = {"one": 1.0, "nan": float("nan")}.get(policy, 0.0)
        num = torch.where(empty, fill, values)
        return num, (~empty).to(num.dtype) if policy == "skip" else ranking.ones()

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        if self.policies.empty != "error":
            return {}
        return {"empty": (self.is_empty(ranking).any(1) & (ranking.weights > 0)).sum()}

    def values(self, ranking: Ranking) -> Tensor:
        """Each query's value in the queries' own shape, with a last dimension for several cut-offs.

        NaN for a query that counts nowhere. This is what the functional twins return.
        """
        num, den = self._means(ranking)
        values = torch.where(ranking.weights[:, None] > 0, self.read(num, den), torch.nan)
        return values.view(ranking.shape) if self._one else values.view(*ranking.shape, len(self.cutoffs))

    def _present(self, values: Tensor) -> Any:
        return values[0] if self._one else values

    @property
    def depth(self) -> int | None:
        """How many ranks it reads; None for the whole list."""
        return None if self.cutoffs == (None,) else max(k for k in self.cutoffs if k is not None)

    @property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        sums = self._sums
        low, high = (torch.full((), bound, dtype=sums.dtype, device=sums.device) for bound in self.bounds)
        return low, high

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot a value: over K as a curve, or a list of values over steps as lines.

        Args:
            val: A result of ``compute()`` or ``forward()``, or a list of them; None: of ``compute()``.
            ax: Matplotlib axes to draw on; None makes a figure.

        Returns:
            The figure (None where axes were given) and the axes.
        """
        from torch_topk import plot

        val = self.compute() if val is None else val
        name = type(self).__name__
        labels = [name if k is None else f"{name}@{k}" for k in self.cutoffs]
        if isinstance(val, (list, tuple)):
            steps = torch.stack([step.reshape(-1) for step in val])
            return plot.steps(dict(zip(labels, steps.T, strict=True)), bounds=self.bounds, ax=ax)
        return plot.curves({name: (self.cutoffs, val.reshape(-1))}, bounds=self.bounds, ax=ax)

    def __repr__(self) -> str:
        k = self.cutoffs[0] if self._one else list(self.cutoffs)
        shown = [f"k={k!r}", *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{type(self).__name__}({', '.join([*shown, *self.policies.changed()])})"


registry: dict[str, type[TopKMetric]] = {}
"""Every metric by its canonical name."""

by_name: dict[str, type[TopKMetric]] = {}
"""Every metric by each of its names, in lower case."""


def find(name: str) -> type[TopKMetric]:
    """The metric of that name or alias, in any case; a ValueError with the nearest names otherwise."""
    key = name.lower().replace("-", "_")
    if key in by_name:
        return by_name[key]
    raise ValueError(f"{name!r} is no metric.{nearest(key, by_name)} Known are {', '.join(registry)}.")


def options_of(cls: type[PackedMetric]) -> list[str]:
    """The names of a metric's own options: the keyword arguments of its ``__init__``."""
    parameters = inspect.signature(cls).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
