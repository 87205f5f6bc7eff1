"""The six services. Each folder is one owner; none imports another. Read next: docs/architecture.md."""
