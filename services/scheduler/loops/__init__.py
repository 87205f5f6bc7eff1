"""The scheduler's leased work: admission per pool, and one steward for views, clean-up and audits.

Must not hold state that a restart would lose. Read next: cycle.py.
"""
