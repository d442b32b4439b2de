"""Texts of IR made wrong: seeds from lit tests and documents, and mutations of their bytes, tokens and lines."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tessera.cli import opt
from tests.lit.lit_runner import run_lines

ROOT = Path(__file__).parents[2]
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+|[A-Za-z_%@!^#][\w.$]*|->|\s+|.', re.DOTALL)
NUMBER = re.compile(r"-?\d+(\.\d+(e[-+]?\d+)?)?")
_BLOCK = re.compile(r"```mlir\n(.*?)```", re.DOTALL)
_PIPELINE = re.compile(r"-p\s+('[^']*'|\S+)")

NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "-128", "255", "4096", "65537", "2147483648", "-9223372036854775809"),
    *("18446744073709551616", "1" + "0" * 30, "9" * 5000, "0x7ff0000000000001", "0x", "1.0e999", "-0.0", "1e", "nan"),
)
"""What takes the place of a number: edges of every width, more digits than Python prints, and no numbers."""
VALUES = (
    *("true", "none", '"text"', '""', "[]", "[1, 2]", "[[0]]", "{}", "{a = 1}", "inf", "-inf", "nan", "f32", "bool"),
    *("dim<B>", "dim<B floordiv 0>", "tensor<[], f32>", "array<f32, [2], [1.0, 2.0]>", "array<i8, [3], [1]>", "@f"),
    *("array<f32, [-1], [1.0]>", "array<f32, [99999999], 0x00>", '"\\FF"', '"\\u1"', "[none, true, 0]", "0x00", "-"),
    *(
        "dim<>",
        "dim<0 - N>",
        "array<i4, [1], [300]>",
        "array<bool, [1], [nan]>",
        "[-1]",
        "[0, 0, 0, 0]",
        "i4",
        "f8e4m3",
    ),
)
"""What takes the place of an attribute: every kind of value, right and wrong in itself."""
GARBAGE = (
    "\0",
    "\x7f",
    "\ufeff",
    "\u2028",
    "\U0001f600",
    "٣",
    "²",
    "é",
    '"',
    "'",
    "\\",
    "`",
    "\r",
    "\v",
    "\f",
    "{-#",
    "#-}",
)
_DTYPES = ("f64", "f32", "bf16", "f16", "f8e4m3", "i64", "i32", "i8", "i4", "u8", "bool", "nvfp4", "index", "u64")


@dataclass(frozen=True)
class Seed:
    """A text, the file it is from, and the pipelines that its RUN lines put it through."""

    name: str
    text: str
    pipelines: tuple[str, ...]


@cache
def load_seeds() -> tuple[Seed, ...]:
    """Every module of the lit tests, and every text of IR in the documents."""
    found: list[Seed] = []
    for file in sorted((ROOT / "tests" / "lit").rglob("*.mlir")):
        text = file.read_text()
        pipelines = tuple(p.strip("'") for line in run_lines(text) for p in _PIPELINE.findall(line))
        parts = [part for part in text.split("// -----\n") if part.strip()]
        found += [Seed(f"{file.name}:{number}", _uncomment(part), pipelines) for number, part in enumerate(parts)]
    found += [
        Seed(f"{seed.name} generic", text, seed.pipelines) for seed in found[::3] if (text := _generic(seed.text))
    ]
    for file in sorted((ROOT / "docs").rglob("*.md")):
        texts = _BLOCK.findall(file.read_text())
        found += [Seed(f"{file.name}:{number}", text, ()) for number, text in enumerate(texts)]
    return tuple(seed for seed in found if seed.text.strip())


def _generic(text: str) -> str:
    """The generic form of a text, which xDSL's own parser reads; nothing where it is wrong on purpose."""
    output = io.StringIO()
    return output.getvalue() if opt.run(["--print-generic"], io.StringIO(text), output, io.StringIO()) == 0 else ""


