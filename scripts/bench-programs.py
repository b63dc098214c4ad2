#!/usr/bin/python3
"""Times programs without the preloaded library and with it: scripts/bench-programs.py LIBRARY [WORKLOAD [ROUNDS]]

Each round runs each workload three times: without the library, with it, and as a control without it; and it does that six times, in the
six orders. All in one process: raising the library's thresholds takes it out of the process, as if it were not there but for a jump, and
writing its own values back takes it in again. So all three have the same memory at the same addresses, but for new memory; these
differ between processes, and change a time by more than the library often does. What loading the library takes does not count. Each time is
the median of one or more repetitions, after as many that are not timed, because what a call finds in the cache depends on the calls
before. qemu-img ends after one conversion: its processes take turns, and each is timed.
The ratio is the time without the library divided by the time with it: above 1 is a gain; that of a round is the median of its
ratios. That of the control is the time without it divided by the control's, whose true ratio is 1: how far
its interval is from 1 tells what the machine alone does to a ratio of so many rounds. Both have one time in common, so
that they are not independent. The intervals are a bootstrap of the median of the rounds' ratios (95 %). Rounds of one workload do not
follow each other, but for the last ones: a machine may favour one side for a minute. There are 12 rounds,
and six more of a workload as long as its interval is wider than 1 %, up to ROUNDS [default: 96]: the width alone decides, so that
nothing is repeated until it pleases. Before the rounds, `bulkmem run --histogram` (the command installed with the library, or else that
in PATH) counts which calls of each workload the library replaces: those before and between what is timed, too. Programs that are not
installed are named. WORKLOAD is the start of the names of those to run [default: all]. SIGINT and SIGTERM end it with what was
measured so far.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

PYTHON = "/usr/bin/python3"

# Rounds, how many are added together, and the width of an interval that needs no more.
LEAST, MORE, MOST, NARROW = 12, 6, 96, 0.01

# What a round runs of a workload.
WITHOUT, WITH, AGAIN = range(3)

# Memory is touched before it is timed, unless the workload is about fresh memory. BENCH_LIBRARY is the library's path, and BENCH_TABLE the
# address of its table in the library: the first three words are the thresholds. Without them, there is one side.
PLAIN = """
import itertools, os, statistics, time
M = 1 << 20
def timed(work, times, process='self'):
    def median():
        took = []
        for _ in range(2 * times):
            start = time.perf_counter(); work(); took.append(time.perf_counter() - start)
        return statistics.median(took[times:])
    if 'BENCH_TABLE' not in os.environ:
        print(median()); return
    with open(f'/proc/{process}/maps') as maps:
        base = next(int(line.split('-')[0], 16) for line in maps if line.rstrip().endswith(os.environ['BENCH_LIBRARY']))
    memory, table = os.open(f'/proc/{process}/mem', os.O_RDWR), base + int(os.environ['BENCH_TABLE'])
    own, out = os.pread(memory, 24, table), b'\\xff' * 24
    assert own != out, 'the library leaves all calls to the C library: calibrate first'
    orders = list(itertools.permutations(range(3)))
    # No order is always the first.
    for order in orders[os.getpid() % 6:] + orders[:os.getpid() % 6]:
        took = [0, 0, 0]
        for side in order:
            os.pwrite(memory, own if side == 1 else out, table)
            took[side] = median()
        print(*took)
