"""What commands look at functions with: shapes, sizes and values as they are typed, and what is made up."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tessera.cli.arguments import Arguments, Given, TargetError, arguments_for, find, looked_at, sizes_text, trace_call
from tessera.cli.main import app

X = np.ones((2, 2), np.float32)
MODULE = """
from __future__ import annotations

from typing import Any, NamedTuple

import tessera as ts
from tessera import KTile, kernel, tile


class Layer(NamedTuple):
    w: ts.Tensor["D", "D", ts.f32]
    b: ts.Tensor["D", ts.bf16]


@ts.jit
def declared(x: ts.Tensor["B", "D", ts.f32], layers: list[Layer], cache: ts.KVCache["B", 2, 8, "E", ts.f16]):
    return x @ layers[0].w, cache


def keyed(params: dict[str, Any], pair, *, count: int):
    return params["w"] @ params["b"] + pair[0] * pair[1] * count


@ts.jit
def called(params):
    return params["w"] + params["b"]


def fields(p):
    return p.w + p.b


@kernel
def rows(x: KTile["M", "N"], *, scale: float):
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d)
    return tile.cast(block / tile.tile_reduce_rowsum(block)[:, None] * scale, x.dtype)
"""


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "looked_at.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def look_at(name: str, **given: Any) -> Arguments:
        return arguments_for(find(f"looked_at:{name}"), Given(**given))

    return look_at


def test_what_is_declared_is_made_up(look: Any) -> None:
    found = look("declared").by_name
    assert found["x"].shape == (16, 32)
    (layer,) = found["layers"]
    assert type(layer).__name__ == "Layer"
    assert (layer.w.shape, layer.b.shape, str(layer.b.dtype)) == ((32, 32), (32,), "bfloat16")
    assert found["cache"].shape == (16, 2, 8, 48)
    asked = look("declared", sizes=["D=7"])
    assert asked.by_name["x"].shape[1] == 7
    assert asked.chosen.keys() == {"B", "E"}


def test_parts_are_given_by_their_paths(look: Any) -> None:
    shapes = ["params[w]=4x8", "params['b']=8:bf16", "pair[1]=4", "pair[0]="]
    found = look("keyed", shapes=shapes, values=["count=3"]).by_name
    assert {key: array.shape for key, array in found["params"].items()} == {"w": (4, 8), "b": (8,)}
    assert [array.shape for array in found["pair"]] == [(), (4,)]
    assert found["count"] == 3
    assert trace_call(find("looked_at:fields"), look("fields", shapes=["p.w=2", "p.b=2"])).names == ["p.w", "p.b"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("keyed", {}, r"nothing says what `params` is; .* --shape 'params\[w\]=64x128' --shape 'params\[b\]=64x128'"),
        ("keyed", {"shapes": ["params=2x2"]}, "nothing says what `pair` is; .* --shape pair=64x128"),
        ("keyed", {"shapes": ["params=2x2", "pair=2"]}, "nothing says what `count` is; .* --value count="),
        ("keyed", {"shapes": ["params=2", "params[w]=2"]}, "one tensor or has parts, not both"),
        ("keyed", {"shapes": ["params[w]=2", "params[0]=2"]}, "all keys, all numbers or all fields"),
        ("keyed", {"shapes": ["params[1]=2"]}, "counted from 0 without gaps"),
        ("keyed", {"shapes": ["params[=2"]}, "names no part"),
        ("keyed", {"shapes": ["params=2by2"]}, "is no shape"),
        ("fields", {"shapes": ["p=2", "q=2"]}, "no parameter `q`"),
        ("declared", {"sizes": ["Q=2"]}, "no annotation names a dim `Q`; named are B, D, E"),
        ("declared", {"sizes": ["D=many"]}, "is no size of a dim"),
        ("rows", {"values": ["scale"]}, "is no value of a parameter"),
    ],
)
def test_what_cannot_be_made_is_told_with_what_to_type(look: Any, name: str, given: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        look(name, **given)


def test_a_kernel_is_looked_at_with_sizes_and_says_which(look: Any) -> None:
    given = Given(sizes=["N=1024"], values=["scale=2.0"])
    kernel = find("looked_at:rows")
    arguments = arguments_for(kernel, given)
    assert str(trace_call(kernel, arguments).types[0]) == "[M, 1024] f32"
    assert sizes_text(kernel, arguments) == "looked at with M = 32; for others, --size M=1024"
    assert sizes_text(find("looked_at:declared"), look("declared")) == ""


def test_a_function_that_its_module_called_is_looked_at_as_it_was_called(look: Any) -> None:
    look("fields", shapes=["p.w=2", "p.b=2"])  # the module is loaded
    called: Any = find("looked_at:called")
    with pytest.raises(TargetError, match="nothing says what `params` is"):
        looked_at(called, Given())
    called({"w": X, "b": X[0]})
    tape, said, sizes = looked_at(called, Given())
    assert tape.names == ["params['w']", "params['b']"]
    assert said == "looked at as it was called last"
    assert sizes == {}


def test_commands_take_them(look: Any, tmp_path: Path) -> None:
    look("fields", shapes=["p.w=2", "p.b=2"])
    given = ["looked_at:rows", "--size", "N=64", "--value", "scale=2.0"]
    done = CliRunner().invoke(app, ["lint", *given])
    assert done.exit_code == 0, done.output
    assert "threads a block" in done.output
    done = CliRunner().invoke(app, ["inspect", *given, "--output", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert "looked at with M = 32" in done.output
    helped = CliRunner().invoke(app, ["inspect", "--help"], env={"COLUMNS": "200"}).output
    assert "params[w]=64x128" in helped


@pytest.mark.parametrize("target", ["looked_at", "looked_at:", ":rows", "..looked_at:rows", "looked-at:rows", "a..b:f"])
def test_a_target_is_a_module_and_a_function(target: str) -> None:
    with pytest.raises(TargetError, match=r"must be module:function, such as `model:forward`"):
        find(target)


def test_a_file_is_answered_with_its_module() -> None:
    with pytest.raises(TargetError, match=r"there is no file `model\.py`"):
        find("model.py:forward")


def test_a_name_that_a_module_lacks_is_answered_with_those_it_has() -> None:
    with pytest.raises(TargetError, match=r"no attribute 'softmax'; it has by_hand, built_in, rows, main$"):
        find("examples.softmax:softmax")


def test_a_class_is_answered_with_what_to_name_instead() -> None:
    with pytest.raises(
        TargetError, match=r"`tests\.cli\.test_arguments:Module` is a class.*`module = Module\(\.\.\.\)`"
    ):
        find("tests.cli.test_arguments:Module")
    x = np.ones((2, 3), np.float32)
    assert find("tests.cli.test_arguments:module")(x).tolist() == [[3.0] * 3] * 2
    assert find("tests.cli.test_arguments:module.__call__")(x).tolist() == [[3.0] * 3] * 2


class Module:
    """A model as an object."""

    def __call__(self, x: Any) -> Any:
        return x * 3.0


module = Module()


TREES = """
import tessera as ts

