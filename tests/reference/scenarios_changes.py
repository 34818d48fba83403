"""Changed Limits and a clock that steps back: hand-written scenarios."""

from __future__ import annotations

from scenario import (
    MIN,
    MS,
    D,
    H,
    S,
    Scenario,
    T,
    check,
    denied,
    passes,
    peek,
    refund,
)

FIVE = "10/min burst 5"
TEN = "10/min burst 10"
TWO = "10/min burst 2"
ONE = "10/min burst 1"
FW = "fixed-window 3/min"
LOG = "sliding-window 10/min"
SW2 = "sliding-window 2/min"
SWC = "sliding-window-counter 10/min"
#: Its tick is 10 µs, and one token takes 360.006 of them.
COARSE = "999983/h burst 3000000"
#: The moment of a clock that stepped back by an hour.
B = T - H

#: Its tick is 10 µs as well, and one token takes 0.00036 of them.
FINE = "999999999989/h burst 3000000"

LIMIT_CHANGE = [
    Scenario(
        "what is rounded up stays within reach",
        "a token bucket keeps the time at which it would have been full again",
        [
            # The hour's token is back 3.6 s later, in mid-tick for the other Limit: rounded up, 360,001 of its ticks.
            passes(T + 5, "1000/h burst 1", remaining=0, reset_after=3_600_000),
            peek(T + 5, FINE, reset_after=3_600_010),
            refund(T + 5, FINE, 1, reset_after=3_600_010),
            # No clock stepped back, so nothing is cut.
            peek(T + 5, FINE, reset_after=3_600_010),
            check(T + 5, FINE, 0, reset_after=3_600_010),
            peek(T + 5, FINE, reset_after=3_600_010),
        ],
    ),
    Scenario(
        "a smaller burst",
        "a token bucket keeps the time at which it would have been full again; where that "
        "is more than the smaller limit can miss, it reads as empty and is left alone",
        [
            passes(T, TEN, 2, remaining=8, reset_after=12 * S),
            peek(T, FIVE, limit=5, remaining=3, reset_after=12 * S),
            denied(T, ONE, retry_after=12 * S, limit=1, remaining=0),
            peek(T, TEN, limit=10, remaining=8, reset_after=12 * S),
            denied(T + 12 * S - 1, ONE, retry_after=1, remaining=0),
            passes(T + 12 * S, ONE, remaining=0, reset_after=6 * S),
        ],
    ),
    Scenario(
        "a larger burst",
        "raising takes effect at once",
        [
            passes(T, FIVE, 5, remaining=0, reset_after=30 * S),
            passes(
                T, "10/min burst 20", 15, limit=20, remaining=0, reset_after=2 * MIN
            ),
            denied(T, FIVE, 1, retry_after=96 * S, remaining=0, reset_after=2 * MIN),
        ],
    ),
    Scenario(
        "a faster and a slower rate",
        "a token bucket keeps the time at which it would have been full again",
        [
            passes(T, FIVE, 5, remaining=0, reset_after=30 * S),
            denied(
                T,
                "20/min burst 5",
                retry_after=18 * S,
                remaining=0,
                reset_after=30 * S,
            ),
            peek(T, "5/min burst 5", remaining=2, reset_after=30 * S),
            denied(T, "5/min burst 5", 3, retry_after=6 * S, remaining=2),
            passes(T + 18 * S, "20/min burst 5", remaining=0, reset_after=15 * S),
        ],
    ),
    Scenario(
        "into other units the time is rounded up",
        "no value is ever rounded up in the caller's favour",
        [
            passes(T, "3/s", 1, remaining=2, reset_after=333_334),
            denied(T, "10/s", 7, retry_after=33_334, remaining=6, reset_after=333_334),
            passes(T, "10/s", 1, remaining=5, reset_after=433_334),
            peek(T, "3/s", remaining=1, reset_after=433_334),
        ],
    ),
    Scenario(
        "into other ticks the time is rounded up",
        "no value is ever rounded up in the caller's favour",
        [
            passes(T, COARSE, 1, remaining=2_999_999, reset_after=3_610),
            peek(T, "1000/h", limit=1000, remaining=999, reset_after=3_610),
            passes(T + 5, "1000/h", 1, key="b", remaining=999, reset_after=3_600 * MS),
            peek(
                T + 5, COARSE, key="b", remaining=2_999_000, reset_after=3_600 * MS + 10
            ),
        ],
    ),
    Scenario(
        "what a far larger Limit wrote stays exact",
        "where that is more than the caller's smaller limit can miss, it reads as empty; "
        "never a panic, a negative or a wrapped number",
        [
            passes(T, "1/d burst 36500", 36_500, remaining=0, reset_after=36_500 * D),
            denied(
                T,
                "999983/d burst 5",
                retry_after=36_500 * D - 345_605,
                limit=5,
                remaining=0,
                reset_after=36_500 * D,
            ),
            refund(
                T,
                "999983/d burst 5",
                9,
                allowed=False,
                remaining=0,
                retry_after=36_500 * D - 777_613,
                reset_after=36_500 * D - 432_007,
            ),
            passes(T, "sliding-window-counter 1000000/d", 1_000_000, remaining=0),
            denied(
                T + 16 * H + 7,
                "sliding-window-counter 100/d",
                retry_after=D - 8_553_600 - 7,
                remaining=0,
            ),
            denied(
                T + 40 * H - 8_553_601, "sliding-window-counter 100/d", retry_after=1
            ),
            passes(T + 40 * H - 8_553_600, "sliding-window-counter 100/d", remaining=0),
        ],
    ),
    Scenario(
        "in turn, no token appears",
        "shrinking and growing in turn never yields a token",
        [
            passes(T, TEN, 10, remaining=0, reset_after=MIN),
            denied(T, ONE, retry_after=MIN, remaining=0),
            denied(T, TEN, retry_after=6 * S, remaining=0),
            denied(T, ONE, retry_after=MIN, remaining=0, reset_after=MIN),
            denied(T + 6 * S - 1, TEN, retry_after=1, remaining=0),
            denied(T + 6 * S - 1, ONE, retry_after=54 * S + 1, remaining=0),
            passes(T + 6 * S, TEN, remaining=0, reset_after=MIN),
            denied(T + 6 * S, ONE, retry_after=MIN, remaining=0),
        ],
    ),
    Scenario(
        "a refund through the smaller Limit",
        "a stored time further ahead than the Limit that wrote it allows is cut back, and "
        "what a larger Limit wrote is not",
        [
            passes(T, TEN, 10, remaining=0, reset_after=MIN),
            refund(T, TWO, 1, allowed=False, remaining=0, reset_after=54 * S),
            denied(T, TWO, retry_after=48 * S, remaining=0),
            peek(T, TEN, remaining=1, reset_after=54 * S),
            refund(T, TWO, 9, allowed=False, remaining=0, retry_after=36 * S),
            passes(T, TEN, 3, remaining=0, reset_after=MIN),
        ],
    ),
    Scenario(
        "windows keep what was counted",
        "windows keep what was counted; remaining 0 at worst",
        [
            passes(T, "fixed-window 10/min", 8, remaining=2),
            denied(T, "fixed-window 5/min", retry_after=MIN, limit=5, remaining=0),
            peek(T, "fixed-window 20/min", limit=20, remaining=12),
            passes(T, LOG, 4, remaining=6),
            passes(T + 10 * S, LOG, 4, remaining=2),
            denied(
                T + 20 * S, "sliding-window 5/min", 1, retry_after=40 * S, remaining=0
            ),
            denied(T + 20 * S, "sliding-window 5/min", 3, retry_after=50 * S),
            passes(T + 20 * S, "sliding-window 20/min", 12, limit=20, remaining=0),
            passes(T, SWC, 8, remaining=2),
            denied(T, "sliding-window-counter 5/min", retry_after=90 * S, remaining=0),
            passes(T, "sliding-window-counter 20/min", 12, remaining=0),
            denied(T + MIN, SWC, 1, retry_after=33 * S, remaining=0),
        ],
    ),
    Scenario(
        "another algorithm or period starts afresh",
        "Algorithm and period are part of the stored key: changing one starts afresh and "
        "never trips over the old state",
        [
            passes(T, FIVE, 5, remaining=0),
            passes(T, "10/h burst 5", 5, remaining=0, reset_after=30 * MIN),
            passes(T, "fixed-window 5/min", 5, remaining=0),
            passes(T, "sliding-window 5/min", 5, remaining=0),
            passes(T, "sliding-window-counter 5/min", 5, remaining=0),
            denied(T, "10/60s burst 5", retry_after=6 * S),
            denied(T, "TOKEN-BUCKET 10/60000ms BURST 5", retry_after=6 * S),
            denied(T, FIVE, retry_after=6 * S),
        ],
    ),
]

