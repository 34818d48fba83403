"""The exact reference: what every implementation must answer, in plain arithmetic.

Times are integer µs since the Unix epoch, and the caller gives `now` with every call. Nothing
expires by itself: what no longer counts is told from the times alone.
"""

from __future__ import annotations

from typing import NamedTuple

from algorithms import VIEWS, State, View
from limits import Limit

CHECK, PEEK, REFUND, RESET = "check", "peek", "refund", "reset"
OPERATIONS = (CHECK, PEEK, REFUND, RESET)


class Entry(NamedTuple):
    limiter: str
    limits: tuple[Limit, ...]
    key: str
    amount: int = 1


class LimitResult(NamedTuple):
    limit: int
    remaining: int
    retry_after: int | None  # None: never
    reset_after: int


class Result(NamedTuple):
    allowed: bool
    source: str
    limit: int
    remaining: int
    retry_after: int | None
    reset_after: int
    denied_by: int | None
    limits: tuple[LimitResult, ...]


class Reference:
    """All keys of one store.

    With `forget_stale`, what no longer counts is dropped as soon as it is seen, as a store may
    do; without, it stays until overwritten. Only a clock that steps back can tell the two apart.
    """

    def __init__(self, forget_stale: bool = False) -> None:
        self.states: dict[tuple[str, int, str, str], State] = {}
        self.forget_stale = forget_stale
        self.healed = 0

    def forget(self) -> None:
        self.states.clear()

    def call(self, op: str, now: int, entries: list[Entry]) -> list[Result]:
        """The entries one after the other, as if each had come in its own call."""
        operations = {
            CHECK: self.check,
            PEEK: self.peek,
            REFUND: self.refund,
            RESET: self.reset,
        }
        return [operations[op](entry, now) for entry in entries]

    def check(self, entry: Entry, now: int) -> Result:
        cost = entry.amount
        if any(cost > limit.capacity for limit in entry.limits):
            return never_passes(entry.limits, cost)
        views = self.read_and_heal(entry, now)
        if not all(view.passes(cost) for view in views):
            return answer(entry.limits, views, cost)
        if cost > 0:
            for limit, view in zip(entry.limits, views):
                self.store(entry, limit, view.take(cost))
            views = self.read(entry, now)
        return answer(entry.limits, views, 0)

    def peek(self, entry: Entry, now: int) -> Result:
        return answer(entry.limits, self.read(entry, now), 1)

    def refund(self, entry: Entry, now: int) -> Result:
        if entry.amount > 0:
            for limit, view in zip(entry.limits, self.read_and_heal(entry, now)):
                if view.live is not None:
                    self.store(entry, limit, view.refund(entry.amount))
        return self.peek(entry, now)

    def reset(self, entry: Entry, now: int) -> Result:
        for limit in entry.limits:
            self.store(entry, limit, None)
        return self.peek(entry, now)

    def read(self, entry: Entry, now: int) -> list[View]:
        """The view of each Limit, as if healed; nothing is written."""
        return [self.view(entry, limit, now, write=False) for limit in entry.limits]

    def read_and_heal(self, entry: Entry, now: int) -> list[View]:
        return [self.view(entry, limit, now, write=True) for limit in entry.limits]

    def view(self, entry: Entry, limit: Limit, now: int, write: bool) -> View:
        algorithm = VIEWS[limit.algorithm]
        stored = self.states.get(state_key(entry, limit))
        state = None if stored is None else algorithm.heal(limit, stored, now)
        view = algorithm(limit, state, now)
        if state is not stored:
            if write:
                self.healed += 1
                self.store(entry, limit, state)
        elif self.forget_stale:
            self.store(entry, limit, view.live)
        return view

    def store(self, entry: Entry, limit: Limit, state: State | None) -> None:
        key = state_key(entry, limit)
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state


def state_key(entry: Entry, limit: Limit) -> tuple[str, int, str, str]:
    """Count and burst are no part of it: state survives their change."""
    return (limit.algorithm, limit.period_us, entry.limiter, entry.key)


def answer(limits: tuple[Limit, ...], views: list[View], cost: int) -> Result:
    """What the views say of a call of this cost."""
    details: list[LimitResult] = []
    denied_by: int | None = None
    longest_wait = 0
    for index, (limit, view) in enumerate(zip(limits, views)):
        wait = 0
        if not view.passes(cost):
            wait = view.retry_after(cost)
            if denied_by is None or wait > longest_wait:
                denied_by = index
                longest_wait = wait
        details.append(
            LimitResult(limit.capacity, view.remaining, wait, view.reset_after)
        )
    if denied_by is None:
        tightest = min(details, key=lambda detail: detail.remaining)
    else:
        tightest = details[denied_by]
    return Result(
        allowed=denied_by is None,
        source="store",
        limit=tightest.limit,
        remaining=tightest.remaining,
        retry_after=longest_wait,
        reset_after=max(detail.reset_after for detail in details),
        denied_by=denied_by,
        limits=tuple(details),
    )


def never_passes(limits: tuple[Limit, ...], cost: int) -> Result:
    """The denial that needs no store: the cost is more than some Limit ever holds."""
    details = tuple(
        LimitResult(
            limit=limit.capacity,
            remaining=limit.capacity,
            retry_after=None if cost > limit.capacity else 0,
            reset_after=0,
        )
        for limit in limits
    )
    denied_by = next(
        i for i, detail in enumerate(details) if detail.retry_after is None
    )
    capacity = limits[denied_by].capacity
    return Result(False, "limit", capacity, capacity, None, 0, denied_by, details)
