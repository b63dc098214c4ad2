#!/bin/busybox sh
# shellcheck shell=dash
# The guests of pmem.sh run this as /todo. The kernel passes unknown words of its command line on as variables:
#   pmem_part=format [pmem_tests=FILTER]
#                                    makes a namespace with an ext4 and one of device DAX, and runs the tests that need them
#   pmem_part=write pmem_session=N pmem_before=N pmem_seed=S pmem_program=FILE pmem_map=HOW
#                                    checks the existing sessions, removes all but the previous one, and writes
#                                    records until it is killed, to a mapping with MAP_SYNC (sync), without it (ordinary),
#                                    or, by libpmem, of
#       dax                          a file with MAP_SYNC
#       device                       device DAX
#       paged                        a file in the page cache, by msync
#       unsynced                     a file on DAX without MAP_SYNC, which libpmem does not know
#       forced                       a file in the page cache, which libpmem must take for persistent
#   pmem_part=check                  checks all sessions and the file system

# until_it_is TENTHS COMMAND…: retries for that many tenths of a second, because devices appear asynchronously.
until_it_is() {
    left=$1
    shift
    until "$@" >/tmp/said 2>&1; do
        left=$((left - 1))
        if [ "$left" = 0 ]; then
            echo "guest: still not done: $*"
            cat /tmp/said
            exit 1
        fi
        sleep 0.1
    done
}

# mount_it [DAX]: with a long commit interval: only MAP_SYNC, not a timer, must make the file system's records durable.
mount_it() {
    mkdir -p /pmem
    mount -t ext4 -o "dax=${1:-always},commit=300" /dev/pmem0 /pmem || exit 1
}

case ${pmem_part?the kernel line says which part} in
format)
    until_it_is 20 ndctl create-namespace --mode=fsdax --reconfig=namespace0.0 --force
    until_it_is 20 ndctl create-namespace --mode=devdax --reconfig=namespace1.0 --force
    until_it_is 100 test -b /dev/pmem0
    until_it_is 100 test -c /dev/dax1.0
    mkfs.ext4 -q -b 4096 /dev/pmem0 || exit 1
    mount_it
    bulkmem-kmod-tests --color never "${pmem_tests:-pmem::}"
    status=$?
    umount /pmem
    exit "$status"
    ;;
write)
    until_it_is 200 test -b /dev/pmem0
    until_it_is 200 test -c /dev/dax1.0
    how=sync
    dax=always
    preload=
    case ${pmem_map?} in
    ordinary) how=ordinary ;;
    paged)
        how=ordinary
        dax=never
        ;;
    unsynced) preload=without_map_sync.so ;;
    forced)
        export PMEM_IS_PMEM_FORCE=1
        dax=never
        ;;
    esac
    mount_it "$dax"
    dmesg | grep 'EXT4-fs (pmem0)'
    pmem-records check /pmem || exit 1
    for file in /pmem/*-*; do
        case $file in
        "/pmem/${pmem_before?}-"*) ;;
        *) rm -f "$file" ;;
        esac
    done
    # The link tells the checks of later boots the session's seed.
    [ "$pmem_map" != device ] || { ln -s /dev/dax1.0 "/pmem/${pmem_session?}-${pmem_seed?}" && sync; }
    LD_PRELOAD=$preload "${pmem_program?}" write /pmem "${pmem_session?}" "${pmem_seed?}" "$how"
    ;;
check)
    until_it_is 200 test -b /dev/pmem0
    until_it_is 200 test -c /dev/dax1.0
    mount_it
    dmesg | grep 'EXT4-fs (pmem0)'
    pmem-records check /pmem || exit 1
    umount /pmem
    e2fsck -fn /dev/pmem0
    ;;
*)
    echo "guest: no part ${pmem_part}"
    exit 1
    ;;
esac