CLOCK_BACK = [
    Scenario(
        "a bucket, a little",
        "A server clock that steps back gives nobody a token",
        [
            passes(T, FIVE, 1, remaining=4, reset_after=6 * S),
            peek(T - 1, FIVE, remaining=3, reset_after=6 * S + 1),
            peek(T - 10 * S, FIVE, remaining=2, reset_after=16 * S),
            passes(T - 10 * S, FIVE, 2, remaining=0, reset_after=28 * S),
            denied(T - 10 * S, FIVE, retry_after=4 * S),
        ],
    ),
    Scenario(
        "a bucket, far",
        "locks nobody out longer than the key's time to full: a stored time further ahead "
        "than the Limit that wrote it allows is cut back to that, and the cut is written",
        [
            passes(T, FIVE, 1, remaining=4),
            denied(B, FIVE, retry_after=6 * S, remaining=0, reset_after=30 * S),
            denied(B + 6 * S - 1, FIVE, retry_after=1),
            passes(B + 6 * S, FIVE, remaining=0, reset_after=30 * S),
        ],
    ),
    Scenario(
        "a bucket is cut by what wrote it",
        "further ahead than the Limit that wrote it allows",
        [
            passes(T, TEN, 10, remaining=0, reset_after=MIN),
            denied(T, FIVE, retry_after=36 * S, reset_after=MIN),
            denied(B, FIVE, retry_after=36 * S, remaining=0, reset_after=MIN),
            peek(B + 36 * S, TEN, remaining=6, reset_after=24 * S),
        ],
    ),
    Scenario(
        "what heals and what does not",
        "peek writes nothing; denied calls write nothing, except to heal a key",
        [
            passes(T, FIVE, 5, remaining=0),
            peek(B, FIVE, allowed=False, retry_after=6 * S, reset_after=30 * S),
            refund(B + S, FIVE, 0, allowed=False, retry_after=6 * S),
            check(B + 2 * S, FIVE, 6, source="limit", remaining=5),
            peek(B + 6 * S, FIVE, allowed=False, retry_after=6 * S, remaining=0),
            passes(B + 6 * S, FIVE, 0, remaining=0, reset_after=30 * S),
            peek(B + 12 * S, FIVE, allowed=True, remaining=1, reset_after=24 * S),
            refund(B - H, FIVE, 1, remaining=1, reset_after=24 * S),
            passes(B - H, FIVE, 1, remaining=0, reset_after=30 * S),
        ],
    ),
    Scenario(
        "a fixed window",
        "locks nobody out longer than one period; the cut is written",
        [
            passes(T, FW, 3, remaining=0, reset_after=MIN),
            peek(T - 1, FW, allowed=False, retry_after=1, reset_after=1),
            peek(T, FW, allowed=False, retry_after=MIN),
            denied(T - 1, FW, retry_after=1, remaining=0, reset_after=1),
            passes(T, FW, remaining=2, reset_after=MIN),
            denied(B, FW, 3, retry_after=MIN, remaining=2, reset_after=MIN),
            passes(B, FW, 2, remaining=0),
            passes(B + MIN, FW, 3, remaining=0),
        ],
    ),
    Scenario(
        "a counter",
        "locks nobody out longer than two periods",
        [
            passes(T, SWC, 10, remaining=0, reset_after=2 * MIN),
            peek(B, SWC, allowed=False, retry_after=66 * S, reset_after=2 * MIN),
            denied(B, SWC, 10, retry_after=2 * MIN, reset_after=2 * MIN),
            denied(B + MIN, SWC, retry_after=6 * S, reset_after=MIN),
            passes(B + MIN + 6 * S, SWC, remaining=0, reset_after=114 * S),
        ],
    ),
    Scenario(
        "a counter with two windows",
        "A server clock that steps back gives nobody a token",
        [
            passes(T - MIN, SWC, 4, remaining=6),
            passes(T + 30 * S, SWC, 8, remaining=0, reset_after=90 * S),
            denied(T - 30 * S, SWC, 1, retry_after=15 * S, reset_after=90 * S),
            peek(T - 30 * S, SWC, allowed=False, remaining=0),
            denied(T, SWC, 3, retry_after=7_500 * MS, remaining=2),
            passes(T + 7_500 * MS, SWC, 3, remaining=0),
        ],
    ),
    Scenario(
        "a log",
        "locks nobody out longer than one period from the first call after it",
        [
            passes(T, SW2, remaining=1),
            passes(T + 10 * S, SW2, remaining=0, reset_after=MIN),
            peek(B - S, SW2, allowed=False, retry_after=50 * S, reset_after=MIN),
            denied(B, SW2, retry_after=50 * S, remaining=0, reset_after=MIN),
            denied(B + 50 * S - 1, SW2, retry_after=1, reset_after=10 * S + 1),
            passes(B + 50 * S, SW2, remaining=0, reset_after=MIN),
            denied(B + 50 * S, SW2, retry_after=10 * S),
            passes(B + MIN, SW2, remaining=0, reset_after=MIN),
            denied(B + MIN - 1, SW2, 2, retry_after=MIN, reset_after=MIN),
        ],
    ),
    Scenario(
        "every Limit of a denied set heals",
        "Denied calls write nothing, except to heal a key (a time ahead of the clock)",
        [
            passes(T, f"{FIVE} + fixed-window 100/h", 5, limit=5, remaining=0),
            denied(
                T - 2 * H,
                f"{FIVE} + fixed-window 100/h",
                1,
                retry_after=6 * S,
                reset_after=H,
                each=[{"remaining": 0}, {"remaining": 95}],
            ),
            peek(T - H, "fixed-window 100/h", remaining=100, reset_after=0),
            passes(T - 2 * H + 6 * S, FIVE, remaining=0),
        ],
    ),
]
