"""Products in tensor memory: stages are there when they are read, sums done when they are loaded, memory given back.

A fault here would be a hang or a wrong number on a device that nobody here has, so the order is followed in the text.
"""

from __future__ import annotations

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp

Stage = tuple[SSAValue, SSAValue]
"""A ring and a place in it."""


class TensorCheck:
    """The consumers' walk: which stages are there, which products were read from them, and what is still in flight."""

    def __init__(self) -> None:
        self.flying: dict[SSAValue, str] = {}
        """Tensor memory whose products are not done, and what is missing."""
        self.held: dict[SSAValue, SpecOp] = {}
        """Tensor memory that is to be given back."""

    def run(self, block: Block) -> None:
        """Fails where a step comes too early, or is left out."""
        here: dict[Stage, bool] = {}
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self._step(op, here)
            for region in op.regions:
                self.run(region.block)
        for ring, _ in here:
            assert isinstance(ring.owner, SpecOp)
            ring.owner.fail("a stage is waited for and never left: the producer would wait for it for ever")

    def end(self) -> None:
        """Fails where tensor memory is kept: the next kernel would wait for it for ever."""
        for op in self.held.values():
            op.fail("tensor memory is allocated and never given back", "put a `ttarget.tensor_dealloc` at the end")

    def _step(self, op: SpecOp, here: dict[Stage, bool]) -> None:
        if op.name == "ttarget.await":
            here[op.operands[0], op.operands[1]] = False
        elif op.name == "ttarget.tensor_mma":
            self._product(op, here)
        elif op.name == "ttarget.tensor_release":
            if not here.pop((op.operands[0], op.operands[1]), False):
                op.fail("a stage is left to the producer before a product has read it")
        elif op.name == "ttarget.tensor_commit":
            self._commit(op)
        elif op.name == "ttarget.tensor_wait":
            self._wait(op)
        elif op.name == "ttarget.tensor_load":
            self._load(op)
        elif op.name == "ttarget.tensor_alloc":
            self.held[op.result] = op
        elif op.name == "ttarget.tensor_dealloc":
            self._dealloc(op)

    def _alive(self, op: SpecOp, memory: SSAValue) -> None:
        if memory not in self.held:
            op.fail("tensor memory is used after it was given back")

    def _product(self, op: SpecOp, here: dict[Stage, bool]) -> None:
        self._alive(op, op.operands[0])
        for tile, cursor in zip(op.operands[1:3], op.operands[3:5], strict=True):
            stages = [(ring, at) for ring, at in here if at is cursor and _has(ring, tile)]
            if not stages:
                op.fail("a product reads a stage that nobody waited for", "put a `ttarget.await` before it")
            here.update(dict.fromkeys(stages, True))
        self.flying[op.operands[0]] = "committed"

    def _commit(self, op: SpecOp) -> None:
        self._alive(op, op.operands[0])
        if self.flying.get(op.operands[0]) != "committed":
            op.fail("there are no products to commit, and a barrier would count what nobody waits for")
        self.flying[op.operands[0]] = "waited for"

    def _wait(self, op: SpecOp) -> None:
        if self.flying.get(op.operands[0]) != "waited for":
            op.fail("a wait for products that nobody committed never ends", "put a `ttarget.tensor_commit` before it")
        del self.flying[op.operands[0]]

    def _load(self, op: SpecOp) -> None:
        self._alive(op, op.operands[0])
        missing = self.flying.get(op.operands[0])
        if missing is not None:
            op.fail(
                f"tensor memory is read while products in it are not {missing}",
                "put a `ttarget.tensor_commit` and a `ttarget.tensor_wait` before it",
            )

    def _dealloc(self, op: SpecOp) -> None:
        memory = op.operands[0]
        self._alive(op, memory)
        if memory in self.flying:
            op.fail("tensor memory is given back while products write it")
        made = self.held.pop(memory)
        if made.value("warp") != op.value("warp"):
            op.fail(f"warp {made.value('warp')} allocated tensor memory, and warp {op.value('warp')} gives it back")


def _has(ring: SSAValue, tile: SSAValue) -> bool:
    return isinstance(ring.owner, SpecOp) and tile in ring.owner.operands
