"""Many metrics of one ranking: ranked once a batch, kept in one pack, reduced once a compute."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import ModuleDict
from torchmetrics import Metric
from typing_extensions import Unpack, override

from torch_topk.inputs import COUNT_TIES, nearest
from torch_topk.metric import TopKMetric, find, parse
from torch_topk.packed import POLICY_NAMES, PackedMetric, Policies, PolicyOptions, split_policies
from torch_topk.ranking import Ranking

if TYPE_CHECKING:
    _Keyed = Mapping[str, Metric]  # what Lightning's log_dict says it takes
else:
    _Keyed = object

Spec: TypeAlias = str | TopKMetric | type[TopKMetric] | Mapping[str, Any]


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
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        options, others = split_policies(kwargs, type(self).__name__, ["prefix", "postfix", "at"])
        read = _read_metrics(metrics, k, options)
        if "ties" not in options and any(metric.reads_counts for _, metric in read):
            options["ties"] = "realistic"  # of any that reads counts, all do
            read = _read_metrics(metrics, k, options)
        policies = Policies(**options)
        for name, text in (("prefix", prefix), ("postfix", postfix), ("at", at)):
            if not isinstance(text, str):
                raise TypeError(f"{name} must be a str, but is {text!r}.")
        named = [(base, _agree(metric, policies)) for base, metric in read]
        if not named:
            raise ValueError("metrics must name at least one metric, but is empty.")
        config = f"{type(self).__name__}{[metric for _, metric in named]}{policies}"
        super().__init__(sum(len(metric.cutoffs) for _, metric in named), config, policies, others)
        self.named = tuple(named)  # in a tuple, so that they are no submodules
        self.prefix, self.postfix, self.at = prefix, postfix, at
        self._name_keys()

    def _name_keys(self) -> None:
        self._groups = {
            f"{self.prefix}{base}{self.postfix}": [self._key(base, k) for k in metric.cutoffs]
            for base, metric in self.named
        }
        keys = [self._key(base, k) for base, metric in self.named for k in metric.cutoffs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"Two metrics have the key {twice[0]!r}: rename one, as in {{'new_name': metric}}.")
        self._keys = tuple(keys)
        # A name of a submodule must hold no dot, so the views are numbered.
        self._views = ModuleDict({f"v{i}": _View(self, i, metric) for i, metric in enumerate(self._by_column())})

    def _key(self, base: str, k: int | None) -> str:
        return f"{self.prefix}{base}{'' if k is None else f'{self.at}{k}'}{self.postfix}"

    def _by_column(self) -> list[TopKMetric]:
        return [metric for _, metric in self.named for _ in metric.cutoffs]

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        super()._apply(fn, exclude_state)
        for _, metric in self.named:
            metric.prepare(self.device)
        return self

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
        values, place = [], 0
        for _, metric in self.named:
            columns = slice(place, place := place + len(metric.cutoffs))
            values.append(metric.read(num[columns], den[columns]))
        return torch.cat(values)

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
        bounds = torch.tensor([metric.bounds for metric in self._by_column()], dtype=torch.float64)
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

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot every metric over K as a curve, or a list of values over steps as lines.

        Args:
            val: A result of ``compute()`` or ``forward()``, or a list of them; None: of ``compute()``, with 95 %
                intervals as bands.
            ax: Matplotlib axes to draw on; None makes a figure.

        Returns:
            The figure (None where axes were given) and the axes.
        """
        from torch_topk import plot

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


def _read_metrics(
    metrics: Any, k: int | Sequence[int] | None, options: Mapping[str, Any]
) -> list[tuple[str, TopKMetric]]:
    """The metrics and the names their keys begin with."""
    if isinstance(metrics, Mapping) and not isinstance(metrics.get("name"), str):
        return [(str(name), _read_metric(spec, k, options)[1]) for name, spec in metrics.items()]
    if isinstance(metrics, (str, Metric, type, Mapping)):
        metrics = [metrics]
    if not isinstance(metrics, Sequence):
        raise TypeError(f"metrics must be names, metrics, or a mapping from names to these, but is {metrics!r}.")
    return [_read_metric(spec, k, options) for spec in metrics]


def _read_metric(spec: Any, k: Any, defaults: Mapping[str, Any]) -> tuple[str, TopKMetric]:
    if isinstance(spec, TopKMetric):
        return spec.name, spec
    if isinstance(spec, type) and issubclass(spec, TopKMetric) and hasattr(spec, "name"):
        return spec.name, spec(k, **defaults)
    if isinstance(spec, str):
        spec = {"name": spec}
    if isinstance(spec, Mapping) and isinstance(spec.get("name"), str):
        name, options, cutoffs = parse(spec["name"])
        base = spec["name"].partition("@")[0].strip() if options else name  # as typed, with its options
        options |= {str(key): value for key, value in spec.items() if key != "name"}
        k = options.pop("k", cutoffs or k)
        for option in options:
            if option in PolicyOptions.__annotations__ and option not in POLICY_NAMES:
                raise ValueError(f"{option} is for the suite, whose state is one, and not for {spec['name']!r} in it.")
        return base, find(name)(k, **{**defaults, **options})
    if isinstance(spec, Metric):
        raise TypeError(f"{spec!r} is no metric of queries, which a suite is made of: put it into a MetricCollection.")
    raise TypeError(f"A metric must be a name, a metric, or a mapping with a name and options, but is {spec!r}.")


def _agree(metric: TopKMetric, policies: Policies) -> TopKMetric:
    """Refuse a metric whose policies would need a ranking of its own."""
    if policies.ties not in COUNT_TIES and "ranking" not in metric.reads:
        raise ValueError(f"{metric!r} reads RankCounts, but a suite with ties={policies.ties!r} reads a Ranking.")
    if policies.ties in COUNT_TIES and "counts" not in metric.reads:
        raise ValueError(
            f"{metric!r} reads a Ranking, but a suite with ties={policies.ties!r} RankCounts: give it one of its own."
        )
    for name in ("ties", "duplicates", "non_finite", "validate", "ignore_index", "dataset_size"):
        own, shared = getattr(metric.policies, name), getattr(policies, name)
        if name in metric.given and own != shared:
            raise ValueError(
                f"{metric!r} has {name}={own!r}, but one ranking serves the whole suite, which has {shared!r}: "
                f"give {name} to the suite."
            )
    return metric
