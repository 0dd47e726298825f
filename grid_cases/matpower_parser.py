"""The statements of a MATPOWER case file: plain data, and changes of units. Nothing else in a file is carried out.

Data are assignments `mpc.FIELD = value`. The distribution cases of MATPOWER (case33bw, case69, ...) give their lines in
ohm and their loads in kW, and end with statements that convert whole columns. These forms are understood:

    [PQ, PV, REF, ...] = idx_bus;                     names of columns, by their place (idx_brch for lines)
    Vbase = mpc.bus(1, BASE_KV) * 1e3;                from numbers, + - * / ^, sin, acos, ..., baseMVA, one entry
    mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);
                                                      whole columns of bus or branch, times or divided by a number

Every other statement is refused, because skipping it would change the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from hushgrid.kernels.errors import InputError

#: What is read; other fields are passed over.
FIELDS = ("version", "baseMVA", "bus", "gen", "branch", "gencost", "dcline", "dclinecost")
#: Constraints and costs of the user's own, whatever their form: it is only noted that they are there.
NOTED = ("A", "l", "u", "zl", "zu", "N", "H", "Cw", "fparm", "user_constraints", "if", "reserves", "softlims")
_CONVERTED = ("bus", "branch")  #: the matrices whose columns a statement may convert
_EXPECTED = "plain data, without commands, or a change of units of whole columns"
_DEEPEST = 20  #: brackets within brackets of an expression

# What MATPOWER's functions idx_bus and idx_brch return, in this order (User's Manual, Tables B-1 and B-3).
_INDICES = {
    "idx_bus": (1, 2, 3, 4, *range(1, 18)),
    "idx_brch": (*range(1, 12), *range(14, 20), 12, 13, 20, 21),
}
_FUNCTIONS: dict[str, Callable[[np.float64], np.float64]] = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sqrt": np.sqrt,
}


class Token(NamedTuple):
    kind: str  #: number, digits, name, string, newline, end, or the punctuation itself
    text: str
    line: int


class Value(NamedTuple):
    """A field's value: a matrix (rows with their line numbers), a scalar or a string."""

    line: int
    rows: list[tuple[int, list[float]]] | None = None
    scalar: float | str | None = None


