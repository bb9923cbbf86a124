"""Which draws are published, and which are there to choose settings by."""

FIRST_SEED = 101  # 0 to 100 are for development
PILOT_SEED = 100  # settings of the baselines are chosen on it
