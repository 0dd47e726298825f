"""What `hushgrid init` may ask: each question is an option too, and asked on a terminal only if it was not given."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from math import isfinite
from typing import NamedTuple, TypeVar

from hushgrid.kernels.errors import InputError

T = TypeVar("T")
KINDS = ("least-squares", "logistic", "softmax")
NETWORKS = ("ring", "path", "star", "complete", "grid")


class Question(NamedTuple):
    value: str  #: what stands for the answer in --help
    text: str  #: what is asked


#: Everything that may be asked, in the order of --help; a key is the option's name.
QUESTIONS = {
    "name": Question("NAME", "name of the run"),
    "kind": Question("KIND", f"what the labels are: {', '.join(KINDS)}"),
    "label": Question("COLUMN", "column of the labels, by name or number (from 0, or from the end)"),
    "classes": Question("C", "number of classes, labels 0 to C - 1 (softmax)"),
    "low": Question("B", "smallest label that is public knowledge (least-squares, a device)"),
    "high": Question("B", "largest label that is public knowledge (least-squares, a device)"),
    "nodes": Question("N", "number of nodes that share the rows"),
    "network": Question("KIND", f"graph of the nodes: {', '.join(NETWORKS)}"),
    "zones": Question("N", "number of zones that the case is cut into"),
    "rounds": Question("N", "number of rounds, or of activations of the token"),
    "epsilon": Question("E", "total epsilon of each node over the run; for a device: over the life of its ledger"),
    "delta": Question("D", "total delta (rows)"),
    "change": Question("P.U.", "change of one load, p or q of one bus, that is hidden, p.u. (power flow)"),
    "node": Question("NAME", "name of the device's node: n0, n1, ... or z1, z2, ..."),
    "fleet": Question("NAME", "name of the fleet"),
    "broker": Question("URL", "mqtt://host:port or mqtts://host:port"),
    "certs": Question("DIR", "folder of ca.crt, NAME.crt and NAME.key (mqtts)"),
    "case": Question("CASE", "the public network: a built-in case or a MATPOWER file (a zone's device)"),
    "per-run": Question("E", "the most epsilon that one run may cost (a device)"),
}


class Asked:
    """The answers: an option's, else one from the terminal, else the default.
    Raises InputError if there is none of these.
    """

    def __init__(
        self, options: dict[str, str | None], terminal: bool | None = None, read: Callable[[str], str] = input
    ) -> None:
        self.options, self.read = options, read
        self.terminal = sys.stdin.isatty() and sys.stderr.isatty() if terminal is None else terminal

    def __call__(self, name: str, parse: Callable[[str], T], default: str | None = None) -> T:
        question, answered = QUESTIONS[name], self.options[name]
        wanted = f"expected --{name} {question.value}: {question.text}"
        if answered is None and not self.terminal:
            if default is None:
                raise InputError(f"init: found no --{name} and no terminal to ask, {wanted}")
            answered = default
        while answered is None:
            try:
                if answer := self.read(f"{question.text}{f' [{default}]' if default else ''}: ").strip() or default:
                    return parse(answer)
            except EOFError:
                raise InputError(f"init: found no answer, {wanted}") from None
            except InputError as error:
                print(error, file=sys.stderr)
        try:
            return parse(answered)
        except InputError as error:
            raise InputError(f"--{name}: {error}") from None


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise InputError(f"found {text!r:.40}, expected one of {', '.join(choices)}")
        return text

    return parse


def text(answer: str) -> str:
    if not answer or not answer.isprintable():
        raise InputError(f"found {answer!r:.40}, expected text")
    return answer


def count(answer: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", answer) or int(answer) < 1:
        raise InputError(f"found {answer!r:.40}, expected a whole number, at least 1")
    return int(answer)


def number(answer: str) -> float:
    try:
        value = float(answer)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InputError(f"found {answer!r:.40}, expected a number")
    return value


def column(answer: str) -> str | int:
    return int(answer) if re.fullmatch("-?[0-9]{1,9}", answer) else text(answer)
