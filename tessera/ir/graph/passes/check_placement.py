"""Check where functions and ops are placed, and change nothing; a failure is an error of the program."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import DeviceError
from tessera.ir.base.effects import ops_inside
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbols_in
from tessera.types.device import DEVICE, Device
from tessera.types.frozen import frozen


@frozen
class CheckPlacement(Pass):
    """Check that `tessera.device` names a device, and that ops are placed where their function runs.

    A function runs on one device; an op that says nothing runs there too.

    Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for function in symbols_in(module):
            own = _device_of(function)
            for op in ops_inside(function):
                device = _device_of(op) if isinstance(op, SpecOp) and DEVICE in op.attributes else None
                if device is not None and device != own:
                    runs = "names no device" if own is None else f"runs on {own!r}"
                    raise DeviceError(
                        f"`{op.name}` is placed on {device!r}, and its function {runs}",
                        span=op.span if isinstance(op, SpecOp) else None,
                        notes=("rule: a function runs on one device, which it names",),
                        fix=f'write `{DEVICE} = "{device}"` on the function',
                    )


def _device_of(op: SpecOp) -> Device | None:
    if DEVICE not in op.attributes:
        return None
    text = str(plain(op.attributes[DEVICE]))
    if _FORM.fullmatch(text) is None:
        message = f'`{DEVICE}` of `{op.name}` is "cpu:0" or "gpu:n", got "{text}"'
        raise DeviceError(message, span=op.span, fix='write `"gpu:0"`')
    return Device.parse(text)


_FORM = re.compile(r"cpu(:0)?|gpu:\d{1,4}")
