"""Any command that serves HTTP on `$(GPUBUS_PORT)`.

Pure. Read next: render.py.
"""

from __future__ import annotations

from services.deployer.domain.engines import Engine

ENGINE = Engine(name="Custom", argv=None, probe_path="")
