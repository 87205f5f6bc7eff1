"""Runtimes and engines of the node part, one outside technology a file.

Read next: process.py.
"""
