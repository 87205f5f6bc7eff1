"""The hot path: /v1 on bare ASGI, nothing awaited but the client, the engine and bounded waits.

A worker holds its tables in memory and needs neither bus nor store. Read next: asgi.py.
"""
