"""What a state must survive: several processes, merging, checkpoints, copies, casts and TorchMetrics' containers.

The first half runs in this process; the second in real gloo process groups, whose processes start meanwhile.
"""

import copy
import io
import itertools
import math
import multiprocessing
import pickle
import random
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from helpers import RANKING
from test_reference import DEFINITIONS, Batch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset
from torchmetrics import Metric, MetricCollection, MetricTracker
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import torch_topk as tt
from torch_topk.packed import PackedMetric

QUERIES = 24
DATA = Batch(seed=20, queries=QUERIES).update()
ITEMS = DATA["preds"].shape[1]
KINDS = {"metric": 1, "suite": 1, "slices": 1, "labels": 2}  # and how many tensors hold their state
each_kind = pytest.mark.parametrize("kind", KINDS)

Shares = Sequence[Sequence[slice]]  # for each rank, the rows of each of its batches


def make(kind: str, **options: Any) -> PackedMetric:
    """A metric, a suite of several columns, one that draws resamples and tells groups apart, or a report of labels."""
    if kind == "metric":
        return tt.NDCG(k=[1, 5], **options)
    if kind == "labels":
        given = {"k": [1, 5], "labels": [4, 0, 9, 13], "groups": {"some": torch.arange(ITEMS) > 8}}
        return tt.LabelReport(ITEMS, **{**given, **options})
    more = {"bootstrap": 20, "slices": {"third": 3}} if kind == "slices" else {}
    names = ["precision", "recall(average=micro)", "ndcg", "mrr@10"]
    return tt.TopKMetrics(names, k=[1, 5], **{**more, **options})


def every_metric() -> dict[str, PackedMetric]:
    """Each metric with each of its options, policies at their defaults and not; and a suite of all of them."""
    metrics: dict[str, PackedMetric] = {}
    for key, (name, options) in DEFINITIONS.items():
        metrics[key] = tt.registry[name](k=(1, 3, 10), **options)
        metrics[f"{key}, whole list"] = tt.registry[name](
            k=None, ties="reverse", empty="skip", min_relevance=2.0, **options
        )
    specs = {key: {"name": name, **options} for key, (name, options) in DEFINITIONS.items()}
    return {**metrics, "suite": tt.TopKMetrics(specs, k=(1, 3, 10), prefix="val/")}


def rows_of(metric: nn.Module, rows: slice | list[int]) -> dict[str, Any]:
    """Rows of the data, as arguments of update(); in counts of labels, each row is one."""
    batch = {name: tensor[rows] for name, tensor in DATA.items()}
    if isinstance(metric, tt.TopKMetrics) and metric.slices:
        number = torch.arange(QUERIES)[rows]
        batch |= {"query_ids": number, "groups": {"third": number % 3}}
    return {**batch, "weights": batch["weights"] > 0} if isinstance(metric, tt.LabelReport) else batch


def feed(metric: Metric, batches: Sequence[slice]) -> None:
    """Update a metric with batches of rows."""
    for rows in batches:
        metric.update(**rows_of(metric, rows))


def numbers(value: Any) -> list[float]:
    """The numbers of a value, of a pair of intervals' ends, or of a dict of either."""
    if isinstance(value, Tensor):
        assert value.dtype in {torch.float64, torch.int64}
        return value.reshape(-1).tolist()
    parts = value.values() if isinstance(value, dict) else value
    return [number for part in parts for number in numbers(part)]


def more_of(metric: PackedMetric) -> Any:
    """What is read off the state beside values: intervals, or averages over labels."""
    if isinstance(metric, tt.LabelReport):
        return [metric.scalars(), metric.scalars("samples")]
    return metric.intervals()


def read(metric: PackedMetric) -> list[float]:
    """All there is to read."""
    return numbers(metric.compute()) + numbers(more_of(metric))


def close(expected: float | Sequence[float]) -> Any:
    """The same numbers but for the order in which they were added up."""
    return pytest.approx(expected, rel=1e-12, abs=0, nan_ok=True)


def same(expected: Sequence[float]) -> Any:
    """The same numbers to the last digit, NaN for NaN."""
    return pytest.approx(expected, rel=0, abs=0, nan_ok=True)


def states_of(metric: PackedMetric) -> list[Any]:
    """The tensors that hold all of a metric's state."""
    return list(metric.metric_state.values())


def of_all(metric: Metric, *batches: slice) -> Any:
    """What a fresh metric computes of these batches."""
    feed(metric, batches)
    return metric.compute()


def read_rows(kind: str, *batches: slice) -> list[float]:
    """What one process reads of these rows, or of all."""
    metric = make(kind)
    feed(metric, batches or [slice(None)])
    return read(metric)


# The processes ------------------------------------------------------------------------------------------


