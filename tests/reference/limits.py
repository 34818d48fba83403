"""Limits and their text form: `[algorithm] COUNT/PERIOD [burst N]`, joined by ` + `."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

TOKEN_BUCKET = "token-bucket"
SLIDING_WINDOW = "sliding-window"
SLIDING_WINDOW_COUNTER = "sliding-window-counter"
FIXED_WINDOW = "fixed-window"
ALGORITHMS = (TOKEN_BUCKET, SLIDING_WINDOW, SLIDING_WINDOW_COUNTER, FIXED_WINDOW)

# Lua numbers are doubles: the largest integer below which every integer is exact.
MAX_EXACT = 2**53 - 1
TICKS_US = (1, 10, 100, 1000)
MAX_LIMITS = 4

MILLISECOND = 1_000
SECOND = 1_000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_PERIOD = 36_500 * DAY

UNITS: dict[str, int] = {
    "ms": MILLISECOND,
    "s": SECOND,
    "sec": SECOND,
    "secs": SECOND,
    "second": SECOND,
    "seconds": SECOND,
    "min": MINUTE,
    "mins": MINUTE,
    "minute": MINUTE,
    "minutes": MINUTE,
    "h": HOUR,
    "hour": HOUR,
    "hours": HOUR,
    "d": DAY,
    "day": DAY,
    "days": DAY,
}

# Only ASCII counts as a space, a letter or a digit: nobody means U+017F by "s".
SPACE = r"[ \t\r\n\f]"
ONE_LIMIT = re.compile(
    rf"{SPACE}*(?:(?P<algorithm>[a-z-]+){SPACE}*)?"
    rf"(?P<count>[0-9]+){SPACE}*/"
    rf"{SPACE}*(?P<periods>[0-9]+)?{SPACE}*(?P<unit>[a-z]+)"
    rf"(?:{SPACE}+burst{SPACE}*(?P<burst>[0-9]+))?{SPACE}*",
    re.ASCII | re.IGNORECASE,
)


class InvalidLimit(ValueError):
    """The Limit cannot be had, and the message says why."""


@dataclass(frozen=True)
class Limit:
    """One rule; it knows no key and no store."""

    algorithm: str
    count: int
    period_us: int
    burst: int | None
    tick_us: int

    @cached_property
    def capacity(self) -> int:
        return self.count if self.burst is None else self.burst

    @cached_property
    def period_ticks(self) -> int:
        return self.period_us // self.tick_us

    @cached_property
    def rate(self) -> Fraction:
        """Tokens per tick."""
        return Fraction(self.count, self.period_ticks)

    @cached_property
    def ticks_to_full(self) -> Fraction:
        return self.capacity / self.rate


def make_limit(
    algorithm: str, count: int, period_us: int, burst: int | None = None
) -> Limit:
    """The Limit of these numbers, or InvalidLimit."""
    if algorithm not in ALGORITHMS:
        raise InvalidLimit(f"unknown algorithm {algorithm!r}")
    if burst is not None and algorithm != TOKEN_BUCKET:
        raise InvalidLimit(f"burst belongs to token-bucket, not to {algorithm}")
    if count < 1:
        raise InvalidLimit("the count must be at least 1")
    if burst is not None and burst < 1:
        raise InvalidLimit("the burst must be at least 1")
    if period_us < MILLISECOND or period_us % MILLISECOND:
        raise InvalidLimit("the period must be whole milliseconds, at least one")
    if period_us > MAX_PERIOD:
        raise InvalidLimit("the period may be at most 36,500 days")
    if algorithm == TOKEN_BUCKET:
        burst = count if burst is None else burst
        if burst * period_us > MAX_PERIOD * count:
            raise InvalidLimit("the bucket would need more than 36,500 days to fill")
    for tick_us in TICKS_US:
        if fits(algorithm, count, period_us // tick_us, burst):
            return Limit(algorithm, count, period_us, burst, tick_us)
    raise InvalidLimit("the numbers are too large to be exact")


def fits(algorithm: str, count: int, period_ticks: int, burst: int | None) -> bool:
    """Whether every product stays exact with a period of so many ticks."""
    if algorithm == TOKEN_BUCKET:
        assert burst is not None
        rate = Fraction(count, period_ticks)
        token_units, tick_units = rate.denominator, rate.numerator
        return burst * token_units + tick_units <= MAX_EXACT
    if algorithm == SLIDING_WINDOW_COUNTER:
        return count * period_ticks <= MAX_EXACT
    return count <= MAX_EXACT


def parse_number(digits: str) -> int:
    """The number, refused early when it is so long that reading it would be the attack."""
    significant = digits.lstrip("0") or "0"
    if len(significant) > 30:
        raise InvalidLimit(f"a number of {len(significant)} digits is too large")
    return int(significant)


def parse_limit(text: str) -> Limit:
    match = ONE_LIMIT.fullmatch(text)
    if match is None:
        raise InvalidLimit(f"expected [algorithm] COUNT/PERIOD [burst N], got {text!r}")
    unit = match["unit"].lower()
    if unit == "m":
        raise InvalidLimit("'m' may be a minute or a month: write 'min'")
    if unit not in UNITS:
        raise InvalidLimit(f"unknown unit {unit!r}: use ms, s, min, h or d")
    return make_limit(
        algorithm=(match["algorithm"] or TOKEN_BUCKET).lower(),
        count=parse_number(match["count"]),
        period_us=parse_number(match["periods"] or "1") * UNITS[unit],
        burst=None if match["burst"] is None else parse_number(match["burst"]),
    )


def parse_limits(text: str) -> tuple[Limit, ...]:
    """The 1 to 4 Limits of the text, or InvalidLimit."""
    parts = text.split("+")
    if len(parts) > MAX_LIMITS:
        raise InvalidLimit(f"{len(parts)} limits, at most {MAX_LIMITS} are allowed")
    limits = tuple(parse_limit(part) for part in parts)
    if len({(limit.algorithm, limit.period_us) for limit in limits}) < len(limits):
        raise InvalidLimit("two limits have the same algorithm and period")
    return limits
