"""The rest of a block of ops twice: once where nothing sticks out of its edges, once where something may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.cpu.blocks import Vectors
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.text import Value
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter

_ALIKE = ("coords", "axes", "axis", "bound")
_WORTH = 4
"""Vectors of a clipped line from which on one branch costs less than a mask for each."""


@frozen
class Version:
    """What is known where one of two versions is written: whether the line of this clip is all there."""

    clip: SpecOp
    is_inside: bool

    def is_whole(self, clip: SpecOp) -> bool:
        """Whether a clip cuts nothing off: it has the bound that was asked about, at the same place."""
        ours = (self.clip.operands[1:], *(self.clip.value(name) for name in _ALIKE))
        return self.is_inside and ours == (clip.operands[1:], *(clip.value(name) for name in _ALIKE))


def is_worth_versions(emitter: Emitter, op: SpecOp) -> bool:
    """Whether an op is the clip of a line long enough to ask once whether all of it is there."""
    if op.spec.short_name != "clip" or emitter.version is not None:
        return False
    layout, _ = emitter.layout(op.result)
    axes, bound = op.value("axes"), op.value("bound")
    return len(axes) == 1 and op.value("axis") == axes[0] not in bound.symbols and layout.count >= _WORTH


def emit_versions(emitter: Emitter, rest: Sequence[SpecOp], then: Callable[[], None] | None = None) -> None:
    """Write `rest`, which begins with a clip, and what `then` writes, for whole lines and for others."""
    clip, ended = rest[0], rest[-1]
    given = ended.operands if ended.spec.short_name == "yield" else ()
    _write_what_is_used(emitter, rest)

    def arm(is_inside: bool) -> list[Value]:
        emitter.version = Version(clip, is_inside)
        emitter.forget()
        emitter.run_ops(rest, then)
        emitter.forget()
        return [vector for value in given for vector in emitter.blocks[value].all()]

    merged = emitter.f.if_(_is_inside(emitter, clip), lambda: arm(True), lambda: arm(False))
    emitter.version = None
    at = 0
    for value in given:
        layout, dtype = emitter.layout(value)
        emitter.blocks[value] = Vectors.of(layout, dtype, merged[at : at + layout.count])
        at += layout.count


def _is_inside(emitter: Emitter, clip: SpecOp) -> Value:
    f, axis = emitter.f, clip.value("axis")
    env = emitter.named(clip, clip.value("coords"), 1)
    layout, _ = emitter.layout(clip.result)
    left = f.sub(dim_value(f, clip.value("bound"), env), env[axis])
    return f.icmp("sge", left, layout.sizes[-1])


def _write_what_is_used(emitter: Emitter, rest: Sequence[SpecOp]) -> None:
    """What both versions read is written before they part."""
    emitter.settle_all()
    used: dict[SSAValue, None] = {value: None for op in rest for part in op.walk() for value in part.operands}
    for value in used:
        if value in emitter.blocks:
            emitter.blocks[value].all()
