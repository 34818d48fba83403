"""Answers JSON requests, one a line, from the exact reference.

{"op": "check|peek|refund|reset", "now": µs, "calls": [{"limiter", "limits", "key", "amount"}]}
gives {"results": [...]}; {"op": "forget"} clears everything; {"batch": [request, ...]} gives
{"batch": [answer, ...]}. A request that cannot be served gives {"error": kind, "message": text}.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Any

from limits import InvalidLimit, Limit, parse_limits
from reference import OPERATIONS, Entry, Reference, Result


@lru_cache(maxsize=100_000)
def limits_of(text: str) -> tuple[Limit, ...]:
    return parse_limits(text)


def entry_of(call: dict[str, Any]) -> Entry:
    amount = call.get("amount", 1)
    if not isinstance(amount, int) or amount < 0:
        raise ValueError(f"the amount must be an unsigned integer, got {amount!r}")
    return Entry(call["limiter"], limits_of(call["limits"]), call["key"], amount)


def result_json(result: Result) -> dict[str, Any]:
    fields = result._asdict()
    fields["limits"] = [detail._asdict() for detail in result.limits]
    return fields


def serve(reference: Reference, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "batch" in request:
            return {"batch": [serve(reference, each) for each in request["batch"]]}
        op = request["op"]
        if op == "forget":
            reference.forget()
            return {"results": []}
        if op not in OPERATIONS:
            raise ValueError(f"unknown op {op!r}")
        entries: list[Entry] = [entry_of(call) for call in request["calls"]]
        results = reference.call(op, request["now"], entries)
        return {"results": [result_json(result) for result in results]}
    except InvalidLimit as error:
        return {"error": "InvalidLimit", "message": str(error)}
    except (KeyError, TypeError, ValueError) as error:
        return {"error": "BadRequest", "message": repr(error)}


def main() -> None:
    reference = Reference()
    for line in sys.stdin:
        try:
            answer = serve(reference, json.loads(line))
        except json.JSONDecodeError as error:
            answer = {"error": "BadRequest", "message": str(error)}
        sys.stdout.write(json.dumps(answer, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
