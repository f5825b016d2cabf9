"""Write docs/metrics.md and docs/systems.md: `python docs/build.py`. A test holds both to what this would write."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch

import torch_topk as tt
from torch_topk.counts import LabelCounts
from torch_topk.metric import options_of
from torch_topk.metrics import labels
from torch_topk.packed import PackedMetric

FOLDER = Path(__file__).parent
HEAD = """# Metrics

Written by `docs/build.py` from the classes. Every metric takes `k` (an int, several, or None for the whole list), its
own options, and the [policies](conventions.md) that all share; `tt.functional` has a function of the same name that
gives each query's own value, but for `coverage`, `gini` and `personalization`, which are of a whole run. Names are read
in any case, with a cut-off (`"ndcg@10"`), several (`"ndcg@5,10"`), or options (`"P(rel=2)@5"`); trec_eval's spellings
(`"ndcg_cut_10"`, `"P_5"`) are read too.

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


SYSTEMS = """# Systems

Written by `docs/build.py`, which computes every number below. `TopKMetrics(..., preset="trec_eval")` makes a suite with
a system's conventions, `print(tt.presets["trec_eval"])` says which they are, and whatever else is given goes before
them. Each preset is tested against the system itself, run on random inputs, or against values that are known of it.

## One input, every convention

Eight documents are judged, with grades 3, 2, 3, 0, 1, 2, 3 and 2. A run ranks the first six, in that order; another
query finds nothing of its one relevant document, and a third has no relevant document. Means are over the three.

"""
WHOSE = """
## Which recall@k is yours

| who says recall@k | and means | here |
|---|---|---|
| search, recommendation: trec_eval, ranx, PyG, RecBole | relevant items among the first k, over all relevant items | `recall@k` |
| BEIR's capped recall | the same, over min(k, R) | `recall(denominator=capped)@k` |
| CLIP, image-text retrieval, metric learning | is there a relevant item among the first k? | `hits@k` |
| leave-one-out recommendation, one held-out item a user | the same | `hits@k`, or `recall@k`, which is then equal |
| knowledge graphs (Hits@k) | is the one right entity among the first k, filtered? | `hits@k` with `exclude=`, or `evaluate_links` |
| classification (top-k accuracy) | is the one right label among the first k? | `top_k_accuracy@k` |
| multi-label classification | of each label: right namings over rows that hold it | `LabelRecall`, `LabelReport` |
| pooled over queries | all hits over all relevant items | `recall(average=micro)@k` |
| every relevant item, or nothing | are all among the first k? | `full_recall@k` |

## Ties, on one input

Five documents with one score, of which the first by id, or the last, is relevant; nDCG@5.

"""
SHOWN = ["precision", "recall", "hits", "map", "ndcg"]


def systems() -> str:
    """The page of systems."""
    truth = tt.Relevance.from_ids(
        torch.stack([torch.arange(8), torch.tensor([9, *[-1] * 7]), torch.full((8,), -1)]),
        gains=torch.tensor([[3, 2, 3, 0, 1, 2, 3, 2], [1] * 8, [0] * 8]),
    )
    runs = tt.Ranking.from_ids(torch.arange(6).expand(3, -1), truth)
    rows, notes = [], []
    for name, preset in tt.presets.items():
        suite = tt.TopKMetrics(SHOWN, k=[5, 10], preset=name)
        suite.update(runs)
        values = [f"{value:.4f}" for value in suite.compute().values()]
        if name == "sklearn":  # which has no other of these
            values[:-2] = ["–"] * (len(values) - 2)
        rows.append(f"| `{name}` | {' | '.join(values)} |\n")
        system, *lines = str(preset).splitlines()
        said = "\n".join(line.removeprefix("  ") for line in lines)
        notes.append(f"**`{name}`**: {system}\n\n```text\n{said}\n```\n\n")
    head = "| preset | " + " | ".join(f"{name}@{k}" for name in SHOWN for k in (5, 10)) + " |\n"
    ties = ["| `ties` | first | last |\n|---|---|---|\n"]
    scores = torch.zeros(2, 5)
    for rule in ("index", "reverse", "optimistic", "pessimistic", "expected"):
        first, last = tt.functional.ndcg(scores, torch.tensor([0, 4]), k=5, ties=rule).tolist()
        ties.append(f"| `{rule!r}` | {first:.4f} | {last:.4f} |\n")
    rule = "|---" * (2 * len(SHOWN) + 1) + "|\n"
    parts = [SYSTEMS, head, rule, *rows, "\n## What each stands for\n\n", *notes]
    return "".join(parts).rstrip() + "\n" + WHOSE + "".join(ties)


PAGES = {"metrics.md": page, "systems.md": systems}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")
