"""Prints lines per package of the package, and the change since a commit: python scripts/size.py [COMMIT]."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]


def room_of(path: str) -> str:
    """`tessera/ir/tile/passes/x.py` is in `ir/tile`; `tessera/types/dim.py` in `types`."""
    parts = PurePosixPath(path).parts[1:-1]
    return "/".join(parts[:2] if parts[:1] in (("ir",), ("backends",)) else parts[:1]) or "(facades)"


def count_lines() -> Counter[str]:
    """Lines of Python per package, as they are on disk."""
    lines: Counter[str] = Counter()
    for file in sorted((ROOT / "tessera").rglob("*.py")):
        lines[room_of(file.relative_to(ROOT).as_posix())] += len(file.read_text(encoding="utf-8").splitlines())
    return lines


def count_change(commit: str) -> Counter[str]:
    """Lines added less lines removed per package since `commit`."""
    command = ["git", "diff", "--numstat", "--no-renames", commit, "--", "tessera/*.py"]
    change: Counter[str] = Counter()
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        added, removed, path = line.split("\t")
        change[room_of(path)] += int(added) - int(removed)
    return change


def main() -> None:
    """Print the table, largest package first."""
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    lines, change = count_lines(), count_change(commit)
    for room, count in lines.most_common():
        print(f"{room:<20}{count:>8}{change[room]:>+8}")
    print(f"{'total':<20}{lines.total():>8}{change.total():>+8}   since {commit}")


if __name__ == "__main__":
    main()
