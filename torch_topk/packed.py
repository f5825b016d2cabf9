"""The state of every metric: a vector of sums, and how ranks, jobs and checkpoints add it up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from math import ceil, prod
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from typing_extensions import TypedDict

from torch_topk.inputs import CHOICES, COUNT_TIES, FAULTS, Array, as_tensor, nearest, raise_faults, read_choice
from torch_topk.intervals import are_proportions, student, wilson
from torch_topk.kernels import sum_dtype
from torch_topk.ranking import Ranking
from torch_topk.ranks import RankCounts
from torch_topk.record import Record
from torch_topk.relevance import Relevance


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
    compute_on_cpu: bool
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
        ties: Equal scores stand in ascending ("index") or descending ("reverse") order of item id, or with the highest
            gains first ("optimistic") or last ("pessimistic"); "expected" is the mean over all orders, for metrics that
            have it in closed form. "realistic", for metrics of one target's rank, is the mean of the ranks it may have.
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
        level = self.min_relevance
        if level is not None and (isinstance(level, bool) or not isinstance(level, Real) or not level > 0):
            raise ValueError(
                f"min_relevance must be a number above 0, the gain of an unlisted item, but is {self.min_relevance!r}."
            )
        for name, least in (("ignore_index", None), ("dataset_size", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or (least is not None and value < least):
                raise ValueError(
                    f"{name} must be an int{'' if least is None else f' of at least {least}'}, but is {value!r}."
                )

    def changed(self) -> list[str]:
        """The fields that differ from the defaults, as keyword arguments are written."""
        return [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]


POLICY_NAMES = tuple(field.name for field in fields(Policies))


def split_policies(
    options: Mapping[str, Any], owner: str, own: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part keyword arguments into those of `Policies` and torchmetrics' own; a TypeError for any other."""
    known = ["k", *own, *PolicyOptions.__annotations__]
    for name in options:
        if name not in PolicyOptions.__annotations__:
            raise TypeError(f"{owner} has no option {name!r}.{nearest(name, known)} It takes {', '.join(known)}.")
    policies = {name: value for name, value in options.items() if name in POLICY_NAMES}
    return policies, {name: value for name, value in options.items() if name not in POLICY_NAMES}


@dataclass(frozen=True)
class Batch:
    """What a batch holds, a sampler's repeats left out; ``samples`` counts them."""

    record: Any
    samples: int
    faults: Mapping[str, Tensor] = field(default_factory=dict)


