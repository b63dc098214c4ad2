#!/usr/bin/env bash
# Tests the library and the command for aarch64 and riscv64 in QEMU's user-mode emulation: the methods on every kind of
# processor that changes which methods there are, or how they run.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/test-arch.sh [--quick] [aarch64 | riscv64]

Tests the library, the command and the C library on emulated processors of other architectures. What cannot run is reported as skipped.
Ends with the number of tests by architecture, processor and group, compared with those of this machine's architecture,
and with the instructions that the methods exist for and how many tests executed each.

  --quick   fewer offsets and processors (2 minutes, without the builds), not the command and the C library; part of `make test`

  BULKMEM_QEMU_CACHE      where QEMU is kept [default: ~/.cache/bulkmem/qemu]
  BULKMEM_ARCH_REQUIRED   if set, as in continuous integration, what cannot run is an error
END
}

quick=
architectures=()
for argument; do
    case $argument in
    --quick) quick=1 ;;
    --help) usage && exit ;;
    aarch64 | riscv64) architectures+=("$argument") ;;
    *) usage >&2 && fail "unknown argument $argument" ;;
    esac
done
((${#architectures[@]})) || architectures=(aarch64 riscv64)

MIRROR=${BULKMEM_DEBIAN_MIRROR:-https://deb.debian.org/debian}
cache=${BULKMEM_QEMU_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bulkmem/qemu}

# skip WHAT WHY: reports what cannot run. BULKMEM_ARCH_REQUIRED=1, for continuous integration, makes it a failure.
skip() {
    [[ -z ${BULKMEM_ARCH_REQUIRED-} ]] || fail "$1: $2"
    printf 'skipped: %s: %s\n' "$1" "$2"
}

# new_enough PROGRAM: true if that QEMU is version 9 or later. Earlier ones have no FEAT_MOPS, or no riscv_hwprobe for
# the extensions used here.
new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | sed -n 's/^qemu-[a-z0-9]* version \([0-9]*\)\..*/\1/p')
    [[ -n $version ]] && ((version >= 9))
}

# fetch_qemu: fetches qemu-user of bookworm-backports to the cache, without installing it. It is linked statically.
fetch_qemu() {
    local index=$cache/Packages path checksum
    command -v curl >/dev/null && command -v xz >/dev/null || install_packages curl ca-certificates xz-utils >&2 || return 1
    mkdir -p "$cache"
    curl --silent --show-error --fail --location --retry 2 --connect-timeout 20 --max-time 300 "$MIRROR/dists/bookworm-backports/main/binary-amd64/Packages.xz" |
        xz --decompress >"$index" || return 1
    read -r path checksum < <(awk '/^Package: / { name = $2 } /^Filename: / { file = $2 }
        /^SHA256: / { if (name == "qemu-user") { print file, $2; exit } }' "$index") || return 1
    curl --silent --show-error --fail --location --retry 2 --connect-timeout 20 --max-time 300 --output "$cache/qemu.deb" "$MIRROR/$path" || return 1
    echo "$checksum  $cache/qemu.deb" | sha256sum --check --status || { echo "wrong checksum: $MIRROR/$path" >&2; return 1; }
    rm -rf "$cache/root.new"
    dpkg-deb --extract "$cache/qemu.deb" "$cache/root.new" && rm -rf "$cache/root" && mv "$cache/root.new" "$cache/root"
    rm -f "$cache/qemu.deb" "$index"
}

# qemu_of ARCHITECTURE: prints the path of a QEMU that is new enough: the system's, or one that is fetched.
qemu_of() {
    local program=qemu-$1 kept=$cache/root/usr/bin/qemu-$1
    if new_enough "$program"; then
        command -v "$program"
        return
    fi
    new_enough "$kept" || fetch_qemu || return 1
    new_enough "$kept" && printf '%s\n' "$kept"
}

# has_std TARGET: makes the standard library of a target available; fails if it cannot.
has_std() {
    rustup target list --installed 2>/dev/null | grep -x "$1" >/dev/null || timeout --foreground 300 rustup target add "$1" >&2
}

# Rows of the table at the end: "ARCHITECTURE<tab>PROCESSOR<tab>GROUP<tab>PASSED FAILED IGNORED".
rows=()
failed=0
# Optimizing other packages takes half of the build and makes the tests no faster.
plain=(--config 'profile.dev.package."*".opt-level=0')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# sums_of ARCHITECTURE PROCESSOR GROUP LOG: adds the results in a log to the tables.
sums_of() {
    local sums
    sums=$(awk -f scripts/tally.awk "$4")
    rows+=("$1"$'\t'"$2"$'\t'"$3"$'\t'"$sums")
    # Nothing is shown by methods that the emulated processor does not have, or by a filter that names none.
    [[ $sums != "0 "* ]] || { echo "error: no test ran on $2: $3" >&2 && failed=1; }
    awk '/^ +Running tests\// { group = $2; sub(/^tests\//, "", group); sub(/\.rs$/, "", group) }
        /^test .* \.\.\. ok$/ && group { print group, $2 }' "$4" >>"$work/passed-$1"
    sed -n 's/^\(named\|executed\) instruction: //p' "$4" >>"$work/instructions-$1"
}

# shown LOG: prints a log as it grows, without the tests that passed.
shown() {
    tee "$1" | sed '/\.\.\. ok$/d; /^\(named\|executed\) instruction: /d; s/^skipped: \(.*: needs \)/not on this processor: \1/'
}

# emulator_of ARCHITECTURE CPU: prints the words that start a program on an emulated processor. QEMU executes the instructions of
# Zicbom without reporting them; a processor max+zicbom reports them, too.
emulator_of() {
    printf '%s -cpu %s' "$qemu" "${2%+zicbom}"
    [[ $2 != *+zicbom ]] || printf ' -E LD_PRELOAD=%s' "$work/zicbom.so"
    printf ' -L /usr/%s-linux-gnu\n' "$1"
}

# run ARCHITECTURE TARGET CPU GROUP CARGO-ARGUMENTS…: runs a group of tests on an emulated processor.
run() {
    local architecture=$1 target=$2 cpu=$3 group=$4 log=$work/log upper emulator
    shift 4
    upper=${target^^}
    upper=${upper//-/_}
    emulator=$(emulator_of "$architecture" "$cpu")
    printf '\n-- %s %s %s\n' "$architecture" "$cpu" "$group"
    env "CARGO_TARGET_${upper}_LINKER=$architecture-linux-gnu-gcc" \
        "CARGO_TARGET_${upper}_RUNNER=scripts/isolated.sh $emulator" "BULKMEM_TEST_EMULATOR=$emulator" \
        "BULKMEM_TEST_STRIDE=$stride" "PROPTEST_CASES=$cases" \
        cargo test --locked "${plain[@]}" --no-fail-fast --target "$target" "$@" 2>&1 | shown "$log" || failed=1
    sums_of "$architecture" "$cpu" "$group" "$log"
}

# command_of ARCHITECTURE TARGET CPU: runs the command's tests for other architectures: those of this machine's, with the
# command under the emulator.
command_of() {
    local architecture=$1 target=$2 cpu=$3 log=$work/log upper
    upper=${target^^}
    upper=${upper//-/_}
    printf '\n-- %s %s command\n' "$architecture" "$cpu"
    if ! env "CARGO_TARGET_${upper}_LINKER=$architecture-linux-gnu-gcc" cargo build --locked "${plain[@]}" --target "$target" -p bulkmem-cli; then
        echo "error: the command does not build for $architecture" >&2
        failed=1
        return
    fi
    BULKMEM_TEST_COMMAND="$(emulator_of "$architecture" "$cpu") $(realpath "$TARGET_DIR/$target/debug/bulkmem")" \
        cargo test "${here[@]}" --test cli -- architecture:: --skip an_emulators_profile 2>&1 | shown "$log" || failed=1
    sums_of "$architecture" "$cpu" command "$log"
}

# c_of ARCHITECTURE TARGET CPU PROGRAM…: builds the libraries for C, and runs programs of the C library's tests, linked to the
# static one. Those that are not named load policy files of this machine's processor, or need system calls that QEMU lacks.
c_of() {
    local architecture=$1 target=$2 cpu=$3 log=$work/log upper program
    local -a emulator
    read -r -a emulator < <(emulator_of "$architecture" "$cpu")
    shift 3
    upper=${target^^}
    upper=${upper//-/_}
    printf '\n-- %s %s C library\n' "$architecture" "$cpu"
    if ! env "CARGO_TARGET_${upper}_LINKER=$architecture-linux-gnu-gcc" cargo build --locked "${plain[@]}" --target "$target" \
        -p bulkmem-c -p bulkmem-preload -p bulkmem-libpmem; then
        echo "error: the libraries for C do not build for $architecture" >&2
        failed=1
        return
    fi
    for program; do
        if "$architecture-linux-gnu-gcc" -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror -I crates/bulkmem-c/include -o "$work/$program" \
            "crates/bulkmem-c/tests/c/$program.c" "$TARGET_DIR/$target/debug/libbulkmem_c.a" -lpthread -ldl -lm -lgcc_s &&
            "${emulator[@]}" "$work/$program"; then
            echo "test c::$program ... ok"
        else
            echo "test c::$program ... FAILED"
        fi
    done 2>&1 | awk '{ print } / \.\.\. ok$/ { passed++ } / \.\.\. FAILED$/ { failed++ } END {
        printf "test result: %s. %d passed; %d failed; 0 ignored; 0 measured; 0 filtered out\n", failed ? "FAILED" : "ok", passed, failed
        exit failed > 0 }' | shown "$log" || failed=1
    sums_of "$architecture" "$cpu" "C library" "$log"
}

if [[ -n $quick ]]; then stride=16 cases=4; else stride=4 cases=16; fi

# The tests of this machine's architecture, as `make test` builds them.
here=(--locked --workspace --exclude hostile)

# The groups that every architecture shares. Each runs all methods that the processor has.
shared=(fences oracle properties instruction_sets traces public_operations publication durable)
groups=("${shared[@]}")
[[ -n $quick ]] || groups+=(policy pointers signals)

# The tests of the library that are not about emulated processors: those of files, threads and memory mappings use system
# calls, and pass natively.
lib_filters=(method:: machine:: clock:: policy:: unfenced:: carried:: once::)

for architecture in "${architectures[@]}"; do
    # Further processors: "CPU FILTER GROUP…".
    case $architecture in
    # max: 512-byte blocks of DC ZVA, FEAT_MOPS, and lines of 32 bytes, which refuse DC CVAP. Neoverse N1: 64-byte blocks,
    # DC CVAP, no SVE. V1: DC CVADP, vectors of 32 bytes. Cortex-A53: none of these, 64-byte blocks.
    # `operations` persists. QEMU does not apply RLIMIT_AS, which one of its tests needs.
    aarch64)
        target=aarch64-unknown-linux-gnu main=max
        persisting="oracle properties traces public_operations publication durable"
        others=("neoverse-n1 cvap $persisting" "neoverse-n1 control:: durable" "neoverse-v1 cvadp $persisting"
            "max,sve-default-vector-length=16 sve oracle" "cortex-a53 dc_zva oracle")
        [[ -n $quick ]] || others+=("neoverse-v1 --skip=threads_that_cannot operations" "neoverse-n1 - oracle" "neoverse-v1 - oracle" "cortex-a53 - oracle" "a64fx - oracle"
            "max,sve=off - oracle" "max,sve-default-vector-length=256 sve oracle")
        ;;
    # max has vectors of 16 bytes.
    riscv64)
        target=riscv64gc-unknown-linux-gnu main=max
        others=("max,vlen=512 rvv oracle" "max,cboz_blocksize=128,cbom_blocksize=128 cbo oracle"
            "max+zicbom persist public_operations publication")
        [[ -n $quick ]] || others+=("rv64 - oracle" "max,v=off - oracle" "max,zicboz=off - oracle" "max,vlen=256 rvv oracle"
            "max,vlen=1024 rvv oracle")
        ;;
    esac
    what="tests of $architecture under emulation"
    if ! command -v "$architecture-linux-gnu-gcc" >/dev/null; then
        name=${architecture/aarch64/arm64}
        install_packages "gcc-$architecture-linux-gnu" "libc6-dev-$name-cross" ||
            { skip "$what" "no cross compiler; remedy: apt-get install gcc-$architecture-linux-gnu libc6-dev-$name-cross" && continue; }
    fi
    has_std "$target" || { skip "$what" "no standard library; remedy: rustup target add $target" && continue; }
    qemu=$(qemu_of "$architecture") ||
        { skip "$what" "no QEMU 9 or later; remedy: apt-get install -t bookworm-backports qemu-user" && continue; }

    [[ $architecture != riscv64 ]] ||
        riscv64-linux-gnu-gcc -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -o "$work/zicbom.so" crates/bulkmem/tests/zicbom.c ||
        fail "crates/bulkmem/tests/zicbom.c does not compile: see above"
    run "$architecture" "$target" "$main" lib -p bulkmem --features unstable-internals --lib -- "${lib_filters[@]}"
    run "$architecture" "$target" "$main" testkit -p testkit --lib -- "$architecture"
    for group in "${groups[@]}"; do
        run "$architecture" "$target" "$main" "$group" -p bulkmem --test "$group"
    done
    for other in "${others[@]}"; do
        read -r cpu filter names <<<"$other"
        [[ $filter != - ]] || filter=
        tests=()
        for name in $names; do tests+=(--test "$name"); done
        [[ $names != *" "* ]] || names=methods
        run "$architecture" "$target" "$cpu" "$names${filter:+ $filter}" -p bulkmem "${tests[@]}" -- ${filter:+"$filter"}
    done
    # The first call under hostile conditions.
    [[ -n $quick ]] || run "$architecture" "$target" "$main" hostile -p hostile
    # It takes four minutes of a processor to build.
    [[ -n $quick ]] || command_of "$architecture" "$target" "$main"
    # `operations` persists, which Neoverse V1 can, and Zicbom.
    case $quick$architecture in
    aarch64) c_of "$architecture" "$target" neoverse-v1 operations race ;;
    riscv64) c_of "$architecture" "$target" max+zicbom operations race ;;
    esac
done

if ((${#rows[@]} == 0)); then
    # As cargo reports tests; `make test` adds them up.
    echo "test result: ok. 0 passed; 0 failed; ${#architectures[@]} ignored: no architecture could be tested"
    exit "$failed"
fi

printf '\n%-10s %-45s %-18s %7s %7s %7s\n' architecture processor group passed failed ignored
for row in "${rows[@]}"; do
    IFS=$'\t' read -r architecture cpu group sums <<<"$row"
    read -r passed wrong ignored <<<"$sums"
    printf '%-10s %-45s %-18s %7d %7d %7d\n' "$architecture" "$cpu" "$group" "$passed" "$wrong" "$ignored"
done

# Tests of the shared groups. Most are one for each method and operation, and architectures have different numbers of those.
own=$(uname -m)
for group in "${shared[@]}"; do
    cargo test "${here[@]}" --test "$group" -- --list 2>"$work/errors" | sed -n "s/^\(.*\): test\$/$group \1/p" ||
        { cat "$work/errors" >&2 && failed=1; }
done >"$work/listed"
mv "$work/listed" "$work/passed-$own"
printf '\nTests that pass on at least one processor (%s: all), and per method and operation, compared with %s:\n' "$own" "$own"
printf '%-18s' group
for architecture in "$own" "${architectures[@]}"; do printf ' %24s' "$architecture"; done
echo
for group in "${shared[@]}" all; do
    printf '%-18s' "$group"
    for architecture in "$own" "${architectures[@]}"; do
        [[ -e $work/passed-$architecture ]] || continue
        # Every method has one such test for each of its operations.
        read -r count entries < <(sort -u "$work/passed-$architecture" | awk -v group="$group" -v shared=" ${shared[*]} " '
            index(shared, " " $1 " ") && (group == "all" || $1 == group) { count++ }
            $1 == "oracle" && $2 ~ /^zero_length::/ { entries++ } END { print count + 0, entries + 0 }')
        if [[ $architecture == "$own" ]]; then
            reference=$count/$entries
            printf ' %24s' "$count"
        else
            printf ' %24s' "$(awk -v c="$count" -v e="$entries" -v r="$reference" 'BEGIN {
                split(r, own, "/"); printf "%d (%.0f %% per method)", c, c / e / (own[1] / own[2]) * 100 }')"
        fi
    done
    echo
done

# The instructions that the methods exist for, from `traces`, which sets a breakpoint at each.
printf '\n%-10s %-18s %s\n' architecture instruction "tests that executed it"
for architecture in "${architectures[@]}"; do
    [[ -e $work/instructions-$architecture ]] || continue
    while read -r count name; do
        printf '%-10s %-18s %5d\n' "$architecture" "$name" "$count"
        ((count)) || { echo "error: no test executed \`$name\`" >&2 && failed=1; }
    done < <(sort -u "$work/instructions-$architecture" | awk -F ': ' '{ seen[$1] += NF - 1 } END { for (it in seen) print seen[it], it }' |
        sort -k 2)
done
exit "$failed"
