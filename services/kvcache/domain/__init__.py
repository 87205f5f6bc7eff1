"""The cache's decisions: prefix hashes, who holds what, what a backend, pool or grant may say. Pure.

Read next: index.py.
"""
