"""The contract and the plumbing that every service stands on; no service's business lives here.

Read next: shared/messages/catalog.py (what travels), shared/store/documents.py (what is kept).
"""
