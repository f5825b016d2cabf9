"""torch.compile: one graph each, the eager result, and no new graph when the batch size changes."""

import pytest
import torch
from helpers import RANKING, required
from torch._dynamo import reset as forget_graphs
from torch._dynamo.testing import CompileCounterWithBackend

import torch_topk as tt

ITEMS = 60


@pytest.fixture(autouse=True)
def fresh():
    forget_graphs()
    yield
    forget_graphs()


def batches():
    """Batches of several sizes: scores with ties, labels, grades, and ids to leave out."""
    generator = torch.Generator().manual_seed(0)
    for queries in (4, 7, 16):
        scores = torch.randint(20, (queries, ITEMS), generator=generator).float()
        labels = torch.randint(ITEMS, (queries,), generator=generator)
        grades = torch.randint(-1, 4, (queries, ITEMS), generator=generator)
        seen = torch.randint(-1, ITEMS, (queries, 5), generator=generator)
        yield scores, labels, grades, seen


def compare(function):
    """Hold the compiled function against the eager one; the number of graphs."""
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=True)
    for batch in batches():
        torch.testing.assert_close(compiled(*batch), function(*batch), rtol=1e-12, atol=0, equal_nan=True)
    return counter.frame_count


@pytest.mark.parametrize("ties", ["index", "reverse"])
@pytest.mark.parametrize("k", [10, 50])
def test_topk(k, ties):
    assert compare(lambda scores, *_: tt.topk(scores, k, ties=ties)) == 1


def test_topk_of_long_rows():
    def top(scores, *_):
        return tt.topk(scores.repeat(1, 100), 10)

    assert compare(top) == 1


def test_rank_counts():
    assert compare(lambda scores, *_: tt.rank_counts(scores, scores[:, 0])) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        lambda labels, grades, seen: (labels, {}),
        lambda labels, grades, seen: (grades, {}),
        lambda labels, grades, seen: (grades, {"exclude": seen, "weights": labels.double()}),
        lambda labels, grades, seen: (labels, {"exclude": grades == 2, "ties": "reverse"}),
        lambda labels, grades, seen: (tt.Relevance.from_ids(seen), {"non_finite": "last", "ignore_index": -1}),
    ],
    ids=["labels", "gains", "ids left out", "mask left out", "ids"],
)
def test_ranking_from_scores(arguments):
    def rank(scores, labels, grades, seen):
        target, options = arguments(labels, grades, seen)
        ranking = tt.Ranking.from_scores(scores, target, 10, **options)
        return ranking.ids, ranking.hits_at((1, 10)), ranking.fault_counts()

    assert compare(rank) == 1


@pytest.mark.parametrize("name", RANKING)
def test_functional_twin(name):
    if required(name):
        pytest.skip("torch_topk.functional says so: given numbers of items, it compiles to no graph")
    twin = getattr(tt.functional, name)
    assert compare(lambda scores, labels, *_: twin(scores, labels, k=[1, 5, 10])) == 1


def test_functional_twin_with_options():
    k = 3
    graph = compare(lambda scores, _, grades, seen: tt.functional.ndcg(scores, grades, k=k, exclude=seen, empty="skip"))
    assert graph == 1


def test_sums_of_a_suite():
    suite = tt.TopKMetrics(["precision", "ndcg", "mrr", "map"], k=[1, 5])
    assert compare(lambda scores, labels, *_: suite.ratios(suite.rank(scores, labels))) == 1
