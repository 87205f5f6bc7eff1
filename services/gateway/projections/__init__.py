"""Read models for the workers, and the line they travel on. Read next: endpoints.py."""
