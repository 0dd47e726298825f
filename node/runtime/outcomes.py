"""What a run leaves on its device: owed from the moment it is done until it is on the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from hushgrid.kernels.errors import InputError, Refused, Stopped
from hushgrid.kernels.machine import Keeping
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_rows import StoredRun
from hushgrid.node.problems.kind import Outcome, RunFacts
from hushgrid.node.problems.plan import RunPlan, decode_plan
from hushgrid.node.runtime.driver import Driver
from hushgrid.node.wire import Finish

OWED = "its outcome was owed"


class Outcomes:
    """Writes the outcomes of a device's runs. `age`: s of running time since its data of now were read, if known."""

    def __init__(
        self, ledger: Ledger, outcome: Outcome, log: Callable[[str], None], age: Callable[[], float | None]
    ) -> None:
        self.ledger, self.outcome, self.log, self.age = ledger, outcome, log, age

    def keep(self, driver: Driver, plan: RunPlan, finish: Finish | None = None) -> None:
        """Writes the outcome of a run that is done. Raises Stopped if the disk does not take it: it is still owed.

        `finish`: the coordinator's farewell, if it is at hand.
        """
        run, gate = driver.run.hex(), driver.gate
        version = self.ledger.data_version if gate is None or gate.version is None else gate.version
        facts = RunFacts(
            run=run,
            name=plan.name,
            reason=finish.reason if finish else OWED,
            every=plan.every,
            residual=finish.residual if finish else None,
            quality=finish.quality or None if finish else None,
            version=version,
            age=self.age() if version == self.ledger.data_version else None,
            problem=plan.problem,
        )
        try:
            remark = self.outcome(cast(Keeping, driver.machine).outcome(), facts)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise Stopped(
                f"{driver.node}: {where}{error.strerror or error}, expected to write the outcome of run {run[:8]}: it "
                "is owed, the next start writes it"
            ) from None
        if remark:
            self.log(remark)
        self.ledger.commit(driver.run, status="done")

    def settle(self, stored: StoredRun, remade: Callable[[bytes, RunPlan], Driver]) -> None:
        """Writes the outcome of a run now, because the process ended before it could; from the state in the ledger.

        `remade` returns the driver of a stored run. It raises InputError or Refused if the device no longer agrees.
        """
        run = stored.id.hex()[:8]
        try:
            plan = decode_plan(stored.plan)
            driver = remade(stored.id, plan)
        except (InputError, Refused) as error:
            self.log(f"run {run}: its outcome is not written: {error}")
            self.ledger.commit(stored.id, status="done")
            return
        self.keep(driver, plan)
        self.log(f"run {run}: {OWED}, and is written")
