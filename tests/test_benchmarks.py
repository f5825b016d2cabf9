"""The benchmarks run: every part at a small size, on this machine's CPU. What they measure is judged elsewhere."""

import gc
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_no_host_reads import trap

import torch_topk as tt
from torch_topk import kernels, ranking

for needed in ("matplotlib", "torch_geometric"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'torch-topk[dev]'")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import bars  # noqa: E402
import gpu  # noqa: E402
import gpu_cases  # noqa: E402
import labels  # noqa: E402
import measuring  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402

sys.path.remove(str(ROOT / "benchmarks"))

pytestmark = [
    # Peers', about themselves, when they are imported or run.
    pytest.mark.filterwarnings(r"ignore:.torch\.jit\.\w+. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning"),
]

FOUND = ("bars", "topk", "suite", "counts", "labels", "coverage", "peers", "memory", "growth")
ONCE = measuring.Effort(0, least=1)
TINY = bars.Scale(
    ONCE, queries=256, items=100, kinds=bars.MODELS, batches=20, processes=1, world=1, step=3, compiling=False
)


@pytest.fixture(scope="module")
def measured():
    with pytest.MonkeyPatch.context() as patch:
        # A slice of the shapes, of the smallest sizes at which all peers have something to do.
        patch.setattr(bars, "SHAPES", {bars.LARGE: 2.5, (4_096, 1_000): 0.85})
        return bars.measure(TINY, [part for part in bars.PARTS if part != "imports"], "python benchmarks/bars.py")


def test_every_part_finds_something(measured):
    assert all(measured[name] for name in FOUND)
    assert measured["about"]["full"] is False
    assert all(bar["met"] is None for bar in measured["bars"])  # sizes of which no bar speaks
    assert all(row["ratio"] > 0 for name in ("topk", "suite", "counts", "labels") for row in measured[name])
    assert {row["over"] for row in measured["growth"]} == set(report.PANELS)
    assert all(math.isfinite(power) for row in measured["growth"] for power in row["exponents"].values())
    assert all(set(row["series"]) == set(report.LOOK) for row in measured["growth"])


def test_peers_give_our_values(measured):
    compared = [row for row in measured["peers"] if "left_out" not in row]
    assert {"TorchMetrics retrieval", "PyG + torch.topk"} <= {row["peer"] for row in compared}
    assert [row for row in compared if row["differs_by"] > 1e-5] == []
    assert len([row for row in compared if row["peer"].startswith("scikit-learn")]) in {0, 3}
    assert [row["differs_by"] for row in measured["suite"] if row.get("differs_by", 0) > 1e-5] == []
    assert "ranx" in {row["peer"] for row in measured["peers"] if "left_out" in row}


def test_what_is_written(measured, tmp_path):
    report.write(measured, tmp_path)
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["bars"]) == len(measured["bars"])
    page = (tmp_path / "figures.md").read_text(encoding="utf-8")
    assert all(bar["what"] in page for bar in measured["bars"])
    assert all(f"| {row['workload']} | {row['ours']} | {row['peer']} |" in page for row in measured["labels"])
    assert "Not measured." in page
    found = {
        "about": {"card": "A card", "cuda": "1.0", "versions": {"torch": "2"}, "seed": 1},
        "checks": [{"what": "it agrees", "passed": False, "said": "no"}],
        "bars": [{"what": "a read", "figure": 2.5, "unit": "×", "aim": "≤ 2×", "met": False, "ours": "a", "peer": "b"}],
    }
    page = report.page(measured, found)
    assert "| 2.50× | ≤ 2× | **not met** | a read | a | b |" in page
    assert "| it agrees | **no**: no |" in page
    assert "Not measured." not in page


def test_the_page_of_figures_is_what_the_figures_say():
    figures = ROOT / "docs" / "figures.json"
    if not figures.exists():
        pytest.skip("nothing was measured yet")
    beside = figures.with_name("figures-gpu.json")
    found = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
    page = report.page(json.loads(figures.read_text(encoding="utf-8")), found)
    assert figures.with_suffix(".md").read_text(encoding="utf-8") == page, "run python benchmarks/bars.py --page"


def test_bars_are_judged_at_full_size_alone():
    for scale, verdicts in ((bars.FULL, [True, False, True, False, None]), (TINY, [None] * 5)):
        results = bars.Results(scale)
        for figure, limit in ((2.0, {"least": 2}), (1.9, {"least": 2}), (2.0, {"most": 2}), (2.1, {"most": 2})):
            results.aim("a bar", figure, "×", **limit)
        results.aim("no bar", 1.0, "×")
        results.leave("another", "it is not installed")
        assert [bar.met for bar in results.bars] == [*verdicts, None]
        assert [bar.aim for bar in results.bars] == ["≥ 2×", "≥ 2×", "≤ 2×", "≤ 2×", "", ""]


