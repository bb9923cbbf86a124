"""How many requests KV memory holds: equations 8 to 14 of arXiv 2503.05248.

Everywhere: eta is KV memory, in the unit of a request's mean and variance of length (tokens, or
blocks and blocks^2); theta is the normal quantile of 1 - epsilon_M.
"""

import math
from statistics import NormalDist


def theta(epsilon_m: float) -> float:
    """theta = Theta^-1(1 - epsilon_M), below eq. 11."""
    return NormalDist().inv_cdf(1 - epsilon_m)


def exact_batch(eta: float, mean: float, variance: float, theta_: float) -> int:
    """The largest whole b with P(S > eta) <= epsilon_M: eq. 12.

    The paper writes it with mu_S and sigma_S, which depend on b; solved for b, it reads
    b m + theta s sqrt(b) <= eta with the mean m and the deviation s of one request.
    """
    s = math.sqrt(variance)
    root = (math.sqrt((s * theta_) ** 2 + 4 * mean * eta) - s * theta_) / (2 * mean)
    b = math.floor(root**2)
    # The square of a root may be just below a whole number.
    one_more_fits = (b + 1) * mean + theta_ * s * math.sqrt(b + 1) <= eta
    return b + 1 if one_more_fits else b


def printed_buffer(b: float, eta: float, mean: float, variance: float, theta_: float) -> float:
    """L0 = eta - (theta sigma_S + mu_S) at batch size b: Algorithm 1, line 1, as printed.

    In eq. 14 it gives b + theta s sqrt(b) / m whatever eta is: with this buffer the batch grows to
    B_max. It is kept as printed; ``safety_buffer`` is the other reading.
    """
    return eta - (theta_ * math.sqrt(b * variance) + b * mean)


def safety_buffer(b: float, variance: float, theta_: float) -> float:
    """L0 = theta s sqrt(b): the headroom that eq. 13 needs for P(S > eta) <= epsilon_M."""
    return theta_ * math.sqrt(b * variance)


def linear_batch(eta: float, l0: float, mean: float) -> int:
    """b <= (eta - L0) / (E[l_in] + E[l_out]): eq. 14 and Algorithm 1, line 5."""
    return math.floor((eta - l0) / mean)


def published_batch(total_blocks: float, used_blocks: float, running: int, factor: float) -> int:
    """The authors' published code: blocks x factor / (blocks per running request)."""
    return math.floor(total_blocks * factor / (used_blocks / running))
