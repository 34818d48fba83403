"""Writes tests/vectors/*.json; with --check only tells whether they are up to date.

Every number worked out by hand in the scenarios is compared with what the reference answers, and
nothing is written when they disagree.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from limit_texts import ACCEPTED, REFUSED
from limits import TOKEN_BUCKET, InvalidLimit, parse_limits
from random_scenarios import random_scenarios
from reference import Reference
from scenario import Scenario
from scenarios import SCENARIOS
from serve import serve

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
GENERATED_BY = "tests/reference/generate.py; do not edit"


class Disagreement(Exception):
    """The reference does not answer what was worked out by hand."""


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def compare(where: str, expected: Any, answered: Any) -> None:
    """Every expected field must be answered so; fields that are left out do not matter."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            compare(f"{where}.{name}", value, answered[name])
    elif isinstance(expected, list):
        if len(expected) != len(answered):
            raise Disagreement(f"{where}: {len(answered)} answers")
        for index, value in enumerate(expected):
            compare(f"{where}[{index}]", value, answered[index])
    elif expected != answered or type(expected) is not type(answered):
        raise Disagreement(f"{where}: by hand {expected!r}, reference {answered!r}")


def play(scenario: Scenario) -> dict[str, Any]:
    """The scenario with the reference's answers, which agree with those made by hand."""
    reference = Reference()
    steps = []
    for number, step in enumerate(scenario.steps, start=1):
        calls = [
            {
                "limiter": call.limiter,
                "limits": call.limits,
                "key": call.key,
                "amount": call.amount,
            }
            for call in step.calls
        ]
        request = {"op": step.op, "now": step.now, "calls": calls}
        answer = serve(reference, request)
        where = f"{scenario.name!r}, step {number}"
        if "error" in answer:
            raise Disagreement(f"{where}: {answer['message']}")
        compare(where, [call.expected for call in step.calls], answer["results"])
        steps.append({**request, "results": answer["results"]})
    return {"name": scenario.name, "says": scenario.says, "steps": steps}


def limit_texts() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for text, meanings in ACCEPTED:
        parsed = [
            {
                "algorithm": limit.algorithm,
                "count": limit.count,
                "period_us": limit.period_us,
                "burst": limit.burst,
            }
            for limit in parse_limits(text)
        ]
        compare(repr(text), [asdict(meaning) for meaning in meanings], parsed)
        for limit in parsed:
            if limit["algorithm"] != TOKEN_BUCKET:
                del limit["burst"]
        rows.append({"text": text, "limits": parsed})
    for text in REFUSED:
        try:
            parse_limits(text)
        except InvalidLimit:
            rows.append({"text": text, "error": "InvalidLimit"})
        else:
            raise Disagreement(f"{text!r} should be refused")
    return rows


def scenarios_text(scenarios: list[dict[str, Any]]) -> str:
    """One step a line, so that a difference can be read."""
    parts = []
    for scenario in scenarios:
        steps = ",\n".join(compact(step) for step in scenario["steps"])
        name, says = compact(scenario["name"]), compact(scenario["says"])
        parts.append(f'{{"name":{name},\n"says":{says},\n"steps":[\n{steps}\n]}}')
    return file_text("scenarios", parts)


def file_text(name: str, rows: list[str]) -> str:
    body = ",\n".join(rows)
    return f'{{"generated_by":{compact(GENERATED_BY)},\n"{name}":[\n{body}\n]}}\n'


def vectors() -> dict[str, str]:
    """The text of each file."""
    files = {"limit_text.json": file_text("texts", [compact(r) for r in limit_texts()])}
    for theme, scenarios in SCENARIOS.items():
        files[f"{theme}.json"] = scenarios_text([play(each) for each in scenarios])
    files["generated.json"] = scenarios_text(random_scenarios())
    return files


def stale(files: dict[str, str]) -> list[str]:
    """The files that are missing or not as they should be."""
    names = []
    for name, text in files.items():
        path = VECTORS / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            names.append(name)
    return names


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: generate.py [--check]", file=sys.stderr)
        return 2
    try:
        files = vectors()
    except Disagreement as error:
        print(f"the reference disagrees: {error}", file=sys.stderr)
        return 1
    out_of_date = stale(files)
    if arguments == ["--check"]:
        for name in out_of_date:
            print(
                f"tests/vectors/{name} is out of date: run "
                "python3 tests/reference/generate.py",
                file=sys.stderr,
            )
        return 1 if out_of_date else 0
    VECTORS.mkdir(exist_ok=True)
    for name in out_of_date:
        (VECTORS / name).write_bytes(files[name].encode("utf-8"))
        print(f"wrote tests/vectors/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