def loops(params, x):
    for layer in params[:-1]:
        x = ts.ops.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]

def pairs(params, x):
    for i, (w, b) in enumerate(params):
        x = x @ w + b + i
    return x

def nested(p, x):
    return x @ p["head"].w + p["body"][1]["b"].T

def keyed(params, x):
    return x @ params["w"]
"""


@pytest.mark.parametrize(
    ("name", "parts"),
    {
        "loops": ["params[0][w]", "params[0][b]"],
        "nested": ["p[head].w", "p[body][1][b]"],
        "keyed": ["params[w]"],
    }.items(),
)
def test_parts_of_trees_are_suggested_as_the_source_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, parts: list[str]
) -> None:
    (tmp_path / "trees.py").write_text(TREES, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.delitem(sys.modules, "trees", raising=False)
    with pytest.raises(TargetError) as caught:
        arguments_for(find("trees:" + name), Given(shapes=["x=2x4"]))
    assert re.findall(r"--shape '(\S+)=64x128'", str(caught.value)) == parts


def test_what_is_suggested_for_a_list_of_dicts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trees.py").write_text(TREES, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.delitem(sys.modules, "trees", raising=False)
    loops, keyed = find("trees:loops"), find("trees:keyed")
    shapes = ["x=2x4", "params[0][w]=4x3", "params[0][b]=3"]
    assert len(trace_call(loops, arguments_for(loops, Given(shapes=shapes))).inputs) == 3
    dotted = arguments_for(keyed, Given(shapes=["x=2x4", "params.w=4x3"]))
    assert list(dotted.by_name["params"]) == ["w"], "a field is the key that the source takes"


MODEL = """
import tessera as ts

SIZE = 12
ready = ts.nn.Linear.init(ts.random.key(1), SIZE, 3)
print("this line is not executed")


def make_model():
    return ts.nn.Sequential.of(ts.nn.Linear.init(ts.random.key(0), SIZE, 4), ts.nn.Linear.init(ts.random.key(1), 4, 2))


def make_wide(width):
    return ts.nn.Linear.init(ts.random.key(0), SIZE, width)


def make_wrong():
    raise ValueError("no weights here")


@ts.jit
def forward(model, x: ts.Tensor["B", 12, ts.f32]):
    return model(x)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "with_model.py").write_text(MODEL)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("with_model", None)


@pytest.mark.parametrize("value", ["@make_model", "@ready", "@with_model:make_model"])
def test_a_module_of_layers_is_made_by_a_function_of_the_file(model: Path, value: str, capsys: Any) -> None:
    function = find("with_model:forward")
    arguments = arguments_for(function, Given(values=[f"model={value}"]))
    tape = trace_call(function, arguments)
    assert len(tape.inputs) == (5 if "make" in value else 3)
    assert "executed" not in capsys.readouterr().out  # only what the two functions need is


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", r"nothing says what `model` is; .* --value model=@make_model, with `def make_model\(\):` in the module"),
        ("@make_other", "has no attribute 'make_other'; it has .*make_model"),
        ("@make_wide", "`make_wide` needs `width`, and is called without arguments"),
        ("@make_wrong", "`make_wrong\\(\\)` raised ValueError: no weights here"),
        ("@nowhere:make", "No module named 'nowhere'"),
        ("@not a name", "names no function; write model=@make"),
    ],
)
def test_what_makes_nothing_is_told(model: Path, value: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        arguments_for(find("with_model:forward"), Given(values=[f"model={value}"] if value else []))


def test_a_plan_of_a_function_of_a_module_is_exported(model: Path) -> None:
    done = CliRunner().invoke(app, ["schedule", "export", "with_model:forward", "--value", "model=@make_model"])
    assert done.exit_code == 0, done.output
    assert "tsched" in done.output
    done = CliRunner().invoke(app, ["schedule", "export", "with_model:forward"])
    assert done.exit_code == 2
    assert "--value model=@make_model" in done.output
