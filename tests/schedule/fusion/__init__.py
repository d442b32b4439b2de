"""Fusion rules, one by one."""
