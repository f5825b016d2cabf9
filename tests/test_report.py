"""The report of labels: its layout beside scikit-learn's own, what is shown of many labels, tables and pictures."""

import re
import sys
import time
from dataclasses import replace
from html import unescape
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from markdown_it import MarkdownIt
from matplotlib import colors
from matplotlib import pyplot as plt
from sklearn.metrics import classification_report, precision_recall_fscore_support

from torch_topk import plot
from torch_topk.report import Report

NAN = float("nan")
AWKWARD = [
    *("a|b", "_under_score_", "snake_case", "*star*", "`code`", "<b>&amp;", "[x](y)"),
    *("R & D", "50% of $5 #1 {~^}\\", "x--y", "two\nlines", "~~no~~"),
]


def single_label(seed: int = 0, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes - 1, 60)  # the last class is never true
    return truth, np.where(
        random.random(60) < 0.6, truth, random.integers(1, classes, 60)
    )  # the first rarely predicted


def multi_label(seed: int = 0, labels: int = 5) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    truth, predicted = random.random((2, 40, labels)) < 0.3
    truth[:, 1] = predicted[:, 1] = False  # never true nor predicted: undefined in every way
    predicted[:, 2] = False
    return truth.astype(int), predicted.astype(int)


def report_of(truth: np.ndarray, predicted: np.ndarray, names: list[str], zero_division: float, **options) -> Report:
    def values(average):
        return precision_recall_fscore_support(truth, predicted, average=average, zero_division=zero_division)

    *columns, support = values(None)
    kinds = ("micro", "macro", "weighted", "samples") if truth.ndim == 2 else ("micro", "macro", "weighted")
    averages = {f"{kind} avg": (*map(np.float64, values(kind)[:3]), int(support.sum())) for kind in kinds}
    if truth.ndim == 1:
        averages = {("accuracy" if name == "micro avg" else name): row for name, row in averages.items()}
    return Report(names, *columns, support, averages, **options)


def made(labels: int, **options) -> Report:
    random = np.random.default_rng(0)
    columns = (*random.random((3, labels)), random.integers(1, 1000, labels))
    return Report([f"label {index}" for index in range(labels)], *columns, {"micro avg": (0.1, 0.2, 0.3, 9)}, **options)


SKLEARN_NAMES = [
    ["a", "b", "c", "d", "e"],
    ["cat", "a name that is longer than any heading", "", "naïve", "weighted avg."],
]


@pytest.mark.parametrize("data", [single_label, multi_label])
@pytest.mark.parametrize("names", SKLEARN_NAMES)
@pytest.mark.parametrize("digits", [0, 2, 4, 14])
@pytest.mark.parametrize("zero_division", [0, 1, NAN])
def test_text_is_scikit_learns(data, names, digits, zero_division):
    truth, predicted = data()
    expected = classification_report(truth, predicted, target_names=names, digits=digits, zero_division=zero_division)
    report = report_of(truth, predicted, names, zero_division, digits=digits)
    assert str(report) == expected
    assert repr(report) == expected.rstrip("\n")
    assert ("nan" in expected) == np.isnan(zero_division)


@pytest.mark.parametrize("data", [single_label, multi_label])
@pytest.mark.parametrize("zero_division", [0, NAN])
def test_dict_is_scikit_learns(data, zero_division):
    truth, predicted = data()
    options = {"target_names": SKLEARN_NAMES[1], "zero_division": zero_division}
    expected = classification_report(truth, predicted, output_dict=True, **options)
    # What is shown does not touch what is kept.
    found = report_of(truth, predicted, SKLEARN_NAMES[1], zero_division, limit=1, sort="worst", digits=0).to_dict()
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_equal(found[name], values)
        assert {type(value) for value in (found[name].values() if name != "accuracy" else [found[name]])} == {float}


