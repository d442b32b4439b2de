"""Broadcasts before tracing: wrong ones are refused with nothing run, and no program that traces is."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import BroadcastError, ShapeError
from tessera.diagnostics.error import TesseraError
from tessera.frontend import check_broadcasts as checked

NUMBER = count()
PARAMETERS = 'x: ts.Tensor["B", 6, ts.f32], y: ts.Tensor["B", 4, ts.f32], z: ts.Tensor["B", 6, ts.f32], n'
ARGUMENTS = [np.ones((2, size), np.float32) for size in (6, 4, 6)]
PRELUDE = """import tessera as ts
import numpy as np
from contextlib import suppress
W = np.ones((6,), np.float32)
V = np.ones((5,), np.float32)
U = np.ones((5,), np.float32)
class Refusal(ValueError):
    pass
def setup():
    global U
    U = W
def validate(a, b):
    if a.shape[1] != b.shape[1]:
        raise Refusal("sizes of the user's")
def run(function):
    return function()
class Odd:
    # Operators, items and properties that give what they like, and rebind a global as they do.
    def _give(self, *_):
        setup()
        return W
    __add__ = __radd__ = __mul__ = __getitem__ = __neg__ = __lt__ = _give
    value = property(_give)
    def __iter__(self):
        setup()
        return iter((W, W))
    def __bool__(self):
        setup()
        return True
    def __format__(self, spec):
        setup()
        return ""
class Number(float):
    def __mul__(self, other):
        return W
class Array(np.ndarray):
    def __add__(self, other):
        return W
ODD, NUMBER, ARRAY = Odd(), Number(2.0), np.ones(5, np.float32).view(Array)
from tessera.ops import matmul as add
"""


def define(body: str, reached: list[str]) -> ts.Jit:
    """A jitted function with this body, in a file of its own."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    program = f"{PRELUDE}\ndef f({PARAMETERS}):\n    reached.append('ran')\n{lines}\n"
    name = f"<program {next(NUMBER)}>"
    linecache.cache[name] = (len(program), None, list[str](program.splitlines(keepends=True)), name)
    scope: dict[str, Any] = {"reached": reached}
    exec(compile(program, name, "exec"), scope)
    function: Callable[..., Any] = scope["f"]
    return ts.jit(function)


WRONG = [
    "return x + y",
    "a = x * 2\nb = ts.ops.exp(a)\nreturn b - y",
    "a = x + z\na *= y\nreturn a",
    "with ts.device(ts.cpu):\n    a = x + y\nreturn a",
    "a, b = x + y, z\nreturn a",
    "return ts.ops.maximum(x, y)",
    "a = -x\nfor i in range(3):\n    b = i\nreturn a > y",
    "return x + V",
    "return (x + z) + (x - y)",
]


@pytest.mark.parametrize("body", WRONG)
def test_a_wrong_broadcast_is_refused_before_anything_runs(body: str) -> None:
    reached: list[str] = []
    with pytest.raises(BroadcastError, match=r"cannot broadcast .*shape\[\d\] = \d.* and .*shape\[\d\] = \d") as caught:
        define(body, reached)(*ARGUMENTS, 0)
    assert reached == []
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip()


RIGHT = [
    "if n:\n    return x + y\nreturn x + z",
    "if n == 0:\n    return x + z\nreturn x + y",
    "a = x\nif n == 0:\n    a = y\nreturn a + y",
    "with suppress(ValueError):\n    x + y\nreturn x",
    "try:\n    return x + y\nexcept ValueError:\n    return x",
    "return x + z if n == 0 else x + y",
    "a = n == 0 or x + y\nreturn x",
    "x = y\nreturn x + y",
    "def g():\n    nonlocal x\n    x = y\ng()\nreturn x + y",
    "for x in (y,):\n    pass\nreturn x + y",
    "g = lambda: x + y\nreturn x",
    "a = [x + y for _ in range(n)]\nreturn x",
    "(x := y)\nreturn x + y",
    "return (x := y) * 1 + (x + y)",
    "def g():\n    yield x + y\nreturn x",
    "import numpy as ts_\nx = y\nreturn x * y",
    "x, a = y, z\nreturn x + y",
    "del x\nx = y\nreturn x - y",
    "while n:\n    x + y\nreturn z",
    "ts = np\nreturn x",
    "setup()\nreturn x + U",
    "a = setup() or 1\nreturn x + U",
    "a = [setup()]\nreturn x + U",
    "if n == 0:\n    setup()\nreturn x + U",
    "@run\ndef g():\n    setup()\nreturn x + U",
    "class A:\n    setup()\nreturn x + U",
    "a = ts.jit(setup)()\nreturn x + U",
    "match x.shape:\n    case (_, y):\n        pass\nreturn x + y",
    "match x.shape:\n    case (*y,):\n        pass\nreturn x + y[1]",
    "match {'a': 1}:\n    case {'a': 1, **y}:\n        pass\ny = z\nreturn x + y",
    "match 3:\n    case y:\n        pass\nreturn x + y",
    "import math as y\nreturn x + y.pi",
    "from math import pi as y\nreturn x + y",
    "for y in (1, 2):\n    pass\nreturn x + y",
    "if (y := 3):\n    pass\nreturn x + y",
    "with ts.device(ts.cpu) as y:\n    pass\ny = 1\nreturn x + y",
    "ODD.value\nreturn x + U",
    "a = ODD[0]\nreturn x + U",
    "a = ODD + 1\nreturn x + U",
    "a = -ODD\nreturn x + U",
    "a = 1 < 2 < ODD if n else ODD < 1\nreturn x + U",
    "a, b = ODD\nreturn x + U",
    "a = [*ODD]\nreturn x + U",
    "for a in ODD:\n    pass\nreturn x + U",
    "a = f'{ODD}'\nreturn x + U",
    "if ODD:\n    pass\nreturn x + U",
    "a = ODD or 1\nreturn x + U",
    "a = not ODD\nreturn x + U",
    "a = [one for one in ODD]\nreturn x + U",
    "ODD.other = ODD.value\nreturn x + U",
    "a = ODD\na += 1\nreturn x + U",
    "a = NUMBER * y\nreturn x + a",
    "a = ARRAY + y\nreturn x + a",
    "return add(x.T, y) if n == 0 else x",
    "a = (lambda a: a.T @ y)(x)\nreturn x",
    "a = [x for x in (y,)]\nreturn x + z",
    "a = {x: y for x in (1,)}\nreturn x + z",
    "f = (y, x)\nreturn ts.ops.add(*(x, z))",
]