"""
NUMPY = PLAIN + "import numpy as n\n"

SNIPPETS = {
    "NumPy: copyto, 512 MiB": NUMPY + "a = n.ones(512 * M, n.uint8); b = n.empty_like(a); b[:] = 1\n"
    "timed(lambda: n.copyto(b, a), 2)",
    "NumPy: copyto, 8 MiB, cached": NUMPY + "a = n.ones(8 * M, n.uint8); b = n.empty_like(a); b[:] = 1\n"
    "timed(lambda: n.copyto(b, a), 31)",
    "NumPy: copyto, rows of 1 MiB of 512 MiB": NUMPY + "a = n.ones((512, M), n.uint8); b = n.empty_like(a); b[:] = 1\n"
    "def work():\n  for i in range(512): n.copyto(b[i], a[i])\ntimed(work, 2)",
    "NumPy: tobytes, 256 MiB, fresh": NUMPY + "a = n.ones(256 * M, n.uint8)\ntimed(lambda: a.tobytes(), 2)",
    "NumPy: zeros, then written, 256 MiB": NUMPY + "def work():\n  a = n.zeros(256 * M, n.uint8); a[:] = 7\ntimed(work, 2)",
    "NumPy: concatenate, 2 x 128 MiB, fresh": NUMPY + "a = n.ones(128 * M, n.uint8)\n"
    "timed(lambda: n.concatenate([a, a]), 2)",
    "NumPy: concatenate into an array, 2 x 128 MiB": NUMPY + "a = n.ones(128 * M, n.uint8); b = n.ones(256 * M, n.uint8)\n"
    "timed(lambda: n.concatenate([a, a], out=b), 2)",
    "Python: bytearray copied into another, 256 MiB": PLAIN + "a = bytearray(b'x') * (256 * M); b = memoryview(bytearray(a))\n"
    "def work(): b[:] = a\ntimed(work, 2)",
    "Python: bytes joined, 256 MiB, fresh": PLAIN + "a = [b'x' * (4 * M)] * 64\ntimed(lambda: b''.join(a), 2)",
    "Python: bytes of a bytearray, 64 MiB, fresh": PLAIN + "a = bytearray(b'x') * (64 * M)\ntimed(lambda: bytes(a), 4)",
    "NumPy: copies of 1 MiB, 64 kept, fresh": NUMPY + "a = n.ones(M, n.uint8)\n"
    "def work(): return [a.copy() for _ in range(64)]\ntimed(work, 4)",
    "NumPy: copies of 1 MiB, each freed": NUMPY + "a = n.ones(M, n.uint8)\n"
    "def work():\n  for _ in range(64): a.copy()\ntimed(work, 4)",
    "Python: bytearray of zeros filled by slices of 4 MiB": PLAIN + "a = bytearray(256 * M); z = bytes(4 * M)\n"
    "def work():\n  for i in range(0, 256 * M, 4 * M): a[i:i + 4 * M] = z\ntimed(work, 2)",
    # Mapped memory begins on a page, so that what is behind the header is 8 bytes after the source modulo 4096.
    "NumPy: pages of 64 KiB behind headers of 8 bytes": NUMPY + "import mmap\nK = 64 << 10\n"
    "a = n.frombuffer(mmap.mmap(-1, K), n.uint8); a[:] = 1; b = n.frombuffer(mmap.mmap(-1, K + 4096), n.uint8)[8:K + 8]\n"
    "def work():\n  for _ in range(1000): n.copyto(b, a)\ntimed(work, 2)",
    "Python: pages of 4 KiB behind headers of 8 bytes": PLAIN + "import mmap\nK = 4 << 10\n"
    "a = memoryview(mmap.mmap(-1, K)); b = memoryview(mmap.mmap(-1, 2 * K))[8:K + 8]; a[:] = b'x' * K\n"
    "def work():\n  for _ in range(10000): b[:] = a\ntimed(work, 2)",
    "SQLite in memory: 64 rows of 4 MiB": PLAIN + "import sqlite3\nd = sqlite3.connect(':memory:'); b = b'x' * (4 * M)\n"
    "d.execute('create table t (b blob)')\ndef work():\n  d.execute('delete from t')\n"
    "  d.executemany('insert into t values (?)', ((b,) for _ in range(64)))\n  list(d.execute('select length(b), b from t'))\n"
    "timed(work, 2)",
}

# Columns of integers and text, scanned, filtered, grouped and sorted.
DUCKDB = PLAIN + """
import duckdb
d = duckdb.connect(); d.execute("set threads = 1")
d.execute("create table t as select range as i, range % 1000 as g, 'row number ' || range as s from range(4000000)")
GROUPS = "select g, sum(i), max(s) from t where s like '%7%' group by g"
"""

ARROW = PLAIN + """
import pyarrow as a, pyarrow.compute as c
a.set_cpu_count(1)
t = a.table({"i": a.array(range(4000000)), "s": a.array(["row number %d" % i for i in range(4000000)])})
chunks = a.concat_tables([t.slice(i, 500000) for i in range(0, 4000000, 500000)])
"""

SNIPPETS |= {
    "DuckDB: scan with groups, 4 million rows": DUCKDB + "timed(lambda: d.execute(GROUPS).fetchall(), 2)",
    "DuckDB: sort, 4 million rows": DUCKDB + "timed(lambda: d.execute('create or replace table u as from t order by s'), 1)",
    "PyArrow: scan with filter, 4 million rows": ARROW + "timed(lambda: t.filter(c.match_substring(t['s'], '7')), 2)",
    "PyArrow: chunks combined, 4 million rows": ARROW + "timed(lambda: chunks.combine_chunks(), 2)",
}

# As the function of Python above, always by the same first order.
PERL = """
use Time::HiRes 'time';
my $to = 'x' x (256 << 20); my $from = $to; substr($from, 0, 1) = 'y';
sub median {
    my @took;
    for (1 .. 6) { my $start = time; substr($to, 0, length $from, $from); push @took, time - $start }
    (sort { $a <=> $b } @took[3 .. 5])[1];
}
if (!$ENV{BENCH_TABLE}) { print median(), "\\n"; exit }
open my $maps, '<', '/proc/self/maps' or die; my ($line) = grep { /\\Q$ENV{BENCH_LIBRARY}\\E$/ } <$maps>;
my $table = hex((split /-/, $line)[0]) + $ENV{BENCH_TABLE};
open my $memory, '+<:unix', '/proc/self/mem' or die;
sub at { sysseek $memory, $table, 0 or die }
at(); sysread($memory, my $own, 24) == 24 or die;
$own ne "\\xff" x 24 or die "the library leaves all calls to the C library: calibrate first";
for my $order ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]) {
    my @took;
    for my $side (@$order) {
        at(); syswrite($memory, $side == 1 ? $own : "\\xff" x 24) == 24 or die;
        $took[$side] = median();
    }
    print "@took\\n";
}
"""

# The library is in the server only.
REDIS = PLAIN + """
import socket, subprocess, sys
folder = sys.argv[1]
environment = dict(os.environ)
if 'BENCH_TABLE' in os.environ: environment['LD_PRELOAD'] = os.environ['BENCH_LIBRARY']
def command(*words):
    s.sendall(b'*%d\\r\\n' % len(words) + b''.join(b'$%d\\r\\n%s\\r\\n' % (len(w), w) for w in words))
    assert s.recv(64).startswith(b'+OK')
