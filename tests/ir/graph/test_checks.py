"""The checks of Graph IR, one guard at a time: what each refuses, and the nearest program that it leaves alone."""

from __future__ import annotations

import pytest
from xdsl.dialects import test as foreign
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr
from xdsl.ir import Operation

from tessera.diagnostics.error import TesseraError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.text import parse_module
from tessera.ir.graph.passes.check_effects import CheckEffects
from tessera.ir.graph.passes.check_numerics import CheckNumerics
from tessera.ir.graph.passes.check_policy import CheckPolicy, _is_satisfied  # pyright: ignore[reportPrivateUsage]
from tessera.ir.graph.passes.check_ranges import CheckRanges
from tessera.types.dtype import BLOCK_FORMATS, bf16, f16, f32
from tessera.types.policy import tf32


def tensor(shape: str, dtype: str) -> str:
    return f"!tgraph.tensor<[{shape}], {dtype}>"


def function(line: str, *, says: str = "", takes: str = "M, M", dtype: str = "f32", gives: str = "") -> str:
    """A function of one op on `%a` and `%b`, with attributes that it `says`."""
    operand = tensor(takes, dtype)
    result = gives or operand
    attributes = f" attributes {{{says}}}" if says else ""
    return (
        f"tgraph.func @f(%a: {operand}, %b: {operand}) -> {result}{attributes} {{\n"
        f"  %0 = {line.replace('T', operand)} -> {result}\n  tgraph.return %0 : ({result}) -> ()\n}}\n"
    )


def refusal(check: Pass, text: str, *, with_foreign: bool = False) -> str:
    """What a pass says of a program, if anything."""
    module = parse_module(text)
    if with_foreign:
        head = next(op for op in module.ops if isinstance(op, SpecOp))
        first = head.regions[0].block.first_op
        assert isinstance(first, Operation)
        head.regions[0].block.insert_op_before(foreign.TestOp(), first)
    try:
        check.run(module)
    except TesseraError as error:
        return error.message
    return ""


KERNEL = """
ttile.kernel @k(%x: !ttile.buffer<[4], f32>)
    attributes {symbols = [], grid = [], writes = [0], tessera.numerics.policy = {accumulate = f32}} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.constant {value = 0.0} : () -> !ttile.tile<[4], f32>
  ttile.store %t, %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [4]}
      : (!ttile.tile<[4], f32>, !ttile.buffer<[4], f32>, !ttile.index) -> ()
  ttile.return
}
"""
MATMUL = "tgraph.matmul %a, %b {{{}}} : (T, T)"
SILENT = "does not state its accumulator, and no policy does"


@pytest.mark.parametrize(
    ("line", "says", "refused"),
    [
        (MATMUL.format(""), "", SILENT),
        (MATMUL.format("accumulate = f32"), "", ""),
        (MATMUL.format(""), 'numerics.policy = "accum(f32)"', ""),
        (MATMUL.format(""), "tessera.numerics.policy = {accumulate = f32}", ""),
        (MATMUL.format(""), 'numerics.policy = "storage(bf16)"', SILENT),
        (MATMUL.format(""), "tessera.numerics.policy = {storage = bf16}", SILENT),
        ('tgraph.cumulative %a {kind = "sum", axis = 1} : (T)', "", SILENT),
        ('tgraph.cumulative %a {kind = "prod", axis = 1} : (T)', "", SILENT),
        ('tgraph.cumulative %a {kind = "max", axis = 1} : (T)', "", ""),
        ('tgraph.cumulative %a {kind = "min", axis = 1} : (T)', "", ""),
        ("tgraph.add %a, %b : (T, T)", "", ""),
    ],
)
def test_what_sums_states_its_accumulator(line: str, says: str, refused: str) -> None:
    found = refusal(CheckNumerics(), function(line, says=says))
    assert (refused in found) if refused else not found


