#!/usr/bin/env bash
# Tests persistent memory in a virtual machine: what the library, or our libpmem.so.1, persisted must exist after the machine
# was killed at a random moment and booted again. Prints libtest's lines. test-kmod.sh fetches and builds everything first.
#   kmod/tests/pmem.sh NAME KERNEL KILLS BULKMEM LIBPMEM HOW…
# HOW is a mapping by libpmem (pmem-guest.sh lists them), and is killed once.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh

name=$1
use_kernel "$2"
kills=${BULKMEM_PMEM_KILLS:-$3}
command=$4
libpmem=$5
shift 5
seed=${BULKMEM_PMEM_SEED:-$((SRANDOM % 1000000))}
RANDOM=$seed

logs=$KMOD_TARGET/logs/$name
root=$KMOD_TARGET/guests/$name
memory=$KMOD_TARGET/guests/$name.nvdimm
rm -rf "$logs"
mkdir -p "$logs" "$root"
trap 'rm -rf "$root" "$root.cpio" "$memory" "$memory.device"' EXIT

# 512 MiB for a file system and 128 MiB for device DAX, each in a file, after 2 MiB for the labels of the namespaces. As on
# hardware, data that has reached the memory controller survives.
# shellcheck disable=SC2054 # QEMU wants commas
nvdimm=(-machine "q35,nvdimm=on,nvdimm-persistence=mem-ctrl" -smp 1 -m "1G,slots=2,maxmem=4G"
    -object "memory-backend-file,id=nvdimm,share=on,mem-path=$memory,size=514M,align=2M"
    -device nvdimm,id=nvdimm0,memdev=nvdimm,label-size=2M
    -object memory-backend-file,id=device,share=on,mem-path="$memory.device",size=130M,align=2M
    -device nvdimm,id=nvdimm1,memdev=device,label-size=2M)

finish() {
    result
    exit $((failed > 0))
}

make_root() {
    local program
    rm -rf "$root"
    mkdir -p "$root"
    for program in ndctl mkfs.ext4 e2fsck; do
        add_program "$(command -v "$program")" "$root"
    done
    for program in "$command" "$TARGET_DIR"/debug/{bulkmem-kmod-tests,pmem-records{,-unflushed,-libpmem}}; do
        add_program "$program" "$root"
    done
    # Where the guest's dynamic linker looks.
    for program in "$libpmem" "${libpmem%/*}/without_map_sync.so"; do
        add_program "$program" "$root" lib/x86_64-linux-gnu
    done
    add_kernel_modules "$root" nfit nd_e820 nd_pmem crc32c_generic ext4 dax_pmem device_dax
    echo "$name" >"$root/name"
    cp kmod/tests/pmem-guest.sh "$root/todo"
    make_initramfs "$root.cpio" "$root"
    rm -rf "$root"
    rm -f "$memory" "$memory.device"
    truncate -s 514M "$memory"
    truncate -s 130M "$memory.device"
}

# to_the_end NAME KERNEL_LINE QEMU_ARGUMENTS…: boots for a part that is not killed; sets trouble.
to_the_end() {
    local end='' line=$2
    boot_guest qemu "$logs/$1" 240 "$root" "$line" "${@:3}" ||
        end="the guest died before its end. The console's last lines:
$(tail -n 15 "$logs/$1/console" 2>/dev/null)"
    [[ -z $end && $guest_status != 0 ]] && end="the guest ended with status $guest_status:
$(tail -n 15 "$logs/$1/tests")"
    trouble=$end${guest_trouble:+$'\n'$guest_trouble}
}

# The number of acknowledged records of each session.
declare -A acknowledged=()

# kill_while_it_writes LOGS MILLISECONDS: kills the machine that long after its first acknowledgement, and creates LOGS/killed.
kill_while_it_writes() {
    local process tenths=0
    until grep -qs '^ack ' "$1/tests"; do
        # Stop with this script, too.
        ((tenths++ < 1200)) && kill -0 $$ 2>/dev/null || return 0
        sleep 0.1
    done
    sleep "$(($2 / 1000)).$(printf '%03d' $(($2 % 1000)))"
    process=$(cat "$1/pid")
    grep -qs "$memory" "/proc/$process/cmdline" || return 0
    touch "$1/killed"
    kill -KILL "$process" || rm "$1/killed"
}

# kill_one SESSION BEFORE PROGRAM MAP: boots, lets the guest write for a random time, and kills the machine; sets trouble.
kill_one() {
    local session=$1 before=$2 program=$3 map=$4 here=$logs/$1 killer
    # Milliseconds between the first acknowledgement and the kill.
    local moment=$((200 + RANDOM % 1800))
    local session_seed=$((RANDOM * 32768 + RANDOM))
    trouble=
    mkdir -p "$here"
    touch "$here"/{console,tests}
    # The killer runs in the background: the machine must be this shell's child, to end with it.
    kill_while_it_writes "$here" "$moment" &
    killer=$!
    qemu 150 -kernel "$kernel_image" -initrd "$root.cpio" \
        -append "$GUEST_KERNEL_LINE pmem_part=write pmem_session=$session pmem_before=$before pmem_seed=$session_seed pmem_program=$program pmem_map=$map" \
        -serial "file:$here/console" -serial "file:$here/tests" -serial "file:$here/kernel" -pidfile "$here/pid" \
        "${nvdimm[@]}" >"$here/screen" 2>&1 || true
    kill "$killer" 2>/dev/null || true
    wait "$killer" 2>/dev/null || true
    [[ -f $here/killed ]] || trouble="the machine was not killed, but ended: $(tail -n 3 "$here/screen")"
    sed -i 's/\r$//' "$here/tests"
    acknowledged[$session]=$(complete_lines "$here/tests" | awk '/^ack [0-9]+$/ { last = $2 + 1 } END { print last + 0 }')
    if ((acknowledged[$session] == 0)); then
        trouble+="${trouble:+$'\n'}no record was acknowledged within 2 minutes:
$(tail -n 15 "$here/tests" "$here/console")"
    fi
    trouble+=$(grep -aE "$KERNEL_TROUBLE" "$here/console" | head -n 20 || true)
    echo "$session: killed $moment ms after the first of ${acknowledged[$session]} acknowledgements, seed $session_seed"
}