def work():
    for size in (1, 4, 16, 64):
        for key in range(64 // size): command(b'SET', b'%d %d' % (size, key), b'x' * (size << 20))
server = subprocess.Popen(['redis-server', '--port', '0', '--unixsocket', folder + '/s', '--save', '', '--loglevel', 'warning',
                           '--dir', folder], env=environment, stdout=subprocess.DEVNULL)
try:
    while not os.path.exists(folder + '/s'):
        assert server.poll() is None, 'redis-server has ended'
        time.sleep(0.01)
    s = socket.socket(socket.AF_UNIX); s.connect(folder + '/s')
    timed(work, 1, server.pid)
finally:
    server.terminate(); server.wait()
"""

# Its processes take turns, as above, with the library in every second of three.
QEMU = """
set -e
shopt -s inherit_errexit
cd "$1"
[ -z "$BENCH_LIBRARY" ] || LD_PRELOAD=$BENCH_LIBRARY grep -q "$BENCH_LIBRARY" /proc/self/maps
dd if=/dev/urandom of=in bs=1M count=256 status=none
convert() { LD_PRELOAD=$1 qemu-img convert -O raw in out; }
seconds() { local start=${EPOCHREALTIME/[.,]/}; convert "$1"; echo "$((${EPOCHREALTIME/[.,]/} - start))e-6"; }
convert "$LD_PRELOAD"
if [ -z "$BENCH_TABLE" ]; then seconds "$LD_PRELOAD"; exit; fi
for order in '0 1 2' '0 2 1' '1 0 2' '1 2 0' '2 0 1' '2 1 0'; do
    for side in $order; do
        if [ "$side" = 1 ]; then took[$side]=$(seconds "$BENCH_LIBRARY"); else took[$side]=$(seconds ""); fi
    done
    echo "${took[*]}"
done
"""


def commands(folder):
    """The workloads, each with its command; and whether the command itself is to be preloaded."""
    for name, snippet in SNIPPETS.items():
        yield name, [PYTHON, "-c", snippet], True
    yield "Perl: a string copied into another, 256 MiB", ["perl", "-e", PERL], True
    yield "Redis: SET of 1 to 64 MiB", [PYTHON, "-c", REDIS, folder], False
    yield "qemu-img convert, 256 MiB in memory", ["bash", "-c", QEMU, "bash", folder], False


def missing(name):
    """What the workload needs and is not installed."""
    program = name.split(":")[0].split()[0]
    needs = {"Redis": "redis-server", "qemu-img": "qemu-img", "Perl": "perl"}.get(program, PYTHON)
    if not shutil.which(needs):
        return needs
    module = {"NumPy": "numpy", "DuckDB": "duckdb", "PyArrow": "pyarrow"}.get(program)
    if module and subprocess.run([PYTHON, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode:
        return f"{PYTHON}'s {module}"
    return None


class Ended(Exception):
    """A workload failed."""


def printed_by(name, prefix=(), **variables):
    """Runs the workload, with a prefix before its command and more variables, and returns what it printed."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        [(command, preloaded)] = [found for own, *found in commands(folder) if own == name]
        command, environment = [*prefix, *command], os.environ | variables
        if preloaded and "BENCH_LIBRARY" in environment:
            environment["LD_PRELOAD"] = environment["BENCH_LIBRARY"]
        # In a group of its own, so that what it starts ends together with it.
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                printed, _ = process.communicate()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise Ended(f"{name}: ended with status {process.returncode}")
    return printed


def table_of(library):
    """Where the library's table is, relative to the library."""
    symbols = subprocess.run(["nm", library], stdout=subprocess.PIPE, check=True, text=True).stdout
    found = [line.split()[0] for line in symbols.splitlines() if "bulkmem_preload9c_library5TABLE" in line]
    if len(found) != 1:
        sys.exit(f"{library}: nm finds no table of thresholds; has it been stripped? make install-c installs it with symbols")
    return str(int(found[0], 16))


def times_of(name, library, table):
    """The times of the three sides in a round, in each of the six orders."""
    lines = printed_by(name, BENCH_LIBRARY=library, BENCH_TABLE=table).splitlines()
    return [[float(word) for word in line.split()] for line in lines]


def replaced(name, library):
    """The calls of the workload that the library replaces, and their share of the bytes of all calls; of Redis, the server's."""
    installed = os.path.normpath(f"{library}/../../../bin/bulkmem")
    bulkmem = installed if os.path.isfile(installed) else shutil.which("bulkmem")
    if not bulkmem:
        return "? (bulkmem is not installed)"
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "histogram.json")
        histogram = [bulkmem, "run", "--histogram", "--json", "--output", report, "--"]
        try:
            # Which cannot count with BULKMEM_POPULATE.
            printed_by(name, histogram, BULKMEM_LIBDIR=os.path.dirname(library), BULKMEM_POPULATE="")
            with open(report, encoding="utf-8") as file:
                found = json.load(file)["processes"]
        except (Ended, OSError, ValueError) as error:
            return f"? ({error})"
    if name.startswith("Redis"):
        found = [it for it in found if it["name"] == "redis-server"]
    # Copies that page aliasing slows down are replaced below the threshold.
    calls, size = (sum(it["total"]["above_threshold"][what] + it["aliased"][what] for it in found) for what in ("calls", "bytes"))
    return f"{calls}, {size / max(1, sum(it['total']['bytes'] for it in found)):.0%}"


