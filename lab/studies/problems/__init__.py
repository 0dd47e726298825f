"""The problems of the papers' experiments, rebuilt."""
