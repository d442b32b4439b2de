"""Texts of older versions: every renamed op and attribute is read under its old name and printed under its new one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import IRSyntaxError, VersionError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import CURRENT, SpecOp
from tessera.ir.base.text import UPGRADES, new_name, parse_module, print_module
from tessera.ir.base.verify import verify
from tests.oracles.nvptx_backend import NvptxBackend

LIT = Path(__file__).parents[2] / "lit"
SHUFFLES = """
ttile.kernel @lanes(%x: !ttile.buffer<[32], f32>) attributes {symbols = [], grid = [1], writes = [0]} {
  %v = ttile.constant {value = 1.0} : () -> !ttile.tile<[32], f32>
  %s = ttile.shuffle %v {mode = "down", by = 1} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  ttile.return
}
ttarget.kernel @lanes_of_registers(%x: !ttile.buffer<[32], f32>)
    attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %v = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[32], f32>
    %s = ttarget.shuffle %v {mode = "xor", by = 1} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    ttarget.yield
  })
  ttarget.return
}
"""
SCHEDULES = """
tgraph.func @rows(%x: !tgraph.tensor<[5, 4], f32>, %i: !tgraph.tensor<[3], i32>) -> !tgraph.tensor<[5, 3], f32>
    attributes {names = ["x", "i"]} {
  %a = tgraph.index_get %x, %i {axes = [1], out_axis = 1}
    : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[3], i32>) -> !tgraph.tensor<[5, 3], f32>
  %b = tgraph.index_legal %x, %i {axes = [1], out_axis = 1}
    : (!tgraph.tensor<[5, 4], f32>, !tgraph.tensor<[3], i32>) -> !tgraph.tensor<[5, 3], f32>
  tgraph.return %b : (!tgraph.tensor<[5, 3], f32>) -> ()
}
ttile.kernel @dots(%x: !ttile.buffer<[32], f32>)
    attributes {symbols = [], grid = [1], writes = [0], scheduler = "persistent", group = 2, multicast = true} {
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 8} : () -> !ttile.index
  %zero = ttile.constant {value = 0.0} : () -> !ttile.tile<[8, 8], f32>
  %sum = ttile.for %low, %high, %zero {step = 4, form = "skewed", pingpong = true, releases = [1]} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[8, 8], f32>):
    %next = ttile.dot %zero, %zero, %acc {releases = [0]}
      : (!ttile.tile<[8, 8], f32>, !ttile.tile<[8, 8], f32>, !ttile.tile<[8, 8], f32>) -> !ttile.tile<[8, 8], f32>
    ttile.yield %next : (!ttile.tile<[8, 8], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[8, 8], f32>) -> !ttile.tile<[8, 8], f32>
  ttile.return
}
"""
_OP = re.compile(r"^(\s*(?:%[^=]*= )?)(\w+\.\w+)(.*)$")


def renamed_names(version: int) -> set[tuple[str, str]]:
    """The newest names of all ops and attributes that an upgrade renames, an op's own with no attribute."""
    upgrade = UPGRADES[version]
    ops = {new_name(name, version) for name in upgrade.ops} | upgrade.symbols.keys()
    attributes = {(op, new) for op, names in upgrade.attributes.items() for new in names.values()}
    return {(op, "") for op in ops} | attributes


def written_as(version: int, text: str) -> str:
    """A printed module as the given version wrote it."""
    upgrade = UPGRADES[version]
    old_ops = {new: old for old, new in upgrade.ops.items()}
    lines: list[str] = []
    for line in text.replace(f"tessera.version = {CURRENT}", f"tessera.version = {version}").splitlines():
        found = _OP.match(line)
        if found is not None:
            start, name, rest = found.groups()
            for old, new in upgrade.attributes.get(name, {}).items():
                rest = re.sub(rf"(?<=[{{ ]){new} = ", f"{old} = ", rest)
            for old, new in upgrade.symbols.get(name, {}).items():
                rest = re.sub(rf"\b{new}\b", old, rest)
            line = start + old_ops.get(name, name) + rest
        lines.append(line)
    return "\n".join(lines) + "\n"


def examples() -> list[str]:
    """Every module of the tests of dialects that is right, printed in this version."""
    load_dialects()
    files = [path for folder in ("t*", "nvptx") for path in sorted(LIT.glob(f"{folder}/*.mlir"))]
    files = [path for path in files if "invalid" not in path.name]
    texts = [part for path in files for part in path.read_text().split("// -----")]
    # Copies of warps are in no text of a test, but in what a test lowers.
    text = (LIT / "nvptx" / "lower_to_ampere.mlir").read_text().split("// -----")[0]
    kernels = [NvptxBackend(GPUS["sm_80"]).matrix(op) for op in parse_module(text).ops if isinstance(op, SpecOp)]
    texts += [print_module(kernel) for kernel in kernels if kernel is not None]
    return [print_module(parse_module(text)) for text in [SHUFFLES, SCHEDULES, *texts]]


@pytest.mark.parametrize("version", [2, 3])
def test_every_renamed_op_and_attribute_is_read(version: int) -> None:
    left = renamed_names(version)
    for text in examples():
        old = written_as(version, text)
        if old == text.replace(f"tessera.version = {CURRENT}", f"tessera.version = {version}"):
            continue
        module = parse_module(old)
        verify(module)
        assert print_module(module) == text
        lines = text.splitlines()
        left -= {(op, name) for op, name in left if any(f"{op} " in line and f"{name} = " in line for line in lines)}
        left -= {(op, name) for op, name in left if not name and f"{op} " in text}
    assert not left, f"no text has {sorted(left)}"


def test_a_text_of_version_1_is_upgraded_through_all_versions() -> None:
    old = """builtin.module attributes {tessera.version = 1 : i64} {
      tgraph.function @main(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> attributes {arguments = ["x"]} {
        tgraph.output %x : (!tgraph.tensor<[B], f32>) -> ()
      }
    }"""
    load_dialects()
    module = parse_module(old)
    verify(module)
    text = print_module(module)
    assert f"tessera.version = {CURRENT}" in text
    assert (
        'tgraph.func @main(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> attributes {names = ["x"]}' in text
    )
    with pytest.raises(IRSyntaxError, match=r"tgraph.function is not registered"):
        parse_module(old.replace("version = 1", f"version = {CURRENT}"))


@pytest.mark.parametrize("version", ["0", str(CURRENT + 1), "77", '"one"'])
def test_an_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(VersionError, match="T0303"):
        parse_module(f"builtin.module attributes {{tessera.version = {version} : i64}} {{\n}}")
