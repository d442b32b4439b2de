"""How a kernel on matrix units runs, as passes choose it: programs, warps, and what overlaps with what."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute

ONCE, PERSISTENT, DYNAMIC = "once", "persistent", "dynamic"
WALKS = (ONCE, PERSISTENT, DYNAMIC)
PRODUCER, UNIFORM = "producer", "uniform"
ROLES = (PRODUCER, UNIFORM)
BESIDE, AFTER = "beside", "after"
EPILOGUES = (BESIDE, AFTER)
"""When a program does what follows its products: beside those of the next one, or at once."""
SUM, SKEWED, ORDERED = "sum", "skewed", "ordered"
FORMS = (SUM, SKEWED, ORDERED)
ORDER = (
    Attribute("warpgroups", "int", 0, "groups of four warps that share the rows of its products; 0 for none"),
    Attribute("walk", "str", "", "once: a CTA does one program; persistent: many, in order; dynamic: as it gets done"),
    Attribute("group", "int", 1, "places of the last axis but one whose programs run together"),
    Attribute("descending", "bool", False, "whether programs further along the last axis come first"),
    Attribute("pair", "bool", False, "whether two CTAs copy the right side of a product for each other"),
    Attribute("roles", "str", "", "producer: one warp copies for the others; uniform: all copy"),
    Attribute("registers", "ints", (), "of a producer's and of a consumer's thread; none: equal shares"),
    Attribute("across", "int", 0, "single warps of a group that stand side by side; 0 where nobody has chosen"),
    Attribute("epilogue", "str", "", "beside the products of the next program of a CTA, or after its own"),
    Attribute("lag", "int", 0, "stages that each group of warps begins behind the one before"),
)
"""Attributes that passes give a kernel."""
OVERLAP = (
    Attribute("form", "str", "", "sum: one product in flight; skewed: the second of two a step late; or ordered"),
    Attribute("turns", "bool", False, "whether two groups of warps start products in turn"),
)
"""Attributes that passes give a loop."""
WAITS = (
    Attribute("awaits", "ints", (), "rings of copies that are full before it"),
    Attribute("leaves", "ints", (), "rings of copies that nobody reads after it"),
)
"""Attributes that a pass gives products and loops."""
_FOR_UNITS = {
    "ttile.kernel": ("warpgroups", "walk", "roles", "across", "epilogue"),
    "ttile.for": ("stages", "form", "awaits", "leaves"),
    "ttile.dot": ("awaits", "leaves"),
    "ttile.load": ("space",),
    "ttile.store": ("space",),
}
"""Attributes that mean something on matrix units alone."""


def said_for_units(kernel: SpecOp) -> list[str]:
    """What a kernel says of how it runs, by the names of attributes, which only those on matrix units do."""
    found: dict[str, None] = {}
    for op in kernel.walk():
        if isinstance(op, SpecOp):
            found.update(dict.fromkeys(name for name in _FOR_UNITS.get(op.name, ()) if op.value(name)))
    return list(found)


def check_order(op: SpecOp) -> None:
    """Raises OpError for a kernel that says how it runs, and nothing runs so."""
    for name, known in (("walk", WALKS), ("roles", ROLES), ("epilogue", EPILOGUES)):
        if op.value(name) not in ("", *known):
            op.fail(f"`{name}` is one of {', '.join(known)}, got {op.value(name)}")
    if op.value("warpgroups") < 0 or op.value("group") < 1 or op.value("lag") < 0:
        op.fail("`warpgroups` and `lag` are at least 0 and `group` at least 1")
    if (op.value("group") != 1 or op.value("descending")) and not op.value("walk"):
        op.fail("`group` and `descending` are the order of a `walk`, and none is said", "say the `walk` too")
    if op.value("lag") and not op.value("epilogue"):
        op.fail("`lag` is said together with the `epilogue`, and none is said", "say the `epilogue` too")
    if op.value("pair") and (op.value("walk") != PERSISTENT or op.value("group") % 2):
        op.fail("the programs of a pair are neighbours in time: `walk` is persistent, and `group` even")
    if op.value("across") < 0:
        op.fail(f"`across` counts warps, got {op.value('across')}")
    _check_registers(op)


def _check_registers(op: SpecOp) -> None:
    registers = op.value("registers")
    if registers and op.value("roles") != PRODUCER:
        op.fail("`registers` are those of a producer's and a consumer's threads, and there is no producer")
    if len(registers) not in (0, 2) or any(count % 8 or not 24 <= count <= 240 for count in registers):
        op.fail(f"registers of a thread are multiples of 8 from 24 to 240, for both roles, got {list(registers)}")


def check_waits(op: SpecOp) -> None:
    """Raises OpError for rings that are no numbers of some."""
    for name in ("awaits", "leaves"):
        if any(number < 0 for number in op.value(name)) or len(set(op.value(name))) != len(op.value(name)):
            op.fail(f"`{name}` are numbers of rings, each once, got {list(op.value(name))}")


def check_overlap(op: SpecOp) -> None:
    """Raises OpError for a loop that says what overlaps, and nothing does so."""
    if op.value("form") not in ("", *FORMS):
        op.fail(f"`form` is one of {', '.join(FORMS)}, got {op.value('form')}")
    if op.value("turns") and op.value("form") != SKEWED:
        op.fail(f"products are started in turn in a skewed loop, and `form` is {op.value('form') or 'not chosen'}")
