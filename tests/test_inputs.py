"""Ways in beside scores and lists: pairs, stored entries, samples, and truth by groups."""

import math
from typing import Any

import pytest
import scipy.sparse
import torch
from torch import Tensor

import torch_topk as tt

NAMES = ["ndcg", "map", "recall", "precision", "mrr", "fall_out", "rprec", "hits", "bpref", "judged"]


def values(ranking: Any, *rest: Any, k: int = 3, **options: Any) -> Tensor:
    suite = tt.TopKMetrics([*(f"{name}@{k}" for name in NAMES), f"ndcg(ideal=candidates)@{k}"], **options)
    suite.update(ranking, *rest)
    return torch.stack(list(suite.compute().values()))


# Pairs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_pairs_are_rows_of_a_padded_matrix(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pairs = int(torch.randint(0, 70, (1,), generator=generator)) + 1
    index = torch.randint(0, 9, (pairs,), generator=generator) * 10**9 - 3 * 10**9
    scores = torch.randint(-3, 4, (pairs,), generator=generator).double()
    scores[torch.rand(pairs, generator=generator) < 0.1] = -math.inf
    gains = torch.randint(-1, 3, (pairs,), generator=generator)
    queries = index.unique().tolist()
    width = max((index == query).sum().item() for query in queries)
    dense, truth = torch.full((len(queries), width), -math.inf).double(), torch.full((len(queries), width), -1)
    for row, query in enumerate(queries):
        mine = index == query
        dense[row, : mine.sum()], truth[row, : mine.sum()] = scores[mine], gains[mine]
    numbered = torch.searchsorted(torch.tensor(queries), index)
    for ties in ("index", "reverse", "optimistic", "pessimistic"):
        for k in (3, None):
            expected = values(dense, truth, ties=ties)
            flat = tt.Ranking.from_flat(scores, gains, index, k, ties=ties)
            flat.check()
            torch.testing.assert_close(values(flat, ties=ties), expected)
            known = tt.Ranking.from_flat(
                scores.numpy(), gains.numpy(), numbered.numpy(), k, num_queries=len(queries), ties=ties
            )
            torch.testing.assert_close(values(known, ties=ties), expected)


def test_three_queries_take_the_memory_of_three() -> None:
    index = torch.tensor([1000, 50_000, 90_000_000, 1000])
    ranking = tt.Ranking.from_flat(torch.tensor([0.1, 0.5, 0.9, 0.3]), torch.tensor([1, 1, 0, 0]), index, 2)
    assert ranking.ids.tolist() == [[3, 0], [1, -1], [2, -1]]
    assert ranking.hits_at((1, 2)).tolist() == [[0, 1], [1, 1], [0, 0]]


def test_queries_without_a_row() -> None:
    ranking = tt.Ranking.from_flat(
        torch.tensor([0.5]),
        torch.tensor([1.0]),
        torch.tensor([2]),
        1,
        num_queries=4,
        weights=torch.tensor([1, 0, 1, 1]),
    )
    assert ranking.ids.tolist() == [[-1], [-1], [0], [-1]]
    metric = tt.Recall(1, empty="skip")
    metric.update(ranking)
    assert metric.compute() == 1
    none = tt.Ranking.from_flat(torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.long), None)
    assert none.ids.shape == (0, 0)


def test_rows_of_no_query_leave_the_others_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        index = torch.randint(-1, 4, (30,), generator=generator)
        scores, gains = torch.rand(30, generator=generator), torch.randint(0, 2, (30,), generator=generator)
        kept = (index >= 0) & (index < 3)
        found = tt.Ranking.from_flat(scores, gains, index, 5, num_queries=3, validate="off")
        alone = tt.Ranking.from_flat(scores[kept], gains[kept], index[kept], 5, num_queries=3)
        assert found.hits().equal(alone.hits())
        assert found.num_relevant().equal(alone.num_relevant())


