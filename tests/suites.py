"""Runs every suite of the project, one line each, and ends with a total.

The suites written in Rust are those that cargo builds, so none can be forgotten here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests" / "reference"
TEST = [os.environ.get("CARGO", "cargo"), "test"]
CARGO = [*TEST, "--workspace", "--all-features", "--exclude", "grifo-bench"]
WITHOUT_FEATURES = [*TEST, "-p", "grifo", "--lib", "--no-default-features"]
FAILURE = 101


@dataclass(frozen=True)
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
        )

    def text(self, separator: str) -> str:
        parts = [f"{self.passed} passed", f"{self.failed} failed"]
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        return separator.join(parts)


@dataclass(frozen=True)
class Suite:
    name: str
    command: list[str]
    count: Callable[[str, int], Counts]
    cwd: Path = ROOT
    env: dict[str, str] = field(default_factory=dict)
    may_be_empty: bool = True


def at_least_one_failure(counts: Counts, code: int) -> Counts:
    """A suite that crashed has failed, whatever it counted before."""
    return counts if code == 0 or counts.failed else counts + Counts(failed=1)


def count_rust(output: str, code: int) -> Counts:
    pattern = r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored"
    found = [
        Counts(*map(int, match)) for match in re.findall(pattern, output, re.MULTILINE)
    ]
    return at_least_one_failure(sum(found, Counts()), code)


def count_unittest(output: str, code: int) -> Counts:
    total = sum(map(int, re.findall(r"^Ran (\d+) tests? in", output, re.MULTILINE)))
    failed = sum(
        map(int, re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", output))
    )
    skipped = sum(map(int, re.findall(r"skipped=(\d+)", output)))
    return at_least_one_failure(
        Counts(max(total - failed - skipped, 0), failed, skipped), code
    )


def count_whole(_output: str, code: int) -> Counts:
    return Counts(passed=1) if code == 0 else Counts(failed=1)


def build() -> list[dict[str, Any]]:
    """Builds all test binaries and gives cargo's description of each."""
    command = [*CARGO, "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print("the tests do not compile\n0 passed, 1 failed")
        sys.exit(1)
    messages = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    return [
        m for m in messages if m.get("executable") and m.get("profile", {}).get("test")
    ]


def rust_suite(artifact: dict[str, Any]) -> Suite:
    target, package = artifact["target"], Path(artifact["manifest_path"]).parent
    kind = target["kind"][0]
    if kind == "test":
        name = target["name"]
    else:
        label = "bin" if kind == "bin" else "unit"
        name = f"{target['name'].replace('_', '-')}-{label}"
    return Suite(
        name,
        [artifact["executable"]],
        count_rust,
        cwd=package,
        env={"CARGO_MANIFEST_DIR": str(package)},
        may_be_empty=kind != "test",
    )


def rust_suites() -> Iterator[Suite]:
    """Unit tests first, then documentation, then the suites proper."""
    artifacts = build()
    artifacts.sort(
        key=lambda a: (
            a["target"]["kind"][0] == "test",
            a["manifest_path"],
            a["target"]["name"],
        )
    )
    units = [rust_suite(a) for a in artifacts if a["target"]["kind"][0] != "test"]
    yield from units
    yield Suite(
        "unit-without-features", WITHOUT_FEATURES, count_rust, may_be_empty=False
    )
    yield Suite("doc", [*CARGO, "--doc"], count_rust)
    yield from (rust_suite(a) for a in artifacts if a["target"]["kind"][0] == "test")


def reference_suites() -> Iterator[Suite]:
    python = os.environ.get("GRIFO_PYTHON", sys.executable)
    yield Suite(
        "reference",
        [python, "-B", "-m", "unittest"],
        count_unittest,
        cwd=REFERENCE,
        may_be_empty=False,
    )
    yield Suite(
        "vectors-up-to-date",
        [python, "-B", str(REFERENCE / "generate.py"), "--check"],
        count_whole,
    )


def run(
    command: list[str], cwd: Path, env: dict[str, str], limit: float
) -> tuple[str, int]:
    """The output and the exit code; a suite that takes too long is ended with all it started."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        return output, process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return f"{output}\nended after {limit:.0f} s\n", FAILURE
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def without_passed(output: str) -> str:
    return "\n".join(
        line
        for line in output.splitlines()
        if not re.fullmatch(r"test .* \.\.\. ok", line)
    )


def run_suite(suite: Suite, limit: float, width: int, extra: list[str]) -> Counts:
    start = time.monotonic()
    command = suite.command + (
        extra if suite.cwd != ROOT and suite.count is count_rust else []
    )
    output, code = run(command, suite.cwd, suite.env, limit)
    counts = suite.count(output, code)
    if not suite.may_be_empty and counts == Counts() and not extra:
        output, counts = output + "\nno test ran\n", Counts(failed=1)
    if counts.failed:
        print(f"--- {suite.name}\n{without_passed(output)}\n---")
    seconds = time.monotonic() - start
    print(f"{suite.name:<{width}}  {counts.text('  ')}  ({seconds:.1f} s)", flush=True)
    return counts


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", metavar="NAME", help="run only the suites whose name contains NAME"
    )
    parser.add_argument(
        "--list", action="store_true", help="build, and print the names of the suites"
    )
    parser.add_argument(
        "--limit", type=float, default=900, metavar="S", help="seconds a suite may take"
    )
    parser.add_argument(
        "arguments", nargs="*", help="passed on to the Rust suites, after --"
    )
    return parser.parse_args()


def selected(only: str | None) -> list[Suite]:
    suites = [*rust_suites(), *reference_suites()]
    chosen = [s for s in suites if only is None or only in s.name]
    if not chosen:
        sys.exit(
            f"no suite is called {only}; there are: {', '.join(s.name for s in suites)}"
        )
    return chosen


def on_terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, on_terminate)
    suites = selected(options.only)
    if options.list:
        print("\n".join(s.name for s in suites))
        return 0
    width = max(len(s.name) for s in suites)
    total = Counts()
    for suite in suites:
        total += run_suite(suite, options.limit, width, options.arguments)
    print(total.text(", "))
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
