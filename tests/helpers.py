"""What several test files share: every metric with every value of its options, small batches, and comparing."""

import inspect
import itertools
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

import torch_topk as tt
from torch_topk.metric import options_of

RANKING = {name: cls for name, cls in tt.registry.items() if "ranking" in cls.reads and not cls.per_run}
"""The metrics of a query that read a `Ranking`; those of one target's rank are in test_ranks.py, those of a whole run
in test_catalog.py."""
TABLE = {1: 0.2, 2: 0.5, 3: 2.5}
PROPENSITIES = 1 / (1 + torch.arange(1 << 14).remainder(7))
REQUIRED: dict[str, Any] = {
    "propensities": PROPENSITIES,
    "item_values": torch.arange(1, 1 + (1 << 14)).remainder(5) + 0.25,
    "item_counts": torch.arange(1 << 14).remainder(6),
    "num_users": 5,
    "embeddings": torch.stack([torch.arange(1 << 14).remainder(n) for n in (2, 3, 7)], dim=1) - 1.0,
}
"""Options without which a metric cannot be made, and numbers for each item: a new one has its line here."""

VALUES: dict[str, list[Any]] = {
    "persistence": [0.5, 0.95],
    "max_grade": [3.0, 4.0],
    "item_values": [None],
    "normalized": [False, True],
}
"""Options whose values have bounds, or may be left out."""

Cutoffs = tuple[int, ...] | None


def option_values(cls: type[tt.TopKMetric]) -> dict[str, list[Any]]:
    """Values of each of a metric's own options, read off its signature and its types."""
    hints = typing.get_type_hints(cls.__init__)
    values: dict[str, list[Any]] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        kinds = [hints[name], *typing.get_args(hints[name])]
        found = [
            value for kind in kinds if typing.get_origin(kind) is typing.Literal for value in typing.get_args(kind)
        ]
        if any(typing.get_origin(kind) is Mapping for kind in kinds):
            found.append(TABLE)
        if name in VALUES:
            found += VALUES[name]
        elif float in kinds:
            found += [parameter.default / 2, parameter.default * 2]
        if name in REQUIRED:
            found.append(REQUIRED[name])
        assert found, (
            f"No values are known for {cls.__name__}'s option {name}: teach this function, VALUES or REQUIRED."
        )
        values[name] = found
    return values


def show(value: object) -> str:
    """An option's value in a test's id."""
    return "table" if isinstance(value, (Mapping, Tensor)) else str(value)


def go_together(options: Mapping[str, Any]) -> bool:
    """Whether a metric can be made with some options: items are worth their own, or what their grades are."""
    if options.get("ideal") == "k":
        return bool(options["gain"] == "binary")
    return options.get("item_values") is None or options["gain"] == "linear"


def _specs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, cls in RANKING.items():
        options = option_values(cls)
        for values in itertools.product(*options.values()):
            chosen = dict(zip(options, values, strict=True))
            if not go_together(chosen):
                continue
            shown = ",".join(show(value) for value in values)
            yield f"{name}({shown})" if shown else name, {"name": name, **chosen}


DEFINITIONS: dict[str, dict[str, Any]] = dict(_specs())
"""Every metric of the registry with every value of its options, as a suite takes it; a new metric is in it at once."""


def definitions(empty: str = "zero") -> dict[str, dict[str, Any]]:
    """Those that go with a policy for empty queries: pooled counts have no value of one query to set."""
    unpooled = empty in {"one", "nan"}
    return {key: spec for key, spec in DEFINITIONS.items() if not (unpooled and spec.get("average") == "micro")}


def required(name: str) -> dict[str, Any]:
    """What a metric cannot do without."""
    return {option: REQUIRED[option] for option in options_of(tt.registry[name]) if option in REQUIRED}


def make(name: str, k: Any = 10, **options: Any) -> tt.TopKMetric:
    """The metric of a name, as it is but for what it cannot do without."""
    return tt.registry[name](k, **required(name), **options)


def metric_of(spec: Mapping[str, Any], k: Cutoffs, **policies: Any) -> tt.TopKMetric:
    """The metric of a definition."""
    options = {option: value for option, value in spec.items() if option != "name"}
    return tt.registry[spec["name"]](k, **options, **policies)


@cache
def _everything(k: Cutoffs, policies: tuple[tuple[str, Any], ...]) -> tt.TopKMetrics:
    given = dict(policies)
    specs = definitions(given.get("empty", "zero"))
    return tt.TopKMetrics({key: {"k": k, **spec} for key, spec in specs.items()}, **given)


def everything(k: Cutoffs = (1, 3), **policies: Any) -> tt.TopKMetrics:
    """A suite of every definition, without data. It is made once and shared: use one at a time."""
    suite = _everything(k, tuple(sorted(policies.items())))
    suite.reset()
    return suite


def reordered(order: Tensor, k: Cutoffs, **policies: Any) -> tt.TopKMetrics:
    """A suite of every definition for items in another order, which their numbers follow."""
    specs = definitions(policies.get("empty", "zero"))
    moved = {
        key: {
            "k": k,
            **{option: value[order] if isinstance(value, Tensor) else value for option, value in spec.items()},
        }
        for key, spec in specs.items()
    }
    return tt.TopKMetrics(moved, **policies)


def report(
    *batches: Mapping[str, Any], k: Cutoffs = (1, 3), order: Tensor | None = None, **policies: Any
) -> dict[str, Tensor]:
    """What every definition says of some batches together; a batch is the arguments of ``update``."""
    suite = everything(k, **policies) if order is None else reordered(order, k, **policies)
    for batch in batches:
        suite.update(**batch)
    values: dict[str, Tensor] = suite.compute()
    return values


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float = 1e-12) -> None:
    """The same values under the same keys; NaN equals NaN."""
    assert list(found) == list(expected)
    left, right = (torch.stack(list(values.values())) for values in (found, expected))
    equal = torch.isclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True)
    wrong = [key for key, good in zip(found, equal, strict=True) if not good]
    assert not wrong, {key: (found[key], expected[key]) for key in wrong}


@dataclass(frozen=True)
class Batch:
    """One input: dense and of one row a query."""

    scores: Tensor
    gains: Tensor
    excluded: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.scores)

    def update(self, **changes: Any) -> dict[str, Any]:
        """The arguments of ``update``, some of them replaced."""
        given = {"preds": self.scores, "target": self.gains, "exclude": self.excluded, "weights": self.weights}
        return {**given, **changes}

    def rows(self, rows: slice | Tensor) -> "Batch":
        """Some of the queries."""
        return Batch(self.scores[rows], self.gains[rows], self.excluded[rows], self.weights[rows])

    def columns(self, order: Tensor) -> "Batch":
        """The items in another order."""
        return Batch(self.scores[:, order], self.gains[:, order], self.excluded[:, order], self.weights)

    def but(self, **changes: Tensor) -> "Batch":
        """The same with some parts replaced."""
        return replace(self, **changes)
