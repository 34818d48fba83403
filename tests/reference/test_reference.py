"""Properties of the reference that the contract promises, checked without a store."""

from __future__ import annotations

import random
import unittest
from fractions import Fraction

from limits import FIXED_WINDOW, TOKEN_BUCKET, Limit, parse_limits
from random_scenarios import FAMILIES
from reference import (
    CHECK,
    PEEK,
    REFUND,
    RESET,
    Entry,
    LimitResult,
    Reference,
    Result,
)
from scenario import MS, D, H, S, T
from serve import serve

SINGLE = [
    text
    for family in FAMILIES
    for text in family
    if "+" not in text and parse_limits(text)[0].capacity < 2**40
]


def one(
    reference: Reference,
    op: str,
    now: int,
    limits: tuple[Limit, ...] | str,
    amount: int = 1,
) -> Result:
    if isinstance(limits, str):
        limits = parse_limits(limits)
    return reference.call(op, now, [Entry("api", limits, "k", amount)])[0]


def copy_of(reference: Reference) -> Reference:
    copy = Reference()
    copy.states = dict(reference.states)
    return copy


def random_cost(rng: random.Random, limits: tuple[Limit, ...]) -> int:
    largest = min(limit.capacity for limit in limits)
    return min(largest, rng.choice([0, 1, 1, 1, 2, largest, rng.randint(0, largest)]))


