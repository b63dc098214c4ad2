#!/bin/sh
# Counts the lines of Rust in src/ of the given crates (default: the measuring crate and the command), without files and
# inline modules that only hold tests.
# Usage: scripts/lines.sh [--files] [CRATE...]
set -eu
cd "$(dirname "$0")/.."
files=0
if [ "${1:-}" = --files ]; then files=1; shift; fi
[ $# -gt 0 ] || set -- bulkmem-measure bulkmem-cli
# shellcheck disable=SC2016 # the program of awk
for crate; do
    find "crates/$crate/src" -name '*.rs' ! -name tests.rs ! -path '*/tests/*'
done | sort | xargs awk -v files="$files" '
    FNR == 1 { skipping = 0; pending = 0; folder = FILENAME; sub(/\/(mod|lib|main)\.rs$|\.rs$/, "", folder) }
    /^#!\[cfg\(test\)\]/ { tests[FILENAME] = 1 }
    /^#\[cfg\((all\()?test/ { pending = 1; next }
    # A test module starts at the margin and ends with a brace at the margin, or is a file.
    pending && /^(pub(\([a-z]+\))? )?mod [a-z_]+ \{/ { skipping = 1; pending = 0; next }
    pending && /^(pub(\([a-z]+\))? )?mod [a-z_]+;/ {
        module = $0
        sub(/.*mod /, "", module)
        sub(/;.*/, "", module)
        tests[folder "/" module ".rs"] = tests[folder "/" module "/mod.rs"] = 1
        pending = 0
        next
    }
    # Further attributes of the same item.
    pending && /^#\[/ { next }
    pending { pending = 0 }
    skipping { if (/^}/) skipping = 0; next }
    { count[FILENAME]++ }
    END {
        for (name in count) {
            if (name in tests) continue
            split(name, part, "/")
            crate[part[2]] += count[name]
            total += count[name]
            if (files) printf "%6d %s\n", count[name], name
        }
        for (name in crate) printf "%6d %s\n", crate[name], name
        printf "%6d total\n", total
    }' | sort -k 2