class Workers:
    """Three processes that wait for jobs; each job has a process group of its own."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder, self._jobs = folder, itertools.count()
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for rank in range(3):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, world: int, job: Callable[..., Any], *args: Any) -> list[Any]:
        """Run ``job(rank, *args)`` in that many processes, and return what each rank returns."""
        store = self._folder / f"store{next(self._jobs)}"
        message = pickle.dumps((world, str(store), job, args))  # not send(): it would share tensors' memory
        for pipe in self._pipes[:world]:
            pipe.send_bytes(message)
        answers = [self._answer(rank) for rank in range(world)]
        failures = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(answers) if text]
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)
        return [value for value, _ in answers]

    def _answer(self, rank: int) -> tuple[Any, str]:
        if not self._pipes[rank].poll(120):
            return None, "no answer: it hangs, or has ended"
        answer: tuple[Any, str] = pickle.loads(self._pipes[rank].recv_bytes())
        return answer

    def close(self) -> None:
        for process in self._processes:
            process.kill()  # it only waits for the next job
            process.join()


def serve(rank: int, pipe: Connection) -> None:
    """Do the jobs of one rank until the pipe closes."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "The ``compute`` method", UserWarning)  # of a rank without data
    while True:
        try:
            world, store, job, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        answer: tuple[Any, str]
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{store}",
                rank=rank,
                world_size=world,
                timeout=timedelta(seconds=60),
            )
            answer = (job(rank, *args), "")
        except BaseException:  # noqa: BLE001 - whatever it is, the test shall show it
            answer = (None, traceback.format_exc())
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        pipe.send_bytes(pickle.dumps(answer))


@pytest.fixture(scope="module", autouse=True)
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    workers = Workers(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


# One process: merging -----------------------------------------------------------------------------------


@each_kind
def test_merge_state(kind: str) -> None:
    first, second, third = make(kind), make(kind), make(kind)
    feed(first, [slice(10)])
    feed(second, [slice(10, 11), slice(11, 20)])
    feed(third, [slice(20, QUERIES)])
    first.merge_state(second)
    first.merge_state(third.metric_state)
    assert read(first) == close(read_rows(kind))
    assert first.num_queries == QUERIES
    assert read(second) == close(read_rows(kind, slice(10, 20)))


@each_kind
def test_merge_state_after_compute(kind: str) -> None:
    first, second = make(kind), make(kind)
    feed(first, [slice(10)])
    feed(second, [slice(10, QUERIES)])
    assert read(first) == same(read_rows(kind, slice(10)))
    first.merge_state(second)
    assert read(first) == close(read_rows(kind))


@each_kind
def test_merge_state_into_a_metric_without_data(kind: str) -> None:
    first, second = make(kind), make(kind)
    feed(second, [slice(None)])
    first.merge_state(second)
    assert read(first) == same(read_rows(kind))  # and no warning that there was no update
    first.merge_state(make(kind))
    assert read(first) == same(read_rows(kind))


@pytest.mark.parametrize(
    "other",
    [
        tt.NDCG(k=[1, 10]),
        tt.NDCG(k=[5, 1]),
        tt.NDCG(k=[1, 5], gain="exp"),
        tt.NDCG(k=[1, 5], ideal="candidates"),
        tt.NDCG(k=[1, 5], empty="skip"),
        tt.NDCG(k=[1, 5], min_relevance=2),
        tt.NDCG(k=[1, 5], ties="reverse"),
        tt.Recall(k=[1, 5]),
        tt.TopKMetrics("ndcg", k=[1, 5]),
        tt.TopKMetrics(["ndcg", "recall"], k=[1, 5]),
    ],
    ids=repr,
)
def test_merge_state_of_other_options_is_refused(other: PackedMetric) -> None:
    feed(other, [slice(None)])
    for kind in KINDS:
        metric = make(kind)
        feed(metric, [slice(10)])
        for incoming in (other, other.metric_state):
            with pytest.raises(ValueError, match="another metric or other options"):
                metric.merge_state(incoming)
        assert read(metric) == same(read_rows(kind, slice(10)))


@pytest.mark.parametrize(
    "options",
    [{"k": [1, 10]}, {"k": [5, 1]}, {"labels": "all"}, {"labels": [0, 4]}, {"empty": "skip"}, {"ties": "reverse"}],
    ids=str,
)
def test_merge_state_of_other_labels_is_refused(options: dict[str, Any]) -> None:
    metric, other = make("labels"), make("labels", **options)
    for each in (metric, other):
        feed(each, [slice(10)])
    with pytest.raises(ValueError, match="another metric or other options"):
        metric.merge_state(other)
    assert read(metric) == same(read_rows("labels", slice(10)))


def test_faults_are_merged() -> None:
    first, second = tt.NDCG(k=5), tt.NDCG(k=5)
    feed(first, [slice(10)])
    second.update(torch.full((2, 3), math.nan), torch.ones(2, 3))
    first.merge_state(second)
    with pytest.raises(tt.InputError, match="2 queries have a NaN score"):
        first.compute()


# One process: checkpoints -------------------------------------------------------------------------------


class Model(nn.Module):
    """What is trained, with its metric among its submodules."""

    def __init__(self, metric: PackedMetric) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.metric = metric
        metric.persistent(mode=True)


@each_kind
def test_state_is_saved_only_when_asked(kind: str) -> None:
    metric = make(kind)
    feed(metric, [slice(10)])
    assert not metric.state_dict()
    metric.persistent(mode=True)
    saved = metric.state_dict()
    feed(metric, [slice(10, QUERIES)])
    fresh = make(kind)
    fresh.load_state_dict(saved)
    assert read(fresh) == same(read_rows(kind, slice(10)))
    feed(fresh, [slice(10, QUERIES)])
    assert read(fresh) == read(metric)  # the same sums in the same order


@each_kind
def test_load_state_dict_after_compute(kind: str) -> None:
    metric, other = make(kind), make(kind)
    feed(metric, [slice(10)])
    feed(other, [slice(10, QUERIES)])
    other.persistent(mode=True)
    assert read(metric) == same(read_rows(kind, slice(10)))
    metric.load_state_dict(other.state_dict())
    assert read(metric) == same(read_rows(kind, slice(10, QUERIES)))


@each_kind
@pytest.mark.parametrize("strict", [True, False])
def test_checkpoint_of_other_options_is_refused(kind: str, strict: bool) -> None:
    model, other = Model(make(kind)), Model(make(kind, empty="skip"))
    feed(other.metric, [slice(10)])
    with pytest.raises(RuntimeError, match="another metric or other options"):
        model.load_state_dict(other.state_dict(), strict=strict)


def test_checkpoint_holds_the_position_in_the_data_set() -> None:
    scores, gains = samples(5)
    first, second = tt.DCG(k=1, dataset_size=5), tt.DCG(k=1, dataset_size=5)
    first.update(scores[:3], gains[:3])
    first.persistent(mode=True)
    second.load_state_dict(first.state_dict())
    second.update(scores[3:], gains[3:])
    assert second.compute() == 6
    with pytest.raises(ValueError, match="dataset_size is 5"):
        second.update(scores[:1], gains[:1])


# One process: copies ------------------------------------------------------------------------------------


def save_and_load(metric: PackedMetric) -> Any:
    file = io.BytesIO()
    torch.save(metric, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[PackedMetric], Any]] = {
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "deepcopy": copy.deepcopy,
    "clone": lambda metric: metric.clone(),
    "torch.save": save_and_load,
}


