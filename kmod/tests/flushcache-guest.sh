#!/bin/busybox sh
# shellcheck shell=dash
# The guests of flushcache.sh run this as /todo. /dev/vda is slow memory, pmem0 its cache by dm-writecache, pmem1 a file
# system on DAX. The kernel passes unknown words of its command line on as variables:
#   fc_part=create                   makes both file systems
#   fc_part=write fc_method=METHOD fc_before=METHOD
#                                    checks what the boot before wrote; then copies everything by METHOD: writes and verifies
#                                    files by fio, then writes and acknowledges blocks until the machine is killed
#   fc_part=check fc_before=METHOD   checks, and checks the file systems
#   fc_part=planted                  as write, with a module that leaves bytes out, and is not killed: fio must complain
counters=/sys/class/misc/bulkmem/flushcache

# die TEXT: ends the guest.
die() {
    echo "guest: $*"
    cat /tmp/said 2>/dev/null
    exit 1
}

# until_it_is TENTHS COMMAND…: retries for that many tenths of a second, because devices appear asynchronously.
until_it_is() {
    left=$1
    shift
    until "$@" >/tmp/said 2>&1; do
        left=$((left - 1))
        [ "$left" != 0 ] || die "still not done: $*"
        sleep 0.1
    done
}

# attach: creates the cached device, which replays what the cache contains. Blocks of 512 bytes: for 768 bytes and more,
# dm-writecache does not call __memcpy_flushcache() on processors with CLFLUSHOPT.
attach() {
    until_it_is 200 test -b /dev/pmem0
    until_it_is 200 test -b /dev/pmem1
    until_it_is 200 test -b /dev/vda
    dmsetup create --noudevrules --noudevsync cached \
        --table "0 $(blockdev --getsz /dev/vda) writecache p /dev/vda /dev/pmem0 512 0" >/tmp/said 2>&1 || die "no dm-writecache"
    until_it_is 100 test -b /dev/dm-0
}

# attach_all: also mounts.
attach_all() {
    attach
    mkdir -p /cached /dax
    mount -t ext4 /dev/dm-0 /cached || die "the cached file system cannot be mounted"
    mount -t ext4 -o dax=always /dev/pmem1 /dax || die "the file system on DAX cannot be mounted"
    dmesg | grep 'EXT4-fs (\(dm-0\|pmem1\))'
}

# job FOLDER METHOD OPTIONS…: the fio job that writes, or with --verify_only verifies, the file of a method.
job() {
    folder=$1
    name=$2
    shift 2
    fio --name="$name" --filename="$folder/$name" --rw=randwrite --size=2m --verify=crc32c --verify_fatal=1 --randrepeat=1 \
        --bsrange=512-16k "$@" >/tmp/said 2>&1 && grep -q 'err= 0' /tmp/said
}
# Direct, through dm-writecache.
cached_job() { job /cached "$1" --ioengine=psync --direct=1 --end_fsync=1 "$2"; }
# By splice: the kernel copies from its own pages, so not by __copy_user_flushcache().
dax_job() { job /dax "$1" --ioengine=splice --end_fsync=1 "$2"; }

# block NUMBER: prints the content of a block: lines with its number.
block() { yes "block $1 of $fc_method" | head -c 4096; }

# intact FOLDER METHOD: prints the number of blocks at the start of the file that are as they must be.
intact() {
    fc_method=$2
    number=0
    while dd if="$1/$2.blocks" bs=4096 skip="$number" count=1 2>/dev/null >/tmp/there && block "$number" >/tmp/wanted &&
        cmp -s /tmp/there /tmp/wanted; do
        number=$((number + 1))
    done
    echo "$number"
}

# check METHOD: checks what a boot with this method has written.
check() {
    [ "$1" != none ] || return 0
    echo "intact $1: $(intact /cached "$1") $(intact /dax "$1")"
    cached_job "$1" --verify_only || die "after $1: the cached file is damaged"
    dax_job "$1" --verify_only || die "after $1: the file on DAX is damaged"
    echo "verified $1"
}

# load FILE METHOD: loads the module, which then copies everything by METHOD.
load() {
    insmod "$1" flushcache=1 "flushcache_method=$2" flushcache_threshold=0 || die "the module does not load"
    until_it_is 600 grep -qx 0 /sys/kernel/livepatch/bulkmem/transition
}

# copied METHOD: prints the bytes that it has copied.
copied() { cat "$counters/$1_bytes"; }

# counted METHOD BEFORE WHAT: the method, and no other, has copied at least a megabyte since.
counted() {
    now=$(copied "$1")
    echo "$1 copied $((now - $2)) bytes for $3"
    [ $((now - $2)) -ge 1048576 ] || die "that is too little"
    for other in "$counters"/*_calls; do
        case $other in
        */"$1"_calls) ;;
        *) [ "$(cat "$other")" = 0 ] || die "$other has counted, too" ;;
        esac
    done
}

case ${fc_part?the kernel line says which part} in
create)
    until_it_is 20 ndctl create-namespace --mode=fsdax --reconfig=namespace0.0 --force
    until_it_is 20 ndctl create-namespace --mode=fsdax --reconfig=namespace1.0 --force
    attach
    mkfs.ext4 -q -b 4096 /dev/dm-0 || exit 1
    mkfs.ext4 -q -b 4096 /dev/pmem1 || exit 1
    ;;
write)
    load /bulkmem.ko "${fc_method?}"
    attach_all
    method=$fc_method
    check "${fc_before?}"
    fc_method=$method
    rm -f "/cached/$fc_before"* "/dax/$fc_before"*
    before=$(copied "$fc_method")
    cached_job "$fc_method" --do_verify=1 || die "fio finds a damaged file by dm-writecache"
    counted "$fc_method" "$before" dm-writecache
    before=$(copied "$fc_method")
    dax_job "$fc_method" --do_verify=1 || die "fio finds a damaged file on DAX"
    counted "$fc_method" "$before" DAX
    sync
    number=0
    while :; do
        block "$number" >/tmp/block
        for folder in /cached /dax; do
            dd if=/tmp/block of="$folder/$fc_method.blocks" bs=4096 seek="$number" conv=notrunc,fsync 2>/tmp/said || die "cannot write"
        done
        echo "ack $number"
        number=$((number + 1))
    done
    ;;
planted)
    load /planted.ko stock
    attach_all
    if cached_job planted --do_verify=1; then
        die "fio finds no damage by dm-writecache, although the module leaves bytes out"
    fi
    grep -m 1 'verify failed' /tmp/said || die "fio failed, but not because of the content"
    ;;
check)
    attach_all
    check "${fc_before?}"
    umount /cached /dax
    e2fsck -fn /dev/dm-0 && e2fsck -fn /dev/pmem1
    ;;
*)
    die "no part ${fc_part}"
    ;;
esac
