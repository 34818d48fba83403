"""The four algorithms, each as a state that is stored and a view of it at one moment.

`heal` cuts back a stored time that is ahead of the clock; it gives back the same object when
there is nothing to cut. A view is made of a healed state (None: nothing is stored) and answers
for its Limit; `take` and `refund` give the state to store from then on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction

from limits import (
    FIXED_WINDOW,
    SLIDING_WINDOW,
    SLIDING_WINDOW_COUNTER,
    TOKEN_BUCKET,
    Limit,
)


class State:
    """What is stored for one Limit of one key."""


@dataclass(frozen=True)
class BucketState(State):
    full_at: Fraction  # ticks
    tick_us: int
    tick_units: int  # how finely a tick is divided
    reach: Fraction  # ticks: the longest time to full that the writer's Limit allows


@dataclass(frozen=True)
class WindowState(State):
    start: int
    count: int


@dataclass(frozen=True)
class CounterState(State):
    start: int
    current: int
    previous: int


@dataclass(frozen=True)
class LogState(State):
    hits: tuple[tuple[int, int], ...]  # (time, cost), oldest first
    shift: int  # how far the log's own clock is ahead
    latest: int  # that clock at the last write; it never steps back behind it


class View(ABC):
    """What one Limit says of its state now; all waits in µs."""

    #: None when nothing counts any more, even if something is still stored.
    live: State | None
    remaining: int
    reset_after: int

    @abstractmethod
    def __init__(self, limit: Limit, state: State | None, now: int) -> None: ...

    @staticmethod
    @abstractmethod
    def heal(limit: Limit, state: State, now: int) -> State: ...

    @abstractmethod
    def passes(self, cost: int) -> bool: ...

    @abstractmethod
    def retry_after(self, cost: int) -> int:
        """The wait until a cost that does not pass now would pass."""

    @abstractmethod
    def take(self, cost: int) -> State: ...

    @abstractmethod
    def refund(self, amount: int) -> State | None:
        """Only asked when `live` is not None."""


class TokenBucket(View):
    def __init__(self, limit: Limit, state: State | None, now: int) -> None:
        assert state is None or isinstance(state, BucketState)
        self.limit = limit
        self.now_t = now // limit.tick_us
        self.tick_units = limit.rate.numerator
        self.reach = limit.ticks_to_full
        self.missing_ticks = Fraction(0)
        if state is not None:
            full_at, reach = state.full_at, state.reach
            if (state.tick_us, state.tick_units) != (limit.tick_us, self.tick_units):
                full_at = self.whole_ticks(full_at, state.tick_us)
                reach = self.whole_ticks(reach, state.tick_us)
            if full_at > self.now_t:
                self.missing_ticks = full_at - self.now_t
                self.reach = max(self.reach, reach)
        self.live = state if self.missing_ticks else None
        self.missing = self.missing_ticks * limit.rate
        self.remaining = max(0, math.floor(limit.capacity - self.missing))
        self.reset_after = math.ceil(self.missing_ticks) * limit.tick_us

    def whole_ticks(self, ticks: Fraction, tick_us: int) -> Fraction:
        """Another Limit's ticks as whole ones of this: rounded up, so that no token appears."""
        return Fraction(
            math.ceil(Fraction(math.ceil(ticks) * tick_us, self.limit.tick_us))
        )

    @staticmethod
    def heal(limit: Limit, state: State, now: int) -> State:
        assert isinstance(state, BucketState)
        latest = now // state.tick_us + state.reach
        return replace(state, full_at=latest) if state.full_at > latest else state

    def passes(self, cost: int) -> bool:
        return cost == 0 or self.missing + cost <= self.limit.capacity

    def retry_after(self, cost: int) -> int:
        lacking = self.missing + cost - self.limit.capacity
        return math.ceil(lacking / self.limit.rate) * self.limit.tick_us

    def take(self, cost: int) -> State:
        return self.stored(self.missing + cost, self.limit.ticks_to_full)

    def refund(self, amount: int) -> State | None:
        missing = self.missing - min(amount, self.limit.capacity)
        # Rounded up to coarser ticks, the time may have passed the reach that was rounded up with it.
        reach = max(self.reach, missing / self.limit.rate)
        return self.stored(missing, reach) if missing > 0 else None

    def stored(self, missing: Fraction, reach: Fraction) -> BucketState:
        full_at = self.now_t + missing / self.limit.rate
        return BucketState(full_at, self.limit.tick_us, self.tick_units, reach)


