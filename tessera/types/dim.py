"""A dimension: a constant, a symbol, or exact integer arithmetic of them, always in one canonical form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

DimLike: TypeAlias = "Dim | int | str"


@dataclass(frozen=True, order=True)
class Atom:
    """A factor of a monomial: a symbol, or one of floordiv, mod, max, min over canonical dims.

    Monomials are sorted by the text of their atoms, and tables ask for hashes: both are made once, since atoms are
    nested in each other as deep as indices of windows of windows are.
    """

    kind: str
    name: str
    args: tuple[Dim, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.name, self.args))

    def __reduce__(self) -> tuple[type[Atom], tuple[str, str, tuple[Dim, ...]]]:
        return Atom, (self.kind, self.name, self.args)  # see `Dim.__reduce__`

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.kind == "symbol":
            return self.name
        first, second = self.args
        if self.kind in ("max", "min"):
            return f"{self.kind}({first}, {second})"
        return f"({_parenthesize(first)} {self.kind} {_parenthesize(second)})"

    def evaluate(self, env: Mapping[str, int]) -> int:
        if self.kind == "symbol":
            return env[self.name]
        first, second = (arg.evaluate(env) for arg in self.args)
        return _EVALUATE[self.kind](first, second)


def _parenthesize(dim: Dim) -> str:
    """The dim as one operand: in parentheses unless it is a number or a symbol."""
    return str(dim) if dim.is_static or dim.symbol_name else f"({dim})"


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


_EVALUATE: dict[str, Callable[[int, int], int]] = {"floordiv": _floordiv, "mod": _mod, "max": max, "min": min}

Monomial: TypeAlias = tuple[Atom, ...]

if TYPE_CHECKING:
    _lazy = cached_property
else:

    class _lazy(cached_property):  # noqa: N801 - it is a decorator
        """A cached property without the lock that Python 3.11 takes: two threads find the same value of a dim."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            found = instance.__dict__[self.attrname] = self.func(instance)
            return found


