"""How many examples: ``HYPOTHESIS_PROFILE`` is ``default``, ``thorough`` or ``mutants``."""

import os

from hypothesis import HealthCheck, settings

for name, max_examples in (("default", 300), ("thorough", 3000), ("mutants", 10)):
    # No bound on wall-clock time: the machine may be busy with other things.
    settings.register_profile(
        name,
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=name == "mutants",  # or the same mutant would be killed now and then
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
