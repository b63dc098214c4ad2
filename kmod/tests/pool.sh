#!/usr/bin/env bash
# Tests the units of `bulkmem pool` in a virtual machine that runs Debian's systemd: as `make install` installs them, and as
# docs/pool.md starts them. Prints libtest's lines. test-kmod.sh fetches and builds everything first.
#   kmod/tests/pool.sh NAME KERNEL BULKMEM
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh
# shellcheck disable=SC2154 # use_kernel and boot_guest set variables

name=$1
use_kernel "$2"
bulkmem=$3
logs=$KMOD_TARGET/logs/$name
root=$KMOD_TARGET/guests/$name
rm -rf "$logs" "$root"
trap 'rm -rf "$root" "$root.cpio"' EXIT

# As in Debian, /bin and /lib are links.
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/etc/{default,systemd/system/multi-user.target.wants} "$root"/{var/tmp,run}
for folder in bin sbin lib lib64; do
    ln -s "usr/$folder" "$root/$folder"
done
BULKMEM=$bulkmem PREFIX=/usr/local DESTDIR=$root scripts/install.sh
# Without debug information, and with its libraries.
add_program "$bulkmem" "$root" usr/local/bin
for program in systemd systemd-journald; do
    add_program "/lib/systemd/$program" "$root" lib/systemd
done
# busybox has a setpriv that does less, which its shell prefers to one on the PATH.
for program in systemctl systemd-sysusers setpriv; do
    add_program "$(command -v "$program")" "$root" usr/local/bin
done
# The targets of a machine without disks and networks.
units=$root/lib/systemd/system
mkdir -p "$units"/{sysinit,sockets}.target.wants
for unit in {basic,sysinit,sockets,timers,paths,slices,swap,local-fs,multi-user,shutdown,umount}.target systemd-journald.{service,socket}; do
    add_file "/lib/systemd/system/$unit" "$root" "lib/systemd/system/$unit"
done
ln -s multi-user.target "$units/default.target"
ln -s ../systemd-journald.service "$units/sysinit.target.wants/"
ln -s ../systemd-journald.socket "$units/sockets.target.wants/"
# With an identity, systemd does not take this for the first boot, at which it would enable units.
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
echo 'ID=bulkmem-tests' >"$root/etc/os-release"
cat >"$root/etc/passwd" <<'END'
root:x:0:0:root:/root:/bin/sh
alice:x:20001:20001::/:/bin/sh
bob:x:20002:20002::/:/bin/sh
mallory:x:20003:20003::/:/bin/sh
END
printf '%s\n' root:x:0: alice:x:20001: bob:x:20002: mallory:x:20003: >"$root/etc/group"
printf '%s\n' '[Journal]' Storage=volatile ForwardToConsole=yes ReadKMsg=no Audit=no >"$root/etc/systemd/journald.conf"
cat >"$root/etc/systemd/system.conf" <<'END'
[Manager]
DefaultEnvironment=GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:glibc.cpu.x86_rep_stosb_threshold=0x7fffffff
END
cat >"$root/etc/systemd/system/tests.service" <<'END'
[Service]
ExecStart=/bin/busybox sh /todo
# A test has the kernel end its child.
OOMPolicy=continue
END
ln -s ../tests.service "$root/etc/systemd/system/multi-user.target.wants/tests.service"
cp kmod/tests/pool-guest.sh "$root/todo"
make_initramfs "$root.cpio" "$root" kmod/tests/pool-init

end=
boot_guest qemu "$logs" 600 "$root" 'hugepagesz=2M hugepages=24 printk.devkmsg=on' -m 1G ||
    end="the guest died before its end. The console's last lines:
$(tail -n 25 "$logs/console" 2>/dev/null || echo none)"
echo "kernel $kernel_release, $(/lib/systemd/systemd --version | head -n 1) (logs: $logs)"
cat "$logs/tests" 2>/dev/null || true
[[ -z $end && $guest_status != 0 ]] && end="its tests ended with status $guest_status: see above. The console's last lines:
$(tail -n 25 "$logs/console")"
verdict "reaches_its_end" "$end"
verdict "kernel_has_no_complaint" "$guest_trouble"
result
((failed == 0))
