#!/bin/sh
# Runs COMMAND without the caller's home, and only with the variables that building needs, so that profiles and
# settings do not change the results of tests. cargo starts every test program through it (.cargo/config.toml).
#   scripts/isolated.sh [--tests-only] COMMAND…
# --tests-only: COMMAND is a program that cargo built. Only test programs are isolated; `cargo run` runs the others.
set -eu

if [ "$1" = --tests-only ]; then
    shift
    # cargo keeps test programs in deps/, and rustdoc keeps those of documentation tests in a temporary folder.
    case ${1%/*} in
    */deps) ;;
    # rustdoc sets this variable if there is no runner: each documentation test is a separate process.
    */rustdoctest*) export RUSTDOC_DOCTEST_BIN_PATH="$1" ;;
    *) exec "$@" ;;
    esac
fi

# Without HOME, cargo and rustup find their files by these variables.
: "${CARGO_HOME:=${HOME:-/nonexistent}/.cargo}" "${RUSTUP_HOME:=${HOME:-/nonexistent}/.rustup}"
export CARGO_HOME RUSTUP_HOME

for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in
    PATH | PWD | TMPDIR | LD_LIBRARY_PATH | CARGO | CARGO_* | RUST* | MIRI* | PROPTEST_* | TRYBUILD | BULKMEM_TEST_*) ;;
    *) unset "$name" ;;
    esac
done
# Nothing can exist or be created below this path.
HOME=/dev/null exec "$@"
