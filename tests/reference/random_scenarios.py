"""Seeded random requests that look for trouble: edges, odd rates, changes, stepping clocks."""

from __future__ import annotations

import random
from typing import Any

from reference import Reference
from scenario import MIN, MS, D, H, S, T
from serve import serve

SEED = 20270115
SCENARIOS = 150
STEPS = 20

#: Limits that share their state with the others of their family.
FAMILIES: list[list[str]] = [
    ["10/min burst 5", "10/min burst 12", "25/min burst 3", "7/min", "10/min burst 1"],
    ["3/s", "10/s", "7/s burst 2", "1/s burst 9"],
    ["7/30d", "7/30d burst 2", "11/30d burst 20"],
    ["999983/h", "999983/h burst 3000000", "1000/h", "999983/h burst 10"],
    ["999983/d burst 100000000", "1000/d", "999983/d burst 5"],
    ["1/250ms", "1/250ms burst 3", "4/250ms"],
    ["1/s", "1/s burst 2"],
    ["fixed-window 3/s", "fixed-window 5/s", "fixed-window 1/s"],
    ["fixed-window 100/15min", "fixed-window 40/15min"],
    ["fixed-window 9007199254740991/d", "fixed-window 5/d"],
    ["sliding-window 3/s", "sliding-window 8/s", "sliding-window 1/s"],
    ["sliding-window 10/min", "sliding-window 4/min"],
    ["sliding-window 1/250ms"],
    ["sliding-window-counter 10/min", "sliding-window-counter 4/min"],
    ["sliding-window-counter 7/30d", "sliding-window-counter 3/30d"],
    ["sliding-window-counter 1/s", "sliding-window-counter 5/s"],
    ["sliding-window-counter 1000000/d", "sliding-window-counter 999983/d"],
    ["10/s + 100/min", "100/min + 10/s burst 4", "10/s"],
    [
        "fixed-window 5/s + sliding-window 9/min",
        "sliding-window 9/min",
        "fixed-window 3/s + sliding-window 4/min",
    ],
    [
        "7/s + sliding-window 7/s + sliding-window-counter 7/s + fixed-window 7/s",
        "fixed-window 4/s + 9/s burst 5 + sliding-window-counter 6/s",
        "sliding-window 3/s + 7/s burst 20",
    ],
    [
        "sliding-window-counter 12/min + 3/s burst 6",
        "3/s + sliding-window-counter 8/min",
    ],
]

KEYS = ["a", "b", "user:42", "{x}", "ñandú"]
EDGES = [S, MIN, 15 * MIN, H, D, 30 * D]


class Scene:
    """One scenario in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.texts = rng.choice(FAMILIES)
        self.others = rng.choice(FAMILIES)
        self.keys = KEYS[: rng.choice([1, 1, 2, 5])]
        self.now = T + rng.choice([0, 1, -1, rng.randint(-40 * D, 40 * D)])
        self.waits = [1]
        self.capacities = [1]
        self.back = rng.random() < 0.4

    def move_clock(self) -> int:
        rng, now = self.rng, self.now
        kind = rng.randint(0, 12)
        if kind <= 4:
            return now
        if kind <= 6:
            return now + rng.choice(self.waits) + rng.choice([0, 0, -1, 1])
        if kind == 7:
            edge = rng.choice(EDGES)
            return now - now % edge + edge + rng.choice([-1, 0, 1])
        if kind >= 11 and self.back:
            return now - rng.choice([1, 7, MS, S, 61 * S, H, 2 * D, 70 * D])
        if kind == 8:
            return now + rng.randint(0, 3 * rng.choice(self.waits))
        return now + rng.choice([1, 9, MS, 333_333, S, 10 * S])

    def amount(self) -> int:
        rng = self.rng
        largest = rng.choice(self.capacities)
        return rng.choice(
            [
                0,
                1,
                1,
                1,
                1,
                2,
                3,
                largest,
                rng.randint(0, largest + 1),
            ]
        )

    def request(self, now: int) -> dict[str, Any]:
        rng = self.rng
        op = rng.choice(["check"] * 8 + ["peek", "refund"])
        if rng.random() < 0.03:
            op = "reset"
        entries = rng.choice([1, 1, 1, 1, 2, 4])
        calls = []
        for _ in range(entries):
            texts = self.others if rng.random() < 0.1 else self.texts
            text = texts[0] if rng.random() < 0.6 else rng.choice(texts)
            calls.append(
                {
                    "limiter": "api" if rng.random() < 0.95 else "login",
                    "limits": text,
                    "key": rng.choice(self.keys),
                    "amount": self.amount() if op in ("check", "refund") else 1,
                }
            )
        return {"op": op, "now": now, "calls": calls}

    def learn(self, answer: dict[str, Any]) -> None:
        """Aim the next steps at the moments and amounts where answers change."""
        for result in answer["results"]:
            self.waits.append(result["retry_after"] or 1)
            for detail in result["limits"]:
                self.waits.append(detail["reset_after"] or 1)
                self.capacities.append(detail["limit"])
                self.capacities.append(detail["remaining"])
        self.waits = self.waits[-6:]
        self.capacities = self.capacities[-6:]


def make_scenario(rng: random.Random, number: int) -> dict[str, Any]:
    scene = Scene(rng)
    keeping, forgetting = Reference(), Reference(forget_stale=True)
    steps: list[dict[str, Any]] = []
    while len(steps) < STEPS:
        now = scene.move_clock()
        request = scene.request(now)
        before = dict(keeping.states), dict(forgetting.states)
        answer = serve(keeping, request)
        if answer != serve(forgetting, request):
            # Whether a store still has what no longer counts is its own affair, so nothing may
            # be asked that would tell.
            keeping.states, forgetting.states = before
            continue
        scene.now = now
        scene.learn(answer)
        steps.append({**request, "results": answer["results"]})
    return {
        "name": f"random {number}",
        "says": "every implementation decides alike",
        "steps": steps,
    }


def random_scenarios() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    return [make_scenario(rng, number) for number in range(SCENARIOS)]
