#!/usr/bin/env bash
# Runs one fuzz target for a number of executions, and adds the inputs that reach more code to its seeds. `make test`
# starts from the seeds.
#   scripts/fuzz.sh TARGET EXECUTIONS
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

target=${1:?TARGET: cargo +nightly fuzz list} executions=${2:?EXECUTIONS}
seeds=fuzz/seeds/$target
corpus=fuzz/corpus/$target
[[ -d $seeds ]] || fail "$seeds: no such folder; \`cargo +nightly fuzz list\` shows the targets"
mkdir -p "$corpus"

fuzz() {
    scripts/isolated.sh cargo +nightly fuzz run "$target" "$@" -verbosity=0 -max_len=4096
}

heading "$target: $executions executions"
fuzz "$corpus" "$seeds" -- -runs="$executions" -print_final_stats=1
heading "$target: what reaches more code than the seeds"
fuzz "$seeds" "$corpus" -- -set_cover_merge=1 -use_counters=0
du -sh --apparent-size "$seeds"