def random_step(rng: random.Random, limits: tuple[Limit, ...]) -> int:
    limit = rng.choice(limits)
    per_token = max(1, limit.period_us // limit.count)
    return rng.choice([0, 0, 1, per_token, rng.randint(0, limit.period_us)])


class Waits(unittest.TestCase):
    """retry_after and reset_after are the truth, whatever the state."""

    def wander(self, rng: random.Random, family: list[str]) -> None:
        reference, now = Reference(), T + rng.randint(-D, D)
        for _ in range(60):
            limits = parse_limits(rng.choice(family))
            now += random_step(rng, limits)
            if rng.random() < 0.05:
                now -= rng.choice([1, MS, S, H, 3 * D])
            op = rng.choice([CHECK] * 6 + [REFUND])
            cost = random_cost(rng, limits)
            result = one(reference, op, now, limits, cost)
            self.check_numbers(limits, result)
            if op == REFUND and cost == 0:
                # As good as a peek: it heals nothing, so its waits hold as from a check.
                one(reference, CHECK, now, limits, 0)
            self.check_waits(reference, now, limits, cost if op == CHECK else 1, result)

    def check_numbers(self, limits: tuple[Limit, ...], result: Result) -> None:
        for limit, detail in zip(limits, result.limits):
            self.assertEqual(detail.limit, limit.capacity)
            self.assertTrue(0 <= detail.remaining <= limit.capacity)
            self.assertGreaterEqual(detail.reset_after, 0)
            for wait in (detail.retry_after, detail.reset_after):
                assert wait is not None
                self.assertEqual(wait % limit.tick_us, 0)

    def check_waits(
        self,
        reference: Reference,
        now: int,
        limits: tuple[Limit, ...],
        cost: int,
        result: Result,
    ) -> None:
        for limit, detail in zip(limits, result.limits):
            alone = (limit,)
            wait = detail.retry_after
            if wait:
                early = one(
                    copy_of(reference), CHECK, now + wait - limit.tick_us, alone, cost
                )
                self.assertFalse(early.allowed)
                late = one(copy_of(reference), CHECK, now + wait, alone, cost)
                self.assertTrue(late.allowed)
            if detail.reset_after:
                done = now + detail.reset_after
                early = one(reference, PEEK, done - limit.tick_us, alone)
                self.assertGreater(early.reset_after, 0)
                fresh = one(reference, PEEK, done, alone)
                self.assertEqual(fresh.reset_after, 0)
                self.assertEqual(fresh.remaining, limit.capacity)
        if not result.allowed:
            assert result.retry_after is not None and result.denied_by is not None
            then = now + result.retry_after
            self.assertTrue(one(copy_of(reference), CHECK, then, limits, cost).allowed)
            tick = limits[result.denied_by].tick_us
            early = one(copy_of(reference), CHECK, then - tick, limits, cost)
            self.assertFalse(early.allowed)

    def test_waits_are_exact(self) -> None:
        rng = random.Random(1)
        for family in FAMILIES:
            for _ in range(6):
                self.wander(rng, family)

    def test_a_cost_that_never_passes_touches_nothing(self) -> None:
        reference = Reference()
        one(reference, CHECK, T, "10/min burst 5 + fixed-window 9/s", 3)
        before = dict(reference.states)
        result = one(reference, CHECK, T, "10/min burst 5 + fixed-window 9/s", 6)
        self.assertEqual(reference.states, before)
        self.assertEqual((result.source, result.retry_after), ("limit", None))
        self.assertEqual(result.limits[1], LimitResult(9, 9, 0, 0))


class Remaining(unittest.TestCase):
    def test_peek_r_means_r_unit_checks(self) -> None:
        rng = random.Random(2)
        for family in FAMILIES:
            reference, now = Reference(), T
            for _ in range(60):
                limits = parse_limits(rng.choice(family))
                now += random_step(rng, limits)
                one(reference, CHECK, now, limits, random_cost(rng, limits))
                limits = parse_limits(rng.choice(family))
                seen = one(reference, PEEK, now, limits)
                self.assertEqual(seen.allowed, seen.remaining > 0)
                if seen.remaining > 30:
                    continue
                copy = copy_of(reference)
                for left in range(seen.remaining - 1, -1, -1):
                    taken = one(copy, CHECK, now, limits)
                    self.assertEqual((taken.allowed, taken.remaining), (True, left))
                self.assertFalse(one(copy, CHECK, now, limits).allowed)


class Admitted(unittest.TestCase):
    """Brute-force counts of what was let through, from the definitions alone."""

    def admitted(self, rng: random.Random, text: str) -> list[tuple[int, int]]:
        reference, now = Reference(), T + rng.randint(0, D)
        limits = parse_limits(text)
        hits = []
        for _ in range(150):
            result = one(
                reference, CHECK, now, limits, cost := random_cost(rng, limits)
            )
            if result.allowed and cost:
                hits.append((now, cost))
            now += rng.choice([0, 1, random_step(rng, limits) // 3])
            if result.retry_after and rng.random() < 0.6:
                now += result.retry_after
        self.assertEqual(reference.healed, 0)
        return hits

    def test_sliding_window(self) -> None:
        rng = random.Random(3)
        for text in [text for text in SINGLE if text.startswith("sliding-window ")]:
            limit = parse_limits(text)[0]
            for _ in range(5):
                hits = self.admitted(rng, text)
                for end, _ in hits:
                    inside = [c for t, c in hits if end - limit.period_us < t <= end]
                    self.assertLessEqual(sum(inside), limit.count)

    def test_token_bucket(self) -> None:
        rng = random.Random(4)
        buckets = [t for t in SINGLE if parse_limits(t)[0].algorithm == TOKEN_BUCKET]
        for text in buckets:
            limit = parse_limits(text)[0]
            hits = self.admitted(rng, text)
            for first, (start, _) in enumerate(hits):
                total = 0
                for end, cost in hits[first:]:
                    total += cost
                    ticks = end // limit.tick_us - start // limit.tick_us
                    refilled = Fraction(limit.count * ticks, limit.period_ticks)
                    self.assertLessEqual(total, limit.capacity + refilled)

    def test_fixed_window(self) -> None:
        rng = random.Random(5)
        windows = [t for t in SINGLE if parse_limits(t)[0].algorithm == FIXED_WINDOW]
        for text in windows:
            limit = parse_limits(text)[0]
            used: dict[int, int] = {}
            for time, cost in self.admitted(rng, text):
                window = time // limit.period_us
                used[window] = used.get(window, 0) + cost
            self.assertLessEqual(max(used.values()), limit.count)

    def test_sliding_window_counter(self) -> None:
        rng = random.Random(6)
        for text in [t for t in SINGLE if t.startswith("sliding-window-counter ")]:
            limit = parse_limits(text)[0]
            period = limit.period_ticks
            for _ in range(5):
                used: dict[int, int] = {}
                for time, cost in self.admitted(rng, text):
                    window, elapsed = divmod(time // limit.tick_us, period)
                    before = Fraction(
                        used.get(window - 1, 0) * (period - elapsed), period
                    )
                    used[window] = used.get(window, 0) + cost
                    self.assertLessEqual(before + used[window], limit.count)

    def test_nothing_is_denied_that_fits(self) -> None:
        """One tick after the last token is back, the whole capacity passes at once."""
        for text in SINGLE:
            reference, limit = Reference(), parse_limits(text)[0]
            taken = one(reference, CHECK, T, text, limit.capacity)
            self.assertEqual((taken.allowed, taken.remaining), (True, 0))
            again = one(reference, CHECK, T + taken.reset_after, text, limit.capacity)
            self.assertEqual((again.allowed, again.remaining), (True, 0))


class Changes(unittest.TestCase):
    """A token bucket whose rate and burst change all the time."""

    def test_no_token_appears(self) -> None:
        rng = random.Random(7)
        families = [
            family
            for family in FAMILIES
            if all(
                "+" not in text and parse_limits(text)[0].algorithm == TOKEN_BUCKET
                for text in family
            )
        ]
        self.assertGreater(len(families), 4)
        for family in families * 5:
            self.alternate(rng, [parse_limits(text)[0] for text in family])

    def alternate(self, rng: random.Random, limits: list[Limit]) -> None:
        """Counted in time to full, no run of calls takes more than the largest bucket."""
        reference, now = Reference(), T
        largest = max(limit.ticks_to_full * limit.tick_us for limit in limits)
        taken: list[tuple[int, Fraction]] = []
        for _ in range(80):
            limit = rng.choice(limits)
            cost = random_cost(rng, (limit,))
            before = [one(reference, PEEK, now, (each,)) for each in limits]
            result = one(reference, CHECK, now, (limit,), cost)
            after = [one(reference, PEEK, now, (each,)) for each in limits]
            if result.allowed and cost:
                taken.append((now, cost / limit.rate * limit.tick_us))
                for was, now_is in zip(before, after):
                    self.assertLessEqual(now_is.remaining, was.remaining)
                    self.assertGreaterEqual(now_is.reset_after, was.reset_after)
            else:
                self.assertEqual(before, after)
            now += random_step(rng, (limit,)) // rng.choice([1, 5])
        self.assertEqual(reference.healed, 0)
        coarsest = max(limit.tick_us for limit in limits)
        for first, (start, _) in enumerate(taken):
            total = Fraction(0)
            for end, length in taken[first:]:
                total += length
                self.assertLess(total, largest + end - start + coarsest)

    def test_windows_keep_what_was_counted(self) -> None:
        for name in ("fixed-window", "sliding-window", "sliding-window-counter"):
            reference = Reference()
            one(reference, CHECK, T, f"{name} 10/min", 8)
            for count, left in ((5, 0), (8, 0), (10, 2), (20, 12), (1, 0), (10, 2)):
                seen = one(reference, PEEK, T, f"{name} {count}/min")
                self.assertEqual((seen.limit, seen.remaining), (count, left))


class Refunds(unittest.TestCase):
    def test_never_above_full_and_never_more_than_given(self) -> None:
        rng = random.Random(8)
        for text in SINGLE * 2:
            reference, now = Reference(), T
            limits = parse_limits(text)
            for _ in range(40):
                now += random_step(rng, limits)
                one(reference, CHECK, now, limits, random_cost(rng, limits))
                before = one(reference, PEEK, now, limits)
                stored = set(reference.states)
                amount = random_cost(rng, limits) * rng.choice([0, 1, 3])
                after = one(reference, REFUND, now, limits, amount)
                self.assertEqual(after, one(reference, PEEK, now, limits))
                self.assertLessEqual(set(reference.states), stored)
                self.assertLessEqual(after.remaining, limits[0].capacity)
                self.assertGreaterEqual(after.remaining, before.remaining)
                self.assertLessEqual(after.remaining, before.remaining + amount)

    def test_reset_is_as_new(self) -> None:
        for text in SINGLE:
            reference, limit = Reference(), parse_limits(text)[0]
            one(reference, CHECK, T, text, limit.capacity)
            after = one(reference, RESET, T, text)
            self.assertEqual((after.remaining, after.reset_after), (limit.capacity, 0))
            self.assertEqual(reference.states, {})


class ClockBack(unittest.TestCase):
    def test_no_token_and_no_long_lock(self) -> None:
        rng = random.Random(9)
        for text in SINGLE * 3:
            reference, limit = Reference(), parse_limits(text)[0]
            one(reference, CHECK, T, text, limit.capacity)
            back = T - rng.choice([1, limit.period_us, rng.randint(1, 99 * D), 99 * D])
            first = one(reference, CHECK, back, text)
            self.assertFalse(first.allowed)
            longest = {
                "token-bucket": -(-limit.capacity * limit.period_us // limit.count),
                "sliding-window-counter": 2 * limit.period_us,
            }.get(limit.algorithm, limit.period_us)
            self.assertLess(first.reset_after, longest + limit.tick_us + 1)
            later = one(reference, PEEK, back + first.reset_after, text)
            self.assertEqual((later.remaining, later.reset_after), (limit.capacity, 0))


class Serving(unittest.TestCase):
    def test_batches_and_errors(self) -> None:
        call = {"limiter": "api", "limits": "1/s", "key": "k", "amount": 1}
        check = {"op": "check", "now": T, "calls": [call, call]}
        reference = Reference()
        answers = serve(reference, {"batch": [check, {"op": "forget"}, check]})["batch"]
        self.assertEqual([r["allowed"] for r in answers[0]["results"]], [True, False])
        self.assertEqual(answers[1], {"results": []})
        self.assertEqual(answers[2], answers[0])
        bad = {**check, "calls": [{**call, "limits": "1/m"}]}
        self.assertEqual(serve(reference, bad)["error"], "InvalidLimit")
        self.assertEqual(serve(reference, {"op": "take"})["error"], "BadRequest")


if __name__ == "__main__":
    unittest.main()
