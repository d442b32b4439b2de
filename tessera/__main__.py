"""`python -m tessera`: the same as the `tessera` command."""

from __future__ import annotations

from tessera.cli.main import main

if __name__ == "__main__":
    main()
