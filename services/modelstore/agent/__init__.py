"""The node part of modelstore: holds the copies its node should have. Read next: models.py."""
