#!/usr/bin/env bash
# Builds the command, calibrates and measures this machine, and writes a report.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

echo "make run: builds bulkmem, shows what this machine has, calibrates it (at most a minute), runs every measurement
briefly (about two minutes; leave the machine quiet meanwhile), and writes a report. It writes to $TARGET_DIR, to
your profile (bulkmem info says where), bulkmem-results.json and bulkmem-report.html."

need_tools
if ! ldconfig -p 2>/dev/null | grep -q 'libpmem\.so\.1'; then
    missing "libpmem, a peer to compare with; bulkmem works without it (Debian: apt-get install libpmem1)"
fi

heading "build"
cargo build --release --locked -p bulkmem-cli
bulkmem=$TARGET_DIR/release/bulkmem

heading "this machine"
"$bulkmem" info

heading "calibrate"
"$bulkmem" calibrate

heading "measure"
"$bulkmem" bench all --quick --output bulkmem-results.json

heading "report"
"$bulkmem" report bulkmem-results.json --output bulkmem-report.html

heading "summary"
# The first section of the report, without Markdown's escapes.
"$bulkmem" report bulkmem-results.json --format markdown --output - |
    awk '/^## / { sections++; next } sections == 1' | sed 's,\\,,g' | fold -s -w 100 | cat -s
echo "The report, with charts: file://$PWD/bulkmem-report.html"
