"""Entries of the tuning database as JSON: the schema of the format, its checker, and both directions.

The schema is JSON Schema, so that other tools can check a file by it; the checker here knows the part of JSON Schema
that it uses. What is read is data: nothing of it is executed, imported, or opened, and its size is bounded before it
is parsed. A file may come from anywhere, and so may a row of a database that somebody else wrote.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import TuningFileError
from tessera.tuner.records import SOURCES, Entry, Plan, Signature, Trial

FORMAT, VERSION = "tessera-tuning", 1
MOST_BYTES = 64 << 20
"""Of a file: some hundred thousand trials."""
MOST_ENTRIES, MOST_TRIALS, MOST_SAMPLES, MOST_CHOICES = 100_000, 4096, 100_000, 4096
_LONGEST_TEXT, _LONGEST_REASON, _LONGEST_SHAPES = 1024, 4096, 1 << 16
_DEEPEST_VALUE, _MOST_ITEMS = 3, 64
_LARGEST = 2**53
"""Integers beyond it are not the same number in every language."""
_LONGEST_TIME = 1e15
"""Eleven days in nanoseconds: no run takes that long."""
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999."""

_UNPRINTABLE = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, signs that turn the order of others, and halves of characters: what is read may be printed."""
_PLAIN = f"^[^{_UNPRINTABLE}]*$"

Schema = Mapping[str, Any]


def _object(needed: Schema, others: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**needed, **(others or {})},
        "required": sorted(needed),
        "additionalProperties": False,
    }


def _text(longest: int = _LONGEST_TEXT, shortest: int = 0) -> Schema:
    return {"type": "string", "minLength": shortest, "maxLength": longest, "pattern": _PLAIN}


def _list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


def _value(depth: int = _DEEPEST_VALUE) -> Schema:
    """A value of a knob: a scalar, or a list of values. A keyword concerns values of its own type alone."""
    scalar: dict[str, Any] = {"minimum": -_LARGEST, "maximum": _LARGEST, "maxLength": _LONGEST_TEXT, "pattern": _PLAIN}
    types = ["boolean", "null", "number", "string"]
    if depth == 0:
        return {"type": types, **scalar}
    return {"type": [*types, "array"], **scalar, "items": _value(depth - 1), "maxItems": _MOST_ITEMS}


_TIME: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST_TIME}
_PLAN: Schema = {
    "type": "object",
    "additionalProperties": _value(),
    "propertyNames": _text(shortest=1),
    "maxProperties": MOST_CHOICES,
}
_TRIAL = _object(
    {"plan": _PLAN},
    {
        "samples": _list(_TIME, MOST_SAMPLES),
        "baseline": _list(_TIME, MOST_SAMPLES),
        "predicted": {"type": ["number", "null"], "minimum": 0, "maximum": _LONGEST_TIME},
        "bits": _text(),
        "reason": _text(_LONGEST_REASON),
        "memory": {"type": ["integer", "null"], "minimum": 0, "maximum": _LARGEST},
        "readings": {
            "type": "object",
            "additionalProperties": {"type": ["number", "null"], "minimum": 0, "maximum": _LONGEST_TIME},
            "propertyNames": _text(shortest=1),
            "maxProperties": _MOST_ITEMS,
        },
    },
)
_SIGNATURE_NEEDED: Schema = {"op_kind": _text(shortest=1), "shape_sig": _text(_LONGEST_SHAPES), "dtype": _text()}
_SIGNATURE_OTHERS: Schema = {name: _text() for name in ("mesh_sig", "arch", "policy_hash", "runtime")}
SIGNATURE_SCHEMA: Schema = _object(_SIGNATURE_NEEDED, _SIGNATURE_OTHERS)
PLAN_SCHEMA, TRIAL_SCHEMA = _PLAN, _TRIAL
ENTRY_SCHEMA: Schema = _object(
    {**_SIGNATURE_NEEDED, "plan": _PLAN},
    {
        **_SIGNATURE_OTHERS,
        "source": {"type": "string", "enum": list(SOURCES)},
        "stored": {"type": "number", "minimum": 0, "maximum": _LAST_SECOND},
        "trials": _list(_TRIAL, MOST_TRIALS),
    },
)
_HEAD: Schema = {"format": {"const": FORMAT}, "version": {"const": VERSION}}
FILE_SCHEMA: Schema = _object({**_HEAD, "entries": _list(ENTRY_SCHEMA, MOST_ENTRIES)})
_OUTER_SCHEMA: Schema = _object({**_HEAD, "entries": {"type": "array", "maxItems": MOST_ENTRIES}})
"""The file without what is in its entries, which are checked one by one, so that an error can name the entry."""


class MismatchError(ValueError):
    """A value that a schema does not allow: where in it, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"`{path}` {reason}" if path else reason)
        self.path, self.reason = path, reason


