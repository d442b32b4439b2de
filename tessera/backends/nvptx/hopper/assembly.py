"""Hopper's own instructions as inline assembly: barriers with phases, bulk copies, dots of warpgroups, roles."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.tensor_cores import WGMMA_FORMS_TF32
from tessera.backends.nvptx.waits import Waits, bounded_barrier, bounded_wait
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType


def number(value: int) -> Value:
    """An i32 constant."""
    return Value("i32", str(value))


def effect(f: FunctionText, text: str, constraints: str = "", args: Sequence[Value] = (), ret: str = "void") -> Value:
    """Assembly that touches memory or other threads: it stays where it is."""
    clobbers = f"{constraints},~{{memory}}" if constraints else "~{memory}"
    return _call(f, f'asm sideeffect "{text}", "{clobbers}"', args, ret)


def pure(f: FunctionText, text: str, constraints: str, args: Sequence[Value], ret: str) -> Value:
    """Assembly that only computes."""
    return _call(f, f'asm "{text}", "{constraints}"', args, ret)


def results(
    f: FunctionText,
    text: str,
    constraints: Sequence[str],
    args: Sequence[Value],
    types: Sequence[str],
    is_pure: bool = False,
) -> list[Value]:
    """What assembly with several results gives."""
    struct = "{ " + ", ".join(types) + " }"
    made = (pure if is_pure else effect)(f, text, ",".join(constraints), args, struct)
    return [f.raw(type, f"extractvalue {made}, {at}") for at, type in enumerate(types)]


def pass_through(f: FunctionText, text: str, values: Sequence[Value]) -> list[Value]:
    """Values after a wait: they pass through it, so that no use of them comes before."""
    kinds = [("f" if value.type == "float" else "r") for value in values]
    constraints = [*(f"={kind}" for kind in kinds), *map(str, range(len(values)))]
    return results(f, text, constraints, values, [value.type for value in values])


def _call(f: FunctionText, callee: str, args: Sequence[Value], ret: str) -> Value:
    call = f"call {ret} {callee}({', '.join(map(str, args))}) convergent nounwind"
    if ret == "void":
        f.line(call)
        return Value("void", "")
    return f.raw(ret, call)


def op32(f: FunctionText, instruction: str, a: Value, b: Value | int) -> Value:
    """An instruction on i32; none where the second operand is neutral."""
    if isinstance(b, int):
        neutral = {"add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "lshr": 0, "mul": 1, "udiv": 1}.get(instruction)
        if b == neutral:
            return a
        b = number(b)
    return f.raw("i32", f"{instruction} i32 {a.text}, {b.text}")


def flag(f: FunctionText, condition: Value) -> Value:
    """A condition as the i32 that predicated assembly takes."""
    return f.raw("i32", f"zext {condition} to i32")


def warp_uniform(f: FunctionText, value: Value) -> Value:
    """An i32 as lane 0 has it, which the assembler then knows to be one for the warp."""
    return effect(f, "shfl.sync.idx.b32 $0, $1, 0, 0x1f, 0xffffffff;", "=r,r", [value], "i32")


def is_elected(f: FunctionText) -> Value:
    """Whether this is the one lane of its warp that is elected."""
    text = "{ .reg .pred P; elect.sync _|P, 0xffffffff; selp.b32 $0, 1, 0, P; }"
    return f.icmp("ne", effect(f, text, "=r", ret="i32"), number(0))


def named_barrier(f: FunctionText, name: Value, threads: int) -> None:
    """So many threads wait for each other at one of the sixteen barriers of the CTA."""
    effect(f, f"bar.sync $0, {threads};", "r", [name])


def set_registers(f: FunctionText, count: int, grows: bool) -> None:
    """Release registers of a warpgroup, or get those that others released."""
    effect(f, f"setmaxnreg.{'inc' if grows else 'dec'}.sync.aligned.u32 {count};")


# Barriers with phases.


def barrier_init(f: FunctionText, address: Value, arrivals: int) -> None:
    """A barrier in shared memory that so many arrivals complete."""
    effect(f, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r", [address, number(arrivals)])


def barrier_expect(f: FunctionText, address: Value, size: int) -> None:
    """Arrive, and wait for so many bytes as well."""
    effect(f, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r", [address, number(size)])


def barrier_arrive(f: FunctionText, address: Value, condition: Value) -> None:
    """Arrive, where the condition holds."""
    text = "{ .reg .pred P; setp.ne.b32 P, $1, 0; @P mbarrier.arrive.shared::cta.b64 _, [$0]; }"
    effect(f, text, "r,r", [address, flag(f, condition)])


def barrier_signal(f: FunctionText, address: Value) -> None:
    """Arrive."""
    effect(f, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r", [address])


def barrier_wait(f: FunctionText, address: Value, parity: Value, bounded: Waits | None) -> None:
    """Wait for the end of a phase; `bounded` turns a wait that never ends into one that says where, and a trap."""
    if bounded:
        text = bounded_wait(bounded.number())
    else:
        text = (
            "{ .reg .pred P1; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1; @P1 bra DONE; "
            "bra AGAIN; DONE: }"
        )
    effect(f, text, "r,r", [address, parity])


def barrier_arrive_and_wait(f: FunctionText, address: Value, bounded: Waits) -> None:
    """Arrive, and wait for all others that do; one that never ends says where, and traps."""
    effect(f, bounded_barrier(bounded.number()), "r", [address])


# Bulk copies.


def copy_in(f: FunctionText, map: Value, address: Value, barrier: Value, at: Sequence[Value]) -> None:
    """Start copying a box to shared memory; `at` is innermost first."""
    coords = ", ".join(f"${3 + dim}" for dim in range(len(at)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{coords}}}], [$2];"
    )
    effect(f, text, ",".join(["r", "l", "r", *["r"] * len(at)]), [address, map, barrier, *at])


def copy_out(f: FunctionText, map: Value, address: Value, at: Sequence[Value], condition: Value) -> None:
    """Start copying a box from shared memory, where the condition holds, as a group."""
    coords = ", ".join(f"${3 + dim}" for dim in range(len(at)))
    text = (
        "{ .reg .pred P; setp.ne.b32 P, $2, 0; "
        f"@P cp.async.bulk.tensor.{len(at)}d.global.shared::cta.tile.bulk_group [$1, {{{coords}}}], [$0]; "
        "@P cp.async.bulk.commit_group; }"
    )
    effect(f, text, ",".join(["r", "l", "r", *["r"] * len(at)]), [address, map, flag(f, condition), *at])


def copies_read(f: FunctionText, left: int, condition: Value) -> None:
    """Wait until all groups but `left` have been read from shared memory."""
    text = f"{{ .reg .pred P; setp.ne.b32 P, $0, 0; @P cp.async.bulk.wait_group.read {left}; }}"
    effect(f, text, "r", [flag(f, condition)])


def copies_done(f: FunctionText, condition: Value) -> None:
    """Wait until everything copied out is in memory."""
    effect(f, "{ .reg .pred P; setp.ne.b32 P, $0, 0; @P cp.async.bulk.wait_group 0; }", "r", [flag(f, condition)])


def matrices_out(f: FunctionText, address: Value, words: Sequence[Value]) -> None:
    """Four 8 x 8 blocks of 2-byte elements to shared memory, a row of 16 bytes for each lane's address."""
    text = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1, $2, $3, $4};"
    effect(f, text, "r,r,r,r,r", [address, *words])


