"""The door of the target room: kernels hold together, and ask for nothing that the machine lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.error import InternalError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.reproducer import write_reproducer
from tessera.ir.base.text import print_module
from tessera.ir.base.verify import check_symbols, verify
from tessera.ir.base.version import stamp
from tessera.ir.target.passes.check_features import CheckFeatures
from tessera.types.machine import Machine


def check_kernels(
    kernels: Sequence[SpecOp],
    machine: Machine,
    *,
    are_verified: bool = False,
    check: Callable[[SpecOp], None] | None = None,
) -> ModuleOp:
    """The module of lowered kernels, verified here, or each of them already by who lowered it; `check` adds a rule.

    Raises FeatureError (T0602) where a kernel needs what the machine does not have, and InternalError with the module
    in a file where one breaks a rule: kernels come from a lowering, so that is a mistake of ours.
    """
    module = ModuleOp(list(kernels))
    stamp(module)
    try:
        if are_verified:
            check_symbols(module)
        else:
            verify(module)
        for kernel in kernels:
            if check is not None:
                check(kernel)
    except OpError as error:
        path = write_reproducer("target-door", ".mlir", print_module(module))
        command = f"tessera-opt {path} --verify"
        raise InternalError(str(error), where="target-door", reproducer=str(path), command=command) from error
    CheckFeatures(machine.features).run(module)
    return module
