"""What `gpubus up` is made of: the plan of processes, ports, credentials, embedded servers, refusals.

Read next: gpubus/stack/plan.py (the shape), gpubus/stack/layout.py (the stack itself).
"""
