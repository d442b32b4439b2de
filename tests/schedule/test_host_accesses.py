"""What ops of host programs touch, which of them may stand where, and which values share memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.diagnostics.error import TesseraError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.schedule.host_program.accesses import ByteRange, Memory, accesses_of, modes_of, refuse_unplaced
from tessera.ir.schedule.plan import programs_in
from tessera.types.dim import Dim

PLANNED = "!tgraph.tensor<[8], f32>"
MOVED = 'call = "all_to_all", axis = "dp", ranks = 2'
BUFFER, NUMBER, FLAG = "!ttile.buffer<[8], f32>", "!ttile.buffer<[], i64>", "!ttile.buffer<[], bool>"
BOTH = f"%x: {BUFFER}, %y: {BUFFER}"
SIZED = "!ttile.buffer<[s0], f32>"
KERNEL = f"""
ttile.kernel @k(%x: {SIZED}, %out: {SIZED}) attributes {{
  symbols = ["s0"], grid = [s0], writes = [1], tessera.effects = ["io", "memory"]
}} {{
  ttile.return
}}
ttile.kernel @plain(%x: {BUFFER}) attributes {{symbols = [], grid = [], writes = []}} {{
  ttile.return
}}"""


def module_of(body: str, arguments: str = BOTH, attributes: str = "workspace = 0", results: str = "()") -> ModuleOp:
    load_dialects()
    text = f"tsched.module @main({arguments}) -> {results} attributes {{{attributes}}} {{\n{body}\n}}{KERNEL}"
    return parse_module(text)


def refusal_of(module: ModuleOp) -> str:
    try:
        verify(module)
    except OpError as error:
        return error.message
    return ""


# Which bytes an op reads and writes.

PROGRAM = f"""
  %a = tsched.alloc {{offset = 0}} : {BUFFER}
  %b = tsched.alloc {{offset = 64}} : {BUFFER}
  %r = tsched.alloc {{output = 0}} : {BUFFER}
  %c = tsched.alloc : {BUFFER}
  %v = tsched.alias %a : !ttile.buffer<[2, 4], f32>
  %i = tsched.alloc {{offset = 128}} : {NUMBER}
  %n = tsched.alloc {{offset = 192}} : {NUMBER}
  %p = tsched.alloc {{offset = 256}} : {FLAG}
  tsched.guard {{left = 1, right = 1}}
  tsched.copy %x, %a
  tsched.copy %v, %r
  tsched.call @k(%a, %b) sizes = [8]
  tsched.call @missing(%a, %b)
  tsched.callback %a, %b {{call = "io_callback", slot = 0, outputs = 1}}
  %f = tsched.for %a, %b, %x, %r {{carried = 1, scanned = 1, stacked = 1, length = 8}} ({{
  ^bb0(%f0: {BUFFER}, %f1: {BUFFER}, %row: !ttile.buffer<[], f32>, %out: !ttile.buffer<[], f32>):
    tsched.copy %f0, %f1
    tsched.copy %row, %out
    tsched.yield
  }}) : {BUFFER}
  %g = tsched.for %n, %n, %i, %a, %b, %x, %r {{carried = 1, scanned = 1, stacked = 1}} ({{
  ^bb0(%at: {NUMBER}, %g0: {BUFFER}, %g1: {BUFFER}, %row: !ttile.buffer<[], f32>, %out: !ttile.buffer<[], f32>):
    tsched.copy %at, %n
    tsched.copy %g0, %y
    tsched.copy %g1, %y
    tsched.copy %row, %out
    tsched.yield
  }}) : {BUFFER}
  %w = tsched.while %a, %b ({{
  ^bb0(%w0: {BUFFER}):
    tsched.yield %p
  }}, {{
  ^bb0(%w1: {BUFFER}, %w2: {BUFFER}):
    tsched.copy %w1, %c
    tsched.yield
  }}) : {BUFFER}
  tsched.if %p ({{
    tsched.copy %y, %c
    tsched.yield
  }}, {{
    tsched.call @k(%y, %c) sizes = [8]
    tsched.yield
  }})
  tsched.copy %f, %y
  tsched.copy %g, %y
  tsched.copy %w, %y
  tsched.free %a
  tsched.return %r"""
A, B, C, R = "workspace[0, 64)", "workspace[64, 128)", "alloc", "result 0"
INDEX, END, COND = "workspace[128, 192)", "workspace[192, 256)", "workspace[256, 320)"
X, Y = "argument x", "donated argument y"

EXPECTED = [
    # What each op after the allocations reads, and what it writes.
    ("guard", "", ""),
    ("copy", X, A),
    ("copy", A, R),
    ("call", f"{A} {B}", B),
    ("call", f"{A} {B}", f"{A} {B}"),
    ("callback", A, B),
    ("for", f"{A} {B} {X} {R}", f"{A} {B} {R}"),
    ("for", f"{END} {INDEX} {A} {B} {X} {R}", f"{INDEX} {A} {B} {END} {Y} {R}"),
    ("while", f"{A} {B} {COND}", f"{A} {B} {C}"),
    ("if", f"{COND} {Y} {C}", C),
    ("copy", f"{A} {B}", Y),
    ("copy", f"{A} {B}", Y),
    ("copy", f"{A} {B}", Y),
    ("free", "", A),
    ("return", R, ""),
]


def memory_of(module: ModuleOp, scratch: tuple[str, ...] = ()) -> tuple[Memory, list[SpecOp]]:
    (program,) = programs_in(module)
    return Memory(program, symbol_table(module), scratch), [
        op for op in program.regions[0].block.ops if isinstance(op, SpecOp)
    ]


def words(ranges: tuple[ByteRange, ...]) -> set[str]:
    """The texts of ranges; a buffer without an offset is numbered, by the order in which it was asked for."""
    return {C if str(one).startswith(C) else str(one) for one in ranges}


def ranges_in(text: str) -> set[str]:
    return {one for one in (A, B, C, R, INDEX, END, COND, X, Y) if one in text}


def placed() -> ModuleOp:
    attributes = 'workspace = 320, names = ["x", "y"], tessera.donated = [1]'
    module = module_of(PROGRAM, attributes=attributes, results=BUFFER)
    verify(module)
    return module


def test_each_op_reads_and_writes_the_bytes_it_says() -> None:
    memory, ops = memory_of(placed())
    for op, (name, reads, writes) in zip(ops[8:], EXPECTED, strict=True):
        found = memory.accesses(op)
        assert op.spec.short_name == name
        assert words(found.reads) == ranges_in(reads), f"{name} reads"
        assert words(found.writes) == ranges_in(writes), f"{name} writes"
        assert len(set(found.reads)) == len(found.reads), "each once"


def test_an_allocation_writes_and_an_alias_touches_nothing() -> None:
    memory, ops = memory_of(placed())
    for op, wanted in zip(ops[:8], (A, B, R, C, "", INDEX, END, COND), strict=True):
        found = memory.accesses(op)
        assert found.reads == ()
        assert words(found.writes) == ranges_in(wanted)


def test_kernels_with_scratch_share_it() -> None:
    memory, ops = memory_of(placed(), scratch=("k",))
    calls = [op for op in ops if op.name == "tsched.call"]
    assert [any(one.memory == "scratch" for one in memory.accesses(op).writes) for op in calls] == [True, False]
    assert not any(one.memory == "scratch" for one in memory.accesses(calls[0]).reads)


LOOPS = f"""
  %0 = tsched.alloc {{offset = 0}} : {BUFFER}
  %1 = tsched.alloc {{offset = 64}} : {BUFFER}
  %2 = tsched.alloc {{offset = 128}} : {BUFFER}
  %3 = tsched.alloc {{offset = 192}} : {BUFFER}
  %f, %g = tsched.for %n, %n, %i, %0, %1, %2, %3, %x, %y {{carried = 2, scanned = 1, stacked = 1}} ({{
  ^bb0(%at: {NUMBER}, %a: {BUFFER}, %b: {BUFFER}, %c: {BUFFER}, %d: {BUFFER}, %row: {FLAG}, %out: {FLAG}):
    tsched.yield
  }}) : ({BUFFER}, {BUFFER})
  %h, %j = tsched.for %0, %1, %2, %3, %x, %y {{carried = 2, scanned = 1, stacked = 1, length = 2}} ({{
  ^bb0(%a: {BUFFER}, %b: {BUFFER}, %c: {BUFFER}, %d: {BUFFER}, %row: {FLAG}, %out: {FLAG}):
    tsched.yield
  }}) : ({BUFFER}, {BUFFER})
  %v, %w = tsched.while %0, %1, %2, %3 ({{
  ^bb0(%a: {BUFFER}, %b: {BUFFER}):
    tsched.yield %p
  }}, {{
  ^bb0(%a: {BUFFER}, %b: {BUFFER}, %c: {BUFFER}, %d: {BUFFER}):
    tsched.yield
  }}) : ({BUFFER}, {BUFFER})
  tsched.for %n, %n, %i, %x {{scanned = 1}} ({{
  ^bb0(%at: {NUMBER}, %row: {FLAG}):
    tsched.yield
  }})
  tsched.return"""


def test_what_a_loop_carries_is_in_one_of_two_buffers() -> None:
    arguments = f"%x: {BUFFER}, %y: {BUFFER}, %i: {NUMBER}, %n: {NUMBER}, %p: {FLAG}"
    module = module_of(LOOPS, arguments, 'names = ["x", "y", "i"]')
    verify(module)
    memory, (*_, counted, scanned, loop, bare, _) = memory_of(module)
    first, second = "workspace[0, 64) workspace[128, 192)", "workspace[192, 256) workspace[64, 128)"
    carried = [first, second, first, second]

    def ranges(values: Iterable[SSAValue]) -> list[str]:
        return [" ".join(sorted(map(str, memory.ranges(value)))) for value in values]

    rows = ["argument x", "argument y"]
    assert ranges(counted.regions[0].block.args) == ["argument i", *carried, *rows]
    assert ranges(scanned.regions[0].block.args) == [*carried, *rows]
    assert ranges(loop.regions[0].block.args) == carried[:2]
    assert ranges(loop.regions[1].block.args) == carried
    for op in (counted, scanned, loop):
        assert ranges(op.results) == carried[:2]
    assert [str(one) for one in memory.accesses(bare).writes] == ["argument i"]
    assert {str(one) for one in memory.accesses(bare).reads} == {"argument 3", "argument i", "argument x"}


def test_values_of_a_plan_have_memory_of_their_own() -> None:
    body = f"""
  %a, %b = tsched.fuse @g(%x, %y) {{in_place = [1]}} : ({PLANNED}, {PLANNED})
  %c = tsched.for %a, %z {{carried = 1, scanned = 1, length = 8}} ({{
  ^bb0(%d: {PLANNED}, %row: !tgraph.tensor<[], f32>):
    %e = tsched.fuse @h(%d, %row) : {PLANNED}
    tsched.yield %e
  }}) : {PLANNED}
  %w = tsched.while %c ({{
  ^bb0(%d: {PLANNED}):
    %p = tsched.fuse @p(%d) : !tgraph.tensor<[], bool>
    tsched.yield %p
  }}, {{
  ^bb0(%d: {PLANNED}):
    tsched.yield %d
  }}) : {PLANNED}
  %s = tsched.collective_start %z {{number = 0, {MOVED}}} : {PLANNED}
  %r = tsched.collective_wait %z, %s {{number = 0}} : {PLANNED}
  %u = tsched.fuse @g(%x) {{in_place = [0]}} : {PLANNED}
  tsched.return"""
    arguments = f"%x: {PLANNED}, %y: {PLANNED}, %z: {PLANNED}"
    module = module_of(body, arguments, "tessera.donated = [0, 1]")
    verify(module)
    memory, (fuse, loop, repeat, start, _, last, _) = memory_of(module)

    def names(*values: SSAValue) -> list[str]:
        return [one.memory.rstrip("0123456789") for value in values for one in memory.ranges(value)]

    assert [str(one) for one in memory.accesses(fuse).reads] == ["donated argument 0", "donated argument 1"]
    assert str(memory.accesses(fuse).writes[0]) == "donated argument 1"
    assert [str(one) for one in memory.accesses(last).writes] == ["donated argument 0"]
    carried, row = loop.regions[0].block.args
    assert names(fuse.results[1], carried, row, *loop.results) == ["fuse ", "value ", "value ", "for "]
    assert names(*repeat.regions[1].block.args, *repeat.results) == ["value ", "while "]
    inner = loop.regions[0].block.first_op
    assert inner is not None
    assert names(*inner.results) == ["fuse "], "nothing is written over where nothing says so"
    assert memory.ranges(row)[0].bytes == Dim.constant(4)
    found = memory.accesses(loop)
    assert set(memory.ranges(loop.results[0])) <= set(found.writes)
    assert set(memory.ranges(row)) <= set(found.reads)
    # What an op does that is not known here, it does to all its values.
    both = {*memory.ranges(start.operands[0]), *memory.ranges(start.results[0])}
    assert set(memory.accesses(start).reads) == set(memory.accesses(start).writes) == both


def test_effects_are_those_of_the_kernels_called_but_for_memory() -> None:
    memory, ops = memory_of(placed())
    effects = {number: set(memory.effects(op)) for number, op in enumerate(ops[8:])}
    assert effects[1] == set()
    assert effects[3] == {"io"}
    assert effects[4] == set(), "a kernel that is not at hand says nothing"
    assert effects[5] == {"io"}
    assert effects[6] == set()
    assert effects[9] == {"io"}, "in a body too"
    module = module_of("  tsched.call @plain(%x)\n  tsched.return", attributes="workspace = 0")
    memory, ops = memory_of(module)
    assert set(memory.effects(ops[0])) == set()


def test_ranges_overlap_where_no_proof_keeps_them_apart() -> None:
    n = Dim.symbol("N")

    def at(start: Dim | int, size: Dim | int, memory: str = "workspace") -> ByteRange:
        return ByteRange(memory, Dim.of(start), Dim.of(size))

    apart = [
        (at(0, 64), at(64, 64)),
        (at(0, 64 * n), at(64 * n, 64)),
        (at(0, 8, "result 0"), at(0, 8, "result 1")),
        (at(0, 8, "argument x"), at(0, 8, "donated argument y")),
        (at(0, 8, "argument x"), at(0, 8)),
    ]
    together = [
        (at(0, 64), at(0, 64)),
        (at(0, 64), at(0, 128)),
        (at(0, 65), at(64, 64)),
        (at(0, 64 * n), at(64, 64)),
        (at(0, 8, "argument x"), at(0, 8, "argument y")),
    ]
    for pairs, wanted in ((apart, False), (together, True)):
        for left, right in pairs:
            assert left.may_overlap(right) is wanted, (left, right)
            assert right.may_overlap(left) is wanted, (left, right)


def test_a_runtime_gets_modes_and_bytes_of_each_buffer() -> None:
    kernel = symbol_table(placed())["k"]
    assert modes_of(kernel) == ["r", "rw"]
    assert accesses_of(kernel) == {"symbols": ["s0"], "buffers": [["r", "4*s0"], ["rw", "4*s0"]]}


# Calls.


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("tsched.call @k(%x, %y) sizes = [8]", ""),
        ("tsched.call @missing(%x)", ""),
        ("tsched.call @k(%x, %y)", "`@k` takes 2 buffers and 1 sizes, got 2 and 0"),
        ("tsched.call @k(%x, %y) sizes = [8, 8]", "`@k` takes 2 buffers and 1 sizes, got 2 and 2"),
        ("tsched.call @k(%x) sizes = [8]", "`@k` takes 2 buffers and 1 sizes, got 1 and 1"),
        ("tsched.call @k(%x, %x, %y) sizes = [8]", "`@k` takes 2 buffers and 1 sizes, got 3 and 1"),
        ("tsched.call @k(%x, %i) sizes = [8]", "buffer 1 of `@k` is f32, got i64"),
        ("tsched.call @k(%i, %x) sizes = [8]", "buffer 0 of `@k` is f32, got i64"),
        (
            f"tsched.for %x {{length = 2}} ({{\n^bb0(%q: {NUMBER}):\ntsched.call @k(%x)\ntsched.yield\n}})",
            "`@k` takes 2",
        ),
    ],
)
def test_a_call_has_the_sizes_and_buffers_of_its_kernel(call: str, said: str) -> None:
    module = module_of(f"  {call}\n  tsched.return", f"%x: {BUFFER}, %y: {BUFFER}, %i: {NUMBER}")
    found = refusal_of(module)
    assert found.startswith(said) if said else not found, found


# Lifetimes.

FREED = "`tsched.copy` uses a buffer that was freed"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("tsched.copy %a, %x\ntsched.free %a", ""),
        ("tsched.free %a\ntsched.copy %a, %x", FREED),
        ("tsched.free %a\ntsched.copy %x, %a", FREED),
        ("tsched.free %a\ntsched.free %a", "a buffer is freed twice"),
        ("%v = tsched.alias %a : !ttile.buffer<[2, 4], f32>\ntsched.free %v\ntsched.copy %a, %x", FREED),
        (
            "%v = tsched.alias %a : !ttile.buffer<[2, 4], f32>\ntsched.free %v\ntsched.free %a",
            "a buffer is freed twice",
        ),
        ("tsched.free %a\ntsched.tile %a chosen = 8", ""),
        ("tsched.if %p ({\ntsched.free %a\ntsched.yield\n}, {\ntsched.yield\n})\ntsched.copy %a, %x", FREED),
        ("tsched.if %p ({\ntsched.yield\n}, {\ntsched.free %a\ntsched.yield\n})\ntsched.copy %a, %x", FREED),
        ("tsched.free %a\ntsched.if %p ({\ntsched.copy %a, %x\ntsched.yield\n}, {\ntsched.yield\n})", FREED),
        (
            f"tsched.for {{length = 2}} ({{\n%c = tsched.alloc : {BUFFER}\ntsched.copy %x, %c\ntsched.free %c\n"
            "tsched.yield\n})",
            "",
        ),
        ("tsched.for {length = 2} ({\ntsched.copy %a, %x\ntsched.free %a\ntsched.yield\n})", FREED),
        (
            f"tsched.while ({{\n%c = tsched.alloc : {FLAG}\ntsched.copy %p, %c\ntsched.free %c\ntsched.yield %c\n}}, "
            "{\ntsched.yield\n})",
            "",
        ),
        ("tsched.while ({\ntsched.yield %p\n}, {\ntsched.copy %a, %x\ntsched.free %a\ntsched.yield\n})", FREED),
    ],
)
def test_nothing_uses_a_buffer_behind_its_end(body: str, said: str) -> None:
    text = f"%a = tsched.alloc : {BUFFER}\n{body}\ntsched.return"
    found = refusal_of(module_of(text, f"%x: {BUFFER}, %p: {FLAG}"))
    assert found == said


# Collectives.

FILLS = "uses the buffer that collective 0 still fills"
SENDS = "writes what collective 0 sends"


def repeat(operands: str, values: str) -> str:
    """A loop over these operands that does nothing."""
    return f"tsched.for {operands} {{{values}}} ({{\n^bb0(%q: {BUFFER}):\ntsched.yield\n}})"


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("", ""),
        ("tsched.copy %x, %z", ""),
        ("tsched.copy %z, %x", f"`tsched.copy` {SENDS}"),
        ("tsched.copy %z, %y", f"`tsched.copy` {FILLS}"),
        ("tsched.copy %y, %z", f"`tsched.copy` {FILLS}"),
        ("%v = tsched.alias %y : !ttile.buffer<[2, 4], f32>", ""),
        ("tsched.tile %y chosen = 8", ""),
        ("tsched.tile %x chosen = 8", ""),
        ("tsched.call @k(%x, %z) sizes = [8]", ""),
        ("tsched.call @k(%z, %x) sizes = [8]", f"`tsched.call` {SENDS}"),
        ("tsched.call @missing(%x)", f"`tsched.call` {SENDS}"),
        ('tsched.callback %x, %z {call = "io_callback", slot = 0, outputs = 1}', ""),
        ('tsched.callback %x, %z {call = "io_callback", slot = 0, outputs = 2}', f"`tsched.callback` {SENDS}"),
        ('tsched.callback %z, %x {call = "io_callback", slot = 0, outputs = 1}', f"`tsched.callback` {SENDS}"),
        ("tsched.if %p ({\ntsched.copy %z, %x\ntsched.yield\n}, {\ntsched.yield\n})", f"`tsched.copy` {SENDS}"),
        ("tsched.if %p ({\ntsched.copy %x, %z\ntsched.yield\n}, {\ntsched.yield\n})", ""),
        (repeat("%x", "scanned = 1, length = 8"), ""),
        (repeat("%x, %z", "carried = 1, length = 8"), f"`tsched.for` {SENDS}"),
        (repeat("%z, %x", "carried = 1, length = 8"), f"`tsched.for` {SENDS}"),
        (repeat("%z, %x", "scanned = 1, stacked = 1, length = 8"), f"`tsched.for` {SENDS}"),
        (repeat("%x, %z", "scanned = 1, stacked = 1, length = 8"), ""),
        (repeat("%i, %i, %i, %z, %z, %x", "carried = 1, scanned = 1"), ""),
        (repeat("%i, %i, %i, %z, %x", "carried = 1"), f"`tsched.for` {SENDS}"),
        (repeat("%i, %i, %x", "carried = 0"), f"`tsched.for` {SENDS}"),
        (repeat("%x, %x, %i", "carried = 0"), ""),
        (
            f"%w = tsched.while %z, %x ({{\n^bb0(%q: {BUFFER}):\ntsched.yield %p\n}}, {{\n"
            f"^bb0(%s: {BUFFER}, %t: {BUFFER}):\ntsched.yield\n}}) : {BUFFER}",
            f"`tsched.while` {SENDS}",
        ),
        (f"tsched.collective_start %x, %z {{number = 1, {MOVED}}}\ntsched.collective_wait %x, %z {{number = 1}}", ""),
        (f"tsched.collective_start %z, %x {{number = 1, {MOVED}}}", f"`tsched.collective_start` {SENDS}"),
        (f"tsched.collective_start %y, %z {{number = 1, {MOVED}}}", f"`tsched.collective_start` {FILLS}"),
        (f"tsched.collective_start %z, %y {{number = 1, {MOVED}}}", f"`tsched.collective_start` {FILLS}"),
        (
            f"tsched.collective_start %x, %z {{number = 0, {MOVED}}}",
            "collective 0 starts behind collective 0, and ranks match",
        ),
        (f"tsched.collective_start %x, %z {{number = 1, {MOVED}}}", "collective 1 is never waited for"),
        ("tsched.collective_wait %x, %z {number = 1}", "collective 1 is waited for, and was not started before"),
    ],
)
def test_nothing_touches_what_a_collective_moves(between: str, said: str) -> None:
    started = f"tsched.collective_start %x, %y {{number = 0, {MOVED}}}"
    body = f"{started}\n{between}\ntsched.collective_wait %x, %y {{number = 0}}\ntsched.copy %x, %y\ntsched.return"
    arguments = f"%x: {BUFFER}, %y: {BUFFER}, %z: {BUFFER}, %p: {FLAG}, %i: {NUMBER}"
    found = refusal_of(module_of(body, arguments))
    assert found.startswith(said) if said else not found, found
    bare = refusal_of(module_of(f"{between}\ntsched.return", arguments))
    assert FILLS not in bare, "without one in flight all of it may stand here"
    assert SENDS not in bare


def test_collectives_are_numbered_from_0() -> None:
    body = f"tsched.collective_start %x, %y {{number = -1, {MOVED}}}\ntsched.collective_wait %x, %y {{number = -1}}"
    assert refusal_of(module_of(f"{body}\ntsched.return")).startswith("collective -1 starts behind")


def test_a_collective_in_a_body_is_waited_for_in_it() -> None:
    start = f"tsched.collective_start %x, %y {{number = 0, {MOVED}}}"
    wait = "tsched.collective_wait %x, %y {number = 0}"
    arguments = f"%x: {BUFFER}, %y: {BUFFER}, %p: {FLAG}"

    def within(inner: str, behind: str = "") -> str:
        body = f"tsched.if %p ({{\n{inner}\ntsched.yield\n}}, {{\ntsched.yield\n}})\n{behind}\ntsched.return"
        return refusal_of(module_of(body, arguments))

    assert within(f"{start}\n{wait}") == ""
    assert within(start) == "collective 0 is never waited for"
    assert within(start, wait) == "collective 0 is never waited for"


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("", ""),
        (f"%a = tsched.fuse @g(%x) : {PLANNED}", ""),
        ("tsched.tile %s chosen = 8", ""),
        (f"%a = tsched.fuse @g(%s) : {PLANNED}", "`tsched.fuse` uses the result of collective 0 before"),
    ],
)
def test_the_value_that_a_collective_brings_is_used_behind_its_wait(between: str, said: str) -> None:
    body = f"""%s = tsched.collective_start %x {{number = 0, {MOVED}}} : {PLANNED}
{between}
%r = tsched.collective_wait %x, %s {{number = 0}} : {PLANNED}
%b = tsched.fuse @g(%r) : {PLANNED}
tsched.return"""
    found = refusal_of(module_of(body, f"%x: {PLANNED}", "names = []"))
    assert found.startswith(said) if said else not found, found


# Results written over an operand, and arguments that are returned.

OVER = "`in_place` is the number of an operand with the type of result 0, got"
LATER = "writes over operand 0, which `tsched.fuse` reads later"
KEPT = "writes over operand 0, which is neither donated by the caller nor made here"
FUSED = f"tsched.fuse @g(%x) {{in_place = [0]}} : {PLANNED}"


@pytest.mark.parametrize(
    ("body", "donated", "said"),
    [
        (f"%a = {FUSED}", "0", ""),
        (f"%a = {FUSED}", "1", KEPT),
        (f"%a = tsched.fuse @g(%x) {{in_place = [1]}} : {PLANNED}", "0", f"{OVER} 1"),
        (f"%a = tsched.fuse @g(%i) {{in_place = [0]}} : {PLANNED}", "2", f"{OVER} 0"),
        ("tsched.fuse @g(%x) {in_place = [0]} : ()", "0", "an operand of its own for each result at most, got [0]"),
        (f"%a, %b = tsched.fuse @g(%x, %y) {{in_place = [-1, 0]}} : ({PLANNED}, {PLANNED})", "0", ""),
        (f"%a, %b = tsched.fuse @g(%x) {{in_place = [0, 0]}} : ({PLANNED}, {PLANNED})", "0", "got [0, 0]"),
        (f"%a = tsched.fuse @g(%x, %y) {{in_place = [0]}} : {PLANNED}", "0", ""),
        (f"%a = tsched.fuse @g(%x, %x) {{in_place = [0]}} : {PLANNED}", "0", "and reads it as another one too"),
        (
            f"%v = tsched.alias %x : {PLANNED}\n%a = tsched.fuse @g(%v, %x) {{in_place = [0]}} : {PLANNED}",
            "0",
            "and reads",
        ),
        (f"%a = tsched.fuse @g(%y) : {PLANNED}\n%b = tsched.fuse @g(%a) {{in_place = [0]}} : {PLANNED}", "", ""),
        (f"%b = tsched.fuse @g(%x) : {PLANNED}\n%a = {FUSED}", "0", ""),
        (f"%a = {FUSED}\n%b = tsched.fuse @g(%x) : {PLANNED}", "0", LATER),
        (f"%v = tsched.alias %x : {PLANNED}\n%a = {FUSED}\n%b = tsched.fuse @g(%v) : {PLANNED}", "0", LATER),
        (f"%a = {FUSED}\n%b = tsched.fuse @g(%a) : {PLANNED}", "0", ""),
        (f"%a = {FUSED}\ntsched.tile %x chosen = 8", "0", ""),
        ("", "0, 2", ""),
        ("", "3", "`tessera.donated` names arguments [3], and there are 3"),
        ("", "-1", "`tessera.donated` names arguments [-1], and there are 3"),
    ],
)
def test_a_group_writes_over_what_nobody_needs(body: str, donated: str, said: str) -> None:
    arguments = f"%x: {PLANNED}, %y: {PLANNED}, %i: !tgraph.tensor<[], i64>"
    found = refusal_of(module_of(f"{body}\ntsched.return", arguments, f"tessera.donated = [{donated}]"))
    assert said in found if said else not found, found


UNDONATED = "argument 0 is returned without a copy, and its caller has not donated it"
TWICE = "an argument is returned twice without a copy: two results would be one memory"


@pytest.mark.parametrize(
    ("body", "attributes", "said"),
    [
        ("tsched.return %x", "workspace = 0", UNDONATED),
        ("tsched.return %x", "names = []", ""),
        (f"%a = tsched.alloc : {BUFFER}\ntsched.return %x", "names = []", UNDONATED),
        ("tsched.return %x", "workspace = 0, tessera.donated = [0]", ""),
        (f"%v = tsched.alias %x : {BUFFER}\ntsched.return %v", "workspace = 0", UNDONATED),
        ("tsched.return %x, %y", "workspace = 0, tessera.donated = [0, 1]", ""),
        ("tsched.return %x, %x", "workspace = 0, tessera.donated = [0, 1]", TWICE),
        (f"%a = tsched.alloc {{output = 0}} : {BUFFER}\ntsched.return %a, %a", "workspace = 0", ""),
    ],
)
def test_a_placed_program_returns_only_arguments_that_are_donated(body: str, attributes: str, said: str) -> None:
    count = body.rpartition("return")[2].count("%")
    assert refusal_of(module_of(body, BOTH, attributes, BUFFER if count == 1 else f"({BUFFER}, {BUFFER})")) == said


def test_memory_is_planned_where_results_have_buffers() -> None:
    (program,) = programs_in(module_of("tsched.return %x", BOTH, "names = []", BUFFER))
    with pytest.raises(TesseraError, match="argument 0 is returned without a copy") as caught:
        refuse_unplaced(program)
    assert "schedule-place-buffers" in str(caught.value)
    (program,) = programs_in(placed())
    refuse_unplaced(program)
