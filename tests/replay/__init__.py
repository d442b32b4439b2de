"""Replay: the final LLVM text of many programs on five machines, compared with what it was."""
