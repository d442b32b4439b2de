"""Prints files, code lines and comments per package against their budgets: python scripts/size.py [COMMIT | --budgets].

A code line is neither blank nor comment nor docstring. The budget of a package is in `scripts/budgets.toml`; a change
that outgrows one raises it there, and says why in its message.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
BUDGETS = ROOT / "scripts" / "budgets.toml"
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


@dataclass
class Size:
    """How much a package holds."""

    files: int = 0
    code: int = 0
    comments: int = 0


def package_of(path: str) -> str:
    """`tessera/ir/tile/passes/x.py` is in `ir/tile`; `tessera/types/dim.py` in `types`."""
    parts = PurePosixPath(path).parts[1:-1]
    return "/".join(parts[:2] if parts[:1] in (("ir",), ("backends",)) else parts[:1]) or "facades"


def docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of strings that stand alone: docstrings of modules, classes, functions and values."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def measure(text: str) -> Size:
    """The size of one file."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return Size(1, len(code - docstring_lines(ast.parse(text))), len(comments))


def measure_all(texts: Mapping[str, str]) -> dict[str, Size]:
    """The size of every package, from the text of each file by its path."""
    found: dict[str, Size] = {}
    for path, text in texts.items():
        one, package = measure(text), found.setdefault(package_of(path), Size())
        package.files += one.files
        package.code += one.code
        package.comments += one.comments
    return found


def read_tree() -> dict[str, str]:
    """Every file of the package on disk."""
    files = sorted((ROOT / "tessera").rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def read_commit(commit: str) -> dict[str, str]:
    """Every file of the package as it was at a commit."""
    paths = [
        path for path in _git("ls-tree", "-r", "--name-only", commit, "tessera").splitlines() if path[-3:] == ".py"
    ]
    return {path: _git("show", f"{commit}:{path}") for path in paths}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def budgets() -> dict[str, int]:
    """Code lines that each package may have."""
    return tomllib.loads(BUDGETS.read_text(encoding="utf-8"))["code_lines"]


def write_budgets(sizes: Mapping[str, Size]) -> None:
    """Set the budget of every package by its size today; the comments above the table stay."""
    opening = BUDGETS.read_text(encoding="utf-8").split("[code_lines]")[0]
    rows = [f'"{package}" = {with_headroom(one.code)}\n' for package, one in sorted(sizes.items())]
    BUDGETS.write_text(f"{opening}[code_lines]\n{''.join(rows)}", encoding="utf-8")


def with_headroom(code: int) -> int:
    """A budget for a package of this size: 2 % more, in steps of 50, so that a small change need not touch it."""
    return -(-code * 102 // 5000) * 50


def total(sizes: Iterable[Size]) -> Size:
    """All packages together."""
    found = list(sizes)
    return Size(sum(s.files for s in found), sum(s.code for s in found), sum(s.comments for s in found))


def main() -> None:
    """Print the table, largest package first; with a commit, how code lines changed since; or set budgets anew."""
    now = measure_all(read_tree())
    if sys.argv[1:] == ["--budgets"]:
        write_budgets(now)
        return
    allowed = budgets()
    before = measure_all(read_commit(sys.argv[1])) if len(sys.argv) > 1 else None
    print(f"{'package':<20}{'files':>7}{'code':>8}{'budget':>8}{'comments':>10}" + ("  change" if before else ""))
    rows = sorted(now.items(), key=lambda row: -row[1].code)
    for package, size in [*rows, ("total", total(now.values()))]:
        limit = sum(allowed.values()) if package == "total" else allowed.get(package, 0)
        line = f"{package:<20}{size.files:>7}{size.code:>8}{limit:>8}{size.comments / max(size.code, 1):>10.1%}"
        if before is not None:
            old = total(before.values()) if package == "total" else before.get(package, Size())
            line += f"{size.code - old.code:>+8}"
        print(line)


if __name__ == "__main__":
    main()
