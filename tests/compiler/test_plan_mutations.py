"""Plans with a word deleted, doubled or replaced: each is refused at its line with what to do, or computes the same."""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.options import Options
from tessera.compiler.plan_text import apply_plan, export_plan
from tessera.diagnostics.codes import IRSyntaxError, ScheduleError
from tessera.diagnostics.error import CompilationError

_BACKENDS = {"cpu": Options(), "cuda": Options(backend="cuda", features=("sm_90a",))}
_WORD = re.compile(r'[%@!]?[A-Za-z_][\w.$]*|-?\d+(?:\.\d+)?|"[^"]*"|\S')
_PAIR = re.compile(r'(?<![%\w.])(\w[\w.]*) = ("[^"]*"|\[\[[^\]]*\](?:, \[[^\]]*\])*\]|\[[^\]]*\]|[^\s,}]+)')
_VALUES = (
    "32.0", "-1", "0", "1", "7", "99999999999999999999", "true", "[]", "[1.5]", "[9]", "[[1, 2], 3]", "[true, 2]",
    "[64, 128, 64.0]", "{}", "{stages = 3}", "{stages = 2.0}", '""', '"row"', '["a"]', "f64", "dim<N>", "none",
)  # fmt: skip
"""Values of every kind, most of them of another kind than what stands there."""


@ts.jit
def layer(x: ts.Tensor[16, 32, ts.f32], w: ts.Tensor[32, 48, ts.f32], b: ts.Tensor[48, ts.f32]) -> Any:
    return ops.softmax(ops.gelu(x @ w + b)), ops.sum(x * 2.0, axis=0)


@ts.jit
def rows(x: ts.Tensor["N", 64, ts.f32]) -> Any:
    return ops.softmax(x) * 2.0, x.reshape(-1) + 1.0


@ts.jit(donate={"cache"})
def update(cache: ts.Tensor[8, 16, ts.f32], x: ts.Tensor[16, ts.f32]) -> Any:
    return cache.at[3].set(x)


@ts.jit
def repeated(x: ts.Tensor[8, 16, ts.f32]) -> Any:
    return ts.fori_loop(0, 5, lambda _, carried: carried * 1.5 + ops.sum(carried), x)


_PROGRAMS = {"layer": layer, "rows": rows, "update": update, "repeated": repeated}


@cache
def _exported(name: str, backend: str) -> tuple[Any, str]:
    tape = _PROGRAMS[name].trace().tape
    return tape, export_plan(tape, _BACKENDS[backend])


def _kind(word: str) -> str:
    """What a word may stand for: another of its kind is more likely to be read than any other."""
    if re.match(r"-?\d", word):
        return "number"
    return word[0] if word[0] in '%@!"' else "name" if word[0].isalpha() else ""


def _change_word(text: str, start: int, rng: Random) -> str:
    words = list(_WORD.finditer(text, start))
    one = rng.choice(words)
    alike = [word[0] for word in words if _kind(word[0]) == _kind(one[0]) and word[0] != one[0]]
    others = ["", f"{one[0]} {one[0]}", rng.choice(words)[0], *([rng.choice(alike)] * 3 if alike else [])]
    return text[: one.start()] + rng.choice(others) + text[one.end() :]


def _change_value(text: str, start: int, rng: Random) -> str:
    pairs = list(_PAIR.finditer(text, start))
    one, other = rng.choice(pairs), rng.choice(pairs)
    value = rng.choice((other[2], rng.choice(_VALUES), rng.choice(_VALUES)))
    changed = rng.choice((f"{one[1]} = {value}", f"{one[0]}, {other[1]} = {value}", f"{other[1]} = {one[2]}"))
    return text[: one.start()] + changed + text[one.end() :]


def _change_line(text: str, start: int, rng: Random) -> str:
    head, lines = text[:start], text[start:].splitlines(keepends=True)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.choice(("delete", "repeat", "swap"))
    if how == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif how == "repeat":
        lines.insert(other, lines[one])
    else:
        del lines[one]
    return head + "".join(lines)


