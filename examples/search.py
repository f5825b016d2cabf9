"""Evaluate two search engines from TREC files, and tell whether one is better.

    python examples/search.py

Judgments and runs are text files of a line a document, as trec_eval takes them; those of ten questions are written to a
folder that is deleted at the end. Scores decide the order, whatever rank a line claims.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch_topk as tt

# The relevant pages of each question, some more than others; then what either engine returned, best first.
GRADES = {
    "q01": {"pasta": 2, "sauce": 1}, "q02": {"tides": 2}, "q03": {"loans": 1, "rates": 2}, "q04": {"maple": 1},
    "q05": {"verbs": 2, "nouns": 1}, "q06": {"chess": 2}, "q07": {"bikes": 1, "tyres": 1}, "q08": {"bread": 2},
    "q09": {"moons": 1}, "q10": {"taxes": 2, "forms": 1},
}  # fmt: skip
WORDS = {
    "q01": "sauce salad pasta", "q02": "ships tides", "q03": "banks loans rates", "q04": "syrup maple",
    "q05": "nouns verbs", "q06": "games cards chess", "q07": "bikes roads tyres", "q08": "flour bread",
    "q09": "stars moons", "q10": "forms taxes",
}  # fmt: skip
MEANING = {
    "q01": "pasta sauce salad", "q02": "tides ships", "q03": "rates banks loans", "q04": "maple syrup",
    "q05": "verbs nouns", "q06": "chess games cards", "q07": "roads bikes tyres", "q08": "bread flour",
    "q09": "moons stars", "q10": "taxes",
}  # fmt: skip
ENGINES = {"words": WORDS, "meaning": MEANING}


def write_run(path: Path, lists: dict[str, str]) -> Path:
    """Write a run: query, Q0, document, rank, score and the system's name."""
    with path.open("w", encoding="utf-8") as file:
        for query, listed in lists.items():
            for rank, document in enumerate(listed.split(), 1):
                file.write(f"{query} Q0 {document} {rank} {1 / rank:.4f} {path.stem}\n")
    return path


def main() -> None:
    """Print the means of both engines by trec_eval's names and conventions, and the comparison of the two."""
    with tempfile.TemporaryDirectory() as folder:
        qrels = Path(folder) / "questions.qrels"
        judged = [(query, page, grade) for query, grades in GRADES.items() for page, grade in grades.items()]
        qrels.write_text("".join(f"{query} 0 {page} {grade}\n" for query, page, grade in judged), encoding="utf-8")
        runs = {name: write_run(Path(folder) / f"{name}.run", lists) for name, lists in ENGINES.items()}

        metrics = ["ndcg_cut_3", "recip_rank", "P_1", "recall_3"]
        for name, found in tt.evaluate(qrels, runs, metrics, preset="trec_eval").items():
            print(f"{name:8}", "  ".join(f"{key} {value:.4f}" for key, value in found.items()))
        values = tt.evaluate(qrels, runs, metrics, preset="trec_eval", per_query=True)
    print()
    print(tt.compare(values))


if __name__ == "__main__":
    main()
