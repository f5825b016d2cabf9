"""From names to metrics: the "ndcg@10" grammar, and the forms in which a suite is told what to measure."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torchmetrics import Metric

from torch_topk.metric import TopKMetric, by_name, find
from torch_topk.packed import POLICY_NAMES, PolicyOptions

Spec: TypeAlias = str | TopKMetric | type[TopKMetric] | Mapping[str, Any]

# trec_eval's spellings: ndcg_cut_10, P_5, recip_rank.
_TREC = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*?)(?:_cut)?_(?P<cutoffs>\d+(?:,\d+)*)")
_GRAMMAR = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_-]*)\s*(?:\((?P<options>[^()]*)\))?\s*(?:@\s*(?P<cutoffs>\d+(?:\s*,\s*\d+)*))?"
)
_SHORT = {"rel": "min_relevance"}


def parse(text: str) -> tuple[str, dict[str, Any], list[int]]:
    """Read a metric's name: ``"ndcg@10"``, ``"nDCG@5,10"``, ``"P(rel=2)@5"``, or trec_eval's ``"ndcg_cut_10"``.

    Returns:
        The name as typed, options in parentheses, and cut-offs (none: the suite's).

    Example:
        >>> parse("P(rel=2)@5,10")
        ('P', {'min_relevance': 2}, [5, 10])
    """
    match, trec = _GRAMMAR.fullmatch(text.strip()), _TREC.fullmatch(text.strip())
    if trec and trec["name"].lower() in by_name:
        match = trec
    if not match:
        raise ValueError(
            f"{text!r} is no metric: write a name as 'ndcg', 'ndcg@10', 'ndcg@5,10' or 'precision(rel=2)@5'."
        )
    parts = match.groupdict()
    options: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in (parts.get("options") or "").split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"{pair!r} in {text!r} is no option: write name=value.")
        name = _SHORT.get(name, name)
        if name in options:
            raise ValueError(f"{text!r} gives {name} twice.")
        options[name] = _read_value(value)
    return parts["name"], options, [int(k) for k in (parts["cutoffs"] or "").split(",") if k.strip()]


def _read_value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def read_metrics(
    metrics: Any, k: int | Sequence[int] | None, options: Mapping[str, Any], own: Mapping[str, Any]
) -> list[tuple[str, TopKMetric]]:
    """The metrics and the names their keys begin with."""
    if isinstance(metrics, Mapping) and not isinstance(metrics.get("name"), str):
        return [(str(name), _read_metric(spec, k, options, own)[1]) for name, spec in metrics.items()]
    if isinstance(metrics, (str, Metric, type, Mapping)):
        metrics = [metrics]
    if not isinstance(metrics, Sequence):
        raise TypeError(f"metrics must be names, metrics, or a mapping from names to these, but is {metrics!r}.")
    return [_read_metric(spec, k, options, own) for spec in metrics]


def _read_metric(
    spec: Any, k: Any, defaults: Mapping[str, Any], own: Mapping[str, Mapping[str, Any]]
) -> tuple[str, TopKMetric]:
    if isinstance(spec, TopKMetric):
        return spec.name, spec
    if isinstance(spec, type) and issubclass(spec, TopKMetric) and hasattr(spec, "name"):
        return spec.name, spec(None if spec.whole else k, **{**defaults, **own.get(spec.name, {})})
    if isinstance(spec, str):
        spec = {"name": spec}
    if isinstance(spec, Mapping) and isinstance(spec.get("name"), str):
        name, options, cutoffs = parse(spec["name"])
        base = spec["name"].partition("@")[0].strip() if options else name  # as typed, with its options
        options |= {str(key): value for key, value in spec.items() if key != "name"}
        cls = find(name)
        k = options.pop("k", cutoffs or (None if cls.whole else k))
        for option in options:
            if option in PolicyOptions.__annotations__ and option not in POLICY_NAMES:
                raise ValueError(f"{option} is for the suite, whose state is one, and not for {spec['name']!r} in it.")
        return base, cls(k, **{**defaults, **own.get(cls.name, {}), **options})
    if isinstance(spec, Metric):
        raise TypeError(f"{spec!r} is no metric of queries, which a suite is made of: put it into a MetricCollection.")
    raise TypeError(f"A metric must be a name, a metric, or a mapping with a name and options, but is {spec!r}.")
