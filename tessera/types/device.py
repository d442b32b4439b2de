"""`Device`: where ops run, as a value; `gpu[n]` and `cpu` name them."""

from __future__ import annotations

from tessera.diagnostics.codes import ArgumentError
from tessera.types.frozen import frozen

DEVICE = "tessera.device"
"""The attribute of a function that says where it runs: `cpu:0`, `gpu:1`."""


@frozen
class Device:
    """A processor (`cpu`) or a graphics processor (`gpu`), by number.

    >>> gpu[1]
    gpu[1]
    >>> Device.parse(str(gpu[1])) == gpu[1]
    True
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"gpu[{self.index}]" if self.kind == "gpu" else self.kind

    @staticmethod
    def parse(text: str) -> Device:
        """The device that a text such as `gpu:1` names."""
        kind, _, index = text.partition(":")
        return Device(kind, int(index or 0))


class Gpus:
    """The graphics processors of this machine: `gpu[0]`; `gpu` alone is the first."""

    def __getitem__(self, index: int) -> Device:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"`gpu` is indexed by a number from 0 on, got {index!r}", fix="write `gpu[0]`")
        return Device("gpu", index)

    def __repr__(self) -> str:
        return "gpu"


gpu = Gpus()
cpu = Device("cpu")
