"""Benchmarks of speed and quality, compared with lower bounds and with other libraries."""
