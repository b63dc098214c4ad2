#!/usr/bin/env bash
# Runs every test; ends with what was skipped and why, what failed and how to rerun it, and one line of sums.
# A test that cannot do its work on this machine prints a line `skipped: WHAT: WHY`, which is collected here.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

FUZZ_SECONDS=${BULKMEM_FUZZ_SECONDS:-15}

echo "make test: runs every test of bulkmem: unit, property, oracle, compile-fail, command-line and documentation
tests; Miri and the fuzz targets where a nightly toolchain has them; the Linux module in virtual machines. It writes
to $TARGET_DIR and, for the kernels it fetches, to ${BULKMEM_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bulkmem/kmod}, and installs the Debian packages
that tests need where they are missing and that is possible."

need_tools
if ! ldconfig -p 2>/dev/null | grep -q 'libpmem\.so\.1' && ! install_packages libpmem1; then
    missing "libpmem, one of the peers (Debian: apt-get install libpmem1)"
fi

if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null && ! install_packages chromium; then
    missing "Chromium, which the tests of the report use (Debian: apt-get install chromium)"
fi

logs=$TARGET_DIR/test-logs
mkdir -p "$logs"
rm -f "$logs"/*

passed=0
failed=0
ignored=0
skips=()
# "NAME: COMMAND": what failed, and what reruns just that.
failures=()

# tests NAME KIND RERUN COMMAND…: runs a command that prints cargo's test results, and adds them up. failed.awk says
# what KIND and RERUN are.
tests() {
    local name=$1 kind=$2 rerun=$3 log=$logs/$1.log status=0 sums line listed=0
    shift 3
    heading "$name: $*"
    # What passing tests print goes to the log only.
    "$@" 2>&1 | tee "$log" |
        awk '/^successes:$/ { quiet = 1 } /^(failures:|test result:)/ { quiet = 0 } !quiet { print; fflush() }' ||
        status=$?
    read -r -a sums < <(awk -f scripts/tally.awk "$log")
    passed=$((passed + sums[0]))
    failed=$((failed + sums[1]))
    ignored=$((ignored + sums[2]))
    if ((status != 0 && sums[1] == 0)); then
        echo "error: $name ended with status $status and no failed test: see above" >&2
        failed=$((failed + 1))
    elif ((sums[0] + sums[1] + sums[2] == 0)); then
        echo "error: $name ran no test" >&2
        failed=$((failed + 1))
        status=1
    fi
    ((status != 0)) || return 0
    while IFS= read -r line; do
        failures+=("$line")
        listed=1
    done < <(awk -v kind="$kind" -v rerun="$rerun" -f scripts/failed.awk "$log")
    ((listed)) || failures+=("$name: $*")
}

# fuzz TARGET: feeds it for a while; counts as one test.
fuzz() {
    local target=$1 log=$logs/fuzz-$1.log artifact
    local -a command=(scripts/isolated.sh cargo +nightly fuzz run "$target")
    mkdir -p "fuzz/corpus/$target"
    heading "fuzz-$target: ${command[*]}"
    if "${command[@]}" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$FUZZ_SECONDS" -verbosity=0 -print_final_stats=1 2>&1 | tee "$log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        # libFuzzer writes the input that failed to a file.
        artifact=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        failures+=("fuzz-$target: cargo +nightly fuzz run $target ${artifact:-fuzz/corpus/$target fuzz/seeds/$target}")
    fi
}

tests tally whole scripts/check-tally.sh scripts/check-tally.sh
tests cargo cargo "cargo test" cargo test --workspace --exclude hostile --locked --no-fail-fast -- --show-output
# What happens at the first use depends on what the compiler makes of it: as programs are built, without and with
# link-time optimization.
for profile in release lto; do
    tests "hostile-$profile" cargo "cargo test --profile $profile" cargo test --profile "$profile" --locked -p hostile
done
tests kmod kmod scripts/test-kmod.sh scripts/test-kmod.sh

nightly_remedy="rustup toolchain install nightly"
if cargo +nightly --version >/dev/null 2>&1; then
    if cargo +nightly miri --version >/dev/null 2>&1 && [[ -d $(rustc +nightly --print sysroot)/lib/rustlib/src ]]; then
        # What is borrowed and shared. Built for an architecture of which the library has no assembly, so that this also
        # shows that it builds for one. Tests of mere arithmetic are left out: they would take minutes.
        # Miri keeps the standard library that it builds in the user's cache.
        miri=(scripts/isolated.sh env "XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache}"
            "MIRIFLAGS=-Zmiri-disable-isolation -Zmiri-backtrace=0" PROPTEST_CASES=4
            cargo +nightly miri test --target aarch64-unknown-linux-gnu)
        tests miri cargo "${miri[*]@Q}" "${miri[@]}" --locked -p bulkmem --lib \
            -- plan:: c_functions:: policy::environment:: threads:: unfenced::
    else
        skips+=("Miri on the safe parts: not installed; remedy: rustup component add --toolchain nightly miri rust-src")
    fi
    if cargo +nightly fuzz --version >/dev/null 2>&1; then
        targets=$(cargo +nightly fuzz list)
        for target in $targets; do
            fuzz "$target"
        done
    else
        skips+=("fuzz targets: cargo-fuzz is not installed; remedy: cargo install --locked cargo-fuzz")
    fi
else
    skips+=("Miri on the safe parts: no nightly toolchain; remedy: $nightly_remedy --component miri,rust-src")
    skips+=("fuzz targets: no nightly toolchain; remedy: $nightly_remedy && cargo install --locked cargo-fuzz")
fi

while IFS= read -r line; do
    skips+=("$line")
done < <(sed -n 's/^skipped: //p; s/^test \([^[].*\) \.\.\. ignored,\{0,1\} *\(.*\)$/\1: ignored: \2/p' "$logs"/*.log | sort -u)

heading "skipped"
if ((${#skips[@]} == 0)); then
    echo "nothing"
else
    printf -- '- %s\n' "${skips[@]}"
fi

if ((${#failures[@]})); then
    heading "failed; each with the command that reruns it"
    printf -- '- %s\n' "${failures[@]}"
fi

printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "${#skips[@]}"
((failed == 0))
