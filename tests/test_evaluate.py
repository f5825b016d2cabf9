"""Runs and judgments in every form that they come in, and what is refused, beside plain loops."""

import gzip
import itertools
import json
import math
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import torch_topk as tt
from torch_topk import evaluation, io

FORMATS = Path(__file__).resolve().parents[2] / "shared" / "data" / "formats"
needs_formats = pytest.mark.skipif(not FORMATS.is_dir(), reason="The files of other projects are not at hand.")

QRELS = {"q1": {"d1": 1, "d2": 2, "d3": 3}, "q2": {"d1": 1, "d2": 2}, "q3": {"d9": 1, "d1": 0}}
RUN = {"q2": {"d7": 0.3, "d2": 0.2}, "q1": {"d3": -0.5, "d4": -0.1, "d1": -0.75}, "q9": {"d1": 1.0}}
METRICS = ["ndcg@2", "recall@2", "mrr", "p@1"]


def means(qrels, order, k=2):
    """The metrics above by a loop, of lists of documents, best first."""
    rows = []
    for query, grades in qrels.items():
        ranked = order.get(query, [])
        gains = [grades.get(document, 0) for document in ranked]
        relevant = [grade for grade in grades.values() if grade > 0]
        dcg, best = (
            sum(gain / math.log2(rank + 2) for rank, gain in enumerate(list(listed)[:k]) if gain > 0)
            for listed in (gains, sorted(relevant, reverse=True))
        )
        rows.append(
            (
                dcg / best if best else 0.0,
                sum(gain > 0 for gain in gains[:k]) / max(len(relevant), 1),
                next((1 / rank for rank, gain in enumerate(gains, 1) if gain > 0), 0.0),
                float(gains[:1] > [0]),
            )
        )
    return pytest.approx(dict(zip(METRICS, np.mean(rows, axis=0), strict=True)), abs=1e-12)


def by_score(run, *, reverse=False):
    """Lists of documents: highest score first, equal ones by the ids' bytes."""
    order = {query: sorted(row, key=str.encode, reverse=reverse) for query, row in run.items()}
    return {query: sorted(row, key=lambda each, query=query: -run[query][each]) for query, row in order.items()}


EXPECTED = means(QRELS, by_score(RUN))


def frame(table, names):
    return pd.DataFrame(
        [(query, document, number) for query, row in table.items() for document, number in row.items()], columns=names
    )


def lines(table, *, run, end="\n", sep=" "):
    """TREC's lines; the rank that each claims is wrong."""
    rows = [(query, document, number) for query, row in table.items() for document, number in row.items()]
    parts = [
        (query, "Q0", document, 7 - place % 5, repr(number), "tag") if run else (query, "0", document, repr(number))
        for place, (query, document, number) in enumerate(rows)
    ]
    return "".join(sep.join(map(str, part)) + end for part in parts)


# Forms --------------------------------------------------------------------------------------------------


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def as_frame(table, folder, *, run):
    return frame(table, ("qid", "docno", "score" if run else "label"))


def as_trec(table, folder, *, run):
    return write(folder, f"x{run}.txt", lines(table, run=run).encode())


def as_gzip(table, folder, *, run):
    return str(write(folder, f"x{run}.trec.gz", gzip.compress(lines(table, run=run).encode())))


def as_json(table, folder, *, run):
    return write(folder, f"x{run}.json", json.dumps(table).encode())


def as_json_gzip(table, folder, *, run):
    return write(folder, f"x{run}.json.gz", gzip.compress(json.dumps(table).encode()))


def as_parquet(table, folder, *, run):
    pytest.importorskip("pyarrow")
    path = folder / f"x{run}.parquet"
    frame(table, ("q_id", "doc_id", "score")).to_parquet(path)
    return path


def as_polars(table, folder, *, run):
    polars = pytest.importorskip("polars")
    return polars.DataFrame(frame(table, ("query_id", "doc_id", "score" if run else "relevance")).to_dict("list"))


def as_dict(table, folder, *, run):
    return table


FORMS = [as_dict, as_frame, as_trec, as_gzip, as_json, as_json_gzip, as_parquet, as_polars]


@pytest.mark.parametrize("form", FORMS)
def test_forms(form, tmp_path):
    qrels, run = form(QRELS, tmp_path, run=False), form(RUN, tmp_path, run=True)
    qrels = {**QRELS} if form is as_dict else qrels
    assert tt.evaluate(qrels, run, METRICS) == EXPECTED
    assert tt.evaluate(QRELS, run, METRICS) == EXPECTED
    assert tt.evaluate(qrels, RUN, METRICS) == EXPECTED


