"""`KernelCode`: a kernel for a GPU as LLVM text, and all that a launch of it must know."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.target.limits import is_multiple
from tessera.types.dim import Dim


@dataclass(frozen=True)
class MapCode:
    """A tensor map that a launch makes of an argument: dims innermost first, strides in bytes of all but that."""

    argument: int
    dtype: str
    dims: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    bytes: int = 1
    """Of one element."""
    is_output: bool = False
    cut: int = -1
    """The dim that ends where each copy says, innermost first; -1: none.

    Such a map has one more dim behind it with the same stride, and begins so far before the tensor that a copy whose
    place there is `end` finds row `at` at `at - end`, counted from the end of the dim: rows from `end` on are outside.
    """


def matrix_symbol(name: str) -> str:
    """What a kernel is called where it runs on matrix units: it stands beside the one that runs anywhere."""
    return f"{name}__matrix"


def shared_symbol(name: str) -> str:
    """What a kernel of rows is called where several warps share each: it stands beside the one for any width."""
    return f"{name}__shared"


def plain_symbol(name: str) -> str:
    """The kernel that one for matrix units, or for rows that warps share, stands beside; itself for any other."""
    return name.removesuffix(matrix_symbol("")).removesuffix(shared_symbol(""))


@dataclass(frozen=True)
class KernelCode:
    """A kernel's LLVM text, and what a launch must know.

    The kernel takes its tensor maps, its buffers, its sizes as i64 and the place of scratch. A block has `threads`,
    which run `programs` side by side, and `shared` bytes. `scratch` is bytes of global memory for each of at most
    `slots` programs that run at a time; 0 where all of the grid may. At most `resident` blocks are launched, 0 for any
    number.
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
    maps: tuple[MapCode, ...] = ()
    resident: int = 0
    counts: bool = False
    """Whether its scratch begins with a counter that is 0 at the start."""
    waits: tuple[str, ...] = ()
    """What its waits are, by number, where they end and say so (`waits.py`)."""
    widths: tuple[Dim, int, int] | None = None
    """A size, and the least and most of it for which this one is launched, and not the one beside it."""

    @property
    def uses_scratch(self) -> bool:
        """Whether a launch of it may touch memory behind the buffers of the program."""
        rows = [map_.dims[0] * map_.bytes for map_ in self.maps if not map_.is_output]
        return bool(self.slots) or self.counts or not all(is_multiple(row, 16) for row in rows)
