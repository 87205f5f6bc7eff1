"""What the gateway reads and writes: the watch cache, Events in memory, objects through their owners, keys, namespaces.

Read next: objects.py.
"""
