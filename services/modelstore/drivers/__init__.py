"""One outside technology each: hubs, the local hub's folder and server, disks, HTTP downloads. Read next: ports.py."""
