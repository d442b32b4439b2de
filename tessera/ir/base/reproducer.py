"""Files that let someone else see a failure: a text, where it goes, and its name made from its content."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def reproducer_folder() -> Path:
    """`TESSERA_REPRODUCERS`, or a folder of this user's below the system's temporary one."""
    given = os.environ.get("TESSERA_REPRODUCERS")
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tessera-{os.getuid()}" / "reproducers"


def write_reproducer(stem: str, suffix: str, text: str) -> Path:
    """Write `text` once, under a name that the same text always gets; the path written.

    Written beside its place and moved into it, so that two processes failing alike do not mix their lines.
    """
    folder = reproducer_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{suffix}"
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)
    return path
