"""The table of lines in the porting guide: what it says of our sources is counted, and is below 1.2 of theirs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "tessera/stdlib"
CHUNKED, NORM, TILES = (f"{LIBRARY}/{name}.py" for name in ("chunked_attention", "residual_norm", "tile_kernels"))
HEADS = "share_heads _sum_heads"
SOURCES = {
    "matmul, bf16": ("examples/matmul.py", "matmul", ""),
    "attention, forward": (TILES, "flash_attention_2", ""),
    "linear attention": (
        CHUNKED,
        "chunk_states _chunk_of chunk_outputs _keep_triangle _marks _with_columns _attend",
        f"_attend_forward _attend_backward {HEADS}",
    ),
    "Mamba-2": (
        CHUNKED,
        "decayed_states _chunk_of decayed_outputs _sum_decayed _keep_triangle chunk_decays _marks _with_columns"
        " _attend_decayed ssd",
        f"decayed_gradients _attend_decayed_forward _attend_decayed_backward {HEADS}",
    ),
    "long convolution": (
        f"{LIBRARY}/long_convolution.py",
        "_row_matrix _twiddles _column_matrix _table _as_matrix _transform _restore _convolve_spectra",
        "",
    ),
    "dropout, residual, layer norm": (
        NORM,
        "dropped_layernorm _normalize _run_forward",
        "dropped_layernorm_gradients _normalize_forward _normalize_backward",
    ),
    "rotary embedding": (TILES, "rotary_embedding", "_rotate_back"),
}
"""By row of the table: a file, the functions of the forward pass, and those of the backward pass."""


def count_lines(file: str, names: str) -> int:
    """Lines of functions with their decorators, without docstrings, comments and blank lines."""
    text = (ROOT / file).read_text(encoding="utf-8")
    wanted, lines, total = set(names.split()), text.splitlines(), 0
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or node.name not in wanted:
            continue
        wanted.discard(node.name)
        first = min(one.lineno for one in (node, *node.decorator_list))
        docs = node.body[0] if ast.get_docstring(node) is not None else None
        skipped = range(docs.lineno, (docs.end_lineno or 0) + 1) if docs is not None else range(0)
        numbers = [number for number in range(first, (node.end_lineno or 0) + 1) if number not in skipped]
        total += sum(1 for number in numbers if lines[number - 1].strip() and lines[number - 1].strip()[0] != "#")
    assert not wanted, f"{file} has no {wanted}"
    return total


def rows_of_the_guide() -> dict[str, tuple[int, int, str]]:
    page = (ROOT / "docs/guide/porting.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\w+) \|$", page, re.MULTILINE)
    return {name: (int(theirs), int(ours), backward) for name, theirs, ours, backward in found}


def test_every_row_is_counted() -> None:
    assert list(rows_of_the_guide()) == list(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_says_how_many_lines_there_are(name: str) -> None:
    file, forward, backward = SOURCES[name]
    theirs, ours, said = rows_of_the_guide()[name]
    there = count_lines(file, backward)
    assert ours == count_lines(file, forward) + there
    assert said == (str(there) if backward else "derived")
    assert ours <= 1.2 * theirs
