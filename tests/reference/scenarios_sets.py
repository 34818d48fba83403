"""Several Limits and many keys: hand-written scenarios."""

from __future__ import annotations

from scenario import (
    MIN,
    MS,
    NEVER,
    H,
    S,
    Scenario,
    T,
    call,
    denied,
    many,
    passes,
    peek,
)

PAIR = "fixed-window 3/s + fixed-window 5/min"
FOUR = (
    "100/min + sliding-window 50/min + sliding-window-counter 40/min"
    " + fixed-window 30/min"
)
FIVE = "10/min burst 5"
TWO = "fixed-window 2/min"

SEVERAL_LIMITS = [
    Scenario(
        "all pass and all are charged, or none is",
        "all pass and all are charged, or none is; retry_after and reset_after = the "
        "longest; limit and remaining are those of the tightest",
        [
            passes(T, PAIR, 2, limit=3, remaining=1, reset_after=MIN),
            passes(T, PAIR, limit=3, remaining=0, reset_after=MIN),
            denied(
                T,
                PAIR,
                retry_after=S,
                limit=3,
                remaining=0,
                reset_after=MIN,
                each=[
                    {"limit": 3, "remaining": 0, "retry_after": S, "reset_after": S},
                    {"limit": 5, "remaining": 2, "retry_after": 0, "reset_after": MIN},
                ],
            ),
            passes(T + S, PAIR, limit=5, remaining=1, reset_after=59 * S),
            passes(T + S, PAIR, limit=5, remaining=0, reset_after=59 * S),
            denied(
                T + S,
                PAIR,
                denied_by=1,
                retry_after=59 * S,
                limit=5,
                remaining=0,
                each=[
                    {"remaining": 1, "retry_after": 0, "reset_after": S},
                    {"remaining": 0, "retry_after": 59 * S, "reset_after": 59 * S},
                ],
            ),
            peek(
                T + S,
                PAIR,
                allowed=False,
                denied_by=1,
                each=[{"remaining": 1}, {"remaining": 0}],
            ),
            denied(
                T + S,
                PAIR,
                2,
                denied_by=1,
                retry_after=59 * S,
                each=[{"retry_after": S}, {"retry_after": 59 * S}],
            ),
            passes(T + MIN, PAIR, limit=3, remaining=2),
        ],
    ),
    Scenario(
        "of equal waits the first denies",
        "of those that denied the one with the longest wait; the first of equals",
        [
            passes(T, "fixed-window 2/min + sliding-window 3/min", 2, remaining=0),
            denied(
                T,
                "fixed-window 2/min + sliding-window 3/min",
                2,
                denied_by=0,
                retry_after=MIN,
                limit=2,
                remaining=0,
            ),
            denied(
                T,
                "sliding-window 3/min + fixed-window 2/min",
                2,
                denied_by=0,
                retry_after=MIN,
                limit=3,
                remaining=1,
            ),
        ],
    ),
    Scenario(
        "of equal remainders the first is shown",
        "else the least remaining; the first of equals",
        [
            passes(T, "fixed-window 7/min", 2, remaining=5),
            passes(
                T,
                "sliding-window 5/min + fixed-window 7/min",
                limit=5,
                remaining=4,
            ),
            passes(
                T,
                "fixed-window 7/min + sliding-window 5/min",
                limit=7,
                remaining=3,
            ),
        ],
    ),
    Scenario(
        "one of each algorithm",
        "a named set of 1 to 4 Limits, decided together; limits: those of each in order",
        [
            passes(
                T,
                FOUR,
                limit=30,
                remaining=29,
                reset_after=2 * MIN,
                each=[
                    {"limit": 100, "remaining": 99, "reset_after": 600 * MS},
                    {"limit": 50, "remaining": 49, "reset_after": MIN},
                    {"limit": 40, "remaining": 39, "reset_after": 2 * MIN},
                    {"limit": 30, "remaining": 29, "reset_after": MIN},
                ],
            ),
            passes(T, FOUR, 29, limit=30, remaining=0),
            denied(T + S, FOUR, 1, denied_by=3, retry_after=59 * S, limit=30),
            passes(
                T + MIN,
                FOUR,
                10,
                limit=40,
                remaining=0,
                each=[
                    {"remaining": 90, "reset_after": 6 * S},
                    {"remaining": 40, "reset_after": MIN},
                    {"remaining": 0, "reset_after": 2 * MIN},
                    {"remaining": 20, "reset_after": MIN},
                ],
            ),
            denied(
                T + MIN,
                FOUR,
                denied_by=2,
                retry_after=2 * S,
                limit=40,
                remaining=0,
            ),
            passes(T + MIN + 2 * S, FOUR, limit=40, remaining=0),
        ],
    ),
    Scenario(
        "what two sets share",
        "two of one name share state",
        [
            passes(T, "fixed-window 10/min + fixed-window 50/h", 4, remaining=6),
            passes(T, "fixed-window 10/min", 4, limit=10, remaining=2),
            passes(T, "fixed-window 50/h", 1, limit=50, remaining=45),
            peek(
                T,
                "fixed-window 50/h + fixed-window 10/min",
                limit=10,
                remaining=2,
                reset_after=H,
                each=[{"remaining": 45}, {"remaining": 2}],
            ),
            passes(T, "fixed-window 10/min", limiter="other", remaining=9),
        ],
    ),
]

