"""`torch_topk.retrieval` beside TorchMetrics' own package: signatures, results, states, and where ours differs."""

import copy
import inspect
import io
import pickle
import random
from itertools import pairwise

import pytest
import torch
import torchmetrics.functional.retrieval as their_functions
import torchmetrics.retrieval as theirs
from hypothesis import given, settings
from hypothesis import strategies as st
from test_distributed import Workers
from torchmetrics import MetricCollection

import torch_topk as tt
from torch_topk import retrieval as ours
from torch_topk.kernels import branch_free

CLASSES, FUNCTIONS = theirs.__all__, their_functions.__all__
SCALARS = [name for name in CLASSES if not name.endswith(("Curve", "FixedPrecision"))]
MEAN_OF_TIES = {"RetrievalNormalizedDCG", "RetrievalAUROC", "retrieval_normalized_dcg", "retrieval_auroc"}
INDEXES = (0, 7, 1000, 50_000, 90_000_000, -3, -(2**62), 2**62)
each_class = pytest.mark.parametrize("name", CLASSES)
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def same(found, expected):
    """Compare results: scalars, tensors or tuples of them."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


def both(name, batches, **options):
    """What both packages compute of the same batches."""
    results = []
    for package in (ours, theirs):
        metric = getattr(package, name)(**options)
        for preds, target, indexes in batches:
            metric.update(preds, target, indexes=indexes)
        results.append(metric.compute())
    return results


def by_place(values, dim=None):
    """A sum to which every query adds its own part, by its place among the indexes."""
    place = torch.arange(1.0, len(values) + 1).view(-1, *[1] * (values.dim() - 1))
    return (values * place).sum() if dim is None else (values * place).sum(dim)


@st.composite
def batches_of(draw, name, most=30):
    """Rows in batches. Scores are positive; distinct ones where the other package leaves the order of ties open."""
    rows = draw(st.lists(st.tuples(st.sampled_from(INDEXES), st.integers(1, 8), st.integers(0, 3)), min_size=1))[:most]
    indexes, levels, grades = (torch.tensor(column) for column in zip(*rows, strict=True))
    distinct = levels.argsort(stable=True).argsort() + 1
    tied = name in MEAN_OF_TIES and draw(st.booleans())
    scores = levels / 8 if tied else distinct / (len(rows) + 1)
    dcg = name.lower().endswith("dcg")
    target = draw(st.sampled_from([grades, grades.float() / 2])) if dcg else (grades > 1).long()
    cut = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=3)) | {0, len(rows)})
    parts = [slice(start, stop) for start, stop in pairwise(cut)]
    return [(scores[part], target[part], indexes[part]) for part in parts], tied


@st.composite
def options_of(draw, name, tied):
    """Options of a class, all of them now and then."""
    parameters = inspect.signature(getattr(theirs, name)).parameters
    choices = {
        "empty_target_action": ["neg", "pos", "skip"],
        "ignore_index": [None, 0, 1, -100],
        "aggregation": ["mean", "median", "min", "max", by_place],
        "top_k": [None] if tied and name == "RetrievalAUROC" else [None, 1, 2, 3, 50],
        "max_k": [None, 1, 3, 40],
        "adaptive_k": [False, True],
        "max_fpr": [None, 0.1, 0.63, 1.0],
        "min_precision": [0.0, 0.3137, 0.5173, 1.0],
    }
    return {key: draw(st.sampled_from(of)) for key, of in choices.items() if key in parameters}


# The same results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CLASSES, *FUNCTIONS])
def test_signatures(name):
    package = theirs if name in CLASSES else their_functions
    parameters = [
        [(each.name, each.kind, each.default) for each in inspect.signature(getattr(one, name)).parameters.values()]
        for one in (ours, package)
    ]
    assert parameters[0] == parameters[1]


def test_all_of_it_is_here():
    assert ours.__all__ == [*CLASSES, *FUNCTIONS]
    for name in CLASSES:
        made, other = getattr(ours, name)(), getattr(theirs, name)()
        assert isinstance(made, getattr(theirs, name))
        for attribute in ("higher_is_better", "is_differentiable", "full_state_update"):
            assert getattr(made, attribute) == getattr(other, attribute)


@each_class
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_classes_agree(name, data):
    batches, tied = data.draw(batches_of(name))
    options = data.draw(options_of(name, tied))
    if "ignore_index" in options:  # a batch of which every row is ignored is refused
        kept = [target != options["ignore_index"] for _, target, _ in batches]
        batches = [
            batch for batch, rows in zip(batches, kept, strict=True) if options["ignore_index"] is None or any(rows)
        ]
    if batches:
        same(*both(name, batches, **options))


@each_class
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_empty_query_is_an_error_where_it_is_one(name, data):
    batches, _ = data.draw(batches_of(name))
    options = {"empty_target_action": "error"}
    found, expected = (outcome(both_of, one, name, batches, options) for one in (ours, theirs))
    if isinstance(expected, str):
        assert found.startswith(expected)
        assert found.endswith("leave them out with 'skip'.")
    else:
        same(found, expected)


def outcome(run, *args):
    """What it returns, or what its ValueError says."""
    try:
        return run(*args)
    except ValueError as error:
        return str(error)


def both_of(package, name, batches, options):
    metric = getattr(package, name)(**options)
    for preds, target, indexes in batches:
        metric.update(preds, target, indexes)
    return metric.compute()


@each_function
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_functions_agree(name, data):
    (batch, *_), tied = data.draw(batches_of(name))
    preds, target, _ = batch
    parameters = inspect.signature(getattr(their_functions, name)).parameters
    choices = {
        "top_k": [None] if tied and name == "retrieval_auroc" else [None, 1, 2, 50],
        "max_k": [None, 1, 3, 40],
        "adaptive_k": [False, True],
        "max_fpr": [None, 0.4],
    }
    options = {key: data.draw(st.sampled_from(of)) for key, of in choices.items() if key in parameters}
    found, expected = (getattr(one, name)(preds, target, **options) for one in (ours, their_functions))
    same(found, expected)


def many_rows(seed=0, queries=60, most=40):
    """Lists of different lengths, in no order, with distinct positive scores and some queries without a target."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, most, (queries,), generator=generator)
    indexes = torch.arange(queries).repeat_interleave(lengths) * 1_000_003 - 17
    rows = len(indexes)
    scores = (torch.randperm(rows, generator=generator) + 1) / (rows + 1)
    target = (torch.rand(rows, generator=generator) < 0.15).long()
    order = torch.randperm(rows, generator=generator)
    return scores[order], target[order], indexes[order]


