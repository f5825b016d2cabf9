"""What is left out of a ranking: which forms it may have, and the top k without it."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from torch_topk.inputs import as_tensor
from torch_topk.kernels import band, lowest, may_branch, reads_little, topk
from torch_topk.record import is_sparse
from torch_topk.relevance import Relevance


def read_exclusions(  # noqa: C901 - one form of exclusion after the other
    exclude: Any, shape: tuple[int, ...], queries: int, columns: int | None, device: torch.device
) -> list[Relevance]:
    """Every exclusion as a Relevance of one row a query, or of a single row for all."""
    if exclude is None:
        return []
    if isinstance(exclude, (list, tuple)):
        return [part for one in exclude for part in read_exclusions(one, shape, queries, columns, device)]
    if not isinstance(exclude, Relevance) and is_sparse(exclude):
        exclude = Relevance.from_sparse(exclude)
    if isinstance(exclude, Relevance):
        if exclude.num_queries != queries or exclude.device != device:
            given, wanted = f"{exclude.num_queries} queries on {exclude.device}", f"{queries} on {device}"
            raise ValueError(
                f"exclude holds {given}, but there are {wanted}; take the rows of the batch with exclude[rows]."
            )
        return [exclude]
    ids = as_tensor("exclude", exclude, device)
    if ids.dim() == 0 or (ids.dim() > 1 and tuple(ids.shape[:-1]) != shape):
        raise ValueError(
            f"exclude of shape {tuple(ids.shape)} fits neither one row for all queries nor {_plural(shape)} rows."
        )
    ids = ids.reshape(prod(ids.shape[:-1]), ids.shape[-1])
    if ids.dtype == torch.bool:
        if columns is not None and ids.shape[-1] != columns:
            raise ValueError(f"exclude is a mask of {ids.shape[-1]} items, but there are {columns}.")
        return [Relevance.from_dense(ids)]
    if ids.is_floating_point() or ids.is_complex():
        raise TypeError(f"exclude must be a bool mask or integer ids, but is {ids.dtype}.")
    if ids.shape[-1] == columns:
        raise TypeError(
            f"exclude is {ids.dtype} with as many columns as there are items, {columns}: a mask must be bool "
            "(exclude.bool()), and ids go through Relevance.from_ids."
        )
    return [Relevance.from_ids(ids)]


def _plural(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "one query"


def note_exclusions(faults: dict[str, Tensor], excluded: list[Relevance], queries: int, size: int | None) -> None:
    """Count the queries that exclude an id that is none."""
    for part in excluded:
        each = queries if part.num_queries == 1 else 1  # a row for all queries is a fault of every query
        faults["exclude"] = faults.get("exclude", 0) + part.num_faulty(size) * each


def left_out(excluded: list[Relevance], ids: Tensor, labels: Tensor | None) -> Tensor:
    """Which of the ids ``(Q, K)`` exclusions list, but for the item of a one-label target."""
    out = torch.zeros_like(ids, dtype=torch.bool)
    for part in excluded:
        out = out | (part.contains(ids) if len(part) == len(ids) else part.contains(ids.reshape(1, -1)).view_as(ids))
    return out if labels is None else out & (ids != labels)


def top_without(
    rows: Tensor, k: int, excluded: list[Relevance], labels: Tensor | None, ties: str
) -> tuple[Tensor, Tensor]:
    """The top k of the items that no exclusion lists.

    Where rows are long and the ids excluded are few, nothing is copied: the top k + E is taken, of which at most E are
    excluded. Else exclusions are written into copies, on a processor of a band of rows at a time.
    """
    if not excluded:
        return topk(rows, k, ties=ties)
    columns = rows.shape[1]
    more = k + sum(columns if part.longest is None else part.longest for part in excluded)
    if more <= columns and reads_little(columns, more):
        values, ids = topk(rows, more, ties=ties)
        out = left_out(excluded, ids, labels)
        values, ids, out = (each[:, :k] for each in close_up(out, values, ids, out))
        return values.masked_fill(out, lowest(values.dtype)), ids
    if not may_branch(rows):
        return topk(without(rows, excluded, labels), k, ties=ties)
    parts = []
    for start in range(0, max(1, len(rows)), band(columns)):
        some = slice(start, start + band(columns))
        each = [part if part.num_queries == 1 else part[some] for part in excluded]
        left = without(rows[some], each, None if labels is None else labels[some])
        parts.append(topk(left, k, ties=ties))
    with torch.autocast("cpu", enabled=False):  # which refuses to join half precision of the other kind
        values, ids = (torch.cat(each) for each in zip(*parts, strict=True))
    return values, ids


def without(rows: Tensor, excluded: list[Relevance], labels: Tensor | None) -> Tensor:
    """The scores, in a copy with the lowest value where an exclusion lists an item, but for a one-label target's."""
    lists = [part for part in excluded if part.longest is not None and 4 * part.longest <= rows.shape[1]]
    for part in excluded:
        if part not in lists:
            rows = lay_over(rows, part, labels)
    return _write_lowest(rows, lists, labels) if lists else rows


def lay_over(rows: Tensor, part: Relevance, labels: Tensor | None) -> Tensor:
    """A copy of the scores with the lowest value where an exclusion lists an item, but for a one-label target."""
    columns, mask = rows.shape[1], part.listed(rows.shape[1])
    if labels is not None and columns:
        place = labels.clamp(0, columns - 1)
        mask = mask.expand(len(labels), -1)
        mask = mask.scatter(1, place, mask.gather(1, place) & (place != labels))
    return rows.masked_fill(mask, lowest(rows.dtype))


def _write_lowest(rows: Tensor, lists: list[Relevance], labels: Tensor | None) -> Tensor:
    """A copy of the scores with the lowest value at the listed ids."""
    queries, columns = rows.shape
    # What is no id is written to a column of its own, which is cut off.
    wide = rows.new_empty((queries, columns + 1))
    wide[:, :columns] = rows
    for part in lists:
        ids = part.padded(columns)
        if labels is not None:
            ids = torch.where(ids == labels, columns, ids)
        wide.scatter_(1, ids.expand(queries, -1), lowest(rows.dtype))
    return wide[:, :columns]


def close_up(out: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
    """Move what is out, a bool ``(Q, K)``, to the end of its row in each table; the rest keeps its order."""
    order = out.to(torch.int8).argsort(dim=1, stable=True)
    return tuple(table.gather(1, order) for table in tables)
