"""The report of labels at one cut-off, as scikit-learn's `classification_report` lays it out. It computes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_topk.inputs import Array, read_choice

_Row: TypeAlias = tuple[str, float, float, float, int]

_COLUMNS = ("precision", "recall", "f1-score", "support")
_ORDERS = ("label", "worst", "best", "support")

# More would flood a prompt that shows a result nobody asked to print, as pandas has it; more is no picture.
_MOST_SHOWN = 60
_MOST_DRAWN = 200

# What Markdown would read as markup inside a cell of a table. An underscore within a word is none.
_MARKDOWN = re.compile(r"[\\`*\[<|~$]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Precision, recall, F1 and support of L labels at one cut-off, and their averages.

    ``print(report)`` gives scikit-learn 1.9's `classification_report` to the letter. The prints and pictures follow
    ``sort``, ``limit`` and ``digits``; `to_dict` and `to_pandas` hold every label in its place, unrounded. Another
    view of the same values is ``dataclasses.replace(report, sort="worst", limit=20)``.

    Args:
        names: What each label is called, (L,); printed as ``str``, and only those shown, so a ``range`` costs nothing.
        precision: In [0, 1] or NaN, (L,), as `recall` and `f1`.
        recall: As `precision`.
        f1: As `precision`.
        support: The number of rows that hold each label, (L,).
        averages: From "accuracy", "micro avg", "macro avg", "weighted avg" and "samples avg", in the order they are
            printed, to precision, recall, F1 and support; for "accuracy" the first three are the accuracy.
        k: The cut-off, which the picture names; None for the whole list.
        digits: How many decimals are printed.
        sort: The order that labels are shown in: "label" (as given), "worst" or "best" (by F1, undefined ones last;
            of equal ones those with the most rows first) or "support" (the most rows first).
        limit: How many labels are shown at most; one line counts the others. None: all of them, but for the
            interactive display (60) and the picture (200).

    Raises:
        ValueError: Where an array has not a value for each name, ``sort`` is unknown, or ``digits`` or ``limit`` is
            negative.

    Example:
        >>> print(
        ...     Report(
        ...         names=["cat", "dog"],
        ...         precision=np.array([0.5, 1.0]),
        ...         recall=np.array([1.0, 0.5]),
        ...         f1=np.array([2 / 3, 2 / 3]),
        ...         support=np.array([1, 2]),
        ...         averages={"accuracy": (2 / 3, 2 / 3, 2 / 3, 3), "macro avg": (0.75, 0.75, 2 / 3, 3)},
        ...     )
        ... )
                      precision    recall  f1-score   support
        <BLANKLINE>
                 cat       0.50      1.00      0.67         1
                 dog       1.00      0.50      0.67         2
        <BLANKLINE>
            accuracy                           0.67         3
           macro avg       0.75      0.75      0.67         3
        <BLANKLINE>
    """

    names: Sequence[object]
    precision: Array
    recall: Array
    f1: Array
    support: Array
    averages: Mapping[str, tuple[float, float, float, int]]
    k: int | None = None
    digits: int = 2
    sort: str = "label"
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("precision", "recall", "f1", "support"):
            shape = tuple(getattr(self, name).shape)
            if shape != (len(self.names),):
                raise ValueError(
                    f"{name} must hold one value for each of the {len(self.names)} names, but its shape is {shape}."
                )
        read_choice("sort", self.sort, _ORDERS)
        for name in ("digits", "limit"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name} must be an int, but is {value!r}.")
        if self.digits < 0:
            raise ValueError(f"digits must be at least 0, but is {self.digits}.")
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"limit must be at least 0, or None for all labels, but is {self.limit}.")

    def __str__(self) -> str:
        return self._text(self.limit)

    def __repr__(self) -> str:
        return self._text(_MOST_SHOWN if self.limit is None else self.limit).rstrip("\n")

    def _repr_html_(self) -> str | None:
        """A table for notebooks, which show the text where tabulate is missing."""
        try:
            return self._table("html", _MOST_SHOWN if self.limit is None else self.limit)
        except ImportError:
            return None

    def to_dict(self) -> dict[str, dict[str, float] | float]:
        """All values, unrounded, under the keys of scikit-learn's ``output_dict=True``.

        Returns:
            For each label and average ``{"precision": ..., "recall": ..., "f1-score": ..., "support": ...}``, all of
            them floats; for "accuracy" one float.

        Raises:
            ValueError: Where two labels have one name, or a label that of an average: one would replace the other.
        """
        report: dict[str, dict[str, float] | float] = {}
        for name, values in self._all():
            if name in report:
                raise ValueError(
                    f"Two rows of the report are called {name!r}, and a dict holds a name once: rename the label, or "
                    f"use to_pandas()."
                )
            report[name] = dict(zip(_COLUMNS, map(float, values), strict=True))
        if "accuracy" in self.averages:
            report["accuracy"] = float(self.averages["accuracy"][0])
        return report

    def to_pandas(self) -> Any:
        """All values, unrounded, as a DataFrame: a row a label, then the averages. Needs pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install 'torch-topk[report]'.") from error
        names, values = zip(*self._all(), strict=True)
        return pd.DataFrame(list(values), index=list(names), columns=list(_COLUMNS))

    def to_markdown(self) -> str:
        """The printed report as a table in Markdown (GitHub's, Pandoc's). Needs tabulate."""
        return self._table("pipe", self.limit, escape=lambda name: _MARKDOWN.sub(r"\\\g<0>", name))

    def to_latex(self) -> str:
        r"""The printed report as a LaTeX ``tabular``; the document needs ``\usepackage{booktabs}``. Needs tabulate."""
        text = self._table("latex_booktabs", self.limit)
        text = re.sub(r"^( *)([\[*])", r"\1{\2}", text, flags=re.MULTILINE)  # \\ and \midrule would take it for theirs
        return re.sub(r"-(?=-)", "-{}", text).replace("|", r"\textbar{}")  # both are other glyphs in LaTeX's old fonts

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw precision, recall and F1 as horizontal bars, a group a label; more than 50 labels stand in columns.

        Args:
            ax: Matplotlib axes to draw all of it on; None makes a figure that is high enough to read.

        Returns:
            The figure (None where axes were given) and the axes (an array of them where there are several columns).
        """
        from torch_topk import plot

        order = self._order(self.sort)[: _MOST_DRAWN if self.limit is None else self.limit]
        names, *columns, _ = zip(*self._rows(order), strict=True) if len(order) else ((),) * 5
        at = "" if self.k is None else f"@{self.k}"
        values = {name + at: column for name, column in zip(("precision", "recall", "F1"), columns, strict=True)}
        return plot.bars(values, names, more=len(self.names) - len(order), ax=ax)

    def _order(self, sort: str) -> NDArray[np.intp]:
        f1, support = _numpy(self.f1), _numpy(self.support)
        if sort == "label":
            return np.arange(len(f1))
        if sort == "support":
            return np.argsort(-support, kind="stable")
        return np.lexsort((-support, f1 if sort == "worst" else -f1))

    def _rows(self, order: NDArray[np.intp]) -> list[_Row]:
        columns = (_numpy(column)[order].tolist() for column in (self.precision, self.recall, self.f1, self.support))
        return list(zip([str(self.names[index]) for index in order.tolist()], *columns, strict=True))

    def _all(self) -> Iterator[tuple[str, Sequence[float]]]:
        for name, *values in self._rows(self._order("label")):
            yield name, values
        yield from self.averages.items()

    def _cells(self, limit: int | None) -> tuple[list[list[str]], list[list[str]]]:
        """What is printed of the labels that are shown, then of the averages."""
        order = self._order(self.sort)[:limit]
        labels = [self._printed(*row) for row in self._rows(order)]
        if more := len(self.names) - len(order):
            labels.append([f"… {more} more label{'s' * (more > 1)}", "", "", "", ""])
        averages = [self._printed(name, *values) for name, values in self.averages.items()]
        for row in averages:
            if row[0] == "accuracy":
                row[1:3] = "", ""
        return labels, averages

    def _printed(self, name: str, precision: float, recall: float, f1: float, support: int) -> list[str]:
        return [name, *(f"{value:.{self.digits}f}" for value in (precision, recall, f1)), str(support)]

    def _text(self, limit: int | None) -> str:
        labels, averages = self._cells(limit)
        # The line that counts the others has empty cells to run on into.
        width = max(len("weighted avg"), self.digits, *(len(name) for name, precision, *_ in labels if precision))
        blocks = [[["", *_COLUMNS]], labels, averages]
        return "\n".join("".join(_line(row, width) for row in block) for block in blocks)

    def _table(self, style: str, limit: int | None, escape: Callable[[str], str] = str) -> str:
        try:
            from tabulate import SEPARATING_LINE, tabulate
        except ImportError as error:
            raise ImportError("Tables need tabulate: pip install 'torch-topk[report]'.") from error
        labels, averages = self._cells(limit)
        rows: list[Any] = [[escape(" ".join(name.split())), *cells] for name, *cells in (*labels, *averages)]
        if style == "latex_booktabs":
            rows.insert(len(labels), SEPARATING_LINE)
        align = ("left", *["right"] * len(_COLUMNS))
        table: str = tabulate(rows, headers=["", *_COLUMNS], tablefmt=style, colalign=align, disable_numparse=True)
        return table


def _line(row: list[str], width: int) -> str:
    name, *cells = row
    return (f"{name:>{width}} " + "".join(f" {cell:>9}" for cell in cells)).rstrip() + "\n"


def _numpy(values: Array) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
