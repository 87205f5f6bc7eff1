"""The scheduler's documents and ledgers in Redis: load, let the domain decide, commit.

Must not decide. Read next: admissions.py.
"""