def ratios(taken, side):
    """The times of the first side divided by those of another, of each round."""
    return [statistics.median(times[WITHOUT] / times[side] for times in of_round) for of_round in taken]


def interval(rounds):
    generator = random.Random(7)
    medians = sorted(statistics.median(generator.choices(rounds, k=len(rounds))) for _ in range(10_000))
    return medians[250], medians[9749]


def width(taken):
    low, high = interval(ratios(taken, WITH))
    return high - low


def progress(text):
    """Shows it on a terminal in place of what was there."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main():
    if len(sys.argv) < 2 or not os.path.isfile(sys.argv[1]):
        sys.exit("usage: scripts/bench-programs.py LIBRARY [WORKLOAD [ROUNDS]]; make install-c installs PREFIX/lib/bulkmem/libbulkmem_preload.so")
    library, wanted = os.path.realpath(sys.argv[1]), "".join(sys.argv[2:3])
    most = max(LEAST, int(sys.argv[3])) if len(sys.argv) > 3 else MOST
    names = [name for name, *_ in commands("") if name.startswith(wanted)]
    if not names:
        sys.exit(f"no workload starts with {wanted!r}")
    skipped = {name: need for name in names if (need := missing(name))}
    table = table_of(library)
    # The times of the three sides, round by round.
    taken = {name: [] for name in names if name not in skipped}
    pending, counted = list(taken), {}
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    try:
        for at, name in enumerate(pending, 1):
            progress(f"histogram: {at} of {len(pending)} workloads")
            counted[name] = replaced(name, library)
        for number in range(most):
            for at, name in enumerate(pending, 1):
                progress(f"round {number + 1} of {LEAST} to {most}: {at} of {len(pending)} workloads")
                taken[name].append(times_of(name, library, table))
            if number + 1 >= LEAST and (number + 1) % MORE == 0:
                pending = [name for name in pending if width(taken[name]) > NARROW]
    except Ended as error:
        sys.exit(str(error))
    finally:
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, signal.SIG_IGN)
        show(names, skipped, counted, taken)


def show(names, skipped, counted, taken):
    progress("")
    print("| workload | calls replaced, share of bytes | without, ms | with, ms | ratio | control | rounds |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        if name in skipped:
            print(f"| {name} | skipped: {skipped[name]} is not installed | | | | | |")
            continue
        if not taken[name]:
            continue
        cells = [counted[name]]
        cells += [f"{statistics.median(times[side] for times in sum(taken[name], [])) * 1000:.1f}" for side in (WITHOUT, WITH)]
        for side in (WITH, AGAIN):
            low, high = interval(ratios(taken[name], side))
            cells.append(f"{statistics.median(ratios(taken[name], side)):.3f} ({low:.3f}–{high:.3f})")
        print(f"| {name} | {' | '.join(cells)} | {len(taken[name])} |")


main()
