"""The three windows: hand-written scenarios."""

from __future__ import annotations

from scenario import MIN, MS, D, H, S, Scenario, T, denied, passes, peek

FW = "fixed-window 3/min"
SW = "sliding-window 3/min"
LOG = "sliding-window 10/min"
SWC = "sliding-window-counter 10/min"
#: Only fits in ticks of 10 µs; one hit of a full window fades in 8,640 of them.
COARSE = "sliding-window-counter 1000000/d"
DAY = T - 8 * H
HUGE = 2**53 - 1
LARGEST = f"sliding-window {HUGE}/s"
HALF = 2**52 - 1

FIXED_WINDOW = [
    Scenario(
        "twice the count across an edge",
        "counter per window aligned to the Unix epoch; can admit 2*COUNT across an edge",
        [
            passes(T - 1, FW, limit=3, remaining=2, reset_after=1),
            passes(T - 1, FW, 2, remaining=0, reset_after=1),
            denied(T - 1, FW, retry_after=1, limit=3, remaining=0, reset_after=1),
            passes(T, FW, remaining=2, reset_after=MIN),
            passes(T, FW, remaining=1, reset_after=MIN),
            passes(T + 1, FW, remaining=0, reset_after=MIN - 1),
            denied(T + 1, FW, retry_after=MIN - 1, reset_after=MIN - 1),
            denied(T + MIN - 1, FW, retry_after=1),
            peek(T + MIN, FW, allowed=True, remaining=3, reset_after=0),
            passes(T + MIN, FW, 3, remaining=0, reset_after=MIN),
        ],
    ),
    Scenario(
        "days are UTC days",
        "1 d = 86,400 s; no time zones here",
        [
            passes(T, "fixed-window 5/d", remaining=4, reset_after=16 * H),
            passes(T + 16 * H - 1, "fixed-window 5/d", remaining=3, reset_after=1),
            passes(T + 16 * H, "fixed-window 5/d", remaining=4, reset_after=D),
        ],
    ),
    Scenario(
        "several units to a period",
        "windows aligned to the Unix epoch",
        [
            passes(
                T + 7 * MIN,
                "fixed-window 2/15min",
                remaining=1,
                reset_after=8 * MIN,
            ),
            passes(T + 15 * MIN - 1, "fixed-window 2/15min", remaining=0),
            denied(T + 15 * MIN - 1, "fixed-window 2/15min", retry_after=1),
            passes(T + 15 * MIN, "fixed-window 2/15min", remaining=1),
        ],
    ),
    Scenario(
        "a denied call charges nothing",
        "Denied calls charge nothing and write nothing",
        [
            passes(T, FW, 2, remaining=1),
            denied(T, FW, 2, retry_after=MIN, remaining=1),
            passes(T, FW, 1, remaining=0),
        ],
    ),
    Scenario(
        "the largest count",
        "every product in Lua stays below 2^53",
        [
            passes(T, f"fixed-window {HUGE}/min", HUGE - 1, limit=HUGE, remaining=1),
            denied(T, f"fixed-window {HUGE}/min", HUGE, retry_after=MIN, remaining=1),
            passes(T, f"fixed-window {HUGE}/min", 1, remaining=0),
            denied(T, f"fixed-window {HUGE}/min", 1, retry_after=MIN, remaining=0),
        ],
    ),
]