MANY_KEYS = [
    Scenario(
        "each key on its own",
        "check_many of many keys: independent checks, one call",
        [
            many(
                "check",
                T,
                call(TWO, 2, key="a", allowed=True, remaining=0),
                call(TWO, 1, key="b", allowed=True, remaining=1),
                call(TWO, 1, key="a", allowed=False, retry_after=MIN, denied_by=0),
                call(TWO, 1, key="c", allowed=True, remaining=1),
            ),
            many(
                "peek",
                T,
                call(TWO, key="a", allowed=False, remaining=0),
                call(TWO, key="b", allowed=True, remaining=1),
                call(TWO, key="d", allowed=True, remaining=2, reset_after=0),
            ),
        ],
    ),
    Scenario(
        "one key several times",
        "A call carries 1..N keys, each with its own Limits and cost",
        [
            many(
                "check",
                T,
                call(FIVE, 2, allowed=True, remaining=3),
                call(FIVE, 4, allowed=False, remaining=3, retry_after=6 * S),
                call(FIVE, 6, allowed=False, source="limit", retry_after=NEVER),
                call(FIVE, 3, allowed=True, remaining=0),
                call(FIVE, 1, allowed=False, remaining=0, retry_after=6 * S),
                call(FIVE, 0, allowed=True, remaining=0, retry_after=0),
            ),
        ],
    ),
    Scenario(
        "one key under different Limits",
        "each with its own Limits and cost; a changed COUNT keeps what was counted",
        [
            many(
                "check",
                T,
                call("fixed-window 5/min", 4, allowed=True, remaining=1),
                call("fixed-window 3/min", 1, allowed=False, remaining=0),
                call("fixed-window 9/min", 1, allowed=True, remaining=4),
                call("fixed-window 9/h", 1, allowed=True, remaining=8),
                call("sliding-window 9/min", 1, allowed=True, remaining=8),
                call("9/min", 1, allowed=True, remaining=8),
                call("fixed-window 5/min", 1, allowed=False, remaining=0),
                call("fixed-window 6/min", 1, allowed=True, remaining=0),
            ),
        ],
    ),
    Scenario(
        "names and keys never meet",
        "unambiguous for any bytes: no two distinct tuples meet",
        [
            many(
                "check",
                T,
                call(TWO, 2, limiter="a", key="b:c", remaining=0),
                call(TWO, 1, limiter="a:b", key="c", remaining=1),
                call(TWO, 1, limiter="a", key="b", remaining=1),
                call(TWO, 1, limiter="a", key="{b}:c", remaining=1),
                call(TWO, 1, limiter="a", key="{b:c}", remaining=1),
                call(TWO, 1, limiter="a", key="B:C", remaining=1),
                call(TWO, 1, limiter="a", key="b:c ", remaining=1),
                call(TWO, 1, limiter="a", key="b:c\x00", remaining=1),
                call(TWO, 1, limiter="a", key="b:c\n", remaining=1),
                call(TWO, 1, limiter="a", key="b%3Ac", remaining=1),
                call(TWO, 1, limiter="{a}", key="b:c", remaining=1),
                call(TWO, 1, limiter="límite", key="ключ", remaining=1),
            ),
        ],
    ),
    Scenario(
        "long keys that differ at the end",
        "Long keys are stored as a collision-resistant hash",
        [
            many(
                "check",
                T,
                call(TWO, 2, key="x" * 300, remaining=0),
                call(TWO, 1, key="x" * 299 + "y", remaining=1),
                call(TWO, 1, key="x" * 299, remaining=1),
                call(TWO, 1, key="x" * 300, allowed=False),
            ),
        ],
    ),
    Scenario(
        "refund and reset of many",
        "refund: give back the newest hits; reset: forget the key",
        [
            many("check", T, call(FIVE, 5, key="a"), call(FIVE, 5, key="b")),
            many(
                "refund",
                T,
                call(FIVE, 2, key="a", allowed=True, remaining=2),
                call(FIVE, 0, key="b", allowed=False, retry_after=6 * S),
                call(FIVE, 9, key="c", allowed=True, remaining=5, reset_after=0),
                call(FIVE, 1, key="a", allowed=True, remaining=3),
            ),
            many(
                "reset",
                T,
                call(FIVE, key="a", remaining=5, reset_after=0),
                call(FIVE, key="a", remaining=5, reset_after=0),
            ),
            peek(T, FIVE, key="b", allowed=False, remaining=0),
        ],
    ),
]
