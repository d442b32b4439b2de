"""Orders of PTX with few registers: they keep what depends on what, sink loads, and turn short branches into guards."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backends.nvptx import register_order
from tessera.backends.nvptx.ptx_blocks import Instruction, blocks_of, join_blocks
from tessera.backends.nvptx.register_estimate import estimate_registers
from tessera.backends.nvptx.register_order import count_ordered

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_param_0)
.reqntid 128
{
\t.reg .b64 %rd<99>;
\tld.param.u64 %rd1, [k_param_0];
\tmov.u32 %r1, %tid.x;
\tmul.wide.u32 %rd2, %r1, 4;
\tadd.s64 %rd3, %rd1, %rd2;
"""


def instructions_of(*lines: str) -> list[Instruction]:
    (block,) = blocks_of(lines)
    return block.instructions


def one_word(name: str) -> int:
    return int(not name.startswith("%p"))


def sum_of_loads(count: int, kind: str = "ld.global.nc.f32") -> list[str]:
    """All loads first, then a sum of them in order."""
    lines = [f"{kind} %f{at}, [%rd3+{4 * at}]" for at in range(count)]
    return [*lines, "add.f32 %f100, %f0, %f1", *(f"add.f32 %f{99 + at}, %f{98 + at}, %f{at}" for at in range(2, count))]


def test_loads_sink_to_what_reads_them() -> None:
    block = instructions_of(*sum_of_loads(40))
    assert count_ordered(block, ["%f138"], one_word) == 3


def test_what_must_not_pass_a_store_stays() -> None:
    """A load of what others may write is before a later store, one of constant memory need not be."""
    for kind, needed in (("ld.global.f32", {0}), ("ld.volatile.global.f32", {0}), ("ld.global.nc.f32", set[int]())):
        block = instructions_of(f"{kind} %f1, [%rd3]", "st.global.f32 [%rd4], %f2", "add.f32 %f3, %f1, %f1")
        assert register_order.find_order(block)[1] == needed


def test_a_value_may_be_read_after_its_register_is_written_again() -> None:
    """The next iteration's pointer is made early in the text; loads by the old one sink past it."""
    lines = sum_of_loads(20)
    block = instructions_of(*lines[:20], "add.s64 %rd3, %rd3, 256", *lines[20:])
    assert count_ordered(block, ["%f118", "%rd3"], one_word) <= 5


def test_a_short_branch_is_a_guard_and_a_long_one_is_none() -> None:
    for count, blocks in ((3, 1), (60, 3)):
        inner = [f"st.global.f32 [%rd3+{4 * at}], %f{at}" for at in range(count)]
        lines = ["setp.lt.s32 %p1, %r1, 5", "@%p1 bra $L1", *inner, "$L1:", "ret"]
        joined = [block for block in join_blocks(blocks_of(lines)) if block.instructions]
        assert len(joined) == blocks
        if blocks == 1:
            assert all("%p1" in one.read for one in joined[0].instructions if one.name.startswith("st."))


def test_addresses_of_shared_memory_take_one_word() -> None:
    """Sixteen of them are live at a barrier; of global memory each takes two."""
    for space, words in (("shared", 16), ("global", 32)):
        made = [f"\tadd.s64 %rd{10 + at}, %rd3, {4096 * at};" for at in range(16)]
        loads = [f"\tld.{space}.f32 %f{at}, [%rd{10 + at}];" for at in range(16)]
        waits = ["\tmov.u32 %r2, %clock;", "\tbar.sync 0;"]
        text = "\n".join([HEAD, *made, *waits, *loads, "\tret;", "}"])
        assert words <= estimate_registers(text).live <= words + 5


@st.composite
def blocks(draw: st.DrawFn) -> list[Instruction]:
    """Random instructions, each of some values before it; registers are written again."""
    lines: list[str] = []
    for at in range(draw(st.integers(1, 40))):
        reads = [f"%f{draw(st.integers(0, 12))}" for _ in range(draw(st.integers(0, 3)))]
        name = draw(st.sampled_from(["add.f32", "ld.global.nc.f32", "ld.shared.f32", "st.shared.f32", "selp.f32"]))
        target = f"[%rd{at}]" if name.startswith("st.") else f"%f{draw(st.integers(0, 12))}"
        lines.append(f"{name} {', '.join([target, *reads, '0'])}")
    return instructions_of(*lines)


def trace(block: Sequence[Instruction]) -> dict[str, str]:
    """What each register holds at the end, as a text of all that it was computed from; and memory."""
    held: dict[str, str] = {}
    memory = ""
    for one in block:
        read = ",".join(held.get(name, name.partition(".")[0]) for name in one.read)
        seen = memory if one.name.startswith("ld.shared") else ""
        value = str(hash((one.text.partition(" ")[0], read, seen)))
        if one.name.startswith("st."):
            memory = str(hash((memory, read, one.text.partition("[")[2].partition("]")[0])))
        held.update(dict.fromkeys(one.made, value))
    return {**held, "memory": memory}


@settings(max_examples=60, deadline=None)
@given(blocks())
def test_every_order_keeps_the_meaning_of_a_block(block: list[Instruction]) -> None:
    after = {name for one in block for name in one.made}
    renamed, live = register_order.rename_values(block, after)
    before = register_order.find_order(renamed)
    wanted = trace(renamed)
    for order in register_order.find_orders(renamed, before, live, one_word):
        assert sorted(order) == list(range(len(block)))
        assert trace([renamed[at] for at in order]) == wanted
    assert trace(block) == {name: value for name, value in wanted.items() if "." not in name}
    assert count_ordered(block, after, one_word) >= len(after)
