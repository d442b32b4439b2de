"""Instructions of kernels on tensor cores as inline assembly: barriers, copies, matrices from shared memory, dots."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.tensor_cores import MMA_SYNC_FORMS_TF32, SPAN, WGMMA_FORMS_TF32, form_of
from tessera.backends.nvptx.waits import Waits, bounded_barrier, bounded_wait
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

# Inline assembly in LLVM text, what is elected or the same in a warp, and roles of warps.


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
    """So many threads wait for each other at one of the sixteen barriers of the CTA.

    One that is known is said as a number: a CTA whose barriers are computed has all sixteen, and there are no more
    than two of those on a multiprocessor.
    """
    known = name.text.isdigit()
    effect(f, f"bar.sync {name.text if known else '$0'}, {threads};", "" if known else "r", [] if known else [name])


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


# Bulk copies (TMA).


def copy_in(f: FunctionText, map: Value, address: Value, barrier: Value, at: Sequence[Value]) -> None:
    """Start copying a box to shared memory; `at` is innermost first."""
    coords = ", ".join(f"${3 + dim}" for dim in range(len(at)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{coords}}}], [$2];"
    )
    effect(f, text, ",".join(["r", "l", "r", *["r"] * len(at)]), [address, map, barrier, *at])


def copy_windows(
    f: FunctionText, map: Value, address: Value, barrier: Value, at: Sequence[Value], offsets: Sequence[Value]
) -> None:
    """Start copying a box of positions of windows to shared memory, at offsets within them; innermost first."""
    coords, moved = (
        ", ".join(f"${first + dim}" for dim in range(count))
        for first, count in ((3, len(at)), (3 + len(at), len(offsets)))
    )
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{coords}}}], [$2], {{{moved}}};"
    )
    kinds = ["r", "l", "r", *["r"] * len(at), *["h"] * len(offsets)]
    effect(f, text, ",".join(kinds), [address, map, barrier, *at, *offsets])


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


# Dots of warp groups (WGMMA).


def issue(
    f: FunctionText,
    dtypes: tuple[DType, DType],
    columns: int,
    acc: Sequence[Value],
    operands: Sequence[tuple[Sequence[Value], Value]],
    transposed: tuple[bool, bool],
    ends: tuple[bool, bool],
    *,
    fresh: bool = False,
) -> list[Value]:
    """One accumulator through all steps of k, in one block.

    A step is the A operand (registers or one descriptor) and the B operand's descriptor, which are of `dtypes`. `ends`
    says whether the group of dots begins and ends here; a `fresh` accumulator is written, not added to.
    """
    form = form_of(WGMMA_FORMS_TF32, *dtypes)
    assert form is not None, f"there is no dot of {dtypes[0]} by {dtypes[1]}"
    count = len(acc)
    registers = "{" + ", ".join(f"${at}" for at in range(count)) + "}"
    kind = "f" if form.accumulator.is_float else "r"
    constraints = [f"={kind}"] * count + [str(at) for at in range(count)]
    lines = ["{ .reg .pred P, Q; setp.ne.b32 P, 1, 0; setp.ne.b32 Q, 0, 0;", *["wgmma.fence.sync.aligned;"] * ends[0]]
    args = list(acc)
    K = 32 // dtypes[1].bytes
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


def wait_dots(f: FunctionText, left: int, values: Sequence[Value]) -> list[Value]:
    """Wait until at most `left` groups are in flight, which write the values."""
    text = f"wgmma.wait_group.sync.aligned {left};"
    if not values:
        effect(f, text)
        return []
    return pass_through(f, text, values)


# Single warps: asynchronous copies (cp.async), matrices from shared memory (ldmatrix), `mma.sync`.


@frozen
class Share:
    """What one thread copies of a tile: a piece of 16 bytes in every `step`-th row, in each of some spans.

    `target` and `source` are its first piece in shared and global memory, `distance` the bytes from one of its rows to
    the next in global memory. `rows_left` is how many rows are there from its first on, `sizes` how many bytes of its
    piece in each span are there; None where all are. `row` is its first row where some threads have one row less than
    others.
    """

    target: Value
    source: Value
    distance: Value
    rows: int
    step: int
    span_bytes: int
    rows_left: Value | None
    sizes: Sequence[Value] | None
    spans: int
    row: Value | None = None


def copy_rows(f: FunctionText, share: Share) -> None:
    """Start copying the thread's share; bytes that are not there become zeros."""
    args = [share.target, share.source, share.distance]
    kinds = ["r", "l", "l"]
    limit = ""
    if share.rows_left is not None:
        limit = f"${len(args)}"
        args.append(share.rows_left)
        kinds.append("r")
    sizes = [""] * share.spans
    if share.sizes is not None:
        sizes = [f"${len(args) + at}" for at in range(share.spans)]
        args += share.sizes
        kinds += ["r"] * share.spans
    lines = ["{ .reg .pred P, Q; .reg .b64 a; .reg .b32 n; mov.b64 a, $1;"]
    for number in range(-(-share.rows // share.step)):
        given = ""
        if number:
            lines.append("add.s64 a, a, $2;")
        if share.row is not None and (number + 1) * share.step > share.rows:
            # Beyond the tile lies another: nothing is copied there, not even zeros.
            lines.append(f"setp.lt.s32 Q, ${len(args)}, {share.rows - number * share.step};")
            args.append(share.row)
            kinds.append("r")
            given = "@Q "
        if limit:
            lines.append(f"setp.gt.s32 P, {limit}, {number * share.step};")
        for span in range(share.spans):
            target = number * share.step * SPAN + span * share.span_bytes
            lines.append(_copy(target, span * SPAN, limit, sizes[span], given))
    effect(f, " ".join([*lines, "}"]), ",".join(kinds), args)


def _copy(target: int, source: int, limit: str, size: str, given: str) -> str:
    copy = f"{given}cp.async.cg.shared.global [$0 + {target}], [a + {source}], 16"
    if limit:
        return f"selp.b32 n, {size or 16}, 0, P; {copy}, n;"
    return f"{copy}, {size};" if size else f"{copy};"


def copy_async(
    f: FunctionText,
    to: tuple[Value, int],
    source: tuple[Value, int],
    bytes: int,
    mask: Value | None,
    exists: Value | None = None,
) -> None:
    """One copy to shared memory, both addresses with what is added to them.

    Zeros are written where `mask` does not hold, and nothing where the copy does not exist.
    """
    args, kinds = [to[0], source[0]], ["r", "l"]
    size = guard = setup = ""
    if mask is not None:
        size = f", ${len(args)}"
        args.append(f.select(mask, number(bytes), number(0)))
        kinds.append("r")
    if exists is not None:
        setup, guard = f".reg .pred P; setp.ne.b32 P, ${len(args)}, 0; ", "@P "
        args.append(f.cast("zext", exists, "i32"))
        kinds.append("r")
    # Only whole pieces can pass by L1.
    kind = "cg" if bytes == 16 else "ca"
    copy = f"{guard}cp.async.{kind}.shared.global [$0 + {to[1]}], [$1 + {source[1]}], {bytes}{size};"
    effect(f, f"{{ {setup}{copy} }}" if setup else copy, ",".join(kinds), args)


def commit_copies(f: FunctionText) -> None:
    """Make a group of the copies since the last one."""
    effect(f, "cp.async.commit_group;")


def wait_copies(f: FunctionText, left: int) -> None:
    """Wait until at most so many groups of this thread are under way."""
    effect(f, f"cp.async.wait_group {left};")


def matrices_in(f: FunctionText, addresses: Sequence[tuple[Value, int]], transposed: bool) -> list[list[Value]]:
    """Four 8 x 8 blocks of 2-byte elements from each address, which lanes give rows of; `transposed` swaps the axes.

    An address is a value and a number of bytes to add.
    """
    suffix = ".trans" if transposed else ""
    bases = list({address.text: address for address, _ in addresses}.values())
    names = {base.text: f"${4 * len(addresses) + at}" for at, base in enumerate(bases)}
    lines: list[str] = []
    for at, (address, more) in enumerate(addresses):
        registers = ", ".join(f"${4 * at + part}" for part in range(4))
        where = names[address.text] + (f" + {more}" if more else "")
        lines.append(f"ldmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16 {{{registers}}}, [{where}];")
    count = 4 * len(addresses)
    # An output must not share a register with an address that a later load still reads.
    constraints = [*["=&r"] * count, *["r"] * len(bases)]
    words = results(f, " ".join(lines), constraints, bases, ["i32"] * count)
    return [words[4 * at : 4 * at + 4] for at in range(len(addresses))]


def multiply(
    f: FunctionText, dtype: DType, acc: Sequence[Value], left: Sequence[Value], right: Sequence[Sequence[Value]]
) -> list[Value]:
    """16 rows by 8 columns for each of the B operands: four accumulators for each, added to."""
    form = MMA_SYNC_FORMS_TF32[dtype]
    kind, element = ("f", "float") if form.accumulator.is_float else ("r", "i32")
    count = len(acc)
    constraints = [*[f"={kind}"] * count, *map(str, range(count)), *["r"] * (len(left) + 2 * len(right))]
    first = 2 * count
    shown = ", ".join(f"${first + part}" for part in range(4))
    lines: list[str] = []
    for at in range(len(right)):
        added = ", ".join(f"${4 * at + part}" for part in range(4))
        rhs = first + 4 + 2 * at
        lines.append(f"mma.sync.aligned.{form.suffix} {{{added}}}, {{{shown}}}, {{${rhs}, ${rhs + 1}}}, {{{added}}};")
    args = [*acc, *left, *(word for pair in right for word in pair)]
    return results(f, " ".join(lines), constraints, args, [element] * count, is_pure=True)
