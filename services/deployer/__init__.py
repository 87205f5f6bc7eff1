"""Turns deployments into running engine replicas and keeps them so.

Owns ModelDeployment, Pod and the Instance kinds. The controller plans replicas, asks the scheduler for capacity and
commits Pods; the agent on each node runs them under a shim and reports what is. Read next: domain/plan.py.
"""
