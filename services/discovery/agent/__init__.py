"""The node part of discovery: reads the hardware and speaks for the node. No Redis, no resource API.

Read next: node.py.
"""