@pytest.mark.parametrize(
    ("dtype", "wanted", "refused"),
    [
        ("f32", "bf16", "narrows f32 to bf16"),
        ("f32", "f16", "narrows f32 to f16"),
        ("bf16", "f16", "narrows bf16 to f16"),
        ("bf16", "bf16", ""),
        ("bf16", "f32", ""),
        ("f32", "f32", ""),
        ("i32", "i8", ""),
        ("i8", "i32", ""),
    ],
)
def test_what_multiplies_narrows_floats_by_a_cast_alone(dtype: str, wanted: str, refused: str) -> None:
    total = "f32" if dtype[0] != "i" else "i32"
    line = MATMUL.format(f"accumulate = {total}, dtype = {wanted}")
    found = refusal(CheckNumerics(), function(line, dtype=dtype, gives=tensor("M, M", wanted)))
    assert (refused in found) if refused else not found


def test_ops_of_other_dialects_are_passed_by() -> None:
    plain = function("tgraph.add %a, %b : (T, T)", says="tessera.deterministic = true")
    for check in (CheckNumerics(), CheckPolicy()):
        assert refusal(check, plain, with_foreign=True) == ""
    stored = function("tgraph.add %a, %b : (T, T)", says="tessera.numerics.policy = {accumulate = f32}")
    assert refusal(CheckPolicy(), stored, with_foreign=True) == ""
    assert refusal(CheckPolicy(), stored + KERNEL) == ""


KEY = tensor("2", "u64")


@pytest.mark.parametrize(
    ("says", "refused"),
    [
        ("", ""),
        ("tessera.deterministic = true", "runs of `fresh_key` may differ"),
        ("tessera.deterministic = false", ""),
        ('tessera.effects = ["random"]', "`tgraph.fresh_key` has effect io, and"),
        ('tessera.effects = ["io", "random"]', ""),
        ('tessera.effects = ["io"]', "`tgraph.fresh_key` has effect random, and `@f` declares {io}"),
        ("tessera.effects = []", "`tgraph.fresh_key` has effect random"),
    ],
)
def test_functions_do_what_they_promise(says: str, refused: str) -> None:
    found = refusal(CheckEffects(), function("tgraph.fresh_key : ()", says=says, gives=KEY))
    assert (refused in found) if refused else not found


def test_a_scope_that_may_differ_inside_of_one_that_may_not() -> None:
    inner = "tgraph.fresh_key {{tessera.deterministic = {}}} : ()"
    for outer, own, refused in (("true", "false", False), ("false", "true", True), ("true", "true", True)):
        text = function(inner.format(own), says=f"tessera.deterministic = {outer}", gives=KEY)
        assert bool(refusal(CheckEffects(), text)) is refused


@pytest.mark.parametrize("dtype", ["i4", "i8", "i16", "u8", "u16", "u32", "i32", "i64", "u64"])
def test_integers_that_saturate_are_computed_in_a_wider_dtype(dtype: str) -> None:
    for line, saturates in (("tgraph.add %a, %b : (T, T)", True), ("tgraph.max %a, %b : (T, T)", False)):
        for policy in ('saturation = "saturate"', 'saturation = "wrap"', "storage = bf16"):
            text = function(line, says=f"tessera.numerics.policy = {{{policy}}}", dtype=dtype)
            is_refused = saturates and "saturate" in policy and dtype not in ("i32", "i64", "u64")
            assert ("wraps" in refusal(CheckPolicy(), text)) is is_refused, (line, policy)
    floats = function("tgraph.add %a, %b : (T, T)", says='tessera.numerics.policy = {saturation = "saturate"}')
    assert refusal(CheckPolicy(), floats) == ""


@pytest.mark.parametrize(
    ("source", "target", "policy", "refused"),
    [
        ("f32", "bf16", 'rounding = "toward_zero"', True),
        ("f32", "bf16", "accumulate = f32", False),
        ("bf16", "f32", 'rounding = "toward_zero"', False),
        ("f32", "i32", 'rounding = "toward_zero"', False),
        ("i32", "bf16", 'rounding = "toward_zero"', False),
        ("f64", "bf16", 'rounding = "toward_zero"', False),
    ],
)
def test_casts_that_narrow_floats_round_as_policies_say(source: str, target: str, policy: str, refused: bool) -> None:
    line = f"tgraph.cast %a {{dtype = {target}}} : (T)"
    text = function(line, says=f"tessera.numerics.policy = {{{policy}}}", dtype=source, gives=tensor("M, M", target))
    assert ("by plain rounding" in refusal(CheckPolicy(), text)) is refused