@needs_formats
@pytest.mark.parametrize("end", ["trec", "trec.gz", "json", "parquet"])
def test_files_of_ranx(end):
    if end == "parquet":
        pytest.importorskip("pyarrow")
    found = tt.evaluate(FORMATS / f"qrels.{end}", FORMATS / f"run.{end}", ["ndcg", "recall@1"])
    assert found == pytest.approx({"ndcg": 1, "recall@1": (1 / 3 + 1 / 2) / 2})


@needs_formats
@pytest.mark.parametrize("name", ["compat", "cwl"])
def test_files_with_tabs_and_several_blanks(name):
    read = {}
    for kind, column in (("qrels", 3), ("run", 4)):
        read[kind] = {}
        for line in (FORMATS / f"{name}.{kind}").read_text(encoding="utf-8").splitlines():
            parts = line.split()
            read[kind].setdefault(parts[0], {})[parts[2]] = float(parts[column])
    found = tt.evaluate(FORMATS / f"{name}.qrels", FORMATS / f"{name}.run", METRICS)
    assert found == means(read["qrels"], by_score(read["run"]))


def test_lists_and_sets_without_scores_or_grades():
    order = by_score(RUN)
    sets = {query: {document for document, grade in row.items() if grade > 0} for query, row in QRELS.items()}
    expected = means({query: dict.fromkeys(row, 1) for query, row in sets.items()}, order)
    assert tt.evaluate(sets, order, METRICS) == expected
    lists = {query: sorted(row) for query, row in sets.items()}
    assert tt.evaluate(lists, {query: np.array(row) for query, row in order.items()}, METRICS) == expected


def test_numbers_of_any_type():
    qrels, run = {"q": {"a": 0.5, "b": np.float32(1.5)}}, {"q": {"a": torch.tensor(0.25), "b": 0}}
    expected = (0.5 + 1.5 / math.log2(3)) / (1.5 + 0.5 / math.log2(3))
    assert tt.evaluate(qrels, run, "ndcg") == pytest.approx({"ndcg": expected})


def test_a_query_without_documents_counts_as_one():
    assert tt.evaluate({"a": {"x": 1}, "b": {}}, {"a": ["x"]}, "mrr") == {"mrr": 0.5}
    assert tt.evaluate({"a": {"x": 1}, "b": ["y"]}, {"a": ["x"], "b": []}, "mrr", missing="skip") == {"mrr": 0.5}
    assert tt.evaluate({"a": {"x": 1}}, {"a": []}, ["mrr", "ndcg@5"]) == {"mrr": 0.0, "ndcg@5": 0.0}


def test_chunks_are_read_as_their_documents():
    document_of = {"c1": "d1", "c2": "d1", "c3": "d2", "c4": "d3"}
    run = {"q": [document_of[chunk] for chunk in ("c3", "c1", "c2", "c4")]}
    assert tt.evaluate({"q": {"d3"}}, run, "mrr", duplicates="first") == pytest.approx({"mrr": 1 / 3})


def test_integers_are_the_same_as_their_digits():
    qrels, run = {1: {10: 1, 2: 1}, 7: {3: 1}}, {"7": {"3": 1.0}, "1": {"2": 0.5, "x": 0.9}}
    for given in (qrels, frame(qrels, ("user_id", "item_id", "rating"))):
        values = tt.evaluate(given, run, ["mrr"], per_query=True)
        assert values.ids.dtype == np.int64
        assert values.ids.tolist() == [1, 7]
        assert values["mrr"].tolist() == [0.5, 1.0]
    assert tt.evaluate(qrels, {7: [3]}, "mrr", ties="reverse", missing="skip") == {"mrr": 1}
    mixed = tt.evaluate({np.int32(1): [np.int8(2)], np.str_("x"): [3]}, run, "mrr", per_query=True)
    assert mixed.ids.tolist() == ["1", "x"]
    assert mixed["mrr"].tolist() == [0.5, 0]


# Lines --------------------------------------------------------------------------------------------------

