"""Tuning: what was measured and kept, how fast a plan should be, what to measure next, and when a plan is adopted.

It knows no compiler: those who have one give it functions that compile a plan and run it.
"""
