"""`make demo`: from nothing to a chat answer on this host, one line a fact as it happens. Leaves nothing running.

Must not know how anything is done: it uses the same commands a user has. Read next: gpubus/demo/story.py.
"""
