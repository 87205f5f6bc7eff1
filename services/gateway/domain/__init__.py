"""Decisions of the gateway: decoding, patches, field ownership, selectors, columns, rights, and the rules of its own kinds.

Pure functions on JSON and resources. Read next: decoding.py (in), view.py (out), rules.py (own kinds).
"""
