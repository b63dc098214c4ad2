#!/usr/bin/env bash
# Tests uninstall-kmod.sh with a loaded module, in a guest, as root, first with the device open and then without; and what
# the systemd unit does to stop.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh

kernel=${1:?which kernel}
use_kernel "$kernel"
root=$KMOD_TARGET/guests/uninstall
rm -rf "$root" "$root.cpio"
trap 'rm -rf "$root" "$root.cpio"' EXIT
mkdir -p "$root/scripts"
add_program "$(command -v bash)" "$root"
cp scripts/common.sh scripts/uninstall-kmod.sh "$root/scripts"
cp kmod/install/bulkmem-kmod.service "$root/"
cp "$(module_file "$kernel" plain)" "$root/bulkmem.ko"
cat >"$root/todo" <<'END'
passed=0
failed=0
# verdict NAME COMMAND…: passes if the command succeeds.
verdict() {
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "test uninstall::$name ... ok"
    else
        failed=$((failed + 1))
        echo "test uninstall::$name ... FAILED"
        sed 's/^/    /' /tmp/said
    fi
}
uninstall() { BULKMEM_UNLOAD_SECONDS=$1 bash /scripts/uninstall-kmod.sh >/tmp/said 2>&1; }

# $$ is this shell, which has the device open.
says_who_is_in_the_way() {
    exec 3</dev/bulkmem
    uninstall 10
    result=$?
    exec 3<&-
    [ $result != 0 ] && [ -d /sys/module/bulkmem ] && [ ! -e /sys/kernel/livepatch/bulkmem ] &&
        grep -q 'error: the module does not unload' /tmp/said && grep -q "^  $$ (" /tmp/said
}
goes_on_where_it_stopped() { uninstall 60 && grep -q '^unloaded bulkmem' /tmp/said && [ ! -e /sys/module/bulkmem ]; }
takes_the_files() {
    insmod /bulkmem.ko || return
    file=/usr/lib/systemd/system/bulkmem-kmod.service
    mkdir -p /usr/src/bulkmem-0.0.0 "${file%/*}"
    touch $file
    uninstall 60 && [ ! -e /sys/module/bulkmem ] && [ ! -e $file ] && [ ! -e /usr/src/bulkmem-0.0.0 ]
}
is_happy_without() { uninstall 60 && ! grep -q '^unloaded' /tmp/said; }

the_unit_stops_it() {
    mkdir -p /sbin && ln -sf /bin/busybox /sbin/rmmod && insmod /bulkmem.ko || return
    sed -n 's/^ExecStop=//p' /bulkmem-kmod.service >/tmp/stop
    timeout 60 sh -e /tmp/stop >/tmp/said 2>&1 && [ ! -e /sys/module/bulkmem ]
}

insmod /bulkmem.ko
verdict says_who_is_in_the_way says_who_is_in_the_way
verdict goes_on_where_it_stopped goes_on_where_it_stopped
verdict takes_the_files takes_the_files
verdict is_happy_without is_happy_without
verdict the_unit_stops_it the_unit_stops_it
echo "test result: $([ $failed = 0 ] && echo ok || echo FAILED). $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
[ $failed = 0 ]
END
make_initramfs "$root.cpio" "$root"
logs=$KMOD_TARGET/logs/uninstall
boot_guest qemu "$logs" 200 "$root" '' || fail "the guest died before its end: $(tail -n 15 "$logs/console")"
cat "$logs/tests"
# shellcheck disable=SC2154 # boot_guest sets both
[[ -z $guest_trouble ]] || fail "$guest_trouble"
((guest_status == 0))
