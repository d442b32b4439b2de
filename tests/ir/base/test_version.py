"""Texts of older versions: every renamed op and attribute is read under its old name and printed under its new one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import IRSyntaxError, VersionError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import CURRENT, SpecOp
from tessera.ir.base.text import UPGRADES, new_name, parse_module, print_module
from tessera.ir.base.verify import verify

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
_OP = re.compile(r"^(\s*(?:%[^=]*= )?)(\w+\.\w+)(.*)$")


def renamed_ops(version: int) -> set[str]:
    """The newest names of all ops that an upgrade renames, or renames attributes of."""
    upgrade = UPGRADES[version]
    return {*(new_name(name, version) for name in upgrade.ops), *upgrade.attributes, *upgrade.symbols}


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
    files = [path for path in sorted(LIT.glob("t*/*.mlir")) if "invalid" not in path.name]
    texts = [part for path in files for part in path.read_text().split("// -----")]
    # Copies of warps are in no text of a test, but in what a test lowers.
    text = (LIT / "nvptx" / "lower_to_hopper.mlir").read_text().split("// -----")[0]
    kernels = [NvptxBackend(GPUS["sm_80"]).matrix(op) for op in parse_module(text).ops if isinstance(op, SpecOp)]
    texts += [print_module(kernel) for kernel in kernels if kernel is not None]
    return [print_module(parse_module(text)) for text in [SHUFFLES, *texts]]


def test_every_renamed_op_of_version_2_is_read() -> None:
    left = renamed_ops(2)
    for text in examples():
        old = written_as(2, text)
        if old == text.replace(f"tessera.version = {CURRENT}", "tessera.version = 2"):
            continue
        module = parse_module(old)
        verify(module)
        assert print_module(module) == text
        left -= {name for name in left if f"{name} " in text}
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