# Dots.


def issue(
    f: FunctionText,
    dtype: DType,
    columns: int,
    acc: Sequence[Value],
    operands: Sequence[tuple[Sequence[Value], Value]],
    transposed: tuple[bool, bool],
    ends: tuple[bool, bool],
    *,
    fresh: bool = False,
) -> list[Value]:
    """One accumulator through all steps of k, in one block.

    A step is the A operand (registers or one descriptor) and the B operand's descriptor. `ends` says whether the group
    of dots begins and ends here; a `fresh` accumulator is written, not added to.
    """
    form = WGMMA_FORMS_TF32[dtype]
    count = len(acc)
    registers = "{" + ", ".join(f"${at}" for at in range(count)) + "}"
    kind = "f" if form.accumulator.is_float else "r"
    constraints = [f"={kind}"] * count + [str(at) for at in range(count)]
    lines = ["{ .reg .pred P, Q; setp.ne.b32 P, 1, 0; setp.ne.b32 Q, 0, 0;", *["wgmma.fence.sync.aligned;"] * ends[0]]
    args = list(acc)
    K = 32 // dtype.bytes
    for step, (left, right) in enumerate(operands):
        first = 2 * count + len(args) - count
        names = ", ".join(f"${first + at}" for at in range(len(left)))
        shown = names if len(left) == 1 else f"{{{names}}}"
        constraints += ["l" if len(left) == 1 else "r"] * len(left) + ["l"]
        flags = [int(transposed[0])] * (len(left) == 1) + [int(transposed[1])] if form.is_transposable else []
        tail = "".join(f", {one}" for one in flags)
        scales = ", 1, 1" if form.accumulator.is_float else ""
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n{columns}k{K}.{form.suffix} {registers}, {shown}, "
            f"${first + len(left)}, {'Q' if fresh and step == 0 else 'P'}{scales}{tail};"
        )
        args += [*left, right]
    if ends[1]:
        lines.append("wgmma.commit_group.sync.aligned;")
    element = "float" if kind == "f" else "i32"
    return results(f, " ".join([*lines, "}"]), constraints, args, [element] * count)


def wait(f: FunctionText, left: int, values: Sequence[Value]) -> list[Value]:
    """Wait until at most `left` groups are in flight, which write the values."""
    text = f"wgmma.wait_group.sync.aligned {left};"
    if not values:
        effect(f, text)
        return []
    return pass_through(f, text, values)
