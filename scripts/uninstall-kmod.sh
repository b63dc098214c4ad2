#!/usr/bin/env bash
# Unloads the module, in the steps that a livepatch requires, and removes all that install-kmod.sh installed. DESTDIR
# and DKMS as there; with DESTDIR nothing is unloaded.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
PATIENCE=${BULKMEM_UNLOAD_SECONDS:-60}
livepatch=/sys/kernel/livepatch/bulkmem

[[ -n $DESTDIR || $(id -u) == 0 ]] || fail "removing the module takes root: sudo make uninstall-kmod"
read -r -a dkms <<<"${DKMS-$([[ -n $DESTDIR ]] || command -v dkms || true)}"

# waiting UNTIL: waits until a condition is true. Fails after a time limit.
waiting() {
    local since=$SECONDS
    until "$@"; do
        ((SECONDS - since < PATIENCE)) || return 1
        sleep 0.2
    done
}
disabled() { [[ ! -e $livepatch ]]; }

# blocking: prints the tasks that block a transition.
blocking() {
    local state
    for state in /proc/[0-9]*/task/[0-9]*/patch_state; do
        # -1: not in transition; 1: still on the new side, while it is being disabled.
        # -1: not in transition; 1: still on the new side, while it is being disabled.
        if [[ $(cat "$state" 2>/dev/null) == 1 ]]; then
            printf '  %s (%s)\n' "${state:6:-12}" "$(cat "${state%patch_state}comm" 2>/dev/null)"
        fi
    done | head -n 10
}

# users: prints the processes that hold a device open or mapped.
users() {
    local process descriptor
    for process in /proc/[0-9]*; do
        for descriptor in "$process/maps" "$process"/fd/*; do
            if [[ $(readlink "$descriptor" 2>/dev/null) =~ ^/dev/bulkmem(-memory)?$ ]] ||
                { [[ $descriptor == */maps ]] && grep -qs /dev/bulkmem "$descriptor"; }; then
                printf '  %s (%s)\n' "${process#/proc/}" "$(cat "$process/comm" 2>/dev/null)"
                break
            fi
        done
    done
}

if [[ -z $DESTDIR && -d /sys/module/bulkmem ]]; then
    if [[ -e $livepatch ]]; then
        # It may already be in transition to disabled; one in transition to enabled is reversed.
        [[ $(cat "$livepatch/enabled" 2>/dev/null) != 1 ]] || echo 0 >"$livepatch/enabled" || disabled ||
            fail "the livepatch could not be disabled: see above"
        waiting disabled || fail "the livepatch is not disabled after $PATIENCE seconds: these tasks have not left the kernel yet:
$(blocking)
They need nothing but to run; end or stop-and-continue them, and try again."
    fi
    # The kernel may still have to free the livepatch.
    unload() { said=$(rmmod bulkmem 2>&1); }
    waiting unload || fail "the module does not unload: $said. These processes have /dev/bulkmem or /dev/bulkmem-memory open or mapped:
$(users)
End them, and try again."
    echo "unloaded bulkmem"
fi

if [[ -z $DESTDIR ]] && command -v systemctl >/dev/null; then
    systemctl disable bulkmem-kmod.service >/dev/null 2>&1 || true
fi
if ((${#dkms[@]} > 0)); then
    while IFS= read -r version; do
        "${dkms[@]}" remove "bulkmem/$version" --all
    done < <("${dkms[@]}" status bulkmem | sed -n 's|^bulkmem/\([^,: ]*\).*|\1|p' | sort -u)
fi
if [[ -z $DESTDIR ]]; then
    for file in /lib/modules/*/updates/bulkmem.ko; do
        if [[ -e $file ]]; then
            rm "$file"
            depmod "$(basename "${file%/updates/bulkmem.ko}")"
        fi
    done
fi
rm -rf "$DESTDIR"/usr/src/bulkmem-[0-9]*
rm -f "$DESTDIR$PREFIX/share/man/man4/bulkmem.4" "$DESTDIR$PREFIX/include/bulkmem_ioctl.h" \
    "$DESTDIR$PREFIX/share/doc/bulkmem"/{60-bulkmem.rules,bulkmem.conf} \
    "$DESTDIR/usr/lib/systemd/system/bulkmem-kmod.service"
rmdir --ignore-fail-on-non-empty "$DESTDIR$PREFIX/share/doc/bulkmem" 2>/dev/null || true
echo "removed bulkmem"
if [[ -z $DESTDIR && -e /etc/modprobe.d/bulkmem.conf ]]; then
    echo "left: /etc/modprobe.d/bulkmem.conf, your settings"
fi
