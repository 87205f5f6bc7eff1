"""Decisions of modelstore: pure functions over resources, manifests and reports.

Must not do I/O or read a clock. Read next: services/modelstore/domain/revision.py.
"""
