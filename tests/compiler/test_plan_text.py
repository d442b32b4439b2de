"""A plan as text: what is exported compiles to the same code, edits take effect, and wrong ones are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.compiler.plan_text import apply_plan, code_digest, compare, export_plan, summarize
from tessera.diagnostics.codes import IRSyntaxError, OverrideError, ScheduleError
from tessera.ir.base.text import print_module
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.launch_order import order_of
from tests.fuzz.generate import random_program

_CUDA = Options(backend="cuda", features=("sm_90a",))


@ts.jit
def layer(x: ts.Tensor[64, 128, ts.f32], w: ts.Tensor[128, 256, ts.f32], b: ts.Tensor[256, ts.f32]):
    """A contraction with an epilogue, rows behind it, and a reduction beside both."""
    return ops.softmax(ops.gelu(x @ w + b)), ops.sum(x * 2.0, axis=0)


@ts.jit
def halves(x: ts.Tensor[256, 512, ts.bf16], w: ts.Tensor[512, 256, ts.bf16]):
    """A contraction on tensor cores."""
    return ops.gelu(x @ w)


def _inputs() -> list[np.ndarray]:
    draw = np.random.default_rng(7)
    return [draw.normal(size=shape).astype(np.float32) for shape in ((64, 128), (128, 256), (256,))]


def _bits(function: Any) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in function(*map(ts.array, _inputs()))]


def _line(text: str, part: str) -> str:
    return next(line for line in text.splitlines() if part in line)


def _function(text: str, name: str) -> str:
    found = re.search(rf"  tgraph\.func @{name}\w*\(.*?\n  }}\n", text, re.DOTALL)
    assert found is not None
    return found.group()


def _split(text: str) -> str:
    """The plan with the contraction's gelu as a group of its own."""
    name = re.search(r"@(matmul_add_gelu_\w+)\(", text)
    assert name is not None
    body = _function(text, "matmul_add_gelu")
    head = body.replace(name[1], "product").replace("tgraph.return %2", "tgraph.return %1")
    head = "".join(line for line in head.splitlines(keepends=True) if "tgraph.gelu" not in line)
    tail = (
        "  tgraph.func @tail(%a0: !tgraph.tensor<[64, 256], f32>) -> !tgraph.tensor<[64, 256], f32> "
        'attributes {names = ["a0"]} {\n'
        "    %0 = tgraph.gelu %a0 : (!tgraph.tensor<[64, 256], f32>) -> !tgraph.tensor<[64, 256], f32>\n"
        "    tgraph.return %0 : (!tgraph.tensor<[64, 256], f32>) -> ()\n  }\n"
    )
    fuse = _line(text, f"@{name[1]}(%x")
    tile = _line(text, "tsched.tile %0 ")
    groups = (
        "    %p = tsched.fuse @product(%x, %w, %b) : !tgraph.tensor<[64, 256], f32>\n"
        f"{tile.replace('%0 ', '%p ')}\n"
        "    %0 = tsched.fuse @tail(%p) : !tgraph.tensor<[64, 256], f32>"
    )
    return text.replace(body, head + tail).replace(f"{fuse}\n{tile}", groups)


# Round trips.


@ts.jit(dynamic=True)
def symbolic(x: Any) -> Any:
    return ops.softmax(x * 2.0), x.reshape(-1) + 1.0


@ts.jit
def update(tree: Any) -> Any:
    return {name: value - 0.1 * value * value for name, value in tree.items()}


@ts.jit
def repeated(x: Any, y: Any) -> Any:
    def double(one: Any) -> Any:
        return one * 2.0

    def to_power(one: Any) -> Any:
        return ops.exp(one) - y

    kept = ts.fori_loop(0, 5, lambda _, carried: carried * 1.5 + ops.sum(carried), x)
    return ts.cond(ops.sum(kept) > 0.0, double, to_power, kept)


@ts.jit(donate={"cache"})
def donated(cache: Any, x: Any) -> Any:
    return cache.at[3].set(x)


@ts.jit(constraints=["N % 16 == 0"])
def divided(x: ts.Tensor["N", 64, ts.f32]) -> Any:
    return ops.softmax(x) * 2.0, x.reshape(-1) + 1.0


