"""Objects of every code model link, find each other, the table and the C library, and say what they miss."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import pytest

from tessera.diagnostics.codes import LoadError
from tessera.runtime.loader import LinkedCode, link
from tests.runtime.programs import compile_text

MODELS = [("small", "pic"), ("small", "static"), ("large", "pic"), ("large", "static"), ("jitdefault", "pic")]

# Constants, variables, zero-filled data, pointers in data, a jump table, and calls in and out.
EVERYTHING = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@counter = global i64 5
@zeros = internal global [100 x i64] zeroinitializer
@pointer = internal global ptr @counter
declare i64 @strlen(ptr)
declare ptr @memset(ptr, i32, i64)
@text = internal constant [6 x i8] c"hello\\00"

define i64 @pick(i64 %i) {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %v = load i64, ptr %at
  ret i64 %v
}
define i64 @count() {
  %p = load ptr, ptr @pointer
  %v = load i64, ptr %p
  %n = add i64 %v, 1
  store i64 %n, ptr %p
  %m = load i64, ptr @counter
  ret i64 %m
}
define i64 @length() {
  %n = call i64 @strlen(ptr @text)
  ret i64 %n
}
define i64 @zero(i64 %i) {
  %at = getelementptr [100 x i64], ptr @zeros, i64 0, i64 %i
  %v = load i64, ptr %at
  ret i64 %v
}
define double @half(double %x) {
  %y = fmul double %x, 0.5
  ret double %y
}
define i64 @choose(i64 %i) {
entry:
  switch i64 %i, label %other [ i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e ]
a:
  ret i64 100
b:
  ret i64 7
c:
  ret i64 99
d:
  %n = call i64 @length()
  ret i64 %n
e:
  ret i64 -3
other:
  ret i64 0
}
"""


def call(code: LinkedCode, name: str, *arguments: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))(code.address(name))(*arguments)


@pytest.mark.parametrize(("codemodel", "reloc"), MODELS)
def test_an_object_of_any_code_model_runs(codemodel: str, reloc: str) -> None:
    code = link([compile_text(EVERYTHING, codemodel, reloc)])
    assert [call(code, "pick", i) for i in range(4)] == [10, 20, 30, 40]
    assert [call(code, "count"), call(code, "count")] == [6, 7]
    assert call(code, "length") == 5
    assert call(code, "zero", 99) == 0
    assert [call(code, "choose", i) for i in range(6)] == [100, 7, 99, 5, -3, 0]
    half = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(code.address("half"))
    assert half(3.0) == 1.5


CALLER = "declare i64 @callee(i64)\ndefine i64 @caller(i64 %x) {\n  %y = call i64 @callee(i64 %x)\n  ret i64 %y\n}"
CALLEE = "define i64 @callee(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}"


@pytest.mark.parametrize(("codemodel", "reloc"), MODELS)
def test_objects_find_each_other_in_either_order(codemodel: str, reloc: str) -> None:
    objects = [compile_text(text, codemodel, reloc) for text in (CALLER, CALLEE)]
    assert call(link(objects), "caller", 1) == 2
    assert call(link(objects[::-1]), "caller", 1) == 2


def test_objects_come_before_the_table_and_the_table_before_the_c_library() -> None:
    def add_hundred(x: int) -> int:
        return x + 100

    ours = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(add_hundred)
    table = {"callee": ctypes.cast(ours, ctypes.c_void_p).value or 0}
    assert call(link([compile_text(CALLER)], table), "caller", 1) == 101
    assert call(link([compile_text(CALLER), compile_text(CALLEE)], table), "caller", 1) == 2
    absolute = CALLER.replace("callee", "labs")
    assert call(link([compile_text(absolute)]), "caller", -3) == 3
    assert call(link([compile_text(absolute)], {"labs": table["callee"]}), "caller", -3) == 97


def test_a_strong_definition_replaces_a_weak_one() -> None:
    weak = CALLEE.replace("define", "define weak").replace("%x, 1", "%x, 50")
    for texts in ([CALLER, weak, CALLEE], [CALLER, CALLEE, weak]):
        assert call(link([compile_text(text) for text in texts]), "caller", 1) == 2


def test_an_unresolved_symbol_is_named() -> None:
    with pytest.raises(LoadError, match="unresolved symbol `callee`"):
        link([compile_text(CALLER)])


def test_a_symbol_defined_twice_is_named() -> None:
    with pytest.raises(LoadError, match="`callee` is defined by two objects"):
        link([compile_text(CALLEE), compile_text(CALLEE)])


def test_a_missing_entry_is_named() -> None:
    with pytest.raises(LoadError, match="defines `nothing`"):
        link([compile_text(CALLEE)]).address("nothing")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(100), compile_text(CALLEE)[:200]])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(LoadError):
        link([data])


def test_an_object_for_another_machine_is_refused() -> None:
    data = bytearray(compile_text(CALLEE))
    data[18:20] = (183).to_bytes(2, "little")
    with pytest.raises(LoadError, match="machine 183"):
        link([bytes(data)])


def permissions(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[1]
    return ""


def test_no_page_is_both_writable_and_executable() -> None:
    code = link([compile_text(EVERYTHING)])
    assert permissions(code.address("pick")) == "r-xp"
    assert permissions(code.address("counter")) == "rw-p"


def test_memory_goes_back_when_nothing_holds_the_code() -> None:
    code = link([compile_text(EVERYTHING)])
    address = code.address("pick")
    del code
    assert permissions(address) != "r-xp"


def test_linking_takes_less_than_two_milliseconds() -> None:
    data = compile_text(EVERYTHING)
    times: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        link([data])
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-3
