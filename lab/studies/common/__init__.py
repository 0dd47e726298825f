"""What studies share: agents without a gate, several processes, tables and charts."""