class PackedMetric(Metric):
    """A torchmetrics Metric whose whole state is one packed vector of sums, and of some a vector of tallies.

    Each value it reports is a ratio of two sums over queries, ``sum w num / sum w den``: a mean where den is 1 for
    each query that counts, a pooled ratio where it is not. The pack holds, for each value, the sums of w den, w num,
    (w den)^2, w den w num and (w num)^2, which is all that intervals need; then the number of queries, then the
    counts of faults; then what a subclass adds. Everything is a sum, so ranks, jobs and checkpoints add up by one rule,
    whatever share of the queries each has seen.

    What is counted of items, labels or ranks is int64, and added where it lies: of a million items, a copy a batch
    would cost more than all else.
    """

    full_state_update = False
    is_differentiable = False
    reads: tuple[str, ...] = ("ranking",)
    """The records it can be read off: "ranking", "counts" or both."""
    reads_truth: bool = True
    """Whether a target is needed."""

    def __init__(
        self,
        columns: int,
        config: str,
        policies: Policies,
        kwargs: Mapping[str, Any],
        *,
        tallies: int = 0,
        more: int = 0,
    ) -> None:
        super().__init__(**kwargs)
        self.policies = policies
        self._columns = columns
        # The state's name stands for the configuration: torchmetrics' compute groups merge metrics whose states
        # have equal names and, after the first batch, equal values; and small sums are equal often.
        size = 5 * columns + 1 + len(FAULTS) + more
        self._state = "sums_" + blake2b(f"{config} {size}".encode(), digest_size=6).hexdigest()
        self.add_state(self._state, torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")
        self._counts_state = self._state.replace("sums", "counts") if tallies else ""
        if tallies:
            self.add_state(self._counts_state, _zeros(tallies), dist_reduce_fx="sum")
            self._defaults[self._counts_state] = self._counts = _zeros(tallies)
        self._position = 0  # samples seen since reset, for dataset_size
        self._reduced: Tensor | None = None  # the sums that the last compute() read, over all ranks
        self._reduced_counts: Tensor | None = None
        self._checked = False

    @property
    def _sums(self) -> Tensor:
        sums: Tensor = getattr(self, self._state)
        return sums

    @_sums.setter
    def _sums(self, sums: Tensor) -> None:
        setattr(self, self._state, sums)

    @property
    def _counts(self) -> Tensor | None:
        return getattr(self, self._counts_state) if self._counts_state else None

    @_counts.setter
    def _counts(self, counts: Tensor | None) -> None:
        setattr(self, self._counts_state, counts)

    # What a subclass says of itself.

    @abstractmethod
    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        """Return numerators and denominators of each query, empty queries settled.

        They are ``(Q, columns)``; denominators that are the same for all columns may be ``(Q, 1)``.
        """

    @abstractmethod
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        """Count the queries with a fault that only this metric's options make one, by name in FAULTS."""

    def tally(self, into: Tensor, ranking: Any) -> None:
        """Add a batch to the tallies, in place."""

    def _more(self, num: Tensor, den: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """What a subclass keeps beside the sums of each query's weighted numerators and denominators."""
        del num, den, batch
        return ()

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
        query_ids: Any = None,
        groups: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a batch of queries.

        Args:
            preds: Scores ``(..., N)``, or a Ranking (then the other arguments are left out).
            target: The truth, as `Ranking.from_scores` takes it.
            items: The item ids of the columns, where they are candidates of a larger catalogue.
            exclude: Candidates to leave out, in any form that `Ranking.from_scores` takes.
            weights: What each query counts, 1 where it is left out; 0 for one that counts nowhere, in which faults
                are looked for all the same.
            query_ids: What each query is called, for a suite that draws resamples or keeps values.
            groups: Of a suite with slices, the group of each query in each of them.

        Raises:
            TypeError, ValueError: For shapes and types that do not fit, at once.
        """
        tags = {name: tag for name, tag in (("query_ids", query_ids), ("groups", groups)) if tag is not None}
        batch = self._batch(preds, target, items=items, exclude=exclude, weights=weights, **tags)
        self._add(self._sums_of(batch))
        if self._counts_state:
            self.tally(self._own_counts(), batch.record)
        self._position += batch.samples  # nothing can fail from here on

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch, and return the batch's own value; it takes the arguments of `update`.

        Nothing is read on the host, so faults in the data wait for ``compute()``.
        """
        with torch.no_grad():
            states = self._take(*args, **kwargs)
            self._update_count += 1
            if self.dist_sync_on_step and self.distributed_available_fn():
                reduce = self.dist_sync_fn or gather_all_tensors
                states = tuple(self._sum_over_ranks(each, reduce, self.process_group) for each in states)
            self._forward_cache = self._show(*states)
        return self._forward_cache

    def _take(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Add a batch, and return the state of it alone."""
        batch = self._batch(*args, **kwargs)
        states: tuple[Tensor, ...] = (self._sums_of(batch),)
        if self._counts is not None:
            counts = torch.zeros_like(self._counts, memory_format=torch.contiguous_format)
            self.tally(counts, batch.record)
            states = (*states, counts)
        self._add(*states)
        self._position += batch.samples
        return states

    def _show(self, *states: Tensor) -> Any:
        """What a state says, as the user sees it."""
        return self._present(self._values(*states))

    def rank(
        self,
        preds: Array | Record,
        target: Any = None,
        *,
        items: Array | None = None,
        exclude: Any = None,
        weights: Array | None = None,
    ) -> Any:
        """Return the Ranking, or the RankCounts, of a batch as this metric's policies want it; one given is checked.

        It takes the arguments of `update`.
        """
        policies = self.policies
        if isinstance(preds, Record):
            return self._accept(preds, target=target, items=items, exclude=exclude, weights=weights)
        if target is None and not self.reads_truth:
            preds = as_tensor("scores", preds)
            target = Relevance.from_ids(preds.new_empty((prod(preds.shape[:-1]), 0), dtype=torch.int64))
        if self.reads_counts:
            if items is not None:
                raise ValueError("items is for a Ranking: the columns of scores are all candidates of a RankCounts.")
            counts = RankCounts.from_scores(
                preds,
                target,
                exclude=exclude,
                weights=weights,
                ignore_index=policies.ignore_index,
                non_finite=policies.non_finite,
                validate="off" if policies.validate == "off" else "compute",
            )
            return counts.read(policies.ties)
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

    def _batch(self, *args: Any, query_ids: Any = None, groups: Any = None, **kwargs: Any) -> Batch:
        """Rank a batch and leave out a sampler's repeats."""
        if query_ids is not None:
            raise ValueError("query_ids are read by a suite with bootstrap= or collect=: see TopKMetrics.")
        if groups is not None:
            raise ValueError("groups are read by a suite with slices=: see TopKMetrics.")
        ranking = self.rank(*args, **kwargs)
        if ranking.device != self.device:
            raise RuntimeError(
                f"the scores are on {ranking.device}, but this {type(self).__name__} is on {self.device}: "
                f"move it with .to({str(ranking.device)!r})."
            )
        samples = ranking.samples
        if self.policies.dataset_size is not None and not getattr(ranking, "in_order", True):
            raise ValueError(
                "dataset_size is for queries in a sampler's order, which those of Ranking.from_flat are not."
            )
        if self.policies.dataset_size is not None:
            ranking = ranking.first(self._unrepeated(samples, self.policies.dataset_size))
        return Batch(ranking, samples)

    def _sums_of(self, batch: Batch) -> Tensor:
        """The pack of a batch."""
        policies, ranking = self.policies, batch.record
        num, den = self.ratios(ranking)
        if den is ranking.ones() and not ranking.weighted:  # a mean over queries that count alike
            queries, total = den.sum(0), num.sum(0)
            sums = [queries, total, queries, total]
        else:
            weight = ranking.weights[:, None]
            queries = (weight > 0).sum(0).to(weight.dtype)
            num = torch.where(weight > 0, weight * num, 0.0)  # a query that does not count may be NaN
            den = weight * den
            sums = [each.sum(0) for each in (den, num, den * den, den * num)]
        parts = [each.expand(self._columns) for each in (*sums, (num * num).sum(0))]
        if policies.validate == "off":
            faults = num.new_zeros(len(FAULTS))
        else:
            faults = ranking.fault_counts({**self.faults(ranking), **batch.faults})
            if policies.validate == "now":
                raise_faults(faults.tolist(), type(self).__name__)
        return torch.cat([*parts, queries, faults, *self._more(num, den, batch)])

    @property
    def reads_counts(self) -> bool:
        """Whether it makes RankCounts of scores, and not a Ranking."""
        return "ranking" not in self.reads or self.policies.ties == "realistic"

    def _accept(self, ranking: Any, **others: Any) -> Any:
        """Refuse a Ranking that another tie rule or depth made, and arguments that it holds already."""
        given = [name for name, value in others.items() if value is not None]
        kind, ties = type(ranking).__name__, self.policies.ties
        if given:
            raise ValueError(
                f"A {kind} holds its truth, exclusions and weights: give {', '.join(given)} when making it."
            )
        if isinstance(ranking, RankCounts):
            good, wanted = "counts" in self.reads and ties in COUNT_TIES, "a Ranking"
        else:
            good, wanted = "ranking" in self.reads and ties != "realistic", "RankCounts"
        if not good:
            more = f" Counts are read with ties={', '.join(map(repr, COUNT_TIES))}." if wanted == "a Ranking" else ""
            raise TypeError(f"With ties={ties!r} this metric reads {wanted}, but got a {kind}.{more}")
        if isinstance(ranking, RankCounts):
            return ranking.read(ties)
        if ranking.ties not in {None, self.policies.ties}:
            raise ValueError(f"The Ranking has ties={ranking.ties!r}, but this metric ties={self.policies.ties!r}.")
        needed = self.depth
        if ranking.depth is not None and (needed is None or needed > ranking.depth):
            raise ValueError(
                f"The Ranking holds {ranking.depth} ranks, but this metric needs k={needed or 'None, the whole list'}."
            )
        return ranking

    def _unrepeated(self, samples: int, dataset_size: int) -> int:
        """How many of the next samples are no repeats: this rank holds positions rank, rank + world, ..."""
        world, rank = self._place()
        seen, most = self._position + samples, ceil(dataset_size / world)
        if seen > most:
            raise ValueError(
                f"dataset_size is {dataset_size}, at most {most} samples for each of {world} processes, but {seen} "
                "were seen since the last reset(): was reset() left out?"
            )
        own = ceil((dataset_size - rank) / world)
        return max(0, min(samples, own - self._position))

    def _place(self) -> tuple[int, int]:
        """How many processes share the data set, and which of them this is."""
        if not self._distributed():
            return 1, 0
        return torch.distributed.get_world_size(self.process_group), torch.distributed.get_rank(self.process_group)

    def _distributed(self) -> bool:
        available = self.distributed_available_fn
        return bool(available()) and torch.distributed.is_available() and torch.distributed.is_initialized()

    def _add(self, sums: Tensor, counts: Tensor | None = None) -> None:
        if self._is_synced:  # what is added now would be lost at unsync()
            raise TorchMetricsUserError("The state holds the sums of all ranks: call unsync() before adding to it.")
        self._sums = self._sums + sums
        if counts is not None and self._counts is not None:
            self._counts = self._counts + counts  # out of place: a MetricCollection calls all that share this tensor
        self._forget()

    def _own_counts(self) -> Tensor:
        """The tallies, safe to add to in place: as made, or under inference_mode, they are not."""
        counts = self._counts
        assert counts is not None  # noqa: S101 - its callers have seen to it
        if (
            counts is self._defaults[self._counts_state]
            or counts.stride() == (0,)
            or (counts.is_inference() and not torch.is_inference_mode_enabled())
        ):
            self._counts = counts = counts.clone(memory_format=torch.contiguous_format)
        return counts

    def _forget(self) -> None:
        self._computed, self._reduced, self._reduced_counts, self._checked = None, None, None, False

    # Reporting: one reduction over ranks, one read of the device.

    def compute(self) -> Any:
        """Return the values over all batches and ranks, in float64.

        Raises:
            InputError: If the batches held faults; it names each with its count.
        """
        # One value a column; the wrapper around this shapes them, after torchmetrics has squeezed a single one.
        self._reduced, self._reduced_counts, self._checked = self._sums, self._counts, False
        return self._values(self._reduced, self._reduced_counts)

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        # Faults are raised out of reach of torchmetrics' sync context, which an exception would leave half open.
        # They are part of the reduced sums, so all ranks raise together.
        wrapped = super()._wrap_compute(compute)

        def reduce(*args: Any, **kwargs: Any) -> Tensor:
            values: Tensor = wrapped(*args, **kwargs)
            wanted = self.policies.validate != "off" and not self._checked
            if wanted and self._reduced is not None and self._reduced.device.type != "meta":
                try:
                    raise_faults(self._faults_of(self._reduced).tolist(), type(self).__name__)
                except ValueError:
                    self._computed = None
                    raise
                self._checked = True
            return values.reshape(-1)

        def present(*args: Any, **kwargs: Any) -> Any:
            return self._present(reduce(*args, **kwargs))

        present.reduce = reduce  # type: ignore[attr-defined]  # for what reads the sums themselves
        return present

    def _faults_of(self, sums: Tensor) -> Tensor:
        return sums[5 * self._columns + 1 :][: len(FAULTS)]

    def _values(self, sums: Tensor, counts: Tensor | None = None) -> Tensor:
        del counts
        return self.read(sums[self._columns : 2 * self._columns], sums[: self._columns])

    def read(self, num: Tensor, den: Tensor) -> Tensor:
        """The values whose sums over queries these are, ``(columns,)`` each: their ratio, if nothing else is said."""
        return num / den

    def intervals(self, level: float = 0.95, method: str = "auto") -> Any:
        r"""Confidence intervals over queries, from the sums alone.

        "t" is Student's, by the delta method:

        .. math::
            \hat\theta \pm t_{n-1} \sqrt{\frac{n}{n-1} \sum_q w_q^2 (num_q - \hat\theta\, den_q)^2}
            \Big/ \sum_q w_q den_q

        with n the effective number of queries, :math:`(\sum w\,den)^2 / \sum (w\,den)^2`. For a mean this is the
        familiar mean ± t s/√n. Where all values are 0 or 1, "auto" takes Wilson's score interval in its place, which
        holds for few and for rare hits too; in a suite with ``bootstrap=`` it takes the percentiles of the resamples,
        but for groups, of which no resamples are kept.
        Intervals are clipped to the metric's bounds.

        Args:
            level: The share of repetitions that should cover the true value, between 0 and 1.
            method: "auto", "t", or, of a suite that draws resamples, "bootstrap".

        Returns:
            ``(low, high)``, each as ``compute()`` would shape it; a suite gives such a pair for each key. NaN
            where fewer than two queries count. Under DDP this is a collective operation, unless compute() has just
            been called on all ranks.

        Raises:
            ValueError: For a level or a method that there is not.

        References:
            Wilson, Probable inference, the law of succession, and statistical inference, 1927; Efron, Bootstrap
            methods, 1979.
        """
        if not isinstance(level, Real) or not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, but is {level!r}.")
        read_choice("method", method, ("auto", "t", "bootstrap"))
        return self._pair(*self._ends(*self._reduce(), level, method))

    def _reduce(self) -> tuple[Tensor, Tensor | None]:
        """The state of all ranks, checked for faults; reduced once, whatever is read off it."""
        if self._reduced is None:
            self._computed = None
        self.compute.reduce()  # type: ignore[attr-defined]
        assert self._reduced is not None  # noqa: S101 - that has set it
        return self._reduced, self._reduced_counts

    def _ends(self, sums: Tensor, counts: Tensor | None, level: float, method: str) -> tuple[Tensor, Tensor]:
        """The ends of intervals around what `_values` gives of the same state."""
        del counts
        if method == "bootstrap":
            raise ValueError("Resamples are drawn by a suite: TopKMetrics(..., bootstrap=1000).")
        return self._around(sums[: 5 * self._columns].view(5, self._columns), level, method)

    def _around(self, moments: Tensor, level: float, method: str) -> tuple[Tensor, Tensor]:
        """The ends of intervals by moments ``(5, ..., columns)``."""
        low, high = self._bounds
        ends: tuple[Tensor, ...] = student(moments, level)
        if method == "auto":
            plain = are_proportions(moments) & (low == 0) & (high == 1)
            ends = tuple(torch.where(plain, *each) for each in zip(wilson(moments, level), ends, strict=True))
        den = moments[0]
        first, last = (self.read(end * den, den) for end in ends)
        return torch.maximum(first, low), torch.minimum(last, high)

    def _pair(self, low: Tensor, high: Tensor) -> Any:
        return self._present(low), self._present(high)

    @property
    def num_queries(self) -> Tensor:
        """How many queries were counted since the last reset: by this process, and after compute() by all."""
        sums = self._sums if self._computed is None or self._reduced is None else self._reduced
        return sums[5 * self._columns].long()

    # Adding up ranks, jobs and checkpoints.

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Take the sums over all ranks for one's own, until `unsync`; as in torchmetrics."""
        super().sync(*args, **kwargs)
        self._computed = None  # what was computed before speaks of other sums

    def unsync(self, *args: Any, **kwargs: Any) -> None:
        """Go back to this rank's own sums; as in torchmetrics."""
        super().unsync(*args, **kwargs)
        self._computed = None

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None) -> None:
        group = process_group or self.process_group
        self._sums = self._sum_over_ranks(self._sums, dist_sync_fn, group)
        if self._counts is not None:
            self._counts = self._sum_over_ranks(self._counts, dist_sync_fn, group)

    @staticmethod
    def _sum_over_ranks(sums: Tensor, dist_sync_fn: Callable[..., Any], group: Any) -> Tensor:
        if dist_sync_fn is gather_all_tensors:  # nobody asked for another way: one all_reduce is cheaper
            total = sums.clone(memory_format=torch.contiguous_format)
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
            count = incoming_state.update_count
            incoming_state = incoming_state.metric_state
        names = [self._state, *filter(None, [self._counts_state])]
        if any(name not in incoming_state for name in names):
            raise ValueError(f"The state to merge belongs to another metric or other options than {self!r}.")
        state: Any = incoming_state
        self._add(*(state[name].to(getattr(self, name)) for name in names))
        self._update_count += count

    @property
    def metric_state(self) -> dict[str, Any]:
        """The state as it is now: a copy of the tallies, which are added to where they lie."""
        copies = {} if self._counts is None else {self._counts_state: self._counts.clone()}
        return {**super().metric_state, **copies}

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

    def _load_from_state_dict(  # noqa: PLR0917 - torch's signature
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,  # noqa: FBT001
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        mine = prefix + self._state
        found = mine in state_dict
        missing_keys += [prefix + name for name in self._defaults if found and prefix + name not in state_dict]
        position = state_dict.pop(f"{mine}_position", None)
        others = [key for key in state_dict if key.startswith(f"{prefix}sums_") and not key.startswith(mine)]
        if others:
            error_msgs.append(f"{others[0]} is the state of another metric or other options than {self!r}.")
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if not found:
            return
        kept_by_first = self.sync_on_compute and self._distributed()
        self._take_loaded(keep=not kept_by_first or torch.distributed.get_rank(self.process_group) == 0)
        self._position = 0 if position is None else int(position)
        self._update_count = max(1, self._update_count)
        self._forget()

    def _take_loaded(self, *, keep: bool) -> None:
        """Take up the state of a checkpoint, or start from zero where another rank does."""
        sums = self._sums.to(self.device, sum_dtype(self.device))
        self._sums = sums if keep else torch.zeros_like(sums)
        if self._counts is not None:
            counts = self._counts.to(self.device)
            self._counts = counts.clone() if keep else torch.zeros_like(counts)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        # Moving to a device keeps the type of sums and values, whatever .half() or .to(torch.bfloat16) says.
        values = {name: self.__dict__[name] for name in ("_computed", "_forward_cache", "_reduced", "_reduced_counts")}
        self.__dict__.update(dict.fromkeys(values))
        super()._apply(fn, exclude_state=[*exclude_state, self._state, self._counts_state])
        device, dtype = self.device, sum_dtype(self.device)
        self._defaults[self._state] = torch.zeros_like(self._sums, device=device, dtype=dtype)
        self._sums = self._sums.to(device, dtype)
        if self._counts is not None:
            self._counts = self._counts.to(device)
            self._defaults[self._counts_state] = _zeros(self._counts.shape[0], device)
        self.__dict__.update({name: _moved(value, device) for name, value in values.items()})
        return self


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {key: _moved(each, device) for key, each in value.items()}
    if not isinstance(value, Tensor):
        return value
    return value.to(device, sum_dtype(device)) if value.is_floating_point() else value.to(device)


def _zeros(size: int, device: torch.device | None = None) -> Tensor:
    """Zeros that take the memory of one: what tallies are until something is counted."""
    return torch.zeros(1, dtype=torch.int64, device=device).expand(size)
