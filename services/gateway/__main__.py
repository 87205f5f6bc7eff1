"""`python -m services.gateway [worker | certificates DIRECTORY NAME…]`.

Read next: app.py, dataplane/worker.py.
"""

import sys

from shared.service import main

WORKER, CERTIFICATES = "worker", "certificates"

if sys.argv[1:2] == [CERTIFICATES]:
    from pathlib import Path

    from services.gateway.drivers.certificates import make
    from shared.clock import SystemClock

    make(Path(sys.argv[2]), sys.argv[3:], SystemClock().now())
elif sys.argv[1:2] == [WORKER]:
    from services.gateway.dataplane.worker import main as work

    work()
else:
    from services.gateway.app import build
    from services.gateway.settings import GatewaySettings

    main("gateway", GatewaySettings, build)
