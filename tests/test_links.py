"""Links beside loops, published tables and PyKEEN: whole, in chunks, over processes and among samples."""

import contextlib
import csv
import io
import itertools
import math
import random
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from test_distributed import Workers
from test_ranks import KG, OURS, by_loops, counted, mean, needs_graphs
from test_search import Allocations, Collectives
from torch import Tensor

import torch_topk as tt
from torch_topk.links import CATEGORIES

ENTITIES, RELATIONS = 14, 3
DRAW = random.Random(5)
EVERY = [(DRAW.randrange(ENTITIES), DRAW.randrange(RELATIONS), DRAW.randrange(ENTITIES)) for _ in range(120)]
TRIPLES = torch.tensor(EVERY[:31])
KNOWN = tt.KnownTriples(torch.tensor(EVERY), num_entities=ENTITIES, num_relations=RELATIONS)
TABLE = torch.randint(0, 4, (ENTITIES, RELATIONS, ENTITIES), generator=torch.Generator().manual_seed(0))
SIDES = ("head", "tail")


@pytest.fixture(scope="module", autouse=True)
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Processes that start while the first tests run."""
    workers = Workers(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


class Model:
    """Looks scores up, and notes which cells it was asked for."""

    def __init__(self, table: Tensor = TABLE, first: int = 0) -> None:
        self.table, self.first, self.asked = table, first, []

    def tails(self, heads: Tensor, relations: Tensor, entities: Tensor) -> Tensor:
        self.asked.append(("tail", len(heads), entities.tolist()))
        return self.table[heads, relations][:, entities]

    def heads(self, relations: Tensor, tails: Tensor, entities: Tensor) -> Tensor:
        self.asked.append(("head", len(tails), entities.tolist()))
        return self.table[:, relations, tails].T[:, entities]


def counts_by_loops(table: Tensor, *, filtered: bool) -> dict[str, list[tuple[int, int, int]]]:
    """Greater, at least and candidates of each side of each triple."""
    true, found = set(EVERY), {}
    for side in SIDES:
        found[side] = []
        for h, r, t in TRIPLES.tolist():
            scores, target = (table[h, r], t) if side == "tail" else (table[:, r, t], h)
            link = (lambda e, h=h, r=r: (h, r, e)) if side == "tail" else (lambda e, r=r, t=t: (e, r, t))
            others = {e for e in range(ENTITIES) if filtered and link(e) in true and e != target}
            found[side].append(counted(scores.tolist(), target, others))
    return found


def listed(ranks: tt.LinkRanks, *, filtered: bool) -> dict[str, list[tuple[int, ...]]]:
    """The same of what was evaluated."""
    counts = {side: ranks.counts[side][int(filtered)] for side in SIDES}
    columns = {side: (each.greater, each.at_least, each.candidates) for side, each in counts.items()}
    return {side: [*zip(*(column.tolist() for column in each), strict=True)] for side, each in columns.items()}


# Known triples and tables -----------------------------------------------------------------------------------------


def graph(name: str) -> tuple[dict[str, Tensor], int, int]:
    """The triples of each part, by ids that are positions in the sorted labels."""
    texts = {part: (KG / name / f"{part}.txt").read_text().splitlines() for part in ("train", "valid", "test")}
    rows = {part: [line.split("\t") for line in lines] for part, lines in texts.items()}
    everything = [row for part in rows.values() for row in part]
    entities = {label: i for i, label in enumerate(sorted({each for h, _, t in everything for each in (h, t)}))}
    relations = {label: i for i, label in enumerate(sorted({r for _, r, _ in everything}))}
    ids = {part: torch.tensor([[entities[h], relations[r], entities[t]] for h, r, t in rows[part]]) for part in rows}
    return ids, len(entities), len(relations)


@needs_graphs
@pytest.mark.parametrize("name", ["nations", "kinships"])
def test_the_published_table(name: str) -> None:
    """With the weights that were published: TransE, its head side scored by the inverse relation."""
    parts, num_entities, num_relations = graph(name)
    weights = np.load(KG / f"{name}_transe.npz")
    entity, relation = (torch.from_numpy(weights[key]) for key in ("entity", "relation"))

    def score(origin: Tensor, kind: Tensor) -> Tensor:
        moved = entity[origin] + relation[kind]
        return -(moved[:, None, :] - entity).abs().sum(2)

    known = tt.KnownTriples(*parts.values(), num_entities=num_entities, num_relations=num_relations)
    ranks = tt.evaluate_links(
        lambda h, r: score(h, 2 * r), lambda r, t: score(t, 2 * r + 1), parts["test"], known, memory=1 << 12
    )
    with (KG / "published_collated.tsv").open() as file:
        rows = [
            row for row in csv.DictReader(file, delimiter="\t") if row["dataset"] == name and row["model"] == "transe"
        ]
    wrong = {"adjusted_inverse_harmonic_mean_rank", "z_arithmetic_mean_rank", "z_inverse_harmonic_mean_rank"}
    names = {key: ours for key, ours in OURS.items() if key in rows[0] and key not in wrong}
    found = ranks.compute([*names.values()])
    for key, ours in names.items():
        assert found[ours].item() == pytest.approx(float(rows[0][key]), rel=1e-5), key


@needs_graphs
def test_known_triples_beside_a_dict() -> None:
    parts, num_entities, num_relations = graph("nations")
    known = tt.KnownTriples(*parts.values(), parts["train"], num_entities=num_entities, num_relations=num_relations)
    tails: dict[tuple[int, int], set[int]] = defaultdict(set)
    heads: dict[tuple[int, int], set[int]] = defaultdict(set)
    for h, r, t in torch.cat([*parts.values()]).tolist():
        tails[h, r].add(t)
        heads[r, t].add(h)
    assert len(known) == sum(map(len, tails.values()))
    pairs = torch.cartesian_prod(torch.arange(num_entities), torch.arange(num_relations))
    marked = known.tails(*pairs.unbind(1)).listed(num_entities)
    assert [set(row.nonzero()[:, 0].tolist()) for row in marked] == [
        tails.get((h, r), set()) for h, r in pairs.tolist()
    ]
    marked = known.heads(pairs[:, 1], pairs[:, 0]).listed(num_entities)
    assert [set(row.nonzero()[:, 0].tolist()) for row in marked] == [
        heads.get((r, t), set()) for t, r in pairs.tolist()
    ]
    for relation, category in enumerate(known.categories().tolist()):
        many = [
            mean(len(each[key]) for key in keys) > 1.5
            for each, keys in (
                (heads, [key for key in heads if key[0] == relation]),
                (tails, [key for key in tails if key[1] == relation]),
            )
        ]
        assert CATEGORIES[category] == f"{'N' if many[0] else '1'}-{'N' if many[1] else '1'}"


@needs_graphs
def test_links_by_loops() -> None:
    """A scorer full of ties, raw and filtered, each side and relation."""
    parts, num_entities, num_relations = graph("nations")
    table = torch.randint(0, 4, (num_entities, num_relations, num_entities), generator=torch.Generator().manual_seed(0))
    known = tt.KnownTriples(*parts.values(), num_entities=num_entities, num_relations=num_relations)
    triples = parts["test"]
    ranks = tt.evaluate_links(lambda h, r: table[h, r], lambda r, t: table[:, r, t].T, triples, known, memory=1 << 11)
    every = {tuple(triple) for triple in torch.cat([*parts.values()]).tolist()}
    for filtered in (False, True):
        expected: dict[str, list[tuple[int, int, int]]] = {"head": [], "tail": []}
        for h, r, t in triples.tolist():
            others = {e for e in range(num_entities) if filtered and (h, r, e) in every and e != t}
            expected["tail"].append(counted(table[h, r].tolist(), t, others))
            others = {e for e in range(num_entities) if filtered and (e, r, t) in every and e != h}
            expected["head"].append(counted(table[:, r, t].tolist(), h, others))
        for side in ("head", "tail"):
            found = {
                name: value.item()
                for name, value in ranks.compute(["mr", "mrr", "hits@3", "amri"], side=side, filtered=filtered).items()
            }
            wanted = by_loops(expected[side], "realistic", 3)
            assert found == pytest.approx({name: wanted[name] for name in found}, rel=1e-9)
        both = by_loops(expected["head"] + expected["tail"], "realistic", 3)
        assert ranks.compute("mr", filtered=filtered)["mr"].item() == pytest.approx(both["mr"], rel=1e-12)
        first = triples[:, 1] == triples[0, 1]
        some = [query for query, kept in zip(expected["tail"], first.tolist(), strict=True) if kept]
        by_relation = ranks.table("relation", "mrr", side="tail", filtered=filtered)
        assert [*by_relation] == sorted(set(triples[:, 1].tolist()))
        assert by_relation[int(triples[0, 1])]["mrr"].item() == pytest.approx(
            by_loops(some, "realistic", 3)["mrr"], rel=1e-9
        )
        assert set(ranks.table("category", "mr")) <= set(CATEGORIES)
        sides = ranks.table("side", "mr", filtered=filtered)
        assert [*sides] == ["head", "tail", "both"]
        assert sides["both"] == ranks.compute("mr", filtered=filtered)
        found_rows = ranks.compute("mrr", side="tail", filtered=filtered, rows=first)
        assert found_rows["mrr"].item() == pytest.approx(by_loops(some, "realistic", 3)["mrr"], rel=1e-9)


def test_links_that_cannot_be() -> None:
    triples = torch.tensor([[0, 0, 1]])
    known = tt.KnownTriples(triples, num_entities=3, num_relations=1)
    with pytest.raises(ValueError, match=r"entities below 3 .* one is \(0, 0, 3\)"):
        tt.KnownTriples(torch.tensor([[0, 0, 3]]), num_entities=3, num_relations=1)
    with pytest.raises(ValueError, match=r"triples must be \(T, 3\)"):
        tt.KnownTriples(torch.tensor([0, 0, 3]), num_entities=3, num_relations=1)
    with pytest.raises(ValueError, match="a score for each entity"):
        tt.evaluate_links(lambda h, r: torch.rand(1, 4), lambda r, t: torch.rand(1, 3), triples, known)
    with pytest.raises(tt.InputError, match="NaN"):
        tt.evaluate_links(lambda h, r: torch.full((1, 3), math.nan), lambda r, t: torch.rand(1, 3), triples, known)


def test_what_no_triple_speaks_of_has_no_known_answer() -> None:
    known = tt.KnownTriples(torch.tensor([[70_000, 40_000, 1]]), num_entities=80_000, num_relations=50_000)
    narrow = torch.tensor([70_000], dtype=torch.int32), torch.tensor([40_000], dtype=torch.int32)
    assert known.tails(*narrow).num_relevant().tolist() == [1]
    stray = torch.tensor([69_999]), torch.tensor([90_000])
    assert known.tails(*stray).num_relevant().tolist() == [0]


# Counts of parts -----------------------------------------------------------------------------------------------


def test_parts_that_both_hold_the_target_do_not_add_up() -> None:
    """However they were made of counts that do."""
    raw = tt.RankCounts.from_scores(torch.rand(4, 9), torch.arange(4))
    whole = {
        "filtered": raw.without(torch.tensor([7, 8])),
        "some": raw[1:],
        "joined": tt.RankCounts.join([raw, raw]),
        "first": raw.first(2),
        "read": raw.read("expected"),
        "links": tt.evaluate_links(lambda h, r: TABLE[h, r], lambda r, t: TABLE[:, r, t].T, TRIPLES, KNOWN).counts[
            "tail"
        ][1],
    }
    for counts in whole.values():
        rest = tt.RankCounts.from_counts(
            greater=counts.greater * 0, at_least=counts.greater * 0 + 2, candidates=counts.candidates
        )
        total = counts + rest.read(counts.ties)
        assert total.at_least.tolist() == (counts.at_least + 2).tolist()
        for both in ((counts, counts), (total, counts), (counts, total)):
            with pytest.raises(ValueError, match="Both counts hold the target"):
                both[0] + both[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_candidates_are_counted_where_some_are_none(dtype: torch.dtype) -> None:
    scores = torch.tensor([[3, 1, 2], [3, 1, 2]]).to(dtype)
    if dtype.is_floating_point:
        scores[1, 1] = -math.inf
    counts = tt.RankCounts.from_scores(scores, torch.tensor([0, 2]))
    assert counts.candidates.tolist() == [3, 2 if dtype.is_floating_point else 3]


# Chunks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [1, 1 << 9, 1 << 26])
@pytest.mark.parametrize("chunk", [1, 3, 5, 13, 14, 100])
def test_chunks(chunk: int, memory: int) -> None:
    model = Model()
    ranks = tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=chunk, memory=memory)
    for filtered in (False, True):
        assert listed(ranks, filtered=filtered) == counts_by_loops(TABLE, filtered=filtered)
    size = max(1, memory // (8 * min(chunk, ENTITIES)))
    assert max(rows for _, rows, _ in model.asked) == min(size, len(TRIPLES))
    assert max(len(entities) for *_, entities in model.asked) == min(chunk, ENTITIES)
    for side in SIDES:
        cells = sum(rows * len(entities) for each, rows, entities in model.asked if each == side)
        once = len(TRIPLES) * ENTITIES
        assert once <= cells <= once + min(size, len(TRIPLES)) * ENTITIES  # and no more than one pass again


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int8, torch.uint8, torch.int64])
def test_types_of_scores(dtype: torch.dtype) -> None:
    table = TABLE.to(dtype)
    model = Model(table + 2**53 if dtype == torch.int64 else table)
    ranks = tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=4)
    assert listed(ranks, filtered=True) == counts_by_loops(TABLE, filtered=True)


def test_what_scores_minus_infinity_is_no_candidate() -> None:
    table = TABLE.float()
    table[torch.rand(table.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = -math.inf
    table[tuple(TRIPLES.T)] = 1.0
    for chunk in (3, None):
        model = Model(table)
        scorers = (model.tails, model.heads) if chunk else (lambda h, r: table[h, r], lambda r, t: table[:, r, t].T)
        ranks = tt.evaluate_links(*scorers, TRIPLES, KNOWN, chunk=chunk)
        for filtered in (False, True):
            assert listed(ranks, filtered=filtered) == counts_by_loops(table, filtered=filtered)
    assert sum(ranks.counts["head"][0].candidates) < ENTITIES * len(TRIPLES)


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "have a NaN score"), (-math.inf, "have minus infinity as the true entity's score")]
)
def test_scores_that_cannot_be_ranked(value: float, text: str, chunk: int | None) -> None:
    table = TABLE.float()
    table[tuple(TRIPLES[0])] = value
    model = Model(table)
    scorers = (model.tails, model.heads) if chunk else (lambda h, r: table[h, r], lambda r, t: table[:, r, t].T)
    with pytest.raises(tt.InputError, match=f"1 of a batch of 31 triples {text}"):
        tt.evaluate_links(
            *scorers,
            TRIPLES[[0, *range(1, 31)]],
            tt.KnownTriples(TRIPLES, num_entities=14, num_relations=3),
            chunk=chunk,
        )


def test_a_model_that_changes_its_mind() -> None:
    """Dropout, for one: a rank among scores of another draw is none."""
    model = Model()
    changing = (lambda *given: model.tails(*given) + torch.rand(()), model.heads)
    with pytest.raises(ValueError, match="put the model in eval mode"):
        tt.evaluate_links(*changing, TRIPLES, KNOWN, chunk=4)


def test_memory_is_that_of_a_batch_and_a_chunk() -> None:
    entities, size, numbers = torch.randn(20_000, 4, dtype=torch.float64), 1 << 21, torch.arange(100)
    triples = torch.stack([numbers * 199, torch.zeros_like(numbers), numbers * 131], dim=1)
    known = tt.KnownTriples(triples, num_entities=20_000, num_relations=1)

    def score(given: Tensor, chunk: Tensor) -> Tensor:
        return entities[given] @ entities[chunk].T

    def evaluate(rows: int, **how: Any) -> int:
        with Allocations().ignoring(entities, triples) as seen:
            tt.evaluate_links(lambda h, r, e: score(h, e), lambda r, t, e: score(t, e), triples[:rows], known, **how)
        return int(seen.peak)

    more = (1 << 19) + (1 << 18)  # the buffer of rank_counts, and what hangs on the numbers of triples and pairs
    assert size / 2 < evaluate(100, chunk=4000, memory=size) < size + 4000 * 48 + more < 100 * 20_000 * 8
    assert evaluate(3, chunk=20_000, memory=1) < 20_000 * (8 + 48) + more


def test_no_triples() -> None:
    for how in ({}, {"chunk": 5}):
        model = Model()
        scorers = (model.tails, model.heads) if how else (lambda h, r: TABLE[h, r], lambda r, t: TABLE[:, r, t].T)
        ranks = tt.evaluate_links(*scorers, TRIPLES[:0], KNOWN, **how)
        assert len(ranks.counts["tail"][1]) == 0


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"chunk": 0}, "chunk must be an int of at least 1, but is 0"),
        ({"chunk": 2.5}, "chunk must be an int of at least 1, but is 2.5"),
        ({"memory": 0}, "memory must be an int of at least 1"),
        ({"shard": range(14)}, "shard and process_group go together"),
        ({"process_group": "world"}, "shard and process_group go together"),
        ({"shard": (0, 14), "process_group": "world"}, r"shard must be a range\(first, last\) of the 14 entities"),
        ({"shard": range(3, 15), "process_group": "world"}, r"of the 14 entities, but is range\(3, 15\)"),
        ({"shard": range(0, 14, 2), "process_group": "world"}, r"of the 14 entities, but is range\(0, 14, 2\)"),
    ],
)
def test_refused(how: dict[str, Any], text: str) -> None:
    model = Model()
    with pytest.raises(ValueError, match=text):
        tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, **how)


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(TypeError, match="process_group must be a group of torch"):
        tt.evaluate_links(Model().tails, Model().heads, TRIPLES, KNOWN, shard=range(14), process_group="world")


# A bar -------------------------------------------------------------------------------------------------------------


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed: pip install 'torch-topk[cli]'")
    model = Model()
    tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=4)
    assert capsys.readouterr().err == ""
    tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=4, memory=8 * 4 * 10, progress=True)
    assert "32/32" in capsys.readouterr().err  # 4 batches of 4 chunks, 2 sides
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"progress=True needs tqdm: pip install 'torch-topk\[cli\]'"):
        tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=4, progress=True)


# Samples -----------------------------------------------------------------------------------------------------------


def negatives(width: int = 6) -> dict[str, Tensor]:
    """Some entities twice, some none, some true."""
    generator = torch.Generator().manual_seed(3)
    return {side: torch.randint(-1, ENTITIES, (len(TRIPLES), width), generator=generator) for side in SIDES}


def sample_scorers(table: Tensor) -> tuple[Any, Any]:
    return (
        lambda h, r, candidates: table[h[:, None], r[:, None], candidates],
        lambda r, t, candidates: table[candidates, r[:, None], t[:, None]],
    )


@pytest.mark.parametrize("memory", [1, 1 << 26])
def test_samples(memory: int) -> None:
    drawn, true = negatives(), set(EVERY)
    ranks = tt.evaluate_links(*sample_scorers(TABLE), TRIPLES, KNOWN, negatives=drawn, memory=memory)
    for side, filtered in itertools.product(SIDES, (False, True)):
        expected, sizes = [], []
        for (h, r, t), row in zip(TRIPLES.tolist(), drawn[side].tolist(), strict=True):
            scores, target = (TABLE[h, r], t) if side == "tail" else (TABLE[:, r, t], h)
            link = (lambda e, h=h, r=r: (h, r, e)) if side == "tail" else (lambda e, r=r, t=t: (e, r, t))
            others = {e for e in range(ENTITIES) if filtered and link(e) in true and e != target}
            kept = [e for e in row if e not in {-1, target, *others}]
            expected.append(counted(scores[[target, *kept]].tolist(), 0, set()))
            sizes.append(ENTITIES - len(others))
        assert listed(ranks, filtered=filtered)[side] == expected
        assert ranks.sizes is not None
        assert ranks.sizes[side][int(filtered)].tolist() == sizes


def test_samples_warn_once_and_estimates_do_not() -> None:
    ranks = tt.evaluate_links(*sample_scorers(TABLE), TRIPLES, KNOWN, negatives=negatives())
    estimated = ranks.estimate(["mr", "hits@3"], side="tail", rows=TRIPLES[:, 1] > 0)
    assert [*estimated] == ["mr", "hits@3"]
    with pytest.warns(UserWarning, match=r"among sampled negatives.*Krichene & Rendle 2020.*estimate\(\)"):
        first = ranks.compute("mr")
    assert ranks.compute("mr") == first
    whole = Model()
    with pytest.raises(ValueError, match="nothing to estimate"):
        tt.evaluate_links(whole.tails, whole.heads, TRIPLES, KNOWN, chunk=5).estimate("mr")


@pytest.mark.parametrize(
    ("given", "how", "text"),
    [
        ({"head": negatives()["head"]}, {}, "negatives must hold ids for 'head' and 'tail'"),
        (
            {**negatives(), "tail": negatives()["tail"][:5]},
            {},
            r"negatives\['tail'\] must be \(31, M\), but are \(5, 6\)",
        ),
        ({**negatives(), "tail": negatives()["tail"] + 1}, {}, r"negatives\['tail'\] must be entities below 14, or -1"),
        ({**negatives(), "head": negatives()["head"] - 1}, {}, r"negatives\['head'\] must be entities below 14, or -1"),
        (negatives(), {"chunk": 3}, "chunk and shard go without"),
    ],
)
def test_samples_that_are_refused(given: dict[str, Tensor], how: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tt.evaluate_links(*sample_scorers(TABLE), TRIPLES, KNOWN, negatives=given, **how)
    with pytest.raises(ValueError, match=r"scores must be \(31, 7\), a score for each candidate, but are \(31, 14\)"):
        tt.evaluate_links(
            lambda h, r, _: TABLE[h, r], lambda r, t, _: TABLE[:, r, t].T, TRIPLES, KNOWN, negatives=negatives()
        )


DRAWN = np.random.default_rng(4)
RANKS = {
    "most scales alike": lambda size: size ** DRAWN.random(6000),
    "a good model": lambda size: size ** DRAWN.random(6000) ** 1.5,
    "a quarter right": lambda size: np.where(DRAWN.random(6000) < 0.25, 1, np.exp(DRAWN.normal(4, 1.5, 6000))),
    "chance": lambda size: 1 + DRAWN.random(6000) * (size - 1),
}


@pytest.mark.parametrize(("kind", "share"), [*zip(RANKS, (0.1, 0.1, 0.45, 0.1), strict=True)])
def test_estimates_are_far_less_biased(kind: str, share: float) -> None:
    """Beside the metrics of the true ranks, by simulation; of few negatives, in number different."""
    size = DRAWN.integers(3000, 4001, 6000)
    rank = np.clip(np.floor(RANKS[kind](size)), 1, size).astype(int)
    drawn = DRAWN.integers(200, 301, 6000)
    above = DRAWN.hypergeometric(rank - 1, size - rank, drawn)
    sampled = tt.RankCounts.from_counts(greater=above, equal=above * 0, candidates=drawn + 1)
    true = {
        "mr": rank.mean(),
        "mrr": (1 / rank).mean(),
        "hits@10": (rank <= 10).mean(),
        "gmr": np.exp(np.log(rank).mean()),
    }
    suites = {}
    for name, counts in (("raw", sampled), ("estimated", tt.estimate_ranks(sampled, torch.from_numpy(size)))):
        suites[name] = tt.TopKMetrics([*true])
        suites[name].update(counts)
    raw, estimated = (suite.compute() for suite in suites.values())
    for metric, value in true.items():
        assert abs(estimated[metric] - value) < share * abs(raw[metric] - value), metric
    unbiased = 1 + (above * (size - 1) / drawn).mean()
    assert estimated["mr"].item() == pytest.approx(unbiased, rel=0.02)


def test_an_estimate_of_ties_weights_and_nothing() -> None:
    sampled = tt.RankCounts.from_scores(torch.zeros(5, 101), torch.zeros(5, dtype=torch.int64))
    for ties, rank in (("realistic", 5000.5), ("optimistic", 1), ("pessimistic", 10_000)):
        metric = tt.MeanRank()
        metric.update(tt.estimate_ranks(sampled.read(ties), torch.full((5,), 10_000)))
        assert metric.compute().item() == pytest.approx(rank, rel=0.01, abs=0.5)
    greater, none = torch.tensor([0, 100]), torch.tensor([0, 0])
    weighed = tt.RankCounts.from_counts(
        greater=greater, equal=none, candidates=none + 101, weights=torch.tensor([0.0, 2.0])
    )
    found = tt.estimate_ranks(weighed, none + 10_000)
    assert found.weights.sum().item() == pytest.approx(2)
    assert (found.weights * found.rank()).sum() / 2 > 9_000
    assert (found.candidates == 10_000).all()
    assert len(tt.estimate_ranks(sampled[:0], torch.zeros(0, dtype=torch.int64))) == 0
    for wrong, text in ((torch.full((4,), 999), r"are \(4,\), the least 999"), (torch.arange(5), "the least 0")):
        with pytest.raises(ValueError, match=r"candidates must be \(5,\), a number of at least 1.*" + text):
            tt.estimate_ranks(sampled, wrong)
    broken = tt.RankCounts.from_scores(torch.full((1, 3), math.nan), torch.tensor([0]))
    with pytest.raises(tt.InputError, match="1 query has a NaN score"):
        tt.estimate_ranks(broken, torch.tensor([9]))


# Processes -----------------------------------------------------------------------------------------------------------


def sharded(rank: int, bounds: list[int], chunk: int | None, size: int, dtype: torch.dtype) -> Any:
    """The counts, and how many collectives there were; a process knows the scores of its own entities alone."""
    part = range(bounds[rank], bounds[rank + 1])
    table = torch.zeros_like(TABLE)
    heads = table.clone()
    table[:, :, part], heads[part] = TABLE[:, :, part], TABLE[part]
    model, other = Model(table.to(dtype)), Model(heads.to(dtype))
    with Collectives() as sent:
        ranks = tt.evaluate_links(
            model.tails,
            other.heads,
            TRIPLES,
            KNOWN,
            shard=part,
            process_group=dist.group.WORLD,
            chunk=chunk,
            memory=8 * size * (chunk or ENTITIES),
        )
    assert {entity for *_, entities in model.asked + other.asked for entity in entities} == {*part}
    return [listed(ranks, filtered=filtered) for filtered in (False, True)], ranks.compute("mrr"), sent.count


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize(("chunk", "size"), [(None, 31), (2, 10), (3, 31)])
@pytest.mark.parametrize("bounds", [[0, 3, 14], [0, 9, 9, 14], [0, 0, 1, 14]], ids=str)
def test_shards(bounds: list[int], chunk: int | None, size: int, dtype: torch.dtype, workers: Workers) -> None:
    expected = [counts_by_loops(TABLE, filtered=filtered) for filtered in (False, True)]
    for found, mrr, collectives in workers.run(len(bounds) - 1, sharded, bounds, chunk, size, dtype):
        assert found == expected
        ranks = [(greater + 1 + at_least) / 2 for side in SIDES for greater, at_least, _ in expected[1][side]]
        assert mrr["mrr"].item() == pytest.approx(sum(1 / each for each in ranks) / len(ranks), rel=1e-12)
        assert collectives == 1 + 2 * 2 * -(-31 // size)


def shown(rank: int) -> str:
    assert rank in {0, 1}
    part, said = range(7 * rank, 7 * rank + 7), io.StringIO()
    with contextlib.redirect_stderr(said):
        model = Model()
        tt.evaluate_links(
            model.tails, model.heads, TRIPLES, KNOWN, shard=part, process_group=dist.group.WORLD, progress=True
        )
    return said.getvalue()


def test_one_process_shows_progress(workers: Workers) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed: pip install 'torch-topk[cli]'")
    first, second = workers.run(2, shown)
    assert "2/2" in first
    assert second == ""


def broken(rank: int, value: float) -> str:
    """What each process says of a score that only the last has."""
    table, part = TABLE.float(), range(9) if rank == 0 else range(9, 14)
    h, r, t = next(triple for triple in EVERY[:31] if triple[2] >= 9)
    table[h, r, t] = value
    model = Model(table)
    with pytest.raises(tt.InputError) as caught:
        tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, shard=part, process_group=dist.group.WORLD)
    return str(caught.value)


@pytest.mark.parametrize(("value", "text"), [(math.nan, "a NaN score"), (-math.inf, "minus infinity")])
def test_every_process_raises(value: float, text: str, workers: Workers) -> None:
    first, second = workers.run(2, broken, value)
    assert text in first
    assert first == second


def misfit(rank: int, parts: list[tuple[int, int]], shift: int) -> str:
    with pytest.raises(ValueError, match=r"each of 14|the same triples") as caught:
        tt.evaluate_links(
            Model().tails,
            Model().heads,
            TRIPLES[shift * rank :],
            KNOWN,
            shard=range(*parts[rank]),
            process_group=dist.group.WORLD,
        )
    return str(caught.value)


@pytest.mark.parametrize(
    ("parts", "shift", "text"),
    [
        ([(0, 7), (8, 14)], 0, r"each of 14 entities once, but are \[range(0, 7), range(8, 14)\]"),
        ([(0, 7), (6, 14)], 0, "each of 14 entities once"),
        ([(0, 7), (7, 13)], 0, "each of 14 entities once"),
        ([(0, 7), (7, 14)], 1, "must have the same triples, but these differ"),
    ],
)
def test_shards_that_do_not_fit(parts: list[tuple[int, int]], shift: int, text: str, workers: Workers) -> None:
    for said in workers.run(2, misfit, parts, shift):
        assert text.replace("\\", "") in said


def some_triples(rank: int, world: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Each process ranks triples of its own among all entities, and a suite adds them up."""
    model = Model()
    ranks = tt.evaluate_links(model.tails, model.heads, TRIPLES[rank::world], KNOWN, chunk=5)
    suite = tt.TopKMetrics(["mr", "mrr", "hits@3", "amri"])
    for _raw, filtered in ranks.counts.values():
        suite.update(filtered)
    return suite.compute(), ranks.compute(["mr"]) if rank == 0 else {}  # which waits for nobody


