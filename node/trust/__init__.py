"""Edges that the broker cannot forge (docs/trust.md). Nothing but a fleet with `trust:` imports this."""
