"""The table of values that the queries of one system have, and what it is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_topk.inputs import nearest

_ID = "query_id"


@dataclass(frozen=True, eq=False, repr=False)
class QueryValues:
    """What each query of one system has for each metric: Q queries by M metrics.

    Args:
        ids: What the queries are called, ``(Q,)``: integers, kept as int64, or strings; each only once.
        names: What the metrics are called, M strings such as "ndcg@10"; each only once.
        values: ``(Q, M)``, kept as float64; NaN where a query counts nowhere.
        lower_is_better: The names of which lower values are better.

    Raises:
        TypeError: For ids that are neither all integers nor all strings, or names that are no strings.
        ValueError: For other shapes, or an id or a name that is there twice.

    Example:
        >>> table = QueryValues(["q1", "q2"], ["mrr", "ndcg@10"], [[1.0, 0.9], [0.5, 0.4]])
        >>> len(table), table["ndcg@10"].tolist()
        (2, [0.9, 0.4])
    """

    ids: NDArray[Any]
    names: tuple[str, ...]
    values: NDArray[np.float64]
    lower_is_better: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids, names, values = _read_ids(self.ids), tuple(self.names), np.asarray(self.values, dtype=np.float64)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"names must be strings, what the metrics are called, but are {names!r}.")
        if values.shape != (len(ids), len(names)):
            raise ValueError(
                f"values must be (Q, M), a row an id and a column a name, here {(len(ids), len(names))}, but are "
                f"{values.shape}."
            )
        for field, called in (("ids", ids), ("names", np.array(names, dtype=object))):
            known, counts = np.unique(called, return_counts=True)
            if len(known) < len(called):
                most = counts.argmax()
                raise ValueError(
                    f"{field} must differ, but {known[most : most + 1].tolist()[0]!r} is there {counts[most]} times: "
                    f"keep one row a query, and one column a metric."
                )
        for field, value in (("ids", ids), ("names", names), ("values", values)):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        if name not in self.names:
            raise KeyError(f"{name!r} is no metric of this table.{nearest(name, self.names)} It has {self.names}.")
        return self.values[:, self.names.index(name)]

    def __repr__(self) -> str:
        return f"<QueryValues of {len(self)} queries: {', '.join(self.names)}>"

    @staticmethod
    def read(value: Any) -> QueryValues:
        """Read the table from any of the forms that it comes in.

        Args:
            value: QueryValues; what has a ``collected()`` method that returns them, as a suite made with
                ``collect=True``; a pandas DataFrame (see `from_pandas`); ``{query id: value}``, of a metric called
                "value"; or ``{query id: {metric: value}}``, the same metrics for each query. The same mapping the
                other way round looks alike, so that it is not taken for one.

        Raises:
            TypeError: For anything else.
            ValueError: Where a query lacks a metric that another one has, and as the constructor.

        Example:
            >>> QueryValues.read({"q1": {"mrr": 1.0}, "q2": {"mrr": 0.5}})
            <QueryValues of 2 queries: mrr>
        """
        if isinstance(value, QueryValues):
            return value
        if callable(getattr(value, "collected", None)):
            return QueryValues.read(value.collected())
        if isinstance(value, Mapping):
            return _read_mapping(value)
        if all(hasattr(value, part) for part in ("index", "columns", "to_numpy")):
            return QueryValues.from_pandas(value)
        hint = " Give a frame of polars as frame.to_pandas()." if hasattr(value, "to_pandas") else ""
        raise TypeError(
            "The values of queries must be QueryValues, a suite made with collect=True, a pandas DataFrame with a row "
            "a query and a column a metric, {query id: value} or {query id: {metric: value}}, but are of type "
            f"{type(value).__name__}.{hint}"
        )

    @classmethod
    def from_pandas(cls, frame: Any) -> QueryValues:
        """Read a DataFrame: a row a query, a numeric column a metric; ids are the index, or a column "query_id".

        Raises:
            TypeError: Where a column holds no numbers, or ids are neither integers nor strings.
            ValueError: Where an id or a column is there twice.
        """
        import pandas as pd

        columns = frame.set_index(_ID) if _ID in frame.columns else frame
        other = [name for name, kind in columns.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
        if other:
            raise TypeError(
                f"The columns of the frame must hold numbers, each of one metric, but {other} do not: drop them, or "
                f"make the one with the queries' ids the index."
            )
        return cls(
            columns.index.to_numpy(), tuple(columns.columns), columns.to_numpy(dtype=np.float64, na_value=np.nan)
        )

    def to_pandas(self) -> Any:
        """Return a DataFrame: ids are its index, called "query_id", and each metric is a column. Needs pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install 'torch-topk[report]'.") from error
        return pd.DataFrame(self.values, index=pd.Index(self.ids, name=_ID), columns=list(self.names))

    def to_long(self) -> Any:
        """Return a DataFrame with a row for each query and metric: query_id, metric, value. Needs pandas."""
        return self.to_pandas().reset_index().melt(_ID, var_name="metric", value_name="value")

    def to_polars(self) -> Any:
        """Return a polars DataFrame: a column "query_id", then one for each metric. Needs polars."""
        try:
            import polars as pl
        except ImportError as error:
            raise ImportError("to_polars() needs polars: pip install 'torch-topk[report]' polars.") from error
        return pl.DataFrame({_ID: self.ids.tolist(), **{name: self[name] for name in self.names}})

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file with the columns of `to_polars`, which pandas reads as `to_pandas`. Needs pyarrow."""
        try:
            import pyarrow  # noqa: F401, ICN001 - pandas asks for it in other words
        except ImportError as error:
            raise ImportError("to_parquet() needs pyarrow: pip install 'torch-topk[report]' pyarrow.") from error
        self.to_pandas().to_parquet(path, engine="pyarrow")


def _read_ids(ids: Any) -> NDArray[Any]:
    array = np.asarray(ids) if hasattr(ids, "__array__") else np.array(list(ids), dtype=object)
    if array.ndim != 1:
        raise ValueError(f"ids must be (Q,), one a query, but are {array.shape}.")
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "U":
        return array
    kinds = {type(each) for each in array.tolist()}
    if all(issubclass(kind, str) for kind in kinds) and kinds:
        return array.astype(object)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return array.astype(np.int64)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(f"ids must be all integers or all strings, but are of {names}: map(str, ids) makes strings of all.")


def _read_mapping(table: Mapping[Any, Any]) -> QueryValues:
    """A table of ``{query id: value}`` or ``{query id: {metric: value}}``."""
    nested = [isinstance(row, Mapping) for row in table.values()]
    if not any(nested):
        return QueryValues(_read_ids(table), ("value",), _read_rows([[value] for value in table.values()], 1))
    first, names = next((query, tuple(row)) for query, row in table.items() if isinstance(row, Mapping))
    for query, row in table.items():
        if not isinstance(row, Mapping) or row.keys() != set(names):
            has = list(row) if isinstance(row, Mapping) else row
            raise ValueError(
                f"Each query must have the same metrics, but {first!r} has {list(names)} and {query!r} has {has}. "
                "The outer keys are the queries' ids and the inner ones the metrics' names, not the other way round; "
                "give NaN where a query counts nowhere."
            )
    return QueryValues(
        _read_ids(table), names, _read_rows([[row[name] for name in names] for row in table.values()], len(names))
    )


def _read_rows(rows: Iterable[Iterable[Any]], width: int) -> NDArray[np.float64]:
    return np.array([[float(value) for value in row] for row in rows], dtype=np.float64).reshape(-1, width)
