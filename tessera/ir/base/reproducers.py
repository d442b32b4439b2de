"""Files that let someone else see a failure: a text, where it goes, and its name made from its content."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from tessera.runtime.private_files import make_folder, open_folder, write_file


def reproducer_folder() -> Path:
    """`TESSERA_REPRODUCERS`, or a folder of this user's below the system's temporary one."""
    given = os.environ.get("TESSERA_REPRODUCERS")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tessera-{os.getuid()}" / "reproducers"


def write_reproducer(stem: str, suffix: str, text: str) -> Path | None:
    """Write `text` once, under a name that the same text always gets; the path written.

    Written beside its path and moved there, so that two processes failing alike do not mix their lines. Where the
    folder cannot be written, or is another user's, a new temporary one is taken; where none can be made, there is no
    file: the failure that this is about is told all the same.
    """
    name = f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{suffix}"
    is_private = "TESSERA_REPRODUCERS" not in os.environ  # a folder that the user names may be shared
    with suppress(OSError):
        return _write_reproducer(reproducer_folder(), name, text, is_private=is_private)
    with suppress(OSError):
        return _write_reproducer(Path(tempfile.mkdtemp(prefix="tessera-reproducers-")), name, text)
    return None


def _write_reproducer(path: Path, name: str, text: str, *, is_private: bool = True) -> Path:
    make_folder(str(path))
    with open_folder(str(path), is_private=is_private) as folder:
        write_file(name, folder, [text.encode()])
    return path / name
