#!/bin/sh
# Counts the lines of Rust in src/ of the given crates (default: the measuring crate and the command), without files and
# inline modules that only hold tests.
# Usage: scripts/lines.sh [--files] [CRATE...]
set -eu
cd "$(dirname "$0")/.."
files=0
if [ "${1:-}" = --files ]; then files=1; shift; fi
[ $# -gt 0 ] || set -- bulkmem-measure bulkmem-cli
for crate; do
    find "crates/$crate/src" -name '*.rs' ! -name tests.rs ! -path '*/tests/*'
done | sort | xargs awk -v files="$files" '
    FNR == 1 { finish(); name = FILENAME; count = 0; skipping = 0; pending = 0; whole = 0 }
    /^#!\[cfg\(test\)\]/ { whole = 1 }
    # A test module starts at the margin and ends with a brace at the margin.
    /^#\[cfg\((all\()?test/ { pending = 1; next }
    pending && /^(pub(\([a-z]+\))? )?mod [a-z_]+ \{/ { skipping = 1; pending = 0; next }
    pending && /^(pub(\([a-z]+\))? )?mod ([a-z_]+);/ { pending = 0; next }
    # Further attributes of the same item.
    pending && /^#\[/ { next }
    pending { pending = 0; count++ }
    skipping { if (/^}/) skipping = 0; next }
    { count++ }
    function finish() {
        if (name == "") return
        if (whole) count = 0
        split(name, part, "/")
        crate[part[2]] += count; total += count
        if (files && count) printf "%6d %s\n", count, name
    }
    END {
        finish()
        for (it in crate) printf "%6d %s\n", crate[it], it
        printf "%6d total\n", total
    }'