# A number ends where a separator begins: in a matrix "1-2" is an expression of the language, so it is no number there.
# Digits that end otherwise are a number of an expression only.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f\v]+|\.\.\.[^\n]*\n)
      | (?P<newline>\n)
      | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*(?:[eEdD][+-]?[0-9]+)?|\.[0-9]+(?:[eEdD][+-]?[0-9]+)?
            |(?:[Ii]nf|NaN|nan)\b)(?=[\s,;\[\]{}%=]|\.\.\.|\Z))
      | (?P<digits>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eEdD][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z][A-Za-z0-9_]*)
      | (?P<string>'(?:[^'\n]|'')*'|"(?:[^"\n]|"")*")
      | (?P<mark>.)""",
    re.VERBOSE,
)


def _tokens(text: str) -> Iterator[Token]:
    line, position, depth = 1, 0, 0
    begins_line = True
    while position < len(text):
        if text[position] in "%#":
            stop = text.find("\n", position)
            stop = len(text) if stop < 0 else stop
            comment = text[position:stop].rstrip()
            # %{ and %} alone on their lines open and close a block comment, which may nest.
            if begins_line and comment in ("%{", "#{"):
                depth += 1
            elif begins_line and comment in ("%}", "#}"):
                depth = max(0, depth - 1)
            position = stop
            continue
        if depth:
            if text[position] == "\n":
                line, begins_line = line + 1, True
            elif not text[position].isspace():
                begins_line = False
            position += 1
            continue
        match = _TOKEN.match(text, position)
        assert match is not None  # the last alternative takes any character
        kind, word = str(match.lastgroup), match.group()
        if kind != "space":
            yield Token(word if kind == "mark" else kind, word, line)
            begins_line = kind == "newline"
        line += word.count("\n")
        position = match.end()
    yield Token("end", "", line)


class Parser:
    """Recursive descent over the tokens of one file; knows nothing of power systems."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self.stream = _tokens(text)
        self.token = next(self.stream)
        self.struct = "mpc"
        self.values: dict[str, Value] = {}
        self.names: dict[str, float] = {}  # scalars and columns that the file has named

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.token = next(self.stream)
        return token

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        actual = {"end": "the end of the file", "newline": "the end of the line"}.get(token.kind, repr(token.text[:40]))
        raise InputError(f"{self.where}:{token.line}: found {actual}, expected {expected}")

    def expect(self, kind: str, expected: str) -> Token:
        if self.token.kind != kind:
            self.fail(expected)
        return self.advance()

    def fields(self) -> dict[str, Value]:
        """Every assignment `mpc.NAME = value` of plain data, its units changed as the file says."""
        while self.token.kind != "end":
            token = self.advance()
            if token.kind in ("newline", ";", ","):
                continue
            if token.kind == "name" and token.text == "function":
                self.struct = self.header()
            elif token.kind == "name" and token.text == self.struct and self.token.kind == ".":
                self.advance()
                self.field(self.expect("name", f"a field name after {self.struct}.").text)
            elif token.kind == "[":
                self.columns_named(token)
            elif token.kind == "name" and self.token.kind == "=":
                self.advance()
                self.names[token.text] = self.number()
                self.end_of_statement(token.text)
            elif not (token.kind == "name" and token.text in ("end", "endfunction", "return")):
                self.fail(f"{self.struct}.FIELD = {_EXPECTED}", token)
        return self.values

    def field(self, name: str) -> None:
        """The statement after `mpc.NAME`."""
        if self.token.kind == ".":  # a nested field (mpc.if.map) is none of ours
            self.noted(name)
            return
        if self.token.kind == "(" and name in _CONVERTED:
            self.conversion(name)
            return
        if self.token.kind != "=":
            self.fail(f"'=' after {self.struct}.{name}: {_EXPECTED}")
        self.advance()
        if name in FIELDS:
            self.values[name] = self.value(name)
        else:
            self.noted(name)

    def header(self) -> str:
        name = self.expect("name", "`function mpc = NAME` (MATPOWER format version 2)").text
        self.expect("=", "`function mpc = NAME` (MATPOWER format version 2)")
        while self.token.kind not in ("newline", "end"):
            self.advance()
        return name

    def noted(self, name: str) -> None:
        """Over a value we do not use; that it is there, and not empty, is noted of some."""
        line = self.token.line
        if self.skip_statement() and name in NOTED:
            self.values.setdefault(name, Value(line))

    def skip_statement(self) -> bool:
        """To the end of the statement outside every bracket. Whether there is more than brackets in it."""
        opened, full = list[Token](), False
        while self.token.kind != "end":
            if not opened and self.token.kind in ("newline", ";"):
                return full
            token = self.advance()
            full = full or token.kind in ("number", "digits", "name", "string")
            if token.kind in ("[", "{", "("):
                opened.append(token)
            elif token.kind in ("]", "}", ")"):
                if not opened:
                    self.fail("no closing bracket here", token)
                opened.pop()
        if opened:
            self.fail(f"the bracket of line {opened[-1].line} to be closed")
        return full

    def value(self, name: str) -> Value:
        line = self.token.line
        if self.token.kind == "[":
            value = Value(line, rows=self.matrix())
        elif self.token.kind == "number":
            value = Value(line, scalar=_number(self.advance().text))
        elif self.token.kind == "digits" and name == "baseMVA":
            value = Value(line, scalar=self.number())
        elif self.token.kind == "string":
            value = Value(line, scalar=self.advance().text[1:-1])
        else:
            self.fail(f"the value of mpc.{name}: a number, a string or a matrix")
        self.end_of_statement(f"mpc.{name}")
        return value

    def end_of_statement(self, name: str) -> None:
        if self.token.kind not in ("newline", ";", ",", "end"):
            self.fail(f"the end of the statement {name} = ...")

    def matrix(self) -> list[tuple[int, list[float]]]:
        self.advance()
        rows, row, line = list[tuple[int, list[float]]](), list[float](), 0
        while True:
            token = self.advance()
            if token.kind == "number":
                line = line if row else token.line
                row.append(_number(token.text))
            elif token.kind in (";", "newline", "]"):
                if row:
                    rows.append((line, row))
                    row = []
                if token.kind == "]":
                    return rows
            elif token.kind != ",":
                self.fail("a number, ';' or ']'", token)

    # --- changes of units ---

    def columns_named(self, start: Token) -> None:
        """`[PQ, PV, ...] = idx_bus`: each name is the number in its place."""
        names = list[str]()
        while self.token.kind in ("name", ","):
            token = self.advance()
            names += [token.text] if token.kind == "name" else []
        if self.token.kind != "]":
            self.fail(f"{self.struct}.FIELD = {_EXPECTED}", start)
        self.advance()
        self.expect("=", "'=' after the names of columns")
        function = self.expect("name", f"one of {', '.join(_INDICES)}")
        indices = _INDICES.get(function.text, ())
        if not 0 < len(names) <= len(indices):
            self.fail(f"one of {', '.join(_INDICES)}, with at most as many names as it returns", function)
        self.names |= zip(names, map(float, indices), strict=False)
        self.end_of_statement(function.text)

    def conversion(self, name: str) -> None:
        """`mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3`: whole columns of one matrix, times or by a number."""
        rows, start = self.rows(name), self.token
        to = self.columns(name)
        self.expect("=", f"'=' after columns of {self.struct}.{name}")
        for kind, text in (("name", self.struct), (".", "."), ("name", name)):
            if self.token.kind != kind or self.token.text != text:
                self.fail(f"columns of {self.struct}.{name} themselves, times or divided by a number")
            self.advance()
        source = self.columns(name)
        if len(source) != len(to):
            self.fail(f"as many columns on both sides, {len(to)}", start)
        if self.token.kind not in ("*", "/"):
            self.fail("'*' or '/' and a number")
        while self.token.kind in ("*", "/"):
            sign, factor = self.advance(), self.finite(self.power)
            if sign.kind == "/" and not factor:
                self.fail("a divisor other than 0", sign)
            for line, row in rows:
                if len(row) <= max(*source, *to):
                    self.fail(f"columns that the row of line {line} has", start)
                values = [row[k] for k in source]
                for k, value in zip(to, values, strict=True):
                    row[k] = value * factor if sign.kind == "*" else value / factor
            source = to
        self.end_of_statement(f"{self.struct}.{name}(...)")

    def rows(self, name: str) -> list[tuple[int, list[float]]]:
        rows = self.values[name].rows if name in self.values else None
        if rows is None:
            self.fail(f"a matrix {self.struct}.{name} before its columns are used")
        return rows

    def columns(self, name: str) -> list[int]:
        """`(:, [PD, QD])` or `(:, PD)`, counted from 0."""
        form = f"{self.struct}.{name}(:, COLUMNS)"
        for kind in ("(", ":", ","):
            self.expect(kind, form)
        columns = list[int]()
        if self.token.kind == "[":
            self.advance()
            while self.token.kind != "]":
                columns.append(self.place(form))
                if self.token.kind == ",":
                    self.advance()
            self.advance()
        else:
            columns.append(self.place(form))
        self.expect(")", form)
        if not columns or len(set(columns)) != len(columns):
            self.fail("each column once")
        return columns

    def place(self, form: str) -> int:
        """A row or a column, counted from 0."""
        start = self.token
        value = self.names.get(start.text) if start.kind == "name" else None
        if start.kind in ("number", "digits"):
            value = _number(start.text)
        if value is None or value not in range(1, 2**31):
            self.fail(f"a row or a column by number or by name in {form}")
        self.advance()
        return int(value) - 1

    def number(self) -> float:
        """An expression to the end of its statement."""
        return self.finite(self.sum)

    def finite(self, expression: Callable[[int], np.float64]) -> float:
        start = self.token
        with np.errstate(all="ignore"):
            value = expression(0)
        if not np.isfinite(value):
            self.fail("an expression with a finite value", start)
        return float(value)

    def sum(self, depth: int) -> np.float64:
        value = self.product(depth)
        while self.token.kind in ("+", "-"):
            sign, other = self.advance().kind, self.product(depth)
            value = value + other if sign == "+" else value - other
        return value

    def product(self, depth: int) -> np.float64:
        value = self.power(depth)
        while self.token.kind in ("*", "/"):
            sign, other = self.advance().kind, self.power(depth)
            value = value * other if sign == "*" else value / other
        return value

    def power(self, depth: int) -> np.float64:
        value = self.atom(depth)
        while self.token.kind == "^":
            self.advance()
            value = value ** self.atom(depth)
        return value

    def atom(self, depth: int) -> np.float64:
        """A number, a name, baseMVA, one entry of a matrix, a function's value, or a bracket."""
        token = self.advance()
        if depth > _DEEPEST:
            self.fail(f"at most {_DEEPEST} brackets within brackets", token)
        if token.kind in ("number", "digits"):
            return np.float64(_number(token.text))
        if token.kind == "(" or (token.kind == "name" and token.text in _FUNCTIONS):
            if token.kind == "name":
                self.expect("(", f"a bracket after {token.text}")
            value = self.sum(depth + 1)
            self.expect(")", "a closing bracket")
            return value if token.kind == "(" else _FUNCTIONS[token.text](value)
        if token.kind == "name" and token.text == self.struct and self.token.kind == ".":
            self.advance()
            return np.float64(self.entry(self.expect("name", f"a field name after {self.struct}.")))
        if token.kind == "name" and token.text in self.names:
            return np.float64(self.names[token.text])
        self.fail("a number, a name that has a value by now, or a bracket", token)

    def entry(self, field: Token) -> float:
        """`mpc.baseMVA` or `mpc.bus(1, BASE_KV)`."""
        if field.text == "baseMVA" and "baseMVA" in self.values:
            scalar = self.values["baseMVA"].scalar
            if isinstance(scalar, float):
                return scalar
        if field.text not in _CONVERTED:
            self.fail(f"{self.struct}.baseMVA or one entry of {self.struct}.bus or {self.struct}.branch", field)
        rows, form = self.rows(field.text), f"{self.struct}.{field.text}(ROW, COLUMN)"
        self.expect("(", form)
        row = self.place(form)
        self.expect(",", form)
        column = self.place(form)
        self.expect(")", form)
        if row >= len(rows) or column >= len(rows[row][1]):
            self.fail(f"a row and a column of {self.struct}.{field.text}", field)
        return rows[row][1][column]


def _number(text: str) -> float:
    return float(text.lower().replace("d", "e"))