@pytest.mark.parametrize(
    ("dtype", "stated", "wanted", "refused"),
    [
        ("bf16", "f32", "f32", False),
        ("bf16", "f32", "bf16", True),
        ("bf16", "", "bf16", False),
        ("i32", "i64", "f32", False),
        ("f64", "f64", "f32", False),
    ],
)
def test_sums_are_in_the_accumulator_of_the_policy(dtype: str, stated: str, wanted: str, refused: bool) -> None:
    attributes = f"axes = [1]{f', accumulate = {stated}' if stated else ''}"
    gives = tensor("M", "i64" if dtype == "i32" else dtype)
    text = function(
        f"tgraph.sum %a {{{attributes}}} : (T)",
        says=f"tessera.numerics.policy = {{accumulate = {wanted}}}",
        dtype=dtype,
        gives=gives,
    )
    assert ("sums in" in refusal(CheckPolicy(), text)) is refused


def test_factors_went_through_a_format_that_loses_all_that_the_wanted_one_loses() -> None:
    nvfp4 = BLOCK_FORMATS["nvfp4"]
    for wanted, formats, satisfied in (
        (bf16, {"bf16"}, True),
        (bf16, {"f32", "bf16"}, True),
        (bf16, {"f32"}, False),
        (bf16, {"f8e4m3"}, True),
        (bf16, {"f16"}, False),
        (f16, {"f8e5m2"}, True),
        (bf16, {"nvfp4"}, False),
        (bf16, set[str](), False),
        (f32, {"f64"}, False),
        (tf32, {"tf32"}, True),
        (tf32, {"bf16"}, True),
        (tf32, {"f16"}, True),
        (tf32, {"nvfp4"}, True),
        (tf32, {"f32"}, False),
        (tf32, {"f64"}, False),
        (tf32, set[str](), False),
        (nvfp4, {"nvfp4"}, True),
        (nvfp4, {"f32", "bf16", "f8e4m3"}, False),
    ):
        assert _is_satisfied(wanted, formats) is satisfied, (wanted, formats)


def kept(body: str, policy: str = "storage = bf16, accumulate = f32") -> str:
    """What the check of policies says of a body on `%a` that gives f32."""
    wide, half, scalar = tensor("M, M", "f32"), tensor("M, M", "bf16"), tensor("", "f32")
    head = f"tgraph.func @f(%a: F, %s: S) -> F attributes {{tessera.numerics.policy = {{{policy}}}}} {{\n"
    text = (head + body).replace("F", wide).replace("H", half).replace("S", scalar)
    return refusal(CheckPolicy(), text)


PRODUCT = "  %p = tgraph.matmul %l, %l {accumulate = f32, dtype = f32} : (F, F) -> F\n"
STORED = '  %q = tgraph.round_to %p {format = "bf16"} : (F) -> H\n  %e = tgraph.cast %q {dtype = f32} : (H) -> F\n'
TRANSPOSE = "  %e = tgraph.transpose %{} {{axes = [1, 0]}} : (F) -> F\n"
END = "  tgraph.return %e : (F) -> ()\n}\n"
ROUNDED = '  %r = tgraph.round_to %a {format = "bf16"} : (F) -> H\n  %c = tgraph.cast %r {dtype = f32} : (H) -> F\n'


@pytest.mark.parametrize(
    ("between", "refused"),
    [
        ("  %l = tgraph.transpose %c {axes = [1, 0]} : (F) -> F\n", False),
        ("  %l = tgraph.mul %c, %s : (F, S) -> F\n", False),
        ("  %l = tgraph.mul %c, %c : (F, F) -> F\n", True),
        ("  %l = tgraph.add %c, %s : (F, S) -> F\n", True),
        ("  %l = tgraph.exp %c : (F) -> F\n", True),
    ],
)
def test_factors_are_seen_through_ops_that_move_or_scale_them(between: str, refused: bool) -> None:
    found = kept(ROUNDED + between + PRODUCT + STORED + END)
    assert ("takes operand 0 in f32, which was never stored as bf16" in found) if refused else not found, found


