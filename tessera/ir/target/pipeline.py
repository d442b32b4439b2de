"""The end of the target stage: kernels hold together, and ask for nothing that the machine lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.error import InternalError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.reproducers import write_reproducer
from tessera.ir.base.text import print_module, stamp
from tessera.ir.base.verify import Legality, check_symbols, symbols_in, verify
from tessera.ir.target.passes.check_features import CheckFeatures
from tessera.types.machine import Machine

EXIT = Legality("target", frozenset(["tsched", "ttarget"]))


def targets_in(module: ModuleOp) -> tuple[SpecOp, ...]:
    """The kernels of a module as Target IR."""
    return tuple(op for op in symbols_in(module) if op.name.startswith("ttarget."))


def check_kernels(
    kernels: Sequence[SpecOp], machine: Machine, *, check: Callable[[SpecOp], None] | None = None
) -> ModuleOp:
    """A module of lowered kernels, verified and checked."""
    module = ModuleOp(list(kernels))
    stamp(module)
    check_module(module, machine, check=check, are_verified=False)
    return module


def check_module(
    module: ModuleOp, machine: Machine, *, check: Callable[[SpecOp], None] | None = None, are_verified: bool = True
) -> None:
    """Check lowered kernels, verified here, or each of them already by a pass; `check` adds a rule.

    Raises FeatureError (T0602) where a kernel needs what the machine does not have, and InternalError with the module
    in a file where one breaks a rule: kernels come from a lowering, so that is a mistake of ours.
    """
    try:
        if are_verified:
            check_symbols(module)
        else:
            verify(module)
        for kernel in targets_in(module):
            if check is not None:
                check(kernel)
    except OpError as error:
        path = write_reproducer("target-exit", ".mlir", print_module(module))
        command = f"tessera-opt {path} --verify" if path else ""
        raise InternalError(str(error), where="target-exit", reproducer=str(path or ""), command=command) from error
    CheckFeatures(machine.features).run(module)
