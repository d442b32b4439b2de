"""Tracebacks: users see their own lines alone, whatever is raised, wherever it is read, and all lines on demand."""

from __future__ import annotations

import contextlib
import io
import linecache
import pdb
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import BroadcastError, RuntimeArgumentError
from tessera.diagnostics.frames import guard, hide_frames

X = np.zeros((2, 5), np.float32)
PACKAGE = str(Path(ts.__file__).parent)


@ts.jit
def multiply(x: Any) -> Any:
    return x @ ts.ones((3, 4))


@ts.jit
def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def _step(x: Any) -> Any:
    return x + ts.ones((7,))


@ts.jit
def loop(x: Any) -> Any:
    return ts.fori_loop(0, 3, lambda i, state: _step(state), x)


@ts.jit
def own(x: Any) -> Any:
    raise LookupError("mine")


@ts.kernel
def misspelt(x: ts.Tensor["M", "N", ts.f32], out: ts.Tensor["M", "N", ts.f32]) -> None:
    ts.tile.lod(x)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def _enter_device() -> None:
    with ts.device(ts.gpu[99]):
        pass


def _assign() -> None:
    ts.ones((2,))[0] = 3.0  # pyright: ignore[reportIndexIssue]


RAISING: dict[str, tuple[Callable[[], Any], int]] = {
    "a traced op": (lambda: multiply(X), 2),
    "a branch": (lambda: branch(X), 2),
    "a body that we call": (lambda: loop(X), 4),
    "an error of the user's own": (lambda: own(X), 2),
    "lowering": (lambda: multiply.lower(X), 2),
    "explaining": (lambda: multiply.explain(X), 2),
    "an eager op": (lambda: ts.ops.softmax(X, axis=7), 1),
    "a missing argument": (lambda: ts.ops.softmax(), 1),  # pyright: ignore[reportCallIssue, reportUnknownLambdaType]
    "a missing argument of a method": (lambda: ts.KVCache.empty(1), 1),  # pyright: ignore[reportCallIssue, reportUnknownLambdaType]
    "an operator": (lambda: ts.ones((2, 3)) + ts.ones((4,)), 1),
    "a method": (lambda: ts.ones((2, 3)).sum(axis=9), 1),
    "an index": (lambda: ts.ones((2,))[5], 1),
    "a conversion": (lambda: float(ts.ones((2,))), 1),
    "an assignment": (_assign, 1),
    "a scope": (_enter_device, 1),
    "an annotation": (lambda: ts.Tensor["B", 3.5], 1),
    "an option": (lambda: ts.jit(no_such_option=1), 1),
    "a decorator": (lambda: ts.jit()(3), 1),  # pyright: ignore[reportArgumentType]
    "a schedule": (lambda: ts.Schedule(block=(3, -1)), 1),
    "a kernel": (lambda: misspelt(X, X), 1),
    "a random tensor": (lambda: ts.random.normal(3, (2,)), 1),
    "a name of the package": (lambda: getattr(ts, "no_such"), 1),  # noqa: B009
    "a name of a module": (lambda: getattr(ts.ops, "no_such"), 1),  # noqa: B009
    "a name of a tensor": (lambda: ts.ones((2,)).no_such, 1),  # pyright: ignore[reportAttributeAccessIssue]
}