def check_schema(value: Any, schema: Schema, path: str = "") -> None:
    """Raises MismatchError where `value`, as `json` reads it, is not what the schema describes."""
    if "const" in schema:
        if type(value) is not type(schema["const"]) or value != schema["const"]:
            raise MismatchError(path, f"must be {json.dumps(schema['const'])}, got {_show(value)}")
        return
    wanted = schema["type"]
    types = [wanted] if isinstance(wanted, str) else list(wanted)
    if not any(_is_of_type(value, name) for name in types):
        raise MismatchError(path, f"must be {' or '.join(types)}, got {_show(value)}")
    if isinstance(value, str):
        _check_text(value, schema, path)
    elif isinstance(value, list):
        _check_list(cast("list[Any]", value), schema, path)
    elif isinstance(value, dict):
        _check_object(cast("dict[str, Any]", value), schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, path)


def _is_of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)
    }  # fmt: skip
    return name in kinds and isinstance(value, kinds[name])


def _check_text(value: str, schema: Schema, path: str) -> None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", _LONGEST_TEXT):
        least, most = schema.get("minLength", 0), schema.get("maxLength", _LONGEST_TEXT)
        raise MismatchError(path, f"must have {least} to {most} characters, got {len(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise MismatchError(path, f"must be one of {', '.join(schema['enum'])}, got {_show(value)}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):  # `$` alone allows a line feed at the end
        raise MismatchError(path, f"must not have control characters, got {_show(value)}")


def _check_number(value: float, schema: Schema, path: str) -> None:
    if "minimum" in schema and value < schema["minimum"]:
        raise MismatchError(path, f"must be at least {schema['minimum']}, got {_show(value)}")
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        raise MismatchError(path, f"must be more than {schema['exclusiveMinimum']}, got {_show(value)}")
    if "maximum" in schema and value > schema["maximum"]:
        raise MismatchError(path, f"must be at most {schema['maximum']:g}, got {_show(value)}")


def _check_list(value: list[Any], schema: Schema, path: str) -> None:
    if len(value) > schema["maxItems"]:
        raise MismatchError(path, f"must have at most {schema['maxItems']} items, got {len(value)}")
    if "items" in schema:
        for index, item in enumerate(value):
            check_schema(item, schema["items"], f"{path}[{index}]")


def _check_object(value: dict[str, Any], schema: Schema, path: str) -> None:
    most = schema.get("maxProperties", len(value))
    if len(value) > most:
        raise MismatchError(path, f"must have at most {most} fields, got {len(value)}")
    known: Schema = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise MismatchError(_join(path, name), "is missing")
    others = schema["additionalProperties"]
    for name, item in value.items():
        if name not in known and others is False:
            raise MismatchError(_join(path, _show_name(name)), f"is no field of it; it has {', '.join(known)}")
        if "propertyNames" in schema:
            check_schema(name, schema["propertyNames"], _join(path, _show_name(name)))
        check_schema(item, known.get(name, others), _join(path, name))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _show_name(name: str) -> str:
    """A name that may be anything, with what cannot be printed as JSON writes it."""
    return _short(name if re.fullmatch(_PLAIN, name) else json.dumps(name)[1:-1])