@pytest.mark.parametrize(("names", "twice"), [(["a", "b", "a"], "a"), (["a", "micro avg", "b"], "micro avg")])
def test_dict_keeps_every_row(names, twice):
    report = replace(made(3), names=names)
    assert len(re.findall(f"^ *{twice}  ", str(report), re.MULTILINE)) == 2
    with pytest.raises(ValueError, match=f"Two rows of the report are called '{twice}'"):
        report.to_dict()


def test_tensors_are_taken():
    report = made(4)
    values = {name: torch.from_numpy(getattr(report, name)) for name in ("precision", "recall", "f1", "support")}
    values["f1"].requires_grad_()
    taken = replace(report, **values, sort="best")
    assert str(taken) == str(replace(report, sort="best"))
    assert taken.to_dict() == report.to_dict()


def labels_in(text: str) -> list[str]:
    return re.findall(r"label \d+", text)


def test_a_limit_counts_the_rest():
    lines = str(made(200, limit=2)).split("\n")
    assert labels_in("\n".join(lines)) == ["label 0", "label 1"]
    assert lines[3].startswith("     label 1  ")
    assert lines[4] == "… 198 more labels"
    assert lines[5] == ""
    assert lines[6].startswith("   micro avg ")
    assert "… 1 more label\n" in str(made(4, limit=3))
    assert "more" not in str(made(4, limit=4))
    assert "more" not in str(made(4, limit=9))
    assert "… 4 more labels\n" in str(made(4, limit=0))
    # The column of names is as wide as what is shown of it.
    assert str(replace(made(2, limit=1), names=["a", "b" * 50])).split("\n")[2].startswith("           a  ")


def test_print_shows_all_and_the_prompt_does_not():
    report = made(200)
    assert len(labels_in(str(report))) == 200
    assert len(labels_in(repr(report))) == len(labels_in(report._repr_html_())) == 60
    assert "… 140 more labels" in repr(report)
    assert len(labels_in(repr(replace(report, limit=100)))) == 100


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("label", [0, 1, 2, 3, 4, 5]),
        ("worst", [3, 1, 0, 4, 2, 5]),  # of two zeros first the one with more rows, undefined ones last
        ("best", [4, 0, 3, 1, 2, 5]),
        ("support", [4, 2, 3, 0, 5, 1]),  # a stable order
    ],
)
def test_orders(sort, order):
    f1 = np.array([0.5, 0.0, NAN, 0.0, 0.9, NAN])
    support = np.array([3, 1, 7, 5, 9, 3])
    report = Report([f"label {index}" for index in range(6)], f1, f1, f1, support, {}, sort=sort)
    shown = [f"label {index}" for index in order]
    assert labels_in(str(report)) == shown
    assert labels_in(str(replace(report, limit=3))) == shown[:3]
    assert labels_in(report.to_markdown()) == labels_in(report.to_latex()) == labels_in(report._repr_html_()) == shown
    _, ax = report.plot()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == shown
    plt.close("all")


class Names:
    """A million names, of which only those shown are asked for."""

    def __init__(self):
        self.asked = 0

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        self.asked += 1
        return f"label {index}"


@pytest.mark.parametrize("sort", ["label", "worst", "support"])
def test_a_million_labels(sort):
    names, values = Names(), np.random.default_rng(0).random((3, 1_000_000))
    report = Report(names, *values, (values[0] * 1000).astype(int), {}, sort=sort)
    start = time.process_time()
    text = str(replace(report, limit=20)) + repr(report)
    assert time.process_time() - start < 3  # it takes 0.9 s at most; all rows take 9 s
    assert names.asked == 80
    assert "… 999980 more labels" in text
    figure, _ = report.plot()
    assert names.asked == 280
    plt.close(figure)


def test_markdown_table():
    report = replace(made(len(AWKWARD)), names=AWKWARD)
    rows = cells_of(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(report.to_markdown()))
    assert rows[0] == ["", "precision", "recall", "f1-score", "support"]
    assert [row[0] for row in rows[1:]] == [*(name.replace("\n", " ") for name in AWKWARD), "micro avg"]
    assert rows[-1] == ["micro avg", "0.10", "0.20", "0.30", "9"]
    assert r"| snake_case " in report.to_markdown()  # no noise where none is needed
    assert "| R & D " in report.to_markdown()
    limited = cells_of(MarkdownIt("commonmark").enable("table").render(replace(report, limit=1).to_markdown()))
    assert limited[2] == ["… 11 more labels", "", "", "", ""]


