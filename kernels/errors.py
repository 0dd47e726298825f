"""The three ways a command ends badly through no defect of ours. Each prints as one line."""


class HushgridError(Exception):
    """Base of every expected failure; `exit_code` is what the command line returns, `kind` its word between processes."""

    exit_code = 1
    kind = "stopped"

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


class InputError(HushgridError):
    """The input is wrong: says the file, the key path, what was found and what was expected."""

    exit_code = 2
    kind = "input"


class Refused(HushgridError):
    """A device refuses: its budget or its owner's `allow` would be passed, or its ledger is behind its mark."""

    exit_code = 3
    kind = "refused"


class Stopped(HushgridError):
    """Stopped without finishing: who is missing, since when; or a broker that is not there."""

    exit_code = 4


def failure(kind: str, reason: str) -> HushgridError:
    """The failure another process has told of; a kind it does not know has stopped it."""
    return next((e for e in (InputError, Refused) if e.kind == kind), Stopped)(reason)
