"""Logs, traces and metrics: field names, span names and instrument names live here and nowhere else."""
