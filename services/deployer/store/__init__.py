"""Deployments and Pods in Redis: what is read, how a plan is committed, how nodes are told.

Read next: deployments.py.
"""
