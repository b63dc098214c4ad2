#!/usr/bin/env bash
# Tests packaging without changing this machine: `make install-kmod` with DKMS into a folder for each cached kernel, the
# refusal of kernels that the module does not support, and `make uninstall-kmod`, which must leave nothing. Prints
# libtest's lines.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh

# DKMS needs root, which every user can be in a user namespace.
if [[ $(id -u) != 0 && -z ${BULKMEM_DKMS_TEST-} ]]; then
    export BULKMEM_DKMS_TEST=1
    unshare -r true 2>/dev/null && exec unshare -r "$0"
    echo "skipped: packaging with DKMS: it needs root, and this user may not create a user namespace"
    echo "test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out"
    exit
fi

passed=0
failed=0
# verdict NAME COMMAND…: passes if the command succeeds; otherwise prints its output.
verdict() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "test dkms::$name ... ok"
    else
        failed=$((failed + 1))
        echo "test dkms::$name ... FAILED"
        printf '%s\n' "$said" | tail -n 20 | sed 's/^/    /'
    fi
}

root=$KMOD_TARGET/dkms
rm -rf "$root"
mkdir -p "$root"/{usr/src,var/lib/dkms,lib/modules}
trap 'rm -rf "$root"' EXIT
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' kmod/dkms.conf)
# Everything below $root; without depmod, which would use this machine's modules.
trees="dkms --sourcetree $root/usr/src --dkmstree $root/var/lib/dkms --installtree $root/lib/modules --no-depmod"

# on RELEASE: prints the DKMS command with the headers of that cached kernel.
on() { printf '%s --kernelsourcedir %s' "$trees" "$kernel_root/lib/modules/$1/build"; }

installed() {
    local module field
    # DKMS only installs for kernels that have this folder.
    mkdir -p "$root/lib/modules/$kernel_release"
    DESTDIR=$root PREFIX=/usr KVER=$kernel_release DKMS=$(on "$kernel_release") make -s install-kmod || return
    module=$root/lib/modules/$kernel_release/updates/dkms/bulkmem.ko
    [[ -f $module ]] || module=$module.xz
    [[ -f $module ]] || { echo "DKMS put no bulkmem.ko below $root/lib/modules/$kernel_release/updates/dkms"; return 1; }
    for field in "vermagic=$kernel_release " "version=$version" "license=GPL" "livepatch=Y"; do
        modinfo -0 "$module" | tr '\0' '\n' | sed 's/: */=/' | grep -q "^$field" || { echo "modinfo has no $field"; return 1; }
    done
    $(on "$kernel_release") status "bulkmem/$version" -k "$kernel_release" | grep -q ': installed' ||
        { echo "dkms status does not report it as installed"; return 1; }
    [[ -f $root/usr/share/man/man4/bulkmem.4 ]] || { echo "there is no manual page"; return 1; }
    grep -qx 'ExecStart=/usr/bin/bulkmem kmod apply' "$root/usr/lib/systemd/system/bulkmem-kmod.service"
}

# DKMS must refuse, with a reason, kernels before and after the tested ones, and one without livepatches.
refused() {
    local said release headers=$root/headers
    mkdir -p "$headers"
    echo CONFIG_LIVEPATCH=y >"$headers/.config"
    : >"$headers/Makefile"
    for release in 5.9.0-5-amd64 6.60.1-amd64 7.4.1-amd64 7.30.1-amd64 6.5.0-1-amd64; do
        [[ $release != 6.5.* ]] || sed -i '/^CONFIG_LIVEPATCH=/d' "$headers/.config"
        said=$($trees build "bulkmem/$version" -k "$release" --kernelsourcedir "$headers" 2>&1) &&
            { echo "DKMS built it for $release: $said"; return 1; }
        [[ $said == *BUILD_EXCLUSIVE* ]] || { echo "$release: $said"; return 1; }
    done
    rm -rf "$headers"
}

uninstalled() {
    local left
    DESTDIR=$root PREFIX=/usr DKMS=$trees make -s uninstall-kmod || return
    # Everything except DKMS's own database.
    left=$(find "$root" -type f ! -name dkms_dbversion -o -type l)
    [[ -z $left ]] || { echo "left: $left"; return 1; }
    # Uninstalling again must succeed without anything to remove.
    DESTDIR=$root PREFIX=/usr DKMS=$trees make -s uninstall-kmod
}

kernels=("$@")
for kernel in "${kernels[@]}"; do
    use_kernel "$kernel"
    verdict "installed::$kernel" installed
done
both() {
    local kernel
    for kernel in "${kernels[@]}"; do
        use_kernel "$kernel"
        $trees status "bulkmem/$version" -k "$kernel_release" | grep -q ': installed' ||
            { echo "it is no longer installed for $kernel_release"; return 1; }
    done
}
verdict one_kernel_after_the_other both
verdict refused refused
verdict uninstalled uninstalled
echo "test result: $( ((failed)) && echo FAILED || echo ok). $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
((failed == 0))
