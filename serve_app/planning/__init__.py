"""What a model needs and what a card gives, from a config.json: no weights, no engine."""
