"""Scorers for scikit-learn: what stands in the first K as `scoring=` of a search or a cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchmetrics import Metric
from typing_extensions import Self

from torch_topk.metric import TopKMetric
from torch_topk.names import Spec
from torch_topk.suite import TopKMetrics

_RESPONSES = ("decision_function", "predict_proba")


# A class, and not scikit-learn's make_scorer, whose function sees scores and labels but never the estimator's classes_:
# in a fold that lacks a class it could not tell which column is whose. Nor would it get both columns of a binary
# problem, and of a label that no training row holds a forest's probability of 0 would reach it as 1.
class Scorer:
    """A metric of the first K as a scikit-learn scorer, ``scorer(estimator, X, y, sample_weight=None)``.

    It goes wherever ``scoring=`` does: ``cross_validate``, ``GridSearchCV``, ``permutation_importance``, with
    pipelines and in several processes. Each row is a query, whose items are the classes (or labels) that the
    estimator scores. A row of weight w counts w times; as of scikit-learn's own scorers, a weight is asked for with
    `set_score_request` where metadata routing is enabled.

    With one label a row, columns are matched to labels by the estimator's ``classes_``: numbers, text, in any order.
    A label that the estimator never saw, as when a fold lacks its class, is relevant but no candidate: such a row is
    a miss. With indicators ``(n, L)``, dense or SciPy sparse, columns are labels, whichever form the estimator gives
    its scores in. (Of a label that no training row holds, `OneVsRestClassifier.decision_function` says 0, which is
    above most others: name ``response_method="predict_proba"`` where labels are so rare.)

    Args:
        metrics: What `TopKMetrics` takes, or a metric, which is a definition and is not updated. One name with at
            most one K ("ndcg@3"), or a metric with one value: the scorer gives a float. A list, a mapping, several K,
            a suite: it gives a dict of floats under the suite's keys, all read off one ranking, and a search then
            takes ``refit="ndcg@3"``. A value of which lower is better is negated, in a dict as "neg_" and its key.
        response_method: The method that scores, or several of which the first one that the estimator has is taken.
            "predict" serves regressors with an output a label.
        labels: The labels in order, where a metric speaks of labels by id (`LabelRecall` of a list of labels, for
            one): what items 0, 1, ... are. Left out, they are the estimator's classes, and then labels of y only.
        options: What `TopKMetrics` takes beside the metrics: ``k``, ``at``, the fields of `Policies`. Equal scores
            stand in order of ``classes_``; with ``ties="reverse"``, as scikit-learn's `top_k_accuracy_score` has it,
            in the opposite one.

    Raises:
        ValueError, TypeError: When made, for what is no metric or gives more than one number; when called, for scores
            that do not fit the classes or y. (A search makes NaN and a warning of the latter, unless
            ``error_score="raise"``.)
        AttributeError: When called, for an estimator without the method, or one whose columns have no names.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.model_selection import cross_val_score
        >>> X, y = load_iris(return_X_y=True)
        >>> cross_val_score(LogisticRegression(max_iter=500), X, y, scoring=Scorer("ndcg@2")).round(3).tolist()
        [0.988, 1.0, 0.975, 0.988, 1.0]
    """

    def __init__(
        self,
        metrics: Spec | Metric | Sequence[Spec] | Mapping[str, Spec],
        *,
        response_method: str | Sequence[str] = _RESPONSES,
        labels: Sequence[Any] | NDArray[Any] | None = None,
        **options: Any,
    ) -> None:
        methods: Any = (response_method,) if isinstance(response_method, str) else response_method
        if not isinstance(methods, Sequence) or not methods or not all(isinstance(name, str) for name in methods):
            raise TypeError(f"response_method must be the name of a method, or several, but is {response_method!r}.")
        self._methods = tuple(methods)
        self._labels = None if labels is None else np.asarray(labels).tolist()
        if self._labels is not None and len({*self._labels}) < len(self._labels):
            raise ValueError(f"labels must hold each label only once, but are {self._labels!r}.")
        if isinstance(metrics, Metric):
            if options:
                raise TypeError(
                    f"{', '.join(options)} must be given to the metric, {metrics!r}, and not to its scorer."
                )
            self._metric: Any = metrics.clone()
            self._metric.reset()
        else:
            self._metric = TopKMetrics(metrics, **options)
        parts = [each for _, each in self._metric.named] if isinstance(self._metric, TopKMetrics) else [self._metric]
        self._by_id = labels is None and any(
            hasattr(each, "num_labels") or hasattr(each, "propensities") for each in parts
        )
        self._metric.distributed_available_fn = _alone  # a fold is this process's own, whatever others do
        named = isinstance(metrics, Mapping) and isinstance(metrics.get("name"), str)
        self._single = (named or isinstance(metrics, (str, type))) and len(self._metric) == 1
        self._requests: dict[str, str | bool | None] = {"sample_weight": None}
        shown = [repr(metrics)]
        shown += [f"response_method={response_method!r}"] if self._methods != _RESPONSES else []
        shown += [f"labels={self._labels!r}"] if self._labels is not None else []
        shown += [f"{name}={value!r}" for name, value in options.items()]
        self._shown = f"{type(self).__name__}({', '.join(shown)})"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nothing was counted yet
            self._values(self._metric.clone())

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float | dict[str, float]:  # noqa: N803 - scikit-learn's name
        """Score a fitted estimator on rows X whose truth is y."""
        method, response = self._respond(estimator, X)
        truth, items = y if hasattr(y, "tocoo") else np.asarray(y), None
        if truth.ndim == 2 and truth.shape[1] == 1 and isinstance(truth, np.ndarray):
            truth = truth[:, 0]
        if truth.ndim == 2:
            if self._labels is not None:
                raise ValueError(f"labels is for one label a row, but y of shape {truth.shape} has columns for labels.")
            scores = _of_labels(estimator, response)
            if scores.shape != truth.shape:
                raise ValueError(
                    f"y has shape {truth.shape}, but {method} of {_name(estimator)} gives {scores.shape}: expected a "
                    "score for each label of each row."
                )
        elif truth.ndim == 1:
            classes = _classes(estimator)
            scores = _of_classes(estimator, method, response, len(classes))
            items, truth = self._items(estimator, classes, truth)
        else:
            raise ValueError(f"y must be labels (n,) or indicators (n, L), but has shape {truth.shape}.")
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        metric = self._metric.clone()  # threads may score several folds at once
        metric.update(scores, truth, items=items, weights=weights)
        return self._values(metric)

    def _respond(self, estimator: Any, X: Any) -> tuple[str, Any]:  # noqa: N803
        """What the first method that the estimator has says of the rows."""
        for name in self._methods:
            method = getattr(estimator, name, None)
            if method is None:
                continue
            if name == "predict" and hasattr(estimator, "classes_"):
                raise ValueError(
                    f"predict of {_name(estimator)} gives labels, which have no order: score it by "
                    "response_method='predict_proba' or 'decision_function'."
                )
            return name, method(X)
        raise AttributeError(
            f"{_name(estimator)} has no {' or '.join(self._methods)}, which a ranking is made of. Take an estimator "
            "that scores (CalibratedClassifierCV makes one of any classifier), or name its method with response_method."
        )

    def _items(self, estimator: Any, classes: list[Any], y: NDArray[Any]) -> tuple[NDArray[Any] | None, NDArray[Any]]:
        """The item ids of the columns (None: their places), and those of the rows' labels."""
        if any(each is None or each != each for each in y.tolist()):  # noqa: PLR0124 - NaN
            raise ValueError("y must hold a label for each row, but holds NaN or None.")
        distinct, where = np.unique(y, return_inverse=True)
        found = distinct.tolist()
        if found and isinstance(found[0], str) != isinstance(classes[0], str):
            raise TypeError(
                f"y holds {found[0]!r}, but classes_ of {_name(estimator)} {classes[0]!r}: give both alike."
            )
        ids = {label: i for i, label in enumerate(classes if self._labels is None else self._labels)}
        lacking = [label for label in (*classes, *found) if label not in ids]
        if lacking and self._labels is not None:
            raise ValueError(f"labels lack {lacking[0]!r}, but {_name(estimator)} or y has it: give them all.")
        known = getattr(self._metric, "num_labels", len(ids))
        if self._by_id and (lacking or known != len(ids)):
            raise ValueError(
                f"{self!r} speaks of labels by id, and {_name(estimator)} knows {len(classes)}"
                f"{f', but not {lacking[0]!r}' if lacking else f' of {known}'}: say which is which with labels=[...]."
            )
        for label in lacking:
            ids[label] = len(ids)
        items = None if len(ids) == len(classes) and self._labels is None else np.array([ids[each] for each in classes])
        return items, np.array([ids[label] for label in found], dtype=np.int64)[where]

    def _values(self, metric: Any) -> float | dict[str, float]:
        """What a metric says, as a search wants it: numbers of which more is better."""
        found = metric.scalars() if hasattr(metric, "scalars") else metric.compute()
        values: dict[str, float] = {}
        for key, value in found.items() if isinstance(found, Mapping) else [("", found)]:
            if value.numel() != 1:
                several = ", or put it into a list, which makes a suite of it: Scorer([metric])"
                raise ValueError(
                    f"A scorer gives single numbers, but {metric!r} gives {value.numel()} at once: give it one k and "
                    f"an average{several if isinstance(metric, TopKMetric) else ''}."
                )
            view = metric[key] if isinstance(metric, TopKMetrics) else metric
            lower = view.higher_is_better is False
            values[f"neg_{key}" if lower else key] = -float(value) if lower else float(value)
        return values if isinstance(found, Mapping) and not self._single else next(iter(values.values()))

    # Metadata routing, by scikit-learn's public names.

    def set_score_request(self, *, sample_weight: str | bool | None) -> Self:
        """Ask a search for rows' weights, where ``sklearn.set_config(enable_metadata_routing=True)`` holds.

        Args:
            sample_weight: True: they are wanted; a name: they are wanted and passed under it; False: they are not;
                None: passing them is an error.

        Returns:
            This scorer.

        Example:
            >>> import sklearn
            >>> with sklearn.config_context(enable_metadata_routing=True):
            ...     Scorer("ndcg@3").set_score_request(sample_weight=True)
            Scorer('ndcg@3')
        """
        try:
            from sklearn import get_config
        except ImportError as error:
            raise ImportError("Metadata routing needs scikit-learn: pip install scikit-learn.") from error
        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError(
                "set_score_request() needs metadata routing: sklearn.set_config(enable_metadata_routing=True)."
            )
        self._requests["sample_weight"] = sample_weight
        return self

    def get_metadata_routing(self) -> Any:
        """Return what scikit-learn is asked for, as its ``MetadataRequest``."""
        from sklearn.utils.metadata_routing import MetadataRequest

        requests = MetadataRequest(owner=self)
        for name, alias in self._requests.items():
            requests.score.add_request(param=name, alias=alias)
        return requests

    def _accept_sample_weight(self) -> bool:
        """Where routing is disabled, a search asks this of the scorers in a dict of them."""
        return True

    def __repr__(self) -> str:
        return self._shown


