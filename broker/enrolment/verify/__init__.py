"""Tries a fleet's access lists at its broker, as each identity, and says what arrived that must not, and what lacks."""