@each_class
@pytest.mark.parametrize("cells", [1, 50, 1 << 18])
def test_lists_of_many_lengths(name, cells, monkeypatch):
    monkeypatch.setattr(ours.lists, "_CELLS", cells)
    preds, target, indexes = many_rows()
    same(*both(name, [(preds, target, indexes)]))
    order = indexes.argsort(stable=True)
    same(*both(name, [(preds[order], target[order], indexes[order])], aggregation=lambda values, dim: values[5]))


@each_class
def test_without_a_branch_on_data(name):
    rows = many_rows(1)
    with branch_free():
        found = both(name, [rows])
    same(*found)


def test_order_of_queries_in_what_aggregates():
    preds, target, indexes = many_rows(2)
    for name in SCALARS:
        same(*(values_of(package, name, (preds, target, indexes)) for package in (ours, theirs)))


def values_of(package, name, rows):
    """What a function to aggregate by is given."""
    kept = []

    def keep(values, dim):
        assert dim is None
        kept.append(values)
        return values.mean()

    both_of(package, name, [rows], {"aggregation": keep})
    return kept[0]


@each_class
def test_shapes_and_types(name):
    preds, target, indexes = many_rows(3, queries=8)
    rows = len(preds) // 6 * 6
    shaped = [each[:rows].view(2, -1, 3) for each in (preds, target, indexes)]
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        # Few bits make ties, whose order is ours to choose: the same numbers from fewer rows.
        few = shaped[0].to(dtype)[:, :1], shaped[1][:, :1], torch.arange(6).view(2, 1, 3)
        same(*both(name, [few]))
    for dtype in (torch.bool, torch.int32, torch.float32, torch.float64):
        found = both_of(ours, name, [(shaped[0], shaped[1].to(dtype), shaped[2])], {})
        same(found, both_of(theirs, name, [shaped], {}))  # theirs fails for R-precision of floating-point targets


