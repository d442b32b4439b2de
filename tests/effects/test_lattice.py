"""The lattice of effects: its laws, its texts, what may be reordered, and inference on text."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import EffectError
from tessera.types.effect import ALL, KINDS, PURE, Effects, effects_in_text, may_swap, report

NAMES = st.sampled_from([*KINDS, "state(cache)", "state(other)", "collective(dp)", "memory(x)"])
SETS = st.frozensets(NAMES, max_size=5).map(Effects)


@given(SETS, SETS, SETS)
def test_join_and_meet_are_a_lattice(a: Effects, b: Effects, c: Effects) -> None:
    for op in (Effects.join, Effects.meet):
        assert op(a, a) == a
        assert op(a, b) == op(b, a)
        assert op(op(a, b), c) == op(a, op(b, c))
    assert a.join(a.meet(b)) == a == a.meet(a.join(b))


@given(SETS, SETS)
def test_the_order_agrees_with_join_and_meet(a: Effects, b: Effects) -> None:
    assert b.covers(a) == (a.join(b) == b) == (a.meet(b) == a)
    assert ALL.covers(a)
    assert a.covers(PURE)
    assert a.join(PURE) == a == a.meet(ALL)


@given(SETS, SETS)
def test_what_is_suspended_is_gone_and_nothing_else(a: Effects, b: Effects) -> None:
    left = a.without(b)
    assert a.covers(left)
    assert not any(b.covers([effect]) for effect in left)
    assert left.join(b).covers(a)


@given(SETS)
def test_text_and_pickle_give_the_set_back(a: Effects) -> None:
    assert Effects.parse(str(a)) == a == Effects.parse(repr(a))
    assert pickle.loads(pickle.dumps(a)) == a
    assert hash(a) == hash(frozenset(a))
    assert a == set(a)


@pytest.mark.parametrize("text", ["rand", "state()", "state(a", "io io", "IO", "state(a)(b)"])
def test_a_text_that_is_no_effect_is_refused(text: str) -> None:
    with pytest.raises(EffectError, match="is no effect; effects are random, io"):
        Effects.parse(text)


@given(SETS, SETS)
def test_changing_places_is_symmetric_and_less_does_not_forbid_more(a: Effects, b: Effects) -> None:
    assert may_swap(a, b) == may_swap(b, a)
    if may_swap(a, b):
        assert all(may_swap([effect], b) for effect in a)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (["random"], ["random"], True),
        (["random"], KINDS, True),
        (["io"], ["io"], False),
        (["io"], ["collective"], False),
        (["io"], ["state(cache)"], False),
        (["state(a)"], ["state(b)"], True),
        (["state(a)"], ["state(a)"], False),
        (["state(a)"], ["state"], False),
        (["collective"], ["collective"], False),
        (["collective"], ["state"], True),
        (["memory"], ["memory"], False),
        ([], KINDS, True),
    ],
)
def test_who_may_change_places(left: list[str], right: list[str], expected: bool) -> None:
    assert may_swap(left, right) is expected


TEXT = """
tgraph.func @inner(%x: !tgraph.tensor<[4], f32>) {  // tgraph.io_callback in a comment is none
  %0 = tgraph.dropout %x, %x {rate = 0.5}
  %1 = tgraph.add %0, %0
}
tgraph.func @outer(%x: !tgraph.tensor<[4], f32>) {
  %0 = tgraph.call @inner(%x)
}
tgraph.func @foreign(%x: !tgraph.tensor<[4], f32>) {
  %0, %1 = "other.thing"(%x)
}
"""


def test_inference_on_text_is_bottom_up_and_a_foreign_op_has_every_effect() -> None:
    table = {"tgraph.dropout": ["random"], "tgraph.add": [], "tgraph.call": []}
    found = effects_in_text(TEXT, table)
    assert found == {"inner": {"random"}, "outer": {"random"}, "foreign": ALL}
    assert effects_in_text(TEXT, {}) == {"inner": ALL, "outer": ALL, "foreign": ALL}


def test_functions_that_name_each_other_share_their_effects() -> None:
    text = "a.func @f() {\n  a.say @g\n}\na.func @g() {\n  a.draw @f\n}"
    assert effects_in_text(text, {"a.say": ["io"], "a.draw": ["random"]}) == {
        "f": {"io", "random"},
        "g": {"io", "random"},
    }


LISTED = """
draw: random, state(rng)      # names of others stand for what those do
log: io
train: draw, step
step: collective(dp), train   # functions may call each other
"""


def test_the_report_of_a_text() -> None:
    questions = "? draw <= train; ? train <= draw; ? draw >< log; ? random >< log; ? log >< step"
    assert report(LISTED + questions) == [
        "draw: random, state(rng)",
        "log: io",
        "train: random, state(rng), collective(dp)",
        "step: random, state(rng), collective(dp)",
        "draw <= train: yes",
        "train <= draw: no",
        "draw >< log: no",
        "random >< log: yes",
        "log >< step: no",
    ]


@pytest.mark.parametrize(
    ("text", "code", "out"),
    [("f: io", 0, "f: io"), ("f: speech", 2, "`speech` is no effect"), ("f: io; ? f", 2, "`f` asks nothing")],
)
def test_the_command(text: str, code: int, out: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tessera.types.effect"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert out in done.stdout + done.stderr
