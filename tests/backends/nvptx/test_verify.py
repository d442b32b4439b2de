"""What the verifier refuses of kernels for a GPU: threads, spaces, alignment, and ops that need company."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tests.backends.nvptx.kernels import lowered


def first(kernel: SpecOp, name: str) -> SpecOp:
    """The first op of a name in a kernel."""
    return next(op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == name)


def threads(kernel: SpecOp) -> None:
    kernel.set_value("threads", 48)


def no_threads(kernel: SpecOp) -> None:
    kernel.set_value("threads", 0)


def vector(kernel: SpecOp) -> None:
    kernel.set_value("vector", 3)


def more_aligned_than_known(kernel: SpecOp) -> None:
    kernel.set_value("align", 0)


def unknown_space(kernel: SpecOp) -> None:
    first(kernel, "ttarget.scratch").set_value("space", "texture")


def shared_of_any_size(kernel: SpecOp) -> None:
    first(kernel, "ttarget.scratch").set_value("space", "shared")


def unknown_feature(kernel: SpecOp) -> None:
    kernel.set_value("features", ("sm_80", "tcgen05"))


FAULTS: dict[str, tuple[str, Callable[[SpecOp], None], str]] = {
    "part of a warp": ("map", threads, "one thread, or whole warps of up to 1024 threads, got 48"),
    "no threads": ("map", no_threads, "a program has threads where lanes are those of a warp"),
    "odd neighbours": ("map", vector, "`vector` is a power of two"),
    "alignment": ("map", more_aligned_than_known, "is that it is aligned to 4 bytes, not to 16"),
    "unknown space": ("dynamic row", unknown_space, "`space` is one of private, shared, registers, got texture"),
    "shared of a dynamic size": ("dynamic row", shared_of_any_size, "memory of the space shared has static sizes"),
    "feature of another GPU": ("map", unknown_feature, "the feature tcgen05 comes with sm_100a, which is missing"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_refused(name: str) -> None:
    program, change, words = FAULTS[name]
    kernel = lowered(program).targets[0].clone()
    assert isinstance(kernel, SpecOp)
    verify(kernel)
    change(kernel)
    with pytest.raises(OpError) as caught:
        verify(kernel)
    assert words in str(caught.value)


def test_blocks_that_change_hands_have_shapes_that_fit() -> None:
    kernel = lowered("product").targets[0].clone()
    assert isinstance(kernel, SpecOp)
    dot = first(kernel, "ttarget.dot")
    index = first(kernel, "ttarget.index")
    dot.operands[0] = index.results[0]
    with pytest.raises(OpError, match="works on blocks"):
        verify(kernel)
