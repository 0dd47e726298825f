"""Runs as rows of one table: which figures of a result a row has, as cells of text and as a frame."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from hushgrid.broker.report.result import Result, Summary
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Document, DocumentView

if TYPE_CHECKING:
    from pandas import DataFrame, Series

#: How a run of a sweep ended: refused by a check or a device; stopped, diverged among them; by a defect of the program.
STATUS = ("done", "refused", "stopped", "defect")
#: What the epsilon of a row is: two of different kinds are not one quantity.
DP = {
    "pure": "pure: delta is 0",
    "approximate": "with the row's delta",
    "not upheld": "a paper's own claim, which does not hold",
    "none": "nothing is claimed",
}
#: What a row says beside the plain figures of result.json.
OF_SECTIONS = {
    "quality": "the verdict on the answer",
    "residual_relative": "consensus residual over the answer's size",
    "upheld": "whether a privacy claim is; a seed makes a run not private",
    "mechanism": "laplace or gaussian",
    "accountant": "how answers are added up",
    "adjacency": "the neighbouring relation",
    "answers": "the most noisy answers of a node",
    "dp": "; ".join(f"{word}: {text}" for word, text in DP.items()),
    "epsilon": "total of each node over the run, claimed without the seed",
    "delta": "of the same claim",
    "epsilon_spent": "of the node that spent most",
}
PLAIN = tuple(
    field.name
    for field in dataclasses.fields(Summary)
    if set(str(field.type).split(" | ")) <= {"str", "int", "float", "bool", "None"}
)
FIGURES = (*PLAIN, *OF_SECTIONS)
WHOLE = ("point", "seed", "nodes", "rounds_done", "messages", "bytes", "answers")
TEXT = (
    *("status", "error", "name", "algorithm", "variant", "transport", "broker", "stopped_because", "quality", "upheld"),
    *("mechanism", "accountant", "adjacency", "dp"),
)


def figures(result: Result) -> Document:
    """The columns FIGURES of a run; what a private run does not reveal is None."""
    privacy, quality = result.privacy, result.quality
    claimed, spent = privacy.claimed, privacy.spent
    dp = "none"
    if claimed is not None:
        dp = "not upheld" if privacy.upheld is False else "approximate" if claimed.delta else "pure"
    return {name: getattr(result, name) for name in PLAIN} | {
        "quality": quality.verdict,
        "residual_relative": quality.residual_relative,
        "upheld": privacy.upheld if isinstance(privacy.upheld, str) else str(privacy.upheld).lower(),
        "mechanism": privacy.mechanism,
        "accountant": privacy.accountant,
        "adjacency": None if privacy.adjacency is None else json.dumps(privacy.adjacency),
        "answers": privacy.answers,
        "dp": dp,
        "epsilon": claimed.epsilon if claimed else None,
        "delta": claimed.delta if claimed else None,
        "epsilon_spent": spent.epsilon if spent else None,
    }


def cells(row: DocumentView) -> dict[str, str]:
    """A row as text: a float in full, nothing for None, one line each."""
    return {
        name: "" if v is None else repr(float(v)) if isinstance(v, float) else " ".join(str(v).split())
        for name, v in row.items()
    }


def frame(rows: Sequence[Mapping[str, str]], columns: Iterable[str], over: Sequence[str]) -> DataFrame:
    """Rows of text as a frame whose columns have their types: NaN or NA for an empty cell.

    over: the columns that say which point a row is of (`attrs["over"]`). Raises InputError without pandas.
    """
    pandas = needed("pandas")
    table = {name: _typed(pandas, name, [row.get(name, "") for row in rows], name in over) for name in columns}
    made: DataFrame = pandas.DataFrame(table)
    made.attrs["over"] = list(over)
    return made


def _typed(pandas: ModuleType, name: str, texts: list[str], swept: bool) -> Series:
    if swept or name not in (*WHOLE, *TEXT):
        for kind in (int, float) if swept else (float,):
            try:
                values = [kind(text) if text else kind("nan") for text in texts]
            except ValueError:
                continue
            return pandas.Series(values, dtype="int64" if kind is int else "float64")
    elif name in WHOLE:
        return pandas.Series([int(text) if text else None for text in texts], dtype="Int64")
    return pandas.Series(texts, dtype="str")


def needed(name: str) -> ModuleType:
    """A module of the extra `sweep`. Raises InputError if it is not installed."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"sweep: found no {name}, expected it installed: pip install 'hushgrid[sweep]'") from None