@each_kind
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("computed", [False, True])
def test_copy(kind: str, way: str, computed: bool) -> None:
    metric = make(kind)
    feed(metric, [slice(10)])
    if computed:
        metric.compute()
    twin = COPIES[way](metric)
    feed(twin, [slice(10, QUERIES)])
    assert read(metric) == same(read_rows(kind, slice(10)))
    assert read(twin) == same(read_rows(kind, slice(10), slice(10, QUERIES)))
    assert repr(twin) == repr(metric)
    twin.merge_state(metric)
    twin.reset()
    assert read(metric) == same(read_rows(kind, slice(10)))


@pytest.mark.parametrize("way", COPIES)
def test_keys_of_a_copied_suite_read_the_copy(way: str) -> None:
    suite = make("suite")
    twin = COPIES[way](suite)
    feed(suite, [slice(10)])
    feed(twin, [slice(10, QUERIES)])
    assert isinstance(suite, tt.TopKMetrics)
    assert isinstance(twin, tt.TopKMetrics)
    for metrics in (suite, twin):
        assert {key: view.compute() for key, view in metrics.items()} == metrics.compute()
    assert suite["ndcg@5"].compute() != twin["ndcg@5"].compute()


# One process: inference mode, types, autocast -----------------------------------------------------------


@each_kind
def test_reset_in_inference_mode(kind: str) -> None:
    metric = make(kind)
    feed(metric, [slice(3)])
    with torch.inference_mode():
        metric.reset()
    feed(metric, [slice(10)])
    metric(**rows_of(metric, slice(10, QUERIES)))
    assert read(metric) == same(read_rows(kind, slice(10), slice(10, QUERIES)))


@each_kind
def test_update_in_and_out_of_inference_mode(kind: str) -> None:
    metric = make(kind)
    for step, rows in enumerate((slice(5), slice(5, 10), slice(10, 15), slice(15, QUERIES))):
        with torch.inference_mode(mode=step % 2 == 0):
            (metric if step < 2 else metric.update)(**rows_of(metric, rows))
    with torch.inference_mode():
        inside = read(metric)
    assert inside == read(metric) == close(read_rows(kind))


@each_kind
def test_state_from_inference_mode_outside_of_it(kind: str) -> None:
    metric = make(kind)
    metric.persistent(mode=True)
    with torch.inference_mode():
        feed(metric, [slice(10)])
        saved = metric.state_dict()
    loaded = make(kind)
    loaded.load_state_dict(saved)
    merged = make(kind)
    merged.merge_state(metric)
    for twin in (loaded, merged, *(way(metric) for way in COPIES.values()), metric.to("cpu")):
        feed(twin, [slice(10, QUERIES)])
        assert read(twin) == same(read_rows(kind, slice(10), slice(10, QUERIES)))


CASTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "to(bfloat16)": lambda module: module.to(torch.bfloat16),
    "to(float16)": lambda module: module.to(torch.float16),
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "float": lambda module: module.float(),
    "double": lambda module: module.double(),
    "type": lambda module: module.type(torch.float32),
}


@each_kind
@pytest.mark.parametrize("cast", CASTS)
def test_casts_leave_the_state_alone(kind: str, cast: str) -> None:
    metric = make(kind)
    model = nn.ModuleDict({"metric": metric, "layer": nn.Linear(2, 2)})
    CASTS[cast](model)
    feed(metric, [slice(3)])
    metric.compute()
    CASTS[cast](metric)
    feed(metric, [slice(3, 5)])
    CASTS[cast](model)
    metric.reset()
    feed(metric, [slice(10), slice(10, QUERIES)])
    metric.set_dtype(torch.float16)
    dtypes = [torch.float64, torch.int64][: KINDS[kind]]
    assert [state.dtype for state in states_of(metric)] == dtypes
    assert read(metric) == same(read_rows(kind, slice(10), slice(10, QUERIES)))


def read_every_metric() -> dict[str, list[float]]:
    metrics = every_metric()
    for metric in metrics.values():
        feed(metric, [slice(10)])
        metric(**rows_of(metric, slice(10, QUERIES)))
    return {key: read(metric) for key, metric in metrics.items()}


