#!/usr/bin/env bash
# Checks that the debug kernel reports planted faults, and that the tests take each report for a failure. Prints libtest's
# lines. test-kmod.sh builds everything first.
#   kmod/tests/debug-reports.sh NAME KERNEL
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh
# shellcheck source=kmod/tests/guest.sh
. kmod/tests/guest.sh

name=$1
kernel=$2
use_kernel "$kernel"
logs=$KMOD_TARGET/logs/$name
root=$KMOD_TARGET/guests/$name
# lockdep ends with its first report, and with one of KASAN, so its faults are in boots of their own.
boots=('none' 'order' 'rcu' 'sleep freed beyond vm')
declare -A expected=([none]='' [freed]='KASAN: .*use-after-free' [beyond]='KASAN: .*out-of-bounds' [order]='possible circular locking'
    [sleep]='BUG: sleeping function called from invalid context' [rcu]='suspicious RCU usage' [vm]='WARNING: CPU')

trap 'rm -rf "$root" "$root.cpio"' EXIT
rm -rf "$logs"
for boot in "${boots[@]}"; do
    rm -rf "$root"
    mkdir -p "$root"
    cp "$(helpers "$kernel")/bulkmem_report.ko" "$root/"
    for fault in $boot; do
        printf 'insmod /bulkmem_report.ko fault=%s && rmmod bulkmem_report || exit 1\n' "$fault"
    done >"$root/todo"
    make_initramfs "$root.cpio" "$root"
    # Later words override: a report must not end the guest before the next fault.
    boot_guest qemu "$logs/boot-${boot// /-}" 900 "$root" 'panic_on_warn=0 kasan_multi_shot' ||
        guest_trouble+="the guest died before its end: $(tail -n 15 "$logs/boot-${boot// /-}/console")"
    verdict "${boot// /_}::the_guest_reaches_its_end" "$([[ ${guest_status:-1} == 0 ]] || echo "$guest_trouble")"
    for fault in $boot; do
        # From this fault's message to that of the next one.
        sed -n "/bulkmem_report: $fault/,\${/bulkmem_report: $fault/!{/bulkmem_report: /q};p}" "$logs/boot-${boot// /-}/kernel" >"$logs/$fault"
        found=$(complaints "$logs/$fault")
        if [[ -z ${expected[$fault]} ]]; then
            verdict "without_a_fault::nothing_is_reported" "$found$([[ -s $logs/$fault ]] || echo 'the module did not run')"
        else
            verdict "$fault::is_reported_and_fails_the_run" \
                "$(grep -qE "${expected[$fault]}" <<<"$found" || echo "no \"${expected[$fault]}\" in: ${found:-nothing}")"
        fi
    done
done
result
exit $((failed > 0))