@pytest.mark.parametrize(
    ("body", "policy", "refused"),
    [
        ("  %e = tgraph.exp %a : (F) -> F\n", "storage = bf16", True),
        (
            "  %x = tgraph.exp %a : (F) -> F\n  %e = tgraph.transpose %x {axes = [1, 0]} : (F) -> F\n",
            "storage = bf16",
            True,
        ),
        (TRANSPOSE.format("a"), "storage = bf16", False),
        ("  %e = tgraph.exp %a : (F) -> F\n", "storage = f32", False),
        ("  %e = tgraph.exp %a : (F) -> F\n", "accumulate = f32", False),
        ("  %e = tgraph.exp %a : (F) -> F\n", "compute = bf16", False),
        ("  %e = tgraph.exp %a : (F) -> F\n", "storage = bf16, compute = f32", False),
        ("  %e = tgraph.exp %a : (F) -> F\n", "storage = f32, compute = bf16", True),
        ("  %e = tgraph.exp %a {tessera.numerics.policy = {accumulate = f32}} : (F) -> F\n", "storage = bf16", False),
        ("  %e = tgraph.exp %a {tessera.numerics.policy = {storage = bf16}} : (F) -> F\n", "accumulate = f32", True),
    ],
)
def test_results_leave_as_they_are_stored(body: str, policy: str, refused: bool) -> None:
    found = kept(body + END, policy)
    assert ("leaves as result 0 in f32, and was never stored as" in found) if refused else not found, found


def test_factors_that_are_integers_are_not_stored_as_floats_are() -> None:
    whole = function(MATMUL.format("accumulate = i32"), says="tessera.numerics.policy = {storage = bf16}", dtype="i32")
    assert refusal(CheckPolicy(), whole) == ""


def test_ops_inside_of_others_are_held_to_the_policy_around_them() -> None:
    """A branch that sums in another accumulator than its function, or than the op around it, promises."""
    wide, rows, scalar = tensor("M, M", "bf16"), tensor("M", "bf16"), tensor("", "bool")
    for outer, own, refused in (("bf16", "", True), ("f32", "", False), ("f32", "bf16", True), ("bf16", "f32", False)):
        scope = f" {{tessera.numerics.policy = {{accumulate = {own}}}}}" if own else ""
        branch = (
            f"{{\n  ^bb0(%x: {wide}):\n    %1 = tgraph.sum %x {{axes = [1], accumulate = f32}} : ({wide}) -> {rows}\n"
        )
        branch += f"    tgraph.yield %1 : ({rows}) -> ()\n  }}"
        text = (
            f"tgraph.func @f(%p: {scalar}, %a: {wide}) -> {rows} "
            f"attributes {{tessera.numerics.policy = {{accumulate = {outer}}}}} {{\n"
            f"  %0 = tgraph.cond %p, %a{scope} ({branch}, {branch}) : ({scalar}, {wide}) -> {rows}\n"
            f"  tgraph.return %0 : ({rows}) -> ()\n}}\n"
        )
        assert ("sums in f32" in refusal(CheckPolicy(), text)) is refused, (outer, own)
        silent = text.replace(", accumulate = f32}", "}").replace("tessera.numerics.policy", "tessera.unused")
        assert (SILENT in refusal(CheckNumerics(), silent)) is True


@pytest.mark.parametrize(
    ("says", "refused"),
    [
        ("numerics.bounded = [-100, 100]", "`mul` can give [-10000, 10000], outside of [-100, 100]"),
        ("numerics.bounded = [-100, 100], numerics.inputs = {a = [-9, 9], b = [-9, 9]}", ""),
        ("numerics.bounded = [-100, 100], numerics.inputs = {a = [-9, 9]}", "`mul` can give [-900, 900]"),
        ("numerics.inputs = {a = [-1000, 1000]}", ""),
        ("", ""),
    ],
)
def test_values_stay_in_the_bounds_that_a_function_promises(says: str, refused: str) -> None:
    found = refusal(CheckRanges(), function("tgraph.mul %a, %b : (T, T)", says=says))
    assert (refused in found) if refused else not found


def test_what_is_no_function_promises_no_bounds() -> None:
    module = parse_module(function("tgraph.mul %a, %b : (T, T)"))
    other = foreign.TestOp(attributes={"numerics.bounded": ArrayAttr([IntegerAttr(-1, 64), IntegerAttr(1, 64)])})
    module.body.block.add_op(other)
    CheckRanges().run(module)