@dataclass(frozen=True)
class Dim:
    """A polynomial with integer coefficients over atoms; equal values in this form are equal objects.

    Arithmetic simplifies and sorts terms, so `(B + 1) * H - H == B * H` holds by construction. Division and
    remainder by zero are zero, as a size of an empty tensor.

    >>> B = Dim.symbol("B")
    >>> str((B + 1) * 2 - 2)
    '2*B'
    """

    terms: tuple[tuple[Monomial, int], ...]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    # Dims are keys of many tables, and their terms are nested.
    @_lazy
    def _hash(self) -> int:
        return hash(self.terms)

    def __reduce__(self) -> tuple[type[Dim], tuple[tuple[tuple[Monomial, int], ...]]]:
        # A hash holds in one process alone, so it does not travel.
        return Dim, (self.terms,)

    @staticmethod
    @lru_cache(maxsize=1 << 12)
    def symbol(name: str) -> Dim:
        return Dim((((Atom("symbol", name),), 1),))

    @staticmethod
    @lru_cache(maxsize=1 << 14)
    def constant(value: int) -> Dim:
        return Dim((((), int(value)),)) if value else Dim(())

    @staticmethod
    def of(value: DimLike) -> Dim:
        """A dim from an int, from text such as `"B*H"` or `"S+1"`, or itself."""
        if isinstance(value, Dim):
            return value
        return Dim.constant(value) if isinstance(value, int) else parse_dim(value)

    @_lazy
    def value(self) -> int | None:
        """The number this dim is, or None when it depends on a symbol."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]  # that of a number comes last
        return None if monomial else coefficient

    @property
    def is_static(self) -> bool:
        return self.value is not None

    @_lazy
    def symbols(self) -> frozenset[str]:
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= {atom.name} if atom.kind == "symbol" else set().union(*(a.symbols for a in atom.args))
        return frozenset(found)

    @property
    def symbol_name(self) -> str | None:
        """The name, when this dim is one bare symbol."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            atom = self.terms[0][0][0]
            return atom.name if atom.kind == "symbol" else None
        return None

    def evaluate(self, env: Mapping[str, int]) -> int:
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                product *= atom.evaluate(env)
            total += product
        return total

    def substitute(self, env: Mapping[str, DimLike]) -> Dim:
        """This dim with symbols replaced; symbols not in `env` stay."""
        if not (self.symbols & env.keys()):
            return self
        total = Dim.constant(0)
        for monomial, coefficient in self.terms:
            product = Dim.constant(coefficient)
            for atom in monomial:
                product = product * _substitute_atom(atom, env)
            total = total + product
        return total

    def coefficient(self, symbol: str) -> tuple[Dim, Dim] | None:
        """(`c`, `r`) with `self == c * symbol + r` and neither mentioning `symbol`; None if not linear in it."""
        if symbol not in self.symbols:
            return Dim.constant(0), self
        factor: dict[Monomial, int] = {}
        remainder: dict[Monomial, int] = {}
        atom = Atom("symbol", symbol)
        for monomial, coefficient in self.terms:
            if atom in monomial:
                at = monomial.index(atom)
                factor[monomial[:at] + monomial[at + 1 :]] = coefficient
            else:
                remainder[monomial] = coefficient
        pair = _canonical(factor), _canonical(remainder)
        return None if any(symbol in part.symbols for part in pair) else pair

    # Most dims are numbers: those are computed with, and no table is asked.

    def __add__(self, other: DimLike) -> Dim:
        right = other if isinstance(other, Dim) else Dim.of(other)
        a, b = self.value, right.value
        return _add(self, right) if a is None or b is None else Dim.constant(a + b)

    def __radd__(self, other: DimLike) -> Dim:
        return _add(self, Dim.of(other))

    def __neg__(self) -> Dim:
        return Dim(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: DimLike) -> Dim:
        right = other if isinstance(other, Dim) else Dim.of(other)
        a, b = self.value, right.value
        return _add(self, -right) if a is None or b is None else Dim.constant(a - b)

    def __rsub__(self, other: DimLike) -> Dim:
        return _add(Dim.of(other), -self)

    def __mul__(self, other: DimLike) -> Dim:
        right = other if isinstance(other, Dim) else Dim.of(other)
        a, b = self.value, right.value
        return _multiply(self, right) if a is None or b is None else Dim.constant(a * b)

    def __rmul__(self, other: DimLike) -> Dim:
        return _multiply(self, Dim.of(other))

    def __floordiv__(self, other: DimLike) -> Dim:
        return _divide(self, Dim.of(other))

    def __mod__(self, other: DimLike) -> Dim:
        return _remainder(self, Dim.of(other))

    def ceildiv(self, other: DimLike) -> Dim:
        divisor = Dim.of(other)
        return (self + divisor - 1) // divisor

    def __str__(self) -> str:
        return self._text

    @_lazy
    def _text(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            sign, size = ("-" if coefficient < 0 else "+"), abs(coefficient)
            body = "*".join(([str(size)] if size != 1 or not monomial else []) + [str(atom) for atom in monomial])
            text += f" {sign} {body}" if text else (f"-{body}" if sign == "-" else body)
        return text

    __repr__ = __str__

    def __lt__(self, other: Dim) -> bool:
        return str(self) < str(other)


def _canonical(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(monomial, coefficient) for monomial, coefficient in terms.items() if coefficient]
    if len(kept) < 2:
        return Dim(tuple(kept))
    return Dim(tuple(sorted(kept, key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))))


@lru_cache(maxsize=1 << 14)
def _add(a: Dim, b: Dim) -> Dim:
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _canonical(terms)


@lru_cache(maxsize=1 << 14)
def _multiply(a: Dim, b: Dim) -> Dim:
    terms: dict[Monomial, int] = {}
    for left, left_coefficient in a.terms:
        for right, right_coefficient in b.terms:
            monomial = tuple(sorted(left + right, key=str))
            terms[monomial] = terms.get(monomial, 0) + left_coefficient * right_coefficient
    return _canonical(terms)


def atom_dim(kind: str, a: Dim, b: Dim) -> Dim:
    """One atom as a dim, unsimplified."""
    return Dim((((Atom(kind, "", (a, b)),), 1),))