@pytest.mark.parametrize("body", RIGHT)
def test_what_does_not_run_is_not_refused(body: str) -> None:
    reached: list[str] = []
    define(body, reached).trace(*ARGUMENTS, 0)
    assert reached == ["ran"]


CHECKED = [
    "validate(x, y)\nreturn x + y",
    "a = validate(x, y)\nreturn x + y",
    "if validate(x, y):\n    pass\nreturn x + y",
    "run(lambda: validate(x, y))\nreturn x + y",
]


@pytest.mark.parametrize("body", CHECKED)
def test_an_error_of_the_user_comes_first(body: str) -> None:
    with pytest.raises(ValueError, match="sizes of the user's"):
        define(body, [])(*ARGUMENTS, 0)


def test_source_that_is_not_what_runs_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    program = f"{PRELUDE}\ndef f({PARAMETERS}):\n    return x + z\n"
    file.write_text(program, encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(compile(program, str(file), "exec"), scope)
    file.write_text(program.replace("x + z", "x + y"), encoding="utf-8")
    linecache.checkcache(str(file))
    function: Callable[..., Any] = scope["f"]
    ts.jit(function).trace(*ARGUMENTS, 0)


NAMES = st.sampled_from(["x", "y", "z", "a", "b", "W", "2.0", "n"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(NAMES)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    form = draw(st.sampled_from(["({} + {})", "({} * {})", "({} - {})", "ts.ops.maximum({}, {})", "({} < {})"]))
    single = draw(st.sampled_from(["ts.ops.exp({})", "-{}", "{}.T", "{}.sum(axis=-1, keepdims=True)"]))
    return form.format(left, right) if draw(st.integers(0, 2)) else single.format(left)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    lines = ["a = x", "b = y"]
    for _ in range(draw(st.integers(1, 5))):
        name, value = draw(st.sampled_from(["a", "b", "x", "c"])), draw(expressions())
        form = draw(
            st.sampled_from(
                [
                    "{name} = {value}",
                    "{name} = {value}",
                    "if n:\n    {name} = {value}",
                    "if n:\n    return {value}",
                    "for i in range(2):\n    {name} = {value}",
                    "try:\n    {name} = {value}\nexcept (TypeError, ValueError, AttributeError):\n    pass",
                    "with ts.device(ts.cpu):\n    {name} = {value}",
                ]
            )
        )
        lines.append(form.format(name=name, value=value))
    return "\n".join([*lines, f"return {draw(expressions())}"])


@given(bodies(), st.integers(0, 1))
def test_a_program_that_traces_is_never_refused(body: str, n: int) -> None:
    """What is read is the prefix that always runs, by the rules that tracing asks."""
    f = define(body, [])
    original = checked.check_broadcasts
    refused: list[TesseraError] = []

    def check(*given: Any) -> None:
        try:
            original(*given)
        except TesseraError as error:
            refused.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checked, "check_broadcasts", check)
        try:
            f.trace(*ARGUMENTS, n)
        except (ShapeError, BroadcastError) as error:
            found: Exception | None = error
        except (TesseraError, AttributeError, NameError, TypeError) as error:
            found = error
        else:
            found = None
    assert not refused or found is not None, f"refused, and it traces:\n{body}\n{refused[0]}"
