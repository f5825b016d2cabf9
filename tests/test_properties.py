"""What holds for any input, for every metric of the registry with every value of its options."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from helpers import DEFINITIONS, REQUIRED, Batch, Cutoffs, assert_same, definitions, everything, metric_of, report
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

import torch_topk as tt

SCORES = (torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.bool)
some = settings(max_examples=30)
few = settings(max_examples=10)

cutoffs = st.sampled_from([(1, 3), (2, 12), None])
policies = st.fixed_dictionaries(
    {
        "ties": st.sampled_from(["index", "reverse"]),
        "empty": st.sampled_from(["zero", "one", "skip", "nan"]),
        "min_relevance": st.sampled_from([None, 2.0]),
    }
)


def matrix(
    draw: Callable[..., Any], shape: tuple[int, ...], elements: st.SearchStrategy[Any], dtype: Any = float
) -> Tensor:
    return torch.from_numpy(draw(arrays(dtype, shape, elements=elements)))


@st.composite
def batches(draw: st.DrawFn, *, distinct: bool = False, least: int = -3) -> Batch:
    """Up to five queries of up to nine items; many scores are equal, or none within a row."""
    queries, items = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    shape = (queries, items)
    if distinct:
        scores = torch.tensor([draw(st.permutations(range(items))) for _ in range(queries)], dtype=torch.float64)
    else:
        scores = matrix(draw, shape, st.integers(least, 3))
    return Batch(
        scores,
        gains=matrix(draw, shape, st.sampled_from([0, 0, 0, 1, 2, 3, -1] if least < 0 else [0, 0, 1, 2, 3])),
        excluded=matrix(draw, shape, st.sampled_from([False, False, False, True]), bool),
        weights=matrix(draw, (queries,), st.sampled_from([0.5, 1, 2, 3])),
    )


def permutation(data: st.DataObject, size: int) -> Tensor:
    return torch.tensor(data.draw(st.permutations(range(size))))


# Values -----------------------------------------------------------------------------------------------


@some
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_values_lie_within_the_bounds(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    suite = everything(k, **given_policies)
    suite.update(**batch.update())
    values = torch.stack(list(suite.compute().values()))
    low, high = suite._bounds
    assert (values.isnan() | ((values >= low) & (values <= high + 1e-12))).all()


def perfect(update: dict[str, Any], k: Cutoffs, **given_policies: Any) -> dict[str, Tensor]:
    """What every definition says of the best list: by grade, or by its own numbers of what is relevant, up or down.

    Where the truth is not read, all items are as good as relevant ones.
    """
    gains, level = update["target"], given_policies.get("min_relevance")
    relevant = gains > 0 if level is None else gains >= level
    best = report({**update, "preds": gains}, k=k, **given_policies)
    for option in ("propensities", "item_values", "item_counts"):
        numbers, wanted = REQUIRED[option][: gains.shape[1]].double(), relevant | (option == "item_counts")
        up, down = (torch.where(wanted, sign * numbers, -math.inf) for sign in (1, -1))
        rising, falling = (report({**update, "preds": preds}, k=k, **given_policies) for preds in (up, down))
        for key, metric in everything(k, **given_policies).items():
            if DEFINITIONS[key.partition("@")[0]].get(option) is not None:
                better = torch.maximum if metric.higher_is_better else torch.minimum
                best[key] = better(rising[key], falling[key])
    return best


@some
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_no_list_is_better_than_the_perfect_one(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    update = batch.update(exclude=None)
    found = report(update, k=k, **given_policies)
    best = perfect(update, k, **given_policies)
    for key, metric in everything(k, **given_policies).items():
        if metric._metric[0].name == "ild":  # of which no order by a number is the best
            continue
        if key.startswith("tie_rate"):  # equal gains, as scores, are ties
            continue
        better = found[key] - best[key]
        assert not (better if metric.higher_is_better else -better) > 1e-12, key


@some
@given(data=st.data(), k=st.integers(1, 4), others=st.integers(0, 4))
def test_perfect_list_of_as_many_as_are_relevant_has_the_best_value(data: st.DataObject, k: int, others: int) -> None:
    relevant = matrix(data.draw, (3, k), st.integers(2, 3))
    gains = torch.cat([relevant, torch.zeros(3, others)], dim=1)[:, permutation(data, k + others)]
    found = perfect({"target": gains}, (k,))
    for (key, value), spec in zip(found.items(), DEFINITIONS.values(), strict=True):
        cls = tt.registry[spec["name"]]
        best = metric_of(spec, (k,)).bounds[1 if cls.higher_is_better else 0]
        if cls.reads_truth and spec["name"] not in {"rbp", "err"}:  # only endless lists come near their best
            assert math.isinf(best) or value.item() == pytest.approx(best, abs=1e-12), key


# Order alone counts -----------------------------------------------------------------------------------

INCREASING: dict[str, Callable[[Tensor], Tensor]] = {
    "far below 0": lambda scores: scores - 1e6,
    "far above 0": lambda scores: scores + 1e6,
    "all above 0": torch.exp,
    "within -2 and 2": torch.atan,
    "cubed": lambda scores: scores**3,
    "huge": lambda scores: scores * 1e300,
    "tiny": lambda scores: scores * 1e-300,
    "single precision": lambda scores: (2 * scores - 1).float(),
}


@pytest.mark.parametrize("increasing", INCREASING.values(), ids=INCREASING)
@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_increasing_maps_of_the_scores_change_nothing(
    increasing: Callable[[Tensor], Tensor], batch: Batch, k: Cutoffs, given_policies: dict[str, Any]
) -> None:
    found = report(batch.update(preds=increasing(batch.scores)), k=k, **given_policies)
    assert_same(found, report(batch.update(), k=k, **given_policies), tolerance=0)


@some
@given(batch=batches(distinct=True), k=cutoffs, given_policies=policies, data=st.data())
def test_order_of_items_changes_nothing_where_no_scores_are_equal(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    order = permutation(data, batch.scores.shape[1])
    found = report(batch.columns(order).update(), k=k, order=order, **given_policies)
    assert_same(found, report(batch.update(), k=k, **given_policies))


@some
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_reversed_ties_are_the_ties_of_reversed_items(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    order = torch.arange(batch.scores.shape[1]).flip(0)
    found = report(batch.update(), k=k, **{**given_policies, "ties": "reverse"})
    flipped = batch.columns(order).update()
    assert_same(found, report(flipped, k=k, order=order, **{**given_policies, "ties": "index"}))


# Queries are added up ---------------------------------------------------------------------------------


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_order_of_queries_changes_nothing(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    shuffled = batch.rows(permutation(data, len(batch)))
    assert_same(report(shuffled.update(), k=k, **given_policies), report(batch.update(), k=k, **given_policies))


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_splitting_into_batches_or_jobs_changes_nothing(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    whole = report(batch.update(), k=k, **given_policies)
    ends = sorted(data.draw(st.lists(st.integers(0, len(batch)), max_size=4)))  # an end twice: a batch without queries
    parts = [batch.rows(slice(start, end)).update() for start, end in itertools.pairwise([0, *ends, len(batch)])]
    assert_same(report(*parts, k=k, **given_policies), whole)

    suite, states = everything(k, **given_policies), []
    for part in parts:
        suite.reset()
        suite.update(**part)
        states.append(suite.metric_state)
    suite.reset()
    for state in states:
        suite.merge_state(state)
    assert_same(suite.compute(), whole)


@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_empty_batch_changes_nothing(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    none = batch.rows(slice(0, 0)).update()
    unlabelled = {"preds": torch.zeros(0, 4), "target": torch.zeros(0, dtype=torch.long)}
    nothing = {"preds": torch.zeros(0, 0), "target": torch.zeros(0, 0)}
    found = report(none, nothing, batch.update(), unlabelled, none, k=k, **given_policies)
    assert_same(found, report(batch.update(), k=k, **given_policies), tolerance=0)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_weight_is_a_number_of_repeats(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    times = matrix(data.draw, (len(batch),), st.integers(0, 3), int)
    repeated = batch.rows(torch.arange(len(batch)).repeat_interleave(times)).update(weights=None)
    found = report(batch.update(weights=times), k=k, **given_policies)
    assert_same(found, report(repeated, k=k, **given_policies))


@pytest.mark.parametrize("empty", ["zero", "one", "skip", "nan", "error"])
def test_query_of_weight_0_is_not_there(empty: str) -> None:
    """Though it has no relevant item, and so a value of its own that may be NaN, or a fault."""
    gains = torch.tensor([[0.0, 0.0, 0.0], [0.0, 2.0, 1.0]])
    update = {"preds": torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "target": gains}
    found = report({**update, "weights": torch.tensor([0, 1])}, empty=empty)
    assert_same(found, report({name: value[1:] for name, value in update.items()}, empty=empty))


# Many ways in, one value ------------------------------------------------------------------------------


@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_functional_mean_is_the_metric_is_the_suite(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    suite = everything(k, **given_policies)
    from_forward = suite(**batch.update())
    assert_same(from_forward, suite.compute(), tolerance=0)
    in_suite = torch.stack(list(from_forward.values())).reshape(-1, 1 if k is None else len(k))
    for row, (key, spec) in zip(in_suite, definitions(given_policies["empty"]).items(), strict=True):
        metric = metric_of(spec, k, **given_policies)
        from_forward = metric(**batch.update())
        value = metric.compute()
        assert value.shape == (() if k is None else (len(k),))
        torch.testing.assert_close(from_forward, value, rtol=0, atol=0, equal_nan=True, msg=key)
        torch.testing.assert_close(value.reshape(-1), row, rtol=1e-12, atol=1e-12, equal_nan=True, msg=key)
        if spec.get("average") == "micro":
            continue
        options = {name: option for name, option in spec.items() if name != "name"}
        each = getattr(tt.functional, spec["name"])(**batch.update(), k=k, **options, **given_policies)
        each = each.reshape(len(batch), -1)
        weights = batch.weights[:, None].expand_as(each)
        if given_policies["empty"] == "skip":
            weights, each = weights * ~each.isnan(), each.nan_to_num()
        mean = (weights * each).sum(0) / weights.sum(0)
        torch.testing.assert_close(mean, row, rtol=1e-12, atol=1e-12, equal_nan=True, msg=key)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, extra=st.integers(1, 12))
def test_columns_that_are_no_candidates_change_nothing(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], extra: int
) -> None:
    """So a k beyond the end of the list means what it means within a longer one."""
    longer = batch.but(
        scores=torch.nn.functional.pad(batch.scores, (0, extra), value=-math.inf),
        gains=torch.nn.functional.pad(batch.gains, (0, extra), value=-1),  # nor have they been judged
        excluded=torch.nn.functional.pad(batch.excluded, (0, extra)),
    )
    assert_same(report(longer.update(), k=k, **given_policies), report(batch.update(), k=k, **given_policies))


@pytest.mark.parametrize("dtype", [*SCORES, *UNSIGNED], ids=str)
@few
@given(data=st.data(), k=cutoffs, given_policies=policies)
def test_types_of_scores(dtype: torch.dtype, data: st.DataObject, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    batch = data.draw(batches(least=0 if dtype in UNSIGNED else -3))
    scores = (batch.scores > 1).to(dtype) if dtype == torch.bool else batch.scores.to(dtype)
    found = report(batch.update(preds=scores), k=k, **given_policies)
    assert_same(found, report(batch.update(preds=scores.double()), k=k, **given_policies), tolerance=0)


@pytest.mark.parametrize("dtype", [*SCORES, *UNSIGNED], ids=str)
@few
@given(data=st.data(), k=cutoffs, given_policies=policies)
def test_types_of_gains(dtype: torch.dtype, data: st.DataObject, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    batch = data.draw(batches(least=0 if dtype in UNSIGNED else -3))
    gains = (batch.gains > 1).to(dtype) if dtype == torch.bool else batch.gains.to(dtype)
    found = report(batch.update(target=gains), k=k, **given_policies)
    assert_same(found, report(batch.update(target=gains.double()), k=k, **given_policies), tolerance=0)


@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_numpy_arrays(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    given_arrays = {name: value.numpy() for name, value in batch.update().items()}
    found = report(given_arrays, k=k, **given_policies)
    assert_same(found, report(batch.update(), k=k, **given_policies), tolerance=0)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_one_query_without_a_leading_dimension(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    single = {name: value[0] for name, value in batch.update().items()}
    first = batch.rows(slice(0, 1)).update()
    assert_same(report(single, k=k, **given_policies), report(first, k=k, **given_policies))


@some
@given(data=st.data(), k=cutoffs, given_policies=policies, items=st.integers(1, 9))
def test_leading_dimensions_with_labels_to_ignore(
    data: st.DataObject, k: Cutoffs, given_policies: dict[str, Any], items: int
) -> None:
    scores = matrix(data.draw, (2, 3, items), st.integers(-3, 3))
    labels = matrix(data.draw, (2, 3), st.integers(-1, items - 1), int)
    weights = matrix(data.draw, (2, 3), st.sampled_from([0.5, 1, 2]))
    # A query that does not count may hold anything.
    scores[labels == -1] = data.draw(st.sampled_from([math.nan, math.inf, 0.0]))
    shaped: dict[str, Any] = {"preds": scores, "target": labels, "weights": weights}
    counted = {name: value[labels != -1] for name, value in shaped.items()}
    expected = report(counted, k=k, **given_policies)
    assert_same(report(shaped, k=k, ignore_index=-1, **given_policies), expected)
    shaped["target"] = tt.Relevance.from_labels(labels.reshape(-1))
    assert_same(report(shaped, k=k, ignore_index=-1, **given_policies), expected)


def csr(mask: Tensor) -> Any:
    return scipy.sparse.csr_matrix(mask.numpy())


def padded_ids(mask: Tensor) -> Tensor:
    """The marked columns of each row as ids, padded before and between; one column more than there are items."""
    ids = torch.where(mask, torch.arange(mask.shape[-1]), -1)
    return torch.cat([torch.full_like(ids[..., :1], -1), ids], dim=-1)


EXCLUSIONS: dict[str, Callable[[Tensor], Any]] = {
    "bool": lambda mask: mask,
    "NumPy bool": lambda mask: mask.numpy(),
    "ids": padded_ids,
    "NumPy ids": lambda mask: padded_ids(mask).numpy().astype(np.int32),
    "torch CSR": lambda mask: mask.double().to_sparse_csr(),
    "torch COO": lambda mask: mask.double().to_sparse_coo(),
    "SciPy CSR": csr,
    "dense Relevance": tt.Relevance.from_dense,
    "Relevance of ids": lambda mask: tt.Relevance.from_ids(padded_ids(mask)),
    "rows of a sparse Relevance": lambda mask: tt.Relevance.from_sparse(csr(mask.repeat(2, 1)))[len(mask) :],
    "Relevance of pairs": lambda mask: tt.Relevance.from_coo(*mask.nonzero().unbind(1), num_queries=len(mask)),
    "list": lambda mask: [mask & (torch.arange(mask.shape[1]) % 2 == 0), padded_ids(mask), csr(mask)],
    "lists of nothing and of a list": lambda mask: [[], torch.zeros(len(mask), 0, dtype=torch.long), [mask]],
}
SHARED: dict[str, Callable[[Tensor], Any]] = {
    "bool": lambda mask: mask,
    "NumPy bool": lambda mask: mask.numpy(),
    "ids": padded_ids,
    "list": lambda mask: [mask & (torch.arange(len(mask)) % 2 == 0), padded_ids(mask)],
}


@pytest.mark.parametrize("form", EXCLUSIONS.values(), ids=EXCLUSIONS)
@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_exclusion_is_a_score_of_minus_infinity(
    form: Callable[[Tensor], Any], batch: Batch, k: Cutoffs, given_policies: dict[str, Any]
) -> None:
    found = report(batch.update(exclude=form(batch.excluded)), k=k, **given_policies)
    masked = batch.scores.masked_fill(batch.excluded, -math.inf)
    assert_same(found, report(batch.update(preds=masked, exclude=None), k=k, **given_policies), tolerance=0)


@pytest.mark.parametrize("form", SHARED.values(), ids=SHARED)
@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_exclusion_of_one_row_is_for_all_queries(
    form: Callable[[Tensor], Any], batch: Batch, k: Cutoffs, given_policies: dict[str, Any]
) -> None:
    row = batch.excluded[0]
    found = report(batch.update(exclude=form(row)), k=k, **given_policies)
    masked = batch.scores.masked_fill(row, -math.inf)
    assert_same(found, report(batch.update(preds=masked, exclude=None), k=k, **given_policies), tolerance=0)


LONG: dict[str, Callable[[Tensor], Any]] = {
    "ids": lambda ids: ids,
    "ids twice": lambda ids: torch.cat([ids, ids.flip(1)], dim=1),
    "lists that overlap": lambda ids: [ids, ids[:, :3], tt.Relevance.from_ids(ids)],
    "Relevance of pairs": lambda ids: tt.Relevance.from_coo(
        torch.arange(len(ids)).repeat_interleave(ids.shape[1])[ids.flatten() >= 0],
        ids.flatten()[ids.flatten() >= 0],
        num_queries=len(ids),
    ),
}


@pytest.mark.parametrize("form", LONG.values(), ids=LONG)
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("ties", ["index", "reverse"])
def test_exclusion_of_a_few_of_many_items(form: Callable[[Tensor], Any], labelled: bool, ties: str) -> None:
    """Where rows are long nothing may be written over them, but the same must come out; equal scores abound."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 40, (6, 9000), generator=generator).float()
    scores[4] = -math.inf
    scores[4, 7::1000] = 1.0
    scores[5] = 0.0
    ids = scores.sort(dim=1, descending=True, stable=True).indices[:, :12]
    ids[:, ::4] = -1
    ids[2] = -1
    labels = ids[:, 1].clamp(min=0)
    target = labels if labelled else torch.zeros(6, 9000).scatter(1, ids[:, :8].clamp(min=0), 2.0)
    out = torch.zeros(6, 9001, dtype=torch.bool).scatter(1, ids % 9001, value=True)[:, :9000]
    if labelled:
        out = out.scatter(1, labels[:, None], value=False)
    masked = scores.masked_fill(out, -math.inf)
    for k in ((1, 10), (60,)):
        found = tt.Ranking.from_scores(scores, target, k, exclude=form(ids), ties=ties)
        expected = tt.Ranking.from_scores(masked, target, k, ties=ties)
        assert torch.equal(found.ids, expected.ids)
        assert_same(report({"preds": found}, k=k, ties=ties), report({"preds": expected}, k=k, ties=ties), tolerance=0)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_label_is_never_excluded(batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject) -> None:
    labels = matrix(data.draw, (len(batch),), st.integers(0, batch.scores.shape[1] - 1), int)
    others = batch.excluded.scatter(1, labels[:, None], value=False)
    masked = batch.scores.masked_fill(others, -math.inf)
    found = report(batch.update(target=labels), k=k, **given_policies)
    assert_same(found, report(batch.update(target=labels, preds=masked, exclude=None), k=k, **given_policies))
    one_hot = torch.full_like(batch.gains, -1).scatter(1, labels[:, None], 1)  # nothing else was judged
    assert_same(found, report(batch.update(target=one_hot, exclude=others), k=k, **given_policies))


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_columns_that_name_their_items(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    """Their order says nothing: equal scores stand in order of the items' ids."""
    expected = report(batch.update(), k=k, **given_policies)
    order = permutation(data, batch.scores.shape[1])
    shuffled = {"preds": batch.scores[:, order], "items": order}
    as_columns = report(batch.update(**shuffled, target=batch.gains[:, order]), k=k, **given_policies)
    assert_same(as_columns, expected)
    whole = tt.Relevance.from_dense(batch.gains)
    assert_same(report(batch.update(**shuffled, target=whole), k=k, **given_policies), expected)

    orders = torch.stack([permutation(data, batch.scores.shape[1]) for _ in range(len(batch))])
    own = {"preds": batch.scores.gather(1, orders), "items": orders, "exclude": padded_ids(batch.excluded)}
    assert_same(report(batch.update(**own, target=whole), k=k, **given_policies), expected)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_columns_of_some_candidates(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    """What is no candidate still counts as relevant, and in the ideal."""
    order = permutation(data, batch.scores.shape[1])
    there = matrix(data.draw, tuple(batch.scores.shape), st.booleans(), bool)
    whole = tt.Relevance.from_dense(batch.gains)
    absent = batch.update(preds=batch.scores.masked_fill(~there, -math.inf), target=whole)
    items = torch.where(there, torch.arange(batch.scores.shape[1]), -1)[:, order]
    named = batch.update(preds=batch.scores[:, order], items=items, target=whole)
    assert_same(report(named, k=k, **given_policies), report(absent, k=k, **given_policies))

    kept = there[0].nonzero().squeeze(1)
    absent["preds"] = batch.scores.masked_fill(~there[0], -math.inf)
    named = batch.update(preds=batch.scores[:, kept], items=kept, target=whole)
    assert_same(report(named, k=k, **given_policies), report(absent, k=k, **given_policies))


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, deeper=st.sampled_from([0, 1, 5, None]))
def test_ranking_in_place_of_scores(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], deeper: int | None
) -> None:
    depth = None if k is None or deeper is None else max(k) + deeper
    given_update = batch.update()
    scores, target = given_update.pop("preds"), given_update.pop("target")
    ranking = tt.Ranking.from_scores(scores, target, depth, ties=given_policies["ties"], **given_update)
    expected = report(batch.update(), k=k, **given_policies)
    assert_same(report({"preds": ranking}, k=k, **given_policies), expected, tolerance=0)
    # Once more: the tables that the metrics share are not used up.
    assert_same(report({"preds": ranking}, k=k, **given_policies), expected, tolerance=0)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_ranked_ids_in_place_of_scores(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    ties = given_policies["ties"]
    ids = tt.Ranking.from_scores(batch.scores, batch.gains, None, exclude=batch.excluded, ties=ties).ids
    ranking = tt.Ranking.from_ids(ids, batch.gains, weights=batch.weights)
    by_scores = report(batch.update(), k=k, **given_policies)
    expected = {key: value * (not key.startswith("tie_rate")) for key, value in by_scores.items()}  # lists have no ties
    assert_same(report({"preds": ranking}, k=k, **given_policies), expected)


# Checks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validate", ["now", "off"])
@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_when_faults_are_looked_for_changes_no_value(
    validate: str, batch: Batch, k: Cutoffs, given_policies: dict[str, Any]
) -> None:
    found = report(batch.update(), k=k, validate=validate, **given_policies)
    assert_same(found, report(batch.update(), k=k, **given_policies), tolerance=0)


@some
@given(batch=batches(), k=cutoffs, given_policies=policies, data=st.data())
def test_nan_ranked_last_is_a_score_below_all_numbers(
    batch: Batch, k: Cutoffs, given_policies: dict[str, Any], data: st.DataObject
) -> None:
    broken = matrix(data.draw, tuple(batch.scores.shape), st.booleans(), bool)
    last, lowest = (batch.scores.masked_fill(broken, score) for score in (math.nan, -9.0))
    found = report(batch.update(preds=last), k=k, non_finite="last", **given_policies)
    assert_same(found, report(batch.update(preds=lowest), k=k, **given_policies), tolerance=0)


@few
@given(batch=batches(), k=cutoffs, given_policies=policies)
def test_inputs_are_left_as_they_are(batch: Batch, k: Cutoffs, given_policies: dict[str, Any]) -> None:
    before = {name: value.clone() for name, value in batch.update().items()}
    report(batch.update(items=torch.arange(batch.scores.shape[1])), batch.update(), k=k, **given_policies)
    assert all(torch.equal(value, before[name]) for name, value in batch.update().items())
