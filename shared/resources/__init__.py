"""What is stored and shown: Kubernetes-shaped resources, one module per family.

Read next: shared/resources/base.py, then shared/resources/kinds.py.
"""
