"""The node part: runs the Pods this node should run, and reports what is.

Read next: pods.py.
"""