@lru_cache(maxsize=1 << 14)
def _divide(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value is not None:
        return Dim.constant(_floordiv(a.value, b.value))
    if a == b:
        return Dim.constant(1)  # a size of zero is guarded where it matters: 0 // 0 is never indexed
    exact = _exact_quotient(a, b)
    if exact is not None:
        return exact
    quotient, remainder = _split_multiples(a, b)
    if not quotient.terms:
        return atom_dim("floordiv", a, b)
    return quotient + _divide(remainder, b)


@lru_cache(maxsize=1 << 14)
def _remainder(a: Dim, b: Dim) -> Dim:
    if a.value is not None and b.value is not None:
        return Dim.constant(_mod(a.value, b.value))
    if a == b or _exact_quotient(a, b) is not None:
        return Dim.constant(0)
    quotient, remainder = _split_multiples(a, b)
    return _remainder(remainder, b) if quotient.terms else atom_dim("mod", a, b)


def _exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """`a / b` when `b` is one monomial that divides every term of `a`."""
    if len(b.terms) != 1:
        return None
    divisor, scale = b.terms[0]
    quotient: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms:
        left = list(monomial)
        for atom in divisor:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % scale:
            return None
        quotient[tuple(left)] = coefficient // scale
    return _canonical(quotient)


def _split_multiples(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """`a == quotient * b + remainder`, with every term that `b` divides moved into the quotient."""
    quotient, remainder = Dim.constant(0), Dim.constant(0)
    for term in a.terms:
        single = Dim((term,))
        part = _exact_quotient(single, b)
        if part is not None:
            quotient = quotient + part
        else:
            remainder = remainder + single
    return quotient, remainder


def maximum(*dims: DimLike) -> Dim:
    """The largest of several dims."""
    return reduce(lambda a, b: _min_or_max("max", a, b), (Dim.of(d) for d in dims))


def minimum(*dims: DimLike) -> Dim:
    """The smallest of several dims."""
    return reduce(lambda a, b: _min_or_max("min", a, b), (Dim.of(d) for d in dims))


def _min_or_max(kind: str, a: Dim, b: Dim) -> Dim:
    difference = (a - b).value
    if difference is not None:
        return a if (difference >= 0) == (kind == "max") else b
    return atom_dim(kind, *sorted((a, b), key=str))


def product(dims: Iterable[DimLike]) -> Dim:
    """The product of several dims; 1 for none."""
    return _multiply_all(tuple([dim if isinstance(dim, Dim) else Dim.of(dim) for dim in dims]))


def next_power_of_two(size: int) -> int:
    """The smallest power of two that is no less than `size`; 1 for none."""
    return 1 << max(0, size - 1).bit_length()


@lru_cache(maxsize=1 << 12)
def _multiply_all(dims: tuple[Dim, ...]) -> Dim:
    return reduce(_multiply, dims, Dim.constant(1))


def _substitute_atom(atom: Atom, env: Mapping[str, DimLike]) -> Dim:
    if atom.kind == "symbol":
        return Dim.of(env[atom.name]) if atom.name in env else Dim.symbol(atom.name)
    first, second = (arg.substitute(env) for arg in atom.args)
    if atom.kind == "floordiv":
        return first // second
    if atom.kind == "mod":
        return first % second
    return _min_or_max(atom.kind, first, second)


_TOKEN = re.compile(r"\s*(?:[0-9]+|[A-Za-z_][A-Za-z0-9_.]*|//|[-+*%(),])")
_WORDS = {"floordiv": "//", "mod": "%"}
_NESTING, _MOST_NESTED = ("//", "%", "ceildiv", "max", "min"), 100
"""What nests in a dim however it is written, and how often: dims are printed, hashed and evaluated recursively."""
_SIGNED = ("", "+", "-", "*", "(", ",", *_NESTING)
"""Tokens behind which a minus is a sign, as in `a // -b`, and no term ends."""
_LONGEST_NUMBER, _MOST_TERMS, _MOST_FACTORS = 19, 1000, 64
"""Digits of the largest size, and terms and factors of a product: a product of sums has exponentially many."""


@lru_cache(maxsize=1 << 12)
def parse_dim(text: str, *, refuses_zero: bool = False) -> Dim:
    """A dim from text: names, integers, `+ - * // %`, `floordiv`, `mod`, `ceildiv`, `max(a, b)`, `min(a, b)`.

    Raises ValueError where the text is not such an expression, and, if asked to, where it divides by 0: at run time a
    dim divided by a size of 0 is 0, as compiled code has it, but nobody writes that.
    """
    tokens: list[str] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise ValueError(f"`{text}` is not a dimension: unexpected `{stripped[at:].strip()[:1]}`")
        word = match.group().strip()
        tokens.append(_WORDS.get(word, word))
        at = match.end()
    if _nesting(tokens, _NESTING, 0) > _MOST_NESTED or _nesting(tokens, (), 1) > _MOST_NESTED:
        raise ValueError(f"a dimension divides, compares and has parentheses {_MOST_NESTED} times at most")
    parser = _Parser(text, tokens, refuses_zero)
    result = parser.sum()
    if parser.at != len(tokens):
        raise ValueError(f"`{text}` is not a dimension: unexpected `{tokens[parser.at]}`")
    if any(abs(coefficient) >= 1 << 63 for _, coefficient in result.terms):
        raise ValueError("a dimension has a factor that does not fit into 63 bits")
    return result


def _nesting(tokens: Sequence[str], operators: Sequence[str], each: int) -> int:
    """How deep operators nest at most, and parentheses by `each`; terms and arguments stand beside each other."""
    levels = [(0, 0)]
    for before, token in zip(("", *tokens), tokens, strict=False):
        deepest, here = levels[-1]
        if token in operators:
            levels[-1] = (deepest, here + 1)
        elif token in ("+", "-", ",") and before not in _SIGNED:
            levels[-1] = (max(deepest, here), 0)
        elif token == "(":
            levels.append((0, 0))
        elif token == ")" and len(levels) > 1:
            levels.pop()
            levels[-1] = (levels[-1][0], levels[-1][1] + max(deepest, here) + each)
    # Those that nobody closes nest as those that are.
    return sum(max(level) + each for level in levels) - each


def _degree(dim: Dim) -> int:
    return max((len(monomial) for monomial, _ in dim.terms), default=0)


class _Parser:
    """Recursive descent over the tokens of one dimension."""

    def __init__(self, text: str, tokens: list[str], refuses_zero: bool) -> None:
        self.text, self.tokens, self.at, self.refuses_zero = text, tokens, 0, refuses_zero

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        word = self.peek()
        if not word or (expected and word != expected):
            raise ValueError(f"`{self.text}` is not a dimension: expected {expected or 'a value'}, got {word or 'end'}")
        self.at += 1
        return word

    def sum(self) -> Dim:
        total = self.product()
        while self.peek() in ("+", "-"):
            total = total + self.product() if self.take() == "+" else total - self.product()
        return total

    def product(self) -> Dim:
        total = self.factor()
        while self.peek() in ("*", "//", "%", "ceildiv"):
            operator, right = self.take(), self.factor()
            if len(total.terms) * len(right.terms) > _MOST_TERMS or _degree(total) + _degree(right) > _MOST_FACTORS:
                raise ValueError(f"a product has {_MOST_TERMS} terms of {_MOST_FACTORS} factors at most")
            if self.refuses_zero and operator != "*" and right.value == 0:
                raise ValueError(f"`{self.text}` divides by 0")
            if operator == "*":
                total = total * right
            elif operator == "ceildiv":
                total = total.ceildiv(right)
            else:
                total = total // right if operator == "//" else total % right
        return total

    def factor(self) -> Dim:
        word, negative = self.take(), False
        while word == "-":
            word, negative = self.take(), not negative
        found = self.atom(word)
        return -found if negative else found

    def atom(self, word: str) -> Dim:
        if word == "(":
            inner = self.sum()
            self.take(")")
            return inner
        if word in ("max", "min") and self.peek() == "(":
            self.take("(")
            first = self.sum()
            self.take(",")
            second = self.sum()
            self.take(")")
            return _min_or_max(word, first, second)
        if word.isdigit():
            if len(word) > _LONGEST_NUMBER or int(word) >= 1 << 63:
                raise ValueError(f"`{word[:_LONGEST_NUMBER]}` is no size: it does not fit into 63 bits")
            return Dim.constant(int(word))
        if word[0].isalpha() or word[0] == "_":
            return Dim.symbol(word)
        raise ValueError(f"`{self.text}` is not a dimension: unexpected `{word}`")
