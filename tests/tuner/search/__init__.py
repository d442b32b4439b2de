"""Tests of what tuning measures, predicts and reports."""
