"""Suites, single metrics and reports of labels in a real Trainer, beside what they compute outside of one.

Run as a script, this file is the job that two processes do under ``strategy="ddp"``.
"""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric

import torch_topk as tt

pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'torch-topk[lightning]'")

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.logger import DummyLogger

EPOCHS, SAMPLES, ITEMS, BATCH = 4, 11, 12, 4
STEPS = [slice(0, 4), slice(4, 8), slice(8, 11)]


def make_data(seed: int) -> TensorDataset:
    """Numbers of the samples, the scores of every epoch (as if a model had learned), and gains."""
    generator = torch.Generator().manual_seed(seed)
    gains = torch.randint(-2, 4, (SAMPLES, ITEMS), generator=generator).clamp(min=0)
    noise = torch.randn(SAMPLES, EPOCHS, ITEMS, generator=generator)
    skill = torch.tensor([0.0, 2.0, 1.0, 0.5])[:, None]  # the second epoch is the best
    return TensorDataset(torch.arange(SAMPLES)[:, None], noise + skill * gains[:, None], gains)


DATA, OTHER_DATA = make_data(0), make_data(1)


def loader(data: TensorDataset = DATA, *, shuffle: bool = False) -> DataLoader[Any]:
    return DataLoader(data, batch_size=BATCH, shuffle=shuffle)


def make_suite(**options: Any) -> tt.TopKMetrics:
    options = {"prefix": "val/", **options}
    return tt.TopKMetrics(["ndcg", "recall(average=micro)", "mrr@10"], k=[1, 5], **options)


def direct(
    suite: tt.TopKMetrics, *, epoch: int = 0, data: TensorDataset = DATA, rows: slice = slice(None), **names: str
) -> dict[str, float]:
    """What the suite computes of one epoch's scores without a Trainer, under another prefix or postfix if given."""
    suite = suite.clone(**names)
    suite.reset()
    _, scores, gains = data.tensors
    suite.update(scores[rows, epoch], gains[rows])
    return scalars(suite.compute())


def scalars(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items()}


def close(values: Any) -> Any:
    """The same numbers but for the order in which they were added up."""
    return pytest.approx(values, rel=1e-12, abs=0)


class Base(LightningModule):
    """A model that learns nothing of use; its scores are those that the data hold for each epoch."""

    def __init__(self, metrics: tt.TopKMetrics | None = None, how: str = "update", **log: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.metrics = make_suite() if metrics is None else metrics
        self.how, self.log_options = how, log

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def training_step(self, batch: Any, _: int) -> Tensor:
        loss: Tensor = self.layer(batch[0] / SAMPLES).square().mean()
        return loss

    def scores_of(self, batch: Any) -> Tensor:
        scores: Tensor = batch[1][:, self.current_epoch]
        return scores

    def add(self, metric: Metric, batch: Any) -> None:
        (metric.update if self.how == "update" else metric)(self.scores_of(batch), batch[2])


class Model(Base):
    """Its metrics watch the validation and the test."""

    def validation_step(self, batch: Any, _: int) -> None:
        self.add(self.metrics, batch)
        self.log_dict(self.metrics, **self.log_options)

    test_step = validation_step


class TrainingModel(Base):
    """Its metrics watch the training."""

    def training_step(self, batch: Any, index: int) -> Tensor:
        self.add(self.metrics, batch)
        self.log_dict(self.metrics, **self.log_options)
        return super().training_step(batch, index)


class Record(Callback):
    """Keep the values at the end of each validation."""

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.values.append(scalars(trainer.callback_metrics))


class Memory(DummyLogger):
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, float]] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.lines.append(dict(metrics))


def make_trainer(folder: Path, **options: Any) -> Trainer:
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    defaults = {"accelerator": "cpu", "devices": 1, "log_every_n_steps": 1, **dict.fromkeys(quiet, False)}
    return Trainer(default_root_dir=folder, **{**defaults, **options})


# A suite ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["update", "forward"])
@pytest.mark.parametrize("sanity_check", [0, 2, -1])
def test_every_epoch_has_its_own_values(how: str, sanity_check: int, tmp_path: Path) -> None:
    model, record = Model(how=how), Record()
    trainer = make_trainer(tmp_path, max_epochs=EPOCHS, num_sanity_val_steps=sanity_check, callbacks=[record])
    trainer.fit(model, loader(), loader())
    assert record.values == [close(direct(model.metrics, epoch=epoch)) for epoch in range(EPOCHS)]
    assert len({values["val/ndcg@5"] for values in record.values}) == EPOCHS


