"""The front door: the `gpubus` command, and the supervisor it leaves behind. No service imports it.

Read next: gpubus/main.py (every verb), gpubus/up.py (one host, everything running).
"""
