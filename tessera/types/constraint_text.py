"""`Constraint`: one rule about sizes as a value, read from text such as `D % 8 == 0` and printed back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TypeAlias

from tessera.diagnostics.codes import ConstraintError
from tessera.diagnostics.error import HERE, Fix, Span
from tessera.types.dim import Atom, Dim, DimLike, maximum, minimum, parse_dim
from tessera.types.frozen import frozen

Goal: TypeAlias = tuple[str, Dim]
"""`("ge", d)` is `d >= 0`, `("eq", d)` is `d == 0`, `("ne", d)` is `d != 0`; a constraint is one or two of them."""

_RANGE = re.compile(r"(?P<left>.+?)\s+in\s+(?P<low>.+?)\.\.(?P<closed>=?)(?P<high>.+)", re.DOTALL)
_RELATION = re.compile(r"(==|!=|<=|>=|<|>|=)")
_WORDS = frozenset(("mod", "floordiv", "ceildiv", "in"))
_CHAIN = re.compile(r"(?P<low>\w+)\s*<=\s*(?P<middle>[^<>=]+?)\s*<(?P<closed>=?)\s*(?P<high>\w+)")
_REMAINDER = re.compile(r"[^<>=%]+%[^<>=%]+")

_FORMS = "`D % 8 == 0`, `S <= 8192`, `B in 1..=4096`, `D = H*Dh`"


@frozen
class Constraint:
    """A relation that sizes must satisfy: `left relation right`, or `left in right..=high`.

    `written` and `span` say how and where it was written, and are no part of what it is.

    >>> print(Constraint.parse("B in 1..4097"), Constraint.parse("(H*8)%D==0"), sep="; ")
    B in 1..=4096; 8*H % D == 0
    """

    left: Dim
    relation: str
    right: Dim
    high: Dim | None = None
    written: str = field(default="", compare=False)
    span: Span | None = field(default=None, compare=False)

    @staticmethod
    def parse(text: str, span: Span | None = HERE) -> Constraint:
        """The constraint a text stands for; raises `ConstraintError` (T0105) at `span` where it is none."""
        written = text.strip()
        found = _RANGE.fullmatch(written) if ".." in written else None
        try:
            if found is not None:
                high = _parse_operand(found["high"]) - (0 if found["closed"] else 1)
                left, relation, right = _parse_operand(found["left"]), "in", _parse_operand(found["low"])
            else:
                left, relation, right = _split(written)
                high = None
        except ValueError as error:
            raise ConstraintError(
                f"`{written}` is not a constraint: {_after(str(error))}",
                span=span,
                notes=(f"constraints are written {_FORMS}",),
                fix=lambda span: _fix(span, text),
            ) from None
        return Constraint(left, relation, right, high, written, None if span is HERE else span)

    @staticmethod
    def equality(left: DimLike, right: DimLike, span: Span | None = None) -> Constraint:
        return Constraint(Dim.of(left), "==", Dim.of(right), span=span)

    @property
    def symbols(self) -> frozenset[str]:
        found = self.left.symbols | self.right.symbols
        return found if self.high is None else found | self.high.symbols

    @property
    def text(self) -> str:
        """The rule as its author wrote it, or as it prints."""
        return self.written or str(self)

    @property
    def is_equality(self) -> bool:
        return self.relation in ("==", "=")

    def goals(self) -> tuple[Goal, ...]:
        """What must hold, each as a comparison with zero."""
        left, right = self.left, self.right
        match self.relation:
            case "==" | "=":
                return (("eq", left - right if right.terms else left),)
            case "!=":
                return (("ne", left - right),)
            case "<=":
                return (("ge", right - left),)
            case "<":
                return (("ge", right - left - 1),)
            case ">=":
                return (("ge", left - right),)
            case ">":
                return (("ge", left - right - 1),)
            case _:
                assert self.high is not None
                return (("ge", left - right), ("ge", self.high - left))

    def equalities(self) -> tuple[tuple[Dim, Dim], ...]:
        """The constraint as equalities of dims, which is what compiled code checks.

        >>> Constraint.parse("S <= 8192").equalities()
        ((min(8192, S), S),)
        """
        left, right = self.left, self.right
        match self.relation:
            case "==" | "=":
                return ((left, right),)
            case "!=":
                distance = maximum(left - right, right - left)
                return ((minimum(distance, 1), Dim.constant(1)),)
            case "<=" | "<":
                return ((minimum(left, right if self.relation == "<=" else right - 1), left),)
            case ">=" | ">":
                return ((maximum(left, right if self.relation == ">=" else right + 1), left),)
            case _:
                assert self.high is not None
                return ((maximum(left, right), left), (minimum(left, self.high), left))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the constraint is true of these sizes; all its names must have one."""
        for kind, dim in self.goals():
            value = dim.evaluate(sizes)
            if not (value >= 0 if kind == "ge" else (value == 0) == (kind == "eq")):
                return False
        return True

    def substitute(self, env: Mapping[str, DimLike]) -> Constraint:
        """The constraint with sizes in place of names; how it was written stays."""
        high = None if self.high is None else self.high.substitute(env)
        return replace(
            self, left=self.left.substitute(env), right=self.right.substitute(env), high=high, written=self.text
        )

    def at(self, span: Span | None) -> Constraint:
        return replace(self, span=span)

    def __str__(self) -> str:
        if self.high is not None:
            return f"{dim_text(self.left)} in {dim_text(self.right)}..={dim_text(self.high)}"
        return f"{dim_text(self.left)} {self.relation} {dim_text(self.right)}"

    __repr__ = __str__


