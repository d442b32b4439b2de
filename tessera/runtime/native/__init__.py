"""Native code of the call path: hand-written LLVM, and what it assumes of CPython and NumPy (`layout.py`)."""