SLIDING_WINDOW = [
    Scenario(
        "a hit counts for one period",
        "a hit at e counts while now - e < PERIOD",
        [
            passes(T, SW, limit=3, remaining=2, reset_after=MIN),
            passes(T + 10 * S, SW, remaining=1, reset_after=MIN),
            passes(T + 20 * S, SW, remaining=0, reset_after=MIN),
            denied(T + 20 * S, SW, retry_after=40 * S, remaining=0, reset_after=MIN),
            denied(T + MIN - 1, SW, retry_after=1, reset_after=20 * S + 1),
            passes(T + MIN, SW, remaining=0, reset_after=MIN),
            denied(T + MIN, SW, retry_after=10 * S, reset_after=MIN),
            peek(T + 2 * MIN - 1, SW, remaining=2, reset_after=1),
            peek(T + 2 * MIN, SW, remaining=3, reset_after=0),
        ],
    ),
    Scenario(
        "denied hits are not stored",
        "Denied hits are not stored",
        [
            passes(T, "sliding-window 1/s", remaining=0, reset_after=S),
            denied(T + 500 * MS, "sliding-window 1/s", retry_after=500 * MS),
            denied(T + S - 1, "sliding-window 1/s", retry_after=1, reset_after=1),
            passes(T + S, "sliding-window 1/s", remaining=0, reset_after=S),
        ],
    ),
    Scenario(
        "a larger cost waits for more of the oldest",
        "Allowed if counted + cost <= COUNT; waiting exactly retry_after must succeed",
        [
            passes(T, LOG, 4, remaining=6),
            passes(T + 10 * S, LOG, 3, remaining=3),
            passes(T + 20 * S, LOG, 3, remaining=0),
            denied(T + 30 * S, LOG, 4, retry_after=30 * S, reset_after=50 * S),
            denied(T + 30 * S, LOG, 5, retry_after=40 * S),
            denied(T + 30 * S, LOG, 7, retry_after=40 * S),
            denied(T + 30 * S, LOG, 8, retry_after=50 * S),
            denied(T + 70 * S - 1, LOG, 5, retry_after=1, remaining=4),
            passes(T + 70 * S, LOG, 5, remaining=2, reset_after=MIN),
        ],
    ),
    Scenario(
        "hits of one moment leave together",
        "a hit at e counts while now - e < PERIOD",
        [
            passes(T, SW, remaining=2),
            passes(T, SW, remaining=1),
            passes(T + 1, SW, remaining=0, reset_after=MIN),
            denied(T + 1, SW, retry_after=MIN - 1),
            denied(T + 1, SW, 3, retry_after=MIN),
            peek(T + MIN, SW, remaining=2, reset_after=1),
            peek(T + MIN + 1, SW, remaining=3, reset_after=0),
        ],
    ),
    Scenario(
        "the largest count, for longer than it fits once",
        "no value ... loses a fraction: sums of costs stay exact past 2^53",
        [
            passes(T, LARGEST, HALF, remaining=HALF + 1, reset_after=S),
            passes(T + S // 2, LARGEST, HALF, remaining=1, reset_after=S),
            *(
                step
                for at in range(T + S, T + 8 * S, S // 2)
                for step in (
                    denied(at - 1, LARGEST, HALF, retry_after=1, remaining=1),
                    passes(at, LARGEST, HALF, remaining=1, reset_after=S),
                )
            ),
            denied(T + 8 * S - 2, LARGEST, 3, retry_after=2, remaining=1),
            peek(T + 8 * S, LARGEST, allowed=True, remaining=HALF + 1),
        ],
    ),
    Scenario(
        "no double count across an edge",
        "the window slides: it is aligned to nothing",
        [
            passes(T - 1, SW, 3, remaining=0),
            denied(T, SW, retry_after=MIN - 1, remaining=0),
            passes(T + MIN - 1, SW, 3, remaining=0),
        ],
    ),
]

SLIDING_WINDOW_COUNTER = [
    Scenario(
        "the previous window fades",
        "prev*(PERIOD - elapsed)/PERIOD + cur + cost <= COUNT",
        [
            passes(T, SWC, 8, limit=10, remaining=2, reset_after=2 * MIN),
            peek(T + MIN - 1, SWC, remaining=2, reset_after=MIN + 1),
            peek(T + MIN, SWC, remaining=2, reset_after=MIN),
            peek(T + 75 * S, SWC, remaining=4, reset_after=45 * S),
            denied(
                T + 75 * S,
                SWC,
                5,
                retry_after=7_500 * MS,
                remaining=4,
                reset_after=45 * S,
            ),
            denied(T + 82_500 * MS - 1, SWC, 5, retry_after=1, remaining=4),
            passes(
                T + 82_500 * MS,
                SWC,
                5,
                remaining=0,
                reset_after=97_500 * MS,
            ),
            peek(T + 180 * S - 1, SWC, remaining=9, reset_after=1),
            peek(T + 180 * S, SWC, remaining=10, reset_after=0),
        ],
    ),
    Scenario(
        "the weighted part is not floored",
        "exact, no flooring of the weighted part",
        [
            passes(T, "sliding-window-counter 2/s", remaining=1, reset_after=2 * S),
            denied(
                T + S + 1,
                "sliding-window-counter 2/s",
                2,
                retry_after=S - 1,
                remaining=1,
            ),
            passes(
                T + S + 1,
                "sliding-window-counter 2/s",
                remaining=0,
                reset_after=2 * S - 1,
            ),
            denied(T + S + 1, "sliding-window-counter 2/s", retry_after=S - 1),
            passes(T + 2 * S, "sliding-window-counter 2/s", remaining=0),
        ],
    ),
    Scenario(
        "a wait into the next window",
        "retry_after: the smallest wait after which the same call would pass",
        [
            passes(T, SWC, 10, remaining=0, reset_after=2 * MIN),
            denied(T + 10 * S, SWC, 1, retry_after=56 * S, reset_after=110 * S),
            denied(T + 10 * S, SWC, 10, retry_after=110 * S),
            denied(T + 66 * S - 1, SWC, 1, retry_after=1, remaining=0),
            passes(T + 66 * S, SWC, 1, remaining=0, reset_after=114 * S),
            denied(T + 119 * S, SWC, 10, retry_after=61 * S, remaining=8),
            passes(T + 180 * S, SWC, 10, remaining=0),
        ],
    ),
    Scenario(
        "nothing is left two windows later",
        "two counters, windows aligned to the Unix epoch",
        [
            passes(T + MIN - 1, SWC, 10, remaining=0, reset_after=MIN + 1),
            denied(T + MIN, SWC, 10, retry_after=MIN, reset_after=MIN),
            peek(T + 2 * MIN - 1, SWC, remaining=9, reset_after=1),
            passes(T + 2 * MIN, SWC, 10, remaining=0),
        ],
    ),
    Scenario(
        "a tick of 10 µs",
        "The tick is the finest for which every product fits; waits round up to the tick",
        [
            passes(DAY + 5, COARSE, 1_000_000, remaining=0, reset_after=2 * D),
            denied(DAY + D + 9, COARSE, retry_after=86_400, reset_after=D),
            denied(DAY + D + 86_399, COARSE, retry_after=10),
            passes(DAY + D + 86_400, COARSE, remaining=0),
        ],
    ),
]
