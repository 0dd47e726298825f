"""A device with a budget that renews, what befalls it over years, and what an adversary then holds of each instant."""

from __future__ import annotations

import shutil
from functools import reduce

from hypothesis import strategies as st

from hushgrid.kernels.errors import Refused
from hushgrid.kernels.privacy.limits import Charge, charge_of, limit
from tests.support.devices.gated_device import Device, plan
from tests.support.devices.ledgers import killed

DELTA = 1e-5
DECADE = 10 * 365 * 86400.0


class Clock:
    """Running time that a test lets pass, s."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class History:
    """One device through restarts, crashes, old copies, clocks that jump and new data. `seen`: what left it.

    `seen` holds (time, version, event) of each answer: the time that this device has really run, of which its ledger
    may know less, and the version of the data that was really answered about.
    """

    def __init__(self, folder, cap):
        self.folder, self.cap, self.clock = folder, cap, Clock(1e6)
        self.folders = self.runs = 0
        self.copy = None
        self.seen = []
        self.refused = []
        self.mislabelled = []  #: answers that the ledger has as of another version
        self.year = "2026"
        self.at = self._folder()
        self._start()

    # --- what can befall it ---

    def wait(self, seconds):
        self.clock.pass_(seconds)

    def jump(self, seconds):
        """The wall clock is set; the time that the device has run is another clock."""
        self.year = str(1970 if seconds < 0 else 2036)
        self.device.ledger.now = lambda: f"{self.year}-01-01T00:00:00Z"

    def new_data(self):
        self.device.ledger.new_data()

    def restart(self):
        self.device.ledger.close()
        self._start()

    def crash(self):
        """The files as they are, without an orderly end."""
        before, self.at = self.at, self._folder()
        self._copy(before, self.at)
        killed(self.device.ledger)
        self._start()

    def back_up(self):
        self.copy = self._folder()
        self._copy(self.at, self.copy)

    def replace(self):
        """An old copy takes the ledger's place; the mark on another disk is as it was, and the owner accepts."""
        if self.copy is None:
            return
        self.device.ledger.close()
        self.at = self._folder()
        self._copy(self.copy, self.at)
        self._start()
        if self.device.ledger.refusal:
            self.device.ledger.accept()

    def ask(self, mechanism, epsilon, rounds, answers, pause, consented, new_data_at):
        """A run of `rounds` answers in all, of which the coordinator asks for `answers`; without `consented` for more.

        After answer `new_data_at` the data are declared new; the run goes on with those it began with.
        """
        device = self.device
        privacy = {"mechanism": mechanism, "epsilon": epsilon}
        privacy |= {"accountant": "gdp", "delta": DELTA} if mechanism == "gaussian" else {}
        wanted, version = plan(rounds=rounds, **privacy), device.ledger.data_version
        self.runs += 1
        device.run = b"run%13d" % self.runs
        try:
            gate = device.gate(wanted)
            if consented:
                gate.authority.admit(rounds)
            device.ledger.join(device.run, b"plan")
            for k in range(answers):
                device.answer(gate, 1)
                spends = [s for s in device.ledger.spends(device.run) if s.answer == k + 1]
                self.seen += [(self.clock.now, version, charge_of(device.event(s))) for s in spends]
                self.clock.pass_(pause)
                if k == new_data_at:
                    device.ledger.new_data()
                if any(s.version != version for s in spends):
                    self.mislabelled.append((device.run, k))
        except Refused as error:
            self.refused.append(error.refused_by)

    # --- what must hold ---

    def above(self):
        """Where the budget is passed, in words; empty if nowhere."""
        cap, span = limit(self.cap.epsilon, self.cap.delta or 0.0), self.cap.span
        first, within = 0, Charge()
        wrong = [f"answer {k} of {run!r} has another version" for run, k in self.mislabelled]
        for now, _, charge in self.seen:
            within = within.plus(charge)
            while self.seen[first][0] < now - span:
                within, first = within.plus(self.seen[first][2], -1), first + 1
            if not cap.holds(within):
                wrong.append(f"the window that ends at {now} holds epsilon {cap.spent(within):g}")
        versions = {}
        for _, version, charge in self.seen:
            versions[version] = versions.get(version, Charge()).plus(charge)
        wrong += [
            f"data version {v} has told epsilon {cap.spent(c):g}" for v, c in versions.items() if not cap.holds(c)
        ]
        life = reduce(Charge.plus, (charge for _, _, charge in self.seen), Charge())
        if self.cap.lifetime and not limit(self.cap.lifetime, self.cap.delta or 0.0).holds(life):
            wrong.append(f"its life has told epsilon {cap.spent(life):g}")
        return wrong

    # --- inside ---

    def _folder(self):
        self.folders += 1
        folder = self.folder / str(self.folders)
        folder.mkdir()
        return folder

    def _start(self):
        runs = self.device.runs if hasattr(self, "device") else 0
        self.device = Device(self.at, self.cap, mark=self.folder / "mark", clock=self.clock)
        self.device.runs = runs

    @staticmethod
    def _copy(source, target):
        for name in ("n0.ledger", "n0.ledger-wal", "n0.ledger-log"):
            if (source / name).exists():
                shutil.copy(source / name, target)

    def close(self):
        self.device.ledger.close()


#: Lengths that meet a window of 1000 s at its ends, within it, and beyond it.
PAUSES = st.sampled_from([0.0, 0.5, 1.0, 250.0, 499.5, 500.0, 999.0, 1000.0, 1000.5, 3000.0]) | st.floats(0, 1500)
ASKED = st.tuples(
    st.just("ask"),
    st.sampled_from(["laplace", "gaussian"]),
    st.sampled_from([0.1, 0.5, 1.0, 1.9, 2.0]),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.0, 1.0, 300.0]),
    st.booleans(),
    st.sampled_from([-1, -1, 0, 1]),
)
EVENTS = st.one_of(
    ASKED,
    ASKED,
    st.tuples(st.just("wait"), PAUSES),
    st.sampled_from([("new_data",), ("new_data",), ("restart",), ("crash",), ("back_up",), ("replace",)]),
    st.sampled_from([("jump", DECADE), ("jump", -DECADE)]),
)
HISTORIES = st.lists(EVENTS, min_size=2, max_size=25)


def lived(folder, cap, events):
    """A device after these events."""
    history = History(folder, cap)
    for name, *values in events:
        getattr(history, name)(*values)
    history.close()
    return history
