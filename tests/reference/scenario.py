"""How a hand-written scenario is told: steps, and the numbers worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

US = 1
MS = 1_000
S = 1_000 * MS
MIN = 60 * S
H = 60 * MIN
D = 24 * H

#: A whole second, minute, quarter and hour since the epoch, and 8:00 of its UTC day.
T = 1_800_000_000_000_000

#: What "never" is in JSON.
NEVER = None


@dataclass(frozen=True)
class Call:
    """One entry of a step and what must be answered, as far as it matters here.

    What is expected of each of the Limits is called `each` when told.
    """

    limits: str
    amount: int
    key: str
    limiter: str
    expected: dict[str, Any]


@dataclass(frozen=True)
class Step:
    op: str
    now: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Scenario:
    name: str
    says: str
    steps: list[Step] = field(default_factory=list)


def call(
    limits: str, amount: int = 1, key: str = "k", limiter: str = "api", **expected: Any
) -> Call:
    if "each" in expected:
        expected["limits"] = expected.pop("each")
    return Call(limits, amount, key, limiter, expected)


def many(op: str, now: int, *calls: Call) -> Step:
    return Step(op, now, calls)


def check(now: int, limits: str, cost: int = 1, **rest: Any) -> Step:
    return many("check", now, call(limits, cost, **rest))


def passes(now: int, limits: str, cost: int = 1, **rest: Any) -> Step:
    """A check that is allowed by the store."""
    allowed = {"allowed": True, "retry_after": 0, "denied_by": None, "source": "store"}
    return check(now, limits, cost, **allowed, **rest)


def denied(
    now: int, limits: str, cost: int = 1, *, retry_after: int, **rest: Any
) -> Step:
    """A check that is denied by the store."""
    rest.setdefault("denied_by", 0)
    return check(
        now,
        limits,
        cost,
        allowed=False,
        source="store",
        retry_after=retry_after,
        **rest,
    )


def peek(now: int, limits: str, **rest: Any) -> Step:
    return many("peek", now, call(limits, 1, **rest))


def refund(now: int, limits: str, amount: int, **rest: Any) -> Step:
    return many("refund", now, call(limits, amount, **rest))


def reset(now: int, limits: str, **rest: Any) -> Step:
    return many("reset", now, call(limits, 1, **rest))
