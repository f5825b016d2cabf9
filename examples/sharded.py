"""Evaluate a catalogue that no process holds whole: each rank has a share of the items, and finds the best of all.

    python examples/sharded.py                              # one process, all items
    torchrun --nproc-per-node 2 examples/sharded.py         # two processes, half of the items each

Vectors are made up and stored as int8, as large catalogues often are: products of integers are exact, so the numbers
are the same to the last digit for any number of ranks. Each user has items that are near their vector: some were seen
already and are left out, the others are to be found.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor

import torch_topk as tt

SEEN, WANTED = 20, 5  # items a user
BLOCK = 1000  # items that are made from one seed, so that any share of the catalogue can be made alone


def as_int8(vectors: Tensor) -> Tensor:
    """Quantise vectors of about unit scale."""
    return (vectors * 24).round().clamp(-127, 127).to(torch.int8)


def make_users(users: int, items: int, dim: int) -> tuple[Tensor, Tensor]:
    """The same on every rank: the vectors of all users, and the ids of the items that are near each."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(users, dim, generator=generator)
    return vectors, torch.randperm(items, generator=generator)[: users * (SEEN + WANTED)].view(users, -1)


def make_items(first: int, last: int, vectors: Tensor, near: Tensor) -> Tensor:
    """The share of one rank: what a file or a data loader would give."""
    blocks = range(first // BLOCK, -(-last // BLOCK))
    noise = [torch.randn(BLOCK, vectors.shape[1], generator=torch.Generator().manual_seed(1 + b)) for b in blocks]
    items = torch.cat([*noise, vectors[:0]])[first % BLOCK :][: last - first]
    user, column = ((near >= first) & (near < last)).nonzero(as_tuple=True)
    items[near[user, column] - first] += 0.35 * vectors[user]
    return items


def main() -> None:
    """Search, evaluate, and print a table."""
    parser = argparse.ArgumentParser(description="Evaluate a catalogue that is sharded over ranks.")
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=64)
    args = parser.parse_args()
    began = time.perf_counter()

    if dist.is_torchelastic_launched():  # by torchrun
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

    vectors, near = make_users(args.users, args.items, args.dim)
    seen, wanted = near[:, :SEEN], near[:, SEEN:]
    first, last = args.items * rank // world, args.items * (rank + 1) // world
    items = as_int8(make_items(first, last, vectors, near))

    metrics = tt.TopKMetrics(["recall", "hit_rate", "mrr", "ndcg"], k=[1, 10, 50])
    _, ids = tt.search(
        as_int8(vectors),
        items,
        50,
        exclude=seen,
        item_ids=torch.arange(first, last),
        process_group=dist.group.WORLD,  # None in a single process
    )
    # Every rank has the lists of all users now. Each evaluates some of them, and compute() adds the sums up.
    mine = slice(rank, None, world)
    metrics.update(tt.Ranking.from_ids(ids[mine], tt.Relevance.from_ids(wanted[mine])))
    values, intervals = metrics.compute(), metrics.intervals(0.95)

    if rank == 0:
        print(f"{args.users:,} users, {args.items:,} items. The numbers are the same for any number of ranks.\n")
        print(f"{'metric':<12} {'value':>7}   {'95 % interval':^15}")
        for name, value in values.items():
            low, high = intervals[name]
            print(f"{name:<12} {value:>7.4f}   {low:.4f} – {high:.4f}")
        print(f"\n{world} {'rank' if world == 1 else 'ranks'}, {time.perf_counter() - began:.1f} s.")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
