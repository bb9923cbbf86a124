"""A model's needs and a card's capacity, from a config.json: no weights, no engine."""
