"""RECAL and its rivals under noise: one footing for the tables and figures of its paper."""
