"""What all benchmarks say figures with, and the bare messages and writes that they stand beside."""