class FixedWindow(View):
    def __init__(self, limit: Limit, state: State | None, now: int) -> None:
        assert state is None or isinstance(state, WindowState)
        self.limit = limit
        self.start = now - now % limit.period_us
        self.left = self.start + limit.period_us - now
        self.live = state if state is not None and state.start == self.start else None
        self.count = 0 if self.live is None else self.live.count
        self.remaining = max(0, limit.count - self.count)
        self.reset_after = self.left if self.count > 0 else 0

    @staticmethod
    def heal(limit: Limit, state: State, now: int) -> State:
        assert isinstance(state, WindowState)
        start = now - now % limit.period_us
        return replace(state, start=start) if state.start > start else state

    def passes(self, cost: int) -> bool:
        return cost == 0 or self.count + cost <= self.limit.count

    def retry_after(self, cost: int) -> int:
        return self.left

    def take(self, cost: int) -> State:
        return WindowState(self.start, self.count + cost)

    def refund(self, amount: int) -> State | None:
        count = self.count - amount
        return WindowState(self.start, count) if count > 0 else None


class SlidingWindowCounter(View):
    def __init__(self, limit: Limit, state: State | None, now: int) -> None:
        assert state is None or isinstance(state, CounterState)
        self.limit = limit
        self.start = now - now % limit.period_us
        self.period = limit.period_ticks
        self.elapsed = now // limit.tick_us - self.start // limit.tick_us
        self.current = self.previous = 0
        if state is not None and state.start == self.start:
            self.current, self.previous = state.current, state.previous
        elif state is not None and state.start == self.start - limit.period_us:
            self.previous = state.current
        self.live = state if self.current or self.previous else None

        left = self.period - self.elapsed
        #: The part of the previous window that still counts, in hits.
        self.weighted = Fraction(self.previous * left, self.period)
        self.remaining = max(0, math.floor(limit.count - self.current - self.weighted))
        ticks = left + self.period if self.current else left if self.previous else 0
        self.reset_after = ticks * limit.tick_us

    @staticmethod
    def heal(limit: Limit, state: State, now: int) -> State:
        assert isinstance(state, CounterState)
        start = now - now % limit.period_us
        return replace(state, start=start) if state.start > start else state

    def passes(self, cost: int) -> bool:
        return cost == 0 or self.weighted + self.current + cost <= self.limit.count

    def retry_after(self, cost: int) -> int:
        room = self.limit.count - cost
        if self.current <= room:
            # Within this window, once the previous one has faded enough.
            fading, room, ticks = self.previous, room - self.current, -self.elapsed
        else:
            # Only in the next window, where the current one is what fades.
            fading, ticks = self.current, self.period - self.elapsed
        # The smallest e with fading * (period - e) / period <= room.
        ticks += max(0, math.ceil(self.period - Fraction(room * self.period, fading)))
        return ticks * self.limit.tick_us

    def take(self, cost: int) -> State:
        return CounterState(self.start, self.current + cost, self.previous)

    def refund(self, amount: int) -> State | None:
        current = max(0, self.current - amount)
        if not current and not self.previous:
            return None
        return CounterState(self.start, current, self.previous)


class SlidingWindow(View):
    def __init__(self, limit: Limit, state: State | None, now: int) -> None:
        assert state is None or isinstance(state, LogState)
        self.limit = limit
        self.log_now, self.shift = now, 0
        self.counted: tuple[tuple[int, int], ...] = ()
        if state is not None:
            log_now = now + state.shift
            self.counted = tuple(
                hit for hit in state.hits if log_now - hit[0] < limit.period_us
            )
            if self.counted:
                self.log_now, self.shift = log_now, state.shift
        self.live = state if self.counted else None
        self.used = sum(cost for _, cost in self.counted)
        self.remaining = max(0, limit.count - self.used)
        self.reset_after = (
            self.expires_after(self.counted[-1][0]) if self.counted else 0
        )

    def expires_after(self, time: int) -> int:
        return time + self.limit.period_us - self.log_now

    @staticmethod
    def heal(limit: Limit, state: State, now: int) -> State:
        assert isinstance(state, LogState)
        latest = state.latest
        return (
            replace(state, shift=latest - now) if now + state.shift < latest else state
        )

    def passes(self, cost: int) -> bool:
        return cost == 0 or self.used + cost <= self.limit.count

    def retry_after(self, cost: int) -> int:
        freed = 0
        for time, hit_cost in self.counted:
            freed += hit_cost
            if self.used - freed + cost <= self.limit.count:
                return self.expires_after(time)
        raise AssertionError("a cost within the limit passes an empty log")

    def take(self, cost: int) -> State:
        hits = self.counted
        if hits and hits[-1][0] == self.log_now:
            hits, cost = hits[:-1], hits[-1][1] + cost
        return LogState((*hits, (self.log_now, cost)), self.shift, self.log_now)

    def refund(self, amount: int) -> State | None:
        hits = list(self.counted)
        while hits and amount > 0:
            time, cost = hits.pop()
            if cost > amount:
                hits.append((time, cost - amount))
            amount -= cost
        return LogState(tuple(hits), self.shift, self.log_now) if hits else None


VIEWS: dict[str, type[View]] = {
    TOKEN_BUCKET: TokenBucket,
    FIXED_WINDOW: FixedWindow,
    SLIDING_WINDOW_COUNTER: SlidingWindowCounter,
    SLIDING_WINDOW: SlidingWindow,
}
