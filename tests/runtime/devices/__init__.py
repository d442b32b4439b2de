"""Tests of the runtime of devices that need none."""
