#!/usr/bin/env bash
# Checks the source without running tests.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

need_tools
# What found problems.
problems=()

# check NAME COMMAND…: runs a command that must succeed.
check() {
    heading "$1"
    "${@:2}" || problems+=("$1")
}

# unchecked NAME REASON: what could not be checked, under its heading.
unchecked() {
    heading "$1"
    missing "$2"
}

check "format" cargo fmt --all -- --check
if [[ -f fuzz/Cargo.toml ]]; then
    check "format of the fuzz targets" cargo fmt --manifest-path fuzz/Cargo.toml -- --check
fi
check "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
check "the oldest supported compiler" scripts/msrv.sh
export RUSTDOCFLAGS="-D warnings"
check "documentation" cargo doc --workspace --no-deps --locked
check "documentation of the library without features" cargo doc -p bulkmem --no-deps --locked

if command -v shellcheck >/dev/null; then
    check "scripts" shellcheck --external-sources .ci/run scripts/*.sh kmod/tests/*.sh kmod/tests/init
else
    unchecked "scripts" "shellcheck; the scripts were not checked (Debian: apt-get install shellcheck)"
fi

command -v python3 >/dev/null || install_packages python3-minimal || true
check "the search for import cycles" scripts/check-cycles.sh
check "import cycles" scripts/cycles.py

check "the module's fences" kmod/tests/check.sh
check "the module's style" kmod/tests/checkpatch.sh
if command -v mandoc >/dev/null; then
    check "the manual pages of the module and of the C library" mandoc -T lint -W warning kmod/*.4 crates/bulkmem-c/man/*.3
else
    unchecked "the manual pages of the module and of the C library" \
        "mandoc; these manual pages were not checked (Debian: apt-get install mandoc)"
fi
check "conventions" scripts/conventions.sh

((${#problems[@]} == 0)) || fail "lint found problems: $(printf '%s; ' "${problems[@]}")see above"
printf '\nlint: no problems\n'
