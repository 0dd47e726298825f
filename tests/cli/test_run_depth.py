"""From the command line to the update of the method, a reader follows few calls through few files."""

import sys

import pytest

from hushgrid.cli.main import main
from hushgrid.kernels.algorithms import consensus_admm

pytestmark = pytest.mark.runs


FRAMES = 14  #: from `cli.main.main` to the update, both counted
FILES = 8


def test_the_update_of_a_run_is_fourteen_calls_from_the_command_line(monkeypatch, tmp_path):
    stacks = {}

    def counted(cls, name):
        update = getattr(cls, name)

        def wrapper(*arguments):
            frame, files = sys._getframe(1), [update.__code__.co_filename]
            while frame.f_code is not test_code:
                files.append(frame.f_code.co_filename)
                frame = frame.f_back
            stacks.setdefault(name, files)
            return update(*arguments)

        monkeypatch.setattr(cls, name, wrapper)

    test_code = sys._getframe().f_code
    counted(consensus_admm.Agent, "update")
    counted(consensus_admm.Server, "advance")
    assert (
        main(
            [
                "run",
                "case14",
                "--quiet",
                "--out",
                str(tmp_path / "run"),
                "--set",
                "algorithm.rounds=2",
                "--set",
                "problem.ac=none",
            ]
        )
        == 0
    )
    assert {name: len(files) <= FRAMES for name, files in stacks.items()} == {"update": True, "advance": True}
    assert all(len(set(files)) <= FILES for files in stacks.values())