ODD = [
    *(
        "#a",
        "a#b",
        "'",
        '"q"',
        "a,b",
        "NA",
        "nan",
        "007",
        "7",
        "1e5",
        "-1",
        "\\N",
        "http://x.y/z?q=#1",
        "Ä",
        "ÿ",
        "\uffee",
    ),
    *("\U0001f600", "a\u00a0b", "x" * 7, "x" * 8, "x" * 9, "x" * 16, "x" * 17, "x" * 8 + "y", "y" + "x" * 30),
]


@pytest.mark.parametrize("end", ["\n", "\r\n", "  \n", "\n\n \n", " more\tjunk\n"])
@pytest.mark.parametrize("sep", [" ", "\t", " \t  "])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n", b"  "])
def test_lines_are_columns_between_blanks_and_ids_whole(start, sep, end, tmp_path):
    draw = random.Random(0)
    qrels = {query: {document: draw.randrange(-1, 4) for document in draw.sample(ODD, 14)} for query in ODD}
    run = {query: {document: draw.choice([0.5, 1, -2e-3]) for document in draw.sample(ODD, 20)} for query in ODD[3:]}
    files = [
        write(tmp_path, "qrels", start + lines(qrels, run=False, sep=sep, end="\n" if "more" in end else end).encode()),
        write(tmp_path, "run", (start + lines(run, run=True, sep=sep, end=end).encode()).rstrip()),
    ]
    for ties in ("index", "reverse"):
        expected = means(qrels, by_score(run, reverse=ties == "reverse"))
        assert tt.evaluate(*files, METRICS, ties=ties) == expected
        assert tt.evaluate(qrels, run, METRICS, ties=ties) == expected


def test_files_of_many_stretches_and_interleaved_queries(tmp_path, monkeypatch):
    draw = random.Random(1)
    qrels = {f"q{n}": {f"doc{draw.randrange(60)}": draw.randrange(3) for _ in range(9)} for n in range(40)}
    run = {f"q{n}": {f"doc{d}": draw.choice([0.1, 0.2, 0.3]) for d in draw.sample(range(60), 30)} for n in range(2, 45)}
    shuffled = lines(run, run=True).splitlines(keepends=True)
    draw.shuffle(shuffled)
    files = [as_trec(qrels, tmp_path, run=False), write(tmp_path, "run", "".join(shuffled).encode())]
    expected = tt.evaluate(*files, METRICS)
    assert expected == means(qrels, by_score(run))
    held = []
    make = evaluation._ranking
    monkeypatch.setattr(evaluation, "_ranking", lambda *given: held.append(make(*given)) or held[-1])
    for size, cells, batches in ((1, 1, 39), (50, 70, 20), (1000, 400, 4)):
        monkeypatch.setattr(io, "_STRETCH", size)
        monkeypatch.setattr(evaluation, "_CELLS", cells)
        held.clear()
        assert tt.evaluate(*files, METRICS) == pytest.approx(expected, abs=1e-12)
        assert len(held) == batches


def test_numbers_are_what_python_reads(tmp_path):
    draw = random.Random(2)
    texts = [
        *("1", "-1", "+1", "0", "-0", ".5", "-.5", "5.", "1e-3", "1E5", "-2.5e-308", "16777217", "0.30000000000000004"),
        *("9007199254740993", "9007199254740992.5", "123456789012345678", "99999999999999999", "25.123456789012345"),
        *("1234567890123456789012", "0." + "0" * 30 + "1"),
    ]
    texts += [repr(draw.gauss(0, 10 ** draw.randrange(-9, 9))) for _ in range(2000)]
    texts += [f"{draw.gauss(0, 100):.{draw.randrange(12)}f}" for _ in range(2000)]
    path = write(tmp_path, "run", "".join(f"q Q0 d{i} 1 {text} t\n" for i, text in enumerate(texts)).encode())
    read = io.read_pairs(path, io.RUN).numbers
    assert read.tolist() == [float(text) for text in texts]


def test_scores_decide_as_float64():
    run = {"q": {"a": 16777216.0, "b": 16777217.0}}
    assert tt.evaluate({"q": {"b"}}, run, "p@1", ties="index") == {"p@1": 1}


def test_ids_that_are_mixed_to_one_number_stay_two(monkeypatch):
    words = io._pack([f"{number:08}{end}" for number, end in ((3, "x"), (1, "x"), (3, "a"), (1, "x"), (30000, "x"))])
    for mix in (io._MIX, np.uint64(0)):  # with 0 all that end in x are one number
        monkeypatch.setattr(io, "_MIX", mix)
        codes, rows = io.number_ids(words)
        assert codes.tolist() == [2, 0, 1, 0, 3]
        assert io.to_text(words[rows[3]]) == "00030000x"