@pytest.fixture(scope="module")
def plain() -> dict[str, list[float]]:
    return read_every_metric()


def test_autocast_changes_nothing(plain: dict[str, list[float]]) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ones(2, 2).mm(torch.ones(2, 2)).dtype == torch.bfloat16
        assert read_every_metric() == {key: same(reading) for key, reading in plain.items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_default_dtype_changes_nothing(dtype: torch.dtype, plain: dict[str, list[float]]) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert read_every_metric() == {key: same(reading) for key, reading in plain.items()}
    finally:
        torch.set_default_dtype(before)


# One process: TorchMetrics' containers ------------------------------------------------------------------


def test_tracker_of_a_metric() -> None:
    tracker = MetricTracker(tt.NDCG(k=5))
    parts = [slice(8), slice(8, 16), slice(16, QUERIES)]
    for rows in parts:
        tracker.increment()
        tracker.update(**rows_of(tracker, rows))
    values = [read_rows("metric", rows)[1] for rows in parts]
    assert len(set(values)) == 3
    assert numbers(tracker.compute_all()) == values
    assert tracker.best_metric(return_step=True) == (max(values), values.index(max(values)))


def test_tracker_of_a_suite() -> None:
    suite = make("suite")
    assert isinstance(suite, tt.TopKMetrics)
    tracker = MetricTracker(suite)
    parts = [slice(12), slice(12, QUERIES)]
    for rows in parts:
        tracker.increment()
        tracker(**rows_of(tracker, rows))
    found = tracker.compute_all()
    assert tuple(found) == suite.keys()
    expected = [read_rows("suite", rows)[: len(suite)] for rows in parts]
    assert torch.stack(list(found.values())).T.tolist() == expected


@pytest.mark.parametrize("how", ["update", "forward"])
def test_collection_keeps_what_differs_apart(how: str) -> None:
    # Neither finds anything in the first batch, so all their sums are equal then.
    collection = MetricCollection({"at 5": tt.Recall(k=5), "at 50": tt.Recall(k=50)}, compute_groups=True)
    scores = torch.arange(100.0, 0.0, -1.0)[None, :]
    add = collection.update if how == "update" else collection
    for relevant in (90, 20, 2):  # item n stands at rank n + 1
        add(scores, torch.tensor([relevant]))
    assert collection.compute() == {"at 5": close(1 / 3), "at 50": close(2 / 3)}
    assert len(collection.compute_groups) == 2


@pytest.mark.parametrize("how", ["update", "forward"])
def test_collection_may_merge_what_is_the_same(how: str) -> None:
    collection = MetricCollection(
        {"one": tt.NDCG(k=5), "same": tt.NDCG(k=5), "other": tt.NDCG(k=3), "suite": tt.TopKMetrics("ndcg@3")}
    )
    for _ in range(2):
        for rows in (slice(10), slice(10, 11), slice(11, QUERIES)):
            (collection.update if how == "update" else collection)(**rows_of(collection, rows))
            values = collection.compute()
            at_3, at_5 = numbers(of_all(tt.NDCG(k=[3, 5]), slice(rows.stop)))
            found = [values[key].item() for key in ("one", "same", "other", "ndcg@3")]
            assert found == close([at_5, at_5, at_3, at_3])
            for key in ("one", "same"):
                metric = collection[key]
                assert isinstance(metric, PackedMetric)
                assert metric.num_queries == rows.stop
        if how == "update":  # forward() has no groups to make
            assert sorted(map(len, collection.compute_groups.values())) == [1, 1, 2]
        collection.reset()


def test_collection_of_merged_metrics_raises_faults_from_each() -> None:
    collection = MetricCollection({"one": tt.Recall(k=2), "same": tt.Recall(k=2)})
    scores, target = torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([2])
    collection.update(scores, target)
    collection.compute()
    collection.update(scores * math.nan, target)
    for key in ("one", "same"):
        with pytest.raises(tt.InputError, match="1 query has a NaN score"):
            collection[key].compute()


# One process: the size of the state ---------------------------------------------------------------------


@each_kind
def test_state_does_not_grow(kind: str) -> None:
    metric = make(kind)
    sizes = []
    for batches in (1, 40):
        for _ in range(batches):
            feed(metric, [slice(None)])
            metric(**rows_of(metric, slice(3)))
        metric.compute()
        held = sum(state.untyped_storage().nbytes() for state in states_of(metric))
        sizes.append((held, len(pickle.dumps(metric))))
    (held, pickled), (held_later, pickled_later) = sizes
    assert held == held_later < 4096
    assert abs(pickled_later - pickled) < 16  # the count of updates takes a byte or two more


# One process in the place of several: dataset_size -------------------------------------------------------


def samples(size: int) -> tuple[Tensor, Tensor]:
    """Scores and gains for which DCG@1 of sample i is 3 i."""
    return torch.zeros(size, 1), 3.0 * torch.arange(size)[:, None]


@contextmanager
def posing_as(rank: int, world: int) -> Iterator[None]:
    """Make torch.distributed say that this is one of several processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "is_initialized", lambda: True)
        patch.setattr(dist, "get_world_size", lambda _=None: world)
        patch.setattr(dist, "get_rank", lambda _=None: rank)
        yield


def over_ranks(world: int, new: Callable[[], PackedMetric], run: Callable[[PackedMetric, int], None]) -> PackedMetric:
    """A metric that holds what all ranks have added, one after the other."""
    merged = new()
    for rank in range(world):
        metric = new()
        with posing_as(rank, world):
            run(metric, rank)
        merged.merge_state(metric)
    return merged


def order_of(size: int, world: int, rank: int, *, shuffle: bool, drop_last: bool = False) -> list[int]:
    """The samples that DistributedSampler gives a rank."""
    data: Dataset[Any] = TensorDataset(torch.empty(size))
    sampler: DistributedSampler[Any] = DistributedSampler(
        data, world, rank, shuffle=shuffle, seed=size, drop_last=drop_last
    )
    return list(sampler)


def batches_of(rows: Sequence[int], size: int) -> list[list[int]]:
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("how", ["update", "forward"])
def test_dataset_size_leaves_repeats_out(world: int, shuffle: bool, how: str) -> None:
    for size, batch_size in itertools.product(range(1, 14), (1, 2, 5, 13)):
        scores, gains = samples(size)

        def run(metric: PackedMetric, rank: int) -> None:
            rows = order_of(size, world, rank, shuffle=shuffle)  # noqa: B023 - called in this iteration
            for batch in batches_of(rows, batch_size):  # noqa: B023
                (metric.update if how == "update" else metric)(scores[batch], gains[batch])  # noqa: B023

        found = over_ranks(world, lambda: tt.DCG(k=1, dataset_size=size), run)  # noqa: B023
        assert found.compute() == 3 * (size - 1) / 2, (size, batch_size)
        assert found.num_queries == size
        if batch_size == 13:
            repeated = over_ranks(world, lambda: tt.DCG(k=1), run)
            assert repeated.num_queries == world * math.ceil(size / world)  # there are repeats to leave out


@pytest.mark.parametrize("how", ["scores", "several queries a sample", "weights", "ranking", "labels"])
def test_dataset_size_in_every_form_of_a_batch(how: str) -> None:
    size, world = 11, 3
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(size, 2, 7, generator=generator)
    target = torch.randint(0, 3, (size, 2, 7), generator=generator)
    weights = None
    if how != "several queries a sample":
        scores, target = scores[:, 0], target[:, 0]
    if how == "labels":
        target = target.argmax(-1)
    if how == "weights":
        weights = torch.rand(size, generator=generator)
    specs = ["ndcg(ideal=candidates)", "recall(average=micro)", "precision(denominator=retrieved)", "map"]

    def add(metric: PackedMetric, rows: Sequence[int]) -> None:
        if how == "ranking":
            metric.update(tt.Ranking.from_scores(scores[rows], target[rows], 5))
        else:
            metric.update(scores[rows], target[rows], weights=None if weights is None else weights[rows])

    def run(metric: PackedMetric, rank: int) -> None:
        for batch in batches_of(order_of(size, world, rank, shuffle=True), 2):
            add(metric, batch)

    whole = tt.TopKMetrics(specs, k=[1, 5])
    add(whole, range(size))
    found = over_ranks(world, lambda: tt.TopKMetrics(specs, k=[1, 5], dataset_size=size), run)
    assert read(found) == close(read(whole))
    assert read(over_ranks(world, lambda: tt.TopKMetrics(specs, k=[1, 5]), run)) != close(read(whole))


def test_dataset_size_where_the_sampler_drops_the_rest() -> None:
    scores, gains = samples(11)

    def run(metric: PackedMetric, rank: int) -> None:
        for batch in batches_of(order_of(11, 2, rank, shuffle=False, drop_last=True), 4):
            metric.update(scores[batch], gains[batch])

    assert over_ranks(2, lambda: tt.DCG(k=1, dataset_size=11), run).compute() == 13.5  # 0, 3, ..., 27


def test_forward_returns_the_value_without_repeats() -> None:
    scores, gains = samples(11)
    metric = tt.DCG(k=1, dataset_size=11)
    with posing_as(1, 2):
        rows = order_of(11, 2, 1, shuffle=False)
        assert rows == [1, 3, 5, 7, 9, 0]  # and 0 is a repeat
        assert metric(scores[rows[:4]], gains[rows[:4]]) == 12
        assert metric(scores[rows[4:]], gains[rows[4:]]) == 27


@each_kind
def test_more_samples_than_dataset_size_are_refused(kind: str) -> None:
    with posing_as(1, 2):
        metric = make(kind, dataset_size=11)
        feed(metric, [slice(4), slice(4, 6)])
        with pytest.raises(ValueError, match=r"dataset_size is 11.*6 samples.*2 processes.*reset\(\)"):
            feed(metric, [slice(6, 7)])
        metric.reset()
        metric(**rows_of(metric, slice(6)))
        with pytest.raises(ValueError, match="dataset_size is 11"):
            metric(**rows_of(metric, slice(6, 7)))
    # The second epoch counted once more, and 5 of rank 1's 6 rows.
    assert metric.num_queries == 5
    assert read(metric) == same(read_rows(kind, slice(5)))
    alone = make(kind, dataset_size=11)
    feed(alone, [slice(11)])
    with pytest.raises(ValueError, match="dataset_size is 11"):
        feed(alone, [slice(11, 12)])


# Several processes: values, intervals, faults ------------------------------------------------------------

LAYOUTS: dict[str, Shares] = {
    "1 process": [[slice(7), slice(7, 7), slice(7, 24)]],
    "2 processes": [[slice(9), slice(9, 11)], [slice(11, 24)]],
    "2 processes, one without data": [[], [slice(5), slice(5, 24)]],
    "3 processes, one without data": [[slice(4), slice(4, 5), slice(5, 12)], [], [slice(12, 24)]],
    "3 processes, one of an empty batch": [[slice(0, 0)], [slice(23)], [slice(23, 24)]],
}


def measure(rank: int, shares: Shares) -> dict[str, list[float]]:
    metrics = every_metric()
    for metric in metrics.values():
        feed(metric, shares[rank])
    return {key: read(metric) for key, metric in metrics.items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return {key: close(reading) for key, reading in measure(0, [[slice(None)]]).items()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_processes_agree_with_one(layout: str, workers: Workers, expected: dict[str, Any]) -> None:
    shares = LAYOUTS[layout]
    assert set(RANKING) == {name for name, _ in DEFINITIONS.values()}
    for found in workers.run(len(shares), measure, shares):
        assert found == expected


def tagged(rank: int, world: int, way: str) -> tuple[list[float], list[float], list[Any], list[list[float]]]:
    """Rows in a sampler's order, with ids or without; or shares of another size, with ids."""
    suite = tt.TopKMetrics(["ndcg", "mrr@10"], k=[1, 5], bootstrap=30, slices={"third": 3}, collect=True)
    order = torch.arange(QUERIES)[rank::world] if way != "shares" else torch.arange(QUERIES).tensor_split([3, 20])[rank]
    for some in order.split(5):
        batch = rows_of(suite, some.tolist())
        del batch["query_ids"]
        if way != "positions":
            batch["query_ids"] = [f"query {number}" for number in some.tolist()]
        suite.update(**batch)
    table = suite.collected()
    names = sorted(table.ids.tolist())
    frame = dict(zip(table.ids.tolist(), table.values.tolist(), strict=True))
    return numbers(suite.compute()), numbers(suite.intervals()), names, [frame[name] for name in names]


@pytest.mark.parametrize("way", ["positions", "ids", "shares"])
def test_resamples_slices_and_values_of_several_processes(way: str, workers: Workers) -> None:
    values, ends, names, rows = tagged(0, 1, "ids" if way == "shares" else way)
    for found in workers.run(3, tagged, 3, way):
        assert found[0] == close(values)
        assert found[1] == close(ends)
        assert found[2:] == (names, rows)


def no_data(_: int) -> dict[str, list[float]]:
    return {kind: [number for number in read(make(kind)) if not math.isnan(number)] for kind in KINDS}


def test_no_data_anywhere_is_nan(workers: Workers) -> None:
    zeros = [0] * (2 * 3 + 1) * ITEMS  # the counts of labels are numbers
    assert workers.run(2, no_data) == [{"metric": [], "suite": [], "slices": [], "labels": zeros}] * 2


def meet_faults(rank: int, kind: str) -> tuple[list[str], list[float]]:
    metric = make(kind)
    if rank < 2:
        broken = rows_of(metric, slice(10))
        broken["preds"] = broken["preds"].index_fill(0, torch.arange(rank + 1), math.nan)
        metric.update(**broken)
    messages = []
    for read_it in (metric.compute, metric.compute, lambda: more_of(metric)):
        with pytest.raises(tt.InputError) as caught:
            read_it()
        messages.append(str(caught.value))
    metric.reset()  # and all is well again, on all ranks together
    feed(metric, [[slice(9)], [], [slice(9, QUERIES)]][rank])
    return messages, read(metric)


@each_kind
def test_faults_raise_on_all_ranks(kind: str, workers: Workers) -> None:
    answers = workers.run(3, meet_faults, kind)
    assert len({message for messages, _ in answers for message in messages}) == 1
    assert "3 queries have a NaN score" in answers[2][0][0]
    for _, reading in answers:
        assert reading == close(read_rows(kind))


# Several processes: collectives and ways to synchronise ---------------------------------------------------


@contextmanager
def collectives() -> Iterator[list[str]]:
    """Collect the names of the collectives that the process group runs, whoever calls them."""
    names: list[str] = []
    with torch.autograd.profiler.profile() as profile:
        yield names
    names += [event.name for event in profile.function_events if event.name.startswith("c10d::")]


def count_collectives(rank: int, kind: str) -> dict[str, list[str]]:
    metric = make(kind)
    counts = {}
    with collectives() as counts["update and forward"]:
        feed(metric, [slice(rank, 5)])
        metric(**rows_of(metric, slice(3)))
    with collectives() as counts["compute"]:
        metric.compute()
    with collectives() as counts["reading again"]:
        metric.compute()
        numbers(more_of(metric))
        if isinstance(metric, tt.LabelReport):
            metric.report(5)
        else:
            metric.intervals(0.5)
        numbers(metric.num_queries)
        if isinstance(metric, tt.TopKMetrics):
            numbers([view.compute() for view in metric.values()])
    metric.update(**rows_of(metric, slice(1)))
    with collectives() as counts["reading more"]:
        more_of(metric)
    with collectives() as counts["compute after reading more"]:
        metric.compute()
    with collectives() as counts["state_dict"]:
        metric.state_dict()
        copy.deepcopy(metric)
        pickle.dumps(metric)
    metric.persistent(mode=True)
    with collectives() as counts["persistent state_dict"]:
        metric.state_dict()
    return counts


@each_kind
def test_one_collective_a_compute_for_each_tensor(kind: str, workers: Workers) -> None:
    one = ["c10d::allreduce_"] * KINDS[kind]
    for counts in workers.run(2, count_collectives, kind):
        assert counts == {
            "update and forward": [],
            "compute": one,
            "reading again": [],
            "reading more": one,
            "compute after reading more": [],
            "state_dict": [],
            "persistent state_dict": one,
        }


TWO: Shares = [[slice(9)], [slice(9, 11), slice(11, QUERIES)]]
THREE: Shares = [[slice(9)], [], [slice(9, 11), slice(11, QUERIES)]]


def own_sync(rank: int, kind: str) -> tuple[list[float], list[str], int]:
    calls = 0

    def gather(sums: Tensor, group: Any = None) -> list[Tensor]:
        nonlocal calls
        calls += 1
        return gather_all_tensors(sums, group)

    metric = make(kind, dist_sync_fn=gather)
    feed(metric, THREE[rank])
    with collectives() as names:
        reading = read(metric)
    return reading, names, calls


@each_kind
def test_dist_sync_fn(kind: str, workers: Workers) -> None:
    for reading, names, calls in workers.run(3, own_sync, kind):
        assert reading == close(read_rows(kind))
        assert "c10d::allgather_" in names
        assert "c10d::allreduce_" not in names
        assert calls == KINDS[kind]


@each_kind
def test_dist_sync_fn_without_a_process_group(kind: str) -> None:
    other = make(kind)
    feed(other, [slice(10, QUERIES)])

    def gather(state: Tensor, group: Any = None) -> list[Tensor]:
        (theirs,) = (each for each in states_of(other) if each.dtype == state.dtype)
        return [state, theirs]

    metric = make(kind, dist_sync_fn=gather, distributed_available_fn=lambda: True)
    feed(metric, [slice(10)])
    assert read(metric) == close(read_rows(kind))
    assert metric.num_queries == QUERIES
    metric.reset()
    feed(metric, [slice(5)])  # the local state was left alone
    assert read(metric) == close(read_rows(kind, slice(5), slice(10, QUERIES)))


def alone(rank: int, kind: str) -> tuple[list[float], list[str]]:
    metric = make(kind, sync_on_compute=False)
    feed(metric, TWO[rank])
    with collectives() as names:
        reading = read(metric)
        metric.persistent(mode=True)
        metric.state_dict()
    return reading, names


@each_kind
def test_sync_on_compute_off(kind: str, workers: Workers) -> None:
    for (reading, names), batches in zip(workers.run(2, alone, kind), TWO, strict=True):
        assert reading == same(read_rows(kind, *batches))
        assert names == []


def in_groups(rank: int, kind: str) -> tuple[list[float], float]:
    groups = {ranks: dist.new_group(list(ranks)) for ranks in ((0, 2), (1,))}
    group = groups[(1,) if rank == 1 else (0, 2)]
    metric = make(kind, process_group=group)
    feed(metric, [[slice(9)], [slice(3)], [slice(9, QUERIES)]][rank])
    scores, gains = samples(11)
    dcg = tt.DCG(k=1, process_group=group, dataset_size=11)
    sampler: DistributedSampler[Any] = DistributedSampler(
        TensorDataset(scores), dist.get_world_size(group), dist.get_rank(group), shuffle=False
    )
    for batch in batches_of(list(sampler), 4):
        dcg.update(scores[batch], gains[batch])
    return read(metric), dcg.compute().item()


@each_kind
def test_process_group(kind: str, workers: Workers) -> None:
    first, second, third = workers.run(3, in_groups, kind)
    assert first[0] == third[0] == close(read_rows(kind))
    assert second[0] == same(read_rows(kind, slice(3)))
    assert first[1] == second[1] == third[1] == 15


def on_each_step(rank: int, kind: str) -> tuple[list[list[float]], list[float], list[str]]:
    metric = make(kind, dist_sync_on_step=True)
    with collectives() as names:
        steps = [
            numbers(metric(**rows_of(metric, slice(6 * step + 4 * rank, 6 * step + 4 + 2 * rank)))) for step in range(4)
        ]
    return steps, read(metric), names


@each_kind
def test_dist_sync_on_step(kind: str, workers: Workers) -> None:
    for steps, reading, names in workers.run(2, on_each_step, kind):
        for step, values in enumerate(steps):
            expected = read_rows(kind, slice(6 * step, 6 * step + 6))[: len(values)]
            assert values == close(expected)
        assert reading == close(read_rows(kind))
        assert names == ["c10d::allreduce_"] * 4 * KINDS[kind]


def by_hand(rank: int, kind: str) -> tuple[list[float], list[float], list[float]]:
    metric, other = make(kind, sync_on_compute=False), make(kind)
    feed(metric, TWO[rank])
    own_queries = float(metric.num_queries)
    before = read(metric)
    metric.sync()
    assert metric.num_queries == QUERIES
    with pytest.raises(TorchMetricsUserError):
        metric.sync()
    # What is added now would be lost at unsync().
    for add in (
        lambda: feed(metric, [slice(1)]),
        lambda: metric(**rows_of(metric, slice(1))),
        lambda: metric.merge_state(other),
    ):
        with pytest.raises(TorchMetricsUserError):
            add()
    metric.unsync()
    assert metric.num_queries == own_queries
    with pytest.raises(TorchMetricsUserError):
        metric.unsync()
    with metric.sync_context():
        together = read(metric)
    assert metric.num_queries == own_queries
    return before, together, read(metric)


@each_kind
def test_sync_by_hand(kind: str, workers: Workers) -> None:
    for (before, together, after), batches in zip(workers.run(2, by_hand, kind), TWO, strict=True):
        assert before == same(read_rows(kind, *batches))
        assert together == close(read_rows(kind))
        assert after == same(before)


# Several processes: dataset_size and checkpoints ----------------------------------------------------------


def sampled(_: int, dataset_size: int | None, shuffle: bool, how: str) -> list[float]:
    data = TensorDataset(*samples(11))
    sampler: DistributedSampler[Any] = DistributedSampler(data, shuffle=shuffle)
    metric = tt.DCG(k=1, dataset_size=dataset_size)
    found = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for scores, gains in DataLoader(data, batch_size=4, sampler=sampler):
            (metric.update if how == "update" else metric)(scores, gains)
        found.append(metric.compute().item())
        metric.reset()
    return found


@pytest.mark.parametrize("how", ["update", "forward"])
def test_dataset_size_in_two_processes(how: str, workers: Workers) -> None:
    assert workers.run(2, sampled, None, False, how) == [[13.75, 13.75]] * 2  # the sampler repeats sample 0
    for shuffle in (False, True):
        assert workers.run(2, sampled, 11, shuffle, how) == [[15, 15]] * 2


def leg(rank: int, kind: str, shares: Shares, load: Path | None = None, save: Path | None = None) -> list[float]:
    """A part of a run: from a checkpoint, if any, over some batches, to the next checkpoint."""
    model = Model(make(kind))
    if load:
        model.load_state_dict(torch.load(load, weights_only=True))
    feed(model.metric, shares[rank])
    state = model.state_dict()  # on all ranks
    if rank == 0 and save:
        torch.save(state, save)
    return read(model.metric)


def split(start: int, stop: int, world: int) -> Shares:
    """Batches of unequal sizes; of three ranks, one goes without."""
    cut = start + 3 * (stop - start) // 4
    middle = start + 1
    return {
        1: [[slice(start, cut), slice(cut, stop)]],
        2: [[slice(start, middle), slice(middle, cut)], [slice(cut, stop)]],
        3: [[slice(cut, stop)], [], [slice(start, middle), slice(middle, cut)]],
    }[world]


def run_here(_: int, job: Callable[..., Any], *args: Any) -> list[Any]:
    """As `Workers.run` for one process, but without any process group."""
    return [job(0, *args)]


@each_kind
@pytest.mark.parametrize("worlds", [(2, 2, 2), (3, 3, 3), (1, 2, 1), (2, 1, 3), (3, 2, 2)], ids=str)
def test_checkpoint_and_resume(kind: str, worlds: Sequence[int], workers: Workers, tmp_path: Path) -> None:
    bounds = (0, 7, 16, QUERIES)
    load = None
    for number, world in enumerate(worlds):
        start, stop = bounds[number : number + 2]
        shares, save = split(start, stop, world), tmp_path / f"{number}.pt"
        run = workers.run if world > 1 else run_here
        found = run(world, leg, kind, shares, load, save)
        load = save
        for reading in found:
            assert reading == close(read_rows(kind, slice(stop)))


def epoch_in_parts(rank: int, path: Path, resume: bool) -> float:
    scores, gains = samples(11)
    metric = tt.DCG(k=1, dataset_size=11)
    metric.persistent(mode=True)
    first, *others = batches_of(order_of(11, 2, rank, shuffle=True), 4)
    if resume:
        metric.load_state_dict(torch.load(path, weights_only=True))
        for batch in others:
            metric.update(scores[batch], gains[batch])
    else:
        metric.update(scores[first], gains[first])
        state = metric.state_dict()
        if rank == 0:
            torch.save(state, path)
    return float(metric.compute())


def test_resume_in_the_middle_of_an_epoch(workers: Workers, tmp_path: Path) -> None:
    workers.run(2, epoch_in_parts, tmp_path / "state.pt", False)
    assert workers.run(2, epoch_in_parts, tmp_path / "state.pt", True) == [15, 15]


def load_wrong(_: int, kind: str, path: Path) -> str:
    model = Model(make(kind, min_relevance=2))
    try:
        model.load_state_dict(torch.load(path, weights_only=True))
    except RuntimeError as error:
        return str(error)
    return "loaded"


@each_kind
def test_checkpoint_of_other_options_is_refused_on_all_ranks(kind: str, workers: Workers, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    leg(0, kind, [[slice(5)]], save=path)
    for message in workers.run(2, load_wrong, kind, path):
        assert "another metric or other options" in message


def merge_then_compute(rank: int, kind: str) -> list[float]:
    metric, other = make(kind), make(kind)
    feed(metric, [slice(3 * rank, 3 * rank + 3)])
    first = read(metric)
    feed(other, [slice(9 + 5 * rank, 9 + 5 * rank + 5)])
    metric.merge_state(other)
    assert read(metric) != first
    return read(metric)


@each_kind
def test_merge_after_compute_in_processes(kind: str, workers: Workers) -> None:
    for reading in workers.run(3, merge_then_compute, kind):
        assert reading == close(read_rows(kind))


def test_shuffled_shares_add_up_alike() -> None:
    rows = list(range(QUERIES))
    random.Random(0).shuffle(rows)
    for kind in KINDS:
        metric = make(kind)
        for batch in batches_of(rows, 5):
            metric.update(**rows_of(metric, batch))
        assert read(metric) == close(read_rows(kind))
