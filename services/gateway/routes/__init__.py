"""The HTTP edge of the resource API: decode, authorise, ask, answer. A bare ASGI application; nothing here decides.

Read next: asgi.py (dispatch), then resources.py.
"""
