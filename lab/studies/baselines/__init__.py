"""Rivals of the papers that exist in simulation only: whole runs, without a gate and without messages."""