def test_pairs_that_are_refused() -> None:
    one, two = torch.rand(1), torch.rand(2)
    for number in (-1, 2.5, True):
        with pytest.raises(ValueError, match="num_queries must be an int of at least 0"):
            tt.Ranking.from_flat(two, two, torch.tensor([0, 0]), 1, num_queries=number)
    with pytest.raises(ValueError, match=r"those of Ranking\.from_flat are not"):
        tt.MRR(dataset_size=3).update(tt.Ranking.from_flat(two, two, torch.tensor([0, 0]), 10))
    with pytest.raises(TypeError, match=r"stored entries go through Ranking\.from_sparse"):
        tt.MRR(k=2).update(torch.eye(3).to_sparse(), torch.arange(3))
    with pytest.raises(ValueError, match=r"must be \(P,\), a row a pair, but scores are \(2,\) and target \(1,\)"):
        tt.Ranking.from_flat(two, one, torch.tensor([0, 0]), 1)
    with pytest.raises(TypeError, match="indexes must hold integer ids"):
        tt.Ranking.from_flat(two, two, two, 1)
    broken = tt.Ranking.from_flat(torch.tensor([math.nan, 1.0, 2.0]), torch.ones(3), torch.tensor([0, 0, 1]), 2)
    with pytest.raises(tt.InputError, match="1 query has a NaN score"):
        broken.check()
    last = tt.Ranking.from_flat(
        torch.tensor([math.nan, 1.0]), torch.ones(2), torch.tensor([0, 0]), 2, non_finite="last"
    )
    assert last.ids.tolist() == [[1, 0]]


# Stored entries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["coo", "csr", "scipy"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_stored_entries_are_the_candidates(layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-2, 3, (12, 15), generator=generator).float()
    stored = torch.rand(scores.shape, generator=generator) < 0.4
    gains = torch.randint(0, 3, scores.shape, generator=generator)
    query, item = stored.nonzero(as_tuple=True)
    matrix: Any = torch.sparse_coo_tensor(
        torch.stack([query, item]), scores[stored], scores.shape, check_invariants=True
    )
    matrix = {
        "coo": matrix,
        "csr": matrix.to_sparse_csr(),
        "scipy": scipy.sparse.csr_matrix((scores[stored].numpy(), (query.numpy(), item.numpy())), shape=scores.shape),
    }[layout]
    dense = scores.masked_fill(~stored, -math.inf)
    for ties in ("index", "reverse", "optimistic"):
        for target in (gains, tt.Relevance.from_sparse(gains.to_sparse()), torch.arange(12)):
            found = values(tt.Ranking.from_sparse(matrix, target, 3, ties=ties), ties=ties)
            torch.testing.assert_close(found, values(dense, target, ties=ties))


def test_entry_that_is_stored_twice() -> None:
    matrix = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([0.5, 0.5]), (1, 3), check_invariants=True
    )
    other = torch.sparse_coo_tensor(
        torch.tensor([[0, 0, 0], [1, 2, 1]]), torch.arange(3.0), (1, 3), check_invariants=True
    )
    for twice in (matrix, other):
        with pytest.raises(tt.InputError, match="an item that is ranked more than once"):
            tt.Ranking.from_sparse(twice, torch.tensor([1]), 2, validate="now")


def test_entries_that_are_no_candidates() -> None:
    scores, gains = torch.tensor([[3.0, 2, 1]]), torch.tensor([[-100, 1, 0]])
    ranking = tt.Ranking.from_sparse(scores.to_sparse(), gains, 3, ignore_index=-100)
    assert ranking.ids.tolist() == [[1, 2, -1]]
    itself = tt.Relevance.from_groups(torch.tensor([7]), torch.tensor([7, 7, 8]), self_ids=torch.tensor([0]))
    assert tt.Ranking.from_sparse(scores.to_sparse(), itself, 3).ids.tolist() == [[1, 2, -1]]


# Samples ----------------------------------------------------------------------------------------------


def test_right_answer_gains_nothing_from_its_place() -> None:
    positive, negatives = torch.zeros(4), torch.zeros(4, 9)
    metric = tt.MRR(k=10, ties="expected")
    metric.update(tt.Ranking.from_sampled(positive, negatives, 10))
    assert metric.compute().item() == pytest.approx(sum(1 / rank for rank in range(1, 11)) / 10)
    with pytest.raises(ValueError, match="ties='expected'"):
        tt.MRR(k=10).update(tt.Ranking.from_sampled(positive, negatives, 10))
    mixed = tt.Ranking.from_sampled(torch.tensor([1]), torch.tensor([[1.4, 0.2]]), 1, ties="index")
    assert mixed.ids.tolist() == [[1]]
    several = tt.Ranking.from_sampled(torch.tensor([[0.9, 0.1]]), torch.tensor([[0.5, -math.inf]]), 3, ties="index")
    assert several.ids.tolist() == [[0, 2, 1]]
    assert several.hits().tolist() == [[1, 0, 1]]
    with pytest.raises(ValueError, match=r"negatives \(Q, M\), but are \(4,\) and \(3, 9\)"):
        tt.Ranking.from_sampled(positive, negatives[:3], 10)


# Groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_groups_are_a_matrix_that_is_not_made(own: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    query_group, item_group = (torch.randint(0, 5, (size,), generator=generator) for size in (20, 31))
    self_ids = torch.arange(20) if own else None
    if own:
        query_group = item_group[:20].clone()
    truth = (query_group[:, None] == item_group).long()
    scores = torch.randint(0, 6, truth.shape, generator=generator).float()
    exclude = None
    if own:
        truth[torch.arange(20), torch.arange(20)] = 0
        exclude = torch.eye(20, 31, dtype=torch.bool)
    groups = tt.Relevance.from_groups(query_group, item_group, self_ids)
    kept = torch.rand(31, generator=generator) < 0.6
    names = [name for name in NAMES if name != "bpref"]  # the item itself is no judged one, as it is in the matrix
    for relevance, dense in ((groups, truth), (groups.keep(kept), truth * kept), (groups[5:], truth[5:])):
        rows = slice(len(truth) - len(dense), None)
        for options in ({}, {"ties": "expected"}, {"ties": "optimistic"}):
            suites = [
                tt.TopKMetrics([f"{n}@4" for n in names] + ["ndcg(ideal=candidates)@4"], **options) for _ in range(2)
            ]
            suites[0].update(scores[rows], relevance)
            suites[1].update(scores[rows], dense, exclude=None if exclude is None else exclude[rows])
            for key, value in suites[1].compute().items():
                assert suites[0].compute()[key].item() == pytest.approx(value.item(), abs=1e-12), (key, options)
        counts, expected = (torch.zeros(31, dtype=torch.long) for _ in range(2))
        counted = torch.rand(len(dense), generator=generator) < 0.7
        relevance.tally(counts, counted)
        tt.Relevance.from_dense(dense).tally(expected, counted)
        assert counts.equal(expected)
        assert relevance.num_relevant().equal(dense.sum(1))
        assert relevance.num_refused().equal(31 - own - dense.sum(1))


def test_captions_of_images() -> None:
    """Five captions an image: an image finds any of its own, a caption its image."""
    image = torch.arange(4).repeat_interleave(5)
    texts = torch.nn.functional.one_hot(image, 4).float()
    images = torch.eye(4)
    to_text = tt.TopKMetrics(["hits@1", "recall@5"])
    to_text.update(images @ texts.T, tt.Relevance.from_groups(torch.arange(4), image))
    assert [value.item() for value in to_text.compute().values()] == [1, 1]
    to_image = tt.TopKMetrics(["hits@1"])
    to_image.update(texts @ images.T, tt.Relevance.from_groups(image, torch.arange(4)))
    assert to_image.compute()["hits@1"] == 1


def test_groups_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"query_group must be \(Q,\), item_group \(N,\) and self_ids \(Q,\)"):
        tt.Relevance.from_groups(torch.zeros(2).long(), torch.zeros(3).long(), torch.zeros(3).long())
    stray = tt.Relevance.from_groups(torch.zeros(2).long(), torch.zeros(3).long(), torch.tensor([0, 7]))
    with pytest.raises(tt.InputError, match="1 query has"):
        tt.Ranking.from_scores(torch.rand(2, 3), stray, 2, validate="now")


# Lists of uneven lengths -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_tensors() -> None:
    lists = torch.nested.nested_tensor_from_jagged(torch.tensor([3, 1, 2, 0]), torch.tensor([0, 2, 2, 4]))
    gains = torch.nested.nested_tensor_from_jagged(torch.tensor([2.0, 1, 1, 3]), torch.tensor([0, 2, 2, 4]))
    padded, worth = torch.tensor([[3, 1], [-1, -1], [2, 0]]), torch.tensor([[2.0, 1], [0, 0], [1, 3]])
    scores = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    for nested, plain in (
        (tt.Relevance.from_ids(lists), tt.Relevance.from_ids(padded)),
        (tt.Relevance.from_ids(lists, gains), tt.Relevance.from_ids(padded, worth)),
    ):
        torch.testing.assert_close(values(scores, nested), values(scores, plain))
    truth = torch.tensor([1, 0, 2])
    assert tt.Ranking.from_ids(lists, truth).ids.tolist() == padded.tolist()
    layout = torch.nested.nested_tensor([torch.tensor([4]), torch.tensor([2, 1])])
    assert tt.Relevance.from_ids(layout).num_relevant().tolist() == [1, 2]
