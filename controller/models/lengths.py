"""Moments of the lengths of finished requests: E, Var and Cov of l_in and l_out (paper, II-A)."""

from collections import deque
from dataclasses import astuple, dataclass
from typing import Self

REQUESTS_KEPT = 1024  # finished requests remembered: a minute or so of one replica's traffic


@dataclass(frozen=True, slots=True)
class LengthMoments:
    """Sums over ``n`` finished requests, tokens and tokens^2; sums of two groups add up.

    Args:
        cached: tokens of ``input`` that the prefix cache held at the start.
    """

    n: int = 0
    input: int = 0
    output: int = 0
    input_sq: int = 0
    output_sq: int = 0
    cross: int = 0
    cached: int = 0

    def __add__(self, other: Self) -> "LengthMoments":
        return LengthMoments(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def mean_input(self) -> float:
        """E[l_in], tokens; 0 if nothing finished."""
        return self.input / self.n if self.n else 0.0

    @property
    def mean_output(self) -> float:
        """E[l_out], tokens; 0 if nothing finished."""
        return self.output / self.n if self.n else 0.0

    @property
    def computed_frac(self) -> float:
        """The share of prompt tokens that were computed; 1 if nothing finished."""
        return 1 - self.cached / self.input if self.input else 1.0

    @property
    def mean_computed(self) -> float:
        """E[l_in] without cached tokens; 0 if nothing finished."""
        return (self.input - self.cached) / self.n if self.n else 0.0

    @property
    def mean_total(self) -> float:
        """E[l_in] + E[l_out], tokens: the paper's footprint of a request (eq. 8)."""
        return self.mean_input + self.mean_output

    @property
    def variance_total(self) -> float:
        """Var(l_in) + Var(l_out), tokens^2 (eq. 9, which assumes independence)."""
        if not self.n:
            return 0.0
        var_in = self.input_sq / self.n - self.mean_input**2
        var_out = self.output_sq / self.n - self.mean_output**2
        return max(var_in, 0.0) + max(var_out, 0.0)

    @property
    def variance_held(self) -> float:
        """Variance of the tokens that a running request holds, tokens^2, at a uniform age.

        A request of lengths i and o is observed in proportion to o and holds i + o/2 on average,
        with the variance o^2/12. The spread of i + o/2 over requests is unweighted, as weights
        would need third moments.
        """
        if not self.n:
            return 0.0
        mean_in, mean_out = self.mean_input, self.mean_output
        var_in = max(self.input_sq / self.n - mean_in**2, 0.0)
        var_out = max(self.output_sq / self.n - mean_out**2, 0.0)
        cov = self.cross / self.n - mean_in * mean_out
        return max(var_in + var_out / 4 + cov, 0.0) + self.output_sq / self.n / 12

    @property
    def mean_held(self) -> float:
        """Mean tokens that a running request holds: time-weighted, not eq. 8's.

        A request is observed in proportion to its output length and holds its input plus half of
        its output on average: E[in] + Cov(in, out)/E[out] + E[out](1 + CV^2)/2.
        """
        if not self.output:
            return self.mean_input
        return (self.cross + self.output_sq / 2) / self.output


class LengthRing:
    """Lengths of the last ``size`` requests, with running moments.

    Requests are finished ones, or arriving prompts, whose outputs count as 0.
    """

    def __init__(self, size: int = REQUESTS_KEPT) -> None:
        self._lengths: deque[tuple[int, int, int]] = deque()
        self._new: deque[tuple[int, int, int]] = deque(maxlen=size)  # not in the sums yet
        self._size = size
        self._sums = [0] * 7

    def add(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
        self._new.append((input_tokens, output_tokens, cached_tokens))

    def _count(self, i: int, o: int, cached: int, sign: int) -> None:
        for k, value in enumerate((1, i, o, i * i, o * o, i * o, cached)):
            self._sums[k] += sign * value

    def moments(self) -> LengthMoments:
        for one in self._new:
            if len(self._lengths) == self._size:
                self._count(*self._lengths.popleft(), -1)
            self._lengths.append(one)
            self._count(*one, +1)
        self._new.clear()
        return LengthMoments(*self._sums)
