"""A stand-in for a service: answers /readyz on GPUBUS_HEALTH_PORT and ends on SIGTERM, or misbehaves as told.

argv[1]: `good`, `deaf` (ignores SIGTERM), `broken` (exits with 3 after saying why), `slow` (ready after a second),
`never-ready`.
"""

import os
import signal
import socket
import sys
import time

kind = sys.argv[1]
if kind == "broken":
    print("no such accelerator", file=sys.stderr)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "deaf" else lambda *_: sys.exit(0))
if kind == "slow":
    time.sleep(1)
print("standing in as", os.environ["GPUBUS_INSTANCE"], "with", os.environ.get("GPUBUS_COLOUR"), flush=True)
if kind == "never-ready":
    time.sleep(600)
listener = socket.create_server(("127.0.0.1", int(os.environ["GPUBUS_HEALTH_PORT"])))
while True:
    link, _ = listener.accept()
    with link:
        link.recv(4096)
        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