@each_class
def test_a_value_a_batch(name):
    first, second = many_rows(4), many_rows(5)
    metrics = [getattr(package, name)() for package in (ours, theirs)]
    for batch in (first, second):
        same(*(metric(batch[0], batch[1], indexes=batch[2]) for metric in metrics))
    same(*(metric.compute() for metric in metrics))
    for metric in metrics:
        metric.reset()
        metric.update(*first)
    same(*(metric.compute() for metric in metrics))


@each_class
def test_short_lists_beside_a_long_one(name):
    # One table of them all would hold ten thousand million scores.
    generator = torch.Generator().manual_seed(0)
    indexes = torch.cat([torch.arange(100_000), torch.full((100_000,), -1)])
    preds = (torch.randperm(200_000, generator=generator) + 1) / 200_001
    target = torch.rand(200_000, generator=generator) < 0.5
    options = {"max_k": 3} if "max_k" in inspect.signature(getattr(ours, name)).parameters else {}
    metric = getattr(ours, name)(**options)
    metric.update(preds, target, indexes)
    found = metric.compute()
    value = found[0] if isinstance(found, tuple) else found
    assert ((value >= 0) & (value <= 1)).all()
    long = getattr(ours, name)(**options)
    long.update(preds[100_000:], target[100_000:], indexes[100_000:])
    other = getattr(theirs, name)(**options)
    other.update(preds[100_000:], target[100_000:], indexes[100_000:] + 1)
    same(long.compute(), other.compute())


# Where they differ ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-1.0, -0.5, -100.0])
@each_class
def test_a_shift_of_all_scores_changes_nothing(name, shift):
    preds, target, indexes = many_rows(6)
    ranks = preds.argsort().argsort().float()  # whole numbers, so that a shift is exact
    metric, other = getattr(ours, name)(), getattr(theirs, name)()
    metric.update(ranks / 4096 + shift, target, indexes)
    other.update((ranks + 1) / 4096, target, indexes)
    same(metric.compute(), other.compute())


def test_scores_below_zero_are_predictions():
    preds, target = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1, 0, 1])
    expected = {
        "retrieval_precision": 2 / 3,
        "retrieval_recall": 1.0,
        "retrieval_reciprocal_rank": 1.0,
        "retrieval_average_precision": 5 / 6,
    }
    for name, value in expected.items():
        assert getattr(ours, name)(preds, target, top_k=3).item() == pytest.approx(value)
        assert getattr(their_functions, name)(preds, target, top_k=3).item() == 0


def test_auroc_is_of_the_scores_as_they_are():
    # Through a sigmoid, these are all 1.
    preds, target = torch.tensor([100.0, 90.0, 80.0, 80.0, 70.0]), torch.tensor([1, 0, 1, 0, 0])
    pairs = [(p, n) for p in preds[target == 1].tolist() for n in preds[target == 0].tolist()]
    share = sum((p > n) + (p == n) / 2 for p, n in pairs) / len(pairs)
    assert ours.retrieval_auroc(preds, target).item() == pytest.approx(share)
    assert their_functions.retrieval_auroc(preds, target).item() == 0.5


@pytest.mark.parametrize("number", [3, 2**62])
def test_equal_scores_stand_in_the_order_of_their_rows(number):
    preds, indexes = torch.tensor([0.5, 0.5, -0.0, 0.0, 0.5]), torch.tensor([number] * 5)
    for place, rank in enumerate([1, 2, 4, 5, 3]):
        target = torch.arange(5) == place
        metric = ours.RetrievalMRR()
        metric.update(preds, target, indexes)
        assert metric.compute().item() == pytest.approx(1 / rank)
        # Those of a batch that comes later stand behind, whatever other queries lie between.
        metric = ours.RetrievalMRR()
        metric.update(torch.tensor([0.5, 0.1]), torch.tensor([0, 1]), torch.tensor([number, -number]))
        metric.update(preds, target, indexes)
        metric.update(torch.tensor([0.1]), torch.tensor([1]), torch.tensor([-number]))
        behind = 1 / (rank + 1)
        assert metric.compute().item() == pytest.approx((1 + behind) / 2)


