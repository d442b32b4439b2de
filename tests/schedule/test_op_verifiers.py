"""Ops of plans and host programs: each rule of their verifiers at its limit and one beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.ir import Block

from tessera.ir.base.dialect_of import make
from tessera.ir.schedule.kinds import kernel_kinds
from tessera.ir.schedule.ops.plan import MOST_STAGES, stages_of
from tessera.types.dim import Dim
from tests.ir.base.verdicts import BLOCKS, op_of, refusal_of, type_of

N = Dim.symbol("N")
START = {"number": 0, "call": "all_gather", "axis": "dp", "ranks": 2}
BUFFERS = "without a result works on buffers"
SENT = "takes the sent value and gives the received one, or takes the buffers of both"
WAITED = "takes the sent and the received value, and gives the latter at most"
AS_IT_IS = "gives the same elements in another shape"
ACROSS = "goes from one buffer to another of its dtype"

Case = tuple[str, str, dict[str, Any], str]
"""An op, its signature, its attributes, and what is said of it: nothing where it is right."""

COLLECTIVES: list[Case] = [
    ("collective_start", "f32[4] -> f32[8]", START, ""),
    ("collective_start", "f32{4} f32{8} ->", START, ""),
    ("collective_start", "f32{8} f32{8} ->", {**START, "call": "all_to_all"}, ""),
    ("collective_start", "f32{N} f32{N} ->", {**START, "call": "all_to_all"}, ""),
    ("collective_start", "f32{4} f32{8} ->", {**START, "call": "all_to_all"}, "has 4 elements, and [8] f32 has 8"),
    ("collective_start", "f32{7} f32{7} ->", {**START, "call": "all_to_all"}, "and 1 elements are left"),
    ("collective_start", "f32[4] -> f32[12]", START, "over the 2 ranks of `dp` has 8 elements, and"),
    ("collective_start", "f32[N,4] -> f32[N,4]", START, "has 8*N elements, and"),
    ("collective_start", "f32[4] -> f64[8]", START, "moves f32 and gives f64"),
    (
        "collective_start",
        "f32{4} f32{8} ->",
        {**START, "call": "all_reduce"},
        "`call` is one of all_gather",
    ),
    ("collective_start", "f32{4} f32{8} ->", {**START, "ranks": 1}, "a collective has at least 2 ranks, got 1"),
    ("collective_start", "f32{4} f32{8} ->", {**START, "axis": ""}, "needs the `axis` of the mesh"),
    ("collective_start", "f32{4} ->", START, SENT),
    ("collective_start", "f32{4} f32{8} f32{8} ->", START, SENT),
    ("collective_start", "f32[4] f32[8] -> f32[8]", START, SENT),
    ("collective_start", "f32[4] -> f32[8] f32[8]", START, SENT),
    ("collective_start", "f32[4] f32{8} ->", START, BUFFERS),
    ("collective_start", "f32{4} f32[8] ->", START, BUFFERS),
    ("collective_wait", "f32[4] f32[8] -> f32[8]", {"number": 0}, ""),
    ("collective_wait", "f32{4} f32{8} ->", {"number": 0}, ""),
    ("collective_wait", "f32{4} ->", {"number": 0}, WAITED),
    ("collective_wait", "f32{4} f32{8} f32{8} ->", {"number": 0}, WAITED),
    ("collective_wait", "f32[4] f32[8] -> f32[8] f32[8]", {"number": 0}, WAITED),
    ("collective_wait", "f32{4} f32[8] ->", {"number": 0}, BUFFERS),
    ("collective_wait", "f32[4] f32{8} ->", {"number": 0}, BUFFERS),
]
MEMORY: list[Case] = [
    ("alloc", "-> f32{4}", {}, ""),
    ("alloc", "-> f32[4]", {}, "gives a buffer, not"),
    ("alias", "f32{4} -> f32{2,2}", {}, ""),
    ("alias", "f32[4] -> f32[2,2]", {}, ""),
    ("alias", "f32{4} -> f64{4}", {}, AS_IT_IS),
    ("alias", "index -> f32{4}", {}, AS_IT_IS),
    ("alias", "f32{4} -> index", {}, AS_IT_IS),
    ("alias", "f32{4} -> f32{4}", {"space": "shared"}, ""),
    ("alias", "f32{4} -> f32{4}", {"space": "tmem"}, "there is no direct transfer from global to tmem memory"),
    ("alias", "f32{4} -> f32{4}", {"space": "texture"}, "there is no memory `texture`"),
    ("copy", "f32{4} f32{4} ->", {}, ""),
    ("copy", "f32[4] f32{4} ->", {}, ACROSS),
    ("copy", "index f32{4} ->", {}, ACROSS),
    ("copy", "f32{4} f32[4] ->", {}, ACROSS),
    ("copy", "f32{4} index ->", {}, ACROSS),
    ("copy", "f32{4} f64{4} ->", {}, ACROSS),
    ("callback", "f32{4} ->", {"call": "debug_print"}, ""),
    ("callback", "f32{4} ->", {"call": "print"}, "`call` is one of debug_print"),
    ("callback", "f32{4} ->", {"call": "io_callback", "slot": 0}, ""),
    ("callback", "f32{4} ->", {"call": "io_callback"}, "`io_callback` needs the `slot` of its function"),
    ("callback", "f32{4} f32{4} ->", {"call": "io_callback", "slot": 1, "outputs": 2}, ""),
    ("callback", "f32{4} ->", {"call": "io_callback", "slot": 1, "outputs": 2}, "writes 2 of 1 buffers"),
]
PLANS: list[Case] = [
    ("fuse", "f32[4] -> f32[4]", {"body": "f"}, ""),
    ("fuse", "f32[4] -> f32[4]", {"body": "f", "kind": "loop"}, "`kind` is one of"),
    ("fuse", "f32[4] -> f32[4]", {"body": "f", "axes": (0,)}, ""),
    *(
        (
            "fuse",
            "f32[4] -> f32[4]",
            {"body": "f", "axes": (0,), "kind": name},
            "" if kind.has_axes else f"only a row group has reduced `axes`, and this one is of kind {name}",
        )
        for name, kind in kernel_kinds().items()
    ),
    *(("fuse", "f32[4] -> f32[4]", {"body": "f", "kind": name}, "") for name in kernel_kinds()),
    ("fuse", "f32[4] -> f32[4]", {"body": "f", "pipeline": {"stages": 3}}, ""),
    ("fuse", "f32[4] -> f32[4]", {"body": "f", "pipeline": {"stages": 0}}, f"1 to {MOST_STAGES} buffers, got 0"),
    ("tile", "f32[4] ->", {"candidates": ((8, 8), (4, 4))}, ""),
    ("tile", "f32[4] ->", {"candidates": ((8, 8), (4, 4)), "chosen": (4, 4)}, ""),
    ("tile", "f32[4] ->", {"chosen": (4, 4)}, ""),
    ("tile", "f32[4] ->", {"candidates": ((8, 8),), "chosen": (4, 4)}, "none of the candidates [(8, 8)], got (4, 4)"),
    ("tile", "f32[4] ->", {}, "a tile choice has candidates or a chosen value"),
    ("layout", "f32[4] ->", {"partition": ("0",), "mesh_axes": ("dp",)}, ""),
    ("layout", "f32[B,4] ->", {"partition": ("B",), "mesh_axes": ("dp",)}, ""),
    (
        "layout",
        "f32[4] ->",
        {"partition": ("B",), "mesh_axes": ("dp",)},
        "names dim `B`, and the dims of [4] f32 are `0`",
    ),
    ("layout", "f32[4] ->", {"partition": ("B",), "mesh_axes": ("dp",), "dims": ("B",)}, ""),
    ("layout", "f32[4] ->", {"partition": ("B",), "mesh_axes": ("dp",), "dims": ("B", "N")}, "`dims` names 2 dims"),
    ("layout", "f32[4] ->", {"partition": (), "mesh_axes": ("dp",)}, "names 0 dims and `mesh_axes` 1 axes"),
    ("pipeline", "->", {"symbol": "f", "axis": "pp", "stages": 1, "microbatch": 1}, ""),
    ("pipeline", "->", {"symbol": "f", "axis": "pp", "stages": 0, "microbatch": 1}, "`stages` must be at least 1"),
    ("pipeline", "->", {"symbol": "f", "axis": "pp", "stages": 1, "microbatch": 0}, "`microbatch` must be at least 1"),
]


@pytest.mark.parametrize(
    "case", [*COLLECTIVES, *MEMORY, *PLANS], ids=lambda case: f"{case[0]} {case[1]} {case[3]}"[:80]
)
def test_each_rule_of_an_op_is_said(case: Case) -> None:
    name, signature, values, said = case
    found = refusal_of(op_of(f"tsched.{name}", signature, values))
    assert said in found if said else not found, found


@pytest.mark.parametrize(
    ("pipeline", "buffers"),
    [
        (None, 0),
        ({"double_buffer": True}, 2),
        ({"double_buffer": False}, 1),
        *(({"stages": count}, count) for count in (1, 2, MOST_STAGES)),
    ],
)
def test_a_pipeline_says_how_many_buffers_a_tile_has(pipeline: Any, buffers: int) -> None:
    assert stages_of(pipeline) == buffers


ONE_OF_THEM = "`pipeline` says `double_buffer` or `stages`, one of them, got "


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        (3, "`pipeline` is {double_buffer = true} or {stages = n}, got 3"),
        ({}, f"{ONE_OF_THEM}[]"),
        ({"depth": 2}, f"{ONE_OF_THEM}['depth']"),
        ({"stages": 2, "depth": 2}, f"{ONE_OF_THEM}['depth', 'stages']"),
        ({"stages": 2, "double_buffer": True}, f"{ONE_OF_THEM}['double_buffer', 'stages']"),
        ({"double_buffer": 1}, "`double_buffer` is true or false, got 1"),
        *(
            ({"stages": count}, f"`stages` is 1 to {MOST_STAGES} buffers, got {count!r}")
            for count in (0, -1, MOST_STAGES + 1, "2", 2.0, True)
        ),
    ],
)
def test_a_pipeline_that_says_nothing_known_is_refused(pipeline: Any, said: str) -> None:
    with pytest.raises(ValueError, match="`") as caught:
        stages_of(pipeline)
    assert str(caught.value) == said


# Control flow.


def body(takes: str = "", gives: str = "") -> Block:
    """A body that takes values of these types, and yields others."""
    words = [*takes.split(), *gives.split()]
    block = Block(arg_types=[type_of(word, BLOCKS["tsched"]) for word in takes.split()])
    values = Block(arg_types=[type_of(word, BLOCKS["tsched"]) for word in words]).args[len(block.args) :]
    block.add_op(make("tsched.yield", values, types=()))
    return block


ONE_BOOL = "is one bool, got"
CARRIES = "yields the values that the loop carries"
TAKES = "take the values that the loop carries"
FLOW: list[tuple[str, str, dict[str, Any], list[Block], str]] = [
    ("if", "bool[] -> f32[4]", {}, [body(gives="f32[4]"), body(gives="f32[4]")], ""),
    ("if", "bool[] -> f32[4]", {}, [body(gives="f32[8]"), body(gives="f32[4]")], "body 0 of `tsched.if` yields"),
    ("if", "bool[] -> f32[4]", {}, [body(gives="f32[4]"), body(gives="f32[8]")], "body 1 of `tsched.if` yields"),
    ("if", "bool[] -> f32[4]", {}, [body(), body(gives="f32[4]")], "body 0 of `tsched.if` yields"),
    ("if", "bool{} ->", {}, [body(), body()], ""),
    ("if", "bool{} -> f32{4}", {}, [body(), body()], ""),
    ("if", "bool[1] ->", {}, [body(), body()], ONE_BOOL),
    ("if", "i32[] ->", {}, [body(), body()], ONE_BOOL),
    ("if", "index ->", {}, [body(), body()], ONE_BOOL),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]", "bool[]"), body("f32[4]", "f32[4]")], ""),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]", "i32[]"), body("f32[4]", "f32[4]")], ONE_BOOL),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]"), body("f32[4]", "f32[4]")], f"{ONE_BOOL} nothing"),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]", "bool[] bool[]"), body("f32[4]", "f32[4]")], ONE_BOOL),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[8]", "bool[]"), body("f32[4]", "f32[4]")], TAKES),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]", "bool[]"), body("f32[8]", "f32[4]")], TAKES),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]", "bool[]"), body("f32[4]", "f32[8]")], CARRIES),
    ("while", "f32[4] -> f32[4]", {}, [body("f32[4]", "bool[]"), body("f32[4]")], CARRIES),
    ("while", "f32{4} f32{4} -> f32{4}", {}, [body("f32{4}", "bool{}"), body("f32{4} f32{4}")], ""),
    ("while", "f32{4} f32{4} -> f32{4}", {}, [body("f32{4} f32{4}", "bool{}"), body("f32{4} f32{4}")], TAKES),
    ("while", "f32{4} f32{4} -> f32{4}", {}, [body("f32{4}", "bool{}"), body("f32{4}")], TAKES),
    ("for", "i64[] i64[] ->", {}, [body("i64[]")], ""),
    ("for", "i64[] ->", {}, [body("i64[]")], "needs a lower and an upper bound, or `length`"),
    ("for", "->", {"length": N}, [body()], ""),
    ("for", "->", {}, [body()], "needs a lower and an upper bound, or `length`"),
    ("for", "f32[4] -> f32[4]", {"carried": 1, "length": N}, [body("f32[4]", "f32[4]")], ""),
    ("for", "f32[4] -> f32[4]", {"carried": 1, "length": N}, [body("f32[4]", "f32[8]")], CARRIES),
    ("for", "f32[4] -> f32[4]", {"carried": 1, "length": N}, [body("f32[4]")], CARRIES),
    (
        "for",
        "f32[4] -> f32[4] f32[9,4]",
        {"carried": 1, "length": N},
        [body("f32[4]", "f32[4] f32[4]")],
        "",
    ),
    ("for", "f32{4} f32{4} -> f32{4}", {"carried": 1, "length": N}, [body("f32{4} f32{4}")], ""),
]


@pytest.mark.parametrize(("name", "signature", "values", "regions", "said"), FLOW)
def test_each_rule_of_control_flow_is_said(
    name: str, signature: str, values: dict[str, Any], regions: list[Block], said: str
) -> None:
    found = refusal_of(op_of(f"tsched.{name}", signature, values, regions))
    assert said in found if said else not found, found
