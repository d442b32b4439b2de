"""What a user sees at the prompt: `dir` lists what is public alone, `help` shows signatures as they are written."""

from __future__ import annotations

import inspect
import pydoc
import typing
from types import ModuleType
from typing import Any

import pytest

import tessera as ts

LANGUAGE = ("autotune", "cuda", "dist", "effects", "graph", "linalg", "op", "ops", "random", "stdlib", "tile", "verify")
TRAINING = ("data", "nn", "optim", "profile", "train", "xp")
MODULES = (*LANGUAGE, *TRAINING)
FACADES = [ts, *(getattr(ts, name) for name in MODULES)]


@pytest.mark.parametrize("module", FACADES, ids=lambda module: module.__name__)
def test_dir_lists_public_names_alone(module: ModuleType) -> None:
    shown = [name for name in dir(module) if not (name.startswith("__") and name.endswith("__"))]
    assert sorted(shown) == sorted(module.__all__)
    modules = [name for name in shown if isinstance(getattr(module, name), ModuleType)]
    own = {ts.nn: {"initializers", "losses"}, ts.xp: {"fft", "linalg"}}
    assert set(modules) <= own.get(module, set(MODULES))


def shown_by_help(item: Any) -> str:
    document: Any = pydoc
    return document.render_doc(item, renderer=document.plaintext)


def test_help_of_jit_has_a_plain_signature_and_an_example() -> None:
    text = shown_by_help(ts.jit)
    words = " ".join(text.split()).replace("( ", "(")  # since 3.13 each parameter has a line
    assert "jit(function: Callable[..., Any] | None = None, /, *, static_argnames: " in words
    assert "policy: Policy = Policy()" in text
    assert ">>> @ts.jit" in text
    for noise in ("'Any'", "wrapper", "functools", "Wrapped", "__wrapped__", "hide_frames"):
        assert noise not in text


@pytest.mark.parametrize("name", sorted(set(ts.__all__) | {f"ops.{name}" for name in ts.ops.__all__}))
def test_no_public_signature_has_quotes_around_annotations(name: str) -> None:
    item: Any = ts
    for part in name.split("."):
        item = getattr(item, part)
    if not inspect.isfunction(item):
        return
    signature = inspect.signature(item)
    annotations = [*(one.annotation for one in signature.parameters.values()), signature.return_annotation]
    assert [one for one in annotations if isinstance(one, str) and repr(one) != one] == []
    assert inspect.getdoc(item)


def test_annotations_are_still_evaluated() -> None:
    hints = typing.get_type_hints(ts.ops.softmax)
    assert hints["axis"] is int
    assert inspect.signature(ts.ops.softmax, eval_str=True).parameters["axis"].annotation is int
