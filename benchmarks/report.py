"""What was measured, as a table for the terminal, a JSON file, a page and a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]

# Okabe & Ito's palette, which the colour-blind can tell apart: ours in strong colours, peers in quiet ones.
LOOK: dict[str, dict[str, Any]] = {
    "suite": {"color": "#0072B2", "marker": "o", "linewidth": 2.2},
    "tt.topk": {"color": "#D55E00", "marker": "s", "linewidth": 2.2},
    "torch.topk": {"color": "#7F7F7F", "marker": "^", "linestyle": "--"},
    "PyG + torch.topk": {"color": "#009E73", "marker": "D", "linestyle": "--"},
}
KINDS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#000000")
PANELS = {
    "items": "Time over items",
    "queries": "Time over queries",
    "K": "Time over K",
    "values": "Time over the number of values",
    "memory": "Peak memory over items",
}


def join(named: Mapping[str, str]) -> str:
    """Packages and their versions in one line."""
    return ", ".join(f"{name} {number}" for name, number in named.items())


def machine(about: Row) -> str:
    """The processor, its cores, and how many threads were used."""
    return f"{about['processor']}, {about['cores']} cores, {about['threads']} threads"


def number(figure: float | None, unit: str) -> str:
    """A figure with three digits that count, and its unit."""
    if figure is None:
        return "–"
    digits = 0 if abs(figure) >= 100 else 1 if abs(figure) >= 10 else 2
    text = f"{figure:,.{digits}f}" if figure != int(figure) else f"{figure:,.0f}"
    return text + unit


def verdict(row: Row) -> str:
    """Whether an aim was met, in a word."""
    return {True: "met", False: "**not met**", None: "–"}[row["met"]]


def plain(bars: list[Row]) -> str:
    """The table of bars, for the terminal."""
    lines = []
    for row in bars:
        cells = (number(row["figure"], row["unit"]), row["aim"], verdict(row).strip("*"))
        beside = "; ".join(part for part in (row["ours"], row["peer"]) if part)
        lines.append("{:>10}  {:10}  {:8}".format(*cells) + row["what"].replace("`", "") + f"  ({beside})")
    return "\n".join(lines)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def milliseconds(time: float) -> str:
    """A time in milliseconds, or in microseconds where it is short."""
    return number(time, " ms") if time >= 0.1 else number(1e3 * time, " µs")


def bars_table(bars: list[Row]) -> str:
    """The bars, in Markdown."""
    rows = [
        [
            number(row["figure"], row["unit"]),
            row["aim"] or "–",
            verdict(row),
            row["what"],
            row["ours"] or "–",
            row["peer"] or "–",
        ]
        for row in bars
    ]
    return table(["figure", "aim", "", "what", "ours", "peer"], rows)


def topk_table(rows: list[Row]) -> str:
    """How many times as fast as `torch.topk`, by shape and kind of scores."""
    kinds = list(dict.fromkeys(row["scores"] for row in rows))
    shapes = dict.fromkeys((row["queries"], row["items"], row["k"]) for row in sorted(rows, key=lambda row: row["k"]))
    lines = []
    for shape in shapes:
        cells = {row["scores"]: row for row in rows if (row["queries"], row["items"], row["k"]) == shape}
        lines.append(
            [f"{shape[0]:,} × {shape[1]:,}, k = {shape[2]}"]
            + [
                f"{cells[kind]['ratio']:.2f}× ({milliseconds(cells[kind]['ours_ms'])})" if kind in cells else "–"
                for kind in kinds
            ]
        )
    return table(["shape", *kinds], lines)


def suite_table(rows: list[Row]) -> str:
    """The suite's updates."""
    lines = [
        [
            f"{row['queries']:,} × {row['items']:,}, {row['scores']}",
            f"{row['ratio']:.2f}×" if "ratio" in row else "–",
            milliseconds(row["ours_ms"]),
            milliseconds(row["peer_ms"]) if "peer_ms" in row else "–",
            milliseconds(row["topk_ms"]),
            milliseconds(row["torch_topk_ms"]),
            milliseconds(row["beyond_ms"]),
            milliseconds(row["beyond_mask_ms"]),
        ]
        for row in rows
    ]
    head = [
        "scores",
        "ratio",
        "ours",
        "PyG + `torch.topk`",
        "`tt.topk`",
        "`torch.topk`",
        "beyond the top-k, ids",
        "mask",
    ]
    return table(head, lines)


