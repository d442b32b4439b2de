"""LLVM text for NVPTX: kernels with launch bounds, shared memory, threads, barriers, shuffles, inline assembly."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.llvm.instructions import Index, TargetText, Value, bytes_of
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types.machine import Machine

WARP = 32
SHARED = "shared_memory"
"""The one symbol of dynamic shared memory; what lies where in it is the emitter's to say."""
NOTHING = "nothing"
"""A few bytes that may always be read: where an element outside of its buffer is read from."""

ALL_LANES = Value("i32", "-1")
_SPECIAL = "llvm.nvvm.read.ptx.sreg."


def target_text(machine: Machine) -> TargetText:
    """What the text emitters are told: a thread computes one lane."""
    return TargetText(1, machine.cpu, machine.isa)


class DeviceModule(ModuleText):
    """A module of kernels.

    `kernel` begins one; pointers among its arguments are `ptr`, which code generation knows to be global memory. A
    tensor map is `ptr byval([128 x i8]) align 64` with `"nvvm.grid_constant"`: give that text as the argument's type.
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
    ) -> FunctionText:
        """Begin a kernel of `threads` a block; `blocks` is how many of them a multiprocessor must hold at least."""
        bounds = [f'"nvvm.reqntid"="{threads}"']
        if blocks:
            bounds.append(f'"nvvm.minctasm"="{blocks}"')
        if cluster > 1:
            bounds.append(f'"nvvm.cluster_dim"="{cluster},1,1"')
        if registers:
            bounds.append(f'"nvvm.maxnreg"="{registers}"')
        self._bounds[name] = " ".join(bounds)
        return self.function(name, arguments, ret="ptx_kernel void")

    def shared(self) -> dict[str, str]:  # what many modules have in common: nothing, kernels are whole
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
            line, newline, rest = after.partition("\n")
            whole = before + found + line.replace(" #0 {", f" #{number} {{") + newline + rest
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


def shuffle(f: FunctionText, value: Value, way: str, lane: Index | Value, mask: Value = ALL_LANES) -> Value:
    """A value of another lane of the warp: `down` so many lanes on, `bfly` across, `idx` that lane.

    All lanes that `mask` names do it at once, and no others.
    """
    other = Value("i32", str(lane)) if isinstance(lane, int) else lane
    clamp = Value("i32", "31")
    if value.type in ("i32", "float"):
        suffix = "i32" if value.type == "i32" else "f32"
        return f.call(f"llvm.nvvm.shfl.sync.{way}.{suffix}", [mask, value, other, clamp], value.type)
    size = 1 if value.type == "i1" else 8 * bytes_of(value.type)
    if size == 64:
        halves = f.bitcast(value, "<2 x i32>")
        low, high = (shuffle(f, f.extract(halves, part), way, other, mask) for part in (0, 1))
        both = f.insert(f.insert(Value("<2 x i32>", "poison"), low, 0), high, 1)
        return f.bitcast(both, value.type)
    bits = f.bitcast(value, f"i{size}")
    moved = shuffle(f, f.cast("zext", bits, "i32"), way, other, mask)
    return f.bitcast(f.cast("trunc", moved, f"i{size}"), value.type)
