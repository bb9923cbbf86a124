"""``brimful serve``: from a model's name to its first token, in one command."""