def peers_table(rows: list[Row]) -> str:
    """Peers on small workloads, and those that were left out."""
    lines = []
    for row in rows:
        if "left_out" not in row:
            differs = f"{row['differs_by']:.0e}" if row["differs_by"] > 1e-9 else "0"
            cells = [
                f"{row['ratio']:,.1f}×",
                row["workload"],
                row["peer"],
                milliseconds(row["ours_ms"]),
                milliseconds(row["peer_ms"]),
            ]
            lines.append([*cells, differs])
    out = [f"`{row['peer']}` ({row['left_out']})" for row in rows if "left_out" in row]
    text = table(["ratio", "workload", "peer", "ours", "peer's", "values differ by"], lines)
    return text + (f"\nLeft out: {'; '.join(out)}.\n" if out else "")


def labels_table(rows: list[Row]) -> str:
    """Metrics of labels beside other ways to count."""
    lines = [
        [
            number(row["ratio"], "×"),
            row["workload"],
            row["ours"],
            row["peer"],
            milliseconds(row["ours_ms"]),
            milliseconds(row["peer_ms"]),
        ]
        for row in rows
    ]
    return table(["ratio", "workload", "of ours", "peer", "ours", "peer's"], lines)


def coverage_table(rows: list[Row]) -> str:
    """How often intervals hold the true value."""
    lines = [[row["setting"], *(f"{100 * row[method]:.1f} %" for method in ("t", "auto", "bootstrap"))] for row in rows]
    return table(["values", '`method="t"`', "default: Wilson of 0 and 1, else t", "1,000 resamples"], lines)


def growth_table(rows: list[Row]) -> str:
    """The fitted exponents."""
    names = list(dict.fromkeys(name for row in rows for name in row["series"]))
    lines = [
        [
            f"{row['unit']} over {row['label']}, {row['points'][0]:,} to {row['points'][-1]:,}",
            *(f"{row['exponents'][name]:.2f}" if name in row["exponents"] else "–" for name in names),
        ]
        for row in rows
    ]
    return table(["growth", *names], lines)


def memory_table(rows: list[Row]) -> str:
    """The most memory at one time."""
    lines = [[row["work"], row["shape"], number(row["bytes"] / 2**20, " MiB")] for row in rows]
    return table(["work", "shape", "peak beyond the inputs"], lines)


def gpu_section(gpu: Row | None) -> str:
    """What `benchmarks/gpu.py` found, or that it has not been run."""
    command = "```bash\npython benchmarks/gpu.py\n```\n"
    if gpu is None:
        said = "Not measured. On a machine that has one, this measures it and writes `docs/figures-gpu.json`:"
        return f"## On a GPU\n\n{said}\n\n{command}"
    checks = [[row["what"], "yes" if row["passed"] else f"**no**: {row['said']}"] for row in gpu["checks"]]
    about = f"{gpu['about']['card']}, CUDA {gpu['about']['cuda']}, {join(gpu['about']['versions'])}."
    return f"## On a GPU\n\n{about}\n\n{command}\n{bars_table(gpu['bars'])}\n{table(['check', 'holds'], checks)}"


def page(results: Row, gpu: Row | None) -> str:
    """The page of figures."""
    about = results["about"]
    full = "" if about["full"] else "**A smaller run: it judges no bar.**\n\n"
    return f"""# Figures

Written by `benchmarks/bars.py` from what it measured; [`figures.json`](figures.json) holds every number.

```bash
{about["command"]}
```

{full}{machine(about)}. {join(about["versions"])}.

All pieces of work of a comparison run in one process, once a round, in a new order each round. Times are medians; a
ratio is the median of the ratios within a round, so it may differ a little from the ratio of two medians. Scores are
drawn at random; "ascending" and "descending" are sorted rows, "small integers" are 0 to 7.

## Bars

A ratio in × is how many times as fast as the peer, unless the line says otherwise.

{bars_table(results["bars"])}
Nothing is read from the device in `update`: `tests/test_no_host_reads.py` holds it to that.

## Growth

![Time and memory over items, queries, K and values](figures.png)

The power of the size that time or memory grows with: the least-squares line through the logarithms of all points.

{growth_table(results["growth"])}
## The top-k by shape and kind of scores

How many times as fast as `torch.topk`, which keeps no order among ties, and the time of `tt.topk`.

{topk_table(results["topk"])}
## A suite's update

7 metrics at K = 1, 5, 10, 20, ten relevant items a query. The last two columns are an update with the top-k handed in.

{suite_table(results["suite"])}
## Labels

An update of scores stands beside that of TorchMetrics' collection of macro precision, recall and F1 with `top_k=5`,
which counts one of a row's five places (the right one, or else the first), so that its precision is another number.
Lists hold five ranked labels a row, and three true ones on average; each way ends with the same counts, precision,
recall and F1 of every label at K = 1, 3, 5. Ours also looks for faults and adds up each row's own values, for averages
over rows.

{labels_table(results["labels"])}
## Intervals

How often 95 % intervals hold the true value, of 2,000 simulated data sets each: the target stands at each of 20 ranks
as likely, so the true values are known. Of n queries with a share p of hits, few hits (n p below 15) are where t and
the percentiles promise too much.

{coverage_table(results["coverage"])}
## Beside peers

Update and compute, each peer in the form that it likes best, its dicts made before the clock starts. Average precision
is compared with ours of the peer's own denominator.

{peers_table(results["peers"])}
## Memory

The most that tensors made by the work hold at one time, the inputs aside.

{memory_table(results["memory"])}
{gpu_section(gpu)}"""