def test_validate_and_test(tmp_path: Path) -> None:
    model, trainer = Model(), make_trainer(tmp_path)
    assert trainer.validate(model, loader(), verbose=False) == [close(direct(model.metrics))]
    assert trainer.test(model, loader(OTHER_DATA), verbose=False) == [close(direct(model.metrics, data=OTHER_DATA))]
    assert trainer.validate(model, loader(), verbose=False) == [close(direct(model.metrics))]


def test_values_of_each_validation_step(tmp_path: Path) -> None:
    model, logger = Model(how="forward", on_step=True), Memory()
    trainer = make_trainer(tmp_path, logger=logger)
    (found,) = trainer.validate(model, loader(), verbose=False)
    assert found == close(direct(model.metrics, postfix="_epoch"))
    steps = [{key: line[key] for key in line if key.endswith("_step")} for line in logger.lines]
    expected = [direct(model.metrics, rows=rows, postfix="_step") for rows in STEPS]
    assert [step for step in steps if step] == [close(step) for step in expected]


def test_values_of_each_training_step(tmp_path: Path) -> None:
    model, logger = TrainingModel(make_suite(prefix="train/"), "forward", on_step=True, on_epoch=True), Memory()
    make_trainer(tmp_path, logger=logger, max_epochs=2).fit(model, loader())
    for end, parts in (("_step", STEPS), ("_epoch", [slice(None)])):
        lines = [{key: line[key] for key in line if key.endswith(end)} for line in logger.lines]
        expected = [direct(model.metrics, epoch=epoch, rows=rows, postfix=end) for epoch in range(2) for rows in parts]
        assert [line for line in lines if line] == [close(line) for line in expected]


@pytest.mark.parametrize("how", ["update", "forward"])
def test_groups_and_resamples(how: str, tmp_path: Path) -> None:
    class Tagged(Model):
        def add(self, metric: Metric, batch: Any) -> None:
            number = batch[0][:, 0]
            update = metric.update if self.how == "update" else metric
            update(self.scores_of(batch), batch[2], query_ids=number, groups={"third": number % 3})

    suite = make_suite(slices={"third": ["a", "b", "c"]}, bootstrap=20, collect=True)
    model, alone = Tagged(suite, how), suite.clone()
    (found,) = make_trainer(tmp_path).validate(model, loader(), verbose=False)
    number, scores, gains = DATA.tensors
    alone.update(scores[:, 0], gains, query_ids=number[:, 0], groups={"third": number[:, 0] % 3})
    assert found == close(scalars(alone.compute()))
    assert "val/ndcg@5/third/b" in found


def test_logging_what_compute_returns(tmp_path: Path) -> None:
    class AtTheEnd(Base):
        def validation_step(self, batch: Any, _: int) -> None:
            self.add(self.metrics, batch)

        def on_validation_epoch_end(self) -> None:
            self.log_dict(self.metrics.compute())
            self.metrics.reset()

    model, record = AtTheEnd(), Record()
    make_trainer(tmp_path, max_epochs=2, callbacks=[record]).fit(model, loader(), loader())
    assert record.values == [close(direct(model.metrics, epoch=epoch)) for epoch in range(2)]


def test_two_dataloaders_with_a_clone_each(tmp_path: Path) -> None:
    class TwoLoaders(Base):
        def __init__(self, metrics: tt.TopKMetrics) -> None:
            super().__init__(metrics)
            self.suites = nn.ModuleList([metrics.clone(prefix="seen/"), metrics.clone(prefix="new/")])

        def validation_step(self, batch: Any, _: int, dataloader_idx: int = 0) -> None:
            suite = self.suites[dataloader_idx]
            self.add(suite, batch)
            self.log_dict(suite, add_dataloader_idx=False)

    model, record = TwoLoaders(make_suite()), Record()
    trainer = make_trainer(tmp_path, max_epochs=2, callbacks=[record])
    trainer.fit(model, loader(), [loader(), loader(OTHER_DATA)])
    seen, new = model.suites
    for epoch, values in enumerate(record.values):
        expected = direct(seen, epoch=epoch) | direct(new, epoch=epoch, data=OTHER_DATA)
        assert values == close(expected)
        assert values["seen/ndcg@5"] != values["new/ndcg@5"]
    assert len(record.values) == 2


