"""The three ways a command ends badly through no defect of ours. Each prints as one line."""


class HushgridError(Exception):
    """Base of every expected failure; `exit_code` is what the command line returns."""

    exit_code = 1

    def __str__(self) -> str:
        return " ".join(super().__str__().split())


class InputError(HushgridError):
    """The input is wrong: says the file, the key path, what was found and what was expected."""

    exit_code = 2


class Refused(HushgridError):
    """A device refuses: its budget or its owner's `allow` would be passed, or its ledger is behind its mark."""

    exit_code = 3


class Stopped(HushgridError):
    """Stopped without finishing: who is missing, since when; or a broker that is not there."""

    exit_code = 4
