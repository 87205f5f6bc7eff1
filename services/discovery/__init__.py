"""Discovery: finds hosts, their cards and the health of both; owns Node and Devices.

The controller turns agents' reports into documents and facts, decides who speaks for a node, and judges silence.
The agent (one per node) reads the hardware. Read next: README.md, domain/inventory.py.
"""
