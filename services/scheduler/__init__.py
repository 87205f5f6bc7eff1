"""Forms pools of what nodes have, admits workloads to exact devices, and says why the others wait.

Owns InstanceType, InstanceTypeFlavor, LocalQueue and Workload, the ledgers, and Devices.status. Read next: README.md.
"""