def test_imports_are_timed_in_processes(monkeypatch):
    ran = []

    def run(command, **options):
        ran.append(command)
        compile(command[-1], "command", "exec")
        return SimpleNamespace(stdout="2.0\n0.1\n" if len(ran) % 2 else "2.2\n")

    monkeypatch.setattr(subprocess, "run", run)
    results = bars.Results(bars.FULL)
    bars.imports(TINY, results)
    assert [command[:2] for command in ran] == [[sys.executable, "-c"]] * 2
    assert (results.bars[0].figure, results.bars[0].met) == (0.1, True)


def test_collectives_of_a_compute(measured):
    suite, report = (bar for bar in measured["bars"] if "Collective" in bar["what"])
    assert (suite["figure"], report["figure"]) == (1, 2)  # whole numbers of a report go by themselves
    assert int(suite["peer"].split()[-1]) > 28  # one at least for each of the peer's metrics
    assert int(report["peer"].split()[-1]) >= 3


def test_a_state_does_not_grow(measured):
    after = "after 20 batches, beside those after 10"
    assert {bar["what"]: bar["figure"] for bar in measured["bars"] if "Bytes of state" in bar["what"]} == {
        f"Bytes of state of a suite {after}": 1,
        f"Bytes of state of `LabelReport` {after}": 1,
    }


# Labels -----------------------------------------------------------------------------------------------


def test_what_is_said_of_labels(measured):
    kinds = [row["scores"] for row in measured["labels"] if "scores" in row]
    assert kinds == list(bars.MODELS)
    pairs = {(row["ours"], row["peer"]) for row in measured["labels"] if "scores" not in row}
    assert len(pairs) == 3 * (1 if measuring.missing("scipy") else 2)
    peaks = [bar for bar in measured["bars"] if "Peak memory" in bar["what"]]
    assert {bar["what"].partition(": ")[2] for bar in peaks if bar["aim"] == "≤ 3×"} == {
        "`update`, batches of 1,024 × 5 ids",
        '`scalars("macro")`',
    }
    assert len(peaks) == len([row for row in measured["memory"] if "LabelReport" in row["work"]]) == 4
    assert all(bar["figure"] > 0 for bar in peaks)


def test_every_way_counts_the_same(monkeypatch):
    ranked, truth = torch.tensor([[3, 1, 2, 0, 4], [4, 3, 0, 1, 2]]), torch.tensor([[3, 2, -1], [1, -1, -1]])
    ways = labels.ways_to_count(ranked, truth, 6)
    labels.agree(ways)
    assert len(ways) == (4 if measuring.missing("scipy") else 5)
    found = ways["a loop in Python"]()
    assert found["tp"].tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0]]
    assert found["fp"][1].tolist() == [1, 1, 0, 1, 1, 0]
    assert found["support"].tolist() == [0, 1, 1, 1, 0, 0]
    for name in ways:
        wrong = {key: value + (key == "recall") for key, value in ways[name]().items()}
        with pytest.raises(RuntimeError, match=r"differ in \w+"):
            labels.agree({**ways, name: lambda wrong=wrong: wrong})
    monkeypatch.setattr(labels, "missing", lambda module: module == "scipy")
    assert set(ways) - set(labels.ways_to_count(ranked, truth, 6)) <= {"a sparse product of SciPy"}


def test_other_true_positives_are_not_timed(monkeypatch):
    monkeypatch.setattr(labels, "make_collection", lambda items: peers.make_collection(items, k=1))
    with pytest.raises(RuntimeError, match="other true positives in normal scores"):
        labels.scores_at(TINY, "normal", torch.arange(50), 100)


def test_lists_of_labels():
    ranked, truth = measuring.make_lists(500, 1000, share=0.6)
    assert (ranked.shape, truth.shape) == ((500, 5), (500, 5))
    assert all(row.unique().numel() == 5 and 0 <= row.min() <= row.max() < 1000 for row in ranked)
    assert 2.8 < (truth >= 0).double().sum(1).mean() < 3.2
    whole = measuring.make_lists(500, 1000)[1]
    assert torch.equal(truth, whole.where(truth >= 0, -1))
    assert (ranked[:, :, None] == whole[:, None]).any(2).unique(dim=0).tolist() == [[True, False, True, False, True]]


