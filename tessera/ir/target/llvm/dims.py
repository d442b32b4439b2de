"""Dims as i64 arithmetic: the exact value of any expression over sizes and coordinates, at run time."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.ir.target.llvm.instructions import Index, Instructions, Value, known
from tessera.types.dim import Atom, Dim, Monomial
from tessera.types.shape import is_at_least


def dim_value(f: Instructions, dim: Dim, env: Mapping[str, Index]) -> Value:
    """The value of `dim`, where `env` gives its symbols; none of them is negative.

    Quotients and remainders round toward minus infinity, and are 0 for a divisor of 0, as `Dim.evaluate` has it.
    """
    total: Index = 0
    for number, (monomial, coefficient) in enumerate(dim.terms):
        part = _product(f, monomial, env)
        if number == 0:
            total = part if coefficient == 1 else f.mul(part, coefficient)
        elif coefficient < 0 and known(total) != 0:
            total = f.sub(total, f.mul(part, -coefficient))
        else:
            total = f.add(total, part if coefficient == 1 else f.mul(part, coefficient))
    return f.index(total)


def _product(f: Instructions, monomial: Monomial, env: Mapping[str, Index]) -> Index:
    if not monomial:
        return 1
    result = _atom(f, monomial[0], env)
    for atom in monomial[1:]:
        result = f.mul(result, _atom(f, atom, env))
    return result


def _atom(f: Instructions, atom: Atom, env: Mapping[str, Index]) -> Index:
    if atom.kind == "symbol":
        return env[atom.name]
    first, second = (dim_value(f, arg, env) for arg in atom.args)
    if atom.kind == "max":
        return f.smax(first, second)
    if atom.kind == "min":
        return f.smin(first, second)
    return _divided(f, atom, first, second)


def _divided(f: Instructions, atom: Atom, first: Value, second: Value) -> Value:
    above, below = atom.args
    is_zero = f.icmp("eq", second, 0)
    divisor = f.select(is_zero, f.const_i(1), second)
    if is_at_least(above, 0) and is_at_least(below, 0):
        found = f.udiv(first, divisor) if atom.kind == "floordiv" else f.urem(first, divisor)
    else:
        found = _floored(f, atom.kind, first, divisor)
    # A remainder by the 1 that stands for 0 is 0 already.
    return f.select(is_zero, f.const_i(0), found) if atom.kind == "floordiv" else found


def _floored(f: Instructions, kind: str, first: Value, divisor: Value) -> Value:
    """Python's `//` or `%` from the machine's, which cut toward zero."""
    rest = f.srem(first, divisor)
    is_off = f.op("and", f.icmp("ne", rest, 0), f.icmp("slt", f.op("xor", rest, divisor), 0))
    if kind == "mod":
        return f.select(is_off, f.add(rest, divisor), rest)
    quotient = f.sdiv(first, divisor)
    return f.select(is_off, f.sub(quotient, 1), quotient)
