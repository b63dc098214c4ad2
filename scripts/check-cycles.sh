#!/usr/bin/env bash
# Checks cycles.py: plants import cycles in a copy of a crate, each of which it must report, and imports that are no
# cycles, which it must not report.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# plant FILE CODE…: appends code to a file of the copied crate.
plant() { printf '%s\n' "${@:2}" >>"$copy/crates/bulkmem-output/src/$1"; }

# expect WANT NAME: runs cycles.py on the copy. WANT is the reported cycle, or `none`. Then makes a new copy.
expect() {
    local found
    # It exits with 1 where it reports a cycle.
    found=$({ ./scripts/cycles.py --root "$copy" || true; } | sed -n 's|crates/bulkmem-output/src/||g; s/^cycle: //p')
    if [[ ${found:-none} != "$1" ]]; then
        printf 'cycles.py, %s: found %s instead of %s\n' "$2" "${found:-none}" "$1" >&2
        failed=1
    fi
    fresh
}

fresh() {
    rm -rf "$copy/crates"
    mkdir "$copy/crates"
    cp -R crates/bulkmem-output "$copy/crates/"
    plant lib.rs 'mod a;' 'mod b;' 'mod c;'
    mkdir "$copy/crates/bulkmem-output/src/c"
    plant a.rs 'pub struct A;'
    plant b.rs 'pub struct B;'
    plant c/mod.rs 'mod inner;' 'pub(crate) use inner::Inner;'
    plant c/inner.rs 'pub struct Inner;'
}

fresh
expect none 'no cycle'

plant a.rs 'use crate::b::B;'
plant b.rs 'use crate::a::A;'
expect 'a.rs -> b.rs -> a.rs' 'two files that use each other'

plant a.rs 'fn one() -> crate::b::B { crate::b::B }'
plant b.rs 'use super::{' '    a::{self, A as Other},' '};'
expect 'a.rs -> b.rs -> a.rs' 'a path in code, and a nested use'

plant lib.rs 'pub use a::A;'
plant a.rs 'use crate::c::Inner;'
plant c/inner.rs 'use crate::A;'
expect 'a.rs -> c/mod.rs -> a.rs' 're-exported items, and a folder'

plant a.rs 'use crate::b::B;'
plant b.rs 'use crate::c::Inner;'
plant c/mod.rs 'use crate::a;' 'fn three() -> a::A { a::A }'
expect 'a.rs -> b.rs -> c/mod.rs -> a.rs' 'three modules'

plant a.rs 'use crate::b::B;' '// use crate::c::Inner;' 'const TEXT: &str = "crate::c::Inner";'
plant b.rs '#[cfg(test)]' 'mod tests {' '    use crate::a::A;' '}'
plant b.rs '#[cfg(test)]' 'use crate::a::A;'
plant c/inner.rs 'use crate::a::A;' 'use super::Inner as Own;'
expect none 'tests, comments, literals, and a module that uses the one around it'

((failed == 0))