def _uncomment(text: str) -> str:
    """A text without the lines that only a test reads, so that mutations meet code."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//")).strip() + "\n"


Mutation = Callable[[str, random.Random], str]


def mutate(text: str, rng: random.Random) -> tuple[str, list[str]]:
    """A text changed one to four times, and the names of the changes."""
    names: list[str] = []
    # Half of the texts keep their syntax, so that they get past the parser.
    drawn = MUTATIONS if rng.random() < 0.4 else MEANINGS
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        mutation = rng.choice(drawn)
        names.append(mutation.__name__)
        text = mutation(text, rng)
    return text, names


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def _replace_one(text: str, rng: random.Random, matches: Callable[[str], bool], new: Callable[[str], str]) -> str:
    tokens = _tokens(text)
    places = [index for index, token in enumerate(tokens) if matches(token)]
    if places:
        place = rng.choice(places)
        tokens[place] = new(tokens[place])
    return "".join(tokens)


def flip_byte(text: str, rng: random.Random) -> str:
    """One byte with one bit flipped; what is then no UTF-8 stays in as a lone surrogate."""
    data = bytearray(text.encode("utf-8", "surrogateescape"))
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode("utf-8", "surrogateescape")


def delete_span(text: str, rng: random.Random) -> str:
    start = rng.randrange(len(text) + 1)
    return text[:start] + text[start + rng.choice((1, 1, 2, 5, 20, 100)) :]


def truncate(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def duplicate_span(text: str, rng: random.Random) -> str:
    start = rng.randrange(len(text) + 1)
    end = start + rng.choice((1, 3, 10, 60, 300))
    return text[:end] + text[start:end] + text[end:]


def insert_garbage(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(GARBAGE) * rng.choice((1, 1, 1, 2, 50)) + text[at:]


def leave_a_string_open(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + '"' + "a" * rng.choice((10, 40, 500)) + rng.choice(("\\", "\n", "\v", "")) + text[at:]


def swap_tokens(text: str, rng: random.Random) -> str:
    tokens = _tokens(text)
    places = [index for index, token in enumerate(tokens) if not token.isspace()]
    if len(places) > 1:
        first, second = rng.sample(places, 2)
        tokens[first], tokens[second] = tokens[second], tokens[first]
    return "".join(tokens)


def delete_token(text: str, rng: random.Random) -> str:
    return _replace_one(text, rng, lambda token: not token.isspace(), lambda _: "")


def copy_token(text: str, rng: random.Random) -> str:
    tokens = [token for token in _tokens(text) if not token.isspace()] or [""]
    return _replace_one(text, rng, lambda token: not token.isspace(), lambda _: rng.choice(tokens))


def change_number(text: str, rng: random.Random) -> str:
    return _replace_one(text, rng, lambda token: NUMBER.fullmatch(token) is not None, lambda _: rng.choice(NUMBERS))


def change_size(text: str, rng: random.Random) -> str:
    """One number made another small one, or an edge."""
    sizes = ("0", "1", "2", "3", "8", "16", "17", "100", "1024", "2147483648", "4611686018427387904", "-1")
    return _replace_one(text, rng, lambda token: NUMBER.fullmatch(token) is not None, lambda _: rng.choice(sizes))


def replace_everywhere(text: str, rng: random.Random) -> str:
    """A dtype, a dim or a number made another throughout, so that types still agree."""
    tokens = _tokens(text)
    names = sorted({token for token in tokens if re.fullmatch(r"\d+|[A-Z]\w*|s\d+", token) or token in _DTYPES})
    if not names:
        return text
    old = rng.choice(names)
    others = _DTYPES if old in _DTYPES else (*names, "0", "1", "2", "5", "16", "64", "130", "4096", "1073741824", "Q")
    new = rng.choice(others)
    return "".join(new if token == old else token for token in tokens)


def copy_value(text: str, rng: random.Random) -> str:
    """The value of one attribute given to another of the text."""
    found = list(re.finditer(r"= (\[[^\[\]{}]*\]|[^\s,{}\[\]]+)(?=[,}])", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start(1)] + rng.choice(found).group(1) + text[match.end(1) :]


def tweak_value(text: str, rng: random.Random) -> str:
    """The value of one attribute made another of its kind."""
    found = list(re.finditer(r"= (\[[^\[\]{}]*\]|[^\s,{}\[\]]+)(?=[,}])", text))
    if not found:
        return text
    match = rng.choice(found)
    old = match.group(1)
    new = rng.choice([other.group(1) for other in found if _kind(other.group(1)) == _kind(old)])
    if old.startswith("["):
        items = [item.strip() for item in old[1:-1].split(",") if item.strip()]
        change = rng.choice(("drop", "double", "change", "reverse"))
        at = rng.randrange(len(items)) if items else 0
        middle = {"drop": [], "double": items[at : at + 1] * 2, "change": [rng.choice(("0", "1", "-1", "7", "N"))]}
        items = items[::-1] if change == "reverse" else [*items[:at], *middle[change], *items[at + 1 :]]
        new = f"[{', '.join(items)}]"
    elif NUMBER.fullmatch(old):
        new = rng.choice(("0", "1", "2", "3", "5", "31", "64", "1000", "-1", "-2"))
    elif old in ("true", "false"):
        new = {"true": "false", "false": "true"}[old]
    return text[: match.start(1)] + new + text[match.end(1) :]


def _kind(value: str) -> str:
    return "number" if NUMBER.fullmatch(value) else value[0] if value[0] in '["@{' else "word"


def change_value(text: str, rng: random.Random) -> str:
    """An attribute given a value of another kind."""
    found = list(re.finditer(r"= (?=[^\s,}]+[,}])([^\s,}]+)|= (\[[^\]]*\])", text))
    if not found:
        return text
    match = rng.choice(found)
    return f"{text[: match.start()]}= {rng.choice(VALUES)}{text[match.end() :]}"


def rename_attribute(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"[{,] ?([\w.]+) =", text))
    if not found:
        return text
    match, name = rng.choice(found), rng.choice(found).group(1)
    return text[: match.start(1)] + name + text[match.end(1) :]


def drop_attribute(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"[\w.]+ = [^,{}]+, ?", text)) + list(re.finditer(r" \{[^{}]*\}", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + text[match.end() :]


def change_dtype(text: str, rng: random.Random) -> str:
    return _replace_one(text, rng, lambda token: token in _DTYPES, lambda _: rng.choice(_DTYPES))


def change_type(text: str, rng: random.Random) -> str:
    """One type replaced by another of the text, or by one of no dialect."""
    found = list(re.finditer(r"![\w.]+(<[^<>]*>)?", text))
    if not found:
        return text
    match = rng.choice(found)
    extra = ("i32", "!tgraph.tensor<[], f32>", "index", "!ttile.tile<[0], f32>", "tensor<2xf32>", "!unknown.type", "()")
    return text[: match.start()] + rng.choice((rng.choice(found).group(), *extra)) + text[match.end() :]


def change_op(text: str, rng: random.Random) -> str:
    """An op made another of the texts: its operands, attributes and regions stay."""
    names = _op_names()
    return _replace_one(text, rng, lambda token: token in names, lambda _: rng.choice(names))


@cache
def _op_names() -> tuple[str, ...]:
    names = {name for seed in load_seeds() for name in re.findall(r"\bt(?:graph|sched|tile|target)\.\w+", seed.text)}
    return tuple(sorted(names | {"builtin.module", "builtin.unrealized_conversion_cast"}))


def drop_operand(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"%[\w$.-]+(?:, )?", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + text[match.end() :]


def rename_value(text: str, rng: random.Random) -> str:
    return _replace_one(
        text, rng, lambda token: token.startswith("%"), lambda _: rng.choice(re.findall(r"%[\w$.]+", text) or ["%q"])
    )


def drop_results(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"(%[\w$.]+(:\d+)?(, )?)+ = ", text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + rng.choice(("", "%n:3 = ", "%n:0 = ", "%n, %m = ")) + text[match.end() :]


def swap_lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return "\n".join(lines)


def delete_line(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def duplicate_line(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    return "\n".join([*lines[:at], *[lines[at]] * rng.choice((2, 2, 40)), *lines[at + 1 :]])


def empty_region(text: str, rng: random.Random) -> str:
    """What stands between one pair of braces taken out, or given two blocks."""
    opens = [match.start() for match in re.finditer(r"\{", text)]
    if not opens:
        return text
    start = rng.choice(opens)
    depth, end = 0, start
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            break
    return text[: start + 1] + rng.choice(("", "", "\n^a:\n^b:\n", " ")) + text[end:]


def nest(text: str, rng: random.Random) -> str:
    """One token inside many brackets, or the whole text inside many modules."""
    count = rng.choice((3, 120, 1000, 5000))
    open_, close = rng.choice(
        (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"), ("{a = ", "}"), ("(", ")"), ("({", "})"))
    )
    if rng.random() < 0.3:
        return "builtin.module {" * count + text + "}" * count
    return _replace_one(
        text, rng, lambda token: not token.isspace(), lambda token: open_ * count + token + close * count
    )


def stretch(text: str, rng: random.Random) -> str:
    """One list, dim or name many times longer."""
    count = rng.choice((30, 400, 3000))
    return _replace_one(
        text,
        rng,
        lambda token: token[0].isalnum() or token[0] == "%",
        lambda token: rng.choice((", ", " + ", " * ", "")).join([token] * count),
    )


def mix_texts(text: str, rng: random.Random) -> str:
    """Lines of another seed put in."""
    other = rng.choice(load_seeds()).text.split("\n")
    lines = text.split("\n")
    at, start = rng.randrange(len(lines) + 1), rng.randrange(len(other))
    return "\n".join([*lines[:at], *other[start : start + rng.choice((1, 1, 3, 10))], *lines[at:]])


MUTATIONS: tuple[Mutation, ...] = (
    *(flip_byte, delete_span, truncate, duplicate_span, insert_garbage, leave_a_string_open, swap_tokens, delete_token),
    *(copy_token, change_dtype, change_type, change_op, drop_operand, rename_value, drop_results, swap_lines, nest),
    *(change_number, change_number, change_number, change_value, change_value, change_value, rename_attribute),
    *(drop_attribute, delete_line, duplicate_line, empty_region, stretch, mix_texts),
)
"""All that is drawn from."""
MEANINGS: tuple[Mutation, ...] = (
    *(change_dtype, change_type, change_op, rename_value, swap_lines, delete_line, duplicate_line, mix_texts),
    *(change_size, change_size, change_size, change_value, drop_attribute, drop_attribute, copy_value, copy_value),
    *(replace_everywhere,) * 6,
    *(tweak_value,) * 6,
    *(change_op, rename_value),
)
"""Those that mostly leave a text that parses."""
