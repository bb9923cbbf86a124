"""``brimful apply``."""
