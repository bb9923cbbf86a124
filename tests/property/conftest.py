from hypothesis import HealthCheck, settings

# No bound on wall-clock time: the machine may be busy with other things.
settings.register_profile(
    "property", deadline=None, max_examples=3000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("property")
