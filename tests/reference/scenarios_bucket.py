"""Token bucket: hand-written scenarios."""

from __future__ import annotations

from scenario import MIN, MS, D, S, Scenario, T, denied, passes, peek

#: One token every 6 s.
FIVE = "10/min burst 5"
#: One token every 333,333 1/3 µs.
THIRDS = "3/s"
#: One token every 370,285,714,285 5/7 µs.
SEVENTHS = "7/30d"
#: Only fits in ticks of 10 µs; one token every 360.006 ticks.
COARSE = "999983/h burst 3000000"
#: Only fits in ticks of 1 ms; one token every 86.401 ticks.
COARSEST = "999983/d burst 100000000"

TOKEN_BUCKET = [
    Scenario(
        "starts full and refills continuously",
        "holds up to burst tokens, starts full, refills continuously COUNT per PERIOD",
        [
            peek(
                T,
                FIVE,
                allowed=True,
                source="store",
                limit=5,
                remaining=5,
                retry_after=0,
                reset_after=0,
                denied_by=None,
            ),
            passes(T, FIVE, limit=5, remaining=4, reset_after=6 * S),
            passes(T, FIVE, limit=5, remaining=3, reset_after=12 * S),
            passes(T, FIVE, limit=5, remaining=2, reset_after=18 * S),
            passes(T, FIVE, limit=5, remaining=1, reset_after=24 * S),
            passes(T, FIVE, limit=5, remaining=0, reset_after=30 * S),
            denied(T, FIVE, retry_after=6 * S, remaining=0, reset_after=30 * S),
            denied(T + 6 * S - 1, FIVE, retry_after=1, reset_after=24 * S + 1),
            passes(T + 6 * S, FIVE, remaining=0, reset_after=30 * S),
            peek(T + 36 * S - 1, FIVE, remaining=4, reset_after=1),
            peek(T + 36 * S, FIVE, remaining=5, reset_after=0),
            peek(T + 99 * D, FIVE, remaining=5, reset_after=0),
        ],
    ),
    Scenario(
        "burst defaults to the count",
        "burst (default COUNT)",
        [
            passes(T, "100/min", 100, limit=100, remaining=0, reset_after=MIN),
            denied(T, "100/min", retry_after=600 * MS, limit=100, remaining=0),
            passes(T + 600 * MS, "100/min", remaining=0, reset_after=MIN),
            passes(
                T,
                "token-bucket 100/min",
                key="other",
                remaining=99,
                reset_after=600 * MS,
            ),
        ],
    ),
    Scenario(
        "a larger cost waits longer",
        "Allowed if tokens >= cost; retry_after: the smallest wait after which the same "
        "call would pass",
        [
            passes(T, FIVE, 5, remaining=0, reset_after=30 * S),
            denied(
                T + 7 * S,
                FIVE,
                2,
                retry_after=5 * S,
                remaining=1,
                reset_after=23 * S,
            ),
            denied(T + 12 * S - 1, FIVE, 2, retry_after=1, remaining=1),
            passes(T + 12 * S, FIVE, 2, remaining=0, reset_after=30 * S),
        ],
    ),
    Scenario(
        "thirds of a second lose nothing",
        "no value is ever rounded up in the caller's favour nor loses a fraction; waits "
        "round up",
        [
            passes(T, THIRDS, 3, remaining=0, reset_after=S),
            denied(T, THIRDS, retry_after=333_334, reset_after=S),
            denied(T + 333_333, THIRDS, retry_after=1),
            passes(T + 333_334, THIRDS, remaining=0, reset_after=S),
            denied(T + 666_666, THIRDS, retry_after=1),
            passes(T + 666_667, THIRDS, remaining=0, reset_after=S),
            denied(T + 999_999, THIRDS, retry_after=1, reset_after=666_668),
            passes(T + S, THIRDS, remaining=0, reset_after=S),
        ],
    ),
    Scenario(
        "sevenths of 30 days lose nothing",
        "Rates are rationals: state is integers and every product exact",
        [
            passes(T, SEVENTHS, 7, remaining=0, reset_after=30 * D),
            denied(T, SEVENTHS, retry_after=370_285_714_286),
            denied(T + 370_285_714_285, SEVENTHS, retry_after=1),
            passes(T + 370_285_714_286, SEVENTHS, remaining=0, reset_after=30 * D),
            peek(T + 30 * D - 1, SEVENTHS, remaining=5, reset_after=370_285_714_287),
            peek(T + 30 * D, SEVENTHS, remaining=6, reset_after=370_285_714_286),
        ],
    ),
    Scenario(
        "a tick of 10 µs",
        "The tick is the finest for which every product fits; ticks are counted from the "
        "epoch; waits round up to the tick",
        [
            passes(T + 7, COARSE, 3_000_000, remaining=0, reset_after=10_800_183_610),
            denied(T + 7, COARSE, retry_after=3_610),
            denied(T + 3_609, COARSE, retry_after=10),
            passes(T + 3_610, COARSE, remaining=0, reset_after=10_800_183_600),
        ],
    ),
    Scenario(
        "a tick of 1 ms",
        "The tick is the finest of 1 µs, 10 µs, 100 µs, 1 ms for which every product fits",
        [
            passes(
                T + 999,
                COARSEST,
                100_000_000,
                remaining=0,
                reset_after=8_640_146_883 * MS,
            ),
            denied(T + 999, COARSEST, retry_after=87 * MS),
            denied(T + 87 * MS - 1, COARSEST, retry_after=MS),
            passes(T + 87 * MS, COARSEST, remaining=0),
        ],
    ),
    Scenario(
        "a single token",
        "waiting exactly retry_after must succeed",
        [
            passes(T, "1/250ms", limit=1, remaining=0, reset_after=250 * MS),
            denied(T + 1, "1/250ms", retry_after=250 * MS - 1),
            denied(T + 250 * MS - 1, "1/250ms", retry_after=1),
            passes(T + 250 * MS, "1/250ms", remaining=0, reset_after=250 * MS),
        ],
    ),
    Scenario(
        "a burst above the count",
        "limit: burst for a token bucket",
        [
            passes(T, "1/s burst 10", 10, limit=10, remaining=0, reset_after=10 * S),
            denied(T, "1/s burst 10", retry_after=S, limit=10, remaining=0),
            denied(T, "1/s burst 10", 10, retry_after=10 * S),
            passes(T + 10 * S, "1/s burst 10", 10, remaining=0),
        ],
    ),
    Scenario(
        "a denied call charges nothing",
        "Denied calls charge nothing and write nothing",
        [
            passes(T, FIVE, 3, remaining=2),
            denied(T, FIVE, 3, retry_after=6 * S, remaining=2, reset_after=18 * S),
            denied(T, FIVE, 5, retry_after=18 * S, remaining=2, reset_after=18 * S),
            passes(T, FIVE, 2, remaining=0, reset_after=30 * S),
        ],
    ),
]