def test_triples_of_each_processs_own(workers: Workers) -> None:
    model = Model()
    whole = tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=5)
    expected = whole.compute(["mr", "mrr", "hits@3", "amri"])
    for world in (2, 3):
        answers = workers.run(world, some_triples, world)
        for values, _ in answers:
            assert [*map(float, values.values())] == pytest.approx([*map(float, expected.values())], rel=1e-12)
        alone = tt.evaluate_links(model.tails, model.heads, TRIPLES[::world], KNOWN, chunk=5)
        assert answers[0][1] == alone.compute(["mr"])


# Chance --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("mr", lambda ranks: sum(ranks) / len(ranks)),
        ("Mean_Rank", lambda ranks: sum(ranks) / len(ranks)),
        ("mrr", lambda ranks: sum(1 / r for r in ranks) / len(ranks)),
        ("mrr@2", lambda ranks: sum((r <= 2) / r for r in ranks) / len(ranks)),
        ("hits@1", lambda ranks: sum(r <= 1 for r in ranks) / len(ranks)),
        ("hit_rate@3", lambda ranks: sum(r <= 3 for r in ranks) / len(ranks)),
        ("gmr", lambda ranks: math.prod(ranks) ** (1 / len(ranks))),
    ],
)
def test_chance_is_the_mean_over_all_ranks_there_may_be(metric: str, value: Any) -> None:
    sizes = [1, 4, 2, 7]
    values = [value(ranks) for ranks in itertools.product(*(range(1, size + 1) for size in sizes))]
    mean, variance = tt.chance(metric, torch.tensor(sizes, dtype=torch.int32))
    assert mean.item() == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert variance.item() == pytest.approx(statistics.pvariance(values), rel=1e-11, abs=1e-15)


