"""Bursts of long answers, and short answers that turn long: ``make bench-bursts``."""
