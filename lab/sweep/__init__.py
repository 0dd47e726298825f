"""A scenario at every point of a grid, under the same seeds."""
