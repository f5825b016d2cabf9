"""The numbers that trec_eval prints, of its own test files, of awkward ones, and of random runs."""

import re
from pathlib import Path

import numpy as np
import pytest

import torch_topk as tt

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "evaluate.md"
needs_outputs = pytest.mark.skipif(
    not DATA.is_dir(), reason="trec_eval's test files and expected outputs are not at hand."
)

WHOLE = {
    "map": "map",
    "ndcg": "ndcg",
    "recip_rank": "recip_rank",
    "Rprec": "rprec",
    "bpref": "bpref",
    "rbp": "rbp",
    "set_P": {"name": "precision", "k": None},
    "set_recall": {"name": "recall", "k": None},
    "set_F": {"name": "f1", "k": None},
}
CUT = {
    "P": "P",
    "recall": "recall",
    "success": "success",
    "ndcg_cut": "ndcg",
    "map_cut": "map",
    "relative_P": {"name": "precision", "denominator": "relevant"},
}
LACKING = {
    *("runid", "num_q", "num_ret", "num_rel", "num_rel_ret", "num_nonrel_judged_ret", "gm_map", "gm_bpref"),
    *("iprec_at_recall", "11pt_avg", "infAP", "Rprec_mult", "utility", "G", "binG", "ndcg_rel", "Rndcg"),
    *("set_relative_P", "set_map", "rbp_resid", "unj", "relstring"),
}
CUTOFFS = [1, 2, 5, 10, 15, 20, 30, 100, 200, 500, 1000]
SPECS = {
    **WHOLE,
    **{name: {"k": CUTOFFS, **(spec if isinstance(spec, dict) else {"name": spec})} for name, spec in CUT.items()},
}


def printed(path):
    """What trec_eval printed: the text of each value, by measure and query."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {(line[0], line[1]): line[2] for line in lines if len(line) == 3}


def base(measure):
    """A measure without its cut-off."""
    return re.sub(r"_[\d.]+$", "", measure)


def evaluated(qrels, run, missing="skip", **options):
    """The text of each value that we offer, by trec_eval's names, of each query and of all."""
    suite = tt.TopKMetrics(SPECS, at="_", preset="trec_eval", collect=True, **options)
    means = tt.evaluate(qrels, run, suite, missing=missing)
    kept = suite.collected()
    rows = {"all": means} | {
        query: dict(zip(kept.names, row, strict=True))
        for query, row in zip(kept.ids, kept.values.tolist(), strict=True)
    }
    return {(name, query): f"{value:.4f}" for query, row in rows.items() for name, value in row.items()}


def compare(expected, found):
    measures = {base(measure) for measure, _ in expected}
    assert measures <= {*WHOLE, *CUT, *LACKING}
    wanted = {key: text for key, text in expected.items() if base(key[0]) not in LACKING}
    assert len({base(measure) for measure, _ in wanted}) >= 5
    assert {key: found.get(key) for key in wanted} == wanted


def sorted_run(path, most):
    """The lists of a run file, cut, by plain Python: score, then document, descending."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        query, _, document, _, score, *_ = line.split()
        rows.setdefault(query, []).append((float(score), document.encode(), document))
    return {query: [document for *_, document in sorted(row, reverse=True)[:most]] for query, row in rows.items()}


@needs_outputs
@pytest.mark.parametrize(
    ("output", "qrels", "run", "options"),
    [
        ("out.test", "qrels.test", "results.test", {}),
        ("out.test.a", "qrels.test", "results.test", {}),
        ("out.test.aq", "qrels.test", "results.test", {}),
        ("out.test.aqc", "qrels.test", "results.trunc", {"missing": "zero"}),
        ("out.test.aql", "qrels.rel_level", "results.test", {"min_relevance": 2}),
    ],
)
def test_own_outputs(output, qrels, run, options):
    folder = DATA / "trec_eval"
    expected = printed(folder / output)
    if options.get("min_relevance"):  # trec_eval's rbp takes a grade's share of the query's highest, whatever -l says
        expected = {key: text for key, text in expected.items() if base(key[0]) != "rbp"}
    compare(expected, evaluated(folder / qrels, folder / run, **options))


@needs_outputs
def test_own_output_of_lists_cut_at_100():
    folder = DATA / "trec_eval"
    expected = printed(folder / "out.test.aqcM")
    run = sorted_run(folder / "results.trunc", 100)
    compare(expected, evaluated(folder / "qrels.test", run, missing="zero"))


@needs_outputs
@pytest.mark.parametrize("version", ["v9.0.8", "v10.0"])
@pytest.mark.parametrize("complete", [False, True], ids=["", "-c"])
@pytest.mark.parametrize("case", ["missing", "extra", "norel", "tie", "neg"])
def test_edge_cases(case, complete, version):
    folder = DATA / "edge_cases"
    expected = printed(folder / f"{case}.{version}{'.c' if complete else ''}.out")
    found = evaluated(folder / f"{case}.qrels", folder / f"{case}.run", missing="zero" if complete else "skip")
    compare(expected, found)


@needs_outputs
def test_the_page_says_what_is_lacking_and_how_to_have_gm_map():
    assert all(f"`{measure}`" in PAGE.read_text(encoding="utf-8") for measure in LACKING)
    folder = DATA / "trec_eval"
    values = tt.evaluate(folder / "qrels.test", folder / "results.test", "map", preset="trec_eval", per_query=True)
    mean = np.exp(np.log(np.maximum(values["map"], 1e-5)).mean())
    assert f"{mean:.4f}" == printed(folder / "out.test.a")["gm_map", "all"]


PEER = {"map", "ndcg", "recip_rank", "Rprec", "bpref"}
PEER |= {f"{measure}_{k}" for measure in CUT for k in (5, 10, 20, 1000) if measure != "relative_P"}


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_pytrec_eval_on_random_runs(seed, level):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    random = np.random.default_rng(seed)
    documents = [f"d{number}" for number in range(60)] + ["Ä#1", "ÿ", "\U0001f600", "\uffee", "D", "d 2"]

    def draw(values, most):
        chosen = random.permutation(documents)[: random.integers(1, most)].tolist()
        return {document: random.choice(values).item() for document in chosen}

    qrels = {f"q{number}": draw([-1, 0, 0, 1, 2, 3], 40) for number in range(30)}
    qrels = {query: {**grades, "d0": 2} for query, grades in qrels.items()}
    run = {f"q{number}": draw([0.5, 0.25, -1.5, 3.0, 1e9, -0.0, 0.0], 66) for number in range(3, 35)}
    peer = pytrec_eval.RelevanceEvaluator(qrels, PEER, relevance_level=level).evaluate(run)
    values = tt.evaluate(
        qrels, run, SPECS, preset="trec_eval", at="_", min_relevance=level, missing="skip", per_query=True
    )
    assert set(values.ids.tolist()) == peer.keys()
    for query, row in zip(values.ids, values.values, strict=True):
        ours = dict(zip(values.names, row.tolist(), strict=True))
        assert {name: ours[name] for name in PEER} == pytest.approx(
            {name: peer[query][name] for name in PEER}, abs=1e-9
        )
