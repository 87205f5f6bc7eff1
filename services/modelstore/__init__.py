"""modelstore: which bytes a model's name means, and which node must hold them.

It resolves a ModelArtifact once to a commit and a manifest, has the weights brought to the nodes of admitted workloads,
verified byte by byte, and serves the local hub. Read next: README.md, then domain/revision.py.
"""
