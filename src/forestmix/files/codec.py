"""How objects become trees of plain values and arrays, and how these become the objects again.

A ``Codec`` knows one type: the fields that define an object of it, and how to build one from them. ``Writer`` and
``Reader`` know the rest, whatever the types are::

    number, text, None     themselves
    array                  {"array": name}, and the array apart from the tree; small ones are written out
    list, tuple            a list; arrays of one shape are stacked, as are fields of objects of one kind, lists joined
    dictionary             {"table": {...}}
    object                 {"kind": kind, "fields": {...}}, and {"seen": number} where it occurs again

An object that occurs twice is written once and is one object after reading: an unknown scale stays the same unknown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array, host
from forestmix.errors import ForestmixError

#: Kinds of dtype that a file holds as they are: booleans, integers, floating point.
PLAIN = "biuf"


class Codec(NamedTuple):
    """One type: its name in files, the fields that define an object, and how to build it from them."""

    kind: str
    type: type
    fields: Callable[[Any], dict[str, Any]]
    build: Callable[..., Any]


def record(
    kind: str, type_: Any, names: Sequence[str] | None = None, build: Callable[..., Any] | None = None
) -> Codec:  # fmt: skip
    """Return the codec of a type whose constructor takes its attributes by name, or that is built by a function.

    Without names they are the fields of a dataclass.
    """
    names = type_.__match_args__ if names is None else names
    return Codec(
        kind, type_, lambda one: {name: getattr(one, name) for name in names}, build or (lambda given: type_(**given))
    )


def state(kind: str, type_: type, names: Sequence[str]) -> Codec:
    """Return the codec of a type that is restored by its attributes; those that an object has not are left out."""

    def fields(one: Any) -> dict[str, Any]:
        return {name: vars(one)[name] for name in names if name in vars(one)}

    def build(given: dict[str, Any]) -> Any:
        one: Any = object.__new__(type_)
        for name in given:
            if name not in names:
                raise ValueError(f"{kind} has no {name}")
            object.__setattr__(one, name, given[name])
        return one

    return Codec(kind, type_, fields, build)


class Writer:
    """Turns objects into a tree for JSON and arrays by name.

    Args:
        codecs: those of all types that may occur.

    Attributes:
        arrays: the arrays, by names that say where in the tree they are.

    """

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = {codec.type: codec for codec in codecs}
        self.arrays: dict[str, Array] = {}
        #: By identity, the number of an object and the name of an array, each with what was written: so no identity is
        #: used again while this lives.
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._names: dict[int, tuple[str, Array]] = {}

    def write(self, value: Any, name: str) -> Any:
        """Return the tree of a value that is found under ``name``."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic) and value.dtype.kind in PLAIN:
            return value.item()
        if isinstance(value, np.ndarray):
            return self._array(value, name)
        if isinstance(value, list | tuple):
            return self._list(list(value), name)
        if type(value) in self._codecs:
            return self._object(value, name)
        if isinstance(value, Mapping):
            return {"table": {str(key): self.write(value[key], f"{name}.{key}") for key in value}}
        raise ForestmixError(f"A file cannot hold {name}, an object of type {type(value).__name__}.")

    def _array(self, array: Array, name: str) -> Any:
        if array.dtype.kind not in PLAIN or array.dtype.itemsize > 8:
            raise ForestmixError(f"A file cannot hold {name}, an array of {array.dtype}.")
        if array.ndim == 0 or array.size == 0:
            return {"small": array.tolist(), "dtype": array.dtype.name, "shape": list(array.shape)}
        if id(array) not in self._names:
            self._names[id(array)] = name, array
            self.arrays[name] = host(array)
        return {"array": self._names[id(array)][0], "dtype": array.dtype.name}

    def _list(self, values: list[Any], name: str) -> Any:
        first = values[0] if len(values) > 1 else None
        if isinstance(first, np.ndarray) and first.ndim and _alike(values, first):
            return {"stack": self.write(np.stack(values), name)}
        if type(first) in self._codecs and self._all_new(values):
            return self._objects(values, name)
        if isinstance(first, dict) and all(isinstance(one, dict) and list(one) == list(first) for one in values):
            return {"tables": self._columns(values, name), "count": len(values)}
        if isinstance(first, list | tuple) and all(isinstance(one, list | tuple) for one in values):
            joined = [part for one in values for part in one]
            return {"parts": self._list(joined, name), "lengths": [len(one) for one in values]}
        return [self.write(one, f"{name}.{k}") for k, one in enumerate(values)]

    def _object(self, value: Any, name: str) -> Any:
        if id(value) in self._numbers:
            return {"seen": self._numbers[id(value)][0]}
        codec = self._codecs[type(value)]
        fields = codec.fields(value)
        tree = {"kind": codec.kind, "fields": {key: self.write(fields[key], f"{name}.{key}") for key in fields}}
        self._number(value)
        return tree

    def _objects(self, values: list[Any], name: str) -> Any:
        """Return several objects of one kind by columns, so that a file has few arrays, and long ones."""
        codec = self._codecs[type(values[0])]
        fields = [codec.fields(one) for one in values]
        if any(list(one) != list(fields[0]) for one in fields):
            return [self._object(one, f"{name}.{k}") for k, one in enumerate(values)]
        tree = {"kind": codec.kind, "columns": self._columns(fields, name), "count": len(values)}
        for one in values:
            self._number(one)
        return tree

    def _columns(self, rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
        return {key: self.write([row[key] for row in rows], f"{name}.{key}") for key in rows[0]}

    def _all_new(self, values: list[Any]) -> bool:
        return len({*map(type, values)}) == 1 and len({*map(id, values)} - self._numbers.keys()) == len(values)

    def _number(self, value: Any) -> None:
        self._numbers[id(value)] = len(self._numbers), value


class Reader:
    """Turns what a ``Writer`` wrote into objects.

    Args:
        codecs: those of all kinds that may occur; another kind is an error, so nothing else is ever built.
        arrays: gives an array by its name.

    """

    def __init__(self, codecs: Sequence[Codec], arrays: Callable[[str], Array]) -> None:
        self._codecs = {codec.kind: codec for codec in codecs}
        self._arrays, self._read = arrays, dict[str, Array]()
        self._seen: list[Any] = []

    def read(self, tree: Any) -> Any:
        """Return the value of a tree."""
        match tree:
            case list():
                return [self.read(one) for one in tree]
            case {"seen": number}:
                return self._seen[number]
            case {"array": name}:
                if name not in self._read:
                    self._read[name] = self._arrays(name).astype(_dtype(tree), copy=False)
                return self._read[name]
            case {"small": values, "shape": shape}:
                return np.array(values, _dtype(tree)).reshape(shape)
            case {"stack": stacked}:
                return list(self.read(stacked))
            case {"parts": parts, "lengths": lengths}:
                return self._parts(self.read(parts), lengths)
            case {"table": table}:
                return {key: self.read(value) for key, value in table.items()}
            case {"tables": columns, "count": count}:
                return self._rows(columns, count)
            case {"kind": kind}:
                return self._object(kind, tree)
            case dict():
                raise ValueError(f"no known form among {sorted(tree)}")
        return tree

    def _parts(self, joined: list[Any], lengths: list[int]) -> list[list[Any]]:
        ends = np.cumsum([0, *lengths]).tolist()
        if ends[-1] != len(joined):
            raise ValueError("lists of other lengths than they should have")
        return [joined[start:end] for start, end in itertools.pairwise(ends)]

    def _object(self, kind: str, tree: dict[str, Any]) -> Any:
        """Return an object, or several of one kind where their fields are columns."""
        if kind not in self._codecs:
            raise ValueError(f"unknown kind {kind!r}")
        build = self._codecs[kind].build
        if "columns" in tree:
            built = [build(fields) for fields in self._rows(tree["columns"], tree["count"])]
            self._seen.extend(built)
            return built
        one = build({key: self.read(value) for key, value in tree["fields"].items()})
        self._seen.append(one)
        return one

    def _rows(self, columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
        read = {key: self.read(column) for key, column in columns.items()}
        if any(len(column) != count for column in read.values()):
            raise ValueError("columns of different lengths")
        return [{key: column[k] for key, column in read.items()} for k in range(count)]


def _dtype(tree: dict[str, Any]) -> np.dtype:
    dtype = np.dtype(tree["dtype"])
    if dtype.kind not in PLAIN:
        raise ValueError(f"an array of {dtype}")
    return dtype


def _alike(values: list[Any], first: Array) -> bool:
    """Whether all are arrays of one shape and one dtype."""
    return all(
        isinstance(one, np.ndarray) and one.shape == first.shape and one.dtype == first.dtype and one.size
        for one in values
    )
