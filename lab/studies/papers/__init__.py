"""The papers' own figures and tables, repeated at totals that are counted: `hushgrid study NAME`."""
