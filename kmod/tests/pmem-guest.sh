#!/bin/busybox sh
# shellcheck shell=dash
# The guests of pmem.sh run this as /todo. The kernel passes unknown words of its command line on as variables:
#   pmem_part=format                 makes a namespace and an ext4 on it, and runs the tests that need them
#   pmem_part=write pmem_session=N pmem_before=N pmem_seed=S pmem_program=FILE pmem_map=sync|ordinary
#                                    checks the existing sessions, removes all but the previous one, and writes
#                                    records until it is killed
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

# A long commit interval: only MAP_SYNC, not a timer, must make the file system's records durable.
mount_it() {
    mkdir -p /pmem
    mount -t ext4 -o dax=always,commit=300 /dev/pmem0 /pmem || exit 1
}

case ${pmem_part?the kernel line says which part} in
format)
    until_it_is 20 ndctl create-namespace --mode=fsdax --reconfig=namespace0.0 --force
    until_it_is 100 test -b /dev/pmem0
    mkfs.ext4 -q -b 4096 /dev/pmem0 || exit 1
    mount_it
    bulkmem-kmod-tests --color never pmem::
    status=$?
    umount /pmem
    exit "$status"
    ;;
write)
    until_it_is 200 test -b /dev/pmem0
    mount_it
    dmesg | grep 'EXT4-fs (pmem0)'
    pmem-records check /pmem || exit 1
    for file in /pmem/*-*; do
        case $file in
        "/pmem/${pmem_before?}-"*) ;;
        *) rm -f "$file" ;;
        esac
    done
    "${pmem_program?}" write /pmem "${pmem_session?}" "${pmem_seed?}" "${pmem_map?}"
    ;;
check)
    until_it_is 200 test -b /dev/pmem0
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