def test_early_stopping_and_the_best_checkpoint(tmp_path: Path) -> None:
    model, key = Model(), "val/ndcg@5"
    best = ModelCheckpoint(tmp_path, monitor=key, mode="max", filename="{epoch}")
    stop = EarlyStopping(key, mode="max", patience=2)
    trainer = make_trainer(tmp_path, max_epochs=EPOCHS, callbacks=[best, stop], enable_checkpointing=True)
    trainer.fit(model, loader(), loader())
    by_epoch = [direct(model.metrics, epoch=epoch)[key] for epoch in range(EPOCHS)]
    assert by_epoch[1] == max(by_epoch)
    assert Path(best.best_model_path).name == "epoch=1.ckpt"
    assert stop.stopped_epoch == 3
    for score in (best.best_model_score, stop.best_score):
        assert score is not None
        assert score.item() == close(by_epoch[1])


def test_keys_for_loggers_that_refuse_the_at_sign(tmp_path: Path) -> None:
    model, logger = Model(make_suite(at="_at_")), CSVLogger(tmp_path)
    make_trainer(tmp_path, logger=logger, max_epochs=1).fit(model, loader(), loader())
    with (Path(logger.log_dir) / "metrics.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    expected = direct(model.metrics)
    assert "val/ndcg_at_5" in expected
    assert {key: float(row[key]) for key in expected} == close(expected)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("how", ["update", "forward"])
def test_low_precision_leaves_the_sums_alone(precision: Any, how: str, tmp_path: Path) -> None:
    class LowPrecision(Model):
        def scores_of(self, batch: Any) -> Tensor:
            scores = super().scores_of(batch)
            scores = scores @ torch.eye(ITEMS, dtype=scores.dtype)
            assert scores.dtype == torch.bfloat16
            return scores

    model, record = LowPrecision(how=how), Record()
    trainer = make_trainer(tmp_path, max_epochs=2, precision=precision, callbacks=[record])
    trainer.fit(model, loader(), loader())
    features, scores, gains = DATA.tensors
    rounded = TensorDataset(features, scores.bfloat16(), gains)
    assert record.values == [close(direct(make_suite(), epoch=epoch, data=rounded)) for epoch in range(2)]
    assert all(state.dtype == torch.float64 for state in model.metrics.metric_state.values())


# A single metric ----------------------------------------------------------------------------------------


class SingleModel(Base):
    def __init__(self, how: str, **log: Any) -> None:
        super().__init__(how=how, **log)
        self.ndcg = tt.NDCG(k=5)

    def validation_step(self, batch: Any, _: int) -> None:
        self.add(self.ndcg, batch)
        self.log("ndcg", self.ndcg, **self.log_options)


@pytest.mark.parametrize("how", ["update", "forward"])
def test_single_metric(how: str, tmp_path: Path) -> None:
    record = Record()
    trainer = make_trainer(tmp_path, max_epochs=2, callbacks=[record])
    trainer.fit(SingleModel(how), loader(), loader())
    expected = [direct(make_suite(), epoch=epoch)["val/ndcg@5"] for epoch in range(2)]
    assert record.values == [{"ndcg": close(value)} for value in expected]


def test_single_metric_on_each_step(tmp_path: Path) -> None:
    logger = Memory()
    trainer = make_trainer(tmp_path, logger=logger)
    (found,) = trainer.validate(SingleModel("forward", on_step=True), loader(), verbose=False)
    assert found == {"ndcg_epoch": close(direct(make_suite())["val/ndcg@5"])}
    steps = [line["ndcg_step"] for line in logger.lines if "ndcg_step" in line]
    assert steps == [close(direct(make_suite(), rows=rows)["val/ndcg@5"]) for rows in STEPS]


# Labels -------------------------------------------------------------------------------------------------


class LabelModel(Base):
    """A report of labels that is read at the end, and two metrics that Lightning reads."""

    def __init__(self, how: str = "update") -> None:
        super().__init__(how=how)
        self.report = tt.LabelReport(ITEMS, k=[1, 5], groups={"rare": [0, 3]})
        self.label_precision = tt.LabelPrecision(ITEMS, k=5, average="micro")
        self.label_recall = tt.LabelRecall(ITEMS, k=5, labels="seen")
        self.printed: list[str] = []

    def validation_step(self, batch: Any, _: int) -> None:
        for metric in (self.report, self.label_precision, self.label_recall):
            self.add(metric, batch)
        self.log("p", self.label_precision)
        self.log("r", self.label_recall)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.report.scalars(prefix="val/"))
        self.printed.append(str(self.report.report(5)))
        self.report.reset()