@pytest.mark.parametrize(
    "name", ["RetrievalHitRate", "RetrievalRPrecision", "RetrievalFallOut", "RetrievalNormalizedDCG"]
)
def test_minus_infinity_is_a_score(name):
    preds = torch.tensor([0.3, -torch.inf, torch.inf, 0.1, -torch.inf, 0.2, 0.9])
    target, indexes = torch.tensor([0, 1, 0, 0, 1, 1, 0]), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    same(*both(name, [(preds, target, indexes)]))
    same(*both(name, [(preds[1:], target[1:], indexes[1:])]))
    several = torch.tensor([-torch.inf, 0.5, -torch.inf, -torch.inf, 0.4, 0.3, 0.2, 0.1, 0.8, 0.7, 0.6])
    target, indexes = torch.tensor([1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]), torch.tensor([0] * 5 + [1] * 6)
    if name == "RetrievalNormalizedDCG":
        same(*both(name, [(several, target, indexes)]))
    same(*both(name, [(preds[:1].fill_(-torch.inf), 1 - target[:1], indexes[:1])]))


def test_a_target_between_0_and_1_is_relevant():
    metric = ours.RetrievalPrecision()
    metric.update(torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.0]), torch.tensor([0, 0]))
    assert metric.compute() == 0.5


def test_a_negative_grade_is_worth_nothing():
    found = ours.retrieval_normalized_dcg(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([-2, 3, 0]))
    expected = ours.retrieval_normalized_dcg(torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0, 3, 0]))
    assert found == expected == pytest.approx(0.6309, abs=1e-4)


@each_class
def test_nan(name):
    metric = getattr(ours, name)()
    metric.update(torch.tensor([0.3, torch.nan, 0.1]), torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    with pytest.raises(tt.InputError, match=rf"{name}: 1 of 3 scores are NaN"):
        metric.compute()
    metric.reset()
    metric.update(torch.tensor([0.3]), torch.tensor([1]), torch.tensor([0]))
    metric.compute()
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        ours.retrieval_recall(torch.tensor([torch.nan, 0.2]), torch.tensor([1, 0]))


# What is refused --------------------------------------------------------------------------------------

ROWS = torch.tensor([0.3, 0.2]), torch.tensor([0, 1]), torch.tensor([4, 4])
REFUSED = {
    "no indexes": (ROWS[0], ROWS[1], None),
    "other shape": (ROWS[0][:1], ROWS[1], ROWS[2]),
    "no rows": (ROWS[0][:0], ROWS[1][:0], ROWS[2][:0]),
    "integer scores": (ROWS[1], ROWS[1], ROWS[2]),
    "complex target": (ROWS[0], ROWS[1] * 1j, ROWS[2]),
    "bool indexes": (ROWS[0], ROWS[1], ROWS[2].bool()),
    "int32 indexes": (ROWS[0], ROWS[1], ROWS[2].int()),
    "grades": (ROWS[0], ROWS[1] * 2, ROWS[2]),
    "negative": (ROWS[0], -ROWS[1], ROWS[2]),
}
OPTIONS = [
    {"empty_target_action": "casual_argument"},
    {"ignore_index": -100.0},
    {"aggregation": "sum"},
    {"top_k": -10},
    {"top_k": 4.0},
    {"max_k": 0},
    {"max_k": 1.5},
    {"adaptive_k": 10},
    {"adaptive_k": None},
    {"min_precision": 1.2},
    {"min_precision": 1},
]


@pytest.mark.parametrize("rows", REFUSED.values(), ids=REFUSED.keys())
@each_class
def test_rows_that_are_refused(name, rows):
    said = [outcome(getattr(package, name)().update, *rows) for package in (ours, theirs)]
    assert said[0] == said[1]
    assert said[0] or name == "RetrievalNormalizedDCG"


def takes(name, options):
    return set(options) <= set(inspect.signature(getattr(ours, name)).parameters)


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name in [*CLASSES, *FUNCTIONS] for options in OPTIONS if takes(name, options)],
    ids=str,
)
def test_options_that_are_refused(name, options):
    rows = ROWS[:2] if name in FUNCTIONS else ()
    with pytest.raises(ValueError, match=next(iter(options))):
        getattr(ours, name)(*rows, **options)