def cells_of(html: str) -> list[list[str]]:
    assert not re.search(r"<(em|strong|code|a|s|b)\b", html)
    return [
        [unescape(cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    ]


def test_names_stay_text_in_tables():
    report = replace(made(3, digits=3), names=["007", "1e5", " spaced "])  # and are not read as numbers
    for table in (report.to_markdown(), report.to_latex()):
        assert re.search(r"^\W*007 ", table, re.MULTILINE)
        assert re.search(r"^\W*1e5 ", table, re.MULTILINE)
    rows = cells_of(replace(made(len(AWKWARD)), names=AWKWARD)._repr_html_())
    assert [row[0] for row in rows[1:-1]] == [name.replace("\n", " ") for name in AWKWARD]


def test_latex_table():
    names = ["5% $5 #1 {~^}\\_&", "[option]", "*", "a|<>", "x---y"]
    half, rows = np.full(5, 0.5), np.arange(5)
    averages = {"accuracy": (0.25, 0.25, 0.25, 10), "macro avg": (0.5, NAN, 0.5, 10)}
    table = Report(names, half, half, half, rows, averages).to_latex()
    assert re.sub(" +", " ", table).split("\n") == [
        r"\begin{tabular}{lrrrr}",
        r"\toprule",
        r" & precision & recall & f1-score & support \\",
        r"\midrule",
        r" 5\% \$5 \#1 \{\textasciitilde{}\^{}\}\textbackslash{}\_\& & 0.50 & 0.50 & 0.50 & 0 \\",
        r" {[}option] & 0.50 & 0.50 & 0.50 & 1 \\",
        r" {*} & 0.50 & 0.50 & 0.50 & 2 \\",
        r" a\textbar{}\ensuremath{<}\ensuremath{>} & 0.50 & 0.50 & 0.50 & 3 \\",
        r" x-{}-{}-y & 0.50 & 0.50 & 0.50 & 4 \\",
        r"\midrule",
        r" accuracy & & & 0.25 & 10 \\",
        r" macro avg & 0.50 & nan & 0.50 & 10 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_data_frame():
    truth, predicted = multi_label()
    report = report_of(truth, predicted, SKLEARN_NAMES[1], NAN, limit=1, sort="worst", digits=1)
    frame = report.to_pandas()
    pd.testing.assert_frame_equal(frame, pd.DataFrame(report.to_dict()).T.astype({"support": "int64"}))
    single = report_of(*single_label(), SKLEARN_NAMES[0], 0).to_pandas()
    assert (single.loc["accuracy", ["precision", "recall", "f1-score"]] == np.mean(np.equal(*single_label()))).all()
    assert single.loc["accuracy", "support"] == 60
    assert len(replace(made(2), names=["same", "same"]).to_pandas().loc["same"]) == 2


@pytest.mark.parametrize(
    ("library", "method"), [("tabulate", "to_markdown"), ("tabulate", "to_latex"), ("pandas", "to_pandas")]
)
def test_a_missing_library_is_named(monkeypatch, library, method):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"{library}: pip install 'torch-topk\[report\]'"):
        getattr(made(2), method)()
    assert (made(2)._repr_html_() is None) == (library == "tabulate")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"precision": np.zeros((2, 3))},
            r"precision must hold one value for each of the 3 names, .* shape is \(2, 3\)",
        ),
        ({"support": torch.zeros(4)}, r"support must hold one value for each of the 3 names, .* shape is \(4,\)"),
        ({"sort": "f1"}, "sort must be one of 'label', 'worst', 'best', 'support', but is 'f1'"),
        ({"limit": -1}, "limit must be at least 0, or None for all labels, but is -1"),
        ({"digits": -2}, "digits must be at least 0, but is -2"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(made(3), **change)


def panels_of(axes) -> list:
    return list(np.atleast_1d(axes))


def check_layout(figure, axes) -> None:
    """Every text lies within the figure, and no name or number lies on another."""
    figure.canvas.draw()
    page = figure.bbox
    for panel in panels_of(axes):
        names = [tick for tick in panel.get_yticklabels() if tick.get_text()]
        boxes = [text.get_window_extent() for text in (*names, *panel.texts)]
        for box in boxes:
            assert min(box.width, box.height) > 2  # drawn
            assert page.x0 <= box.x0
            assert box.x1 <= page.x1
            assert page.y0 <= box.y0
            assert box.y1 <= page.y1
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:index])
        assert min(name.get_fontsize() for name in names) > 6
    for left, right in pairwise(panels_of(axes)):
        edge = min(tick.get_window_extent().x0 for tick in right.get_yticklabels())
        assert left.get_window_extent().x1 < edge


