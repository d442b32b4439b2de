"""Kernels for which units were chosen, and the refusal of what one of them says itself and cannot have."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import TileVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.matrix.plan import UnfitError, Units
from tessera.ir.tile.matrix.units import UNITS


def dots_in(kernel: SpecOp) -> list[SpecOp]:
    """The products of a kernel."""
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.dot"]


def kernels_on_units(module: ModuleOp) -> Iterator[tuple[SpecOp, Units]]:
    """The kernels of a module that run on matrix units, and on which."""
    for op in module.ops:
        if isinstance(op, SpecOp) and op.name == "ttile.kernel":
            names = {dot.value("unit") for dot in dots_in(op)}
            if len(names) == 1 and (name := names.pop()) in UNITS:
                yield op, UNITS[name]


def units_in(kernel: SpecOp) -> Units:
    """The units of a kernel for which some were chosen."""
    return UNITS[dots_in(kernel)[0].value("unit")]


@contextmanager
def refusing(kernel: SpecOp, *names: str) -> Generator[None]:
    """What a kernel says by attributes of these names is refused (T0501) where it does not fit."""
    try:
        yield
    except UnfitError as error:
        listed = ", ".join(f"`{name}`" for name in names)
        raise TileVerifyError(
            f"`@{kernel.value('symbol')}` says what does not fit: {error}",
            span=kernel.span,
            fix=f"leave {listed} out, and what fits is chosen",
        ) from error
