#!/usr/bin/env bash
# Runs every test. Ends with what was skipped and why, what failed and how to rerun it, and one line of sums.
# A test that cannot run on this machine prints a line `skipped: WHAT: WHY`, which is collected here.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

FUZZ_EXECUTIONS=${BULKMEM_FUZZ_EXECUTIONS:-30000}

echo "make test: runs every test of bulkmem: unit, property, oracle, compile-fail, command-line and documentation
tests; Miri and the fuzz targets where a nightly toolchain has them; the Linux module in virtual machines. It writes
to $TARGET_DIR and, for the kernels it fetches, to ${BULKMEM_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bulkmem/kmod}, and installs the Debian packages
that tests need where they are missing and that is possible."

need_tools
# What tests need, its package, and the purpose; they skip what is missing.
needed=(
    "libpmem.so.1:libpmem1:one of the peers, and what ours is compared with"
    "qemu-system-x86_64:qemu-system-x86:whose preallocation \`bench vm\` measures"
    "/usr/include/libpmemobj.h:libpmemobj-dev:for the tests of the drop-in libpmem"
)
has google-chrome || needed+=("chromium:chromium:which the tests of the report use")
for program in g++ clang valgrind pkg-config cmake meson ninja:ninja-build fio pmempool:pmdk-tools musl-gcc:musl-tools perl git \
    sqlite3 /usr/bin/python3:python3; do
    needed+=("${program%:*}:${program#*:}:which the tests of the C libraries use")
done
install_missing "${needed[@]%:*}"
for it in "${needed[@]}"; do
    IFS=: read -r name package purpose <<<"$it"
    has "$name" || missing "$name, $purpose (Debian: apt-get install $package)"
done

# shellcheck source=scripts/results.sh
. scripts/results.sh

# fuzz TARGET: executes a fuzz target a number of times; counts as one test. Optimizing takes most of the time of the build.
fuzz() {
    local target=$1 log=$logs/fuzz-$1.log start=$SECONDS artifact
    local -a command=(scripts/isolated.sh env CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo +nightly fuzz run "$target")
    mkdir -p "fuzz/corpus/$target"
    heading "fuzz-$target: ${command[*]}"
    if measured "fuzz-$target" "${command[@]}" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -runs="$FUZZ_EXECUTIONS" -verbosity=0 -print_final_stats=1 2>&1 | tee "$log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        # libFuzzer writes the failing input to a file.
        artifact=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        failures+=("fuzz-$target: cargo +nightly fuzz run $target ${artifact:-fuzz/corpus/$target fuzz/seeds/$target}")
    fi
    took "fuzz-$target" "$start"
}

# They take ten minutes to an hour each, and programs and sources of others.
skips+=("glibc's own tests of memcpy and memset with the library to preload: not a part of this: make test-glibc"
    "PMDK's own tests of libpmem with ours: not a part of this: make test-pmdk"
    "NumPy, Redis, a JVM, and the tests of SQLite, git and Perl with the library to preload: not a part of this: make test-programs")

# Continuous integration counts the lints as one test.
[[ -z ${BULKMEM_LINT:-} ]] || lint lint scripts/lint.sh
tests tally whole scripts/check-tally.sh scripts/check-tally.sh
tests cargo cargo "cargo test" cargo test --workspace --exclude hostile --locked --no-fail-fast -- --show-output
# Other architectures, and what needs a nightly toolchain.
others() {
    tests architectures whole "scripts/test-arch.sh --quick" scripts/test-arch.sh --quick
    local target targets nightly_remedy="rustup toolchain install nightly"
    if cargo +nightly --version >/dev/null 2>&1; then
        if cargo +nightly miri --version >/dev/null 2>&1 && [[ -d $(rustc +nightly --print sysroot)/lib/rustlib/src ]]; then
            # Tests borrows and threads. Miri cannot run assembly, so build.rs leaves the methods out under Miri. Not for
            # x86-64, where it would execute CPUID. Excludes tests of arithmetic, which would take minutes. Miri stores the
            # standard library that it builds in the cache of the user.
            local -a miri=(scripts/isolated.sh env "XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache}"
                "MIRIFLAGS=-Zmiri-disable-isolation -Zmiri-backtrace=0" PROPTEST_CASES=4
                cargo +nightly miri test --target aarch64-unknown-linux-gnu)
            tests miri cargo "${miri[*]@Q}" "${miri[@]}" --locked -p bulkmem --lib \
                -- kernel:: c_functions:: policy::environment:: threads:: unfenced:: workers:: carried:: once::
            if [[ $(uname -m) == x86_64 ]]; then
                tests thread-sanitizer whole scripts/thread-sanitizer.sh scripts/thread-sanitizer.sh
            fi
        else
            skips+=("Miri on the safe parts, ThreadSanitizer: not installed; remedy: rustup component add --toolchain nightly miri rust-src")
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
        skips+=("Miri on the safe parts, ThreadSanitizer: no nightly toolchain; remedy: $nightly_remedy --component miri,rust-src")
        skips+=("fuzz targets: no nightly toolchain; remedy: $nightly_remedy && cargo install --locked cargo-fuzz")
    fi
}

# The rest leaves processors idle, and nothing in it depends on times.
printf '\nOther architectures, Miri, ThreadSanitizer and fuzzing run next to the following, and are shown after it.\n'
beside others
# The first call depends on how the compiler optimizes it, so it is tested as programs are built: without and with
# link-time optimization.
for profile in release lto; do
    tests "hostile-$profile" cargo "cargo test --profile $profile" cargo test --profile "$profile" --locked -p hostile
done
tests kmod kmod scripts/test-kmod.sh scripts/test-kmod.sh
tests machines kmod scripts/test-kmod.sh scripts/test-kmod.sh pool pmem-6.12
joined

summary
