"""Outside technology behind the ports: the host, NVIDIA's driver, simulated hardware.

Must know neither messages nor Redis. Read next: ../ports.py.
"""