def test_options_that_only_ours_refuses():
    for name in ("RetrievalMAP", "RetrievalMRR"):
        for top_k in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match=f"positive integer or None, but is {top_k}"):
                getattr(ours, name)(top_k=top_k)
    for max_fpr in (0.0, -0.1, 1.5, 1):
        with pytest.raises(ValueError, match=f"above 0 and at most 1, or None, but is {max_fpr}"):
            ours.RetrievalAUROC(max_fpr=max_fpr)


@each_class
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_compute_without_rows(name):
    with pytest.raises(ValueError, match=f"{name} holds no rows"):
        getattr(ours, name)().compute()
    assert isinstance(outcome(getattr(theirs, name)().compute), str)


# States -----------------------------------------------------------------------------------------------


@each_class
def test_merging(name):
    first, second = many_rows(7), many_rows(8)
    expected = both(name, [first, second])[1]
    metric, other = getattr(ours, name)(), getattr(ours, name)()
    metric.update(*first)
    other.update(*second)
    metric.compute()
    metric.merge_state(other)
    same(metric.compute(), expected)
    empty = getattr(ours, name)()
    empty.merge_state(metric)
    empty.merge_state(getattr(ours, name)())
    same(empty.compute(), expected)  # and no warning that there was no update
    third = getattr(ours, name)()
    third.update(*first)
    third.merge_state(other.metric_state)
    same(third.compute(), expected)
    stranger = ours.RetrievalMAP() if name != "RetrievalMAP" else ours.RetrievalMRR()
    for wrong in (stranger, getattr(ours, name)(ignore_index=3), {"preds": []}):
        with pytest.raises(ValueError, match="not that of a"):
            metric.merge_state(wrong.metric_state if getattr(wrong, "ignore_index", None) else wrong)


@each_class
def test_checkpoints_and_copies(name):
    metric = getattr(ours, name)()
    metric.update(*many_rows(9))
    metric.update(*many_rows(10))
    expected = both(name, [many_rows(9), many_rows(10)])[1]
    for copied in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        same(copied.compute(), expected)
    assert metric.state_dict() == {}  # as theirs, unless it is asked for
    metric.persistent(mode=True)
    file = io.BytesIO()
    torch.save(metric.state_dict(), file)
    file.seek(0)
    loaded = getattr(ours, name)()
    loaded.persistent(mode=True)
    loaded.update(*many_rows(11))
    loaded.compute()
    loaded.load_state_dict(torch.load(file))
    same(loaded.compute(), expected)
    fresh = getattr(ours, name)()
    fresh.load_state_dict(metric.state_dict(), strict=False)
    same(fresh.compute(), expected)


def test_what_was_given_may_change():
    preds, target, indexes = many_rows(12)
    expected = both("RetrievalNormalizedDCG", [(preds, target, indexes)])[1]
    metric, given = ours.RetrievalNormalizedDCG(), [preds.clone(), target.float(), indexes.clone()]
    metric.update(*given)
    for tensor in given:
        tensor.zero_()
    same(metric.compute(), expected)
    for each, other in zip(given, [torch.zeros_like(each) for each in given], strict=True):
        assert torch.equal(each, other)


def test_nothing_given_is_changed():
    preds, target, indexes = many_rows(12)
    before = [each.clone() for each in (preds, target, indexes)]
    for name in CLASSES:
        metric = getattr(ours, name)()
        metric.update(preds, target, indexes)
        kept = [metric.preds[0].clone(), metric.target[0].clone(), metric.indexes[0].clone()]
        metric.compute()
        assert all(map(torch.equal, kept, [metric.preds[0], metric.target[0], metric.indexes[0]]))
    assert all(map(torch.equal, before, [preds, target, indexes]))