@pytest.mark.parametrize(("labels", "columns"), [(1, 1), (6, 1), (20, 1), (21, 1), (51, 2), (200, 4)])
def test_bars(labels, columns):
    report = made(labels, sort="best", k=3)
    figure, axes = report.plot()
    check_layout(figure, axes)
    panels = panels_of(axes)
    assert len(panels) == columns
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["precision@3", "recall@3", "F1@3"]
    order = np.argsort(-report.f1)
    names = [tick.get_text() for panel in panels for tick in panel.get_yticklabels()]
    assert names == [f"label {index}" for index in order]
    for index, column in enumerate((report.precision, report.recall, report.f1)):
        bars = [bar for panel in panels for bar in panel.containers[index]]
        np.testing.assert_array_equal([bar.get_width() for bar in bars], column[order])
    assert not any(figure.legends[0].get_window_extent().overlaps(panel.get_window_extent()) for panel in panels)
    colours = {(kind, bar.get_facecolor()) for panel in panels for kind in range(3) for bar in panel.containers[kind]}
    assert len(colours) == len({colour for _, colour in colours}) == 3
    # The bars of a label stand beside its name; the first label is at the top, and no room is left over.
    rows = -(-labels // columns)
    for panel in panels:
        assert panel.get_ylim() == (rows - 0.5, -0.5)
        middles = np.array([[bar.get_y() + bar.get_height() / 2 for bar in bars] for bars in panel.containers])
        np.testing.assert_allclose(middles.mean(axis=0), panel.get_yticks(), atol=1e-12)
    written = [text.get_text() for panel in panels for text in panel.texts]
    assert len(written) == (3 * labels if labels <= 20 else 0)
    plt.close(figure)


def test_bars_of_more_labels_than_a_picture_holds():
    figure, axes = made(1000).plot()
    check_layout(figure, axes)
    assert axes[-1].get_yticklabels()[-1].get_text() == "… 800 more labels"
    assert sum(len(panel.patches) for panel in axes) == 600
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["precision", "recall", "F1"]
    figure, ax = made(1000, limit=5).plot()
    check_layout(figure, ax)
    assert [tick.get_text() for tick in ax.get_yticklabels()][-2:] == ["label 4", "… 995 more labels"]
    _, ax = made(3, limit=0).plot()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["… 3 more labels"]
    plt.close("all")


def test_bars_of_awkward_names_and_values():
    names = [*AWKWARD[:-1], "a very long name of a label, cut where it ends"]
    report = replace(made(12), names=names, f1=np.array([NAN, 0.0, *np.ones(10)]))
    figure, ax = report.plot()
    check_layout(figure, ax)
    shown = [tick.get_text() for tick in ax.get_yticklabels()]
    assert shown == [*names[:-1], "a very long name of a label, …"]
    assert not any(tick.get_parse_math() for tick in ax.get_yticklabels())  # "$5 or $6" is no formula
    assert [text.get_text() for text in ax.texts][24:27] == ["nan", "0.00", "1.00"]
    # Where numbers are left out, an undefined value still differs from 0.
    many = made(100)
    many.f1[70] = NAN
    figure, axes = many.plot()
    check_layout(figure, axes)
    assert [text.get_text() for panel in axes for text in panel.texts] == ["nan"]
    plt.close("all")


@pytest.mark.parametrize("labels", [6, 60])
def test_axes_that_are_given(labels):
    figure, ax = plt.subplots(figsize=(6, 8), layout="constrained")
    assert made(labels).plot(ax=ax) == (None, ax)
    assert plt.get_fignums() == [figure.number]
    assert len(ax.patches) == 3 * labels
    assert len(ax.get_legend().get_texts()) == 3
    figure.canvas.draw()
    boxes = [tick.get_window_extent() for tick in ax.get_yticklabels()]
    assert not any(low.overlaps(high) for low, high in pairwise(boxes))
    _, other = plt.subplots()
    values = torch.rand(2, labels, dtype=torch.float64)
    assert plot.heatmap(values, [1, 2], [str(label) for label in range(labels)], label="F1", ax=other) == (None, other)
    plt.close("all")


def contrast(ink: str, ground) -> float:
    """WCAG 2's contrast ratio of two colours, from 1 to 21."""
    lights = []
    for colour in (ink, ground):
        rgb = np.array(colors.to_rgb(colour))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        lights.append(linear @ (0.2126, 0.7152, 0.0722) + 0.05)
    return max(lights) / min(lights)


def test_heatmap():
    values = torch.linspace(0, 1, 6 * 4, dtype=torch.float64).reshape(4, 6)
    values[1, 2] = NAN
    names = [f"label {index}" for index in range(6)]
    figure, ax = plot.heatmap(values, [1, 3, 5, None], names, label="F1")
    check_layout(figure, ax)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == names
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "3", "5", "all"]
    assert ax.get_xlabel() == "K"
    (mesh,) = ax.collections
    np.testing.assert_array_equal(mesh.get_array().filled(NAN).reshape(6, 4), values.T)
    assert mesh.get_clim() == (0, 1)
    assert colors.to_hex(mesh.cmap(NAN)) == "#d9d9d9"  # undefined is a grey, which is no value's colour
    (bar,) = (axes for axes in figure.axes if axes is not ax)
    assert bar.get_ylabel() == "F1"
    # Each number stands in its cell, in an ink that is read on it: 4.5 is what WCAG asks of small text.
    written = {tuple(map(round, text.get_position())): text for text in ax.texts}
    assert len(written) == 24
    for (column, row), text in written.items():
        value = values[column, row].item()
        assert text.get_text() == f"{value:.2f}"
        assert contrast(text.get_color(), mesh.cmap(mesh.norm(value))) > 4.5
    plt.close(figure)


@pytest.mark.parametrize("cutoffs", [3, 8])
def test_heatmap_of_many_labels(cutoffs):
    values = torch.rand(cutoffs, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    names = [f"a long name of label number {index}" for index in range(200)]
    figure, axes = plot.heatmap(values, list(range(1, cutoffs + 1)), names, label="recall", more=7)
    check_layout(figure, axes)
    assert len(axes) == 4
    shown = np.concatenate([panel.collections[0].get_array().reshape(-1, cutoffs) for panel in axes])
    np.testing.assert_array_equal(shown, values.T)
    assert axes[-1].get_yticklabels()[-1].get_text() == "… 7 more labels"
    assert not any(panel.texts for panel in axes)  # no numbers
    plt.close(figure)


def test_heatmap_without_room_for_numbers():
    _, ax = plot.heatmap(torch.zeros(13, 3), range(1, 14), ["a", "b", "c"], label="recall")
    assert not ax.texts
    _, ax = plot.heatmap(torch.zeros(12, 3), range(1, 13), ["a", "b", "c"], label="recall")
    check_layout(ax.figure, ax)
    assert len(ax.texts) == 36
    plt.close("all")
