"""Runs and judgments as triples of a query, a document and a number, from whatever holds them.

Ids are text, whole and never parsed: what two sources write with the same characters is the same query or document, and
the order of ids is that of their bytes in UTF-8. Files of lines are read by NumPy, a stretch at a time.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]  # (P, w): ids as bytes, eight a word, the first the most significant
Index: TypeAlias = NDArray[np.int64]

QUERY = ("query_id", "qid", "q_id", "topic_id", "user_id", "query")
DOCUMENT = ("doc_id", "docno", "docid", "document_id", "item_id", "item")

_STRETCH = 1 << 20  # bytes of a file that are read at a time: what is made of them stays in the cache
_DIGITS = 18  # that an int64 always holds
_PAD = 24  # bytes behind the last, so that a word and all digits may be read from anywhere
_BIG = np.dtype(">u8")
_KEEP = np.array([0, *(((1 << 8 * kept) - 1) << (64 - 8 * kept) for kept in range(1, 9))], dtype=np.uint64)
_TENS = 10.0 ** np.arange(_DIGITS + 1)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Kind(NamedTuple):
    """What a source is to hold: its name and its numbers', where they stand in a line, and what a frame calls them."""

    name: str
    number: str
    line: str
    column: int
    least: int
    most: int | None
    names: tuple[str, ...]


QRELS = Kind(
    "qrels", "grade", "query, iteration, document, grade", 3, 4, 4,
    ("relevance", "rel", "grade", "label", "gain", "rating", "score"),
)  # fmt: skip
RUN = Kind("run", "score", "query, Q0, document, rank, score, tag", 4, 5, None, ("score", "prediction"))


@dataclass(frozen=True)
class Pairs:
    """What a run or qrels say.

    Attributes:
        names: What its queries are called, strings or integers, in order of appearance; one may have no pair.
        query: ``(P,)``: the place among them of each pair's query.
        documents: ``(P, w)``: the pairs' documents.
        numbers: ``(P,)`` float64: their grades or scores.
    """

    names: list[Any]
    query: Index
    documents: Words
    numbers: NDArray[np.float64]


def read_pairs(source: Any, kind: Kind) -> Pairs:
    """Read a run or qrels from a mapping, a data frame, or a file, told by its name's end.

    Raises:
        TypeError: For anything else, and for ids that are neither strings nor integers.
        ValueError: For a line, a table or numbers that are not what a run or qrels holds.
    """
    if isinstance(source, (str, os.PathLike)):
        return _read_file(Path(source), kind)
    if isinstance(source, Mapping):
        return _read_mapping(source, kind)
    if hasattr(source, "columns"):
        return _read_frame(source, kind)
    raise TypeError(
        f"{kind.name} must be a mapping by query, a data frame or the path of a file, but is of type "
        f"{type(source).__name__}."
    )


def is_source(value: Any) -> bool:
    """Whether a value is a whole run, and not the documents of one query: those are a list, or have scores."""
    if isinstance(value, Mapping):
        part = next(iter(value.values()), None)
        return isinstance(part, Iterable) and getattr(part, "ndim", 1) > 0
    return isinstance(value, (str, os.PathLike)) or hasattr(value, "columns")


def to_text(word: NDArray[np.uint64]) -> str:
    """The id that a row of words holds."""
    return word.astype(_BIG).tobytes().rstrip(b"\0").decode("utf-8", "surrogateescape")


def join(*parts: Words) -> Words:
    """Ids behind one another, in words enough for the longest."""
    out = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)), np.uint64, order="F")
    for part, last in zip(parts, np.cumsum([*map(len, parts)]), strict=True):
        out[last - len(part) : last, : part.shape[1]] = part
    return out


