"""Refund and reset: hand-written scenarios."""

from __future__ import annotations

from scenario import MIN, S, Scenario, T, denied, passes, peek, refund, reset

FIVE = "10/min burst 5"
FW = "fixed-window 3/min"
LOG = "sliding-window 10/min"
SWC = "sliding-window-counter 10/min"

REFUND_RESET = [
    Scenario(
        "a bucket gets tokens back",
        "refund: give back, never above full, never creating a key; answers like peek",
        [
            passes(T, FIVE, 3, remaining=2, reset_after=18 * S),
            refund(
                T,
                FIVE,
                2,
                allowed=True,
                source="store",
                limit=5,
                remaining=4,
                retry_after=0,
                reset_after=6 * S,
                denied_by=None,
            ),
            refund(T, FIVE, 100, remaining=5, reset_after=0),
            refund(T, FIVE, 1, key="untouched", remaining=5, reset_after=0),
            passes(T, FIVE, 5, key="untouched", remaining=0),
            passes(T, FIVE, 3, remaining=2),
            refund(T + 12 * S, FIVE, 3, remaining=5, reset_after=0),
        ],
    ),
    Scenario(
        "a partial refund keeps the fraction",
        "no value is ever rounded up in the caller's favour nor loses a fraction",
        [
            passes(T, "3/s", 3, remaining=0),
            refund(T + 1, "3/s", 1, remaining=1, reset_after=666_666),
            passes(T + 1, "3/s", 1, remaining=0, reset_after=S - 1),
            denied(T + 1, "3/s", 1, retry_after=333_333),
            passes(T + 333_334, "3/s", 1, remaining=0),
        ],
    ),
    Scenario(
        "a refund of 0 is a peek",
        "n = 0 is peek",
        [
            passes(T, FW, 3, remaining=0),
            refund(T, FW, 0, allowed=False, remaining=0, retry_after=MIN, denied_by=0),
            denied(T, FW, 1, retry_after=MIN),
        ],
    ),
    Scenario(
        "a fixed window gives back its own hits only",
        "give back the newest hits of the current window",
        [
            passes(T - 1, FW, 3, remaining=0),
            refund(T, FW, 3, remaining=3, reset_after=0),
            passes(T, FW, 2, remaining=1),
            refund(T, FW, 1, remaining=2, reset_after=MIN),
            refund(T + MIN - 1, FW, 5, remaining=3, reset_after=0),
            passes(T + MIN - 1, FW, 3, remaining=0, reset_after=1),
        ],
    ),
    Scenario(
        "a counter never gives back the previous window",
        "give back the newest hits of the current window",
        [
            passes(T, SWC, 8, remaining=2),
            refund(T + MIN, SWC, 8, remaining=2, reset_after=MIN),
            passes(T + MIN, SWC, 2, remaining=0, reset_after=2 * MIN),
            refund(T + MIN, SWC, 5, remaining=2, reset_after=MIN),
            passes(T + MIN, SWC, 2, remaining=0),
            refund(T + MIN + 30 * S, SWC, 1, remaining=5, reset_after=90 * S),
            refund(T + MIN + 30 * S, SWC, 1, remaining=6, reset_after=30 * S),
        ],
    ),
    Scenario(
        "a log gives back the newest first",
        "give back the newest hits, the last one partially",
        [
            passes(T, LOG, 4, remaining=6),
            passes(T + 10 * S, LOG, 3, remaining=3),
            passes(T + 20 * S, LOG, 3, remaining=0, reset_after=MIN),
            refund(T + 30 * S, LOG, 4, remaining=4, reset_after=40 * S),
            denied(T + 30 * S, LOG, 7, retry_after=30 * S, remaining=4),
            denied(T + 30 * S, LOG, 9, retry_after=40 * S),
            peek(T + 65 * S, LOG, remaining=8, reset_after=5 * S),
            refund(T + 65 * S, LOG, 5, remaining=10, reset_after=0),
            passes(T + 65 * S, LOG, 10, remaining=0),
        ],
    ),
    Scenario(
        "a refund reaches every Limit of the set",
        "all are charged, and each gets back what it can",
        [
            passes(T, "fixed-window 5/s + fixed-window 9/min", 4, limit=5, remaining=1),
            passes(T + S, "fixed-window 5/s + fixed-window 9/min", 2, remaining=3),
            refund(
                T + S,
                "fixed-window 5/s + fixed-window 9/min",
                3,
                limit=5,
                remaining=5,
                reset_after=59 * S,
                each=[
                    {"remaining": 5, "reset_after": 0},
                    {"remaining": 6, "reset_after": 59 * S},
                ],
            ),
        ],
    ),
    Scenario(
        "reset forgets the key",
        "reset(key): forget the key; answers like peek",
        [
            passes(T, f"{FIVE} + {FW}", 3, limit=3, remaining=0),
            passes(T, FIVE, 5, key="other", remaining=0),
            passes(T, FIVE, 5, limiter="other", remaining=0),
            reset(
                T,
                f"{FIVE} + {FW}",
                allowed=True,
                limit=3,
                remaining=3,
                retry_after=0,
                reset_after=0,
                denied_by=None,
                each=[{"remaining": 5}, {"remaining": 3}],
            ),
            passes(T, f"{FIVE} + {FW}", 3, limit=3, remaining=0),
            peek(T, FIVE, key="other", allowed=False, remaining=0),
            peek(T, FIVE, limiter="other", allowed=False, remaining=0),
            reset(T, LOG, key="untouched", remaining=10, reset_after=0),
            passes(T, LOG, 10, remaining=0),
            reset(T, LOG, remaining=10, reset_after=0),
            passes(T, SWC, 10, remaining=0),
            reset(T + MIN, SWC, remaining=10, reset_after=0),
            peek(T, FIVE, remaining=2),
        ],
    ),
]
