"""Checks licences, versions and sources of all crates against .deny.toml, where cargo-deny is not installed.

Refused: a licence that is not allowed, a crate from elsewhere than the public registry or this
workspace, a dependency without a version. Two versions of one crate are reported.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = re.compile(r"^(registry|sparse)\+.*\bcrates\.io\b")


def allowed_licences(text: str) -> set[str]:
    """Without a TOML reader, which older Pythons lack: the list is simple and the file is ours."""
    section = text.split("[licenses]", 1)[1].split("\n[", 1)[0]
    listed = re.search(r"^allow\s*=\s*\[(.*?)\]", section, re.MULTILINE | re.DOTALL)
    if listed is None:
        raise ValueError(".deny.toml has no list of allowed licences")
    return set(re.findall(r'"([^"]+)"', listed.group(1)))


class Expression:
    """An SPDX expression: AND binds tighter than OR, and the old `MIT/Apache-2.0` means OR."""

    def __init__(self, text: str, allowed: set[str]) -> None:
        spaced = text.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ")
        self.words = spaced.split()
        self.allowed = allowed

    def accepted(self) -> bool:
        return self.either() and not self.words

    def next_is(self, *words: str) -> bool:
        return bool(self.words) and self.words[0] in words

    def either(self) -> bool:
        result = self.both()
        while self.next_is("OR"):
            self.words.pop(0)
            other = self.both()
            result = result or other
        return result

    def both(self) -> bool:
        result = self.single()
        while self.next_is("AND"):
            self.words.pop(0)
            other = self.single()
            result = result and other
        return result

    def single(self) -> bool:
        if not self.words:
            return False
        word = self.words.pop(0)
        if word == "(":
            result = self.either()
            return bool(self.words) and self.words.pop(0) == ")" and result
        if self.next_is("WITH") and len(self.words) > 1:
            word += f" WITH {self.words[1]}"
            del self.words[:2]
        return word in self.allowed


def packages() -> list[dict[str, Any]]:
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "metadata", "--format-version=1", "--all-features", "--locked"]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["packages"]
    return found


def problems_of(package: dict[str, Any], allowed: set[str]) -> list[str]:
    name = f"{package['name']} {package['version']}"
    found = []
    if not Expression(package["license"] or "", allowed).accepted():
        found.append(
            f"{name}: licence {package['license'] or 'unknown'} is not allowed"
        )
    if package["source"] and not REGISTRY.match(package["source"]):
        found.append(f"{name}: comes from {package['source']}")
    if not package["source"]:
        wild = [
            d["name"]
            for d in package["dependencies"]
            if d["req"] == "*" and not d.get("path")
        ]
        found += [f"{name}: {dependency} has no version" for dependency in wild]
    return found


def report_duplicates(all_packages: list[dict[str, Any]]) -> None:
    versions: dict[str, set[str]] = defaultdict(set)
    for package in all_packages:
        versions[package["name"]].add(package["version"])
    for name, several in sorted(versions.items()):
        if len(several) > 1:
            print(f"note: {name} is there in versions {', '.join(sorted(several))}")


def main() -> int:
    allowed = allowed_licences((ROOT / ".deny.toml").read_text())
    all_packages = packages()
    problems = [
        problem for package in all_packages for problem in problems_of(package, allowed)
    ]
    report_duplicates(all_packages)
    print(
        "\n".join(problems)
        or f"licences, versions and sources of {len(all_packages)} crates are fine"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
