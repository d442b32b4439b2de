"""Instructions of single warps as inline assembly: asynchronous copies, matrices from shared memory, `mma.sync`."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.hopper.assembly import effect, results
from tessera.backends.nvptx.tensor_cores import MMA_SYNC_FORMS_TF32, SPAN
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen


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


def commit(f: FunctionText) -> None:
    """Make a group of the copies since the last one."""
    effect(f, "cp.async.commit_group;")


def wait(f: FunctionText, left: int) -> None:
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
