"""A metric is a ratio of sums: its state, how ranks and jobs add it up, its name, and the "ndcg@10" grammar."""

from __future__ import annotations

import difflib
import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from math import ceil
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from typing_extensions import TypedDict

from torch_topk.kernels import sum_dtype
from torch_topk.ranking import (
    CHOICES,
    FAULTS,
    Cutoffs,
    Ranking,
    raise_faults,
    read_choice,
    read_cutoffs,
)

if TYPE_CHECKING:
    from torch_topk.relevance import Array


class PolicyOptions(TypedDict, total=False):
    """The keyword arguments that every metric and the suite take beside their own: see `Policies`."""

    ties: str
    empty: str
    min_relevance: float | None
    duplicates: str
    non_finite: str
    validate: str
    ignore_index: int | None
    dataset_size: int | None
    dist_sync_on_step: bool
    process_group: Any
    dist_sync_fn: Callable[..., Any] | None
    distributed_available_fn: Callable[[], bool] | None
    sync_on_compute: bool
    compute_with_cache: bool


@dataclass(frozen=True)
class Policies:
    """How the awkward cases are settled; every metric and every suite takes these as keyword arguments.

    Attributes:
        ties: "index" or "reverse": equal scores in ascending or descending order of item id.
        empty: What a query without a relevant item counts: "zero", "one", "nan"; "skip" leaves it out of the mean,
            and "error" makes it a fault.
        min_relevance: The gain from which an item is relevant; None: any gain above 0.
        duplicates: An item that a list ranks twice: "error", or "first" to keep its best place.
        non_finite: A NaN score: "error", or "last" to rank it behind all numbers.
        validate: Faults in the data raise at ``compute()`` ("compute"), at once, with a host read a batch ("now"),
            or are not looked for ("off").
        ignore_index: The label that makes its query count nowhere.
        dataset_size: The number of samples in the whole data set, so that the repeats with which
            `DistributedSampler` fills the last round are left out. Right for samplers that give rank r of W the
            samples at positions r, W + r, 2W + r, ... in order, shuffled or not; a batch sampler that reorders
            across positions breaks it.
    """

    ties: str = "index"
    empty: str = "zero"
    min_relevance: float | None = None
    duplicates: str = "error"
    non_finite: str = "error"
    validate: str = "compute"
    ignore_index: int | None = None
    dataset_size: int | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            read_choice(name, getattr(self, name), choices)
        if self.min_relevance is not None and not self.min_relevance > 0:
            raise ValueError(
                f"min_relevance must be above 0, the gain of an unlisted item, but is {self.min_relevance!r}."
            )
        for name, least in (("ignore_index", None), ("dataset_size", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
                raise ValueError(
                    f"{name} must be an int{'' if least is None else f' of at least {least}'}, but is {value!r}."
                )


POLICY_NAMES = tuple(field.name for field in fields(Policies))


def split_policies(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part keyword arguments into those of `Policies` and the rest."""
    policies = {name: value for name, value in options.items() if name in POLICY_NAMES}
    return policies, {name: value for name, value in options.items() if name not in POLICY_NAMES}


class PackedMetric(Metric):
    """A torchmetrics Metric whose whole state is one packed vector of sums.

    Each value it reports is a ratio of two sums over queries, ``sum w num / sum w den``: a mean where den is 1 for
    each query that counts, a pooled ratio where it is not. The pack holds, for each value, the sums of w den, w num,
    (w den)^2, w den w num and (w num)^2, which is all that intervals need; then the number of queries, then the
    counts of faults. Everything is a sum, so ranks, jobs and checkpoints add up by one rule, whatever share of the
    queries each has seen.
    """

    full_state_update: ClassVar[bool] = False
    is_differentiable: ClassVar[bool] = False

    def __init__(self, columns: int, config: str, policies: Policies, kwargs: Mapping[str, Any]) -> None:
        super().__init__(**kwargs)
        self.policies = policies
        self._columns = columns
        # The state's name stands for the configuration: torchmetrics' compute groups merge metrics whose states
        # have equal names and, after the first batch, equal values; and small sums are equal often.
        self._state = "sums_" + blake2b(config.encode(), digest_size=6).hexdigest()
        size = 5 * columns + 1 + len(FAULTS)
        self.add_state(self._state, torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")
        self._position = 0  # samples seen since reset, for dataset_size
        self._reduced: Tensor | None = None  # the sums that the last compute() read, over all ranks
        self._checked = False

    # What a subclass says of itself.

    @abstractmethod
    def _ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """Numerators and denominators of a batch, each ``(Q, columns)``; may note faults in the ranking."""

    @abstractmethod
    def _present(self, values: Tensor) -> Any:
        """Shape ``(columns,)`` values as the user sees them."""

    @property
    @abstractmethod
    def depth(self) -> int | None:
        """How many ranks a Ranking must hold for this metric; None for the whole list."""

    @property
    @abstractmethod
    def _bounds(self) -> tuple[Tensor, Tensor]:
        """The least and largest possible values, ``(columns,)`` each."""

    # Updating: everything out of place, nothing read from the device.

    def update(
        self,
        preds: Array | Ranking,
        target: Any = None,
        *,
        items: Array | None = None,
        exclude: Any = None,
        weights: Array | None = None,
    ) -> None:
        """Add a batch of queries.

        Args:
            preds: Scores ``(..., N)``, or a Ranking (then the other arguments are left out).
            target: The truth, as `Ranking.from_scores` takes it.
            items: The item ids of the columns, where they are candidates of a larger catalogue.
            exclude: Candidates to leave out, in any form that `Ranking.from_scores` takes.
            weights: What each query counts, 1 where it is left out.

        Raises:
            TypeError, ValueError: For shapes and types that do not fit, at once.
        """
        self._add(self._batch_sums(preds, target, items=items, exclude=exclude, weights=weights))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch, and return the batch's own value; it takes the arguments of `update`.

        Nothing is read on the host, so faults in the data wait for ``compute()``.
        """
        if self._is_synced:
            raise TorchMetricsUserError(
                "The state is synchronised at the moment: call unsync() before the next forward()."
            )
        with torch.no_grad():
            sums = self._batch_sums(*args, **kwargs)
            self._add(sums)
            self._computed = None
            self._update_count += 1
            if self.dist_sync_on_step and self._distributed():
                sums = self._sum_over_ranks(sums, self.dist_sync_fn or gather_all_tensors, self.process_group)
            self._forward_cache = self._present(self._values(sums))
        return self._forward_cache

    def rank(
        self,
        preds: Array | Ranking,
        target: Any = None,
        *,
        items: Array | None = None,
        exclude: Any = None,
        weights: Array | None = None,
    ) -> Ranking:
        """Return the Ranking of a batch as this metric's policies want it; a Ranking given is checked and returned.

        It takes the arguments of `update`.
        """
        policies = self.policies
        if isinstance(preds, Ranking):
            self._accept(preds, target=target, items=items, exclude=exclude, weights=weights)
            return preds
        return Ranking.from_scores(
            preds,
            target,
            self.depth,
            items=items,
            exclude=exclude,
            weights=weights,
            ties=policies.ties,
            ignore_index=policies.ignore_index,
            non_finite=policies.non_finite,
            duplicates=policies.duplicates,
            validate="off" if policies.validate == "off" else "compute",
        )

    def _batch_sums(self, *args: Any, **kwargs: Any) -> Tensor:
        ranking, policies = self.rank(*args, **kwargs), self.policies
        if ranking.ids.device != self.device:
            raise RuntimeError(
                f"the scores are on {ranking.ids.device}, but this {type(self).__name__} is on {self.device}: "
                f"move it with .to({str(ranking.ids.device)!r})."
            )
        if policies.dataset_size is not None:
            ranking = ranking.first(self._unrepeated(ranking.samples, policies.dataset_size))
        num, den = self._ratios(ranking)
        weight = ranking.weights[:, None]
        num, den = weight * num, weight * den
        parts = [den.sum(0), num.sum(0), (den * den).sum(0), (den * num).sum(0), (num * num).sum(0)]
        if policies.validate == "off":
            faults = weight.new_zeros(len(FAULTS))
        else:
            faults = ranking.fault_counts()
            if policies.validate == "now":
                raise_faults(faults.tolist(), type(self).__name__)
        return torch.cat([*parts, (weight > 0).sum(0).to(num.dtype), faults])

    def _accept(self, ranking: Ranking, **others: Any) -> None:
        """Refuse a Ranking that another tie rule or depth made, and arguments that it holds already."""
        given = [name for name, value in others.items() if value is not None]
        if given:
            raise ValueError(
                f"A Ranking holds its truth, exclusions and weights: give {', '.join(given)} when making it."
            )
        if ranking.ties not in {None, self.policies.ties}:
            raise ValueError(
                f"The Ranking has ties={ranking.ties!r}, but this metric ties={self.policies.ties!r}."
            )
        needed = self.depth
        if ranking.depth is not None and (needed is None or needed > ranking.depth):
            raise ValueError(
                f"The Ranking holds {ranking.depth} ranks, but this metric needs k={needed or 'None, the whole list'}."
            )

    def _unrepeated(self, samples: int, dataset_size: int) -> int:
        """How many of the next samples are no repeats: this rank holds positions rank, rank + world, ..."""
        world, rank = 1, 0
        if self._distributed():
            group = self.process_group
            world, rank = torch.distributed.get_world_size(group), torch.distributed.get_rank(group)
        before, self._position = self._position, self._position + samples
        if self._position > ceil(dataset_size / world):
            raise ValueError(
                f"dataset_size is {dataset_size}, at most {ceil(dataset_size / world)} samples for each of {world} "
                f"processes, but {self._position} were seen since the last reset(): was reset() left out?"
            )
        own = ceil((dataset_size - rank) / world)
        return max(0, min(samples, own - before))

    def _distributed(self) -> bool:
        available = self.distributed_available_fn
        return bool(available()) and torch.distributed.is_available() and torch.distributed.is_initialized()

    def _add(self, sums: Tensor) -> None:
        setattr(self, self._state, getattr(self, self._state) + sums)
        self._forget()

    def _forget(self) -> None:
        self._computed, self._reduced, self._checked = None, None, False

    # Reporting: one reduction over ranks, one read of the device.

    def compute(self) -> Any:
        """Return the values over all batches and ranks, in float64.

        Raises:
            InputError: If the batches held faults; it names each with its count.
        """
        self._reduced = getattr(self, self._state)
        return self._present(self._values(self._reduced))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        # Faults are raised out of reach of torchmetrics' sync context, which an exception would leave half open.
        # They are part of the reduced sums, so all ranks raise together.
        wrapped = super()._wrap_compute(compute)

        def checked(*args: Any, **kwargs: Any) -> Any:
            value = wrapped(*args, **kwargs)
            if not self._checked and self._reduced is not None and self._reduced.device.type != "meta":
                try:
                    raise_faults(self._reduced[5 * self._columns + 1 :].tolist(), type(self).__name__)
                except ValueError:
                    self._computed = None
                    raise
                self._checked = True
            return value

        return checked

    def _values(self, sums: Tensor) -> Tensor:
        den, num = sums[: 2 * self._columns].view(2, self._columns)
        return num / den

    def intervals(self, level: float = 0.95) -> Any:
        r"""Confidence intervals over queries, from the sums alone: normal approximation, delta method.

        .. math::
            \hat\theta \pm z \sqrt{\frac{n}{n-1} \sum_q w_q^2 (num_q - \hat\theta\, den_q)^2} \Big/ \sum_q w_q den_q

        with n the effective number of queries, :math:`(\sum w\,den)^2 / \sum (w\,den)^2`. For a mean this is the
        familiar mean ± z s/√n. Intervals are clipped to the metric's bounds. With few queries, or hits that are
        rare (n p below about 15), the approximation is too optimistic.

        Args:
            level: The share of repetitions that should cover the true value, between 0 and 1.

        Returns:
            ``(low, high)``, each as ``compute()`` would shape it; a suite gives such a pair for each key. NaN
            where fewer than two queries count. A collective operation under DDP, unless compute() was called.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, but is {level!r}.")
        if self._reduced is None:
            self._computed = None
        self.compute()
        sums = self._reduced
        assert sums is not None  # noqa: S101 - compute() has set it
        den, num, den2, cross, num2 = sums[: 5 * self._columns].view(5, self._columns)
        theta, n = num / den, den * den / den2
        spread = (num2 - 2 * theta * cross + theta * theta * den2).clamp(min=0)
        margin = NormalDist().inv_cdf((1 + level) / 2) * (spread * n / (n - 1)).sqrt() / den
        margin = torch.where(n > 1, margin, torch.nan)
        low, high = self._bounds
        return self._pair(torch.maximum(theta - margin, low), torch.minimum(theta + margin, high))

    def _pair(self, low: Tensor, high: Tensor) -> Any:
        return self._present(low), self._present(high)

    @property
    def num_queries(self) -> Tensor:
        """How many queries this process has counted since the last reset (after compute(): all processes)."""
        sums = getattr(self, self._state) if self._reduced is None else self._reduced
        count: Tensor = sums[5 * self._columns]
        return count

    # Adding up ranks, jobs and checkpoints.

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None
    ) -> None:
        sums = self._sum_over_ranks(
            getattr(self, self._state), dist_sync_fn, process_group or self.process_group
        )
        setattr(self, self._state, sums)

    @staticmethod
    def _sum_over_ranks(sums: Tensor, dist_sync_fn: Callable[..., Any], group: Any) -> Tensor:
        if dist_sync_fn is gather_all_tensors:  # nobody asked for another way: one all_reduce is cheaper
            total = sums.clone()
            torch.distributed.all_reduce(total, group=group)
            return total
        return torch.stack(list(dist_sync_fn(sums, group=group))).sum(0)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the state of another metric of the same configuration, or its ``metric_state``.

        Raises:
            ValueError: If the other has another class or other options.
        """
        count = 1
        if isinstance(incoming_state, Metric):
            count = incoming_state._update_count
            incoming_state = incoming_state.metric_state
        if self._state not in incoming_state:
            raise ValueError(f"The state to merge belongs to another metric or other options than {self!r}.")
        self._add(incoming_state[self._state].to(self.device))
        self._update_count += count

    def reset(self) -> None:
        """Start again from no queries."""
        super().reset()
        self._position = 0
        self._forget()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the state, if ``persistent(True)`` asked for it: the sums over all ranks.

        Only then, and under DDP, this is a collective operation: all ranks must call it, as Lightning does. When it
        is loaded, the first rank keeps the sums and the others start from zero, so that nothing is counted twice.
        """
        if not self._persistent[self._state] or self._is_synced:
            return super().state_dict(*args, **kwargs)
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.sync_on_compute):
            state = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", "")
        state[f"{prefix}{self._state}_position"] = torch.tensor(self._position)
        return state

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,  # noqa: FBT001 - torch's signature
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        mine = prefix + self._state
        found = mine in state_dict
        position = state_dict.pop(f"{mine}_position", None)
        others = [key for key in state_dict if key.startswith(f"{prefix}sums_") and not key.startswith(mine)]
        if others:
            error_msgs.append(f"{others[0]} is the state of another metric or other options than {self!r}.")
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if not found:
            return
        keeps = not (self.sync_on_compute and self._distributed())
        sums = getattr(self, self._state).to(self.device)
        if not keeps and torch.distributed.get_rank(self.process_group) != 0:
            sums = torch.zeros_like(sums)
        setattr(self, self._state, sums)
        self._position = 0 if position is None else int(position)
        self._update_count = max(1, self._update_count)
        self._forget()

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> PackedMetric:
        # Moving to a device keeps the type of the sums, whatever .half() or .to(torch.bfloat16) says.
        self._forget()
        self._forward_cache = None
        this: PackedMetric = super()._apply(fn, exclude_state=[*exclude_state, self._state])
        dtype = sum_dtype(this.device)
        this._defaults[self._state] = this._defaults[self._state].to(this.device, dtype)
        setattr(this, self._state, getattr(this, self._state).to(this.device, dtype))
        return this


class TopKMetric(PackedMetric):
    """A metric of the first K ranks. A subclass is a whole metric: it names itself and says `per_query`.

    Declared with the class: ``name``, the grammar's and registry's; ``aliases``; ``bounds`` of its values;
    ``higher_is_better``. Its options are the keyword arguments of its own ``__init__``, handed to this one by name.

    Args:
        k: The cut-off, several of them, or None for the whole list.
        options: The subclass's own options, by name.
        kwargs: The fields of `Policies`, and torchmetrics' own keyword arguments.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]]
    bounds: ClassVar[tuple[float, float]]
    higher_is_better: ClassVar[bool]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        bounds: tuple[float, float] = (0.0, 1.0),
        higher_is_better: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:  # a base of metrics, not a metric
            return
        cls.name, cls.aliases, cls.bounds, cls.higher_is_better = name, aliases, bounds, higher_is_better
        cls.plot_lower_bound, cls.plot_upper_bound = (
            bound if abs(bound) < float("inf") else None for bound in bounds
        )
        for key in (name, *aliases):
            if key in _by_name:
                raise ValueError(
                    f"{cls.__name__} takes the name {key!r}, which {_by_name[key].__name__} has already."
                )
            _by_name[key] = cls
        registry[name] = cls

    def __init__(
        self,
        k: int | Sequence[int] | None = 10,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policies, others = split_policies(kwargs)
        self.__dict__.update(options or {})
        self.__dict__["cutoffs"] = read_cutoffs(k)
        self.__dict__["options"] = dict(options or {})
        self.__dict__["_one"] = k is None or isinstance(k, int) or getattr(k, "ndim", 1) == 0
        config = f"{type(self).__name__}{self.cutoffs}{sorted(self.options.items())}{policies}"
        super().__init__(len(self.cutoffs), config, Policies(**policies), others)

    cutoffs: Cutoffs
    options: dict[str, Any]

    @abstractmethod
    def per_query(self, ranking: Ranking) -> Tensor:
        """Return each query's value at each cut-off, ``(Q, len(cutoffs))``; anything for an empty query."""

    def is_empty(self, ranking: Ranking) -> Tensor:
        """Tell which queries have no relevant item, ``(Q, 1)``: what ``empty=`` settles."""
        return ranking.num_relevant(self.policies.min_relevance) == 0

    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """Each query's numerator and denominator at each cut-off, ``(Q, len(cutoffs))``, empty queries settled.

        For a mean over queries, the value and 1, or 0 and 0 where the query is skipped.
        """
        values, empty, policy = self.per_query(ranking), self.is_empty(ranking), self.policies.empty
        if policy == "error":
            ranking.faults["empty"] = (empty[:, 0] & (ranking.weights > 0)).sum()
        fill = {"one": 1.0, "nan": float("nan")}.get(policy, 0.0)
        num = torch.where(empty, fill, values)
        den = (~empty).to(num.dtype).expand_as(num) if policy == "skip" else torch.ones_like(num)
        return num, den

    def _ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        return self.ratios(ranking)

    def values(self, ranking: Ranking) -> Tensor:
        """Each query's value in the queries' own shape, with a last dimension for several cut-offs.

        NaN for a query that counts nowhere. This is what the functional twins return.
        """
        num, den = self.ratios(ranking)
        values = torch.where(ranking.weights[:, None] > 0, num / den, torch.nan)
        return values.view(ranking.shape) if self._one else values.view(*ranking.shape, -1)

    def _present(self, values: Tensor) -> Any:
        return values[0] if self._one else values

    @property
    def depth(self) -> int | None:
        """How many ranks it reads; None for the whole list."""
        return None if self.cutoffs == (None,) else max(k for k in self.cutoffs if k is not None)

    @property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        sums = getattr(self, self._state)
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
        default = Policies()
        shown += [
            f"{name}={getattr(self.policies, name)!r}"
            for name in POLICY_NAMES
            if getattr(self.policies, name) != getattr(default, name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


registry: dict[str, type[TopKMetric]] = {}
"""Every metric by its canonical name."""

_by_name: dict[str, type[TopKMetric]] = {}

# trec_eval's spellings: ndcg_cut_10, P_5, recip_rank.
_TREC = re.compile(r"(?P<name>[A-Za-z_]+?)(?:_cut)?_(?P<cutoffs>\d+(?:,\d+)*)")
_GRAMMAR = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_-]*)\s*(?:\((?P<options>[^()]*)\))?\s*(?:@\s*(?P<cutoffs>\d+(?:\s*,\s*\d+)*))?"
)
_SHORT = {"rel": "min_relevance"}


def find(name: str) -> type[TopKMetric]:
    """The metric of that name or alias, in any case; a ValueError with the nearest names otherwise."""
    key = name.lower().replace("-", "_")
    if key in _by_name:
        return _by_name[key]
    near = difflib.get_close_matches(key, _by_name, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"{name!r} is no metric. {hint}Known are {', '.join(registry)}.")


def options_of(cls: type[TopKMetric]) -> list[str]:
    """The names of a metric's own options: the keyword arguments of its ``__init__``."""
    parameters = inspect.signature(cls).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def parse(text: str) -> tuple[str, dict[str, Any], list[int]]:
    """Read a metric's name: ``"ndcg@10"``, ``"nDCG@5,10"``, ``"P(rel=2)@5"``, or trec_eval's ``"ndcg_cut_10"``.

    Returns:
        The name as typed, options in parentheses, and cut-offs (none: the suite's).

    Example:
        >>> parse("P(rel=2)@5,10")
        ('P', {'min_relevance': 2}, [5, 10])
    """
    match = _GRAMMAR.fullmatch(text.strip())
    if (
        match
        and match["cutoffs"] is None
        and match["options"] is None
        and match["name"].lower() not in _by_name
    ):
        match = _TREC.fullmatch(text.strip()) or match
    if not match:
        raise ValueError(
            f"{text!r} is no metric: write a name as 'ndcg', 'ndcg@10', 'ndcg@5,10' or 'precision(rel=2)@5'."
        )
    parts = match.groupdict()
    options = {}
    for pair in filter(None, (part.strip() for part in (parts.get("options") or "").split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"{pair!r} in {text!r} is no option: write name=value.")
        options[_SHORT.get(name, name)] = _read_value(value)
    return parts["name"], options, [int(k) for k in (parts["cutoffs"] or "").split(",") if k.strip()]


def _read_value(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"none": None, "true": True, "false": False}.get(text.lower(), text.strip("'\""))


def make(name: str, k: Any, options: Mapping[str, Any]) -> TopKMetric:
    """Make a metric by name; a TypeError names the options it has, should one be unknown."""
    cls = find(name)
    known = [*options_of(cls), *PolicyOptions.__annotations__]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{cls.__name__} has no option {option!r}.{hint} It takes {', '.join(known)}.")
    return cls(k, **options)
