#!/usr/bin/env bash
# Builds the command, calibrates and measures this machine, writes a report, and shows the result on one screen.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

logs=$TARGET_DIR/run
mkdir -p "$logs"

echo "make run: builds bulkmem, calibrates this machine (at most a minute), measures it (about two minutes; leave the
machine quiet meanwhile), and writes a report. It writes to $TARGET_DIR, to your profile ($TARGET_DIR/run/info.txt
says where), bulkmem-results.json and bulkmem-report.html."

need_tools
if ! has_library libpmem.so.1; then
    missing "libpmem, a peer to compare with; bulkmem works without it (Debian: apt-get install libpmem1)"
fi

# step TITLE FILE COMMAND…: runs a command with its output in a file. On a terminal, the progress bar stays visible. If
# the command fails, prints the end of the file and exits with the command's status.
step() {
    local title=$1 log=$logs/$2 status=0
    shift 2
    printf '%-10s %s\n' "$title" "$log"
    if [[ -t 2 ]]; then
        "$@" >"$log" || status=$?
    else
        "$@" >"$log" 2>&1 || status=$?
    fi
    ((status == 0)) && return
    tail -n 20 "$log" >&2
    printf 'error: "%s" ended with status %s. All of its output: %s\n' "$title" "$status" "$log" >&2
    exit "$status"
}

# Builds. Shows only the newest line of cargo's on a terminal: it prints one for each crate.
build() {
    local status=0
    cargo build --release --locked -p bulkmem-cli 2>&1 | while IFS= read -r line; do
        printf '%s\n' "$line"
        [[ ! -t 2 ]] || printf '\r\033[K%.79s' "$line" >&2
    done || status=$?
    [[ ! -t 2 ]] || printf '\r\033[K' >&2
    return "$status"
}

bulkmem=$TARGET_DIR/release/bulkmem
step build build.log build
step info info.txt "$bulkmem" info
step calibrate calibrate.txt "$bulkmem" calibrate
step measure measure.txt "$bulkmem" bench all --quick --output bulkmem-results.json
step report report.txt "$bulkmem" report bulkmem-results.json --output bulkmem-report.html

echo
"$bulkmem" explain
echo "The report, with charts: file://$PWD/bulkmem-report.html. Its figures: bulkmem-results.json. All output: $logs"
