"""Passes and pipelines: names, options, exits, whose fault a failure is, reproducers, times, dumps; choices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import GraphVerifyError, OverrideError, TileVerifyError
from tessera.diagnostics.error import InternalError
from tessera.ir.base.build import BudgetError, Rewriter, rewrite
from tessera.ir.base.compilation import Choice, StaticChooser
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass, Stages, find_pass, parse_pipeline, pass_modules, pass_name, pipeline_text
from tessera.ir.base.text import content_hash, parse_module, print_module
from tessera.ir.base.verify import Legality
from tessera.types.frozen import frozen
from tests.ir.base import toy

T = "!tgraph.tensor<[B], f32>"
TEXT = f"""toy.func @f(%x: {T}) -> {T} {{
  %0 = toy.scale %x {{by = 2.0}} : ({T}) -> {T}
  %1 = toy.double %0 : ({T}) -> {T}
  toy.return %1 : ({T}) -> ()
}}
"""


@pytest.fixture(autouse=True)
def dialect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.use_toy()
    monkeypatch.setenv("TESSERA_REPRODUCERS", str(tmp_path / "reproducers"))


def scales(module: ModuleOp) -> list[SpecOp]:
    return [op for op in module.walk() if isinstance(op, SpecOp) and op.name == "toy.scale"]


@frozen
class Twice(Pass):
    """Double the factor of every scale."""

    def run(self, module: ModuleOp) -> None:
        for op in scales(module):
            op.set_value("by", 2 * op.value("by"))


@frozen
class Break(Pass):
    """Leave the module wrong."""

    def run(self, module: ModuleOp) -> None:
        scales(module)[0].operands = ()


@frozen
class Crash(Pass):
    """Fail in a way no one foresaw."""

    def run(self, module: ModuleOp) -> None:
        raise ZeroDivisionError("oh")


@frozen
class Refuse(Pass):
    """Tell the user something."""

    def run(self, module: ModuleOp) -> None:
        raise OverrideError("`tile.n` cannot be 3", span=None)


def test_a_pass_is_named_by_its_path() -> None:
    assert pass_name("tessera.ir.graph.passes.fold_constants") == "graph-fold-constants"
    assert pass_name("tessera.backends.cpu.passes.pick_width") == "cpu-pick-width"
    assert {"graph-canonicalize", "graph-decompose"} <= pass_modules().keys()
    assert find_pass("graph-canonicalize").__name__ == "Canonicalize"


def test_a_pipeline_is_read_with_options_and_written_back() -> None:
    passes = parse_pipeline("graph-canonicalize, graph-fold-constants{limit = 7}")
    assert [one.name for one in passes] == ["graph-canonicalize", "graph-fold-constants"]
    assert pipeline_text(passes) == "graph-canonicalize,graph-fold-constants{limit = 7}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("graph-nothing", "there is no pass `graph-nothing`"),
        ("graph-cannonicalise", "did you mean `graph-canonicalize`"),
        ("graph-canonicalize{a = 1}", "has no option `a`"),
        ("graph-vjp{function = 3}", "`function` of `graph-vjp` is a text in quotes, got 3"),
        ('graph-fold-constants{limit = "7"}', "`limit` of `graph-fold-constants` is an integer, got '7'"),
        ("graph-canonicalize;", "expected `,`, got `;`"),
        ("", "expected the name of a pass"),
    ],
)
def test_a_wrong_pipeline_is_refused(text: str, words: str) -> None:
    with pytest.raises((KeyError, ValueError), match=words):
        parse_pipeline(text)


def test_passes_run_in_order_and_are_timed_and_kept() -> None:
    module = parse_module(TEXT)
    stages = Stages(keep_snapshots=True)
    stages.run("graph", [Twice(), Twice()], module)
    assert scales(module)[0].value("by") == 8.0
    assert [(step.stage, step.name) for step in stages.steps] == [
        ("graph", Twice.name),
        ("graph", Twice.name),
        ("graph", "exit"),
    ]
    assert [snapshot.name for snapshot in stages.snapshots] == ["input", Twice.name, Twice.name]
    assert "by = 4.0" in stages.snapshots[1].text
    assert "ms  in all" in stages.timing_table()


def test_the_texts_that_are_named_are_kept_and_no_others() -> None:
    kept: dict[str, list[str]] = {}
    for name in ("graph-input", "input", Twice.name, "graph-other"):
        stages = Stages(keep_snapshots=(name,))
        stages.run("graph", [Twice(), Twice()], parse_module(TEXT))
        kept[name] = [snapshot.name for snapshot in stages.snapshots]
    assert kept == {"graph-input": ["input"], "input": [], Twice.name: [Twice.name] * 2, "graph-other": []}


@pytest.mark.parametrize(("stage", "kind"), [("graph", GraphVerifyError), ("tile", TileVerifyError)])
def test_a_wrong_module_at_the_entry_is_the_users_mistake(stage: str, kind: type[Exception]) -> None:
    module = parse_module(TEXT, "user.mlir")
    Break().run(module)
    with pytest.raises(kind, match=r"`toy.scale` has 1 operands") as caught:
        Stages().run(stage, [], module)
    assert "user.mlir:2:3" in str(caught.value)


def quick(text: str) -> tuple[Stages, ModuleOp]:
    return Stages(rebuild=lambda: parse_module(text)), parse_module(text)


@pytest.mark.parametrize("careful", [True, False])
def test_a_wrong_module_after_a_pass_is_ours_named_by_pass_with_what_came_before(careful: bool) -> None:
    stages, module = (Stages(), parse_module(TEXT)) if careful else quick(TEXT)
    with pytest.raises(InternalError, match=r"`toy.scale` has 1 operands") as caught:
        stages.run("graph", [Twice(), Break(), Twice()], module)
    assert caught.value.where == Break.name
    saved = Path(caught.value.reproducer)
    text = saved.read_text()
    assert "by = 4.0" in text
    assert "// Pipeline: " in text
    assert "xdsl 0.74.0" in text
    assert caught.value.command == f"tessera-opt {saved} -p '{Break.name}'"
    assert content_hash(parse_module(text)) == content_hash(parse_module(TEXT.replace("2.0", "4.0")))


@pytest.mark.parametrize("careful", [True, False])
def test_an_exception_in_a_pass_is_ours(careful: bool) -> None:
    stages, module = (Stages(), parse_module(TEXT)) if careful else quick(TEXT)
    with pytest.raises(InternalError, match="ZeroDivisionError: oh") as caught:
        stages.run("graph", [Twice(), Crash()], module)
    assert "by = 4.0" in Path(caught.value.reproducer).read_text()


def test_what_a_pass_tells_the_user_goes_through() -> None:
    with pytest.raises(OverrideError):
        Stages().run("graph", [Refuse()], parse_module(TEXT))


def test_the_exit_verifier_says_what_may_leave() -> None:
    exit = Legality("graph", frozenset(["toy"]), lambda op: "it was not doubled" if op.name == "toy.double" else None)
    with pytest.raises(OpError, match=r"`toy.double` may not leave graph: it was not doubled"):
        exit.check(parse_module(TEXT))
    with pytest.raises(OpError, match=r"`toy.func` may not leave graph: only ops of tgraph may"):
        Legality("graph", frozenset(["tgraph"])).check(parse_module(TEXT))
    with pytest.raises(InternalError, match="may not leave graph"):
        Stages().run("graph", [], parse_module(TEXT), exit)


def test_dumps_and_times_are_written_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TESSERA_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("TESSERA_TIMING", "1")
    stages = Stages()
    stages.run("graph", [Twice()], parse_module(TEXT))
    stages.finish()
    names = sorted(file.name for file in (tmp_path / "dump").iterdir())
    assert names == ["000-graph-input.mlir", f"001-graph-{Twice.name}.mlir"]
    assert "by = 4.0" in (tmp_path / "dump" / names[1]).read_text()
    assert Twice.name in capsys.readouterr().err


def test_rewriting_that_does_not_end_is_stopped_and_says_where() -> None:
    def second(op: SpecOp, rewriter: Rewriter) -> bool:
        build = rewriter.build(op)
        value = build.emit("scale", op.operands[0], by=op.value("by") + 1)
        rewriter.replace(op, [value], build.made)
        return True

    with pytest.raises(BudgetError, match=r"`toy.scale` "):
        rewrite(parse_module(TEXT), lambda op: (second,) if op.name == "toy.scale" else ())


def test_dead_ops_go_and_ops_with_effects_stay() -> None:
    text = TEXT.replace(
        "  toy.return", f"  %2 = toy.shout %0 : ({T}) -> {T}\n  %3 = toy.double %2 : ({T}) -> {T}\n  toy.return"
    )
    module = parse_module(text)
    assert rewrite(module, lambda op: ())
    printed = print_module(module)
    assert "toy.shout" in printed
    assert printed.count("toy.double") == 1


def test_the_hash_of_a_module_is_the_same_in_every_process() -> None:
    script = (
        "from tests.ir.base import toy; toy.use_toy()\n"
        "from tessera.ir.base.text import parse_module\nfrom tessera.ir.base.text import content_hash\n"
        f"print(content_hash(parse_module({TEXT!r})))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == content_hash(parse_module(TEXT))


def largest(candidates: Any, context: Any) -> Any:
    return max(candidate for candidate in candidates if candidate <= context["n"])


def test_a_choice_names_its_source() -> None:
    chooser = StaticChooser({"tile.n@g1": 64, "order": "columns"}, {"tile.n": ("cache model", largest)})
    context = {"n": 40}
    assert chooser.choose("tile.n@g0", [16, 32, 64], context) == Choice(32, "cache model")
    assert chooser.choose("tile.n@g1", [16, 32, 64], context) == Choice(64, "override")
    assert chooser.choose("tile.m@g0", [8, 4], context) == Choice(8, "default")
    assert chooser.choose("order", ["rows", "columns"], context) == Choice("columns", "override")
    chooser.check_overrides()


def test_an_override_that_names_no_choice_or_no_candidate_is_an_error() -> None:
    chooser = StaticChooser({"tile.q": 64, "tile.n": 3})
    with pytest.raises(OverrideError, match=r"`tile.n` cannot be 3") as caught:
        chooser.choose("tile.n@g0", [16, 32], {})
    assert "it can be 16, 32" in str(caught.value)
    chooser = StaticChooser({"tile.q": 64})
    chooser.choose("tile.n@g0", [16, 32], {})
    with pytest.raises(OverrideError, match=r"`tile.q` is not a choice of this program"):
        chooser.check_overrides()
