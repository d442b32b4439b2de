"""LLVM text for NVPTX: modules of kernels with launch bounds, instructions, and what a launch must know of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.limits import is_multiple
from tessera.ir.target.llvm.instructions import Index, TargetText, Value, bytes_of
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types.dim import Dim, next_power_of_two
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

WARP = 32
"""Threads of a warp."""
SHARED = "shared_memory"
"""The one symbol of dynamic shared memory; what lies where in it is the emitter's to say."""
NOTHING = "nothing"
"""A few bytes that may always be read: where an out-of-bounds element is read from."""

ALL_LANES = Value("i32", "-1")
_SPECIAL = "llvm.nvvm.read.ptx.sreg."


def target_text(machine: Machine) -> TargetText:
    """The target of the text emitters: a thread computes one lane."""
    return TargetText(1, machine.cpu, machine.isa)


class DeviceModule(ModuleText):
    """A module of kernels.

    `kernel` begins one; pointers among its arguments are `ptr`, which code generation knows to be global memory. A TMA
    descriptor is `ptr byval([128 x i8]) align 64` with `"nvvm.grid_constant"`: give that text as the argument's type.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(target_text(machine))
        self.machine = machine
        self._bounds: dict[str, str] = {}
        self._uses_shared = False
        self._uses_nothing = False
        self.variables = ""
        """Variables of the module that assembly names."""

    def kernel(
        self,
        name: str,
        arguments: Sequence[tuple[str, str]],
        threads: int,
        *,
        blocks: int = 0,
        cluster: int = 1,
        registers: int = 0,
        is_fixed: bool = True,
    ) -> FunctionText:
        """Begin a kernel of `threads` a block; `blocks` is how many of them a multiprocessor must hold at least.

        Where they are not `is_fixed`, a launch has so many threads or fewer.
        """
        bounds = [f'"nvvm.{"reqntid" if is_fixed else "maxntid"}"="{threads}"']
        if blocks:
            bounds.append(f'"nvvm.minctasm"="{blocks}"')
        if cluster > 1:
            bounds.append(f'"nvvm.cluster_dim"="{cluster},1,1"')
        if registers:
            bounds.append(f'"nvvm.maxnreg"="{registers}"')
        self._bounds[name] = " ".join(bounds)
        return self.function(name, arguments, ret="ptx_kernel void")

    def shared_modules(self) -> dict[str, str]:  # what many modules have in common: nothing, kernels are whole
        return {}

    def shared_base(self) -> Value:
        """The start of dynamic shared memory as a generic pointer; accesses are found to be shared all the same."""
        self._uses_shared = True
        return Value("ptr", f"addrspacecast (ptr addrspace(3) @{SHARED} to ptr)")

    def shared_address(self, f: FunctionText) -> Value:
        """The same as an i32 address of shared memory: a generic pointer would be made again wherever it is used."""
        self._uses_shared = True
        return f.raw("i32", f"ptrtoint ptr addrspace(3) @{SHARED} to i32")

    def nothing(self) -> Value:
        """Sixteen bytes of global memory that may be read."""
        self._uses_nothing = True
        return Value("ptr", f"addrspacecast (ptr addrspace(1) @{NOTHING} to ptr)")

    def text(self) -> str:
        """The whole module, with an attribute group for every kernel."""
        # The node that loads of what nobody writes refer to.
        whole = super().text() + "!1 = !{}\n"
        for number, (name, bounds) in enumerate(self._bounds.items(), 1):
            head = f"define ptx_kernel void @{name}("
            before, found, after = whole.partition(head)
            line, newline, tail = after.partition("\n")
            whole = before + found + line.replace(" #0 {", f" #{number} {{") + newline + tail
            whole += f"attributes #{number} = {{ {self.target.attributes} {bounds} }}\n"
        if self._uses_shared:
            whole = f"@{SHARED} = external addrspace(3) global [0 x i8], align 1024\n{whole}"
        if self.variables:
            whole = f"{self.variables}{whole}"
        if self._uses_nothing:
            whole = f"@{NOTHING} = internal addrspace(1) global [16 x i8] zeroinitializer, align 16\n{whole}"
        return whole


def special(f: FunctionText, name: str) -> Value:
    """A special register, as i32: `tid.x`, `ctaid.x`, `nctaid.x`, `laneid`."""
    return f.call(_SPECIAL + name, [], "i32")


def barrier(f: FunctionText) -> None:
    """All threads of the block wait for each other."""
    f.call("llvm.nvvm.barrier.cta.sync.aligned.all", [Value("i32", "0")])


def cluster_barrier(f: FunctionText) -> None:
    """All threads of all blocks of the cluster wait for each other, and see what the others stored."""
    text = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    assembly(f, text, "~{memory}", [])


def warp_barrier(f: FunctionText, mask: Value = ALL_LANES) -> None:
    """All threads of the warp that `mask` names wait for each other, and see what the others stored."""
    f.call("llvm.nvvm.bar.warp.sync", [mask])


def assembly(f: FunctionText, text: str, constraints: str, args: Sequence[Value], ret: str = "void") -> Value:
    """Inline assembly that is not moved or dropped; `ret` may be a struct such as `{ float, float }`."""
    shown = text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A").replace("\t", "\\09")
    call = f'call {ret} asm sideeffect "{shown}", "{constraints}"({", ".join(map(str, args))})'
    if ret == "void":
        f.line(call)
        return Value("void", "")
    return f.raw(ret, call)


def shuffle(f: FunctionText, value: Value, mode: str, lane: Index | Value, mask: Value = ALL_LANES) -> Value:
    """A value of another lane of the warp: `down` so many lanes on, `bfly` across, `idx` that lane.

    All lanes that `mask` names do it together, and no others.
    """
    other = Value("i32", str(lane)) if isinstance(lane, int) else lane
    clamp = Value("i32", "31")
    if value.type in ("i32", "float"):
        suffix = "i32" if value.type == "i32" else "f32"
        return f.call(f"llvm.nvvm.shfl.sync.{mode}.{suffix}", [mask, value, other, clamp], value.type)
    size = 1 if value.type == "i1" else 8 * bytes_of(value.type)
    if size == 64:
        halves = f.bitcast(value, "<2 x i32>")
        low, high = (shuffle(f, f.extract(halves, part), mode, other, mask) for part in (0, 1))
        both = f.insert(f.insert(Value("<2 x i32>", "poison"), low, 0), high, 1)
        return f.bitcast(both, value.type)
    bits = f.bitcast(value, f"i{size}")
    moved = shuffle(f, f.cast("zext", bits, "i32"), mode, other, mask)
    return f.bitcast(f.cast("trunc", moved, f"i{size}"), value.type)


# A kernel as LLVM text, with all that a launch of it must know.


@frozen
class DescriptorCode:
    """A TMA descriptor that a launch makes of an argument: dims innermost first, strides in bytes of all but that."""

    argument: int
    dtype: str
    dims: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    bytes: int = 1
    """Of one element."""
    is_output: bool = False
    by_threads: bool = False
    """Whether threads copy what it describes, whatever rows are: a launch then makes none."""
    cut: int = -1
    """The dim that ends where each copy says, innermost first; -1: none.

    Such a descriptor has one more dim behind it with the same stride, and begins so far before the tensor that a copy
    whose index there is `end` finds row `at` at `at - end`, counted from the end of the dim: rows from `end` on are out
    of bounds.
    """
    low: tuple[int, ...] = ()
    """Of windows, the first position along each spatial dim, innermost first; `box` is then channels and positions."""
    high: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    @property
    def is_copied(self) -> bool:
        """Whether rows that do not begin at multiples of 16 bytes are copied to some that do before a launch."""
        return not self.is_output and not self.by_threads


def matrix_symbol(name: str) -> str:
    """The name of a kernel on tensor cores, which stands beside the one that runs anywhere."""
    return f"{name}__matrix"


_ROWS = ("__aligned", "__shared", "__aligned_wide", "__wide", "__aligned_cluster", "__cluster")


def row_symbols(name: str) -> list[str]:
    """Names of kernels whose rows warps share, which stand beside the one for any width, in the order they are tried.

    Rows that begin at multiples of 16 bytes, and any; both of wider rows, and of those that blocks of a cluster share.
    """
    return [f"{name}{form}" for form in _ROWS]


def many_symbol(name: str) -> str:
    """The name of a kernel that computes several calls of another in one launch."""
    return f"{name}__many"


def fallback_symbol(name: str) -> str:
    """What the tile kernel is called that takes the launches which tensor cores leave to plain threads."""
    return f"{name}__plain"


def plain_symbol(name: str) -> str:
    """The kernel that one on tensor cores, for rows that warps share or for many calls stands beside; or itself."""
    for symbol in (matrix_symbol(""), *row_symbols(""), many_symbol("")):
        name = name.removesuffix(symbol)
    return name


PARAMETERS = 4096 - 64
"""Bytes of a table among the parameters of a kernel, which may have 4096 (PTX ISA, `.param` space of kernels)."""
NO_BLOCK = (1 << 63) - 1
"""The first block of a call that there is none of."""


@frozen
class CallTable:
    """The parameter of a kernel for several calls: the first block of each call, then buffers and sizes of each.

    There are `firsts` numbers of blocks, a power of two so that a call is found in halves; of calls that are not there
    they are `NO_BLOCK`. `rows` calls have `width` words each.
    """

    rows: int
    width: int

    @staticmethod
    def of(calls: int, width: int) -> CallTable:
        """A table for so many calls, or for as many as there may be in one launch."""
        most = calls
        while most > 1 and CallTable(most, width).words * 8 > PARAMETERS:
            most -= 1
        return CallTable(most, width)

    @property
    def firsts(self) -> int:
        return next_power_of_two(self.rows)

    @property
    def words(self) -> int:
        return self.firsts + self.rows * self.width


@frozen
class Widths:
    """For which rows a kernel is launched: a size, the least and most of it, and what it is a multiple of."""

    width: Dim
    least: int
    most: int
    multiple: int = 1


@frozen
class RowLaunch:
    """Threads and rows of a block that a launch decides, by the width of rows."""

    threads: Dim
    rows: Dim


@frozen
class KernelCode:
    """A kernel's LLVM text, and what a launch must know.

    The kernel takes its TMA descriptors, its buffers, its sizes as i64 and the address of scratch. A block has
    `threads`, which run `programs` side by side, and `shared` bytes. `scratch` is bytes of global memory for each of at
    most `slots` programs that run at a time; 0 where all of the grid may. At most `resident` blocks are launched, 0 for
    any number.
    """

    name: str
    text: str
    grid: Dim
    symbols: tuple[str, ...]
    threads: int
    programs: int
    shared: int
    scratch: Dim
    slots: int
    maps: tuple[DescriptorCode, ...] = ()
    resident: int = 0
    counts: bool = False
    """Whether its scratch begins with a counter that is 0 at the start."""
    waits: tuple[str, ...] = ()
    """What its waits are for, by number, where they are bounded (`waits.py`)."""
    widths: Widths | None = None
    """The rows for which this one is launched, and not the one beside it."""
    rows: RowLaunch | None = None
    """Threads and rows of a block where a launch decides both; `threads` are the most of them then."""
    table: CallTable | None = None
    """Where the buffers and sizes of each call are, in a kernel for several of them; it takes that and scratch."""

    @property
    def uses_scratch(self) -> bool:
        """Whether a launch of it may touch memory behind the buffers of the program."""
        rows = [map_.dims[0] * map_.bytes for map_ in self.maps if map_.is_copied]
        return bool(self.slots) or self.counts or not all(is_multiple(row, 16) for row in rows)
