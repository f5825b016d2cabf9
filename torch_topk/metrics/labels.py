"""Metrics of labels: of each, how often the first k places name it, and how often rightly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import Unpack, override

from torch_topk.counts import (
    AVERAGES,
    MOST_DRAWN,
    SCORES,
    LabelAverage,
    LabelCounts,
    Labels,
    Totals,
    ZeroDivision,
    mask_of,
    read_labels,
)
from torch_topk.inputs import Array, as_tensor, read_choice
from torch_topk.metrics.binary import HitRate
from torch_topk.packed import PolicyOptions
from torch_topk.report import Report


class _LabelScore(LabelCounts):
    """One score of the labels: of each, or an average."""

    _score: str

    def __init__(
        self, num_labels: int, k: int | Sequence[int] | None, *, average: LabelAverage | None, **kwargs: Any
    ) -> None:
        read_choice("average", average, (*AVERAGES, None))
        super().__init__(num_labels, k, **kwargs)
        self.average = average

    @override
    def result(self, totals: Totals) -> Tensor:
        if self.average is None:
            values = torch.stack([totals.values(self._score, i) for i in range(len(self.cutoffs))])
            if self._listed is not None:
                values = values.index_select(1, self._listed)
        else:
            values = totals.averages(self._score, self.average, totals.asked)
        return values[0] if self._one else values

    @override
    def warn(self, totals: Totals) -> None:
        totals.warn([self._score], self.average, stacklevel=5)


class LabelPrecision(_LabelScore):
    r"""Precision of labels: of the rows whose first k places name a label, the share that hold it.

    .. math:: P_l@k = \frac{TP_l}{TP_l + FP_l}

    Not the mean over rows of hits / k, which is `Precision`; nor the share of rows whose label is among the first k,
    which torchmetrics' multi-class precision gives with ``top_k``, and is `TopKAccuracy`.

    Args:
        num_labels: How many labels there are.
        k: The cut-off, several, or None for the whole list.
        average: "macro", the mean over labels; "weighted" by the rows that hold each; "micro", of pooled counts;
            "samples", the mean over rows of each row's own precision; None, the value of each label.
        labels: What is averaged over: "all" labels; those "seen" in the truth or among the deepest first k; or a list
            of labels (ids, or a bool mask), to which every average keeps, as in scikit-learn.
        zero_division: What a label that no row names counts: 0, 1, nan (left out of averages), or "warn" (0 and a
            warning); as in scikit-learn.
        kwargs: See `Policies`. A row without a true label counts all the same (``empty="zero"``), is left out ("skip")
            or is a fault ("error").

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several; with ``average=None``
        a last dimension for labels.

    Example:
        >>> metric = LabelPrecision(num_labels=3, k=2)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([0, 1]))
        >>> metric.compute().item()
        0.3333333333333333
    """

    _score = "precision"

    def __init__(
        self,
        num_labels: int,
        k: int | Sequence[int] | None = 10,
        *,
        average: LabelAverage | None = "macro",
        labels: Labels = "all",
        zero_division: ZeroDivision = 0.0,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(num_labels, k, average=average, labels=labels, zero_division=zero_division, kwargs=kwargs)


class LabelRecall(_LabelScore):
    r"""Recall of labels: of the rows that hold a label, the share whose first k places name it.

    .. math:: R_l@k = \frac{TP_l}{TP_l + FN_l}

    Where each row holds one label, the macro average with ``zero_division=nan`` is balanced top-k accuracy.

    Args:
        num_labels: How many labels there are.
        k: The cut-off, several, or None for the whole list.
        average: As in `LabelPrecision`.
        labels: As in `LabelPrecision`.
        zero_division: What a label that no row holds counts, as in `LabelPrecision`.
        kwargs: As in `LabelPrecision`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several; with ``average=None``
        a last dimension for labels.

    Example:
        >>> metric = LabelRecall(num_labels=3, k=2, zero_division=float("nan"))
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([0, 1]))
        >>> metric.compute().item()
        1.0
    """

    _score = "recall"

    def __init__(
        self,
        num_labels: int,
        k: int | Sequence[int] | None = 10,
        *,
        average: LabelAverage | None = "macro",
        labels: Labels = "all",
        zero_division: ZeroDivision = 0.0,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(num_labels, k, average=average, labels=labels, zero_division=zero_division, kwargs=kwargs)


class LabelFBeta(_LabelScore):
    r"""Weighted harmonic mean of the precision and the recall of labels.

    .. math:: F_{\beta,l}@k = \frac{(1 + \beta^2)\, TP_l}{(1 + \beta^2)\, TP_l + \beta^2 FN_l + FP_l}

    Args:
        num_labels: How many labels there are.
        k: The cut-off, several, or None for the whole list.
        beta: How many times as much recall counts as precision; 1 gives F1, 0 precision.
        average: As in `LabelPrecision`: "macro" is the mean of the labels' F, not F of the mean precision and recall.
        labels: As in `LabelPrecision`.
        zero_division: What a label that no row names or holds counts, as in `LabelPrecision`.
        kwargs: As in `LabelPrecision`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several; with ``average=None``
        a last dimension for labels.

    References:
        Opitz & Burst, Macro F1 and macro F1, 2019.

    Example:
        >>> metric = LabelFBeta(num_labels=3, k=1, average="micro")
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([0, 2]))
        >>> metric.compute().item()
        0.5
    """

    _score = "f1"

    def __init__(
        self,
        num_labels: int,
        k: int | Sequence[int] | None = 10,
        *,
        beta: float = 1.0,
        average: LabelAverage | None = "macro",
        labels: Labels = "all",
        zero_division: ZeroDivision = 0.0,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(
            num_labels, k, average=average, labels=labels, zero_division=zero_division, beta=beta, kwargs=kwargs
        )


class LabelCoverage(LabelCounts):
    r"""Share of the labels that the truth holds which the first k places name rightly at least once.

    .. math:: C@k = \frac{|\{l : TP_l > 0\}|}{|\{l : TP_l + FN_l > 0\}|}

    Args:
        num_labels: How many labels there are.
        k: The cut-off, several, or None for the whole list.
        labels: "all", or a list of labels (ids, or a bool mask): the tail, for one.
        kwargs: As in `LabelPrecision`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = LabelCoverage(num_labels=3, k=1)
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([0, 2]))
        >>> metric.compute().item()
        0.5
    """

    def __init__(
        self,
        num_labels: int,
        k: int | Sequence[int] | None = 10,
        *,
        labels: Labels = "all",
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(num_labels, k, labels=labels, kwargs=kwargs)

    @override
    def result(self, totals: Totals) -> Tensor:
        asked = True if totals.asked is None else totals.asked
        held = ((totals.held > 0) & asked).sum()
        found = [((totals.at(i)[0] > 0) & asked).sum() for i in range(len(self.cutoffs))]
        values = torch.stack(found).to(totals.sums.dtype) / held
        return values[0] if self._one else values


class LabelReport(LabelCounts):
    """Precision, recall and F1 of every label at K, and scikit-learn's classification report of them.

    Counts are exact, and kept for all cut-offs from one ranking a batch. In a LightningModule,
    ``self.report.update(scores, labels)`` in ``validation_step`` and ``self.log_dict(self.report.scalars())`` at the
    epoch's end are all it takes, with ``self.report.reset()`` behind them.

    Args:
        num_labels: How many labels there are.
        k: The cut-off, several, or None for the whole list.
        target_names: The labels' names in reports: one each, in order, or a mapping from ids.
        labels: What averages and reports are about: "all" labels; those "seen" in the truth or among the deepest
            first k; or a list of labels (ids, or a bool mask), to which every average keeps, as in scikit-learn.
        groups: Named lists of labels (ids, or bool masks), such as `frequency_groups` makes: `scalars` gives the
            averages over each of them too.
        zero_division: What a ratio without a denominator counts: 0, 1, nan (left out of averages), or "warn" (0 and a
            warning); as in scikit-learn.
        kwargs: See `Policies`. A row without a true label counts all the same (``empty="zero"``), is left out ("skip")
            or is a fault ("error").

    Returns:
        ``compute()`` gives a dict of ``(len(k), num_labels)`` tensors, or ``(num_labels,)`` for an int k: "tp", "fp",
        "fn" in int64, "precision", "recall" and "f1" in float64; and "support", ``(num_labels,)``, in int64.

    Example:
        >>> report = LabelReport(num_labels=3, k=[1, 2], target_names=["cat", "dog", "owl"])
        >>> report.update(torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([0, 2]))
        >>> report.compute()["tp"].tolist()
        [[1, 0, 0], [1, 0, 0]]
        >>> {key: round(value.item(), 3) for key, value in report.scalars("micro").items()}
        {'precision@1': 0.5, 'precision@2': 0.25, 'recall@1': 0.5, 'recall@2': 0.5, 'f1@1': 0.5, 'f1@2': 0.333}
    """

    def __init__(
        self,
        num_labels: int,
        k: int | Sequence[int] | None = 10,
        *,
        target_names: Sequence[str] | Mapping[int, str] | None = None,
        labels: Labels = "all",
        groups: Mapping[str, Sequence[int] | Array] | None = None,
        zero_division: ZeroDivision = 0.0,
        **kwargs: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(num_labels, k, labels=labels, zero_division=zero_division, kwargs=kwargs)
        self.target_names = None if target_names is None else _read_names(target_names, self.num_labels)
        self.groups: dict[str, Tensor] = {}
        if groups is not None and not isinstance(groups, Mapping):
            raise TypeError(f"groups must map names to lists of labels, but is {type(groups).__name__}.")
        for name, members in (groups or {}).items():
            chosen = read_labels(members, self.num_labels, f"groups[{name!r}]")
            assert chosen is not None  # noqa: S101 - that is for a word
            self.groups[name] = mask_of(chosen, self.num_labels).to(self.device)

    @override
    def _apply(self, fn: Any, exclude_state: Sequence[str] = ()) -> Any:
        super()._apply(fn, exclude_state)
        self.groups = {name: mask.to(self.device) for name, mask in self.groups.items()}
        return self

    @override
    def result(self, totals: Totals) -> dict[str, Tensor]:
        size = (len(self.cutoffs), self.num_labels)
        result = {name: totals.counts.new_empty(size) for name in ("tp", "fp", "fn")}
        result |= {score: totals.sums.new_empty(size) for score in SCORES}
        for i in range(len(self.cutoffs)):
            right, named, held = totals.at(i)
            scores = (totals.values(score, i) for score in SCORES)
            for table, part in zip(result.values(), (right, named - right, held - right, *scores), strict=True):
                table[i] = part
        if self._one:
            result = {name: table[0] for name, table in result.items()}
        return {**result, "support": totals.held.clone()}

    @override
    def warn(self, totals: Totals) -> None:
        totals.warn(SCORES, None, stacklevel=5)

    def scalars(
        self, average: LabelAverage = "macro", *, prefix: str = "", postfix: str = "", at: str = "@"
    ) -> dict[str, Tensor]:
        """Return averages of precision, recall and F1 at each cut-off: what ``log_dict`` takes.

        With ``groups``, the averages over each of them stand beside: "recall@5/tail". Under DDP this is a collective
        operation, unless compute() has just been called on all ranks.

        Args:
            average: "macro", "weighted", "micro" or "samples" (which groups, being parts of rows, do without).
            prefix: Put before each key.
            postfix: Put after each key.
            at: Put between name and cut-off.
        """
        read_choice("average", average, AVERAGES)
        totals = self.totals()
        totals.warn(SCORES, average, stacklevel=2)
        return {
            f"{prefix}{name}{'' if k is None else f'{at}{k}'}{group}{postfix}": value
            for (name, k, group), value in self._means(totals, average).items()
        }

    def _means(self, totals: Totals, average: LabelAverage) -> dict[tuple[str, int | None, str], Tensor]:
        """The averages by score, cut-off and group."""
        asked, found = totals.asked, {}
        over = {"": asked}
        if average != "samples":
            over |= {f"/{name}": mask if asked is None else mask & asked for name, mask in self.groups.items()}
        for group, mask in over.items():
            for score in SCORES:
                values = totals.averages(score, average, mask)
                for k, value in zip(self.cutoffs, values, strict=True):
                    found[score, k, group] = value
        return found

    @override
    def plot(
        self,
        val: Any = None,
        ax: Any = None,
        *,
        kind: Literal["curve", "heatmap", "bars"] = "curve",
        average: LabelAverage = "macro",
        score: Literal["precision", "recall", "f1"] = "f1",
        limit: int = MOST_DRAWN,
    ) -> Any:
        """Draw averages over K, a heat map of labels over K, or bars of each label at the deepest K.

        Args:
            val: A result of `scalars`, or a list of them, which are drawn over steps; None: what was counted.
            ax: Matplotlib axes to draw on; None makes a figure.
            kind: "curve": precision, recall and F1 over K; "heatmap": a score of each label at each K; "bars": what
                `report` draws, for the deepest K.
            average: Of the curve.
            score: Of the heat map.
            limit: How many labels are drawn at most: those with the most rows.

        Returns:
            The figure (None where axes were given) and the axes.
        """
        from torch_topk import plot

        read_choice("kind", kind, ("curve", "heatmap", "bars"))
        read_choice("score", score, SCORES)
        given = [] if val is None else list(val) if isinstance(val, (list, tuple)) else [val]
        if given and (kind != "curve" or not all(map(_is_flat, given))):
            raise ValueError("val must be what scalars() returned, or a list of such, and kind='curve'; or None.")
        if isinstance(val, (list, tuple)):
            lines = {key: torch.stack([step[key] for step in val]) for key in val[0]}
            return plot.steps(lines, bounds=(0.0, 1.0), ax=ax)
        if kind == "curve":
            read_choice("average", average, AVERAGES)
            averages = torch.stack([*(self._means(self.totals(), average) if val is None else val).values()])
            curves = averages[: len(SCORES) * len(self.cutoffs)].view(len(SCORES), -1)
            names = {name: (self.cutoffs, values) for name, values in zip(SCORES, curves, strict=True)}
            return plot.curves(names, bounds=(0.0, 1.0), ax=ax)
        deepest = self.cutoffs[0] if self.depth is None else self.depth
        if kind == "bars":
            sort: Literal["label", "support"] = "label" if self.num_labels <= limit else "support"
            return self._report(self.totals(), self.cutoffs.index(deepest), sort, limit, digits=2).plot(ax)
        totals = self.totals()
        shown = self._shown(totals)
        most = shown
        if len(shown) > limit:
            held = totals.held.tolist()
            kept = set(sorted(shown, key=lambda label: -held[label])[:limit])
            most = [label for label in shown if label in kept]
        values = torch.stack([totals.values(score, i)[most] for i in range(len(self.cutoffs))])
        names_of = self.target_names or range(self.num_labels)
        labels = [str(names_of[label]) for label in most]
        return plot.heatmap(values, self.cutoffs, labels, label=score, more=len(shown) - len(most), ax=ax)

    def _shown(self, totals: Totals) -> Sequence[int]:
        """The labels asked for, in order."""
        if not isinstance(self.labels, str):
            listed: list[int] = self.labels
            return listed
        return totals.seen.nonzero()[:, 0].tolist() if self.labels == "seen" else range(self.num_labels)

    def report(
        self,
        k: int | None = None,
        *,
        sort: Literal["label", "worst", "best", "support"] = "label",
        limit: int | None = None,
        digits: int = 2,
    ) -> Report:
        """Return scikit-learn's classification report at one cut-off: print it, or take its `to_dict` or `plot`.

        Its averages are those over the labels asked for, taken before anything is rounded. Where every row came with
        one label and was given one, the micro average is called accuracy, as in scikit-learn.

        Args:
            k: One of the cut-offs; it may be left out where there is but one.
            sort: In which order labels are shown: as given, the "worst" or "best" F1 first, or the most rows first.
            limit: How many labels are shown at most.
            digits: How many decimals are shown.

        Raises:
            ValueError: For a k that is none of the cut-offs.
        """
        place = 0 if k is None and len(self.cutoffs) == 1 else None
        if not isinstance(k, bool) and k in self.cutoffs:
            place = self.cutoffs.index(k)
        if place is None:
            known = ", ".join(map(str, self.cutoffs))
            raise ValueError(
                f"k must be one of the cut-offs, {known}, but is {k!r}: report(k={self.cutoffs[0]}), for one."
            )
        totals = self.totals()
        totals.warn(SCORES, None, stacklevel=2, place=place)
        return self._report(totals, place, sort, limit, digits)

    def _report(self, totals: Totals, place: int, sort: str, limit: int | None, digits: int) -> Report:
        held = totals.held
        labels, names = self._shown(totals), self.target_names or range(self.num_labels)
        shown = slice(None) if isinstance(labels, range) else labels  # all of a million are not listed
        scores = [totals.values(score, place)[shown] for score in SCORES]
        return Report(
            names if isinstance(shown, slice) else [names[label] for label in shown],
            scores[0],
            scores[1],
            scores[2],
            held[shown].clone(),
            self._averages(totals, place),
            k=self.cutoffs[place],
            digits=digits,
            sort=sort,
            limit=limit,
        )

    def _averages(self, totals: Totals, place: int) -> dict[str, tuple[float, float, float, int]]:
        """The last rows of scikit-learn's report."""
        (_, named, held), asked = totals.at(place), totals.asked
        # With a label a row, and one named, data are multi-class: the micro average of all labels seen is the accuracy.
        classes = self.cutoffs[place] == 1 and bool((totals.single == totals.rows) & (named.sum() == totals.rows))
        whole = asked is None or not bool((totals.seen & ~asked).any())
        rows = {
            "micro": "accuracy" if classes and whole else "micro avg",
            "macro": "macro avg",
            "weighted": "weighted avg",
        }
        if not classes:
            rows["samples"] = "samples avg"
        support = int((held if asked is None else held * asked).sum())
        found = {}
        for average, name in rows.items():
            precision, recall, f1 = (totals.averages(score, average, asked)[place].item() for score in SCORES)
            found[name] = precision, recall, f1, support
        return found