# complete_lines FILE: omits an unterminated last line, which may contain half a number.
complete_lines() {
    if [[ -n $(tail -c 1 "$1") ]]; then sed '$d' "$1"; else cat "$1"; fi
}

# left SESSION WHAT: prints the number found for a session; the smallest, if several boots checked it.
left() {
    awk -v session="$1:" -v what="$2" '$1 == "checked" && $2 == session {
        for (at = 3; at < NF; at += 2)
            if ($at == what && (!found++ || $(at + 1) < least)) least = $(at + 1)
    } END { print least + 0 }' "$logs"/*/tests
}

# lost SESSION: prints how many acknowledged records are missing.
lost() {
    local lost=$((acknowledged[$1] - $(left "$1" whole)))
    echo $((lost > 0 ? lost : 0))
}

# judged SESSION: prints the problems with a session's records.
judged() {
    local whole counted
    whole=$(left "$1" whole)
    counted=$(left "$1" counted)
    (($(lost "$1") == 0)) || echo "of ${acknowledged[$1]} acknowledged records only the first $whole are complete"
    ((counted >= acknowledged[$1])) || echo "${acknowledged[$1]} records were acknowledged, but the count is $counted"
    ((counted <= whole)) || echo "the count is $counted, but only $whole records are complete"
}

# replayed LOG: prints a problem if a boot after a kill did not replay the journal.
replayed() {
    grep -qs 'recovery complete' "$1" || echo "the journal was not replayed: $(grep -s EXT4-fs "$1")"
}

echo "kernel $kernel_release; BULKMEM_PMEM_SEED=$seed repeats the moments (logs: $logs)"
make_root
to_the_end format pmem_part=format "${nvdimm[@]}"
cat "$logs/format/tests" 2>/dev/null || true
verdict "a_file_system_on_dax_serves" "$trouble"
((failed == 0)) || finish
# The same without an NVDIMM: parts of ordinary memory that the kernel takes for persistent memory.
to_the_end emulated 'pmem_part=format pmem_tests=pmem::bench memmap=128M!384M memmap=64M!576M' -smp 1 -m 1G
cat "$logs/emulated/tests" 2>/dev/null || true
verdict "a_file_system_on_emulated_dax_serves" "$trouble"

sessions=()
for ((count = 1; count <= kills; count++)); do
    sessions+=("persisted-$count")
done
# Records written without MAP_SYNC, or to the page cache without msync, are lost.
controls=(unsynced)
for how in "$@"; do
    case $how in
    unsynced | forced) controls+=("libpmem-$how") ;;
    *) sessions+=("libpmem-$how") ;;
    esac
done
before=none
for session in "${sessions[@]}" unflushed "${controls[@]}"; do
    case $session in
    unflushed) kill_one "$session" "$before" pmem-records-unflushed sync ;;
    unsynced) kill_one "$session" "$before" pmem-records ordinary ;;
    libpmem-*) kill_one "$session" "$before" pmem-records-libpmem "${session#*-}" ;;
    *) kill_one "$session" "$before" pmem-records sync ;;
    esac
    [[ $before == none ]] || trouble+=${trouble:+$'\n'}$(replayed "$logs/$session/tests")
    before=$session
    verdict "$session::is_killed_while_it_writes" "$trouble"
done
grep -hm 1 '^ways: ' "$logs/persisted-1/tests" "$logs"/libpmem-{device,paged}/tests 2>/dev/null || true

to_the_end check pmem_part=check "${nvdimm[@]}"
verdict "the_last_boot_finds_a_sound_file_system" "$trouble${trouble:+$'\n'}$(replayed "$logs/check/tests")"
for session in "${sessions[@]}"; do
    verdict "$session::what_was_acknowledged_is_there" "$(judged "$session")"
done
for session in "${controls[@]}"; do
    verdict "$session::losses_are_detected" \
        "$( (($(lost "$session") > 0)) || echo "all ${acknowledged[$session]} exist: this check would not detect a loss")"
done

for session in "${sessions[@]}" unflushed "${controls[@]}"; do
    echo "found: $session: ${acknowledged[$session]} acknowledged, $(left "$session" whole) whole, $(left "$session" torn) torn"
done
echo "found: without flush and fence, $(lost unflushed) of ${acknowledged[unflushed]} acknowledged records were lost." \
    "Emulation has no cache that a kill could lose: crates/bulkmem/tests/durable.rs checks flush and fence instead."
finish
