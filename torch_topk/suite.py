"""Many metrics of one ranking: ranked once a batch, kept in one pack, reduced once a compute."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from math import isnan, prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import ModuleDict
from torchmetrics import Metric
from typing_extensions import Unpack, override

from torch_topk.inputs import COUNT_TIES, FAULTS, Cutoffs, nearest, read_int
from torch_topk.metric import TopKMetric
from torch_topk.names import Spec, read_metrics
from torch_topk.packed import Batch, PackedMetric, Policies, PolicyOptions, split_policies
from torch_topk.presets import presets
from torch_topk.ranking import Ranking
from torch_topk.resampling import Resampler, read_ids
from torch_topk.slices import Slices
from torch_topk.values import QueryValues

if TYPE_CHECKING:
    _Keyed = Mapping[str, Metric]  # what Lightning's log_dict says it takes
else:
    _Keyed = object


class Gap(NamedTuple):
    """How far the best group of a slice is from the worst."""

    gap: float
    best: str
    worst: str


class Regression(NamedTuple):
    """A value that a system lost beside another."""

    key: str
    before: float
    after: float
    loss: float


@dataclass(frozen=True)
class Tagged(Batch):
    """A batch with what a suite wants to know of its queries.

    Attributes:
        keys: int64 ``(Q,)``: what resamples are drawn by.
        ids: What the queries are called, where it was said.
        rows: int64 ``(ways, Q)``: the groups that they belong to.
    """

    keys: Tensor | None = None
    ids: Any = None
    rows: Tensor | None = None


class TopKMetrics(PackedMetric, _Keyed):  # type: ignore[misc]  # both define __eq__
    """Many metrics at many cut-offs, over one `Ranking` a batch.

    The state is one packed vector: a compute under DDP is one collective, whatever the number of metrics. In a
    LightningModule, ``self.metrics.update(...)`` (or a call, for ``on_step=True``) and ``self.log_dict(self.metrics)``
    are all it takes. Give each dataloader a suite of its own, for example a `clone`.

    Args:
        metrics: Names ("ndcg", "ndcg@10", "P(rel=2)@5,10"), metrics (taken as definitions; they are not updated),
            metric classes, or mappings of options with a ``name``; or a mapping from new names to these.
        k: The cut-offs of names without one; None for the whole list.
        prefix, postfix: Put before and after each key.
        at: Put between name and cut-off; "_at_" suits loggers that refuse "@".
        bootstrap: How many Poisson resamples of the queries to keep the sums of, for `intervals`; memory does
            not grow with queries. What is drawn hangs on ``seed``, ``stream`` and a query's id (or its position in the
            data set) alone: not on batches or devices, nor, with ids or in a sampler's order, on the number of ranks.
        seed: Of the resamples.
        stream: Jobs whose states are merged need ids, or a stream each: otherwise the first query of one job is drawn
            whenever the first of the other is.
        collect: Whether to keep each query's values, on the host: see `collected`.
        slices: Groups of queries to report beside all: ``{"segment": ["new", "loyal"]}``, or how many groups there are.
            ``update(..., groups={"segment": ...})`` takes the group of each query: its name, or its place among them,
            and None or -1 for none. There is a key for each group and metric, so thousands of groups take seconds to
            set up.
        preset: The system whose conventions hold for metrics made by name or class, where nothing else is asked for:
            see `presets`, each of which prints what it stands for.
        kwargs: The fields of `Policies`, defaults for every metric made by name, and torchmetrics' own arguments.

    Attributes:
        named: The metrics' definitions, each behind the name that its keys begin with; their own states stay empty.

    Raises:
        ValueError: For an unknown metric (the nearest name is given), equal keys, or policies that one ranking
            cannot serve.

    Example:
        >>> metrics = TopKMetrics(["recall", "ndcg", "mrr@3"], k=[1, 2], prefix="val/")
        >>> metrics.update(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([2]))
        >>> {key: round(value.item(), 3) for key, value in metrics.compute().items()}
        {'val/recall@1': 0.0, 'val/recall@2': 1.0, 'val/ndcg@1': 0.0, 'val/ndcg@2': 0.631, 'val/mrr@3': 0.5}
    """

    def __init__(
        self,
        metrics: Spec | Sequence[Spec] | Mapping[str, Spec],
        k: int | Sequence[int] | None = None,
        *,
        prefix: str = "",
        postfix: str = "",
        at: str = "@",
        bootstrap: int | None = None,
        seed: int = 0,
        stream: int = 0,
        collect: bool = False,
        slices: Mapping[str, int | Sequence[Any]] | None = None,
        preset: str | None = None,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        own = [name for name in inspect.signature(TopKMetrics).parameters if name != "kwargs"]
        options, others = split_policies(kwargs, type(self).__name__, own)
        if preset is not None and preset not in presets:
            raise ValueError(f"{preset!r} is no preset.{nearest(preset, presets)} Known are {', '.join(presets)}.")
        self.preset = None if preset is None else presets[preset]
        own_options = {} if self.preset is None else self.preset.metrics
        options = {**({} if self.preset is None else self.preset.policies), **options}
        read = read_metrics(metrics, k, options, own_options)
        if "ties" not in options and any("ranking" not in metric.reads for _, metric in read):
            options["ties"] = "realistic"  # of any that reads counts, all do
            read = read_metrics(metrics, k, options, own_options)
        policies = Policies(**options)
        for name, text in (("prefix", prefix), ("postfix", postfix), ("at", at)):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be a str, but is {text!r}.")
        reads = "ranking"
        if policies.ties == "realistic" or any("ranking" not in metric.reads for _, metric in read):
            reads = "counts"
        named = [(base, _agree(metric, policies, reads)) for base, metric in read]
        if not named:
            raise ValueError("metrics must name at least one metric, but is empty.")
        for name, number, least in (("bootstrap", bootstrap, 2), ("seed", seed, 0), ("stream", stream, 0)):
            if number is not None or name != "bootstrap":
                read_int(name, number, least)
        self.slices, self.collect = Slices(slices), bool(collect)
        self.bootstrap, self.seed, self.stream = bootstrap, seed, stream
        config = f"{type(self).__name__}{[metric for _, metric in named]}{policies}"
        config += f"{self.slices}{bootstrap} {seed}"
        if collect:  # what is kept is no state: no other suite's update may stand for this one's
            config += f"{prefix} {postfix} {at}"
        columns = sum(len(metric.cutoffs) for _, metric in named)
        more = 5 * columns * len(self.slices) + 2 * columns * (bootstrap or 0)
        tallies = sum(metric.tallies for _, metric in named)
        super().__init__(columns, config, policies, others, tallies=tallies, more=more)
        self.named = tuple(named)  # in a tuple, so that they are no submodules
        self.reads: tuple[str, ...] = tuple(
            kind for kind in ("ranking", "counts") if all(kind in metric.reads for _, metric in named)
        )
        self.reads_truth: bool = any(metric.reads_truth for _, metric in named)
        self._resampler = None if bootstrap is None else Resampler(bootstrap, seed, stream)
        self._kept: list[tuple[Any, Tensor, Tensor]] = []  # of each batch: ids, values, which queries count
        self._fresh: tuple[Any, Tensor, Tensor] | None = None  # the same of the batch that is being added
        self._called: bool | None = None  # whether queries came with ids
        self.prefix, self.postfix, self.at = prefix, postfix, at
        self._prepare()
        self._name_keys()

    def _name_keys(self) -> None:
        self._groups = {
            f"{self.prefix}{base}{self.postfix}": [self._key(base, k) for k in metric.cutoffs]
            for base, metric in self.named
        }
        keys = [self._key(base, k) for base, metric in self.named for k in metric.cutoffs]
        sliced = [self._key(base, k) for base, metric in self._means for k in metric.cutoffs]
        keys += [f"{key}/{way}/{group}" for way, group in self.slices.rows for key in sliced]
        twice = sorted(key for key, count in Counter(keys).items() if count > 1)
        if twice:
            raise ValueError(f"Two metrics have the key {twice[0]!r}: rename one, as in {{'new_name': metric}}.")
        self._keys = tuple(keys)
        # A name of a submodule must hold no dot, so the views are numbered.
        self._views = ModuleDict({f"v{i}": _View(self, i, metric) for i, metric in enumerate(self._by_key())})

    def _key(self, base: str, k: int | None) -> str:
        return f"{self.prefix}{base}{'' if k is None else f'{self.at}{k}'}{self.postfix}"

    @property
    def _means(self) -> list[tuple[str, TopKMetric]]:
        """The metrics that a query has a value of, and so a group: those that are not read off tallies of the run."""
        return [(base, metric) for base, metric in self.named if not metric.tallies]

    def _by_key(self) -> list[TopKMetric]:
        sliced = [metric for _, metric in self._means for _ in metric.cutoffs] * len(self.slices)
        return [metric for _, metric in self.named for _ in metric.cutoffs] + sliced

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        super()._apply(fn, exclude_state)
        self._prepare()
        return self

    def _prepare(self) -> None:
        """Have on the device what updates read, so that none waits for it."""
        for _, metric in self.named:
            metric.prepare(self.device)
        if self._resampler is not None:
            self._resampler.prepare(self.device)

    @classmethod
    def from_config(cls, config: str | PathLike[str] | Mapping[str, Any], **overrides: Any) -> TopKMetrics:
        """Make a suite from a YAML file, or from a mapping that was read already (Hydra's, for one).

        Its keys are the arguments of this class; ``overrides`` take their place.

        Raises:
            ValueError: For an unknown key (the nearest valid one is given), or a file that holds no mapping.

        Example:
            >>> TopKMetrics.from_config({"metrics": ["ndcg", "recall"], "k": [5, 10]}).keys()
            ('ndcg@5', 'ndcg@10', 'recall@5', 'recall@10')
        """
        place = "The configuration"
        if not isinstance(config, Mapping):
            try:
                import yaml
            except ImportError as error:
                raise ImportError("from_config() of a file needs PyYAML: pip install 'torch-topk[cli]'.") from error
            place = str(config)
            config = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
        if not isinstance(config, Mapping):
            raise ValueError(f"{place} must hold a mapping of arguments, but holds a {type(config).__name__}.")  # noqa: TRY004 - the file's content is wrong, not the argument's type
        known = [name for name in inspect.signature(cls).parameters if name != "kwargs"]
        known += PolicyOptions.__annotations__
        for key in {**config, **overrides}:
            if key not in known:
                hint = nearest(key, known)
                raise ValueError(f"{place} has the unknown key {key!r}.{hint} It takes {', '.join(known)}.")
        if "metrics" not in {**config, **overrides}:
            raise ValueError(f"{place} lacks the key 'metrics', a list of metric names.")
        return cls(**{**config, **overrides})

    # One ranking, many ratios.

    @override
    def _batch(self, *args: Any, query_ids: Any = None, groups: Any = None, **kwargs: Any) -> Batch:
        named = self._resampler is not None or self.collect
        place, unread = self._position, {}
        if query_ids is not None and not named:
            unread["query_ids"] = query_ids
        if groups is not None and not self.slices:
            unread["groups"] = groups
        batch = super()._batch(*args, **kwargs, **unread)
        record, keys, ids, rows, faults = batch.record, None, None, None, dict(batch.faults)
        queries, device = len(record), record.device
        each = prod(record.shape[1:])  # queries of a sample
        if named:
            world, rank = self._place()
            first = (place * world + rank) * each
            steps = torch.arange(queries, device=device)
            keys = steps + first if world == 1 else first + steps // each * (world * each) + steps % each
            if self._called is not None and self._called != (query_ids is not None):
                raise ValueError("query_ids were given with some batches and not with others: give them with all.")
            self._called = query_ids is not None
            if query_ids is not None:
                keys, ids = read_ids(query_ids, (batch.samples, *record.shape[1:])[: len(record.shape)], device)
                keys, ids = keys[:queries], ids[:queries]
        if self.slices:
            if groups is None:
                ways = ", ".join(f"{way!r}: ..." for way in self.slices.names)
                raise ValueError(f"This suite has slices: update it with groups={{{ways}}}.")
            shape = (batch.samples, *record.shape[1:])[: len(record.shape)]
            rows, faults["groups"] = self.slices.read(groups, shape, prod(shape), device)
            rows = rows[:, :queries]
        return Tagged(record, batch.samples, faults, keys, ids, rows)

    @override
    def _more(self, num: Tensor, den: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        if not isinstance(batch, Tagged):
            return ()
        den = den.expand(len(den), self._columns)
        found = []
        if batch.rows is not None:
            moments = torch.cat([den, num, den * den, den * num, num * num], dim=1)
            table = moments.new_zeros((len(self.slices) + 1, moments.shape[1]))
            for rows in batch.rows:
                table.index_add_(0, rows, moments)
            found.append(table[:-1].reshape(-1))
        if self._resampler is not None and batch.keys is not None:
            shared = num.shape[1] > 1 and den.stride(1) == 0
            sums = self._resampler.sums(batch.keys, torch.cat([num, den[:, :1] if shared else den], dim=1))
            found.append(sums[:, : self._columns].reshape(-1))
            found.append(sums[:, self._columns :].expand(-1, self._columns).reshape(-1))
        if self.collect:
            ids: Any = batch.keys if batch.ids is None else batch.ids
            values = self.read(num, den)
            kept = [values[:, columns] for metric, columns, _ in self._places() if metric.is_mean]
            self._fresh = (
                ids.copy() if isinstance(ids, np.ndarray) else _on_host(ids),
                _on_host(torch.cat([values[:, :0], *kept], dim=1)),
                _on_host(batch.record.weights > 0),
            )
        return tuple(found)

    @override
    def _add(self, sums: Tensor, counts: Tensor | None = None) -> None:
        fresh, self._fresh = self._fresh, None
        super()._add(sums, counts)
        if fresh is not None:
            self._kept.append(fresh)

    def _places(self) -> Iterator[tuple[TopKMetric, slice, slice]]:
        """Each metric, its columns of the pack, and its cells of the tallies."""
        column = cell = 0
        for _, metric in self.named:
            columns, cells = slice(column, column + len(metric.cutoffs)), slice(cell, cell + metric.tallies)
            yield metric, columns, cells
            column, cell = columns.stop, cells.stop

    @property
    def depth(self) -> int | None:
        """How many ranks the deepest metric reads; None for the whole list."""
        depths = [metric.depth for _, metric in self.named]
        return None if None in depths else max(depth for depth in depths if depth is not None)

    @override
    def ratios(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        nums, dens = zip(*(metric.ratios(ranking) for _, metric in self.named), strict=True)
        num, den = torch.cat(nums, dim=1), dens[0]
        if any(other is not den for other in dens):
            den = torch.cat([each.expand_as(own) for own, each in zip(nums, dens, strict=True)], dim=1)
        return num, den

    @override
    def read(self, num: Tensor, den: Tensor) -> Tensor:
        if all(type(metric).read is PackedMetric.read for _, metric in self.named):
            return super().read(num, den)
        values = [metric.read(num[..., columns], den[..., columns]) for metric, columns, _ in self._places()]
        return torch.cat(values, dim=-1)

    def _moments(self, sums: Tensor) -> Tensor:
        """The moments of all queries, then of each group: ``(5, 1 + groups, columns)``."""
        size, place = 5 * self._columns, 5 * self._columns + 1 + len(FAULTS)
        groups = sums[place : place + size * len(self.slices)].view(-1, 5, self._columns)
        return torch.cat([sums[:size].view(1, 5, -1), groups]).transpose(0, 1)

    def _lay_out(self, first: list[Tensor], groups: Tensor) -> Tensor:
        """A value for each key: those of all queries, and of a table of groups by columns those that a query has."""
        sliced = [groups[:, columns] for metric, columns, _ in self._places() if not metric.tallies]
        return torch.cat([*first, torch.cat([groups[:, :0], *sliced], dim=1).reshape(-1)])

    @override
    def tally(self, into: Tensor, ranking: Any) -> None:
        for metric, _, cells in self._places():
            metric.tally(into[cells], ranking)

    @override
    def _values(self, sums: Tensor, counts: Any = None) -> Tensor:
        den, num, *_ = self._moments(sums)
        table = self.read(num, den)
        first = [
            metric.summary(counts[cells], den[0, columns]) if metric.tallies else table[0, columns]
            for metric, columns, cells in self._places()
        ]
        return self._lay_out(first, table[1:])

    @override
    def _ends(self, sums: Tensor, counts: Any, level: float, method: str) -> tuple[Tensor, Tensor]:
        if method == "bootstrap" and self.bootstrap is None:
            raise ValueError("This suite draws no resamples: make it with bootstrap=1000.")
        low, high = self._around(self._moments(sums), level, method)
        first = torch.stack([low[0], high[0]])
        if self.bootstrap is not None and method != "t":
            num, den = sums[-2 * self._columns * self.bootstrap :].view(2, self.bootstrap, self._columns)
            tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=sums.dtype, device=sums.device)
            # Of fewer than two queries there is no interval, whatever is drawn.
            first = self.read(num, den).nanquantile(tails, dim=0).masked_fill(low[0].isnan(), torch.nan)
        ends = [
            torch.stack(metric.margins(counts[cells], level)) if metric.tallies else first[:, columns]
            for metric, columns, cells in self._places()
        ]
        return self._lay_out([end[0] for end in ends], low[1:]), self._lay_out([end[1] for end in ends], high[1:])

    # What a dashboard shows.

    def gaps(self) -> dict[str, Gap]:
        """Return how far the best group of each slice is from the worst, by keys such as "ndcg@10/segment".

        Groups without a query are passed over. Under DDP this is a collective operation, as ``compute()`` is.
        """
        values, found = self.compute(), {}
        for base, metric in self._means:
            for key, (way, groups) in product((self._key(base, k) for k in metric.cutoffs), self.slices.names.items()):
                by_group = {group: values[f"{key}/{way}/{group}"].item() for group in groups}
                order = sorted((group for group in groups if not isnan(by_group[group])), key=by_group.__getitem__)
                if order:
                    worst, best = (order[0], order[-1]) if metric.higher_is_better else (order[-1], order[0])
                    found[f"{key}/{way}"] = Gap(abs(by_group[best] - by_group[worst]), best, worst)
        return found

    def regressions(self, baseline: TopKMetrics, n: int = 10) -> list[Regression]:
        """Return the keys in which this suite is worse than another of the same keys, the largest loss first.

        Args:
            baseline: The suite of the system to hold it against.
            n: How many to return at most.
        """
        if baseline.keys() != self.keys():
            raise ValueError("The suites have different keys: make both with the same metrics, slices and prefix.")
        pairs = zip(self._by_key(), self.compute().items(), baseline.compute().values(), strict=True)
        found = [
            Regression(
                key, before.item(), after.item(), (before - after if metric.higher_is_better else after - before).item()
            )
            for metric, (key, after), before in pairs
        ]
        return sorted((each for each in found if each.loss > 0), key=lambda each: -each.loss)[:n]

    def best_k(self, name: str) -> tuple[int | None, Tensor]:
        """Return the cut-off at which a metric is best, the smallest of equals, and its value there.

        Args:
            name: What the metric's keys begin with, such as "f1"; with the suite's prefix or without it.
        """
        base = self._base(name)
        metric, values = dict(self.named)[base], self.compute()
        sign = 1 if metric.higher_is_better else -1
        by_cutoff = {k: values[self._key(base, k)] for k in _ascending(metric.cutoffs)}
        best = max(by_cutoff, key=lambda k: sign * by_cutoff[k].item())
        return best, by_cutoff[best]

    def _base(self, name: str) -> str:
        """The name of a metric without the suite's prefix and postfix, which the name given may have."""
        named = dict(self.named)
        base = name if name in named else name.removeprefix(self.prefix).removesuffix(self.postfix)
        if base not in named:
            raise KeyError(f"{name!r} is no metric of this suite.{nearest(base, named)} It has {', '.join(named)}.")
        return base

    # What is kept of each query.

    def collected(self) -> QueryValues:
        """Return each query's values, of all ranks: a table of queries by metrics, for `compare` or a data frame.

        Queries are named by their ids, or where `update` was given none by their positions in the data set; one that
        counts nowhere (weight 0) is left out, and one that a metric skips has NaN. Values are queries' own: the mean of
        a column is what the metric reports where it is a mean over queries of weight 1, and not where counts are pooled
        (``average="micro"``). Metrics that no mean of queries' values gives, such as gmr and coverage, are left out.
        Under DDP this is a collective operation.

        Raises:
            ValueError: If the suite was not made with ``collect=True``; if queries came in by another way, in a merged
                or loaded state; if two queries have one id.
        """
        if not self.collect:
            raise ValueError("No query's values were kept: make the suite with collect=True.")
        sums, _ = self._reduce()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # values are on their way
        means = [(base, metric) for base, metric in self._means if metric.is_mean]
        names = tuple(self._key(base, k) for base, metric in means for k in metric.cutoffs)
        lower = tuple(self._key(base, k) for base, each in means if not each.higher_is_better for k in each.cutoffs)
        parts: list[Any] = [[(np.asarray(ids), *map(Tensor.numpy, rest)) for ids, *rest in self._kept]]
        if self._distributed() and self.sync_on_compute:
            parts *= self._place()[0]
            torch.distributed.all_gather_object(parts, parts[0], group=self.process_group)
        batches = [batch for part in parts for batch in part]
        found, queries = sum(int(counted.sum()) for *_, counted in batches), int(sums[5 * self._columns])
        if found != queries:
            raise ValueError(
                f"Of {queries} queries the values of {found} were kept: a state that is loaded, or "
                "merged as a mapping, brings sums alone. Merge the metrics themselves, or update this with all queries."
            )
        called = [query for ids, _, counted in batches for query in ids[counted].tolist()]
        values = [each[counted] for _, each, counted in batches]
        if len(set(called)) < len(called) and not self._called:
            raise ValueError("Jobs, or epochs, that were merged have queries at the same positions: give query_ids=.")
        table = np.concatenate([np.zeros((0, len(names))), *values])
        return QueryValues(np.array(called, dtype=object), names, table, lower)

    @override
    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        super().merge_state(incoming_state)
        if isinstance(incoming_state, TopKMetrics):
            self._kept += incoming_state._kept  # noqa: SLF001 - another of this very class

    @override
    def reset(self) -> None:
        super().reset()
        self._kept, self._called = [], None

    @override
    def faults(self, ranking: Ranking) -> dict[str, Tensor]:
        counts: dict[str, Tensor] = {}
        for _, metric in self.named:
            for fault, count in metric.faults(ranking).items():  # of metrics that see the same fault, the most
                counts[fault] = torch.maximum(counts[fault], count) if fault in counts else count
        return counts

    def _present(self, values: Tensor) -> dict[str, Tensor]:
        return dict(zip(self._keys, values.unbind(), strict=True))

    @property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        bounds = torch.tensor([metric.bounds for _, metric in self.named for _ in metric.cutoffs], dtype=torch.float64)
        low, high = bounds.to(self.device, getattr(self, self._state).dtype).unbind(1)
        return low, high

    def _pair(self, low: Tensor, high: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        return dict(zip(self._keys, zip(low.unbind(), high.unbind(), strict=True), strict=True))

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """True where it holds for every metric; None where they differ."""
        directions = {metric.higher_is_better for _, metric in self.named}
        return directions.pop() if len(directions) == 1 else None

    # Like a mapping from keys to metrics, as Lightning's log_dict reads it.

    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the keys of ``compute()``, in order."""
        return self._keys

    def values(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """Return a Metric for each key, which reads its value from this suite."""
        return tuple(self._views.values())  # type: ignore[arg-type]

    def items(self) -> tuple[tuple[str, Metric], ...]:  # type: ignore[override]
        """Return (key, Metric) pairs: what ``log_dict`` logs."""
        return tuple(zip(self.keys(), self.values(), strict=True))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Metric:  # type: ignore[override]
        if key not in self._keys:
            hint = nearest(key, self._keys)
            raise KeyError(f"{key!r} is no key of this suite.{hint} It has {', '.join(self._keys)}.")
        return self.values()[self._keys.index(key)]

    def clone(self, prefix: str | None = None, postfix: str | None = None) -> TopKMetrics:
        """Return a copy with a state of its own, under another prefix or postfix."""
        copy = deepcopy(self)
        copy.prefix = self.prefix if prefix is None else prefix
        copy.postfix = self.postfix if postfix is None else postfix
        copy._forward_cache = None  # noqa: SLF001 - a copy of this very class
        copy._forget()  # noqa: SLF001
        copy._name_keys()  # noqa: SLF001
        return copy

    def plot(self, val: Any = None, ax: Any = None, *, x: str | None = None) -> Any:
        """Plot every metric over K as a curve, or a list of values over steps as lines.

        Args:
            val: A result of ``compute()`` or ``forward()``, or a list of them; None: of ``compute()``, with 95 %
                intervals as bands.
            ax: Matplotlib axes to draw on; None makes a figure.
            x: A metric to draw the others over in place of K: with "recall", precision over recall.

        Returns:
            The figure (None where axes were given) and the axes.
        """
        from torch_topk import plot

        if x is not None:
            base, val = self._base(x), self.compute() if val is None else val
            cutoffs = _ascending(dict(self.named)[base].cutoffs)
            others = [other for other, metric in self.named if other != base and set(metric.cutoffs) == set(cutoffs)]
            if not others or isinstance(val, (list, tuple)):
                raise ValueError(f"Over {x!r} a result is drawn of the metrics at the same cut-offs, {cutoffs}.")
            points = {name: torch.stack([val[self._key(name, k)] for k in cutoffs]) for name in (base, *others)}
            return plot.against(base, cutoffs, points.pop(base), points, ax=ax)
        bounds = (
            min(metric.bounds[0] for _, metric in self.named),
            max(metric.bounds[1] for _, metric in self.named),
        )
        if isinstance(val, (list, tuple)):
            lines = {key: torch.stack([step[key] for step in val]) for key in self._keys}
            return plot.steps(lines, bounds=bounds, ax=ax)
        bands: dict[str, tuple[Tensor, Tensor]] = {}
        if val is None:
            val, intervals = self.compute(), self.intervals()
            for group, keys in self._groups.items():
                low, high = zip(*(intervals[key] for key in keys), strict=True)
                bands[group] = torch.stack(low), torch.stack(high)
        curves = {
            group: (metric.cutoffs, torch.stack([val[key] for key in keys]))
            for (group, keys), (_, metric) in zip(self._groups.items(), self.named, strict=True)
        }
        return plot.curves(curves, bounds=bounds, bands=bands, ax=ax)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._keys)})"


class _View(Metric):
    """One key of a suite as a Metric of its own, which is what Lightning logs. It holds no state."""

    full_state_update = False

    def __init__(self, suite: TopKMetrics, column: int, metric: TopKMetric) -> None:
        super().__init__()
        self._suite = (suite,)  # in a tuple, so that the suite is no submodule of its own view
        self._column, self._metric = column, (metric,)

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        return update

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return compute  # the suite synchronises and caches

    @property
    def _key(self) -> str:
        return self._suite[0].keys()[self._column]

    def update(self, *_: Any, **__: Any) -> None:
        raise TypeError(f"{self._key!r} is a view of a suite: update the suite.")

    forward = update

    def compute(self) -> Tensor:
        value: Tensor = self._suite[0].compute()[self._key]
        return value

    def reset(self) -> None:
        self._suite[0].reset()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        from torch_topk import plot

        steps = val if isinstance(val, (list, tuple)) else [self.compute() if val is None else val]
        return plot.steps({self._key: torch.stack([*steps])}, bounds=self._metric[0].bounds, ax=ax)

    @property
    def _forward_cache(self) -> Any:
        batch = self._suite[0]._forward_cache  # noqa: SLF001 - torchmetrics' own name
        return None if batch is None else batch[self._key]

    @_forward_cache.setter
    def _forward_cache(self, value: Any) -> None:
        """Torchmetrics sets it on every metric; here the suite's is read."""

    @property
    def _update_count(self) -> int:
        return self._suite[0].update_count

    @_update_count.setter
    def _update_count(self, value: int) -> None:
        """As `_forward_cache`."""

    @property
    def device(self) -> torch.device:
        """The suite's device."""
        return self._suite[0].device

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """The direction of the metric it shows."""
        return self._metric[0].higher_is_better

    def __repr__(self) -> str:
        return f"{self._key} of {type(self._suite[0]).__name__}"


def _on_host(tensor: Tensor) -> Tensor:
    """A copy on the CPU, which a GPU need not be waited for."""
    return tensor.to("cpu", non_blocking=tensor.is_cuda, copy=True)


def _ascending(cutoffs: Cutoffs) -> list[int | None]:
    """The cut-offs in order; None is by itself."""
    return sorted(cutoffs, key=lambda k: k or 0)


def _agree(metric: TopKMetric, policies: Policies, reads: str) -> TopKMetric:
    """Refuse a metric whose policies would need a ranking of its own."""
    if policies.ties not in COUNT_TIES and "ranking" not in metric.reads:
        raise ValueError(f"{metric!r} reads RankCounts, but a suite with ties={policies.ties!r} reads a Ranking.")
    if reads not in metric.reads:
        raise ValueError(
            f"{metric!r} reads a Ranking, but a suite with ties={policies.ties!r} RankCounts: give it one of its own."
        )
    metric.check_ties(policies.ties)
    for name in ("ties", "duplicates", "non_finite", "validate", "ignore_index", "dataset_size"):
        own, shared = getattr(metric.policies, name), getattr(policies, name)
        if name in metric.given and own != shared:
            raise ValueError(
                f"{metric!r} has {name}={own!r}, but one ranking serves the whole suite, which has {shared!r}: "
                f"give {name} to the suite."
            )
    return metric
