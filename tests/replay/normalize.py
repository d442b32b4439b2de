"""LLVM text without its names: what is left is equal for two texts exactly when they are the same code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

_WORD = r"[-a-zA-Z$._0-9]+"
_TOKEN = re.compile(rf'(%{_WORD}|@{_WORD}|"[^"]*"|%"[^"]*"|@"[^"]*"|;[^\n]*|\n{_WORD}:)')
"""Names, strings, comments and labels; each alternative begins with a character of its own, which makes it fast."""
_ABI = re.compile(r"@(?:llvm\.|_?Py[A-Z_]|cu[A-Z]|(?:mem(?:cpy|set|move|cmp)|malloc|free|abort|__nv_\w+)$)")
"""Names that others gave: intrinsics, the C interface of Python, the driver's, the C library's."""

_SYMBOL = re.compile(r'@"?([-a-zA-Z$._0-9]+)')
_BYTES = re.compile(r"\[\d+ x i8\] \[(i8 \d+(?:, i8 \d+)*)\]")
"""A table of bytes: a driver finds kernels by their names."""


class _Names(dict[str, str]):
    """What each token becomes: names are numbered in the order of their first appearance, all else stays.

    Symbols of a program are shared by its texts; the names inside of a function are its own.
    """

    def __init__(self, symbols: dict[str, str]) -> None:
        self.symbols = symbols
        self.locals: dict[str, str] = {}

    def __missing__(self, token: str) -> str:
        self[token] = made = self._renamed(token)
        return made

    def _renamed(self, token: str) -> str:
        if token[0] == "%":
            return self.locals.setdefault(token, f"%{len(self.locals)}")
        if token[0] == "@":
            return token if _ABI.match(token) else self.symbols.setdefault(token, f"@{len(self.symbols)}")
        if token[0] == ";":
            return ""
        if token[0] == "\n":
            return f"\n{self[f'%{token[1:-1]}'][1:]}:"
        return token


def normalize(texts: Sequence[str]) -> str:
    """The texts of one program, host and kernels, as one text in which only numbers stand for names."""
    symbols: dict[str, str] = {}
    found: list[str] = []
    known = {name for text in texts for name in _SYMBOL.findall(text)}
    for text in texts:
        for part in re.split(r"\n}.*\n", _BYTES.sub(lambda table: _named(table, known), text)):
            tokens = _TOKEN.split(part)
            names = _Names(symbols)
            tokens[1::2] = [names[token] for token in tokens[1::2]]
            found.append("".join(tokens))
    lines = (line.rstrip() for part in found for line in part.split("\n"))
    return "\n".join(line for line in lines if line and not line.startswith("source_filename"))


def _named(table: re.Match[str], symbols: set[str]) -> str:
    """The symbol that a table of bytes spells, or the table."""
    text = bytes(int(byte.removeprefix("i8 ")) % 256 for byte in table[1].split(", ")).rstrip(b"\0").decode("latin-1")
    return f"[name of @{text}]" if text in symbols else table[0]


def digest(texts: Sequence[str]) -> str:
    """Sixteen digits that move when the code does."""
    return hashlib.sha256(normalize(texts).encode()).hexdigest()[:16]