def test_chance_of_several_cutoffs() -> None:
    sizes = torch.tensor([[3, 20], [9, 4]])
    several = tt.chance("hits@1,3,10", sizes)
    for i, k in enumerate((1, 3, 10)):
        assert [each[i] for each in several] == [*tt.chance(f"hits@{k}", sizes)]


@pytest.mark.parametrize("metric", ["mr", "mrr", "mrr@5", "hits@1,3", "gmr"])
def test_chance_of_no_query(metric: str) -> None:
    mean, variance = tt.chance(metric, torch.zeros(0, dtype=torch.int64))
    assert mean.isnan().all()
    assert variance.isnan().all()


def test_what_chance_does_not_know() -> None:
    for metric in ("ndcg@10", "amri", "median_rank", "mr@3", "gmr@2", "mrr(rel=2)"):
        with pytest.raises(ValueError, match=r"chance\(\) knows mr, gmr, mrr, mrr@k and hits@k"):
            tt.chance(metric, torch.tensor([3]))
    with pytest.raises(ValueError, match="is no metric"):
        tt.chance("nonsense", torch.tensor([3]))
    with pytest.raises(ValueError, match="candidates must be at least 1, the target itself, but one is 0"):
        tt.chance("mr", torch.tensor([3, 0]))
    with pytest.raises(TypeError, match="candidates must hold integer"):
        tt.chance("mr", torch.tensor([3.0]))