def test_ids_of_any_length_meet():
    assert tt.evaluate({"q": ["a"]}, {"q": ["an id that is longer than that", "a"]}, "mrr") == {"mrr": 0.5}


# Rules --------------------------------------------------------------------------------------------------


def test_all_metrics_of_a_call_see_one_order():
    qrels, run = {"a": ["a"]}, {"a": {"a": 1.0, "b": 1.0}}
    for ties, rank in (("index", 1), ("reverse", 2), ("optimistic", 1), ("pessimistic", 2)):
        found = tt.evaluate(qrels, run, ["mrr@10", "mrr", "map", "ndcg"], ties=ties)
        assert [found.pop(name) for name in ("mrr@10", "mrr", "map")] == [1 / rank] * 3
        assert found == pytest.approx({"ndcg": 1 / math.log2(rank + 1)})
    assert tt.evaluate(qrels, run, "mrr", ties="expected") == {"mrr": 0.75}


def test_expected_is_the_mean_over_orders():
    qrels, run = {"q": {"b": 3, "d": 1, "z": 2}}, {"q": {"a": 2, "b": 1, "c": 1, "d": 1, "e": 0}}
    found = [
        [*tt.evaluate(qrels, {"q": ["a", *order, "e"]}, METRICS).values()] for order in itertools.permutations("bcd")
    ]
    expected = dict(zip(METRICS, np.mean(found, axis=0), strict=True))
    assert tt.evaluate(qrels, run, METRICS, ties="expected") == pytest.approx(expected)
    assert tt.evaluate(qrels, run, "tie_rate@1,2,4") == {"tie_rate@1": 0, "tie_rate@2": 1, "tie_rate@4": 0}


def test_missing_queries():
    qrels, run = {"a": ["x"], "b": ["y"], "c": ["z"]}, {"b": ["y"], "c": ["y", "z"], "d": ["x"]}
    assert tt.evaluate(qrels, run, "mrr") == {"mrr": 0.5}
    assert tt.evaluate(qrels, run, "mrr", missing="zero", per_query=True)["mrr"].tolist() == [0, 1, 0.5]
    assert tt.evaluate(qrels, run, "mrr", missing="skip") == {"mrr": 0.75}
    assert tt.evaluate(qrels, run, "mrr", missing="skip", per_query=True).ids.tolist() == ["b", "c"]
    with pytest.raises(ValueError, match=r"The run lacks 1 of the 3 queries of the qrels, as 'a': complete it"):
        tt.evaluate(qrels, run, "mrr", missing="error")
    assert tt.evaluate(qrels, {**run, "a": []}, "mrr", missing="error") == {"mrr": 0.5}
    with pytest.raises(ValueError, match="missing must be one of 'zero', 'skip', 'error', but is 'none'"):
        tt.evaluate(qrels, run, "mrr", missing="none")


def test_query_ids_are_names_and_take_the_memory_of_names():
    qrels = {query: ["d"] for query in (1000, 50_000, 90_000_000)}
    assert tt.evaluate(qrels, {query: ["d"] for query in qrels}, "mrr") == {"mrr": 1}


def test_repeats_in_the_qrels_count_once():
    doubled = pd.concat([frame(QRELS, ("query_id", "doc_id", "relevance"))] * 2)
    assert tt.evaluate(doubled, RUN, METRICS) == EXPECTED


def test_duplicates():
    table = pd.DataFrame({"qid": ["q"] * 4, "docno": ["a", "b", "b", "c"], "score": [4, 1, 3, 2]})
    with pytest.raises(tt.InputError, match=r"Query 'q' ranks document 'b' more than once: mend .*duplicates='first'"):
        tt.evaluate({"q": ["c"]}, table, "mrr")
    assert tt.evaluate({"q": ["c"]}, table, "mrr", duplicates="first") == pytest.approx({"mrr": 1 / 3})


def test_several_runs(tmp_path):
    runs = {"dict": RUN, "frame": as_frame(RUN, tmp_path, run=True), "file": as_trec(RUN, tmp_path, run=True)}
    runs["lists"] = by_score(RUN)
    assert tt.evaluate(QRELS, runs, METRICS) == dict.fromkeys(runs, EXPECTED)
    values = tt.evaluate(QRELS, {"a": RUN, "b": {"q1": ["d3"]}}, METRICS, per_query=True)
    pair = tt.compare(values, metrics=["mrr"]).pairs[0]
    assert (pair.wins, pair.losses) == (1, 1)


