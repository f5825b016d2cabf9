"""Write docs/metrics.md from the classes: `python docs/build.py`. A test holds the page to what this would write."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch_topk as tt
from torch_topk.counts import LabelCounts
from torch_topk.metric import options_of
from torch_topk.metrics import labels
from torch_topk.packed import PackedMetric

PAGE = Path(__file__).with_name("metrics.md")
HEAD = """# Metrics

Written by `docs/build.py` from the classes. Every metric takes `k` (an int, several, or None for the whole list), its
own options, and the [policies](conventions.md) that all share; `tt.functional` has a function of the same name that
gives each query's own value. Names are read in any case, with a cut-off (`"ndcg@10"`), several (`"ndcg@5,10"`), or
options (`"P(rel=2)@5"`); trec_eval's spellings (`"ndcg_cut_10"`, `"P_5"`) are read too.

| class | names | range | options and their defaults |
|---|---|---|---|
"""
LABELS = """
**Labels.** Of each label, these count in how many rows the first k places name it, and how often rightly. They take
`num_labels` before `k`, and the same policies; a row has no value of its own in them, so they have no function, and no
name in a suite.

| class | options and their defaults |
|---|---|
"""
EXAMPLES = """
The examples share these imports:

```python
import torch
from torch_topk import *
```

"""
HEADINGS = {"Args:", "Returns:", "Raises:", "References:", "Example:"}


def label_metrics() -> list[type[LabelCounts]]:
    """The classes that count labels, in the order of their module."""
    own = [value for name, value in vars(labels).items() if not name.startswith("_") and inspect.isclass(value)]
    return [cls for cls in own if issubclass(cls, LabelCounts) and cls.__module__ == labels.__name__]


def options(cls: type[PackedMetric]) -> str:
    """A metric's own options with their defaults; by its name alone, one that has none."""
    defaults = {name: inspect.signature(cls).parameters[name].default for name in options_of(cls)}
    return ", ".join(f"`{name}`" if value is None else f"`{name}={value!r}`" for name, value in defaults.items())


def row(cls: type[tt.TopKMetric]) -> str:
    """The metric's line in the table."""
    names = ", ".join(f"`{name}`" for name in (cls.name, *cls.aliases))
    low, high = (f"{bound:g}".replace("inf", "∞") for bound in cls.bounds)
    return f"| `{cls.__name__}` | {names} | {low} to {high} | {options(cls)} |\n"


def section(cls: type[PackedMetric]) -> str:
    """The metric's docstring as a section: its formula as mathematics, its example as code that a test runs."""
    out, block = [f"## {cls.__name__}", ""], ""
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        text = line.strip()
        if text.startswith(".. math::"):
            block, first = "math", text.removeprefix(".. math::").strip()
            out += ["$$", first] if first else ["$$"]
        elif block == "math" and not text:
            block, out = "", [*out, "$$", ""]
        elif text in HEADINGS:
            block, out = text, [*out, f"**{text[:-1]}**", ""]
            out += ["```pycon"] if text == "Example:" else []
        elif block == "Example:":
            out.append(line[4:])
        elif block in {"Args:", "Raises:"} and text:
            names, _, said = text.partition(": ")
            new = not line.startswith(" " * 5)
            out.append(f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {said}" if new else f"  {text}")
        else:
            out.append(text)
    return "\n".join([*out, *(["```"] if block == "Example:" else [])]) + "\n"


def page() -> str:
    """The whole page."""
    metrics, of_labels = list(tt.registry.values()), label_metrics()
    tables = [HEAD, *map(row, metrics), LABELS, *(f"| `{cls.__name__}` | {options(cls)} |\n" for cls in of_labels)]
    return "".join(tables) + EXAMPLES + "\n".join(map(section, [*metrics, *of_labels]))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
