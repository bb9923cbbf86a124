"""What a model takes and carries on a card, before anything is started: ``brimful plan``."""
