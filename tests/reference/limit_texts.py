"""Texts of Limits that are accepted, with what they mean, and texts that are refused."""

from __future__ import annotations

from dataclasses import dataclass

from limits import (
    DAY,
    FIXED_WINDOW,
    HOUR,
    MILLISECOND,
    MINUTE,
    SECOND,
    SLIDING_WINDOW,
    SLIDING_WINDOW_COUNTER,
    TOKEN_BUCKET,
)

BIGGEST = 2**53 - 1


@dataclass(frozen=True)
class Meaning:
    algorithm: str
    count: int
    period_us: int
    burst: int | None


def bucket(count: int, period_us: int, burst: int | None = None) -> Meaning:
    return Meaning(TOKEN_BUCKET, count, period_us, burst or count)


def fixed(count: int, period_us: int) -> Meaning:
    return Meaning(FIXED_WINDOW, count, period_us, None)


def sliding(count: int, period_us: int) -> Meaning:
    return Meaning(SLIDING_WINDOW, count, period_us, None)


def counter(count: int, period_us: int) -> Meaning:
    return Meaning(SLIDING_WINDOW_COUNTER, count, period_us, None)


ACCEPTED: list[tuple[str, list[Meaning]]] = [
    ("100/min", [bucket(100, MINUTE)]),
    ("token-bucket 100/min burst 20", [bucket(100, MINUTE, 20)]),
    ("sliding-window 1000/h", [sliding(1000, HOUR)]),
    ("sliding-window-counter 10/15min", [counter(10, 15 * MINUTE)]),
    ("fixed-window 5000/d", [fixed(5000, DAY)]),
    ("10/s + 1000/h", [bucket(10, SECOND), bucket(1000, HOUR)]),
    # Units.
    ("5/ms", [bucket(5, MILLISECOND)]),
    ("5/s", [bucket(5, SECOND)]),
    ("5/sec", [bucket(5, SECOND)]),
    ("5/secs", [bucket(5, SECOND)]),
    ("5/second", [bucket(5, SECOND)]),
    ("5/seconds", [bucket(5, SECOND)]),
    ("5/min", [bucket(5, MINUTE)]),
    ("5/minute", [bucket(5, MINUTE)]),
    ("5/minutes", [bucket(5, MINUTE)]),
    ("5/h", [bucket(5, HOUR)]),
    ("5/hour", [bucket(5, HOUR)]),
    ("5/hours", [bucket(5, HOUR)]),
    ("5/d", [bucket(5, DAY)]),
    ("5/day", [bucket(5, DAY)]),
    ("5/days", [bucket(5, DAY)]),
    ("7/30d", [bucket(7, 30 * DAY)]),
    ("1/250ms", [bucket(1, 250 * MILLISECOND)]),
    ("1/90 minutes", [bucket(1, 90 * MINUTE)]),
    ("1/1s", [bucket(1, SECOND)]),
    # Case and spaces.
    ("100 / 15 min", [bucket(100, 15 * MINUTE)]),
    ("  100/min  ", [bucket(100, MINUTE)]),
    ("100/MIN BURST 20", [bucket(100, MINUTE, 20)]),
    ("Token-Bucket 100/Min Burst 20", [bucket(100, MINUTE, 20)]),
    ("SLIDING-WINDOW-COUNTER 3/H", [counter(3, HOUR)]),
    ("fixed-window   5 /  d", [fixed(5, DAY)]),
    ("\t100/min\nburst 20\n", [bucket(100, MINUTE, 20)]),
    ("fixed-window5/d", [fixed(5, DAY)]),
    ("100/min burst20", [bucket(100, MINUTE, 20)]),
    ("007/s", [bucket(7, SECOND)]),
    ("10/s+1000/h", [bucket(10, SECOND), bucket(1000, HOUR)]),
    ("10/s  +  1000/h", [bucket(10, SECOND), bucket(1000, HOUR)]),
    # Sets.
    (
        "1/s + 2/min + 3/h + 4/d",
        [bucket(1, SECOND), bucket(2, MINUTE), bucket(3, HOUR), bucket(4, DAY)],
    ),
    (
        "9/s + sliding-window 9/s + sliding-window-counter 9/s + fixed-window 9/s",
        [
            bucket(9, SECOND),
            sliding(9, SECOND),
            counter(9, SECOND),
            fixed(9, SECOND),
        ],
    ),
    ("10/s burst 3 + 5/min burst 50", [bucket(10, SECOND, 3), bucket(5, MINUTE, 50)]),
    ("5/min burst 7 + 5/h", [bucket(5, MINUTE, 7), bucket(5, HOUR)]),
    # The largest that fit.
    ("fixed-window 999999999999999/d", [fixed(999_999_999_999_999, DAY)]),
    (f"fixed-window {BIGGEST}/s", [fixed(BIGGEST, SECOND)]),
    (f"sliding-window {BIGGEST}/s", [sliding(BIGGEST, SECOND)]),
    (f"sliding-window-counter {BIGGEST}/ms", [counter(BIGGEST, MILLISECOND)]),
    (
        "sliding-window-counter 104249991/d",
        [counter(104_249_991, DAY)],
    ),
    ("fixed-window 1/36500d", [fixed(1, 36_500 * DAY)]),
    ("1/36500d", [bucket(1, 36_500 * DAY)]),
    ("1/876000h", [bucket(1, 36_500 * DAY)]),
    ("1/d burst 36500", [bucket(1, DAY, 36_500)]),
    ("9007199254740990/ms burst 1", [bucket(BIGGEST - 1, MILLISECOND, 1)]),
    ("1/ms burst 3153600000000", [bucket(1, MILLISECOND, 3_153_600_000_000)]),
    ("999983/h burst 2501999792", [bucket(999_983, HOUR, 2_501_999_792)]),
    ("4503599627370495/ms", [bucket(4_503_599_627_370_495, MILLISECOND)]),
    ("999983/d burst 104249991", [bucket(999_983, DAY, 104_249_991)]),
]

