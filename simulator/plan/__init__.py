"""Sizing of a model on a card before anything is started: ``brimful plan``."""