@pytest.mark.parametrize("cells", [1, 1 << 18])
def test_a_suite_keeps_what_intervals_are_read_from(cells, monkeypatch):
    monkeypatch.setattr(evaluation, "_CELLS", cells)
    suite = tt.TopKMetrics(METRICS, bootstrap=50, collect=True)
    assert tt.evaluate(QRELS, RUN, suite) == EXPECTED
    assert suite.num_queries == 3
    assert suite.collected().ids.tolist() == ["q1", "q2", "q3"]
    other = tt.TopKMetrics(METRICS, bootstrap=50)
    tt.evaluate(dict(reversed(QRELS.items())), RUN, other)
    for key, interval in suite.intervals().items():
        assert [end.item() for end in interval] == pytest.approx([end.item() for end in other.intervals()[key]])


@pytest.mark.parametrize("cells", [1, 1 << 18])
def test_documents_are_the_same_in_all_lists(cells, monkeypatch):
    monkeypatch.setattr(evaluation, "_CELLS", cells)
    run = {"q1": ["a", "b"], "q2": ["c", "a"], "q3": ["b", "d"]}
    found = tt.evaluate({query: ["e"] for query in run}, run, [tt.Coverage(k=[1, 2], num_items=8)])
    assert found == {"coverage@1": 3 / 8, "coverage@2": 4 / 8}


# Refused ------------------------------------------------------------------------------------------------

REFUSED = [
    (QRELS, {"1": ["d"]}, {}, ValueError, "share no query: those of the qrels .* 'q1', 'q2', 'q3', .* run '1', and"),
    (QRELS, {}, {}, ValueError, "share no query: .* those of the run none"),
    (QRELS, {"q1": {"d1"}}, {}, TypeError, "gives query 'q1' a set, which has no order: give a list"),
    (QRELS, {"q1": ["d1"], "q2": {"d1": 1}}, {}, TypeError, "every query a list, best first, or every query"),
    ({"q1": "d1"}, RUN, {}, TypeError, "qrels must give each query a set or list .* gives 'q1' a str: 'd1'"),
    ({"q1": {"d1": "1"}}, RUN, {}, TypeError, "qrels must hold a number as each grade"),
    ({"q1": {"d1": None}}, RUN, {}, TypeError, "qrels must hold a number as each grade"),
    ({"q1": {1.5: 1}}, RUN, {}, TypeError, "each document by a string or an integer, but one is 1.5"),
    ({True: {"d": 1}}, RUN, {}, TypeError, "each query by a string or an integer, but one is True"),
    ({1: ["a"], "1": ["b"]}, RUN, {}, ValueError, "two queries called 1"),
    ({"q1": ["a\0b"]}, RUN, {}, ValueError, "NUL"),
    ([1], RUN, {}, TypeError, "qrels must be a mapping by query, a data frame or the path of a file, but is .* list"),
    (QRELS, {"q1": {"d1": math.nan}}, {}, tt.InputError, "Query 'q1' has the score nan for document 'd1'"),
    (QRELS, {"q1": {"d1": math.inf}}, {}, tt.InputError, "Query 'q1' has the score inf for document 'd1'"),
    ({"q1": {"d1": math.nan}}, RUN, {}, tt.InputError, "Query 'q1' has the grade nan for document 'd1'"),
    (QRELS, {"a": RUN, "b": {"d1": 0.3}}, {}, TypeError, "holds several runs, but 'b' is none"),
    (QRELS, RUN, {"ties": "realistic"}, ValueError, "cannot be read off a run"),
    (pd.DataFrame({"qid": [1], "doc": [1], "rel": [1]}), RUN, {}, ValueError,
     "qrels frame has no column of the document, which may be called doc_id, .* it has qid, doc, rel: rename"),
    (pd.DataFrame({"qid": ["q", None], "docid": ["a", "b"], "rel": [1, 1]}), RUN, {}, TypeError, "but one is nan"),
]  # fmt: skip


@pytest.mark.parametrize(("qrels", "run", "options", "error", "text"), REFUSED)
def test_refused(qrels, run, options, error, text):
    with pytest.raises(error, match=text):
        tt.evaluate(qrels, run, "mrr", **options)


