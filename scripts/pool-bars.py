#!/usr/bin/env python3
"""Measures a pool of small units: hand-outs per second, lost or repeated units, and the memory of the daemon.

Usage, as root: scripts/pool-bars.py BULKMEM CHURN [LEASES]

BULKMEM is the command, CHURN the example `churn` of bulkmem-pool; build both with --release. The daemon keeps 4096 units of
64 KiB in base pages ready: 256 MiB. LEASES is 100000 by default.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

UNITS = 4096


def daemon_memory(process):
    """Returns the KiB of private memory and of page tables, which do not include the units: they are not mapped."""
    def field(path, names):
        with open(f"/proc/{process}/{path}", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.split(":")[0] in names)
    return field("smaps_rollup", ("Private_Clean", "Private_Dirty")) + field("status", ("VmPTE",))


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    bulkmem, churn = (os.path.abspath(path) for path in sys.argv[1:3])
    leases = sys.argv[3] if len(sys.argv) == 4 else "100000"
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/run/socket"
        daemon = subprocess.Popen([bulkmem, "pool", "serve", "--keep", f"4K,unit=64K,count={UNITS}", "--rate", "max",
                                   "--quota", "1G", "--runtime-dir", f"{folder}/run"])
        try:
            began = time.monotonic()
            while ready(bulkmem, socket) < UNITS:
                if daemon.poll() is not None or time.monotonic() - began > 120:
                    sys.exit("error: the units do not become ready; the daemon's messages are above")
                time.sleep(0.1)
            full = daemon_memory(daemon.pid)
            running = subprocess.Popen([churn, socket, leases], stdout=subprocess.PIPE, text=True)
            most = full
            while running.poll() is None:
                most = max(most, daemon_memory(daemon.pid))
                time.sleep(0.5)
            if running.returncode != 0:
                sys.exit("error: the churn failed; its message is above")
            print(running.stdout.read().strip())
            print(f"daemon: {full} KiB with {UNITS} ready units, at most {most} KiB")
        finally:
            daemon.kill()
            daemon.wait()


def ready(bulkmem, socket):
    """Returns the number of ready units; 0 while the daemon starts."""
    status = subprocess.run([bulkmem, "pool", "status", "--json", "--socket", socket], capture_output=True, check=False)
    return json.loads(status.stdout)["kinds"][0]["ready"] if status.returncode == 0 else 0


if __name__ == "__main__":
    main()