def _fix(span: Span | None, text: str) -> Fix | None:
    """What was meant, where a text is nearly a constraint: a chain of comparisons, or a remainder with nothing said."""
    chain, remainder = _CHAIN.fullmatch(text.strip()), _REMAINDER.fullmatch(text.strip())
    if chain is not None:
        changed = f"{chain['middle']} in {chain['low']}..{'=' if chain['closed'] else ''}{chain['high']}"
    elif remainder is not None:
        changed = f"{text.strip()} == 0"
    else:
        return None
    from tessera.diagnostics.edit import edit_text  # noqa: PLC0415 - for errors alone

    return edit_text(span, text, changed, f"write `{changed}`")


def _split(text: str) -> tuple[Dim, str, Dim]:
    parts = _RELATION.split(text)
    if len(parts) == 3:
        return _parse_operand(parts[0]), parts[1], _parse_operand(parts[2])
    if len(parts) == 1:
        raise ValueError("it compares nothing")
    if " and " in text:
        raise ValueError("it joins several with `and`; write each as a constraint of its own")
    if " or " in text:
        raise ValueError("constraints have no `or`; say what holds in every case")
    raise ValueError("it has more than two operands; write `B in 1..=4096` for a range, or two constraints")


def _parse_operand(text: str) -> Dim:
    """One operand; most are a number or a name, which need no parser."""
    text = text.strip()
    if text.isdigit():
        return Dim.constant(int(text))
    is_name = text.isascii() and text.isidentifier() and text not in _WORDS
    return Dim.symbol(text) if is_name else parse_dim(text, refuses_zero=True)


def _after(message: str) -> str:
    """What `parse_dim` found wrong, shorter where it repeats the whole text."""
    return message.replace(" is not a dimension", " is not a size")


def dim_text(dim: Dim) -> str:
    """A dim as constraints write it, with `%` and `//`; `Dim.of` reads it back.

    >>> dim_text(Dim.of("2*((H*D) mod 8) + 1"))
    '2*(D*H % 8) + 1'
    """
    if not dim.terms:
        return "0"
    text = ""
    for monomial, coefficient in dim.terms:
        size = abs(coefficient)
        if size == 1 and len(monomial) == 1:
            body = _atom_text(monomial[0])
        else:
            atoms = [_operand(Dim((((atom,), 1),))) for atom in monomial]
            body = "*".join(([str(size)] if size != 1 or not monomial else []) + atoms)
        if text:
            text += f" {'-' if coefficient < 0 else '+'} {body}"
        else:
            # A leading minus binds tighter than `%` and `//`, so those stand in parentheses behind it.
            text = f"-{_parenthesize(monomial, body)}" if coefficient < 0 else body
    return text


def _parenthesize(monomial: tuple[Atom, ...], body: str) -> str:
    is_division = len(monomial) == 1 and monomial[0].kind in ("floordiv", "mod") and not body[0].isdigit()
    return f"({body})" if is_division else body


def _atom_text(atom: Atom) -> str:
    if atom.kind == "symbol":
        return atom.name
    first, second = atom.args
    if atom.kind in ("max", "min"):
        return f"{atom.kind}({dim_text(first)}, {dim_text(second)})"
    return f"{_dividend(first)} {'%' if atom.kind == 'mod' else '//'} {_operand(second)}"


def _dividend(dim: Dim) -> str:
    """The dividend of a division: a plain product needs no parentheses."""
    is_product = len(dim.terms) == 1 and dim.terms[0][1] > 0 and all(a.kind == "symbol" for a in dim.terms[0][0])
    return dim_text(dim) if is_product else _operand(dim)


def _operand(dim: Dim) -> str:
    """The dim where a factor stands: in parentheses unless it is a number, a name or a call."""
    text = dim_text(dim)
    is_number = dim.value is not None and dim.value >= 0
    return text if is_number or dim.symbol_name or _is_call(dim) else f"({text})"


def _is_call(dim: Dim) -> bool:
    if len(dim.terms) != 1 or dim.terms[0][1] != 1:
        return False
    monomial = dim.terms[0][0]
    return len(monomial) == 1 and monomial[0].kind in ("max", "min")
