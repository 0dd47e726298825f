"""Runs of many seeds from machines and gates alone: no ledger, no message, no process.

For tuning and studies, never for devices.

`batch.rollout` is what planner, league and studies share. `machines` steps the machines of one run, `side_by_side` has
the gate whose answers are those of many seeds. `compiled` has whole runs of three methods in compiled loops.
"""
