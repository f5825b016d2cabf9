"""Write docs/metrics.md from the registry: `python docs/build.py`. A test holds the page to what this would write."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch_topk as tt
from torch_topk.metric import options_of

PAGE = Path(__file__).with_name("metrics.md")
HEAD = """# Metrics

Written by `docs/build.py` from the classes. Every metric takes `k` (an int, several, or None for the whole list), its
own options, and the [policies](conventions.md) that all share; `tt.functional` has a function of the same name that
gives each query's own value. Names are read in any case, with a cut-off (`"ndcg@10"`), several (`"ndcg@5,10"`), or
options (`"P(rel=2)@5"`); trec_eval's spellings (`"ndcg_cut_10"`, `"P_5"`) are read too.

| class | names | range | options and their defaults |
|---|---|---|---|
"""


def row(cls: type[tt.TopKMetric]) -> str:
    """The metric's line in the table."""
    parameters = inspect.signature(cls).parameters
    options = ", ".join(f"`{name}={parameters[name].default!r}`" for name in options_of(cls))
    names = ", ".join(f"`{name}`" for name in (cls.name, *cls.aliases))
    low, high = (f"{bound:g}".replace("inf", "∞") for bound in cls.bounds)
    return f"| `{cls.__name__}` | {names} | {low} to {high} | {options} |\n"


def section(cls: type[tt.TopKMetric]) -> str:
    """The metric's docstring as a section: its formula as mathematics, its example as code that a test runs."""
    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    out: list[str] = [f"## {cls.__name__}", ""]
    in_example = False
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(".. math::"):
            out += ["$$", stripped.removeprefix(".. math::").strip(), "$$"]
        elif stripped in {"Args:", "Returns:", "References:", "Example:"}:
            in_example = stripped == "Example:"
            out += [f"**{stripped[:-1]}**", ""] + (["```pycon"] if in_example else [])
        elif in_example:
            out.append(stripped)
        elif line.startswith("    ") and not line.startswith("     ") and ": " in stripped and out[-1] != "$$":
            name, _, text = stripped.partition(": ")
            out.append(f"- `{name}`: {text}" if name.replace("_", "").isalnum() else stripped)
        else:
            out.append(line if not line.startswith(" ") else "  " + stripped if out[-1][:1] in "- " else stripped)
    return "\n".join([*out, *(["```"] if in_example else [])]) + "\n"


def page() -> str:
    """The whole page."""
    metrics = list(tt.registry.values())
    example_head = "The examples share these imports:\n\n```python\nimport torch\nfrom torch_topk import *\n```\n"
    return HEAD + "".join(map(row, metrics)) + "\n" + example_head + "\n" + "\n".join(map(section, metrics))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