def direct_labels(epoch: int = 0) -> tuple[dict[str, float], str]:
    """What the model logs and prints, without a Trainer."""
    model = LabelModel()
    _, scores, gains = DATA.tensors
    for metric in (model.report, model.label_precision, model.label_recall):
        metric.update(scores[:, epoch], gains)
    values = {**model.report.scalars(prefix="val/"), "p": model.label_precision.compute()}
    return scalars({**values, "r": model.label_recall.compute()}), str(model.report.report(5))


@pytest.mark.parametrize("how", ["update", "forward"])
@pytest.mark.parametrize("sanity_check", [0, 2])
def test_labels(how: str, sanity_check: int, tmp_path: Path) -> None:
    model, record = LabelModel(how), Record()
    trainer = make_trainer(tmp_path, max_epochs=3, num_sanity_val_steps=sanity_check, callbacks=[record])
    trainer.fit(model, loader(), loader())
    expected = [direct_labels(epoch) for epoch in range(3)]
    assert record.values == [close(values) for values, _ in expected]
    assert model.printed[-3:] == [text for _, text in expected]
    assert len({values["val/f1@5/rare"] for values in record.values}) == 3


def test_labels_of_a_model_in_low_precision(tmp_path: Path) -> None:
    model, record = LabelModel(), Record()
    make_trainer(tmp_path, max_epochs=1, precision="bf16-true", callbacks=[record]).fit(model, loader(), loader())
    _, scores, gains = DATA.tensors
    precision = tt.LabelPrecision(ITEMS, k=5, average="micro")
    precision.update(scores[:, 0].bfloat16(), gains)
    assert record.values[0]["p"] == close(precision.compute().item())


# Checkpoints --------------------------------------------------------------------------------------------


