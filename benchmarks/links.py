"""Filtered ranks of both sides of a graph's triples, beside PyKEEN's evaluator and the bare products."""

from __future__ import annotations

import logging
import warnings
from functools import partial
from typing import Any

import torch
from measuring import Results, Scale, Work, interleaved, missing, show
from report import milliseconds as ms
from torch import Generator, Tensor, nn

import torch_topk as tt

RELATIONS, KNOWN, DIM = 237, 310_116, 200  # those of FB15k-237, and the length of a vector
FEW = 256
"""How many triples PyKEEN is given: it looks each batch up in a table of all known triples."""


class DistMult(nn.Module):
    """The model, in random numbers, as `tt.evaluate_links` and PyKEEN's evaluator ask for scores."""

    device = torch.device("cpu")

    def __init__(self, entities: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.num_entities, self.num_relations = entities, RELATIONS
        self.entities = torch.randn(entities, DIM, generator=generator)
        self.relations = torch.randn(RELATIONS, DIM, generator=generator)

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Score all tails."""
        return (self.entities[heads] * self.relations[relations]) @ self.entities.T

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """Score all heads, which is the same to this model."""
        return self.tails(tails, relations)

    def predict(self, hrt_batch: Tensor, target: str, **_: object) -> Tensor:
        """Score one side of a batch of triples."""
        head, relation, tail = hrt_batch.unbind(1)
        return self.tails(head, relation) if target == "tail" else self.heads(relation, tail)


def make_graph(number: int, entities: int) -> Tensor:
    """Triples of which few entities and relations have most, as of real graphs."""
    generator: Generator = torch.Generator().manual_seed(1)
    place = torch.rand(3, number, generator=generator) ** 3
    return (place * torch.tensor([[entities], [RELATIONS], [entities]])).long().T


def links(scale: Scale, results: Results) -> None:
    """`evaluate_links` beside PyKEEN's evaluator and the bare products of DistMult."""
    queries, entities = scale.of((20_000, 14_541))
    graph, model = make_graph(max(KNOWN // scale.items, queries), entities), DistMult(entities)
    triples, few = graph[:queries], graph[: min(FEW, queries)]
    known = tt.KnownTriples(graph, num_entities=entities, num_relations=RELATIONS)
    evaluate = partial(tt.evaluate_links, model.tails, model.heads, known=known)

    def products() -> None:
        for batch in triples.split(512):  # neither slower nor quicker than others of its order
            model.predict(batch, "tail")
            model.predict(batch, "head")

    work: Work = {"ours": partial(evaluate, triples), "products": products}
    if missing("pykeen"):
        results.leave("`evaluate_links` beside PyKEEN's evaluator", "pykeen is not installed")
    else:
        work |= {"ours, few": partial(evaluate, few), "pykeen": partial(by_pykeen, model, few, graph)}
        agree(evaluate(few), by_pykeen(model, few, graph))
    times = interleaved(work, scale.effort)
    where = f"both sides of {show((queries, entities))}, {len(graph):,} known triples, DistMult of {DIM}"
    results.aim(
        f"`evaluate_links`, raw and filtered, {where}, in times of the bare products",
        times.ratio("ours", "products"),
        "×",
        most=2,
        ours=ms(times.median("ours")),
        peer=f"the products alone {ms(times.median('products'))}",
    )
    print(f"  {times.ratio('ours', 'products'):6.2f}×  the bare products, {where}: {ms(times.median('ours'))}")
    if "pykeen" in work:
        results.aim(
            f"`evaluate_links`, raw and filtered, {len(few)} of these triples",
            times.ratio("pykeen", "ours, few"),
            "×",
            least=20,
            ours=ms(times.median("ours, few")),
            peer=f"PyKEEN's evaluator, filtered, of the same scores {ms(times.median('pykeen'))}",
        )
        print(f"  {times.ratio('pykeen', 'ours, few'):6.1f}×  PyKEEN's evaluator, {len(few)} triples")


def by_pykeen(model: DistMult, triples: Tensor, graph: Tensor) -> Any:
    """What PyKEEN's evaluator finds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        from pykeen.evaluation import RankBasedEvaluator
    logging.getLogger("torch_max_mem").setLevel(logging.ERROR)  # which warns that this is no GPU
    evaluator = RankBasedEvaluator(filtered=True, metrics=["mrr", "amr"], add_defaults=False)
    given: dict[str, Any] = {"batch_size": len(triples), "use_tqdm": False, "additional_filter_triples": graph}
    return evaluator.evaluate(model, triples, **given)


def agree(ours: tt.LinkRanks, theirs: Any) -> None:
    """Hold one to the other.

    Raises:
        RuntimeError: If they differ.
    """
    found = ours.compute("mrr")["mrr"].item()
    expected = theirs.get_metric("both.realistic.inverse_harmonic_mean_rank")
    if abs(found - expected) > 1e-5 * expected:
        raise RuntimeError(f"evaluate_links finds an MRR of {found}, and PyKEEN {expected}.")
