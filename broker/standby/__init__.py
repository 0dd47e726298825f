"""A second coordinator that waits for the death of the first, and goes on with its run."""