class RememberingModel(Model):
    """Keeps one metric over all epochs, which a checkpoint must carry on."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.remembered = make_suite(prefix="all/", **options)
        self.labels = tt.LabelReport(ITEMS, k=[1, 5])
        for metric in (self.remembered, self.labels):
            metric.persistent(mode=True)

    def training_step(self, batch: Any, index: int) -> Tensor:
        for metric in (self.remembered, self.labels):
            self.add(metric, batch)
        return super().training_step(batch, index)


def test_persistent_state_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "half.ckpt"
    unbroken, first, second = RememberingModel(), RememberingModel(), RememberingModel()
    make_trainer(tmp_path, max_epochs=EPOCHS).fit(unbroken, loader(), loader())
    trainer = make_trainer(tmp_path, max_epochs=2)
    trainer.fit(first, loader(), loader())
    trainer.save_checkpoint(path)
    make_trainer(tmp_path, max_epochs=EPOCHS).fit(second, loader(), loader(), ckpt_path=path)
    assert scalars(second.remembered.compute()) == scalars(unbroken.remembered.compute())
    assert second.labels.scalars() == unbroken.labels.scalars()
    assert second.remembered.num_queries == second.labels.num_queries == EPOCHS * SAMPLES
    assert scalars(first.remembered.compute()) != scalars(unbroken.remembered.compute())
    other = RememberingModel(min_relevance=2)
    with pytest.raises(RuntimeError, match="another metric or other options"):
        make_trainer(tmp_path, max_epochs=EPOCHS).fit(other, loader(), loader(), ckpt_path=path)


# Two processes ------------------------------------------------------------------------------------------


class DistributedModel(Model):
    """Metrics that know the size of the data set, and others that do not."""

    def __init__(self, how: str = "update") -> None:
        super().__init__(make_suite(dataset_size=SAMPLES), how)
        self.counted = tt.TopKMetrics("dcg@1", prefix="counted/", dataset_size=SAMPLES)
        self.repeated = tt.TopKMetrics("dcg@1", prefix="repeated/")
        self.single = tt.DCG(k=1, dataset_size=SAMPLES)
        self.trained = tt.TopKMetrics("dcg@1", prefix="trained/", dataset_size=SAMPLES)
        self.labels = tt.LabelReport(ITEMS, k=[1, 5], dataset_size=SAMPLES)
        self.remembered, self.trained_labels = tt.TopKMetrics("dcg@1"), tt.LabelReport(ITEMS, k=1)
        for metric in (self.remembered, self.trained_labels):
            metric.persistent(mode=True)
        self.total: dict[str, float] = {}

    def add_number(self, metric: Metric, batch: Any) -> None:
        """Add the numbers of the samples, times 3: DCG@1 of the only candidate. Their mean is 15."""
        gains = 3 * batch[0]
        (metric.update if self.how == "update" else metric)(torch.zeros_like(gains), gains)

    def training_step(self, batch: Any, index: int) -> Tensor:
        self.add_number(self.remembered, batch)
        self.add(self.trained_labels, batch)
        self.add_number(self.trained, batch)
        self.log_dict(self.trained, on_step=False, on_epoch=True)
        return super().training_step(batch, index)

    def validation_step(self, batch: Any, index: int) -> None:
        super().validation_step(batch, index)
        for suite in (self.counted, self.repeated):
            self.add_number(suite, batch)
            self.log_dict(suite)
        self.add_number(self.single, batch)
        self.log("single", self.single)
        self.add(self.labels, batch)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.labels.scalars(prefix="labels/"))
        self.labels.reset()

    def on_train_end(self) -> None:
        self.total = scalars(self.remembered.compute()) | {"queries": float(self.remembered.num_queries)}
        self.total |= scalars(self.trained_labels.scalars()) | {"rows": float(self.trained_labels.num_queries)}


def work_together(folder: Path) -> None:
    """The job of each process: write what it has seen to a file of its own."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}

    def trainer(**options: Any) -> Trainer:
        return make_trainer(folder, devices=2, strategy="ddp", **options)

    for how in ("update", "forward"):
        (values,) = trainer().validate(DistributedModel(how), loader(), verbose=False)
        found[f"validate, {how}"] = scalars(values)

    record, unbroken, first, second = Record(), DistributedModel(), DistributedModel(), DistributedModel()
    straight = trainer(max_epochs=2, callbacks=[record])
    straight.fit(unbroken, loader(shuffle=True), loader())
    found["epochs"], found["unbroken"] = record.values, unbroken.total
    found["trained"] = float(straight.callback_metrics["trained/dcg@1"])

    half, path = trainer(max_epochs=1), folder / "half.ckpt"
    half.fit(first, loader(shuffle=True), loader())
    half.save_checkpoint(path)
    whole = trainer(max_epochs=2)
    whole.fit(second, loader(shuffle=True), loader(), ckpt_path=path)
    found["half"], found["resumed"] = first.total, second.total
    (folder / f"rank{whole.global_rank}.json").write_text(json.dumps(found), encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """The script, started before the other tests, so that it runs beside them."""
    folder = tmp_path_factory.mktemp("ddp")
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    yield process, folder
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # with the process that it has started
        process.wait()


@pytest.fixture(scope="module")
def ranks(started: tuple["subprocess.Popen[bytes]", Path]) -> list[dict[str, Any]]:
    """What each of two processes has found."""
    process, folder = started
    assert process.wait(timeout=180) == 0, (folder / "output.txt").read_text(encoding="utf-8")
    files = sorted(folder.glob("rank*.json"))
    assert [file.name for file in files] == ["rank0.json", "rank1.json"]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def in_two_processes(epoch: int = 0) -> dict[str, float]:
    """The sampler repeats sample 0, which counts only where the metric does not know the size of the data set."""
    exact = {"counted/dcg@1": 15.0, "single": 15.0, "repeated/dcg@1": 13.75}
    labels, (_, scores, gains) = tt.LabelReport(ITEMS, k=[1, 5]), DATA.tensors
    labels.update(scores[:, epoch], gains)
    return direct(make_suite(), epoch=epoch) | exact | scalars(labels.scalars(prefix="labels/"))


@pytest.mark.parametrize("how", ["update", "forward"])
def test_validate_in_two_processes(how: str, ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found[f"validate, {how}"] == close(in_two_processes())


def test_fit_in_two_processes(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        # At the end of a validation, the values of the training are those of the epoch before.
        trained = [{}, {"trained/dcg@1": 15.0}]
        assert found["epochs"] == [close(in_two_processes(epoch) | trained[epoch]) for epoch in range(2)]
        assert found["trained"] == 15


def test_resume_in_two_processes(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["half"]["queries"] == found["half"]["rows"] == 12
        assert found["unbroken"]["queries"] == found["unbroken"]["rows"] == 24
        assert found["resumed"] == found["unbroken"]
        assert found["resumed"] != found["half"]


if __name__ == "__main__":
    work_together(Path(sys.argv[1]))
