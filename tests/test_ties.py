"""Rules for equal scores beside all orders of them, one by one, and beside scikit-learn's averages."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import reference as ref
import torch
from sklearn.metrics import ndcg_score
from test_reference import DEFINITIONS, OPTIONS, as_stored
from torch import Tensor

import torch_topk as tt
from torch_topk import kernels

ITEMS = 6
KS = (1, 2, 4, 9)
EXPECTED = {
    name: [options for each, options in DEFINITIONS.values() if each == name]
    for name in OPTIONS
    if tt.registry[name].expected and name != "tie_rate"  # which tells of ties, whatever their order
}


def orders(scores: Sequence[float]) -> Iterator[list[int]]:
    """Every order of the items that falls by score."""
    groups: dict[float, list[int]] = {}
    for item in sorted(range(len(scores)), key=lambda item: -scores[item]):
        if scores[item] != -math.inf:
            groups.setdefault(scores[item], []).append(item)
    for parts in itertools.product(*map(itertools.permutations, groups.values())):
        yield [item for part in parts for item in part]


class Batch:
    """Random inputs with many ties, and every order that they may have."""

    def __init__(self, seed: int, queries: int = 10) -> None:
        rng = random.Random(seed)
        self.scores = [[rng.choice((0.0, -0.0, 1.0, 2.0, -math.inf)) for _ in range(ITEMS)] for _ in range(queries)]
        self.scores[0] = [1.0] * ITEMS
        self.truth = [
            {item: float(rng.choice((-1, 0, 1, 1, 2, 3))) for item in rng.sample(range(ITEMS), rng.randint(0, 5))}
            for _ in range(queries)
        ]

    def mean(self, name: str, k: int | None, target: Any, **options: Any) -> list[float]:
        """The mean of a metric over all orders, of each query."""
        options = {option: value for option, value in options.items() if option != "average"}
        means = []
        for scores, gains in zip(self.scores, self.truth, strict=True):
            held = [item for item in range(ITEMS) if scores[item] != -math.inf]
            queries = [ref.Query(order, gains, held) for order in orders(scores)]
            values = [ref.value(name, query, k, **options) for query in as_stored(queries, target)]
            values = [value for value in values if value is not None]
            means.append(sum(values) / len(values))
        return means

    def dense(self) -> Tensor:
        return torch.tensor([[gains.get(item, 0.0) for item in range(ITEMS)] for gains in self.truth])

    def listed(self) -> tt.Relevance:
        rows = [list(gains.items()) + [(-1, 0.0)] * (ITEMS - len(gains)) for gains in self.truth]
        ids, gains = (torch.tensor([[pair[i] for pair in row] for row in rows]) for i in (0, 1))
        return tt.Relevance.from_ids(ids.long(), gains)

    def pairs(self) -> tuple[Tensor, Tensor]:
        query, item = (
            torch.tensor(x) for x in zip(*itertools.product(range(len(self.truth)), range(ITEMS)), strict=True)
        )
        order = torch.randperm(len(query), generator=torch.Generator().manual_seed(0))
        return query[order], item[order]


@pytest.mark.parametrize("min_relevance", [None, 2.0])
@pytest.mark.parametrize("way", ["dense", "listed", "named columns"])
@pytest.mark.parametrize("name", EXPECTED)
def test_expected_is_the_mean_over_all_orders(name: str, way: str, min_relevance: float | None) -> None:
    batch = Batch(seed=len(name))
    target = batch.dense() if way == "dense" else batch.listed()
    given: dict[str, Any] = {"preds": torch.tensor(batch.scores), "target": target}
    if way == "named columns":
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        given |= {"preds": given["preds"][:, order], "items": order}
    for options in EXPECTED[name]:
        own = {option: value for option, value in options.items() if option != "average"}
        twin = getattr(tt.functional, name)
        for k in (KS, None):
            found = twin(**given, k=k, ties="expected", min_relevance=min_relevance, **own)
            found = found.reshape(len(batch.scores), -1).T.tolist()
            for values, cut in zip(found, k or (None,), strict=True):
                expected = batch.mean(name, cut, target, min_relevance=min_relevance, **own)
                assert values == pytest.approx(expected, rel=1e-11, abs=1e-11), (options, cut)


def test_expected_of_pairs_and_of_stored_entries() -> None:
    batch = Batch(seed=5)
    query, item = batch.pairs()
    scores, gains = torch.tensor(batch.scores)[query, item], batch.dense()[query, item]
    names = ["ndcg@3", "mrr", "map@2", "hits@2"]
    found = []
    suites = [tt.TopKMetrics(names, ties="expected") for _ in range(3)]
    suites[0].update(torch.tensor(batch.scores), batch.dense())
    suites[1].update(tt.Ranking.from_flat(scores, gains, query, None, ties="expected"))
    stored = torch.sparse_coo_tensor(
        torch.stack([query, item]), scores, (len(batch.truth), ITEMS), check_invariants=True
    )
    suites[2].update(tt.Ranking.from_sparse(stored, batch.dense(), None, ties="expected"))
    found = [torch.stack(list(suite.compute().values())) for suite in suites]
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.int64, torch.bool])
@pytest.mark.parametrize("gains", [torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("ties", ["optimistic", "pessimistic"])
def test_orders_by_gain(ties: str, gains: torch.dtype, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 2 if dtype == torch.bool else 4, (20, 30), generator=generator).to(dtype)
    truth = torch.randint(0 if gains == torch.bool else -1, 3, (20, 30), generator=generator).to(gains)
    sign = -1 if ties == "optimistic" else 1
    for k in (1, 5, None):
        ranking = tt.Ranking.from_scores(scores, truth, k, ties=ties)
        for row, (score, gain) in enumerate(zip(scores.tolist(), truth.tolist(), strict=True)):
            order = sorted(range(30), key=lambda item: (-score[item], sign * gain[item], item))
            assert ranking.ids[row].tolist() == order[:k]
    listed = tt.Relevance.from_sparse(truth.double().to_sparse())
    assert tt.Ranking.from_scores(scores, listed, 7, ties=ties).ids.equal(
        tt.Ranking.from_scores(scores, truth, 7, ties=ties).ids
    )


def test_optimistic_and_pessimistic_are_the_ends() -> None:
    batch = Batch(seed=9)
    scores, target = torch.tensor(batch.scores), (batch.dense() > 0).long()
    suites = {
        ties: tt.TopKMetrics(["ndcg", "mrr", "map", "hits", "precision", "full_recall"], KS, ties=ties)
        for ties in ("pessimistic", "reverse", "expected", "index", "optimistic")
    }
    for suite in suites.values():
        suite.update(scores, target)
    values = {ties: torch.stack(list(suite.compute().values())) for ties, suite in suites.items()}
    for ties in ("index", "reverse", "expected"):
        assert (values["pessimistic"] <= values[ties] + 1e-12).all()
        assert (values[ties] <= values["optimistic"] + 1e-12).all()


def test_excluded_and_missing_items_are_in_no_group() -> None:
    batch = Batch(seed=11)
    scores = torch.tensor(batch.scores)
    excluded = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1)) < 0.3
    batch.scores = scores.masked_fill(excluded, -math.inf).tolist()
    ids = torch.nn.functional.pad(torch.where(excluded, torch.arange(ITEMS), -1), (0, 1), value=-1)
    for exclude in (excluded, tt.Relevance.from_dense(excluded), ids):
        for ties in ("expected", "optimistic", "pessimistic"):
            found = tt.functional.ndcg(scores, batch.dense(), k=3, exclude=exclude, ties=ties)
            assert (
                found.tolist() == tt.functional.ndcg(torch.tensor(batch.scores), batch.dense(), k=3, ties=ties).tolist()
            )
    assert tt.functional.ndcg(
        torch.tensor(batch.scores), batch.dense(), k=3, ties="expected"
    ).tolist() == pytest.approx(batch.mean("ndcg", 3, batch.dense()))


@pytest.mark.parametrize("long", [False, True])
def test_ndcg_is_that_of_scikit_learn(long: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 40 if long else 3, (25, 9000 if long else 12), generator=generator).double()
    gains = torch.randint(0, 4, scores.shape, generator=generator).double()
    for k in (1, 5, 40):
        found = tt.functional.ndcg(scores, gains, k=k, ties="expected", ideal="candidates")
        expected = [
            ndcg_score(gain[None], score[None], k=k) for gain, score in zip(gains.numpy(), scores.numpy(), strict=True)
        ]
        assert found.tolist() == pytest.approx(expected, rel=1e-11)


def test_published_values() -> None:
    """Five documents tied, graded 10, 0, 0, 1, 5; and constant scores over four items, the third relevant."""
    gains = torch.tensor([[10, 0, 0, 1, 5]])
    for scores, value in (
        ([1.0] * 5, 0.690979),
        ([1.0, 1, 1, 0.5, 0.5], 0.699812),
        ([0.1, 0.2, 0.3, 4, 70], 0.695694),
    ):
        assert tt.functional.ndcg(torch.tensor([scores]), gains, k=5, ties="expected").item() == pytest.approx(
            value, abs=1e-6
        )
    third = torch.tensor([[0, 0, 1, 0]])
    assert tt.functional.mrr(torch.zeros(1, 4), third, k=None).item() == pytest.approx(1 / 3)
    assert tt.functional.mrr(torch.zeros(1, 4), third, k=None, ties="expected").item() == pytest.approx(25 / 48)
    assert tt.functional.mrr(torch.zeros(1, 4), torch.tensor([2]), k=None, ties="expected").item() == pytest.approx(
        25 / 48
    )


def test_who_refuses() -> None:
    for name in ("err", "bpref"):
        with pytest.raises(ValueError, match=r"has no value with ties='expected', only with 'index', 'reverse'"):
            tt.TopKMetrics(["ndcg", name], k=3, ties="expected")
    with pytest.raises(ValueError, match="ERR has no value with ties='expected'"):
        tt.TopKMetrics(["ndcg", tt.ERR(k=3)], k=3, ties="expected")
    with pytest.raises(ValueError, match=r"The Ranking has ties='index', but this metric ties='expected'"):
        tt.NDCG(3, ties="expected").update(tt.Ranking.from_scores(torch.rand(2, 4), torch.tensor([0, 1]), 3))


def test_item_that_two_columns_name() -> None:
    """Its best place is kept, with the score there: no tie is left that was not."""
    scores, items = torch.tensor([[3.0, 2.0, 2.0, 1.0]]), torch.tensor([[5, 5, 6, 7]])
    truth = tt.Relevance.from_ids(torch.tensor([[6]]))
    for ties in ("index", "expected", "optimistic"):
        ranking = tt.Ranking.from_scores(scores, truth, None, items=items, duplicates="first", ties=ties)
        assert ranking.hits().tolist() == [[0, 1, 0, 0]]
        assert not ranking.tied_at((1, 2, 3)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("ties", ["index", "optimistic", "pessimistic", "expected"])
def test_nan_of_either_sign_is_seen(ties: str, dtype: torch.dtype) -> None:
    scores = torch.tensor([[0.1, math.nan, 0.3], [0.1, 0.2, 0.3]], dtype=dtype)
    scores[0] *= -1  # the sign bit of a NaN is set, as 0 / 0 has it on some processors
    with pytest.raises(tt.InputError, match="1 query has a NaN score"):
        tt.Ranking.from_scores(scores, torch.tensor([[1, 0, 0], [1, 0, 0]]), 2, ties=ties, validate="now")


def test_given_lists_have_no_ties() -> None:
    lists, truth = torch.tensor([[2, 0, 1]]), torch.tensor([[1.0, 0, 0]])
    for ties in ("expected", "optimistic"):
        assert tt.functional.mrr(tt.Ranking.from_ids(lists, truth), k=3, ties=ties).item() == 0.5


# How many queries hang on it ----------------------------------------------------------------------------


@pytest.mark.parametrize("branch_free", [False, True])
@pytest.mark.parametrize("ties", ["index", "reverse", "expected", "pessimistic"])
def test_queries_whose_first_k_hang_on_ties(ties: str, branch_free: bool) -> None:
    batch = Batch(seed=3, queries=30)
    scores, query_item = torch.tensor(batch.scores), batch.pairs()
    expected = []
    for row in batch.scores:
        firsts = [{frozenset(order[:k]) for order in orders(row)} for k in (*KS, None)]
        expected.append([len(each) > 1 for each in firsts])
    whole = [tt.Ranking.from_scores(scores, batch.dense(), None, ties=ties)]
    query, item = query_item
    whole.append(tt.Ranking.from_flat(scores[query, item], batch.dense()[query, item], query, None, ties=ties))
    whole.append(tt.Ranking.from_scores(scores, batch.listed(), None, items=torch.arange(ITEMS), ties=ties))
    for ranking in whole:
        assert ranking.tied_at(KS).tolist() == [row[:-1] for row in expected]
    for k, place in zip(KS[:-1], itertools.count(), strict=False):
        with kernels.branch_free() if branch_free else torch.no_grad():
            ranking = tt.Ranking.from_scores(scores, batch.dense(), k, ties=ties)
            assert ranking.tied_at((k,))[:, 0].tolist() == [row[place] for row in expected]
    assert not tt.Ranking.from_ids(torch.tensor([[1, 2]]), torch.tensor([1])).tied_at((1,)).any()
    metric = tt.TieRate(k=KS, ties=ties)
    metric.update(scores)
    assert metric.compute().tolist() == pytest.approx(torch.tensor(expected).double().mean(0)[:-1].tolist())


def test_orders_are_all_there_are() -> None:
    assert [*orders([1.0, 2.0, 1.0])] == [[1, 0, 2], [1, 2, 0]]
    assert len([*orders([0.0] * 4)]) == 24


def test_large_gains_and_many_rows() -> None:
    """Gains beyond 32 bits, and rows of which only some are laid out at a time."""
    gains = torch.tensor([[2**33, 2**34, 2**35]])
    assert tt.Ranking.from_scores(torch.zeros(1, 3), gains, 3, ties="optimistic").ids.tolist() == [[2, 1, 0]]
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 5, (300, 20_000), generator=generator).float()
    truth = torch.randint(0, 3, scores.shape, generator=generator)
    for ties in ("optimistic", "expected"):
        found = tt.functional.ndcg(scores, truth, k=5, ties=ties)
        parts = [tt.functional.ndcg(scores[i : i + 7], truth[i : i + 7], k=5, ties=ties) for i in range(0, 300, 7)]
        torch.testing.assert_close(found, torch.cat(parts))


def test_no_column() -> None:
    suite = tt.TopKMetrics(["ndcg", "mrr", "map"], k=2, ties="expected")
    for truth in (torch.zeros(3, 0), tt.Relevance.from_ids(torch.full((3, 1), -1))):
        suite.update(torch.zeros(3, 0), truth)
    assert all(value == 0 for value in suite.compute().values())
