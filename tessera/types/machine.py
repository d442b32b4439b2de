"""What a machine can do, as a value: passes read it, and never import a backend."""

from __future__ import annotations

from tessera.types.frozen import frozen


@frozen
class Machine:
    """A machine that code is made for.

    `lanes` is how many f32 one vector register holds. Sizes are bytes; `threads` is not here: it never changes code.
    """

    name: str
    kind: str = "cpu"
    lanes: int = 8
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 512 << 10
    features: tuple[str, ...] = ()
    cpu: str = ""
    max_scratch: int = 64 << 20

    def has(self, feature: str) -> bool:
        return feature in self.features
