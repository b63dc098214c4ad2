#!/bin/busybox sh
# shellcheck shell=dash
# What the guests of pmem.sh run, as /todo. The kernel hands on what its command line says that it does not know itself:
#   pmem_part=format                 makes a namespace and an ext4 on it, and tests what they are good for
#   pmem_part=write pmem_session=N pmem_before=N pmem_seed=S pmem_program=FILE pmem_map=sync|ordinary
#                                    checks the sessions that are there, removes all but the one before, and writes
#                                    records until it is killed
#   pmem_part=check                  checks all sessions and the file system

# until_it_is TENTHS COMMAND…: drivers make devices when they are ready.
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

# Only what MAP_SYNC asks for is to take the file system's records to the memory: not the passing of time.
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