def number_ids(words: Words) -> tuple[Index, Index]:
    """Number ids in order of their bytes: the number of each, ``(P,)``, and of each number a row that has it."""
    columns = [word for word in words.T if (word != word[:1]).any()]
    if not columns:
        return np.zeros(len(words), np.int64), np.arange(min(len(words), 1))
    mixed = columns[0]
    for word in columns[1:]:
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX ^ word
    codes, first = _number([mixed], np.argsort(mixed))
    if len(columns) == 1:
        return codes, first
    if any((word[first][codes] != word).any() for word in columns):  # two ids were mixed to one number
        return _number(columns, np.lexsort(columns[::-1]))
    by_bytes = np.lexsort([word[first] for word in columns[::-1]])
    place = np.empty_like(by_bytes)
    place[by_bytes] = np.arange(len(by_bytes))
    return place[codes], first[by_bytes]


def _number(columns: list[Words], order: Index) -> tuple[Index, Index]:
    """Number rows, given an order in which equal ones stand together."""
    new = np.zeros(len(order), bool)
    new[0] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(new) - 1
    return codes, order[new]


# What is in memory.


def _read_mapping(source: Mapping[Any, Any], kind: Kind) -> Pairs:
    documents: list[Any] = []
    numbers: list[Any] = []
    counts = []
    scored = {isinstance(listed, Mapping) for listed in source.values()}
    for query, listed in source.items():
        if isinstance(listed, Mapping):
            documents.extend(listed)
            numbers.extend(listed.values())
        elif isinstance(listed, Iterable) and not isinstance(listed, (str, bytes)):
            if kind is RUN and isinstance(listed, (set, frozenset)):
                raise TypeError(f"run gives query {query!r} a set, which has no order: give a list, best first.")
            given = listed.tolist() if hasattr(listed, "tolist") else listed
            before = len(documents)
            documents.extend(given)
            ranks = range(len(documents) - before)
            numbers.extend([1] * len(ranks) if kind is QRELS else (-rank for rank in ranks))
        else:
            given_as = "a set or list" if kind is QRELS else "a list, best first,"
            raise TypeError(
                f"{kind.name} must give each query {given_as} of documents, or {{document: {kind.number}}}, but gives "
                f"{query!r} a {type(listed).__name__}: {listed!r}."
            )
        counts.append(len(documents))
    if kind is RUN and len(scored) > 1:
        raise TypeError(
            "run must give every query a list, best first, or every query {document: score}, but mixes them."
        )
    query = np.repeat(np.arange(len(source)), np.diff([0, *counts]))
    return _checked(list(source), query, _pack(_texts(documents, kind, "document")), _numbers(numbers, kind), kind)


def _read_frame(frame: Any, kind: Kind) -> Pairs:
    known = [str(column) for column in frame.columns]

    def find(what: str, names: tuple[str, ...]) -> Any:
        for name in names:
            if name in known:
                return frame[name]
        raise ValueError(
            f"The {kind.name} frame has no column of the {what}, which may be called {', '.join(names)}; it has "
            f"{', '.join(known)}: rename one."
        )

    queries = find("query", QUERY).to_list()
    documents, numbers = find("document", DOCUMENT).to_list(), find(kind.number, kind.names)
    places: dict[Any, int] = {}
    query = np.array([places.setdefault(each, len(places)) for each in queries], dtype=np.int64)
    return _checked(list(places), query, _pack(_texts(documents, kind, "document")), _numbers(numbers, kind), kind)


def _texts(ids: list[Any], kind: Kind, what: str) -> list[str]:
    """Ids as text; an integer is its decimal digits."""
    kinds = set(map(type, ids))
    wrong = [each for each in kinds if not issubclass(each, (str, int, np.integer)) or issubclass(each, bool)]
    if wrong:
        example = next(each for each in ids if type(each) in wrong)
        raise TypeError(f"{kind.name} must name each {what} by a string or an integer, but one is {example!r}.")
    return ids if kinds <= {str} else [str(each) for each in ids]


