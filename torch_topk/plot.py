"""Pictures of values: over K as curves, over steps as lines. Matplotlib is imported when something is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor

Curve: TypeAlias = tuple[Sequence[int | None], Tensor]
Band: TypeAlias = tuple[Tensor, Tensor]

# Okabe & Ito's palette, which the colour-blind can tell apart; beyond its length, markers differ too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"


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
        line = _line(ax, places, values, index, label=name)
        if bands and name in bands:
            low, high = (_numbers(end) for end in bands[name])
            ax.fill_between(places, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    labels = [str(k) for k in ticks]
    if any(None in cutoffs for cutoffs, _ in curves.values()):
        labels.append("all")
    ax.set_xticks(range(len(labels)), labels)
    ax.set_xlabel("K")
    _finish(ax, names=list(curves))
    return _clip(figure, ax, bounds)


def steps(lines: Mapping[str, Tensor], *, bounds: tuple[float, float], ax: Any = None) -> tuple[Any, Any]:
    """Draw values over steps (batches or epochs), one line a name; it takes and returns what `curves` does."""
    figure, ax = _axes(ax)
    for index, (name, values) in enumerate(lines.items()):
        _line(ax, range(len(values)), values, index, label=name)
    ax.set_xlabel("Step")
    ax.xaxis.get_major_locator().set_params(integer=True)
    _finish(ax, names=list(lines))
    return _clip(figure, ax, bounds)


def _axes(ax: Any) -> tuple[Any, Any]:
    if ax is not None:
        return None, ax
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError("plot() needs matplotlib: pip install 'torch-topk[plot]'.") from error
    return plt.subplots(layout="constrained")


def _numbers(values: Tensor) -> list[float]:
    numbers: list[float] = values.detach().cpu().tolist()
    return numbers


def _line(ax: Any, places: Sequence[int], values: Tensor, index: int, label: str) -> Any:
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
