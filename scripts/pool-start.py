#!/usr/bin/env python3
"""Times the start of a stock QEMU, up to the first guest instruction, with memory of the pool and with prealloc=on.

Usage, as root: scripts/pool-start.py BULKMEM [SIZE_MIB...]

Needs qemu-system-x86_64 and free huge pages of 2 MiB: the largest size, 64 MiB and 10 % more. Uses TCG, so that it runs
everywhere. Medians of 10 starts; those from the pool alternate between 64 MiB and the size, and every other round in the
other order.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 10
# At the reset vector: writes a byte to port 0xe9, QEMU's debug console, and halts.
ROM = bytes(65536 - 16) + bytes([0xB0, 0x21, 0xE6, 0xE9, 0xF4]) + bytes(11)


def qemu(rom, mib, path, options):
    return ["qemu-system-x86_64", "-accel", "tcg", "-display", "none", "-nodefaults", "-m", f"{mib}M", "-bios", rom,
            "-debugcon", "stdio", "-machine", "memory-backend=ram",
            "-object", f"memory-backend-{path},id=ram,size={mib}M,share=on{options}"]


def start(command):
    """Returns the milliseconds to the first guest instruction, and what was written to stderr."""
    began = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = child.stdout.read(1)
    took = (time.monotonic() - began) * 1000
    child.kill()
    error = child.communicate()[1].decode()
    if first != b"!":
        sys.exit(f"error: QEMU did not start: {error}")
    return took, error


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    bulkmem = os.path.abspath(sys.argv[1])
    sizes = [int(size) for size in sys.argv[2:]] or [1024, 4096, 8192]
    with tempfile.TemporaryDirectory() as folder:
        rom = os.path.join(folder, "rom")
        with open(rom, "wb") as file:
            file.write(ROM)
        print("| machine | 64 MiB from the pool | from the pool | ratio | prealloc=on |\n|---|---|---|---|---|")
        for mib in sizes:
            measure(bulkmem, folder, rom, mib)


def measure(bulkmem, folder, rom, mib):
    keep = [word for size in (64, mib) for word in ("--keep", f"2M,unit={size}M")]
    daemon = subprocess.Popen([bulkmem, "pool", "serve", *keep, "--rate", "max", "--runtime-dir", folder + "/run",
                               "--quota", "1T"])
    try:
        pooled = {64: [], mib: []}
        for turn in range(ROUNDS):
            for size in [64, mib] if turn % 2 else [mib, 64]:
                wait(bulkmem, folder)
                command = [bulkmem, "pool", "run", "--memory", f"{size}M", "--socket", folder + "/run/socket", "--"]
                took, error = start(command + qemu(rom, size, "file", ",mem-path={}"))
                if error:
                    sys.exit(f"error: {error}")
                pooled[size].append(took)
    finally:
        daemon.terminate()
        daemon.wait()
    hugetlb = qemu(rom, mib, "memfd", ",hugetlb=on,hugetlbsize=2M,prealloc=on")
    prealloc = statistics.median(start(hugetlb)[0] for _ in range(ROUNDS))
    small, large = (statistics.median(times) for times in pooled.values())
    print(f"| {mib / 1024:g} GiB | {small:.0f} ms | {large:.0f} ms | {large / small:.2f} | {prealloc:.0f} ms |", flush=True)


def wait(bulkmem, folder):
    """Waits until all units are ready."""
    for _ in range(6000):
        found = subprocess.run([bulkmem, "pool", "status", "--json", "--socket", folder + "/run/socket"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        if found.returncode == 0 and all(it["ready"] == it["count"] for it in json.loads(found.stdout)["kinds"]):
            # So that nothing of the filling disturbs the next start.
            time.sleep(0.3)
            return
        time.sleep(0.02)
    sys.exit("error: the units do not become ready: are there enough huge pages?")


main()