# Beside PyKEEN -------------------------------------------------------------------------------------------------------

NAMES = {**OURS, "median_rank": "median_rank"}


class Scored(torch.nn.Module):
    """What PyKEEN's evaluator wants of a model."""

    num_entities, num_relations, device = ENTITIES, RELATIONS, torch.device("cpu")

    def predict(self, hrt_batch: Tensor, target: str, **_: Any) -> Tensor:
        h, r, t = hrt_batch.unbind(1)
        return (TABLE[h, r] if target == "tail" else TABLE[:, r, t].T).float()


@pytest.fixture(scope="module")
def pykeen() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        return pytest.importorskip("pykeen.evaluation", reason="pykeen is not installed: pip install pykeen")


@pytest.mark.parametrize("filtered", [True, False])
def test_pykeens_evaluator(pykeen: Any, filtered: bool) -> None:
    evaluator = pykeen.RankBasedEvaluator(filtered=True, metrics=["arithmetic_mean_rank"], add_defaults=True)
    if filtered:
        given = {"batch_size": 8, "use_tqdm": False, "additional_filter_triples": torch.tensor(EVERY)}
        theirs = evaluator.evaluate(Scored(), TRIPLES, **given)
    else:
        for side, column in (("head", 0), ("tail", 2)):
            scores = Scored().predict(TRIPLES, side)
            evaluator.process_scores_(TRIPLES, side, scores, scores.gather(1, TRIPLES[:, column, None]))
        theirs = evaluator.finalize()
    model = Model()
    ranks = tt.evaluate_links(model.tails, model.heads, TRIPLES, KNOWN, chunk=5)
    for side, ties in itertools.product(("head", "tail", "both"), ("realistic", "optimistic", "pessimistic")):
        ours = ranks.compute([*NAMES.values()], side=side, filtered=filtered, ties=ties)
        for name, key in NAMES.items():
            if ties == "realistic" or not name.startswith(("adjusted", "z_")):  # those PyKEEN has of no others
                where = f"{side}.{ties}.{name}"
                assert ours[key].item() == pytest.approx(theirs.get_metric(where), rel=1e-5, abs=1e-6), where


@pytest.mark.parametrize(
    "name", ["arithmetic_mean_rank", "inverse_harmonic_mean_rank", "geometric_mean_rank", "hits_at_3"]
)
def test_pykeens_chance(pykeen: Any, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pykeen.metrics.ranking import HitsAtK, rank_based_metric_resolver
    metric = HitsAtK(3) if name == "hits_at_3" else rank_based_metric_resolver.make(name)
    sizes = torch.randint(2, 300, (50,), generator=torch.Generator().manual_seed(2))
    found = tt.chance(NAMES[name], sizes)
    assert found.mean.item() == pytest.approx(metric.expected_value(sizes.numpy()), rel=1e-10)
    assert found.variance.item() == pytest.approx(metric.variance(sizes.numpy()), rel=1e-6)
