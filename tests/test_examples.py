"""The examples, run as a user runs them: as scripts, in processes of their own."""

import csv
import os
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from math import log2
from pathlib import Path

import pytest
import torch

for needed in ("lightning", "matplotlib", "rich", "yaml"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'torch-topk[examples]'")

EXAMPLES = Path(__file__).parents[1] / "examples"
NATIONS = Path(__file__).parents[2] / "shared" / "data" / "kg" / "nations"
METRICS = ["precision", "recall", "f1", "hit_rate", "mrr", "map", "ndcg"]
LADDER = ["1", "3", "5", "10", "20"]
STYLE, BOLD = re.compile(r"\x1b\[\d+m"), "\x1b[1m"
USERS = 41  # odd, so that the sampler of two processes repeats one of them


def write_interactions(path: Path) -> Path:
    """A small MovieLens-100K: nearly always, users go on from a film to the next one."""
    draw = random.Random(0)
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for user in range(1, USERS + 1):
        film, seen = draw.randrange(60), set()
        for second in range(draw.randrange(6, 20)):
            seen.add(film)
            time = 880_000_000 + second - second % 2  # two films within a second: their order is the file's
            lines.append(f"{user}\t{film + 1}\t{draw.randrange(1, 6)}\t{time}")
            unseen = [other % 60 for other in range(film + 1, film + 61) if other % 60 not in seen]
            film = unseen[0] if draw.random() < 0.95 else draw.choice(unseen)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def movielens(folder: Path, *arguments: object) -> str:
    """Run the script on the films in a folder."""
    return run("movielens.py", folder, "--data", folder / "ml-100k.inter", "--batch-size", 16, *arguments)


def run(script: str, folder: Path, *arguments: object) -> str:
    """Run a script in a folder of its own, and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "1", "COLUMNS": "80", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_ladder(printed: str) -> dict[str, list[str]]:
    """The table's cells: the numbers behind each metric and K."""
    rows, name = {}, ""
    for line in printed.splitlines():
        if line.startswith("│"):
            first, k, *numbers = (cell.strip() for cell in line.strip("│").split("│"))
            name = first or name
            rows[f"{name}@{k}"] = numbers
    return rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("movielens")
    write_interactions(folder / "ml-100k.inter")
    return folder, movielens(folder, "--epochs", 8)


def test_movielens_prints_the_ladder(trained):
    _, printed = trained
    ladder = read_ladder(printed)
    assert list(ladder) == [f"{name}@{k}" for name in METRICS for k in LADDER]
    for value, interval, baseline, its_interval in ladder.values():
        for number, ends in ((value, interval), (baseline, its_interval)):
            low, high = (float(end) for end in ends.split("–"))
            assert 0 <= low <= float(number) <= high <= 1
    # One right answer a user.
    assert all(ladder[f"recall@{k}"] == ladder[f"hit_rate@{k}"] for k in LADDER)
    assert all(ladder[f"map@{k}"] == ladder[f"mrr@{k}"] for k in LADDER)
    ours, theirs = ladder["ndcg@10"][0], ladder["ndcg@10"][2]
    assert f"nDCG@10 {ours} against popularity's {theirs}" in printed
    assert float(ours) > float(theirs)  # what comes next can be learned, and no film is popular


def test_movielens_tests_on_the_last_film_of_each_user(trained):
    # Popularity needs no training, so that plain Python can tell its nDCG@10: it holds the splits to what they claim.
    folder, printed = trained
    rows = [line.split("\t") for line in (folder / "ml-100k.inter").read_text(encoding="utf-8").splitlines()[1:]]
    films = sorted({film for _, film, _, _ in rows})
    watched = defaultdict(list)
    for user, film, _, _ in sorted(rows, key=lambda row: float(row[3])):
        watched[user].append(film)
    counts = Counter(film for history in watched.values() for film in history[:-2])
    by_count = sorted(films, key=lambda film: -counts[film])
    gains = []
    for *seen, last in watched.values():
        rank = 1 + [film for film in by_count if film not in seen].index(last)
        gains.append(1 / log2(rank + 1) if rank <= 10 else 0)
    assert read_ladder(printed)["ndcg@10"][2] == f"{sum(gains) / len(gains):.4f}"


def test_movielens_leaves_a_picture_weights_and_logs(trained):
    folder, _ = trained
    out = folder / "runs" / "movielens"
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "best.ckpt").stat().st_size > 0
    header, *epochs = next(out.glob("**/metrics.csv")).read_text(encoding="utf-8").splitlines()
    assert {f"val/{name}@{k}" for name in METRICS for k in LADDER} <= set(header.split(","))
    assert len(epochs) >= 2  # one line an epoch, two at least before it stops early


def test_movielens_in_two_processes_gives_the_numbers_of_one(trained):
    folder, printed = trained
    weights = folder / "runs" / "movielens" / "best.ckpt"
    again = movielens(folder, "--devices", 2, "--checkpoint", weights, "--out", folder / "two")
    assert len(read_ladder(again)) == len(METRICS) * len(LADDER)
    assert read_ladder(again) == read_ladder(printed)
    assert (folder / "two" / "curves.png").exists()


def test_digits_prints_reports_and_leaves_pictures(tmp_path):
    printed = run("digits.py", tmp_path, "--out", tmp_path / "pictures")
    assert "accuracy" in printed  # of the first guess
    assert "samples avg" in printed  # of two
    assert "are best by nDCG@3" in printed
    for name in ("heatmap.png", "curves.png"):
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")


