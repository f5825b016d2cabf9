"""Metrics of what is recommended, beside PyG, published examples of RecTools and RePlay, and loops over lists."""

import copy
import itertools
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from test_distributed import Workers
from test_no_host_reads import trap
from torch import Tensor

import torch_topk as tt
from torch_topk import functional
from torch_topk.metrics import catalog

ITEMS, K = 40, (5, 2, 10)
COUNTS = torch.arange(ITEMS).remainder(9)
GENRES = torch.arange(ITEMS).remainder(4)
MAKERS: dict[str, Callable[..., tt.TopKMetric]] = {
    "novelty": partial(tt.Novelty, item_counts=COUNTS, num_users=20),
    "arp": partial(tt.AveragePopularity, item_counts=COUNTS),
    "ild": partial(tt.IntraListDiversity, embeddings=torch.nn.functional.one_hot(GENRES)),
    "coverage": partial(tt.Coverage, num_items=ITEMS),
    "gini": partial(tt.Gini, num_items=ITEMS),
    "personalization": partial(tt.Personalization, num_items=ITEMS),
}
PER_RUN = ("coverage", "gini", "personalization")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    workers = Workers(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


def scores(queries: int = 30, seed: int = 0) -> Tensor:
    """Popular items score more, so that lists overlap."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(queries, ITEMS, generator=generator) + 2 / (1 + torch.arange(ITEMS))


def fed(metric: tt.TopKMetric, *batches: Tensor) -> tt.TopKMetric:
    for batch in batches:
        metric.update(batch)
    return metric


def lists_of(*rows: Sequence[int]) -> tt.Ranking:
    return tt.Ranking.from_ids(
        torch.tensor([[*row] for row in rows]), tt.Relevance.from_ids(torch.full((len(rows), 1), -1))
    )


# Beside others ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_pyg() -> None:
    from torch_geometric import metrics as pyg

    peers: dict[str, list[Any]] = {
        "arp": [pyg.LinkPredAveragePopularity(k, COUNTS) for k in K],
        "ild": [pyg.LinkPredDiversity(k, GENRES) for k in K],
        "coverage": [pyg.LinkPredCoverage(k, ITEMS) for k in K],
        "personalization": [pyg.LinkPredPersonalization(k, max_src_nodes=None) for k in K],
    }
    batches = scores().split(11)
    for batch, peer in itertools.product(batches, itertools.chain(*peers.values())):
        peer.update(batch.topk(10).indices, torch.zeros(2, 1, dtype=torch.long))
    for name, each in peers.items():
        found = fed(MAKERS[name](k=K), *batches).compute()
        assert found.tolist() == pytest.approx([peer.compute().item() for peer in each], rel=1e-5), name


def test_the_examples_of_rectools() -> None:
    """Those in the docstrings of MeanInvUserFreq, AvgRecPopularity and IntraListDiversity of version 0.19."""
    ranked = lists_of([3, -1], [2, 3], [1, 2])
    met = torch.tensor([0, 3, 1, 0])  # by users 1, 2 and 3; nobody met item 3
    for k, expected in ((1, [1.5849625, 1.5849625, 0.0]), (2, [1.5849625, 1.5849625, 0.79248125])):
        found = tt.functional.novelty(ranked, k=k, item_counts=met, num_users=3)
        assert found.tolist() == pytest.approx(expected)

    ranked = lists_of([1, 2, -1], [3, 1, 2], [3, 2, -1])
    found = tt.functional.arp(ranked, k=[1, 3], item_counts=torch.tensor([0, 3, 2, 1]))
    assert found.T.tolist() == [[3, 1, 1], [2.5, 2, 1.5]]

    ranked = lists_of([1, 2, 3], [1, 4, -1])
    features = torch.tensor([[9, 9], [0, 0], [0, 1], [1, 1], [0, 0]])
    found = tt.functional.ild(ranked, k=[1, 2, 3], embeddings=features, distance="sqeuclidean")
    assert found.T.tolist() == [[0, 0], [1, 0], pytest.approx([4 / 3, 0])]


def test_the_example_of_replays_share_of_unseen_items() -> None:
    """Its Novelty(2), as the page says it is had: one less the precision of the history."""
    ranked = lists_of([3, 7, 10, 11, 2], [5, 8, 11, 1, 3], [4, 9, 2, -1, -1])
    history = tt.Relevance.from_ids(torch.tensor([[5, 6, 8, 9, 2], [5, 8, 11, 1, 3], [4, 9, 2, -1, -1]]))
    seen = tt.functional.precision(tt.Ranking.from_ids(ranked.ids, history), k=2, denominator="retrieved")
    assert (1 - seen).tolist() == [1, 0, 0]


def pair_loops(lists: Sequence[Sequence[int]], k: int) -> dict[str, float]:
    """The metrics of a run, from their definitions: by pairs of items for Gini, of lists for personalization."""
    tops = [{item for item in row[:k] if item >= 0} for row in lists]
    held = Counter(item for top in tops for item in top)
    counts = [held[item] for item in range(ITEMS)]
    pairs = list(itertools.combinations(tops, 2))
    return {
        "coverage": sum(count > 0 for count in counts) / ITEMS,
        "gini": sum(abs(a - b) for a in counts for b in counts) / (2 * ITEMS * sum(counts)),
        "personalization": sum(1 - len(a & b) / min(k, ITEMS) for a, b in pairs) / len(pairs),
    }


@pytest.mark.parametrize("ks", [K, (3,), (100, 1)], ids=str)
def test_metrics_of_a_run(ks: tuple[int, ...]) -> None:
    batches = scores().split(7)
    suite = tt.TopKMetrics({name: MAKERS[name](k=ks) for name in PER_RUN})
    for batch in batches:
        suite.update(batch)
    lists = scores().argsort(dim=1, descending=True).tolist()
    found = suite.compute()
    for name, k in itertools.product(PER_RUN, ks):
        assert found[f"{name}@{k}"].item() == pytest.approx(pair_loops(lists, k)[name], abs=1e-12), (name, k)
        alone = fed(MAKERS[name](k=k), *batches).compute()
        assert alone.shape == ()
        assert alone == found[f"{name}@{k}"]


def test_lists_of_several_lengths() -> None:
    rows = [[3, 1, -1, -1], [-1, 3, 7, 2], [-1, -1, -1, -1], [5, 3, 1, 0]]
    for name, k in itertools.product(PER_RUN, (1, 2, 4)):
        assert fed(MAKERS[name](k=k), lists_of(*rows)).compute().item() == pytest.approx(pair_loops(rows, k)[name]), (
            name
        )
    whole = [fed(MAKERS[name](k=None), lists_of(*rows)).compute().item() for name in PER_RUN[:2]]
    assert whole == pytest.approx([pair_loops(rows, 4)[name] for name in PER_RUN[:2]])
    skipping = fed(tt.Personalization(2, num_items=ITEMS, empty="skip"), lists_of(*rows))
    assert skipping.compute().item() == pytest.approx(pair_loops([rows[0], rows[1], rows[3]], 2)["personalization"])


def test_known_values() -> None:
    alike, apart = lists_of([0, 1], [1, 0]), lists_of([0, 1], [2, 3])
    for ranked, expected in ((alike, [0.5, 0.5, 0.0]), (apart, [1.0, 0.0, 1.0])):
        assert [fed(tt.registry[name](2, num_items=4), ranked).compute().item() for name in PER_RUN] == expected
    one = [fed(tt.registry[name](2, num_items=4), lists_of([0, 1])).compute().item() for name in PER_RUN]
    assert one == pytest.approx([0.5, 0.5, math.nan], nan_ok=True)
    nobody = [fed(tt.registry[name](2, num_items=4), lists_of([-1, -1])).compute().item() for name in PER_RUN]
    assert nobody == pytest.approx([0, math.nan, math.nan], nan_ok=True)
    near_one = tt.Gini(1, num_items=1000).summary(torch.tensor([10**9] + [0] * 999), torch.tensor([1e9]).double())
    assert near_one.tolist() == [0.999]


# What a run is added up of ----------------------------------------------------------------------------


def with_weights(metric: tt.TopKMetric, weights: Tensor) -> tt.TopKMetric:
    metric.update(scores(), weights=weights)
    return metric


@pytest.mark.parametrize("name", MAKERS)
def test_states_add_up(name: str) -> None:
    whole = fed(MAKERS[name](k=K), scores())
    parts = [fed(MAKERS[name](k=K), batch) for batch in scores().split(11)]
    for part in parts[1:]:
        parts[0].merge_state(part)
    close = partial(torch.testing.assert_close, rtol=1e-12, atol=0)
    close(parts[0].compute(), whole.compute())
    counted = torch.arange(30) < 11
    close(with_weights(MAKERS[name](k=K), counted).compute(), fed(MAKERS[name](k=K), scores()[:11]).compute())
    assert with_weights(MAKERS[name](k=K), counted & ~counted).compute().isnan().all()
    metric = MAKERS[name](k=K)
    assert torch.equal(metric(scores()[:11]), fed(MAKERS[name](k=K), scores()[:11]).compute())
    close(fed(metric, scores()[11:]).compute(), whole.compute())
    repeats = MAKERS[name](k=K, dataset_size=11)
    repeats.update(scores()[:11])
    with pytest.raises(ValueError, match="dataset_size is 11"):
        repeats.update(scores()[11:])


def shares(rank: int, bounds: list[int]) -> list[float]:
    suite = tt.TopKMetrics({name: make(k=K) for name, make in MAKERS.items()})
    if bounds[rank] < bounds[rank + 1]:
        suite.update(scores()[bounds[rank] : bounds[rank + 1]])
    return torch.stack(list(suite.compute().values())).tolist()


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric TopKMetrics was called before")
@pytest.mark.parametrize("bounds", [[0, 4, 30], [0, 17, 17, 30]], ids=str)
def test_uneven_processes(bounds: list[int], workers: Workers) -> None:
    expected = shares(0, [0, 30])
    for found in workers.run(len(bounds) - 1, shares, bounds):
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", MAKERS)
def test_updates_read_nothing_from_the_device(name: str, device: str) -> None:
    metric, batch = MAKERS[name](k=K).to(device), scores().to(device)
    with trap():
        metric.update(batch)
        metric(batch)
    assert metric.compute().device.type == device


@pytest.mark.parametrize("name", ["novelty", "arp", "ild", "value"])
def test_numbers_of_items_are_where_the_metric_is(name: str) -> None:
    """A first update that copied them would wait for the device."""
    make = {**MAKERS, "value": partial(tt.Value, item_values=COUNTS)}[name]
    for moved in (make(k=2).to("meta"), tt.TopKMetrics([make(k=2)]).to("meta").named[0][1]):
        table = moved.item_values if name == "value" else moved._table
        assert torch.device("meta") in table._on


def test_a_suite_of_means_and_of_runs() -> None:
    suite = tt.TopKMetrics(
        {name: make(k=[2, 5]) for name, make in MAKERS.items()}, slices={"half": 2}, collect=True, bootstrap=20
    )
    suite.update(scores(), groups={"half": torch.arange(30) % 2})
    values, intervals = suite.compute(), suite.intervals()
    assert values["ild@5/half/1"].item() == pytest.approx(fed(MAKERS["ild"](k=5), scores()[1::2]).compute().item())
    assert not any("/" in key and key.startswith(PER_RUN) for key in values)
    assert suite.collected().names == tuple(f"{name}@{k}" for name in MAKERS if name not in PER_RUN for k in (2, 5))
    for name in MAKERS:
        low, high = intervals[f"{name}@5"]
        assert (low.isnan() and high.isnan()) if name in PER_RUN else low < values[f"{name}@5"] < high


def test_names_and_options_of_the_grammar() -> None:
    suite = tt.TopKMetrics(["coverage(num_items=40)@2,5", "Gini(num_items=40)@5"])
    suite.update(scores())
    assert suite.keys() == ("coverage(num_items=40)@2", "coverage(num_items=40)@5", "Gini(num_items=40)@5")
    found = suite.compute()["Gini(num_items=40)@5"]
    assert found == fed(MAKERS["gini"](k=5), scores()).compute()
    assert eval(repr(MAKERS["gini"](k=5, empty="skip")), vars(tt)).options == {"num_items": 40}  # noqa: S307


def test_the_truth_is_left_out_where_no_metric_reads_it() -> None:
    truth = torch.rand(30, ITEMS, generator=torch.Generator().manual_seed(1)) < 0.1
    for make in MAKERS.values():
        without, with_truth = fed(make(k=K), scores()), make(k=K)
        with_truth.update(scores(), truth)
        assert torch.equal(without.compute(), with_truth.compute())
    with pytest.raises(TypeError, match="target is missing"):
        tt.TopKMetrics([MAKERS["gini"](k=5), "ndcg"], k=5).update(scores())


def test_a_run_has_no_function_of_a_query() -> None:
    assert {"novelty", "arp", "ild", "value"} <= set(dir(tt.functional))
    for name in PER_RUN:
        assert name not in dir(tt.functional)
        with pytest.raises(AttributeError, match=f"no '{name}': it is of all lists together"):
            getattr(tt.functional, name)


# Worths -----------------------------------------------------------------------------------------------


def test_points_for_events() -> None:
    """A click is 1, a like 2, a purchase 3: the truth names the event, the mapping what it is worth."""
    click, like, purchase = 1, 2, 3
    ranked = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.9, 0.8, 0.7, 0.6]])
    truth = torch.tensor([[click, 0, purchase, like], [0, 0, 0, purchase]])
    points = {click: 0.1, like: 0.3, purchase: 1.0}
    value = tt.functional.value(ranked, truth, k=[1, 3], gain=points)
    assert value.tolist() == [pytest.approx([0.1, 1.1]), [0, 0]]
    share = tt.functional.value(ranked, truth, k=[1, 3], gain=points, normalized=True)
    assert share.tolist() == [pytest.approx([0.1, 1.1 / 1.4]), [0, 0]]
    metric = tt.Value(k=1, gain={click: 0.1, like: 0.3})
    metric.update(ranked, truth)
    with pytest.raises(tt.InputError, match="2 queries have a positive grade that the mapping"):
        metric.compute()


def test_margins_of_items_and_amounts_in_the_truth() -> None:
    ranked, margins = torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([2.0, 50.0, 7.5])
    bought = torch.tensor([[3, 0, 1]])
    assert tt.functional.value(ranked, bought, k=[1, 3], item_values=margins).tolist() == [[2, 9.5]]
    assert tt.functional.value(ranked, bought, k=[1, 3], item_values=margins, min_relevance=2).tolist() == [[2, 2]]
    amounts = torch.tensor([[6.0, 0.0, 7.5]])  # of each purchase
    assert tt.functional.value(ranked, amounts, k=[1, 3]).tolist() == [[6, 13.5]]
    share = tt.Value(k=1, item_values=margins, normalized=True)
    share.update(ranked.repeat(9, 1), bought.repeat(9, 1))
    assert share.compute().item() == pytest.approx(2 / 7.5)
    share.update(ranked.repeat(99, 1), torch.tensor([[1, 0, 0]] * 99))
    low, high = share.intervals(0.9999)
    assert low < share.compute() < high == 1


# Distances --------------------------------------------------------------------------------------------


def test_bands_of_lists_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(2))
    expected = tt.functional.ild(scores(), k=K, embeddings=vectors)
    monkeypatch.setattr(catalog, "_BAND", 200)  # three lists of ten vectors of six numbers
    assert tt.functional.ild(scores(), k=K, embeddings=vectors).tolist() == [
        pytest.approx(row, rel=1e-12) for row in expected.tolist()
    ]
    assert tt.functional.ild(scores(0), k=K, embeddings=vectors).shape == (0, 3)


def test_small_distances_between_long_vectors() -> None:
    vectors = 1e8 + torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    found = tt.functional.ild(lists_of([0, 1, 2]), k=3, embeddings=vectors, distance="sqeuclidean")
    assert found.tolist() == [(1 + 4 + 5) / 3]
    found = tt.functional.ild(lists_of([1, -1, 2]), k=[2, 3], embeddings=vectors, distance="sqeuclidean")
    assert found.tolist() == [[0, 5]]
    for width in range(1, 12):  # of which some round to below 0
        same = tt.functional.ild(lists_of(range(6)), k=6, embeddings=torch.full((6, width), 0.1))
        assert 0 <= same.item() < 1e-15
    opposite = tt.IntraListDiversity(k=2, embeddings=torch.tensor([[1.0], [-1.0], [1.0]]))
    opposite.update(lists_of([0, 1], [1, 0], [2, 1], [1, 2], [0, 2]))
    low, high = opposite.intervals()
    assert low < opposite.compute() < high == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.bool], ids=str)
def test_types_of_embeddings(dtype: torch.dtype) -> None:
    vectors = torch.tensor([[1, 0], [1, 1], [0, 1]]).to(dtype)
    found = tt.functional.ild(lists_of([0, 1, 2]), k=3, embeddings=vectors)
    assert found.item() == pytest.approx((2 * (1 - math.sqrt(0.5)) + 1) / 3)


def test_embeddings_are_copied_and_not_saved() -> None:
    vectors = torch.eye(3)
    metric = tt.IntraListDiversity(k=2, embeddings=vectors)
    metric.persistent(mode=True)
    vectors.zero_()[:] = 1.0
    metric.update(lists_of([0, 1]))
    assert metric.compute() == 1
    assert sum(state.numel() for state in metric.state_dict().values()) < 100


# What is refused --------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no counts": (lambda: tt.Novelty(num_users=3), TypeError, "Novelty needs item_counts, how often each item was met"),
    "no users": (lambda: tt.Novelty(item_counts=COUNTS), TypeError, "Novelty needs num_users, the number of users"),
    "counts of events": (
        lambda: tt.Novelty(item_counts=COUNTS, num_users=7),
        ValueError,
        "at most num_users=7, but one is 8",
    ),
    "half a user": (
        lambda: tt.Novelty(item_counts=COUNTS, num_users=8.5),
        ValueError,
        "num_users must be an int of at least 1, but is 8.5",
    ),
    "counts below 0": (
        lambda: tt.AveragePopularity(item_counts=-COUNTS),
        ValueError,
        "item_counts must be finite numbers of at least 0, but one is -1",
    ),
    "no embeddings": (tt.IntraListDiversity, TypeError, "IntraListDiversity needs embeddings, a vector for each item"),
    "a number an item": (
        lambda: tt.IntraListDiversity(embeddings=COUNTS),
        ValueError,
        r"embeddings must be a vector an item, \(N, D\), but is torch.int64 \(40,\)",
    ),
    "a NaN": (
        lambda: tt.IntraListDiversity(embeddings=torch.tensor([[1.0, math.nan], [0.0, 1.0]])),
        ValueError,
        "embeddings must be finite numbers, but 1 row is not",
    ),
    "a distance": (
        lambda: tt.IntraListDiversity(embeddings=torch.eye(3), distance="l1"),
        ValueError,
        "distance must be one of 'cosine', 'sqeuclidean', but is 'l1'",
    ),
    "no catalogue": (tt.Coverage, TypeError, "Coverage needs num_items, the size of the catalogue"),
    "an empty catalogue": (
        lambda: tt.Gini(num_items=0),
        ValueError,
        "num_items must be an int of at least 1, but is 0",
    ),
    "whole lists": (
        lambda: tt.Personalization(None, num_items=4),
        ValueError,
        "Personalization needs k, an int or several",
    ),
    "a value of an empty query": (
        lambda: tt.Coverage(num_items=4, empty="one"),
        ValueError,
        "empty must be 'zero', 'skip' or 'error' here, but is 'one': Coverage is of all lists together",
    ),
    "two worths": (
        lambda: tt.Value(item_values=COUNTS, gain={1: 2}),
        ValueError,
        "give one, and not gain={1: 2} too",
    ),
    "normalized by name": (lambda: tt.Value(normalized="k"), TypeError, "normalized must be True or False, but is 'k'"),
    "truth of more items": (
        lambda: tt.Value(item_values=COUNTS[:9]).update(scores(), torch.ones(30, ITEMS)),
        ValueError,
        "item_values is of 9 items, but the truth speaks of 40",
    ),
    "truth of a larger catalogue": (
        lambda: tt.Coverage(num_items=9).update(scores(), torch.ones(30, ITEMS)),
        ValueError,
        "num_items is of 9 items, but the truth speaks of 40",
    ),
}


@pytest.mark.parametrize(("use", "kind", "text"), REFUSED.values(), ids=REFUSED)
def test_refused(use: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        use()


FAULTS: dict[str, tuple[Callable[..., tt.TopKMetric], dict[str, Any], str]] = {
    "counts": (
        partial(tt.AveragePopularity, 2, item_counts=COUNTS[:4]),
        {},
        "AveragePopularity: 1 query has a ranked or relevant item id for which .* hold nothing: give one",
    ),
    "embeddings": (
        partial(tt.IntraListDiversity, 2, embeddings=torch.eye(4)),
        {},
        "IntraListDiversity: 1 query has a ranked or relevant item id for which",
    ),
    "values": (
        partial(tt.Value, 2, item_values=COUNTS[:4]),
        {"target": tt.Relevance.from_ids(torch.tensor([[0, 1], [1, -1], [2, 3]]))},
        "Value: 1 query has a ranked or relevant item id for which",
    ),
    "values of what is not ranked": (
        partial(tt.Value, 1, item_values=COUNTS[:4]),
        {"target": tt.Relevance.from_ids(torch.tensor([[0, 4], [4, -1], [2, 3]])), "exclude": torch.tensor([4])},
        "Value: 2 queries have a ranked or relevant item id for which",
    ),
    "catalogue": (
        partial(tt.Gini, 2, num_items=4),
        {},
        "Gini: 1 query has a ranked item id .* not below the number of",
    ),
    "half a query": (
        partial(tt.Coverage, 2, num_items=5),
        {"weights": torch.tensor([0.5, 1.0, 0.0])},
        "Coverage: 1 query has a weight other than 0 and 1",
    ),
    "empty lists": (
        partial(tt.Personalization, 2, num_items=5, empty="error"),
        {"exclude": torch.tensor([[True] * 5, [False] * 5, [False] * 5])},
        "Personalization: 1 query has no",
    ),
    "empty lists of what is known": (
        partial(tt.Novelty, (2, 1), item_counts=COUNTS, num_users=9, empty="error"),
        {"exclude": torch.tensor([[True] * 5, [False] * 5, [False] * 5])},
        "Novelty: 1 query has no",
    ),
}


@pytest.mark.parametrize(("make", "given", "text"), FAULTS.values(), ids=FAULTS)
def test_faults_of_the_data(make: Callable[..., tt.TopKMetric], given: dict[str, Any], text: str) -> None:
    batch = {"preds": torch.tensor([[3.0, 2, 1, 0, -1], [1.0, 2, 3, 0, -1], [0.0, 1, -1, 2, 3]]), **given}
    metric = make()
    metric.update(**batch)
    with pytest.raises(tt.InputError, match=text):
        metric.compute()
    with pytest.raises(tt.InputError, match=text):
        make(validate="now").update(**batch)
    unseeing = make(validate="off")
    unseeing.update(**batch)
    assert not unseeing.compute().isnan().any()


def test_tally_of_one_cell_is_reset() -> None:
    metric = tt.Coverage(k=1, num_items=1)
    for _ in range(2):
        metric.update(torch.rand(3, 1))
        assert metric.metric_state[metric._counts_state].tolist() == [3]
        metric.reset()


def test_intervals_of_a_suite_are_where_it_is() -> None:
    suite = tt.TopKMetrics(["ndcg", tt.Coverage(k=2, num_items=5)], k=2).to("meta")
    suite.update(torch.rand(3, 5, device="meta"), torch.rand(3, 5, device="meta"))
    counts = torch.zeros(5, dtype=torch.int64, device="meta")
    assert all(end.is_meta for end in suite.named[1][1].margins(counts, 0.95))


def test_tables_of_items_are_shared_by_copies_and_not_kept_for_ever() -> None:
    vectors, scores = torch.rand(9, 3), torch.rand(4, 9)
    metric = tt.IntraListDiversity(k=3, embeddings=vectors)
    twin = copy.deepcopy(metric)
    assert twin.embeddings is metric.embeddings
    loaded = pickle.loads(pickle.dumps(metric))
    for each in (metric, twin, loaded):
        each.update(scores)
    assert metric.compute() == twin.compute() == loaded.compute()
    for step in range(40):
        tt.functional.ild(scores, k=3, embeddings=vectors + step)
    assert len(functional._with_tables) <= functional._MOST_TABLES
    held = [each for each in vars(functional._definitions).values() if "embeddings" in each.options]
    assert len(held) <= functional._MOST_TABLES
