"""Tests of programs on a GPU: cases are compiled anywhere, and run where there is one."""
