#!/usr/bin/env bash
# Tests the methods of aarch64 and riscv64 in QEMU's user-mode emulation: on every kind of processor that changes which
# methods there are, or how they run.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/test-arch.sh [--quick] [aarch64 | riscv64]

Tests the library on emulated processors of other architectures. What cannot run is reported as skipped. Ends with the
number of tests by architecture, processor and group.

  --quick   fewer offsets and processors (2 minutes, without the builds); part of `make test`

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

# skip WHAT WHY
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
    rustup target list --installed 2>/dev/null | grep -qx "$1" || timeout 300 rustup target add "$1" >&2
}

# Rows of the table at the end: "ARCHITECTURE<tab>PROCESSOR<tab>GROUP<tab>PASSED FAILED IGNORED".
rows=()
failed=0

# run ARCHITECTURE TARGET CPU GROUP CARGO-ARGUMENTS…: runs a group of tests on an emulated processor.
run() {
    local architecture=$1 target=$2 cpu=$3 group=$4 log upper sums
    shift 4
    log=$(mktemp)
    upper=${target^^}
    upper=${upper//-/_}
    printf '\n-- %s %s %s\n' "$architecture" "$cpu" "$group"
    env "CARGO_TARGET_${upper}_LINKER=$architecture-linux-gnu-gcc" \
        "CARGO_TARGET_${upper}_RUNNER=scripts/isolated.sh $qemu -cpu $cpu -L /usr/$architecture-linux-gnu" \
        "BULKMEM_TEST_STRIDE=$stride" "PROPTEST_CASES=$cases" \
        cargo test --locked --target "$target" "$@" 2>&1 | tee "$log" |
        sed '/\.\.\. ok$/d; s/^skipped: \(.*: needs \)/not on this processor: \1/' || failed=1
    sums=$(awk -f scripts/tally.awk "$log")
    rows+=("$architecture"$'\t'"$cpu"$'\t'"$group"$'\t'"$sums")
    # Nothing is shown by methods that the emulated processor does not have, or by a filter that names none.
    [[ $sums != "0 "* ]] || { echo "error: no test ran on $cpu: $group" >&2 && failed=1; }
    rm -f "$log"
}

if [[ -n $quick ]]; then stride=16 cases=4; else stride=4 cases=16; fi

# The groups that every architecture shares. Each runs all methods that the processor has.
groups=(lib fences oracle properties instruction_sets)
[[ -n $quick ]] || groups+=(operations policy pointers signals)

# The tests of the library that are not about emulated processors: those of files, threads and memory mappings use system
# calls, and pass natively.
lib_filters=(method:: machine:: clock:: policy:: unfenced:: carried:: once::)

for architecture in "${architectures[@]}"; do
    case $architecture in
    # max: 512-byte blocks of DC ZVA, FEAT_MOPS, and lines of 32 bytes, which refuse DC CVAP. Neoverse N1: 64-byte blocks,
    # DC CVAP, no SVE. V1: DC CVADP, vectors of 32 bytes. Cortex-A53: none of these.
    aarch64)
        target=aarch64-unknown-linux-gnu main=max
        others=("neoverse-n1 cvap" "neoverse-v1 cvadp" "cortex-a53 dc_zva" "max,sve-default-vector-length=16 sve")
        [[ -n $quick ]] || others=("neoverse-n1 " "neoverse-v1 " "cortex-a53 " "a64fx " "max,sve=off "
            "max,sve-default-vector-length=16 sve" "max,sve-default-vector-length=256 sve")
        ;;
    # max has vectors of 16 bytes.
    riscv64)
        target=riscv64gc-unknown-linux-gnu main=max
        others=("max,vlen=512 rvv" "max,cboz_blocksize=128,cbom_blocksize=128 cbo")
        [[ -n $quick ]] || others=("rv64 " "max,v=off " "max,zicboz=off " "max,vlen=256 rvv" "max,vlen=1024 rvv"
            "max,cboz_blocksize=128,cbom_blocksize=128 cbo")
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

    for group in "${groups[@]}"; do
        case $group in
        lib) run "$architecture" "$target" "$main" lib -p bulkmem --features unstable-internals --lib -- "${lib_filters[@]}" ;;
        *) run "$architecture" "$target" "$main" "$group" -p bulkmem --test "$group" ;;
        esac
    done
    run "$architecture" "$target" "$main" testkit -p testkit --lib -- "$architecture"
    for other in "${others[@]}"; do
        read -r cpu filter <<<"$other"
        run "$architecture" "$target" "$cpu" "oracle${filter:+ $filter}" -p bulkmem --test oracle -- ${filter:+"$filter"}
    done
done

if ((${#rows[@]})); then
    printf '\n%-10s %-45s %-18s %7s %7s %7s\n' architecture processor group passed failed ignored
    for row in "${rows[@]}"; do
        IFS=$'\t' read -r architecture cpu group sums <<<"$row"
        read -r passed wrong ignored <<<"$sums"
        printf '%-10s %-45s %-18s %7d %7d %7d\n' "$architecture" "$cpu" "$group" "$passed" "$wrong" "$ignored"
    done
else
    # As cargo reports tests; `make test` adds them up.
    echo "test result: ok. 0 passed; 0 failed; ${#architectures[@]} ignored: no architecture could be tested"
fi
exit "$failed"
