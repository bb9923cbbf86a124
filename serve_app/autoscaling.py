"""How many replicas: Ray Serve's autoscaling policy, by demand and SLA capacity.

Ray Serve runs it inside its own controller about ten times a second and pickles this module by
value, to a process that may not have this project. Its own imports are pickled by value
as well, and need only the standard library. It never blocks and never raises there.
"""

import logging
import math
import sys
from typing import Any

from ray import cloudpickle

from serve_app.scaling.decide import Scaler
from serve_app.scaling.reading import Ages, number, read_fleet, time_of
from serve_app.scaling.reasons import Decision
from serve_app.scaling_export import ScalingExport

# All that `decide` imports of its own package.
for _name in [name for name in sys.modules if name.startswith("serve_app.scaling.")]:
    cloudpickle.register_pickle_by_value(sys.modules[_name])

REASON, WORDS = "brimful_reason", "brimful_words"  # in the policy's state, with ...
DESIRED = "brimful_desired"
PERIOD_S = 1.0  # metrics arrive every second or two, and Ray Serve computes them when they are read

logger = logging.getLogger("ray.serve")


class CapacityPolicy:
    """Ray Serve instantiates it once with the ``scaling`` block and calls it with its context.

    ``serve_app.scaling.decide`` decides, once a second. Ray Serve then applies its delays, factors
    and bounds; its factors change by how much the number goes up or down, and never a number that
    is to stay (``_through_factors``). Any error here leaves the number of replicas as it
    is, and is logged once.
    """

    def __init__(self, **scaling: float) -> None:
        self._scaler = Scaler(**scaling)
        self._ages = Ages()
        self._export = ScalingExport()
        self._last: tuple[float, tuple[Any, Any], Decision] | None = None
        self._complaint: str | None = None

    def __call__(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        """``(desired replicas, state)`` from an ``AutoscalingContext``.

        The number is a fraction only if Ray Serve's factors must turn it into the wanted number,
        which ``state`` has.
        """
        try:
            decision = self._decide(ctx)
        except Exception as error:
            self._complain(error, "Autoscaling leaves the number of replicas as it is.")
            return _through_factors(_as_it_is(ctx), ctx), {}
        state = {DESIRED: decision.desired, REASON: decision.reason, WORDS: decision.words}
        return _through_factors(decision.desired, ctx), state

    def _decide(self, ctx: Any) -> Decision:
        now_s = time_of(ctx)
        replicas = ctx.current_num_replicas, ctx.target_num_replicas
        if self._last is not None:
            decided_s, of, decision = self._last
            if of == replicas and 0 <= now_s - decided_s < PERIOD_S:
                return decision
        before = self._last[2] if self._last else None
        decision = self._scaler.decide(read_fleet(ctx, self._ages))
        self._last = now_s, replicas, decision
        self._log(before, decision)
        try:
            self._export.tell(ctx, decision, now_s)
        except Exception as error:  # the decision holds all the same
            self._complain(error, "Autoscaling decides, but cannot publish its decisions.")
        return decision

    def _log(self, before: Decision | None, now: Decision) -> None:
        out = "out_of_reach"
        was_out, is_out = before is not None and before.reason == out, now.reason == out
        if is_out and not was_out:
            logger.warning("Autoscaling stays at %d replicas: %s.", now.desired, now.words)
        elif was_out and not is_out:
            logger.info("The SLA is in reach again; replicas follow the load again.")
        elif before is None or now.desired != before.desired:
            logger.info("Autoscaling to %d replicas: %s.", now.desired, now.words)

    def _complain(self, error: Exception, line: str) -> None:
        complaint = f"{line} {type(error).__name__}"
        if complaint != self._complaint:
            logger.error(line, exc_info=error)
        self._complaint = complaint


def _as_it_is(ctx: Any) -> int:
    """The target number of replicas, from any place that has it."""
    for name in ("target_num_replicas", "current_num_replicas", "capacity_adjusted_min_replicas"):
        try:
            known = number(getattr(ctx, name, None))
        except Exception:  # Ray Serve computes some when they are read
            continue
        if known is not None:
            return int(known)
    return 1


def _through_factors(desired: int, ctx: Any) -> float:
    """The number that Ray Serve's factors turn into one on the same side of the target.

    Ray Serve multiplies what is missing to the running replicas, not to the number that was asked
    for (``_apply_scaling_factors`` in its ``autoscaling_policy``). So while some start, a factor
    above 1 would raise a number that should stay, ten times a second, up to
    ``max_replicas``; and one below 1 would call off starts that are still needed.
    """
    try:
        target, current = int(ctx.target_num_replicas), int(ctx.current_num_replicas)
        up, down = ctx.config.get_upscaling_factor(), ctx.config.get_downscaling_factor()
        if current <= 0 or up == down == 1:
            return desired
        made = math.ceil(current + (up if desired > current else down) * (desired - current))
        within = max(made, target) if desired > target else target
        within = min(made, target) if desired < target else within
        if within == made:
            return desired
        # Half a replica less, so that no rounding lifts it over the target.
        missing = target - 0.5 - current
        return current + missing / (up if target > current else down)
    except Exception:  # the context has no configuration, or another kind
        return desired
