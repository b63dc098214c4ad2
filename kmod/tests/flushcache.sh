#!/usr/bin/env bash
# Tests copies to persistent memory by each method with their users in the kernel: dm-writecache, and ext4 on DAX. Kills the
# machine while it writes, boots it again, and checks everything that was acknowledged. Prints libtest's lines. test-kmod.sh
# fetches and builds everything first.
#   kmod/tests/flushcache.sh NAME KERNEL VARIANT METHOD…
# VARIANT is a module that leaves bytes out.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh

name=$1
kernel=$2
variant=$3
use_kernel "$kernel"
shift 3
methods=("$@")
seed=${BULKMEM_PMEM_SEED:-$((SRANDOM % 1000000))}
RANDOM=$seed

logs=$KMOD_TARGET/logs/$name
root=$KMOD_TARGET/guests/$name
disk=$KMOD_TARGET/guests/$name.disk
rm -rf "$logs"
mkdir -p "$logs" "$root"
trap 'rm -rf "$root" "$root.cpio" "$disk" "$disk.cache" "$disk.dax"' EXIT

# The files are in this machine's page cache, which survives the end of QEMU.
# shellcheck disable=SC2054 # QEMU wants commas
machine=(-machine "q35,nvdimm=on,nvdimm-persistence=mem-ctrl" -smp 1 -m "1G,slots=2,maxmem=4G"
    -object "memory-backend-file,id=cache,share=on,mem-path=$disk.cache,size=66M,align=2M"
    -device nvdimm,id=nvdimm0,memdev=cache,label-size=2M
    -object "memory-backend-file,id=dax,share=on,mem-path=$disk.dax,size=66M,align=2M"
    -device nvdimm,id=nvdimm1,memdev=dax,label-size=2M
    -drive "file=$disk,format=raw,if=virtio")

make_root() {
    local program
    rm -rf "$root"
    mkdir -p "$root"
    for program in ndctl mkfs.ext4 e2fsck dmsetup fio; do
        add_program "$(command -v "$program")" "$root"
    done
    add_kernel_modules "$root" nfit nd_pmem crc32c_generic ext4 virtio_pci virtio_blk dm-writecache
    cp "$(module_file "$kernel" plain)" "$root/bulkmem.ko"
    cp "$(module_file "$kernel" "$variant")" "$root/planted.ko"
    echo "$name" >"$root/name"
    cp kmod/tests/flushcache-guest.sh "$root/todo"
    make_initramfs "$root.cpio" "$root"
    rm -rf "$root"
    rm -f "$disk" "$disk".*
    truncate -s 64M "$disk"
    truncate -s 66M "$disk.cache" "$disk.dax"
}

# to_the_end NAME WORDS: boots for a part that is not killed; sets trouble.
to_the_end() {
    local end=''
    boot_guest qemu "$logs/$1" 400 "$root" "$2" "${machine[@]}" || end="the guest died before its end. The console's last lines:
$(tail -n 15 "$logs/$1/console" 2>/dev/null)"
    [[ -z $end && $guest_status != 0 ]] && end="the guest ended with status $guest_status:
$(tail -n 15 "$logs/$1/tests")"
    trouble=$end${guest_trouble:+$'\n'$guest_trouble}
}

# kill_after LOGS MILLISECONDS: kills the machine that long after its first acknowledgement, and creates LOGS/killed.
kill_after() {
    local process tenths=0
    until grep -qs '^ack ' "$1/tests"; do
        ((tenths++ < 4000)) && kill -0 $$ 2>/dev/null || return 0
        sleep 0.1
    done
    sleep "$(($2 / 1000)).$(printf '%03d' $(($2 % 1000)))"
    process=$(cat "$1/pid")
    grep -qs "$disk" "/proc/$process/cmdline" || return 0
    touch "$1/killed"
    kill -KILL "$process" || rm "$1/killed"
}

# The number of acknowledged blocks of each method.
declare -A acknowledged=()

# kill_one METHOD BEFORE: boots, lets the guest write by METHOD for a random time, and kills the machine; sets trouble.
kill_one() {
    local method=$1 here=$logs/$1 moment=$((300 + RANDOM % 2500)) killer
    trouble=
    mkdir -p "$here"
    touch "$here"/{console,tests}
    # In the background: the machine must be this shell's child, to end with it.
    kill_after "$here" "$moment" &
    killer=$!
    qemu 450 -kernel "$kernel_root/boot/vmlinuz-$kernel_release" -initrd "$root.cpio" \
        -append "$GUEST_KERNEL_LINE fc_part=write fc_method=$method fc_before=$2" -serial "file:$here/console" \
        -serial "file:$here/tests" -serial "file:$here/kernel" -pidfile "$here/pid" "${machine[@]}" >"$here/screen" 2>&1 || true
    kill "$killer" 2>/dev/null || true
    wait "$killer" 2>/dev/null || true
    sed -i 's/\r$//' "$here/tests"
    [[ -f $here/killed ]] || trouble="the machine was not killed, but ended: $(tail -n 15 "$here"/{screen,tests,console})"
    # Not an unterminated last line.
    acknowledged[$method]=$(sed -n '/^ack [0-9]*$/p' "$here/tests" | head -n -1 | awk '{ last = $2 + 1 } END { print last + 0 }')
    trouble+=$(complaints "$here/console")
    echo "$method: killed $moment ms after the first of ${acknowledged[$method]} acknowledgements"
}

# judged METHOD NEXT: prints the problems that the boot NEXT has found.
judged() {
    local cached dax log=$logs/$2/tests
    read -r cached dax <<<"$(sed -n "s/^intact $1: //p" "$log")"
    ((${cached:-0} >= acknowledged[$1])) || echo "dm-writecache: of ${acknowledged[$1]} acknowledged blocks only ${cached:-0} are there"
    ((${dax:-0} >= acknowledged[$1])) || echo "DAX: of ${acknowledged[$1]} acknowledged blocks only ${dax:-0} are there"
    grep -qx "verified $1" "$log" || echo "fio did not verify what it wrote before the kill: $(tail -n 5 "$log")"
    (($(grep -c 'EXT4-fs (.*recovery complete' "$log") == 2)) || echo "the journals were not replayed: $(grep EXT4-fs "$log")"
}

echo "kernel $kernel_release; BULKMEM_PMEM_SEED=$seed repeats the moments (logs: $logs)"
make_root
to_the_end create fc_part=create
verdict "dm_writecache_and_dax_can_be_created" "$trouble"
if ((failed == 0)); then
    before=none
    for method in "${methods[@]}"; do
        kill_one "$method" "$before"
        verdict "$method::copies_everything_and_is_killed" "$trouble"
        [[ $before == none ]] || verdict "$before::everything_is_there_after_the_kill" "$(judged "$before" "$method")"
        before=$method
    done
    to_the_end check "fc_part=check fc_before=$before"
    verdict "$before::everything_is_there_after_the_kill" "$(judged "$before" check)"
    verdict "the_last_boot_finds_sound_file_systems" "$trouble"
    to_the_end planted fc_part=planted
    verdict "a_module_that_leaves_bytes_out_is_detected" "$trouble"
    grep -h 'bytes for' "$logs"/*/tests || true
fi
result
exit $((failed > 0))