def frequency_groups(
    counts: Array, *, edges: Sequence[float] = (10, 100), names: Sequence[str] = ("tail", "torso", "head")
) -> dict[str, Tensor]:
    """Part labels by how often each occurs in training: the ``groups`` of a `LabelReport`.

    Args:
        counts: ``(num_labels,)``: the rows of the training set that hold each label.
        edges: From which counts on the next group begins, ascending.
        names: What the groups are called, the rarest first: one more than edges.

    Returns:
        A bool mask ``(num_labels,)`` for each name. What is too rare for training to have seen is of the first.

    Raises:
        ValueError: For edges that do not ascend, or another number of names.

    Example:
        >>> groups = frequency_groups(torch.tensor([500, 3, 40]))
        >>> {name: mask.tolist() for name, mask in groups.items()}
        {'tail': [False, True, False], 'torso': [False, False, True], 'head': [True, False, False]}
    """
    occurrences = read_occurrences(counts)
    if sorted(set(edges)) != list(edges) or len(set(names)) != len(edges) + 1:
        raise ValueError(
            f"edges must ascend, and names be one more than they, all different, but are {tuple(edges)} and "
            f"{tuple(names)}."
        )
    limits = (float("-inf"), *edges, float("inf"))
    return {
        name: (occurrences >= low) & (occurrences < high)
        for name, low, high in zip(names, limits[:-1], limits[1:], strict=True)
    }


