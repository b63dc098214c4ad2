#!/usr/bin/env bash
# Format, lints, unit tests and the fast integration tests, for use while working. `make lint` and `make test` check the
# rest. Ends with the names of the failed tests, and commands that rerun them.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

need_tools
# shellcheck source=scripts/results.sh
. scripts/results.sh

lint format cargo fmt --all -- --check
lint clippy cargo clippy --workspace --all-targets --locked -- -D warnings
lint cycles scripts/cycles.py
lint conventions scripts/conventions.sh

tests units cargo "cargo test" cargo test --workspace --exclude hostile --locked --no-fail-fast --lib --bins -- --show-output
# Each takes a few seconds.
tests library cargo "cargo test" cargo test -p bulkmem --locked --no-fail-fast --test fences --test instruction_sets \
    --test isolation --test log --test operations --test policy --test published --test signals -- --show-output
tests methods cargo "PROPTEST_CASES=4 cargo test" env PROPTEST_CASES=4 cargo test -p bulkmem --locked --no-fail-fast \
    --test oracle --test properties --test traces -- --show-output --skip units:: --skip parameters:: \
    --skip durable:: --skip fenced:: --skip emulated::

summary
