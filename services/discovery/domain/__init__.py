"""Discovery's decisions: what a report, a claim or silence means. Pure.

Must not read a clock or do I/O. Read next: inventory.py (what a report changes), liveness.py (who is lost).
"""