REFUSED: list[str] = [
    "",
    " ",
    "100",
    "/min",
    "100/",
    "100 min",
    "100//min",
    "100/min/h",
    "min/100",
    # Zeros, signs, fractions, other ways to write a number.
    "0/s",
    "5/0s",
    "5/0ms",
    "5/s burst 0",
    "fixed-window 0/s",
    "-5/s",
    "+5/s",
    "5/-1s",
    "5/s burst -1",
    "5/s burst +1",
    "0.5/s",
    "1.0/s",
    "5/0.5s",
    "5/1.5h",
    "5/s burst 1.5",
    "1,000/h",
    "1_000/h",
    "1 000/h",
    "1e3/s",
    "0x10/s",
    "nan/s",
    "inf/s",
    "five/s",
    # Digits and letters of other scripts.
    "\u0665/s",
    "\uff15/s",
    "\u00b2/s",
    "5/\u017f",
    "5/\uff53",
    "to\u212aen-bucket 5/s",
    "100/min\x00",
    # Units.
    "5/m",
    "5/M",
    "5/15m",
    "5/us",
    "5/\u00b5s",
    "5/w",
    "5/week",
    "5/month",
    "5/y",
    "5/ss",
    "5/1",
    "5/m s",
    # Algorithms and burst.
    "leaky-bucket 5/s",
    "token_bucket 5/s",
    "token bucket 5/s",
    "sliding 5/s",
    "- 5/s",
    "5/s token-bucket",
    "5/s burst",
    "5/s burst 5 burst 5",
    "5/s 5",
    "burst 5",
    "burst 5 5/s",
    "5/s bursts 5",
    "5/s burst=5",
    "fixed-window 5/s burst 5",
    "sliding-window 5/s burst 5",
    "sliding-window-counter 5/s burst 5",
    # Sets.
    "+",
    "5/s +",
    "+ 5/s",
    "5/s + + 5/min",
    "5/s, 5/min",
    "5/s 5/min",
    "5/s & 5/min",
    "5/s + 0/min",
    "1/s + 2/min + 3/h + 4/d + 5/2d",
    "5/s + 6/s",
    "5/s + 5/s burst 9",
    "5/s + 6/1000ms",
    "5/s + token-bucket 6/1 second",
    "5/60s + 5/min",
    "fixed-window 5/24h + 1/s + fixed-window 6/d",
    # Too large.
    f"{BIGGEST}/s",
    f"{BIGGEST + 1}/s",
    f"{BIGGEST}/ms",
    f"{BIGGEST}/ms burst 1",
    "4503599627370496/ms",
    "98765432198765432198765/s",
    "fixed-window 98765432198765432198765/s",
    f"fixed-window {BIGGEST + 1}/s",
    f"sliding-window {BIGGEST + 1}/s",
    f"sliding-window-counter {BIGGEST + 1}/ms",
    "sliding-window-counter 104249992/d",
    "5/98765432198765432198765ms",
    "5/18446744073709551617ms",
    "18446744073709551617/s",
    "5/s burst 18446744073709551621",
    "5/s burst 98765432198765432198765",
    "9" * 1000 + "/s",
    "1/" + "9" * 1000 + "s",
    "1/36501d",
    "fixed-window 1/36501d",
    "sliding-window 1/3153600000001ms",
    "1/d burst 36501",
    "1/ms burst 3153600000001",
    "999983/h burst 2501999793",
    "999983/d burst 104249992",
]
