"""Small executables written in LLVM text, for tests of what runs them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from tessera.runtime.executable import Executable, Guard, Port

# llvmlite has no types of its own.
llvm: Any = import_module("llvmlite.binding")
TRIPLE = "x86_64-unknown-linux-gnu"


@cache
def _machine(codemodel: str, reloc: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu="x86-64", opt=1, reloc=reloc, codemodel=codemodel)


@cache
def compile_text(text: str, codemodel: str = "small", reloc: str = "pic") -> bytes:
    """An object of LLVM text."""
    module = llvm.parse_assembly(text)
    module.triple = TRIPLE
    module.verify()
    return _machine(codemodel, reloc).emit_object(module)


ADD = """
define i64 @tessera_check(ptr %symbols, ptr %dims) {
  %rows.at = getelementptr i64, ptr %dims, i64 2
  %rows = load i64, ptr %rows.at
  %n.at = getelementptr i64, ptr %symbols, i64 0
  %n = load i64, ptr %n.at
  %same = icmp eq i64 %rows, %n
  %c.at = getelementptr i64, ptr %dims, i64 3
  %c = load i64, ptr %c.at
  %d.at = getelementptr i64, ptr %symbols, i64 1
  %d = load i64, ptr %d.at
  %same.d = icmp eq i64 %c, %d
  %second = select i1 %same.d, i64 0, i64 2
  %result = select i1 %same, i64 %second, i64 1
  ret i64 %result
}
define void @tessera_shapes(ptr %symbols, ptr %dims) {
  %n = load i64, ptr %symbols
  store i64 %n, ptr %dims
  %d.at = getelementptr i64, ptr %symbols, i64 1
  %d = load i64, ptr %d.at
  %to = getelementptr i64, ptr %dims, i64 1
  store i64 %d, ptr %to
  ret void
}
define i64 @tessera_workspace(ptr %symbols) {
  ret i64 100
}
define i64 @tessera_entry(ptr %inputs, ptr %outputs, ptr %symbols, ptr %workspace) {
entry:
  %x = load ptr, ptr %inputs
  %y.at = getelementptr ptr, ptr %inputs, i64 1
  %y = load ptr, ptr %y.at
  %z = load ptr, ptr %outputs
  %n = load i64, ptr %symbols
  %d.at = getelementptr i64, ptr %symbols, i64 1
  %d = load i64, ptr %d.at
  %size = mul i64 %n, %d
  store i64 7, ptr %workspace
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %size
  br i1 %more, label %one, label %done
one:
  %xi = getelementptr float, ptr %x, i64 %i
  %yi = getelementptr float, ptr %y, i64 %i
  %zi = getelementptr float, ptr %z, i64 %i
  %a = load float, ptr %xi
  %b = load float, ptr %yi
  %c = fadd float %a, %b
  store float %c, ptr %zi
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret i64 0
}
"""


def add_executable() -> Executable:
    """`z[N, D] = x[N, D] + y[N, D]` of f32, with every dim free."""
    return Executable(
        objects=(compile_text(ADD),),
        inputs=(Port("f32", ("N", "D"), "x"), Port("f32", ("N", "D"), "y")),
        outputs=(Port("f32", ("N", "D")),),
        symbols=("N", "D"),
        binding=(0, 1),
        guards=(Guard("rows of `x` and `y`", "N", "y.0"), Guard("columns of `x` and `y`", "D", "y.1")),
        metadata={"name": "add"},
    )


def constant_text(shape: tuple[int, ...], body: str, workspace: int = 0, extra: str = "") -> str:
    """A program without symbols or guards: one output of `shape`, and `body` as its entry."""
    stores = "".join(
        f"  %at{axis} = getelementptr i64, ptr %dims, i64 {axis}\n  store i64 {dim}, ptr %at{axis}\n"
        for axis, dim in enumerate(shape)
    )
    return f"""
define i64 @tessera_check(ptr %symbols, ptr %dims) {{
  ret i64 0
}}
define void @tessera_shapes(ptr %symbols, ptr %dims) {{
{stores}  ret void
}}
define i64 @tessera_workspace(ptr %symbols) {{
  ret i64 {workspace}
}}
define i64 @tessera_entry(ptr %inputs, ptr %outputs, ptr %symbols, ptr %workspace) {{
{body}
}}
{extra}
"""
