"""Outside technologies: uvicorn's protocol on sockets, TLS certificates.

Read next: listener.py.
"""
