#!/usr/bin/env bash
# Runs those of PMDK's tests of libpmem that need device DAX in a virtual machine with an NVDIMM, the one of kmod/tests. Called by
# pmdk-tests.sh, which has built the programs: scripts/pmdk-device-dax.sh TESTS-FOLDER DEBIAN'S-LIBPMEM OUR-LIBPMEM
# Prints for each test and library `TEST debian|ours passed|FAILED`. Ends with 3 if there is no virtual machine, and says why.
set -euo pipefail
tests=$(realpath "$1")
declare -A library=([debian]=$(realpath "$2") [ours]=$(realpath "$3"))
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh

kernel=6.12
none() {
    echo "$*"
    exit 3
}
[[ -n $(cached_release $kernel) ]] || none "kernel $kernel is not in $KMOD_CACHE; remedy: scripts/test-kmod.sh pmem-6.12"
for program in qemu-system-x86_64 ndctl busybox cpio strace; do
    command -v $program >/dev/null || none "$program is not installed; remedy: scripts/test-kmod.sh pmem-6.12, apt-get install strace"
done
use_kernel $kernel

# TEST, its program, and its arguments after the name of the device, as the test's script has them.
map_file=
for flags in '0 D' '0 DSC' '0 DT' '0 DCE' '0 DC' '2097152 DC'; do map_file+=" DEVICE $flags 0666 1 1 0"; done
cases="pmem_deep_persist/TEST2 DEVICE p -1 0
pmem_deep_persist/TEST3 DEVICE m -1 0
pmem_map_file/TEST2$map_file"

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
root=$temporary/root
for program in ndctl strace; do add_program "$(command -v $program)" "$root"; done
add_program "$tests/pmem_deep_persist/pmem_deep_persist.program" "$root"
add_program "$tests/pmem_map_file/pmem_map_file" "$root"
for which in debian ours; do
    install -D "${library[$which]}" "$temporary/$which/libpmem.so.1"
    add_program "$temporary/$which/libpmem.so.1" "$root" "$which"
done
add_kernel_modules "$root" nfit nd_e820 nd_pmem dax_pmem device_dax
echo "$cases" >"$root/cases"
# For each program, its status, whether it loaded the right library, the calls that PMDK's tests count in its debug log, and what it
# printed.
cat >"$root/todo" <<'END'
#!/bin/busybox sh
left=20
until ndctl create-namespace --mode=devdax --reconfig=namespace0.0 --force >/tmp/said 2>&1 && [ -c /dev/dax0.0 ]; do
    left=$((left - 1))
    [ $left != 0 ] || { cat /tmp/said; exit 1; }
    sleep 0.2
done
for which in debian ours; do
    while read -r test arguments; do
        folder=/results/$which/$test
        mkdir -p "$folder"
        cd "$folder" || exit 1
        program=/bin/${test%/*}
        [ -e "$program" ] || program=$program.program
        export UNITTEST_NAME="$test" UNITTEST_NUM="${test#*/TEST}" UNITTEST_LOG_LEVEL=1
        # shellcheck disable=SC2046 # the arguments are words
        strace -o calls -E LD_LIBRARY_PATH=/$which:/lib/x86_64-linux-gnu "$program" $(echo "$arguments" | sed 's,DEVICE,/dev/dax0.0,g') \
            >/dev/null 2>errors
        echo "=== $which $test status $?"
        grep -q "openat.*\"/$which/libpmem.so.1\".* = [0-9]" calls && echo "=== loaded"
        echo "=== syncs $(grep -c '^msync' calls) flushes $(grep -c 'openat.*/deep_flush"' calls)"
        cat "out$UNITTEST_NUM.log"
        cat "err$UNITTEST_NUM.log" errors
    done </cases
done
echo "=== end"
END
make_initramfs "$root.cpio" "$root"
truncate -s 130M "$temporary/nvdimm"
boot_guest qemu "$temporary/logs" 240 "$root" '' -machine "q35,nvdimm=on,nvdimm-persistence=mem-ctrl" -smp 1 -m "1G,slots=1,maxmem=2G" \
    -object "memory-backend-file,id=nvdimm,share=on,mem-path=$temporary/nvdimm,size=130M,align=2M" \
    -device nvdimm,id=nvdimm0,memdev=nvdimm,label-size=2M ||
    fail "the virtual machine died: $(tail -n 5 "$temporary"/logs/{screen,console,tests})"
log=$temporary/logs/tests
[[ $guest_status == 0 && -z $guest_trouble ]] || fail "the virtual machine: status $guest_status, $guest_trouble $(tail -n 15 "$log")"

# judged WHICH TEST: compares what a program printed with PMDK's expectation. In TEST2 of pmem_deep_persist, libpmem maps the device
# and knows what it is: no msync, and the region's deep_flush is read. (Debian's reads that when it maps, too.) In TEST3, the program
# maps it: msync, which device DAX refuses.
judged() {
    local number=${2#*TEST} folder=$temporary/results/$1/$2 calls
    mkdir -p "$folder"
    awk -v start="=== $1 $2 status " '/^=== (debian|ours|end)/ { on = index($0, start) == 1 } on' "$log" >"$folder/all"
    grep -v '^=== ' "$folder/all" >"$folder/out$number.log" || true
    cp "$tests/${2%/*}/out$number.log.match" "$folder/"
    calls=$(sed -n 's/^=== syncs \(.*\) flushes \(.*\)/\1 \2/p' "$folder/all")
    case $2 in
        pmem_deep_persist/TEST2) [[ $calls =~ ^0\ [1-9] ]] || return ;;
        pmem_deep_persist/TEST3) [[ $calls == '1 0' ]] || return ;;
    esac
    grep -qx "=== $1 $2 status 0" "$folder/all" && grep -qx '=== loaded' "$folder/all" && (cd "$folder" && "$tests/match" "out$number.log.match")
}
while read -r test _; do
    for which in debian ours; do
        if judged "$which" "$test" >"$temporary/said" 2>&1; then
            echo "$test $which passed"
        else
            echo "$test $which FAILED"
            cat "$temporary/said" "$temporary/results/$which/$test/all" >&2
        fi
    done
done <<<"$cases"