def _pack(texts: list[str]) -> Words:
    joined = "".join(texts)
    if "\0" in joined:
        raise ValueError("An id holds a NUL character, which no id may.")
    data = joined.encode("utf-8", "surrogateescape")
    if len(data) == len(joined):
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        lengths = np.array([len(text.encode("utf-8", "surrogateescape")) for text in texts], dtype=np.int64)
    end = np.cumsum(lengths)
    return _words(np.frombuffer(data + bytes(_PAD), np.uint8), end - lengths, end)


def _numbers(numbers: Any, kind: Kind) -> NDArray[np.float64]:
    array = np.asarray(numbers)
    if array.size and array.dtype.kind not in "biuf":
        raise TypeError(f"{kind.name} must hold a number as each {kind.number}, but holds {array.dtype} values.")
    return array.astype(np.float64)


def _checked(names: list[Any], query: Index, documents: Words, numbers: NDArray[np.float64], kind: Kind) -> Pairs:
    texts = _texts(names, kind, "query")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(f"{kind.name} has two queries called {twice}: an integer is the same as its digits.")
    whole = not any(isinstance(name, str) for name in names)
    return Pairs([int(name) for name in names] if whole else texts, query, documents, numbers)


# Files.


def _read_file(path: Path, kind: Kind) -> Pairs:
    if path.suffix == ".parquet":
        try:
            import pandas as pd
            import pyarrow  # noqa: F401, ICN001 - pandas asks for it in other words
        except ImportError as error:
            raise ImportError(
                "Parquet files need pandas and pyarrow: pip install 'torch-topk[report]' pyarrow."
            ) from error
        return _read_frame(pd.read_parquet(path, engine="pyarrow"), kind)
    data = path.read_bytes()
    ends = path.suffixes
    if ends[-1:] == [".gz"]:
        data, ends = gzip.decompress(data), ends[:-1]
    if ends[-1:] != [".json"]:
        return _read_lines(data, str(path), kind)
    read = json.loads(data)
    if not isinstance(read, Mapping):
        raise ValueError(f"{path} must hold an object by query, but holds a {type(read).__name__}.")  # noqa: TRY004 - the file's content is wrong, not the argument's type
    return _read_mapping(read, kind)


def _read_lines(data: bytes, path: str, kind: Kind) -> Pairs:
    """Read lines of columns with blanks or tabs between them."""
    cuts, end = [3 * data.startswith(b"\xef\xbb\xbf")], len(data)
    while cuts[-1] < end:
        cuts.append(data.find(b"\n", min(cuts[-1] + _STRETCH, end - 1)) + 1 or end)
    parts = [_read_stretch(data, path, kind, *ends) for ends in itertools.pairwise(cuts)]
    if not any(len(part[2]) for part in parts):
        raise ValueError(f"{path} holds no line; a {kind.name} file has lines of {kind.line}.")
    queries, documents = (join(*column) for column in list(zip(*parts, strict=True))[:2])
    starts = np.flatnonzero(np.r_[True, (queries[1:] != queries[:-1]).any(1)])
    codes, rows = number_ids(queries[starts])
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    places = np.argsort(np.argsort(first))  # in order of appearance
    names = [to_text(queries[starts[rows[code]]]) for code in np.argsort(first)]
    if any(map(re.compile("[\udc80-\udcff]").search, names)):
        raise ValueError(f"{path} names queries in bytes that are not UTF-8: convert it first.")
    query = np.repeat(places[codes], np.diff(np.r_[starts, len(queries)]))
    return Pairs(names, query, documents, np.concatenate([part[2] for part in parts]))


