"""The facts, one module per aggregate, one class per thing that happened.

Read next: shared/messages/catalog.py, which says who publishes and who listens.
"""
