"""The exit verifier of the target stage: what it lets through, and what it does not."""

from __future__ import annotations

import pytest
from xdsl.ir import Block

from tessera.diagnostics.codes import FeatureError
from tessera.diagnostics.error import InternalError
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.dialect import DIALECT
from tessera.ir.target.pipeline import check_kernels
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

AVX2 = ("avx2", "fma")


def kernel(lanes: int = 8, features: tuple[str, ...] = AVX2, writes: tuple[int, ...] = (0,)) -> SpecOp:
    block = Block(arg_types=[BufferAttr.of(TensorType.of(["N"], f32))])
    block.add_op(make(DIALECT["return"]))
    values = {
        "symbol": "k",
        "symbols": ("N",),
        "writes": writes,
        "lanes": lanes,
        "features": features,
        "scratch": Dim.constant(0),
    }
    return make(DIALECT["kernel"], values=values, types=(), regions=[block])


def test_a_sound_kernel_passes() -> None:
    module = check_kernels([kernel()], Machine("m", lanes=8, features=AVX2))
    assert [op.name for op in module.ops] == ["ttarget.kernel"]


def test_a_kernel_that_breaks_a_rule_is_our_mistake_and_leaves_its_text() -> None:
    with pytest.raises(InternalError, match="`writes` names arguments") as caught:
        check_kernels([kernel(writes=(3,))], Machine("m", lanes=8, features=AVX2))
    assert caught.value.where == "target-exit"
    assert "tessera-opt" in caught.value.command


def test_a_feature_that_the_machine_lacks_is_refused() -> None:
    with pytest.raises(FeatureError, match="avx512f"):
        check_kernels([kernel(16, (*AVX2, "avx512f"))], Machine("m", lanes=8, features=AVX2))