def _read_stretch(data: bytes, path: str, kind: Kind, begin: int, end: int) -> tuple[Words, Words, NDArray[np.float64]]:
    """The queries, documents and numbers of whole lines."""
    last_end = b"" if data[end - 1] == ord("\n") else b"\n"
    piece = b"".join((memoryview(data)[begin:end], last_end, bytes(_PAD)))
    buffer = np.frombuffer(piece, np.uint8)
    blanks = np.flatnonzero(buffer[:-_PAD] <= ord(" "))
    found = buffer[blanks]
    if (found == 0).any():
        raise ValueError(f"{path} holds a NUL byte: it must be text in UTF-8.")
    white = (found == ord(" ")) | (found - ord("\t") <= ord("\r") - ord("\t"))
    if not white.all():
        blanks, found = blanks[white], found[white]
    before = np.r_[-1, blanks[:-1]]
    held = blanks - before > 1  # whether there is anything between two blanks
    start, stop = before + 1, blanks
    lines = np.flatnonzero(found == ord("\n"))
    if held.all():
        last = lines + 1
    else:
        start, stop, last = start[held], stop[held], np.cumsum(held)[lines]
    first = np.r_[0, last[:-1]]

    def refuse(line: int, what: str) -> ValueError:
        place = blanks[lines[line - 1]] + 1 if line else 0
        text = piece[place : piece.index(b"\n", place)].decode("utf-8", "replace")
        number = data.count(b"\n", 0, begin) + piece.count(b"\n", 0, place) + 1
        return ValueError(f"{path}, line {number}, {what}: {text!r}. A {kind.name} file has lines of {kind.line}.")

    columns = last - first
    wrong = (columns > 0) & (columns < kind.least)
    if kind.most is not None:
        wrong |= columns > kind.most
    if wrong.any():
        line = int(wrong.argmax())
        raise refuse(line, f"has {columns[line]} columns in place of {kind.most or f'at least {kind.least}'}")
    lined, first = np.flatnonzero(columns), first[columns > 0]
    at = first + kind.column
    numbers, odd = _decimals(buffer, start[at], stop[at])
    for row in np.flatnonzero(odd):  # exponents, many digits, and what is no number
        text = piece[start[at[row]] : stop[at[row]]]
        try:
            numbers[row] = float(text.replace(b"_", b"x"))
        except ValueError:
            raise refuse(int(lined[row]), f"has no number as its {kind.number}") from None
    return (
        _words(buffer, start[first], stop[first]),
        _words(buffer, start[first + 2], stop[first + 2]),
        numbers,
    )


def _words(buffer: NDArray[np.uint8], start: Index, stop: Index) -> Words:
    """The bytes from each start to its stop, in words that are filled with NUL."""
    lengths = stop - start
    width = max(-(-int(lengths.max(initial=0)) // 8), 1)
    # A word from every byte on, in the same memory.
    read = np.ndarray((len(buffer) - 7,), _BIG, buffer, 0, (1,))
    out = np.empty((len(start), width), np.uint64, order="F")
    for place in range(width):
        kept = np.clip(lengths - 8 * place, 0, 8)
        out[:, place] = read[np.minimum(start + 8 * place, len(read) - 1)].astype(np.uint64) & _KEEP[kept]
    return out


def _decimals(buffer: NDArray[np.uint8], start: Index, stop: Index) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers such as -12.345, rounded as Python rounds them; and which ones are written otherwise.

    Digits below 2^53, divided by a power of ten up to 10^22, both exact, round once: Clinger, How to read floating
    point numbers accurately, 1990.
    """
    negative = buffer[start] == ord("-")
    start = start + negative
    lengths = stop - start
    whole, after = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
    pointed = np.zeros(len(start), bool)
    odd = (lengths > _DIGITS) | (lengths < 1)
    for place in range(min(int(lengths.max(initial=0)), _DIGITS)):
        byte = buffer[start + place]
        inside, digit = lengths > place, byte - np.uint8(ord("0"))
        is_digit, is_point = (digit < 10) & inside, (byte == ord(".")) & inside & ~pointed
        whole = np.where(is_digit, whole * 10 + digit, whole)
        after += is_digit & pointed
        pointed |= is_point
        odd |= inside & ~is_digit & ~is_point
    odd |= (whole >= 1 << 53) | (lengths == pointed)
    numbers = whole / _TENS[after]
    return np.where(negative, -numbers, numbers), odd