def _alone() -> bool:
    return False


def _last(estimator: Any) -> Any:
    """The estimator that scores, behind searches and pipelines."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(getattr(estimator, "steps", None), list):
            estimator = estimator.steps[-1][1]
        else:
            return estimator


def _name(estimator: Any) -> str:
    return type(_last(estimator)).__name__


def _classes(estimator: Any) -> list[Any]:
    """What the columns of an estimator's scores stand for."""
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        raise AttributeError(
            f"{_name(estimator)} has no classes_, which say what label each column of its scores is: fit a classifier."
        )
    if isinstance(classes, list) and any(np.ndim(each) for each in classes):
        raise ValueError(f"{_name(estimator)} has {len(classes)} outputs, but y has one label a row.")
    found: list[Any] = np.asarray(classes).tolist()
    return found


def _of_classes(estimator: Any, method: str, response: Any, count: int) -> NDArray[Any]:
    """Scores ``(n, count)`` of as many classes."""
    scores = np.asarray(response)
    if scores.ndim == 1 and count == 2:  # of the second class against the first
        return np.stack([-scores, scores], axis=1)
    # Asked, and not told by the number of columns: of three classes there are three pairs.
    if (
        method == "decision_function"
        and count > 2
        and getattr(_last(estimator), "decision_function_shape", "") == "ovo"
    ):
        raise ValueError(
            f"decision_function of {_name(estimator)} scores the {count * (count - 1) // 2} pairs of {count} classes, "
            "not the classes: make the estimator with decision_function_shape='ovr'."
        )
    if scores.ndim != 2 or scores.shape[1] != count:
        raise ValueError(
            f"{method} of {_name(estimator)} has shape {scores.shape}, but there are {count} classes: expected a "
            "column for each."
        )
    return scores


def _of_labels(estimator: Any, response: Any) -> NDArray[Any]:
    """Scores ``(n, L)`` of indicators, which some estimators give as a list of L arrays, a column for 0 and for 1."""
    if not isinstance(response, list):
        return np.asarray(response)
    columns = []
    for label, (classes, scores) in enumerate(zip(estimator.classes_, response, strict=True)):
        names = np.asarray(classes).tolist()
        if not set(names) <= {0, 1}:
            raise ValueError(
                f"output {label} of {_name(estimator)} is one of {names}, but y must hold indicators, 0 or 1: score "
                "each output on its own."
            )
        # A label that all training rows hold, or none, has one column.
        columns.append(scores[:, names.index(1)] if 1 in names else np.zeros(len(scores)))
    return np.stack(columns, axis=1)
