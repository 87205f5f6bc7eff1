"""Read models kept from the log of documents: what is free on each node, who waits for which pool.

Changed by the document cache alone, never by a decision. Read next: board.py.
"""