def test_an_update_with_the_topk_handed_in_is_the_update():
    scores, labels = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    whole, rest = peers.make_suite(), peers.make_suite()
    whole.update(scores, labels)
    with bars.topk_handed(scores, max(peers.CUTOFFS)):
        rest.update(scores, labels)
    assert rest.compute() == whole.compute()
    with pytest.raises(RuntimeError, match="nothing was handed"), bars.topk_handed(scores, 20):
        tt.topk(scores, 20)


def test_work_runs_in_turn():
    ran = []
    slow = 10_000_000  # additions, longer than the shortest sample
    work = {name: lambda name=name: (ran.append(name), sum(range(slow // 100))) for name in "abc"}
    times = measuring.interleaved(work, measuring.Effort(0, least=6))
    assert {len(samples) for samples in times.samples.values()} == {6}
    rounds = [ran[start : start + 3] for start in range(6, len(ran), 3)]
    assert len(rounds) == 6
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len(set(map(tuple, rounds))) > 1
    times = measuring.Times({"a": [1.0, 10.0, 3.0], "b": [2.0, 5.0, 3.0]})
    assert (times.median("a"), times.ratio("a", "b")) == (3.0, 1.0)


def test_memory_and_growth():
    kept = torch.empty(1000)
    assert measuring.peak_bytes(lambda: (kept + 1).add_(1).sum()) in range(4000, 4200)
    assert measuring.peak_bytes(lambda: (kept + 1) + (kept + 2)) in range(12_000, 12_400)
    left = iter([lambda: None, gc.collect])  # what one piece of work leaves is not given back within the next

    def knot():
        kept = [torch.empty(10**6)]
        kept.append(kept)

    measuring.peak_bytes(knot)
    assert measuring.peak_bytes(lambda: (next(left)(), torch.empty(1000))) in range(4000, 4200)
    assert measuring.exponent([1, 10, 100], [5, 500, 50_000]) == pytest.approx(2)


@pytest.mark.parametrize("kind", measuring.SCORES)
def test_scores_are_of_their_kind(kind):
    scores = measuring.make_scores(kind, 3, 1000)
    assert torch.equal(scores, measuring.make_scores(kind, 3, 1000))
    assert scores.shape == (3, 1000)
    assert scores.is_contiguous()
    distinct = min(row.unique().numel() for row in scores)
    assert distinct < 700 if kind in measuring.TIED else distinct > 990
    ids = measuring.make_ids(3, 1000)
    assert all(row.unique().numel() == 10 and row.max() < 1000 for row in ids)
    raised = measuring.plant(scores.clone(), ids) - scores
    assert int((raised != 0).sum()) == 30


# On a GPU ---------------------------------------------------------------------------------------------


CASES = (
    "truth: grades",
    "ties='expected', truth: a bool mask",
    "from_flat to a depth",
    "RankCounts, exclude: ids",
    "resamples, slices and values of mrr, mr, gmr, median_rank",
    "labels, excluding",
    "links in chunks",
    "search, excluding ids, with item_ids",
    "RetrievalMAP()",
)
ALONE = ("mrr, ties='expected'", "bpref, ties='index'")


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(gpu, "SHAPES", ((3, 60), (2, 5_000), (0, 10)))
    monkeypatch.setattr(gpu, "DTYPES", (torch.float32, torch.bfloat16, torch.int64))
    monkeypatch.setattr(gpu, "TIMED", ((256, 20_000),))
    monkeypatch.setattr(gpu, "cases", lambda: {name: gpu_cases.cases()[name] for name in CASES})
    alone = dict(gpu_cases.each_alone())
    monkeypatch.setattr(gpu, "each_alone", lambda: ((name, alone[name]) for name in ALONE))
    monkeypatch.setattr(gpu.Session, "some", lambda _, rows, step: list(rows))
    return gpu.Session("cpu", 3, dry=True)


def names(rows):
    return [row["what"] for row in rows]


def test_the_steps_of_the_gpu(session, tmp_path):
    out = tmp_path / "new" / "figures-gpu.json"
    found = gpu.run(session, out)
    assert names(session.failed) == []
    parts = [f"{part['what']} ({part['checks']} checks)" for part in found["parts"] if part["checks"]]
    assert names(found["checks"]) == parts
    assert len(found["parts"]) == len(gpu.RUN) == len(parts) + 1  # what two runs differ in is no check
    assert all(part["held"] == part["checks"] for part in found["parts"])
    assert len(session.checks) > 50
    peers = ("tt.topk", "PyG", "resamples", "groups", "LabelReport", "evaluate_links", "search", "TorchMetrics")
    assert all(any(word in row["what"] for row in found["bars"]) for word in peers)
    assert all(row["met"] is None for row in found["bars"])  # a dry run judges nothing
    assert found["unsteady"] == []
    assert json.loads(out.read_text(encoding="utf-8")) == json.loads(json.dumps(found)) == found


def test_a_wrong_order_is_found(session, monkeypatch):
    right = tt.topk
    monkeypatch.setattr(tt, "topk", lambda scores, k, ties="index": right(scores, k))
    gpu.order(session)
    assert not session.checks[0]["passed"]
    assert "AssertionError" in session.checks[0]["said"]


def test_other_values_on_the_device_are_found(session, monkeypatch):
    right = gpu.ran
    monkeypatch.setattr(gpu, "ran", lambda case, device, seed: right(case, device, seed + kernels._branch_free))
    gpu.agreement(session)
    assert names(session.failed) == [f"as the CPU: {name}" for name in CASES]
    gpu.together(session)
    assert len(session.failed) > len(CASES)


def test_what_promises_to_read_nothing_reads_nothing(session, monkeypatch):
    monkeypatch.setattr(gpu, "no_waiting", lambda _: trap())
    gpu.waiting(session)
    assert names(session.failed) == []
    waited = [name for name in CASES if not gpu_cases.cases()[name].unread]
    assert waited == ["links in chunks", "RetrievalMAP()"]
    assert len(session.checks) == len(CASES) - len(waited) + len(ALONE)
    right = kernels.orderable
    monkeypatch.setattr(ranking, "orderable", lambda scores: right(scores) if scores.sum().item() else scores)
    gpu.waiting(session)
    assert "no wait: truth: grades" in names(session.failed)


def test_a_graph_that_does_not_follow_its_inputs_is_found(session, monkeypatch):
    def once(_, work):
        held = work()
        return lambda: None, lambda: held

    monkeypatch.setattr(gpu, "captured", once)
    gpu.graphs(session)
    assert len(session.failed) == len(session.checks) > 0


def test_what_two_runs_differ_in_and_what_is_refused(session, monkeypatch, capsys):
    def noisy(self, scored):
        return first(self, scored) + torch.rand(())

    def refused(self, scored):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))  # which deterministic mode refuses
        return second(self, scored)

    first, second = tt.MRR.per_query, tt.Bpref.per_query
    monkeypatch.setattr(tt.MRR, "per_query", noisy)
    monkeypatch.setattr(tt.Bpref, "per_query", refused)
    monkeypatch.setattr(gpu, "cases", dict)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "as it was")  # so that it is set back
    session.part(gpu.steady, math.inf)
    assert names(session.unsteady) == [*ALONE]
    assert session.unsteady[0] == {"what": ALONE[0], "plain": "differs", "strict": "differs"}
    assert session.unsteady[1]["plain"] == ""
    assert session.unsteady[1]["strict"].startswith("RuntimeError: put_ does not have a deterministic implementation")
    assert not torch.are_deterministic_algorithms_enabled()
    assert "in deterministic mode differs" in capsys.readouterr().out
    assert session.failed == []  # a finding


def test_parts_that_fail_or_take_too_long(session, monkeypatch, capsys):
    def breaks(session):
        """This one breaks."""
        session.check("before", lambda: None)
        raise RuntimeError("out of memory")

    def slow(session):
        """This one is slow."""
        session.check("left", lambda: None)
        with pytest.raises(TimeoutError, match="before it was measured"):
            gpu.interleaved(session, {"work": lambda: None})

    def fine(session):
        """This one is not."""
        session.check("after", lambda: None)

    monkeypatch.setattr(session, "dry", False)
    monkeypatch.setattr(gpu, "about", lambda _: {"card": "a card", "cuda": None, "versions": {}})
    monkeypatch.setattr(gpu, "RUN", ((breaks, 60), (slow, -120), (fine, 180)))
    found = gpu.run(session)
    assert names(session.checks) == ["before", "`breaks` came to its end", "left", "after"]
    assert names(session.failed) == ["`breaks` came to its end", "left"]
    assert [row["said"] for row in session.failed][1] == "TimeoutError: left out, as the time of its part was up"
    assert [part["held"] for part in found["parts"]] == [1, 0, 1]
    assert names(found["checks"])[-2:] == names(session.failed)
    assert [row["passed"] for row in found["checks"]] == [False, False, True, False, False]
    assert "FAILS `breaks` came to its end: RuntimeError: out of memory" in capsys.readouterr().out


def test_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "figures-gpu.json")])
    assert gpu.main() == 0
    assert "no CUDA device" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())
