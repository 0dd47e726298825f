"""The ways a command ends badly through no defect of ours. Each prints as one line."""


class HushgridError(Exception):
    """Base of every expected failure; `exit_code` is what the command line returns, `kind` its word between
    processes.
    """

    exit_code = 1
    kind = "stopped"
    refused_by = ""  #: which of a device's rules refused, as one word

    def __str__(self) -> str:
        return printable(" ".join(super().__str__().split()))


class InputError(HushgridError):
    """The input is wrong: says the file, the key path, what was found and what was expected."""

    exit_code = 2
    kind = "input"
    refused_by = "plan"


class Refused(HushgridError):
    """A device refuses: its budget or its owner's `allow` would be passed, or its ledger is behind its mark."""

    exit_code = 3
    kind = "refused"

    def __init__(self, reason: str = "", by: str = "device") -> None:
        super().__init__(reason)
        self.refused_by = by


class Stopped(HushgridError):
    """Stopped without finishing: who is missing, since when; or a broker that is not there."""

    exit_code = 4


class Suspended(Stopped):
    """Stopped because somebody fell silent, or because it was told to end: the run can be gone on with."""

    kind = "suspended"


class Failed(Stopped):
    """A device's step failed, or its iterates left their bounds: the same plan, begun again, would cost again."""

    kind = "failed"


def printable(text: str, limit: int | None = None) -> str:
    """Text from elsewhere as one line: what a terminal or a log would take as a command is a "?", its end is
    cut off.
    """
    line = "".join(c if c.isprintable() else "?" for c in text)
    return line if limit is None or len(line) <= limit else line[: limit - 3] + "..."


def failure(kind: str, reason: str) -> HushgridError:
    """The failure another process has told of; a kind it does not know has stopped it."""
    return next((e for e in (InputError, Refused, Suspended, Failed) if e.kind == kind), Stopped)(reason)
