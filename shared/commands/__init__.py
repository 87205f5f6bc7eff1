"""The commands: orders to one service, refusable, answered when the caller waits.

Read next: shared/messages/catalog.py.
"""
