"""The Redis store: documents with one revision sequence, one-script commits, the log, outboxes, inboxes, leases.

Read next: shared/store/documents.py (the types), then shared/store/client.py (the calls).
"""