def frames_of(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("name", RAISING)
def test_only_lines_of_the_user_are_in_a_traceback(name: str) -> None:
    call, count = RAISING[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - it is each its own
        call()
    found = frames_of(caught.value)[1:]
    assert found == [__file__] * count, "\n".join(found)
    text = "".join(traceback.format_exception(caught.value))
    assert PACKAGE not in text, text
    assert "During handling" not in text


@pytest.mark.parametrize("name", RAISING)
def test_a_variable_shows_all_frames(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_FULL_TRACEBACK", "1")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        RAISING[name][0]()
    assert any(name.startswith(PACKAGE) for name in frames_of(caught.value))


def test_what_the_user_was_handling_stays_and_what_we_were_handling_goes() -> None:
    def handle() -> None:
        try:
            int("mine")
        except ValueError:
            _ = ts.ones((2, 3)) + ts.ones((4,))

    with pytest.raises(BroadcastError) as caught:
        handle()
    text = "".join(traceback.format_exception(caught.value))
    assert "ValueError: invalid literal for int() with base 10: 'mine'" in text
    assert PACKAGE not in text

    def fail() -> None:
        try:
            int("ours")
        except ValueError:
            raise RuntimeArgumentError("better", span=None)  # noqa: B904 - the context is what is tested

    source = compile("def outer(f):\n    f()\n", str(Path(PACKAGE) / "made_up.py"), "exec")
    inner: dict[str, Any] = {}
    exec(source, inner)
    with pytest.raises(RuntimeArgumentError) as caught:
        guard(lambda: inner["outer"](fail))()
    assert "ValueError" in "".join(traceback.format_exception(caught.value)), "it was raised in code of the user"


def test_a_cause_is_trimmed_too() -> None:
    def chained() -> None:
        try:
            _ = ts.ones((2, 3)) + ts.ones((4,))
        except BroadcastError as error:
            raise LookupError("outer") from error

    with pytest.raises(LookupError) as caught:
        chained()
    cause = caught.value.__cause__
    assert cause is not None
    assert set(frames_of(cause)) == {__file__}


def test_members_of_a_group_are_trimmed() -> None:
    with pytest.raises(BroadcastError) as caught:
        _ = ts.ones((2, 3)) + ts.ones((4,))
    group = ExceptionGroup("several", [caught.value])
    hide_frames(group)
    assert set(frames_of(caught.value)) == {__file__}


def test_a_mistake_of_ours_keeps_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:

    source = compile("def load(*_):\n    return {}['ours']\n", str(Path(PACKAGE) / "made_up.py"), "exec")
    space: dict[str, Any] = {}
    exec(source, space)
    monkeypatch.setattr("tessera.api.jit.load", space["load"])
    fresh = ts.jit(_step)
    with pytest.raises(KeyError, match="ours") as caught:
        fresh(np.zeros((7,), np.float32))
    assert sum(name.startswith(PACKAGE) for name in frames_of(caught.value)) > 3


def test_a_debugger_lands_in_the_users_line() -> None:
    with pytest.raises(BroadcastError) as caught:
        loop(X)
    shown = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("where\np state\nquit\n"), stdout=shown, nosigint=True, readrc=False)
    debugger.reset()
    with contextlib.suppress(SystemExit):
        debugger.interaction(None, caught.value.__traceback__)
    last = [line for line in shown.getvalue().splitlines() if line.startswith(("> ", "->"))]
    assert any("_step()" in line for line in last), shown.getvalue()


CELL = """@ts.jit
def f(x):
    return x + ts.ones((7,))
f(np.zeros((3,), np.float32))
"""


def test_a_notebook_cell_shows_its_own_lines() -> None:
    name = "<ipython-input-3-abcdef>"
    lines: list[str] = list(CELL.splitlines(keepends=True))
    linecache.cache[name] = (len(CELL), None, lines, name)
    with pytest.raises(BroadcastError) as caught:
        exec(compile(CELL, name, "exec"), {"ts": ts, "np": np, "__name__": "__main__"})
    assert frames_of(caught.value)[1:] == [name, name]
    assert "return x + ts.ones((7,))" in str(caught.value)


@pytest.mark.slow
def test_a_script_and_a_prompt_print_the_users_lines_alone(tmp_path: Path) -> None:
    program = f"import numpy as np\nimport tessera as ts\n{CELL}".replace("\nf(", "\n\nf(")
    (tmp_path / "model.py").write_text(program, encoding="utf-8")
    script = subprocess.run([sys.executable, "model.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert script.stderr.count("File ") == 2, script.stderr
    prompt = subprocess.run([sys.executable, "-i"], input=program, capture_output=True, text=True, check=False)
    assert "T0106" in prompt.stderr
    assert PACKAGE not in prompt.stderr
