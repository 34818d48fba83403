"""Costs at the edges: hand-written scenarios."""

from __future__ import annotations

from scenario import MIN, MS, NEVER, S, Scenario, T, check, denied, passes, peek, refund

FIVE = "10/min burst 5"
TWO = "fixed-window 2/min"
PAIR = "fixed-window 3/s + fixed-window 5/min"

COST_EDGES = [
    Scenario(
        "cost 0 takes nothing",
        "0 is allowed and takes nothing; cost 0 asks the store like any other",
        [
            passes(T, FIVE, 0, limit=5, remaining=5, reset_after=0),
            passes(T, FIVE, 5, remaining=0, reset_after=30 * S),
            passes(T, FIVE, 0, remaining=0, reset_after=30 * S),
            denied(T, FIVE, 1, retry_after=6 * S),
            passes(T, "fixed-window 1/min", 1, remaining=0),
            passes(T, "fixed-window 1/min", 0, remaining=0, reset_after=MIN),
            passes(T, "sliding-window 1/min", 1, remaining=0),
            passes(T, "sliding-window 1/min", 0, remaining=0, reset_after=MIN),
            passes(T, "sliding-window-counter 1/min", 1, remaining=0),
            passes(T, "sliding-window-counter 1/min", 0, remaining=0),
            passes(T, f"{FIVE} + fixed-window 1/min", 0, limit=5, remaining=0),
        ],
    ),
    Scenario(
        "cost 0 passes a Limit that is overdrawn",
        "0 is allowed and takes nothing",
        [
            passes(T, "10/min burst 10", 10, remaining=0),
            passes(T, FIVE, 0, limit=5, remaining=0, reset_after=MIN),
            passes(T, "fixed-window 9/min", 9, remaining=0),
            passes(T, "fixed-window 2/min", 0, limit=2, remaining=0),
        ],
    ),
    Scenario(
        "the whole capacity at once",
        "Allowed if tokens >= cost",
        [
            passes(T, FIVE, 5, remaining=0),
            passes(T, "10/min burst 20", 15, key="b", limit=20, remaining=5),
            passes(T, "sliding-window 5/min", 5, remaining=0),
            passes(T, "fixed-window 5/min", 5, remaining=0),
            passes(T, "sliding-window-counter 5/min", 5, remaining=0),
        ],
    ),
    Scenario(
        "a cost that can never pass",
        "cost > burst (or COUNT): denied from the limit alone; source limit, retry_after "
        "= never, the rest as of an untouched key",
        [
            passes(T, FIVE, 2, remaining=3),
            check(
                T,
                FIVE,
                6,
                allowed=False,
                source="limit",
                limit=5,
                remaining=5,
                retry_after=NEVER,
                reset_after=0,
                denied_by=0,
                each=[
                    {"limit": 5, "remaining": 5, "retry_after": NEVER, "reset_after": 0}
                ],
            ),
            check(T, FIVE, 10, allowed=False, source="limit", retry_after=NEVER),
            check(T, FIVE, 2**53 - 1, allowed=False, source="limit", remaining=5),
            passes(T, FIVE, 3, remaining=0, reset_after=30 * S),
        ],
    ),
    Scenario(
        "a cost that one of several never passes",
        "denied from the limit alone, the rest as of an untouched key",
        [
            passes(T, PAIR, 1, limit=3, remaining=2),
            check(
                T,
                "fixed-window 10/s + fixed-window 5/min",
                7,
                allowed=False,
                source="limit",
                limit=5,
                remaining=5,
                retry_after=NEVER,
                reset_after=0,
                denied_by=1,
                each=[
                    {"limit": 10, "remaining": 10, "retry_after": 0, "reset_after": 0},
                    {
                        "limit": 5,
                        "remaining": 5,
                        "retry_after": NEVER,
                        "reset_after": 0,
                    },
                ],
            ),
            check(
                T,
                "fixed-window 10/s + fixed-window 5/min",
                11,
                denied_by=0,
                limit=10,
                remaining=10,
                each=[{"retry_after": NEVER}, {"retry_after": NEVER}],
            ),
            peek(T, PAIR, each=[{"remaining": 2}, {"remaining": 4}]),
        ],
    ),
    Scenario(
        "peek 3 means exactly 3 unit calls",
        "peek r means exactly r unit calls pass (no time passing)",
        [
            passes(T, "7/s", 4, remaining=3),
            peek(T + 100 * MS, "7/s", allowed=True, remaining=3),
            passes(T + 100 * MS, "7/s", remaining=2),
            peek(T + 100 * MS, "7/s", remaining=2),
            passes(T + 100 * MS, "7/s", remaining=1),
            passes(T + 100 * MS, "7/s", remaining=0),
            peek(
                T + 100 * MS,
                "7/s",
                allowed=False,
                remaining=0,
                denied_by=0,
                retry_after=42_858,
            ),
            denied(T + 100 * MS, "7/s", retry_after=42_858),
        ],
    ),
    Scenario(
        "a refund is not a cost",
        "refund never above full",
        [
            passes(T, FIVE, 5, remaining=0),
            refund(T, FIVE, 2**53 - 1, allowed=True, remaining=5, reset_after=0),
            passes(T, TWO, 2, remaining=0),
            refund(T, TWO, 2**53 - 1, allowed=True, remaining=2, reset_after=0),
        ],
    ),
]
