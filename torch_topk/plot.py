"""Pictures of values: over K as curves, over steps as lines, of labels as bars or a heatmap.

Matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

Curve: TypeAlias = tuple[Sequence[int | None], Tensor]
Band: TypeAlias = tuple[Tensor, Tensor]

# Okabe & Ito's palette, which the colour-blind can tell apart; beyond its length, markers differ too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_MOST_TICKS = 16


def curves(
    curves: Mapping[str, Curve],
    *,
    bounds: tuple[float, float],
    bands: Mapping[str, Band] | None = None,
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw values over the cut-off K, one line a name; a single value is a point.

    Args:
        curves: For each name its cut-offs (None: the whole list) and as many values.
        bounds: The possible values, which the axis stays within.
        bands: For some names, the lower and upper ends of intervals, drawn as shades.
        ax: Matplotlib axes to draw on; None makes a figure.

    Returns:
        The figure (None where axes were given) and the axes.
    """
    figure, ax = _axes(ax)
    ticks = sorted({k for cutoffs, _ in curves.values() for k in cutoffs if k is not None})
    for index, (name, (cutoffs, values)) in enumerate(curves.items()):
        places = [len(ticks) if k is None else ticks.index(k) for k in cutoffs]
        order = sorted(range(len(places)), key=places.__getitem__)  # a line runs from left to right
        places = [places[i] for i in order]
        line = _line(ax, places, values[order], index, label=name)
        if bands and name in bands:
            low, high = (_numbers(end[order]) for end in bands[name])
            ax.fill_between(places, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    labels = [str(k) for k in ticks]
    if any(None in cutoffs for cutoffs, _ in curves.values()):
        labels.append("all")
    step = -(-len(labels) // _MOST_TICKS)
    ax.set_xticks(range(0, len(labels), step), labels[::step])
    ax.set_xlabel("K")
    _finish(ax, names=list(curves))
    return _clip(figure, ax, bounds)


def against(
    name: str, cutoffs: Sequence[int | None], x: Tensor, curves: Mapping[str, Tensor], *, ax: Any = None
) -> tuple[Any, Any]:
    """Draw values over those of another metric, a point a cut-off, of which the first and the last are named.

    Args:
        name: What is drawn along the horizontal axis.
        cutoffs: The cut-offs, ascending.
        x: Its values, ``(len(cutoffs),)``.
        curves: For each other name as many values.
        ax: Matplotlib axes to draw on; None makes a figure.

    Returns:
        The figure (None where axes were given) and the axes.
    """
    figure, ax = _axes(ax)
    for index, (curve, values) in enumerate(curves.items()):
        _line(ax, _numbers(x), values, index, label=curve)
        for place in sorted({0, len(cutoffs) - 1}):
            point = (float(x[place]), float(values[place]))
            ax.annotate(f"K = {cutoffs[place]}", point, (4, 4), textcoords="offset points", fontsize="small")
    ax.set_xlabel(name)
    _finish(ax, names=list(curves))
    return figure, ax


def steps(lines: Mapping[str, Tensor], *, bounds: tuple[float, float], ax: Any = None) -> tuple[Any, Any]:
    """Draw values over steps (batches or epochs), one line a name; it takes and returns what `curves` does."""
    figure, ax = _axes(ax)
    for index, (name, values) in enumerate(lines.items()):
        _line(ax, range(len(values)), values, index, label=name)
    ax.set_xlabel("Step")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _finish(ax, names=list(lines))
    return _clip(figure, ax, bounds)


def bars(
    values: Mapping[str, Sequence[float]], names: Sequence[str], *, more: int = 0, ax: Any = None
) -> tuple[Any, Any]:
    """Draw values in [0, 1] of labels as horizontal bars, a group a label; up to 20 labels have numbers, NaN always.

    Args:
        values: For each kind of value ("precision", "recall", "F1") one number a label.
        names: What the labels are called, from the top; a long name is cut.
        more: How many labels were left out, which the picture says below the last.
        ax: Matplotlib axes to draw on; None makes a figure as high as it must be, with more than 50 labels in columns.

    Returns:
        The figure (None where axes were given) and the axes, an array of them where there are several columns.
    """
    few = len(names) <= 20
    figure, ax, panels = _label_axes(ax, names, more, width=4.5 if few else 2.5, row=0.45 if few else 0.18)
    thickness = 0.8 / len(values)
    for panel, rows, size in panels:
        for index, (kind, column) in enumerate(values.items()):
            shown = list(column[rows])
            places = [row + (index + 0.5) * thickness - 0.4 for row in range(len(shown))]
            panel.barh(places, shown, thickness, color=_COLOURS[index % len(_COLOURS)], label=kind, linewidth=0)
            for place, value in zip(places, shown, strict=True):
                if few or isnan(value):
                    end = (0 if isnan(value) else value, place)
                    style = {"va": "center_baseline", "fontsize": min(7, 4 * thickness * size), "color": "0.3"}
                    panel.annotate(f"{value:.2f}", end, (3, 0), textcoords="offset points", **style)
        panel.set_xlim(0, 1)
        panel.grid(visible=True, axis="x", alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    look: dict[str, Any] = {"ncols": len(values), "frameon": False, "fontsize": "small"}
    if figure is None:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), **look)
    else:
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", **look)
    return figure, ax


def heatmap(
    values: Tensor,
    cutoffs: Sequence[int | None],
    names: Sequence[str],
    *,
    label: str,
    more: int = 0,
    bounds: tuple[float, float] = (0.0, 1.0),
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draw a value of each label at each cut-off as colours, with numbers in the cells where they can be read.

    Args:
        values: (K, L), NaN being grey.
        cutoffs: The K cut-offs (None: the whole list), from the left.
        names: What the L labels are called, from the top; a long name is cut.
        label: What the values are, beside the scale of colours.
        more: How many labels were left out, which the picture says below the last.
        bounds: The ends of the scale.
        ax: As in `bars`.

    Returns:
        As `bars`.
    """
    ks = ["all" if k is None else str(k) for k in cutoffs]
    figure, ax, panels = _label_axes(ax, names, more, width=0.6 + 0.4 * len(ks), row=0.3 if len(names) <= 20 else 0.18)
    for panel, rows, size in panels:
        cells = values[:, rows].T.detach().cpu().numpy()
        columns, lines = ([place - 0.5 for place in range(count + 1)] for count in (len(ks), len(cells)))
        colours = {"cmap": "viridis", "vmin": bounds[0], "vmax": bounds[1]}
        mesh = panel.pcolormesh(columns, lines, cells, edgecolors="white", linewidth=0.5, **colours)
        mesh.set_cmap(mesh.cmap.with_extremes(bad="0.85"))
        if len(names) <= 50 and len(ks) <= 12:
            for (row, column), value in np.ndenumerate(cells):
                light = np.dot((0.2126, 0.7152, 0.0722), np.power(mesh.cmap(mesh.norm(value))[:3], 2.2))
                ink = "black" if light > 0.18 else "white"  # where both have one contrast, by WCAG's formula
                panel.text(column, row, f"{value:.2f}", color=ink, fontsize=size - 1, ha="center", va="center")
        panel.set_xticks(range(len(ks)), ks)
        panel.set_xlabel("K")
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    inches = panel.bbox.height / panel.figure.dpi
    panel.figure.colorbar(mesh, ax=[panel for panel, *_ in panels], label=label, aspect=8 * inches, fraction=0.1)
    return figure, ax


def _label_axes(
    ax: Any, names: Sequence[str], more: int, *, width: float, row: float
) -> tuple[Any, Any, list[tuple[Any, slice, float]]]:
    """Axes with a label a row, at 0, 1, ... downwards; the rows of each; and the size of letters that fit one."""
    lines = [name if len(name) <= 30 else f"{name[:29]}…" for name in names]
    if more:
        lines.append(f"… {more} more label{'s' * (more > 1)}")
    columns = min(4, 1 + max(0, len(lines) - 1) // 50) if ax is None else 1
    rows = max(1, -(-len(lines) // columns))
    width += 0.075 * max(map(len, lines), default=0)
    figure, ax = _axes(ax, ncols=columns, figsize=(columns * width, 1 + rows * row))
    panels = []
    for index, panel in enumerate([ax] if columns == 1 else ax):
        shown = slice(index * rows, (index + 1) * rows)
        size = min(9.0, 0.75 * 72 / panel.figure.dpi * panel.bbox.height / rows)
        panel.set_yticks(range(len(lines[shown])), lines[shown], fontsize=size, parse_math=False)
        panel.tick_params(axis="y", length=0)
        panel.set_ylim(rows - 0.5, -0.5)  # the same for a last column that is not full
        panels.append((panel, shown, size))
    return figure, ax, panels


def _axes(ax: Any, **options: Any) -> tuple[Any, Any]:
    if ax is not None:
        return None, ax
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install 'torch-topk[plot]'.") from error
    return plt.subplots(layout="constrained", **options)


def _numbers(values: Tensor) -> list[float]:
    numbers: list[float] = values.detach().cpu().tolist()
    return numbers


def _line(ax: Any, places: Sequence[float], values: Tensor, index: int, label: str) -> Any:
    colour = _COLOURS[index % len(_COLOURS)]
    marker = _MARKERS[index // len(_COLOURS) % len(_MARKERS)]
    (line,) = ax.plot(places, _numbers(values), color=colour, marker=marker, markersize=5, label=label)
    return line


def _clip(figure: Any, ax: Any, bounds: tuple[float, float]) -> tuple[Any, Any]:
    """Keep bands within the possible values; given axes may be shared, and are left to scale themselves."""
    if figure is not None:
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, bounds[0] - 0.02), min(high, bounds[1] + 0.02))
    return figure, ax


def _finish(ax: Any, names: list[str]) -> None:
    ax.grid(visible=True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    if len(names) == 1:
        ax.set_ylabel(names[0])
    else:
        ax.legend(frameon=False, fontsize="small", ncols=1 + len(names) // 9)
