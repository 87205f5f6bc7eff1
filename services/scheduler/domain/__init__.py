"""The scheduler's decisions: what a Pod asks for, what a pool is, who gets which cards, why somebody waits.

Pure: no clock, no I/O, no logging. Read next: admission.py.
"""