def read_occurrences(counts: Array) -> Tensor:
    """How often each label occurs, float64 ``(num_labels,)`` on the CPU; a ValueError for what is no count."""
    numbers = as_tensor("counts", counts).cpu()
    if numbers.dim() != 1 or numbers.is_complex():
        hint = " Pass counts.ravel()." if max(numbers.shape, default=0) == numbers.numel() else ""
        raise ValueError(f"counts must be (num_labels,) numbers, but are {numbers.dtype} {tuple(numbers.shape)}.{hint}")
    numbers = numbers.double()
    wrong = ~((numbers >= 0) & numbers.isfinite())
    if bool(wrong.any()):
        raise ValueError(f"counts must be finite and at least 0, but one is {float(numbers[wrong][0])}.")
    return numbers


class TopKAccuracy(HitRate, name="top_k_accuracy", aliases=("accuracy",), expected=True):
    r"""Share of the rows whose label stands among the first k: `HitRate` by its name in classification.

    .. math:: \mathrm{Acc}@k = [\,y \in \{i_1, \dots, i_k\}\,]

    A row of several labels counts where one of them is found. For the mean over classes, balanced accuracy, see
    `LabelRecall`.

    Args:
        k: The cut-off, several, or None for the whole list.
        kwargs: See `Policies`.

    Returns:
        Values in [0, 1], higher is better: a scalar for an int k, ``(len(k),)`` for several.

    Example:
        >>> metric = TopKAccuracy(k=[1, 2])
        >>> metric.update(torch.tensor([[0.9, 0.5, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([1, 1]))
        >>> metric.compute().tolist()
        [0.5, 1.0]
    """


def _read_names(names: Any, num_labels: int) -> list[str]:
    """A name for each label, in order."""
    if isinstance(names, Mapping):
        lacking = [label for label in range(num_labels) if label not in names]
        if lacking:
            raise ValueError(f"target_names must name each of the {num_labels} labels, but lack {lacking[0]}.")
        names = [names[label] for label in range(num_labels)]
    if isinstance(names, str) or len(names) != num_labels:
        raise ValueError(f"target_names must be a name for each of the {num_labels} labels, but are {len(names)}.")
    return [str(name) for name in names]


def _is_flat(step: Any) -> bool:
    return isinstance(step, Mapping) and all(isinstance(value, Tensor) and value.dim() == 0 for value in step.values())