def _mutate(text: str, rng: Random) -> str:
    start = text.index("builtin.module")
    for _ in range(rng.choice((1, 1, 1, 2))):
        change = rng.choice((_change_word, _change_word, _change_value, _change_value, _change_line))
        text = change(text, start, rng)
    return text


def _refusal(tape: Any, options: Options, text: str) -> CompilationError | None:
    """What is wrong with a text, by the compiler; an internal error is no such thing, and fails the test."""
    try:
        apply_plan(tape, options, text)
    except CompilationError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(8))
def test_a_changed_plan_is_refused_at_its_line_or_carried_out(seed: int) -> None:
    """Whatever became of the text, nobody is told of a bug in Tessera."""
    rng, refused = Random(seed), 0
    for _ in range(40):
        name, backend = rng.choice(sorted(_PROGRAMS)), rng.choice(sorted(_BACKENDS))
        tape, text = _exported(name, backend)
        edited = _mutate(text, rng)
        error = _refusal(tape, _BACKENDS[backend], edited)
        if error is not None:
            refused += 1
            assert error.span is not None, edited
            assert error.span.file == "<plan>", edited
            assert error.fix is not None, edited
    assert refused > 20


def test_what_is_still_a_plan_computes_the_same_bits() -> None:
    tape, text = _exported("layer", "cpu")
    draw = np.random.default_rng(3)
    given = [ts.array(draw.normal(size=shape).astype(np.float32)) for shape in ((16, 32), (32, 48), (48,))]
    expected = [np.asarray(one).tobytes() for one in layer(*given)]
    rng, carried_out = Random(5), 0
    for _ in range(120):
        edited = _mutate(text, rng)
        if carried_out < 6 and _refusal(tape, Options(), edited) is None:
            carried_out += 1
            assert [np.asarray(one).tobytes() for one in layer.with_plan(edited)(*given)] == expected, edited
    assert carried_out >= 3


@pytest.mark.parametrize("value", ["32.0", "true", "[32]", '"32"'])
def test_a_tile_of_another_kind_is_no_candidate(value: str) -> None:
    @ts.jit
    def jitted(x: Any) -> Any:
        return ops.relu(x) + 1.0

    x = ts.array(np.ones((64, 100), np.float32))
    text = jitted.schedule(x)
    edited = text.replace("64, 128] chosen = 32", f"64, 128, {value}] chosen = {value}")
    assert edited != text
    with pytest.raises(ScheduleError, match=re.escape(f"`map.tile` cannot be {value} here")) as caught:
        jitted.with_plan(edited)(x)
    assert caught.value.span is not None
    assert f"chosen = {value}" in edited.splitlines()[caught.value.span.line - 1]
    assert "it can be 32, 16, 64, 128" in str(caught.value.fix)


def test_an_op_stands_where_its_level_does() -> None:
    tape, text = _exported("layer", "cpu")
    program = next(line for line in text.splitlines() if "tsched.return" in line)
    full = "    %one = tgraph.full {value = 1.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>"
    with pytest.raises(ScheduleError, match=r"`tgraph\.full` stands in a `tsched\.module`, whose ops are those of"):
        apply_plan(tape, Options(), text.replace(program, f"{full}\n{program}"))
    with pytest.raises(ScheduleError, match=r"`tgraph\.full` stands beside the program of the plan"):
        apply_plan(tape, Options(), text.replace("  tgraph.func", f"{full}\n  tgraph.func", 1))


def test_an_integer_that_its_type_cannot_hold_is_a_mistake_of_the_text() -> None:
    tape, text = _exported("layer", "cpu")
    with pytest.raises(IRSyntaxError, match="out of range for type i64") as caught:
        apply_plan(tape, Options(), text.replace("4 : i64", "4 : i64, more = 99999999999999999999 : i64"))
    assert caught.value.span is not None
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "4 : i64" in one)
    assert caught.value.span.line == line