@each_class
def test_gradients_casts_and_inference_mode(name):
    preds, target, indexes = many_rows(13)
    expected = both(name, [(preds, target, indexes)])[1]
    metric = getattr(ours, name)()
    with torch.inference_mode():
        metric.update(preds.clone(), target, indexes)
        metric.reset()
    metric.update(preds.clone().requires_grad_(), target, indexes)
    metric.to(torch.bfloat16)
    assert not metric.preds[0].requires_grad
    same(metric.compute(), expected)


def test_a_collection_keeps_apart_what_ignores_other_targets():
    first = torch.tensor([0.9, 0.5]), torch.tensor([0, 1]), torch.tensor([0, 0])
    second = torch.tensor([0.9, 0.5]), torch.tensor([-1, 1]), torch.tensor([1, 1])
    collection = MetricCollection(
        {
            "all": ours.RetrievalMRR(ignore_index=-9),
            "some": ours.RetrievalMRR(ignore_index=-1),
            "recall": ours.RetrievalRecall(ignore_index=-1),
            "graded": ours.RetrievalNormalizedDCG(ignore_index=-1),
        }
    )
    collection.update(*first[:2], indexes=first[2])
    groups = sorted(sorted(each) for each in collection.compute_groups.values())
    assert groups == [["all"], ["graded"], ["recall", "some"]]
    with pytest.raises(ValueError, match="binary"):
        collection["all"].update(*second)
    collection["some"].update(*second)
    assert collection["some"].compute() == 0.75


def test_plots():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for name in CLASSES:
        metric = getattr(ours, name)()
        metric.update(*many_rows(14))
        figure, axes = metric.plot()
        assert axes is not None
        pyplot.close(figure)


# Processes --------------------------------------------------------------------------------------------

SHARES = {
    "a query split over ranks": [[(0, 30), (30, 31)], [(31, 90)]],
    "other numbers of batches": [[(0, 5), (5, 20), (20, 40), (40, 90)], [(90, 150)]],
    "a rank without rows": [[], [(0, 40), (40, 90)]],
    "the last without rows": [[(0, 90)], []],
}


def of_rank(rank, shares, rows):
    """What one rank computes of each class; ranks hold targets of other types."""
    values = {}
    for name in CLASSES:
        metric = getattr(ours, name)()
        for start, stop in shares[rank]:
            target = rows[1][start:stop]
            metric.update(rows[0][start:stop], target if rank else target.bool(), rows[2][start:stop])
        values[name] = metric.compute()
        if shares[rank]:
            assert isinstance(metric.preds, list)  # its own rows again
            assert sum(map(len, metric.preds)) == sum(stop - start for start, stop in shares[rank])
    return values


@pytest.fixture(scope="module", autouse=True)
def workers(tmp_path_factory):
    workers = Workers(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES.keys())
def test_processes(workers, shares):
    rows = many_rows(15)
    parts = [tuple(each[slice(*part)] for each in rows) for share in shares for part in share]
    found = workers.run(2, of_rank, shares, rows)
    for name in CLASSES:
        expected = both_of(theirs, name, parts, {})
        for rank in range(2):
            same(found[rank][name], expected)


def test_any_split_gives_the_same_digits():
    preds, target, indexes = many_rows(16)
    cuts = [0, *sorted(random.Random(0).sample(range(1, len(preds)), 6)), len(preds)]
    for name in CLASSES:
        whole, parts = getattr(ours, name)(), getattr(ours, name)()
        whole.update(preds, target, indexes)
        for start, stop in pairwise(cuts):
            parts.update(preds[start:stop], target[start:stop], indexes[start:stop])
        found, expected = (each if isinstance(each, tuple) else (each,) for each in (parts.compute(), whole.compute()))
        assert all(map(torch.equal, found, expected))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript is one, and looks at others of TorchMetrics
@each_class
def test_a_metric_within_a_scripted_model(name: str) -> None:
    """TorchScript leaves a metric aside, as it does TorchMetrics', if it can read the types of its class."""
    torch.jit.script(getattr(ours, name)())
