"""gateway: the one HTTP door. It serves every kind in Kubernetes' shape and owns Namespace, Secret, ConfigMap, Setting, ApiKey.

Writes of other kinds are requests to their owners; reads come from one watch cache. /v1 is served by its workers (dataplane/).
Read next: README.md, then app.py.
"""
