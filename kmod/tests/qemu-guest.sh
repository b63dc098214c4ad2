#!/bin/busybox sh
# shellcheck shell=dash
# The run `vfio-qemu`, inside the guest: an unchanged QEMU that gives a device of this machine to a virtual machine, by VFIO,
# which pins all of its memory. The virtual machine does not run (-S). Prints libtest's lines.
export QEMU_MODULE_DIR=/
counters=/sys/class/misc/bulkmem
parameters=/sys/module/bulkmem/parameters
passed=0
failed=0
verdict() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "test qemu::$1 ... ok"
    else
        failed=$((failed + 1))
        echo "test qemu::$1 ... FAILED"
        cat /tmp/said
    fi
}

insmod /bulkmem.ko || exit 1
# Only a large extent reaches the threshold.
echo movnti >$parameters/method
echo 18446744073709551615 >$parameters/threshold
echo always >/sys/kernel/mm/transparent_hugepage/enabled

# The emulated IOMMU does not remap interrupts.
echo 1 >/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" "$device/device" | xargs)" = '0x1234 0x11e8' ] || continue
    edu=${device##*/}
    echo vfio-pci >"$device/driver_override"
    echo "$edu" >/sys/bus/pci/drivers_probe
done

# machine MEMORY [COMMAND…]: starts QEMU, by the command, with 64 MiB of memory and the device, and ends it.
machine() {
    memory=$1
    shift
    printf 'info pci\nquit\n' | "$@" qemu-system-x86_64 -accel tcg -S -nodefaults -display none -L / -machine q35,memory-backend=memory \
        -object "$memory,id=memory,size=64M" -device "vfio-pci,host=$edu" -monitor stdio >/tmp/said 2>&1
}
bulk() { cat $counters/movnti/bytes; }
hinted() { cat $counters/movnti/hinted; }

# starts NAME LEAST MOST MEMORY [COMMAND…]: how many MiB must be cleared past the cache: up to 64 of the virtual machine, and a few
# of a hinted QEMU itself.
starts() {
    name=$1 least=$2 most=$3
    shift 3
    bytes=$(bulk) hints=$(hinted)
    machine "$@" && grep -q 'PCI device 1234:11e8' /tmp/said
    status=$?
    bytes=$((($(bulk) - bytes) >> 20)) hints=$(($(hinted) - hints))
    echo "$bytes MiB of it in $hints extents past the cache" >>/tmp/said
    # The pages around a touched one are not.
    [ $bytes -ge "$least" ] && [ $bytes -le "$most" ] || status=1
    [ "$most" = 0 ] || [ $hints -gt 0 ] || status=1
    verdict "$name" $status
}

pool='memory-backend-file,mem-path=/dev/hugepages-2M'
transparent='memory-backend-ram'
for memory in $pool $transparent; do
    kind=${memory#memory-backend-}
    kind=${kind%%,*}
    echo 0 >$parameters/automatic
    starts "${kind}_stays_as_it_was" 0 0 "$memory"
    starts "${kind}_of_a_hinted_process" 60 80 "$memory" bulkmem run --bulk-hint --
    echo 1 >$parameters/automatic
    starts "${kind}_pinned_by_vfio" 60 64 "$memory"
done

word=ok
[ $failed = 0 ] || word=FAILED
echo "test result: $word. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
exit $failed