def picture(results: Row, path: Path) -> None:
    """Draw the growth curves, and the top-k by shape."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    with plt.rc_context(
        {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}
    ):
        figure, axes = plt.subplots(2, 3, figsize=(13, 7.6), layout="constrained")
        flat = list(axes.flat)
        for ax, row in zip(flat, results["growth"], strict=False):
            draw_growth(ax, row)
        draw_topk(flat[5], [row for row in results["topk"] if row["k"] == 10])
        about = results["about"]
        figure.supxlabel(
            f"{machine(about)}, torch {about['versions']['torch']}. In brackets: the "
            "fitted power of the size. Medians of interleaved runs.",
            fontsize=8,
            color="#555555",
        )
        figure.savefig(path, dpi=150, metadata={"Software": None})
        plt.close(figure)


def draw_growth(ax: Any, row: Row) -> None:
    """One panel of growth curves."""
    for name, figures in row["series"].items():
        look = {"markersize": 4.5, "linewidth": 1.4, **LOOK[name]}
        ax.plot(row["points"], figures, label=f"{name} ({row['exponents'][name]:.2f})", **look)
    ax.set(xscale="log", yscale="log", title=PANELS[row["over"]], xlabel=row["label"], ylabel=row["unit"])
    low, high = ax.get_ylim()
    if high < 30 * low:  # a flat curve on a wide axis shows that it is flat
        middle = (low * high) ** 0.5
        low, high = middle / 30**0.5, middle * 30**0.5
    ax.set_ylim(low, high * (high / low) ** 0.32)  # room for the legend
    ax.legend(frameon=False, fontsize=8, loc="upper left", ncols=2, columnspacing=1.0, handlelength=2.2)
    tidy(ax)


def draw_topk(ax: Any, rows: list[Row]) -> None:
    """How many times as fast as `torch.topk`, a dot for each kind of scores."""
    shapes = list(dict.fromkeys((row["queries"], row["items"]) for row in rows))
    kinds = list(dict.fromkeys(row["scores"] for row in rows))
    for index, kind in enumerate(kinds):
        chosen = [row for row in rows if row["scores"] == kind]
        lift = (index - (len(kinds) - 1) / 2) * 0.1
        places = [shapes.index((row["queries"], row["items"])) + lift for row in chosen]
        ax.plot(
            [row["ratio"] for row in chosen],
            places,
            linestyle="",
            marker="osD^vPX"[index],
            color=KINDS[index],
            markersize=6,
            label=kind,
        )
    ax.axvline(1, color="#7F7F7F", linewidth=1, linestyle="--")
    ax.set_yticks(range(len(shapes)), [f"{queries:,} × {items:,}" for queries, items in shapes])
    ax.set(xscale="log", title="tt.topk, times as fast as torch.topk, k = 10", ylim=(len(shapes) + 0.9, -0.6))
    ax.set_xlabel("times as fast (1: the same)")
    low, high = ax.get_xlim()
    marks = [mark for mark in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= mark <= high]
    ax.set_xticks(marks, [f"{mark:g}×" for mark in marks])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8, loc="lower center", ncols=3, columnspacing=1.0, handletextpad=0.2)
    tidy(ax)


def tidy(ax: Any) -> None:
    """A quiet grid, and no box."""
    ax.grid(visible=True, alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def write(results: Row, folder: Path) -> None:
    """Write figures.json, and page and picture from it."""
    folder.mkdir(parents=True, exist_ok=True)
    rounded = json.loads(json.dumps(results), parse_float=lambda text: float(f"{float(text):.4g}"))
    text = json.dumps(rounded, indent=1, ensure_ascii=False)
    (folder / "figures.json").write_text(text + "\n", encoding="utf-8")
    write_page(folder)


def write_page(folder: Path) -> None:
    """Write page and picture from figures.json, and figures-gpu.json where there is one."""
    results = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    beside = folder / "figures-gpu.json"
    gpu = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
    (folder / "figures.md").write_text(page(results, gpu), encoding="utf-8")
    if results["growth"] and results["topk"]:
        picture(results, folder / "figures.png")