def test_not_a_number_can_be_ranked_last():
    run = {"q": {"a": math.nan, "b": -1e300, "c": -math.inf}}
    assert tt.evaluate({"q": ["b"]}, run, "mrr", non_finite="last") == {"mrr": 1}
    assert tt.evaluate({"q": ["c"]}, run, "recall", non_finite="last") == {"recall": 1}


FILES = [
    (
        "q Q0 d 1 0.5 t\nq Q0 d2\n",
        "RUN, line 2, has 3 columns in place of at least 5: 'q Q0 d2'. A run file has lines of",
    ),
    ("q Q0 d 1 0.5 t\n\n\nq Q0 e 1 high t", "RUN, line 4, has no number as its score: 'q Q0 e 1 high t'"),
    ("q Q0 d 1 1_0 t\n", "RUN, line 1, has no number as its score"),
    ("q Q0 d 1 - t\n", "RUN, line 1, has no number as its score"),
    ("q Q0 d 1 1.2.3 t\n", "RUN, line 1, has no number as its score"),
    ("q Q0 d 1 nan t\n", "Query 'q' has the score nan for document 'd'"),
    ("", "RUN holds no line; a run file has lines of query, Q0, document, rank, score, tag"),
    ("q\0 Q0 d 1 1 t", "RUN holds a NUL byte: it must be text in UTF-8"),
]


@pytest.mark.parametrize(("text", "error"), FILES)
@pytest.mark.parametrize("stretch", [1, 1 << 18])
def test_refused_files(text, error, stretch, tmp_path, monkeypatch):
    monkeypatch.setattr(io, "_STRETCH", stretch)
    path = write(tmp_path, "RUN", text.encode())
    with pytest.raises(ValueError, match=error.replace(".", r"\.")):
        tt.evaluate({"q": ["d"]}, path, "mrr")


def test_bytes_that_are_no_utf8_are_a_document_but_no_query(tmp_path):
    qrels, run = write(tmp_path, "qrels", b"q 0 na\xefve 1\n"), write(tmp_path, "run", b"q Q0 na\xefve 1 1 t")
    assert tt.evaluate(qrels, run, "mrr") == {"mrr": 1}
    assert tt.evaluate(qrels, {"q": ["naïve"]}, "mrr") == {"mrr": 0}
    with pytest.raises(ValueError, match="queries in bytes that are not UTF-8: convert it first"):
        tt.evaluate(write(tmp_path, "q", b"caf\xe9 0 d 1\n"), run, "mrr")


def test_parquet_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'torch-topk\[report\]' pyarrow"):
        tt.evaluate(tmp_path / "x.parquet", RUN, "mrr")


def test_a_run_is_no_qrels_nor_a_list_a_dict(tmp_path):
    with pytest.raises(ValueError, match="line 1, has 6 columns in place of 4"):
        tt.evaluate(as_trec(RUN, tmp_path, run=True), RUN, "mrr")
    with pytest.raises(ValueError, match="must hold an object by query, but holds a list"):
        tt.evaluate(write(tmp_path, "x.json", b"[]"), RUN, "mrr")
    with pytest.raises(FileNotFoundError):
        tt.evaluate(tmp_path / "none", RUN, "mrr")


def test_a_suite_has_its_options():
    suite = tt.TopKMetrics("mrr")
    with pytest.raises(ValueError, match="has its options already: give k, ties when making it"):
        tt.evaluate(QRELS, RUN, suite, k=3, ties="reverse")
    with pytest.raises(ValueError, match="keeps no query's values: make it with collect=True"):
        tt.evaluate(QRELS, RUN, suite, per_query=True)
    with pytest.raises(ValueError, match="keeps the sums of one run"):
        tt.evaluate(QRELS, {"a": RUN}, suite)
    with pytest.raises(ValueError, match="'novelty' has item_counts by integer item id"):
        tt.evaluate(QRELS, RUN, tt.Novelty(k=1, item_counts=np.ones(9, int), num_users=3))


def test_the_example_finds_the_better_engine(capsys):
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "examples" / "search.py"), run_name="__main__")
    words, meaning, _, *table = capsys.readouterr().out.splitlines()
    assert words.split()[:3] == ["words", "ndcg@3", "0.7043"]
    assert meaning.split()[:5] == ["meaning", "ndcg@3", "0.9404", "recip_rank", "0.9500"]
    assert any(line.startswith("recip_rank") for line in table)
