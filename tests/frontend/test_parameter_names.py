"""Parameters of other libraries: every public function answers them with ours, and every call that does not fit."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportPrivateUsage=false
from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tessera as ts
from scripts import api_reference
from tessera.diagnostics.calls import ADVICE, SAME, suggest_parameter, wrong_call
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.methods import TensorMethods

MODULES = sorted({*api_reference.MODULES.values(), "tessera.xp", "tessera.xp.fft", "tessera.xp.linalg"})
IN_KERNELS = ("tessera.tile", "tessera.ops.epilogue")
"""Functions of the kernel language, whose calls its front end explains (tests/kernel)."""
OF_ANY_NAME = {
    "tessera.dist.mesh",
    "tessera.dist.shard",
    "tessera.graph.kernel",
    "tessera.nn.buffer",
    "tessera.nn.leaf",
}
"""Functions whose keywords are names of the user's, or those of another function."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in MODULES:
        if module in IN_KERNELS:
            continue
        home = importlib.import_module(module)
        for name in getattr(home, "__all__", ()):
            item = getattr(home, name)
            if inspect.isfunction(item) and f"{module}.{name}" not in OF_ANY_NAME:
                yield f"{module}.{name}", item


FUNCTIONS = dict(public_functions())


def answer(function: Callable[..., Any], **given: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        function(**given)
    return caught.value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_that_does_not_fit_is_explained(name: str) -> None:
    error = answer(FUNCTIONS[name], no_such_keyword=1)
    assert "no_such_keyword" in error.message
    assert error.notes[0].startswith("it is `")


def names_of_torch(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Parameters as PyTorch calls them, each with what it is called here."""
    parameters = list(inspect.signature(function).parameters.values())
    names = [one.name for one in parameters]
    keywords = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY)]
    yield from ((other, own) for other, own in (("keepdim", "keepdims"),) if own in keywords)
    axes = next((one for one in ("axis", "axes") if one in keywords), None)
    if axes is not None and "dim" not in names:
        yield "dim", axes
    first = [one for one in ("x", "a") if names[:1] == [one] and one in keywords]
    second = [one for one in ("y", "b") if names[1:2] == [one] and one in keywords]
    if first and second:
        yield "input", first[0]
        yield "other", second[0]


CALLS = [(name, other, own) for name, function in FUNCTIONS.items() for other, own in names_of_torch(function)]


@pytest.mark.parametrize(("name", "other", "own"), CALLS)
def test_a_parameter_of_torch_is_answered_with_ours(name: str, other: str, own: str) -> None:
    error = answer(FUNCTIONS[name], **{other: 1})
    short = name.rpartition(".")[2]
    expected = ADVICE.get(f"{short}.{other}", f"write `{own}=1`")
    assert error.fix is not None
    assert error.fix.message == expected


def test_many_functions_are_asked() -> None:
    assert len(FUNCTIONS) > 650
    assert len(CALLS) > 180


def test_methods_are_answered_as_functions_are() -> None:
    x, asked = ts.ones((2, 3)), 0
    for name, method in vars(TensorMethods).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        for other, own in names_of_torch(method):
            error = answer(getattr(x, name), **{other: 1})
            assert error.fix is not None
            assert error.fix.message == ADVICE.get(f"{name}.{other}", f"write `{own}=1`"), name
            asked += 1
    assert asked > 25


def test_what_is_suggested_is_a_parameter_that_may_be_passed_by_name() -> None:
    assert "pass `matrices` without a name" in str(answer(ts.ops.block_diag, tensors=1))
    assert "pass `x` without a name" in str(answer(ts.xp.sum, input=1))
    assert "write `correction=1`" in str(answer(ts.ops.std, x=ts.ones((2,)), unbiased=True))
    assert "write `correction=0`" in str(answer(ts.ops.var, x=ts.ones((2,)), unbiased=False))
    assert "write `labels=...`" in str(answer(ts.ops.cross_entropy, target=ts.ones((2,))))
    assert "write `ts.ops.maximum(x, y)`" in str(answer(ts.ops.max, x=1, other=2))
    assert "write `x + alpha * y`" in str(answer(ts.ops.add, x=1, y=2, alpha=2))
    assert "write `x - alpha * y`" in str(answer(ts.ops.sub, x=1, y=2, alpha=2))


def test_functions_that_advice_names_exist() -> None:
    for name, text in ADVICE.items():
        function, _, _ = name.rpartition(".")
        homes = (ts.ops, ts.nn, ts.random, ts.linalg)
        assert not function or any(hasattr(home, function) for home in homes), name
        for written in text.split("`")[1::2]:
            for path in re.findall(r"\bts((?:\.\w+)+)", written):
                found: Any = ts
                for part in path.split(".")[1:]:
                    found = getattr(found, part)
            for update in re.findall(r"\.at\[\w+\]\.(\w+)", written):
                assert hasattr(ts.ones((2,)).at[0], update), name
    assert all(own and other not in own for other, own in SAME.items())


def test_a_type_error_within_a_function_is_not_about_its_call() -> None:
    def inner() -> None:
        raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own") as caught:
        ts.jit(lambda x: inner())(ts.ones((2,)))
    assert not isinstance(caught.value, ArgumentError)


OTHER_MEANING = {
    "random.fold", "random.split", "linalg.cond", "ops.dequantize", "ops.einsum", "ops.eq", "ops.ne",
}  # fmt: skip
"""Functions that share a name alone with one of PyTorch, or take operands that have no names."""
NOT_OF_A_FUNCTION = {"self", "args", "kwargs", "names", "dtype", "_stacklevel"}
OF_A_SCALAR = {("ops.multigammaln", "p"), ("ops.sort", "reverse")}
"""Parameters of an overload on numbers and lists of Python."""


def test_every_parameter_of_a_function_of_torch_is_answered() -> None:
    """None is answered with no more than that it is to be removed."""
    torch: Any = pytest.importorskip("torch")
    homes = [(torch, ""), (torch.linalg, "linalg_"), (torch.special, "special_"), (torch.nn.functional, "")]
    unknown: set[tuple[str, str]] = set()
    for home in ("ops", "random", "linalg", "nn"):
        module = getattr(ts, home)
        for name in module.__all__:
            function = getattr(module, name)
            if not inspect.isfunction(function) or f"{home}.{name}" in OTHER_MEANING:
                continue
            own = list(inspect.signature(function).parameters)
            for other in parameters_of_torch(torch, homes, name) - {*own, *NOT_OF_A_FUNCTION}:
                if suggest_parameter(name, other, 1, own) == "remove it":
                    unknown.add((f"{home}.{name}", other))
    assert unknown <= OF_A_SCALAR


def parameters_of_torch(torch: Any, homes: list[tuple[Any, str]], name: str) -> set[str]:
    found: set[str] = set()
    for home, prefix in homes:
        if not hasattr(home, name):
            continue
        try:
            found |= {*inspect.signature(getattr(home, name)).parameters}
        except (ValueError, TypeError):  # of C++, which schemas describe
            for schema in torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}"):
                if any("Tensor" in str(one.type) for one in schema.arguments):
                    found |= {one.name for one in schema.arguments if not one.is_out}
    return found


def test_an_error_says_how_a_method_of_a_class_is_called() -> None:
    def method(self: Any, axis: int = 0) -> None: ...

    error = wrong_call(method, (None,), {"dim": 3}, "", "Layer.method")
    assert error.notes == ("it is `Layer.method(axis=0)`",)