def _show(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"an {'object' if isinstance(value, dict) else 'array'}"
    return _short(json.dumps(value))


def parse_json(data: bytes | str, most: int = MOST_BYTES) -> Any:
    """The value of a JSON text. Raises MismatchError for one that is too long, too deep or not JSON.

    Stricter than `json`: numbers are finite, and no object has a name twice.
    """
    if len(data) > most:
        raise MismatchError("", f"has {len(data)} bytes, and at most {most} are read")
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except MismatchError:
        raise
    except RecursionError:
        raise MismatchError("", "is not JSON of this format: it is nested too deep") from None
    except ValueError as error:
        raise MismatchError("", f"is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise MismatchError("", f"has the name `{_show_name(double)}` twice in one object")
    return made


def _refuse_constant(name: str) -> Any:
    raise MismatchError("", f"has {name}, which is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MismatchError("", f"has the number {_short(text)}, which is too large")
    return value


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Choices by name."""
    return plan.overrides


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """A trial, without the fields that are empty."""
    fields: dict[str, Any] = {
        "samples": list(trial.samples),
        "baseline": list(trial.baseline),
        "predicted": trial.predicted,
        "bits": trial.bits,
        "reason": re.sub(f"[{_UNPRINTABLE}]", " ", trial.reason)[:_LONGEST_REASON],
        "memory": trial.memory,
        "readings": dict(trial.readings),
    }
    kept = {name: value for name, value in fields.items() if value not in ([], None, "", {})}
    return {"plan": plan_to_json(trial.plan), **kept}


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """All parts by name."""
    return dict(zip(_PARTS, signature.parts, strict=True))


_PARTS = ("op_kind", "shape_sig", "dtype", "mesh_sig", "arch", "policy_hash", "runtime")


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """An entry with all of its fields, as a file has it."""
    return {
        **signature_to_json(entry.signature),
        "source": entry.source,
        "stored": entry.stored,
        "plan": plan_to_json(entry.plan),
        "trials": [trial_to_json(trial) for trial in entry.trials],
    }


def signature_from_json(value: Any) -> Signature:
    """The signature; raises MismatchError."""
    check_schema(value, SIGNATURE_SCHEMA)
    return Signature(**value)


def plan_from_json(value: Any) -> Plan:
    """The plan; raises MismatchError."""
    check_schema(value, PLAN_SCHEMA)
    return Plan.of(value)


def trial_from_json(value: Any, path: str = "") -> Trial:
    """The trial; raises MismatchError."""
    check_schema(value, TRIAL_SCHEMA, path)
    samples, baseline = tuple(map(float, value.get("samples", ()))), tuple(map(float, value.get("baseline", ())))
    if baseline and len(baseline) != len(samples):
        raise MismatchError(
            _join(path, "baseline"), f"must have {len(samples)} items as `samples`, got {len(baseline)}"
        )
    predicted = value.get("predicted")
    return Trial(
        plan=Plan.of(value["plan"]),
        samples=samples,
        baseline=baseline,
        predicted=None if predicted is None else float(predicted),
        bits=value.get("bits", ""),
        reason=value.get("reason", ""),
        memory=value.get("memory"),
        readings=tuple(
            (name, None if x is None else float(x)) for name, x in sorted(value.get("readings", {}).items())
        ),
    )


def entry_from_json(value: Any) -> Entry:
    """The entry; raises MismatchError."""
    check_schema(value, ENTRY_SCHEMA)
    trials = (trial_from_json(one, f"trials[{index}]") for index, one in enumerate(value.get("trials", ())))
    return Entry(
        signature=Signature(**{name: value.get(name, "") for name in _PARTS}),
        plan=Plan.of(value["plan"]),
        trials=tuple(trials),
        source=value.get("source", SOURCES[0]),
        stored=float(value.get("stored", 0.0)),
    )


def entries_to_text(entries: Sequence[Entry]) -> str:
    """A whole file: an entry a line, so that versions of a file can be compared line by line."""
    lines = ",\n".join(json.dumps(entry_to_json(entry), sort_keys=True, allow_nan=False) for entry in entries)
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "entries": [\n{lines}\n]}}\n'


def entries_from_text(data: bytes | str, name: str) -> list[Entry]:
    """The entries of a file called `name`.

    Raises TuningFileError (T0801) that names the file, the entry and the field.
    """
    try:
        value = parse_json(data)
        check_schema(value, _OUTER_SCHEMA)
    except MismatchError as error:
        raise _file_error(f"{name}: {_sentence(error)}", error) from None
    found: dict[Signature, int] = {}
    entries: list[Entry] = []
    for index, one in enumerate(value["entries"]):
        try:
            entry = entry_from_json(one)
            if (first := found.setdefault(entry.signature, index)) != index:
                raise MismatchError("", f"has the signature of entry {first}")
        except MismatchError as error:
            raise _file_error(f"{name}, entry {index}{_describe(one)}: {_sentence(error)}", error) from None
        entries.append(entry)
    return entries


def _sentence(error: MismatchError) -> str:
    return str(error) if error.path else f"it {error.reason}"


def _file_error(message: str, error: MismatchError) -> TuningFileError:
    is_head = error.path in ("format", "version")
    written = f"this version of Tessera reads `{FORMAT}` version {VERSION}"
    return TuningFileError(
        message,
        span=None,
        fix=f"{written}; export the plans again with the version that reads them here"
        if is_head
        else "export the plans again: a file that was edited is taken as a whole or not at all",
    )


def _describe(value: Any) -> str:
    """The parts of an entry's signature that can be shown, in parentheses."""
    if not isinstance(value, dict):
        return ""
    fields = cast("dict[str, Any]", value)
    parts = [fields.get(name) for name in _PARTS[:5]]
    shown = " ".join(_show(part).strip('"') for part in parts if isinstance(part, str) and part)
    return f" ({shown})" if shown else ""