def test_multilabel_compares_three_rankings_and_writes_nothing_unasked(tmp_path):
    printed = run("multilabel.py", tmp_path)
    assert all(name in printed.lower() for name in ("psp", "coverage", "tail"))
    assert not [*tmp_path.iterdir()]


def test_compare_finds_pixels_the_best_and_chance_the_worst(tmp_path):
    printed = run("compare.py", tmp_path)
    means = re.search(r"ndcg@10 +([\d.]+)\*\S* +([\d.]+)\S* +([\d.]+)", printed).groups()
    pixels, components, chance = map(float, means)
    assert pixels > components > chance + 0.1
    assert "corrected by Holm, 8 pairs" in printed


def read_comparison(printed: str) -> dict[str, dict[str, tuple[float, float, float, bool]]]:
    """Of each metric and model its value, the ends of the interval, and whether it is in bold."""
    rows = [line.strip("│").split("│") for line in printed.splitlines() if line.startswith("│")]
    table = {}
    for (heading, *above), (_, *below) in zip(rows[::2], rows[1::2], strict=True):
        cells = {}
        for model, value, interval in zip(("frequency", "DistMult", "ComplEx"), above, below, strict=True):
            low, high = STYLE.sub("", interval).split("–")
            cells[model] = float(STYLE.sub("", value)), float(low), float(high), BOLD in value
        table[heading.strip()] = cells
    return table


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    if not NATIONS.is_dir():
        pytest.skip("The Nations graph is not at hand.")
    folder = tmp_path_factory.mktemp("links")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORCE_COLOR", "1")  # rich writes bold into a pipe
        patch.setenv("TERM", "xterm")
        return folder, run("links.py", folder, "--data", NATIONS, "--epochs", 8, "--batch-size", 128)


def test_links_compares_a_baseline_and_two_models(linked):
    _, printed = linked
    table = read_comparison(printed)
    assert list(table) == ["MRR", "Hits@1", "Hits@3", "Hits@10", "MR"]
    for heading, row in table.items():
        least, most = (1, 14) if heading == "MR" else (0, 1)
        for value, low, high, _ in row.values():
            assert least <= low <= value <= high <= most
        best = (min if heading == "MR" else max)(value for value, *_ in row.values())
        assert all(bold for value, _, _, bold in row.values() if value == best)
        assert not any(bold for value, _, _, bold in row.values() if value != best)
    for model in ("DistMult", "ComplEx"):
        assert table["MRR"][model][0] > table["MRR"]["frequency"][0]
        assert table["MR"][model][0] < table["MR"]["frequency"][0]


def test_links_ranks_both_sides_without_what_is_known_and_shares_tied_ranks(linked):
    # Plain Python tells the numbers too: of the baseline by counting, of the models from the weights that were kept.
    folder, printed = linked
    train, valid, test = (
        [tuple(line.split("\t")) for line in (NATIONS / f"{split}.txt").read_text(encoding="utf-8").splitlines()]
        for split in ("train", "valid", "test")
    )
    known = {*train, *valid, *test}
    entities = sorted({name for head, _, tail in known for name in (head, tail)})
    relations = sorted({relation for _, relation, _ in known})
    counts = Counter((side, triple[side], triple[1]) for triple in train for side in (0, 2))
    scorers = {"frequency": lambda side, triple: counts[side, triple[side], triple[1]]}
    for model in ("DistMult", "ComplEx"):
        weights = torch.load(folder / "runs" / "links" / f"{model}.ckpt", weights_only=True)["state_dict"]
        vectors, links = weights["entities"], weights["relations"]
        scores = torch.einsum("hd,rd,td->hrt", vectors, links, vectors.conj()).real
        of = {
            (head, relation, tail): scores[h, r, t].item()
            for h, head in enumerate(entities)
            for r, relation in enumerate(relations)
            for t, tail in enumerate(entities)
        }
        scorers[model] = lambda _, triple, of=of: of[triple]

    table = read_comparison(printed)
    for model, score in scorers.items():
        ranks = []
        for triple in test:
            for side in (0, 2):
                others = [(*triple[:side], name, *triple[side + 1 :]) for name in entities]
                scores = [score(side, other) for other in others if other not in known]
                own = score(side, triple)
                ranks.append(1 + sum(each > own for each in scores) + scores.count(own) / 2)
        expected = {"MRR": [1 / rank for rank in ranks], "MR": ranks}
        expected |= {f"Hits@{k}": [rank <= k for rank in ranks] for k in (1, 3, 10)}
        for heading, values in expected.items():
            assert table[heading][model][0] == pytest.approx(sum(values) / len(values), abs=6e-5)


def test_links_logs_each_epoch_and_repeats_itself(linked):
    folder, printed = linked
    for model in ("DistMult", "ComplEx"):
        assert (folder / "runs" / "links" / f"{model}.ckpt").stat().st_size > 0
        log = folder / "runs" / "links" / model / "version_0" / "metrics.csv"
        with log.open(encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == 8
        for name in ("mrr", "hits@1", "hits@3", "hits@10", "mr"):
            assert all(float(row[f"val/{name}"]) > 0 for row in rows)
        assert float(rows[-1]["val/mrr"]) > float(rows[0]["val/mrr"])
    again = run("links.py", folder, "--data", NATIONS, "--epochs", 8, "--batch-size", 128, "--out", folder / "again")
    plain = STYLE.sub("", printed)
    assert read_comparison(again) == read_comparison(plain)