def _loss(w: Any, x: Any) -> Any:
    return ops.sum(ops.gelu(x @ w) ** 2)


@ts.jit
def gradient(w: Any, x: Any) -> Any:
    return ts.grad(_loss)(w, x)


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


_PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "layer": (layer, ()),
    "symbolic": (symbolic, (_zeros(8, 16),)),
    "update": (update, ({"a": _zeros(8, 64), "b": _zeros(32), "c": _zeros(4, 4)},)),
    "repeated": (repeated, (_zeros(8, 16), _zeros(16))),
    "donated": (donated, (_zeros(8, 16), _zeros(16))),
    "divided": (divided, (_zeros(32, 64),)),
    "gradient": (gradient, (_zeros(16, 16), _zeros(8, 16))),
}


@pytest.mark.parametrize("options", [Options(), _CUDA], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", _PROGRAMS)
def test_an_exported_plan_compiles_to_the_same_code_and_is_exported_again(name: str, options: Options) -> None:
    function, arguments = _PROGRAMS[name]
    tape = function.trace(*arguments).tape
    text = export_plan(tape, options)
    again = apply_plan(tape, options, text)
    assert code_digest(again) == code_digest(lower(tape, options))
    assert compare(export_plan(tape, replace(options, plan=text)), text) == ()
    order_of(again.program, symbol_table(again.module)).check()


def test_collectives_keep_their_order_and_launches_can_move_between_start_and_wait() -> None:
    def reduced(x: Any, w: Any) -> Any:
        first, second = ts.dist.all_reduce(x @ w, "dp"), ts.dist.all_reduce(ops.exp(x), "dp")
        return first + 1.0, second * 2.0, ops.tanh(x)

    with ts.dist.mesh(dp=2):
        tape = ts.jit(reduced).trace(_zeros(8, 16), _zeros(16, 8)).tape
    text = export_plan(tape, Options())
    assert code_digest(apply_plan(tape, Options(), text)) == code_digest(lower(tape, Options()))
    moved = _line(text, "tsched.fuse @tanh")
    number = moved.split()[0]
    lines = [line for line in text.splitlines() if line != moved and f"tsched.tile {number} " not in line]
    last = next(at for at, line in enumerate(lines) if "tsched.return" in line)
    late = apply_plan(tape, Options(), "\n".join([*lines[:last], moved, *lines[last:]]))
    assert _calls(late)[-1].startswith("tanh")
    swapped = (
        text.replace("number = 0", "number = 9").replace("number = 1", "number = 0").replace("number = 9", "number = 1")
    )
    with pytest.raises(ScheduleError):
        apply_plan(tape, Options(), swapped)


def test_a_function_gives_its_plan_and_takes_it_with_the_same_bits() -> None:
    text = layer.schedule()
    assert "tsched.fuse @matmul_add_gelu" in text
    assert 'knob = "contraction.block"' in text
    assert _bits(layer.with_plan(text)) == _bits(layer)
    assert "sha256:" in str(layer.with_plan(text).explain())


def test_explain_lists_the_choices_of_a_plan() -> None:
    edited = layer.with_plan(layer.schedule().replace("chosen = 128", "chosen = 32"))
    arguments = tuple(map(ts.array, _inputs()))
    edited(*arguments)
    choices = edited.explain(*arguments).report["choices"]
    assert all(line.endswith("(plan)") for line in choices)
    assert any(line.startswith("contraction.block@matmul_add_gelu") for line in choices)
    assert any(line.startswith("row.columns@") and "= 32 " in line for line in choices)
    assert "tessera.planned" not in edited.schedule()


# Edits that take effect.


def test_a_group_that_is_split_is_two_kernels_with_the_same_bits() -> None:
    text = _split(layer.schedule())
    kernels = [kernel.symbol for kernel in apply_plan(layer.trace().tape, Options(), text).kernels]
    assert "product" in kernels
    assert "tail" in kernels
    assert [group.kind for group in summarize(layer.with_plan(text).schedule())] == ["contraction", "map", "row", "row"]
    assert _bits(layer.with_plan(text)) == _bits(layer)


def test_a_tile_that_is_edited_is_the_tile_of_the_kernel() -> None:
    text = layer.schedule()
    edited = text.replace("chosen = 128", "chosen = 32")
    assert edited != text
    tape = layer.trace().tape
    changed = apply_plan(tape, Options(), edited)
    assert code_digest(changed) != code_digest(apply_plan(tape, Options(), text))
    assert _bits(layer.with_plan(edited)) == _bits(layer)
    (line,) = compare(edited, text)
    assert "row.columns is 32 in place of 128" in line
    assert 'chosen = 32 {source = "plan"' in layer.with_plan(edited).schedule()


def test_a_block_that_is_edited_is_the_block_of_a_kernel_on_a_gpu() -> None:
    tape = halves.trace().tape
    text = export_plan(tape, _CUDA)
    tile = _line(text, 'knob = "contraction.block"')
    found = re.search(r"candidates = (\[\[.*\]\]) chosen = (\[[^\]]*\])", tile)
    assert found is not None
    other = next(one for one in re.findall(r"\[\d+, \d+, \d+\]", found[1]) if one != found[2])
    edited = text.replace(tile, tile.replace(f"chosen = {found[2]}", f"chosen = {other}"))
    changed = apply_plan(tape, _CUDA, edited)
    assert code_digest(changed) != code_digest(apply_plan(tape, _CUDA, text))
    rows, columns, _ = (int(size) for size in re.findall(r"\d+", other))
    assert f"grid = [{256 // rows}, {256 // columns}]" in print_module(changed.module)


def test_a_choice_that_is_left_out_is_made_by_the_compiler() -> None:
    text = layer.schedule()
    left = text.replace(f"{_line(text, 'tsched.tile %0 ')}\n", "")
    tape = layer.trace().tape
    assert code_digest(apply_plan(tape, Options(), left)) == code_digest(lower(tape, Options()))


@pytest.mark.parametrize(("written", "buffers"), [("{stages = 3}", 3), ("{double_buffer = true}", 2)])
def test_stages_that_are_edited_are_the_buffers_of_each_tile(written: str, buffers: int) -> None:
    tape = halves.trace().tape
    text = export_plan(tape, _CUDA)
    edited = text.replace('{kind = "contraction"', f'{{pipeline = {written}, kind = "contraction"', 1)
    changed = apply_plan(tape, _CUDA, edited)
    assert code_digest(changed) != code_digest(apply_plan(tape, _CUDA, text))
    assert f"buffers = {buffers}" in print_module(changed.module)
    assert any(f"{buffers} stages" in line for line in compare(edited, text))


def test_two_independent_launches_can_be_reordered() -> None:
    text = layer.schedule()
    moved = [_line(text, "@mul_sum"), _line(text, "tsched.tile %1 ")]
    first = _line(text, "@matmul_add_gelu")
    edited = text.replace("\n".join(moved) + "\n", "").replace(first, "\n".join([*moved, first]), 1)
    calls = _calls(apply_plan(layer.trace().tape, Options(), edited))
    assert [name.partition("_")[0] for name in calls] == ["mul", "matmul", "max"]
    assert _bits(layer.with_plan(edited)) == _bits(layer)
    assert any(line.startswith("another order") for line in compare(edited, text))


def _calls(lowering: Any) -> list[str]:
    return re.findall(r"tsched\.call @(\w+)", print_module(lowering.module))


def test_the_names_of_bodies_and_values_are_free() -> None:
    text = layer.schedule()
    edited = re.sub(r"matmul_add_gelu_\w+", "mine", text).replace("%0", "%hidden")
    assert "mine" in _calls(apply_plan(layer.trace().tape, Options(), edited))


# Edits that are refused, with the line and what to do.


def _refuse(text: str, match: str, part: str, function: Any = layer, options: Options | None = None) -> ScheduleError:
    with pytest.raises(ScheduleError, match=match) as caught:
        apply_plan(function.trace().tape, options or Options(), text)
    error = caught.value
    assert error.code == "T0401"
    assert error.span is not None
    assert error.fix
    assert part in text.splitlines()[error.span.line - 1]
    return error


def test_a_tile_that_is_no_candidate_is_refused() -> None:
    text = layer.schedule().replace("[96, 256, 128]] chosen = [64, 128, 64]", "[48, 48, 48]] chosen = [48, 48, 48]")
    error = _refuse(text, r"`contraction.block` cannot be \[48, 48, 48\]", "chosen = [48, 48, 48]")
    assert "it can be [64, 128, 64]" in str(error.fix)


def test_a_tile_of_a_choice_that_emitters_make_is_refused_too() -> None:
    text = layer.schedule().replace("32, 16] chosen = 128", "32, 16, 24] chosen = 24")
    _refuse(text, "`row.columns` cannot be 24", "chosen = 24")


def test_an_order_that_breaks_a_dependency_is_refused() -> None:
    text = layer.schedule()
    moved = _line(text, "@max_maximum")
    edited = text.replace(moved + "\n", "").replace(
        _line(text, "@matmul_add"), f"{moved}\n{_line(text, '@matmul_add')}"
    )
    _refuse(edited, "used before", "@max_maximum")


_OTHERS: dict[str, tuple[Callable[[str], str], str, str]] = {
    "another op": (lambda text: text.replace("tgraph.add", "tgraph.sub"), "`tgraph.sub` computes something", "sub"),
    "another attribute": (
        lambda text: text.replace("value = 2.0", "value = 3.0"),
        "computes something here that the program does not",
        "3.0",
    ),
    "another operand": (
        lambda text: text.replace("tgraph.sub %a0, %2", "tgraph.sub %a0, %0"),
        "`tgraph.sub` computes something",
        "tgraph.sub",
    ),
    "a result twice": (
        lambda text: text.replace("tsched.return %2, %1", "tsched.return %0, %1"),
        "result 0 of the plan is not result 0",
        "tsched.return",
    ),
    "another argument": (
        lambda text: text.replace("names = [", 'guards = [[dim<N>, dim<1>, ""]], names = [', 1),
        "1 guards, and the program 0",
        "tsched.module",
    ),
    "memory that nobody donated": (
        lambda text: text.replace("names = [", "tessera.donated = [0], names = [", 1),
        "arguments .0. donated, and the program",
        "tsched.module",
    ),
    "another body": (
        lambda text: re.sub(r"fuse @mul_sum_\w+\(", "fuse @nothing(", text),
        "`@nothing` is nothing of this module",
        "@nothing",
    ),
    "another knob": (
        lambda text: text.replace('knob = "row.columns"', 'knob = "map.tile"'),
        "has no choice `map.tile`",
        "map.tile",
    ),
    "no knob": (lambda text: text.replace("row.columns", "row.column"), "names its `knob`", "row.column"),
    "layouts of ranks": (
        lambda text: text.replace(
            "    tsched.return", '    tsched.layout %2 {partition = ["0"], mesh_axes = ["dp"]}\n    tsched.return'
        ),
        "says how ranks of a mesh share",
        "tsched.layout",
    ),
    "another kind": (
        lambda text: text.replace('kind = "row", axes = [1]', 'kind = "map"'),
        "no kernel of kind map|does not compute",
        "@max_maximum",
    ),
    "more stages than there are": (
        lambda text: text.replace('kind = "contraction"', 'pipeline = {stages = 99}, kind = "contraction"'),
        "`stages` is 1 to 8",
        "stages = 99",
    ),
    "a body that nobody has": (
        lambda text: text.replace(
            _function(text, "mul_sum"),
            _function(text, "mul_sum") + re.sub(r"mul_sum_\w+", "spare", _function(text, "mul_sum")),
        ),
        "no group of the plan has the body `@spare`",
        "@spare",
    ),
}


@pytest.mark.parametrize("name", _OTHERS)
def test_a_plan_that_cannot_be_carried_out_is_refused_at_its_line(name: str) -> None:
    change, match, part = _OTHERS[name]
    text = layer.schedule()
    assert change(text) != text
    _refuse(change(text), match, part)


def test_a_body_that_relies_on_more_than_the_program_knows_is_refused() -> None:
    text = divided.schedule(_zeros(32, 64))
    name = re.search(r"tgraph\.func @(\w+)\(.*\{names", text)
    assert name is not None
    edited = text.replace(
        'attributes {names = ["a0"]}', 'attributes {names = ["a0"], guards = [[dim<s0 % 7>, dim<0>, "x"]]}', 1
    )
    with pytest.raises(ScheduleError, match="relies on"):
        apply_plan(divided.trace(_zeros(32, 64)).tape, Options(), edited)


def test_a_group_that_writes_over_what_a_later_one_reads_is_refused() -> None:
    @ts.jit(donate={"cache"})
    def step(cache: ts.Tensor[8, 16, ts.f32], x: ts.Tensor[16, ts.f32]) -> Any:
        return ops.sum(cache * cache, axis=1), cache.at[3].set(x)

    text = step.schedule()
    read, write = _line(text, "tsched.fuse @mul_sum"), _line(text, "in_place")
    assert text.index(read) < text.index(write)
    kept = [line for line in text.splitlines() if line != read]
    last = next(at for at, line in enumerate(kept) if "tsched.return" in line)
    with pytest.raises(ScheduleError, match="reads later") as caught:
        apply_plan(step.trace().tape, Options(), "\n".join([*kept[:last], read, *kept[last:]]))
    assert "leave `in_place` out" in str(caught.value.fix)


def test_a_group_writes_over_an_operand_only_where_the_compiler_found_that_it_may() -> None:
    @ts.jit(donate={"x"})
    def turned(x: ts.Tensor[16, 16, ts.f32]) -> Any:
        return x.T + x

    text = turned.schedule()
    assert "in_place" not in text
    with pytest.raises(ScheduleError, match="reads more of what it would write over"):
        apply_plan(turned.trace().tape, Options(), text.replace('{kind = "map"', '{in_place = [0], kind = "map"'))


def test_an_update_in_place_is_left_out_of_group_and_op_together() -> None:
    @ts.jit(donate={"cache"})
    def append(cache: ts.KVCache, k: Any, v: Any) -> Any:
        return cache.append(k, v)

    def given() -> tuple[Any, Any, Any]:
        rows = ts.ones((1, 2, 1, 16))
        return ts.KVCache.empty(1, 2, 32, 16), rows, rows

    text = append.schedule(*given())
    tape = append.trace(*given()).tape
    assert code_digest(apply_plan(tape, Options(), text)) == code_digest(lower(tape, Options()))
    whole = re.sub(r", in_place = \[[-\d, ]*\]", "", text)
    with pytest.raises(ScheduleError, match="writes over its operand, and the group does not say that it may"):
        apply_plan(tape, Options(), whole)
    copied = re.sub(r" \{in_place = true\}|, in_place = true|in_place = true, ", "", whole)
    assert "in_place" not in copied
    wanted, found = append(*given()), append.with_plan(copied)(*given())
    np.testing.assert_array_equal(np.asarray(found.K), np.asarray(wanted.K))


def test_an_alias_has_all_elements_of_what_it_shows() -> None:
    text = layer.schedule().replace(
        "    tsched.return %2, %1",
        "    %3 = tsched.alias %2 : !tgraph.tensor<[32, 256], f32>\n    tsched.return %2, %1",
    )
    _refuse(text, "an alias has all elements of", "tsched.alias")


def test_a_plan_beside_a_memory_budget_is_refused() -> None:
    with pytest.raises(OverrideError, match="leave one of them out"):
        Options.of(plan=layer.schedule(), memory=1 << 20)


def test_groups_of_one_body_are_chosen_alike() -> None:
    @ts.jit
    def twice(x: ts.Tensor[8, 64, ts.f32], y: ts.Tensor[8, 64, ts.f32]) -> Any:
        first = ops.sum(x, axis=0)
        return first, ops.sum(y, axis=0)

    text = twice.schedule()
    edited = re.sub(r"chosen = 64\b", "chosen = 32", text, count=1)
    if edited == text:
        edited = re.sub(r"chosen = 128\b", "chosen = 32", text, count=1)
    with pytest.raises(ScheduleError, match="groups of one body have one kernel"):
        apply_plan(twice.trace().tape, Options(), edited)


def test_a_text_that_is_no_plan_is_refused() -> None:
    with pytest.raises(IRSyntaxError):
        layer.with_plan("tsched.fuse (")(*map(ts.array, _inputs()))
    with pytest.raises(OverrideError, match="text of a plan"):
        layer.with_plan("  ")


@pytest.mark.parametrize("text", ["hello", "\n  hello\nworld\n", "hello ("])
def test_a_text_without_a_program_is_said_to_be_no_plan(text: str) -> None:
    with pytest.raises(IRSyntaxError, match="this is no plan: it begins with `hello") as caught:
        apply_plan(layer.trace().tape, Options(), text)
    assert caught.value.span is not None
    assert text.splitlines()[caught.value.span.line - 1].strip()
    assert "tessera schedule export" in str(caught.value.fix)


@pytest.mark.parametrize(("known", "written"), [("tgraph.gelu", "tgraph.gellu"), ("tsched.fuse", "tsched.fuze")])
def test_an_op_that_there_is_not_is_shown_with_the_nearest(known: str, written: str) -> None:
    text = layer.schedule().replace(f"= {known}", f"= {written}", 1)
    with pytest.raises(IRSyntaxError, match=f"{written} is not registered") as caught:
        apply_plan(layer.trace().tape, Options(), text)
    span = caught.value.span
    assert span is not None
    assert text.splitlines()[span.line - 1][span.column - 1 :].startswith(written)
    assert caught.value.fix is not None
    assert caught.value.fix.message == f"did you mean `{known}`?"
    assert caught.value.fix.apply(text) == layer.schedule()


def test_what_only_reports_is_found_again() -> None:
    text = layer.schedule()
    edited = re.sub(r"(flops|bytes|time) = \d+", r"\1 = 7", text)
    edited = re.sub(r'source = "[\w ]+"', 'source = "somebody"', edited)
    edited = edited.replace("32, 16] chosen = 128", "32, 16, 24] chosen = 128")
    assert edited.count("= 7") > 3
    tape = layer.trace().tape
    assert code_digest(apply_plan(tape, Options(), edited)) == code_digest(lower(tape, Options()))
    again = export_plan(tape, Options(plan=edited))
    assert "somebody" not in again
    assert re.findall(r"(?:flops|bytes|time) = \d+", again) == re.findall(r"(?:flops|bytes|time) = \d+", text)


# Meaning is kept, whoever wrote the plan.


@pytest.mark.parametrize("name", [name for name in _PROGRAMS if name != "donated"])
def test_a_plan_of_other_groups_is_one_of_the_same_program(name: str) -> None:
    function, arguments = _PROGRAMS[name]
    tape = function.trace(*arguments).tape
    alone = export_plan(tape, Options(fusion=False))
    assert len(summarize(alone)) >= len(summarize(export_plan(tape, Options())))
    given = arguments or tuple(map(ts.array, _inputs()))
    wanted, found = function(*given), function.with_plan(alone)(*given)
    assert _leaves(found) == _leaves(wanted)


def _leaves(tree: Any) -> list[bytes]:
    found: Any = tree.values() if hasattr(tree, "values") else tree
    return [np.asarray(part).tobytes() for part in (found if not isinstance(found, ts.Tensor) else [found])]


@pytest.mark.parametrize("seed", range(12))
def test_a_drawn_program_keeps_its_bits_under_a_plan_of_other_groups(seed: int) -> None:
    program = random_program(seed)
    function = program.jitted()
    arrays = [ts.array(array) for array in program.arrays({"A": 5, "B": 16, "C": 7})]
    plan = export_plan(function.trace(*arrays).tape, Options(fusion=False))
    assert _leaves(function.with_plan(plan)(*arrays)) == _leaves(function(*arrays))


@pytest.mark.parametrize("seed", range(12))
def test_a_drawn_program_with_one_op_changed_is_refused(seed: int) -> None:
    program, draw = random_program(seed), Random(seed)
    function = program.jitted()
    tape = function.trace(*map(ts.array, program.arrays({"A": 5, "B": 16, "C": 7}))).tape
    plan = export_plan(tape, Options())
    swaps = [("tgraph.add ", "tgraph.mul "), ("tgraph.mul ", "tgraph.add "), ("tgraph.sub ", "tgraph.add ")]
    swaps += [("tgraph.maximum ", "tgraph.minimum "), ("tgraph.exp ", "tgraph.tanh "), ("tgraph.abs ", "tgraph.neg ")]
    present = [swap for swap in swaps if swap[0] in plan]
    if not present:
        pytest.skip("it has none of these ops")
    old, new = draw.choice(present)
    at = draw.choice([found.start() for found in re.finditer(re.escape(old), plan)])
    with pytest.raises(ScheduleError, match="computes something here"):
        apply_plan(tape, Options(), plan[:at] + new + plan[at + len(old) :])


# A pattern drives what a group is lowered to.


@ts.jit
def attended(
    q: ts.Tensor[1, 2, 64, 32, ts.f32], k: ts.Tensor[1, 2, 64, 32, ts.f32], v: ts.Tensor[1, 2, 64, 32, ts.f32]
):
    """Attention, spelled out."""
    return ops.softmax(q @ k.swapaxes(-1, -2) * 0.125) @ v


def _attention_plan(pattern: str, graph: str = "") -> str:
    """A plan of one group, whose body is all of the program."""
    body = re.search(r"tgraph\.func @main.*?\n  }\n", graph or attended.lower().graph, re.DOTALL)
    assert body is not None
    tensor = "!tgraph.tensor<[1, 2, 64, 32], f32>"
    arguments = ", ".join(f"%{name}: {tensor}" for name in "QKV")
    return (
        f'tsched.module @main({arguments}) -> {tensor} attributes {{names = ["q", "k", "v"]}} {{\n'
        f'  %attn = tsched.fuse @attention(%Q, %K, %V) {{pattern = "{pattern}"}} : {tensor}\n'
        "  tsched.return %attn\n"
        "}\n"
        f"{body.group().replace('@main', '@attention')}"
    )


def test_the_pattern_of_a_group_drives_its_lowering_to_attention() -> None:
    plan = _attention_plan("flash_attention")
    tape = attended.trace().tape
    for options in (Options(), _CUDA):
        (kernel,) = apply_plan(tape, options, plan).kernels
        assert kernel.symbol == "attention"
    draw = np.random.default_rng(0)
    arrays = [ts.array(draw.normal(size=(1, 2, 64, 32)).astype(np.float32)) for _ in range(3)]
    fused, apart = attended.with_plan(plan), attended(*arrays)
    np.testing.assert_allclose(np.asarray(fused(*arrays)), np.asarray(apart), rtol=2e-5, atol=2e-6)
    (note,) = fused.explain(*arrays).report["recognized"]
    assert "by the pattern of the plan: attention of [1, 2, 64, 32] f32" in note


def test_without_the_pattern_no_kernel_computes_all_of_it() -> None:
    plan = _attention_plan("flash_attention").replace(' {pattern = "flash_attention"}', "")
    with pytest.raises(ScheduleError, match=r"no kernel of kind|does not compute"):
        apply_plan(attended.trace().tape, Options(), plan)


def test_a_pattern_that_a_body_is_not_is_refused() -> None:
    with pytest.raises(ScheduleError, match="there is no pattern 'flash'") as caught:
        apply_plan(attended.trace().tape, Options(), _attention_plan("flash"))
    assert "flash_attention" in str(caught.value.fix)
    text = layer.schedule().replace(
        '{kind = "row", axes = [1]', '{pattern = "flash_attention", kind = "row", axes = [1]'
    )
    _refuse(text, "does not spell out 'flash_attention'", "@max_maximum")


@ts.jit
def rows(x: ts.Tensor["B", 256, ts.f32], w: ts.Tensor[256, 256, ts.f32]) -> Any:
    return x @ w


@ts.jit
def narrow_rows(x: ts.Tensor["B", 256, ts.bf16], w: ts.Tensor[256, 256, ts.bf16]) -> Any:
    return ops.gelu(x @ w)


@ts.jit
def any_depth(x: ts.Tensor[64, "K", ts.f32], w: ts.Tensor["K", 256, ts.f32]) -> Any:
    """Of as many segments as K asks for: where it is one or two, a branch has other ops."""
    return x @ w


@ts.jit
def any_length(
    q: ts.Tensor[1, 4, "S", 64, ts.f32], k: ts.Tensor[1, 4, "S", 64, ts.f32], v: ts.Tensor[1, 4, "S", 64, ts.f32]
) -> Any:
    return ops.softmax(q @ k.swapaxes(-1, -2) * 0.125) @ v


def _rows_plan() -> str:
    text = export_plan(rows.trace().tape, _CUDA)
    assert text.count("tsched.if {size = B - ") == 3
    return text


def _refuse_rows(text: str, match: str, part: str) -> None:
    _refuse(text, match, part, rows, _CUDA)


@pytest.mark.parametrize("function", [rows, narrow_rows, any_depth, any_length], ids=lambda one: one.__name__)
def test_branches_by_sizes_compile_to_the_same_code(function: Any) -> None:
    tape = function.trace().tape
    text = export_plan(tape, _CUDA)
    assert "tsched.if {size = " in text
    again = apply_plan(tape, _CUDA, text)
    assert code_digest(again) == code_digest(lower(tape, _CUDA))
    assert compare(export_plan(tape, replace(_CUDA, plan=text)), text) == ()
    assert re.findall(r"rows = \d+", export_plan(tape, replace(_CUDA, plan=text))) == re.findall(r"rows = \d+", text)


def test_one_group_may_stand_for_all_branches() -> None:
    text = _rows_plan()
    head = _line(text, "tsched.module")
    fuse = next(line for line in text.splitlines() if "= tsched.fuse" in line and "rows" not in line).partition("= ")[2]
    name = fuse.partition("@")[2].partition("(")[0]
    body = re.search(rf"  tgraph\.func @{name}\(.*?\n  }}\n", text, re.DOTALL)
    assert body is not None
    alone = f"{head}\n    %0 = {fuse}\n    tsched.return %0\n  }}\n{body.group()}"
    (kernel,) = apply_plan(rows.trace().tape, _CUDA, alone).kernels
    assert kernel.symbol == name
    changed = compare(alone, text)
    assert f"without the group {name}_rows64" in changed
    assert f"{name}: runs for all sizes in place of where B - 1024 > 0" in changed


def test_the_limit_of_a_branch_and_its_block_may_be_edited() -> None:
    text = _rows_plan()
    tape = rows.trace().tape
    moved = text.replace("size = B - 64", "size = B - 32")
    assert code_digest(apply_plan(tape, _CUDA, moved)) != code_digest(lower(tape, _CUDA))
    assert any("B - 32 <= 0 in place of where B - 1024 <= 0" in line for line in compare(moved, text))
    (block,) = set(re.findall(r"chosen = \[8, 16, 64\]", text))
    edited = text.replace(block, "chosen = [16, 16, 64]")
    (line,) = compare(edited, text)
    assert "_rows64: contraction.block is 16 x 16 x 64 in place of 8 x 16 x 64" in line
    assert code_digest(apply_plan(tape, _CUDA, edited)) != code_digest(lower(tape, _CUDA))


def test_a_branch_that_computes_something_else_is_refused_at_its_line() -> None:
    text = _rows_plan()
    body = re.search(r"  tgraph\.func @\w+_rows64\(.*?\n  }\n", text, re.DOTALL)
    assert body is not None
    tensor = "!tgraph.tensor<[s0, 256], f32>"
    other = body.group().replace(
        "    tgraph.return %0", f"    %1 = tgraph.neg %0 : ({tensor}) -> {tensor}\n    tgraph.return %1"
    )
    _refuse_rows(text.replace(body.group(), other), "`tgraph.neg` computes something here", "tgraph.neg")
    last = _line(text, "tsched.yield %6")
    other = text.replace(last, last.replace("%6", "%x"))
    _refuse_rows(other, "branches of this .* different values", "tsched.if {size = B - 64}")


def test_branches_are_by_sizes_of_arguments_and_rows_are_counted() -> None:
    text = _rows_plan()
    _refuse_rows(text.replace("size = B - 64", "size = Q - 64"), "decides by Q", "size = Q - 64")
    _refuse_rows(text.replace("rows = 64", "rows = -7"), "`rows` are 1 or more", "rows = -7")
