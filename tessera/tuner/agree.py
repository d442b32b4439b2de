"""One plan per mesh: rank 0 decides, and all other ranks adopt what it decided.

Ranks that measured by themselves would choose differently, since no two of them measure the same times; then one would
wait in a collective that another does not have. So rank 0 alone looks plans up or searches, and sends them. All ranks
must be about the same programs: what another rank sees as another signature is an error that shows both.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tessera.diagnostics.codes import TuningRanksError
from tessera.runtime.ranks.world import Communicator, Exchange
from tessera.tuner.entry_format import (
    PLAN_SCHEMA,
    SIGNATURE_SCHEMA,
    MismatchError,
    check_schema,
    parse_json,
    plan_to_json,
    signature_to_json,
)
from tessera.tuner.records import Plan, Signature
from tessera.types.settings import rank_seconds

FORMAT, VERSION = "tessera-tuning-plans", 1
_MOST_GROUPS = 100_000
_SCHEMA = {
    "type": "object",
    "properties": {
        "format": {"const": FORMAT},
        "version": {"const": VERSION},
        "signatures": {"type": "array", "items": SIGNATURE_SCHEMA, "maxItems": _MOST_GROUPS},
        "plans": {"type": "array", "items": PLAN_SCHEMA, "maxItems": _MOST_GROUPS},
        "failure": {"type": "string", "maxLength": 4096},
    },
    "required": ["failure", "format", "plans", "signatures", "version"],
    "additionalProperties": False,
}
_WAIT = b"still choosing"
"""What rank 0 sends while it measures: others would else take it to be gone."""
Broadcast = Callable[[bytes], bytes]
"""Gives every rank the bytes that rank 0 called it with; a collective, which all ranks call."""


def agree(
    signatures: Sequence[Signature], decide: Callable[[], Sequence[Plan]], rank: int, broadcast: Broadcast
) -> list[Plan]:
    """A plan for each signature, the same on all ranks; every rank calls it with the same signatures.

    `decide` is called on rank 0 alone, and gives a plan for each signature. Where it raises, that error is raised on
    rank 0, and all others raise TuningRanksError (T0802) with its text, so that none waits for a rank that is gone. A
    rank whose signatures are not those of rank 0 raises TuningRanksError with both. Deciding may take long: meanwhile
    rank 0 lets the others know that it is there.
    """
    if rank == 0:
        return _decide(signatures, decide, broadcast)
    while (data := broadcast(b"")) == _WAIT:
        pass
    message = _read(data, rank)
    if message["failure"]:
        raise TuningRanksError(
            f"rank 0 could not choose a plan: {message['failure']}",
            span=None,
            notes=(f"this is rank {rank}, which adopts what rank 0 chooses",),
            fix="fix what failed on rank 0",
        )
    theirs = [Signature(**one) for one in message["signatures"]]
    _check_signatures(list(signatures), theirs, rank)
    return [Plan.of(one) for one in message["plans"]]


def broadcast_among(communicator: Communicator) -> Broadcast:
    """A broadcast among all ranks of a world, over its communicator: the length first, then the bytes.

    Raises RankError (T0712) where a rank does not come, leaves, or is at another collective.
    """
    everybody = range(communicator.size)

    def gather(data: bytes, what: str) -> bytes:
        """The bytes of rank 0, where all ranks have as many."""
        source = (ctypes.c_char * max(1, len(data))).from_buffer_copy(data or b"\0")
        target = (ctypes.c_char * max(1, len(data) * communicator.size))()
        begins, ends = ctypes.addressof(source), ctypes.addressof(target)
        exchange = Exchange("all_gather", everybody, begins, ends, len(data), f"{what} of plans of rank 0")
        communicator.wait(communicator.start(exchange))
        return target.raw[: len(data)]

    def broadcast(data: bytes) -> bytes:
        length = int.from_bytes(gather(len(data).to_bytes(8, "little"), "length"), "little")
        return gather(data if communicator.rank == 0 else bytes(length), "bytes")

    return broadcast


def _decide(signatures: Sequence[Signature], decide: Callable[[], Sequence[Plan]], broadcast: Broadcast) -> list[Plan]:
    try:
        with _heard(broadcast):
            plans = list(decide())
        if len(plans) != len(signatures):
            raise ValueError(f"`decide` gave {len(plans)} plans for {len(signatures)} signatures")
        data = _write(signatures, plans)
    except BaseException as error:
        broadcast(_write((), (), f"{type(error).__name__}: {getattr(error, 'message', error)}"[:4096]))
        raise
    # What all others read, rank 0 reads as well: a value that JSON writes otherwise is the same on all of them.
    return [Plan.of(one) for one in _read(broadcast(data), 0)["plans"]]


@contextmanager
def _heard(broadcast: Broadcast) -> Generator[None]:
    """Within it other ranks hear from this one, several times in the seconds that they wait for anybody.

    Raises at its end what became of the ranks, where one of them is gone.
    """
    is_over, failed = threading.Event(), list[BaseException]()

    def beat() -> None:
        try:
            while not is_over.wait(rank_seconds() / 4):
                broadcast(_WAIT)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if failed:
        raise failed[0]


def _write(signatures: Sequence[Signature], plans: Sequence[Plan], failure: str = "") -> bytes:
    message: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "signatures": [signature_to_json(one) for one in signatures],
        "plans": [plan_to_json(plan) for plan in plans],
        "failure": failure,
    }
    data = json.dumps(message, allow_nan=False)
    check_schema(json.loads(data), _SCHEMA)
    return data.encode()


def _read(data: bytes, rank: int) -> dict[str, Any]:
    try:
        message = parse_json(data)
        check_schema(message, _SCHEMA)
        if len(message["plans"]) != len(message["signatures"]):
            raise MismatchError("plans", f"must have {len(message['signatures'])} items, got {len(message['plans'])}")
    except MismatchError as error:
        raise TuningRanksError(
            f"rank {rank} got something else than plans from rank 0: {error}",
            span=None,
            fix="run the same version of Tessera, and the same calls, on all ranks",
        ) from None
    return message


def _check_signatures(mine: list[Signature], theirs: list[Signature], rank: int) -> None:
    if mine == theirs:
        return
    fix = "call the same functions with the same shapes, in the same order, on ranks with the same machine and versions"
    pairs = list(zip(mine, theirs, strict=False))
    index = next((index for index, (own, other) in enumerate(pairs) if own != other), len(pairs))
    if index == len(pairs):
        extra = (mine[index:] or theirs[index:])[0]
        owner = f"rank {rank}" if len(mine) > len(theirs) else "rank 0"
        raise TuningRanksError(
            f"rank {rank} tunes {len(mine)} signatures, and rank 0 {len(theirs)}: `{extra}` is of {owner} alone",
            span=None,
            fix=fix,
        )
    own, other = pairs[index]
    here, there = signature_to_json(own), signature_to_json(other)
    differing = [name for name in here if here[name] != there[name]]
    raise TuningRanksError(
        f"rank {rank} tunes `{own}`, and rank 0 `{other}`: they differ in {', '.join(differing)}",
        span=None,
        notes=tuple(f"{name} is `{here[name]}` on rank {rank}, `{there[name]}` on rank 0" for name in differing),
        fix=fix,
    )
