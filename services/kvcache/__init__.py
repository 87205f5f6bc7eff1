"""The shared KV cache's service: owns KVCacheBackend, KVCachePool and KVCachePoolBinding, and knows who holds which block.

The objects are validated and stored; stores and connectors are not served yet. The prefix index is fed by engines'
block events and answers which replicas hold the longest start of a prompt. Read next: README.md, domain/index.py.
"""
