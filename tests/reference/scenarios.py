"""All hand-written scenarios, by the vector file they go to."""

from __future__ import annotations

from scenario import Scenario
from scenarios_bucket import TOKEN_BUCKET
from scenarios_changes import CLOCK_BACK, LIMIT_CHANGE
from scenarios_cost import COST_EDGES
from scenarios_refund import REFUND_RESET
from scenarios_sets import MANY_KEYS, SEVERAL_LIMITS
from scenarios_windows import FIXED_WINDOW, SLIDING_WINDOW, SLIDING_WINDOW_COUNTER

SCENARIOS: dict[str, list[Scenario]] = {
    "token_bucket": TOKEN_BUCKET,
    "fixed_window": FIXED_WINDOW,
    "sliding_window": SLIDING_WINDOW,
    "sliding_window_counter": SLIDING_WINDOW_COUNTER,
    "several_limits": SEVERAL_LIMITS,
    "refund_reset": REFUND_RESET,
    "limit_change": LIMIT_CHANGE,
    "clock_back": CLOCK_BACK,
    "many_keys": MANY_KEYS,
    "cost_edges": COST_EDGES,
}
