#!/usr/bin/env bash
# Installs the module: with DKMS if it is installed, which rebuilds it for every new kernel; otherwise for one kernel.
# With DESTDIR, for packages, installs only the sources and the files around them.
#   KVER     the kernel [default: the running one]
#   DKMS     the command, with options; one that is given is used with DESTDIR, too
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
KVER=${KVER:-$(uname -r)}
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' kmod/dkms.conf)
sources=$DESTDIR/usr/src/bulkmem-$version

[[ $(uname -m) == x86_64 ]] || fail "the module is for x86-64; this machine is $(uname -m)"
[[ -n $DESTDIR || $(id -u) == 0 ]] || fail "installing the module takes root: sudo make install-kmod"
read -r -a dkms <<<"${DKMS-$([[ -n $DESTDIR ]] || command -v dkms || true)}"
headers=/lib/modules/$KVER/build
if [[ -z $DESTDIR && ! -e $headers/Makefile ]]; then
    fail "the headers of kernel $KVER are not there ($headers). Install them (Debian: apt-get install linux-headers-$KVER), and try again."
fi

files=(kmod/Kbuild kmod/Makefile kmod/COPYING kmod/dkms.conf kmod/*.[ch])

# unchanged: true if DKMS has these sources, perhaps built for other kernels.
unchanged() {
    local file
    [[ -n $("${dkms[@]}" status "bulkmem/$version") && $(find "$sources" -type f | wc -l) == "${#files[@]}" ]] || return
    for file in "${files[@]}"; do
        cmp -s "$file" "$sources/${file##*/}" || return
    done
}

new=1
if ((${#dkms[@]} > 0)); then
    if unchanged; then
        new=
    elif [[ -n $("${dkms[@]}" status "bulkmem/$version") ]]; then
        # DKMS would keep the modules it built from the old sources. It builds for other kernels when they start.
        "${dkms[@]}" remove "bulkmem/$version" --all
    fi
fi
if [[ -n $new && (-n $DESTDIR || ${#dkms[@]} -gt 0) ]]; then
    rm -rf "$sources"
    install -D -m 644 -t "$sources" "${files[@]}"
fi
install -D -m 644 kmod/bulkmem.4 "$DESTDIR$PREFIX/share/man/man4/bulkmem.4"
install -D -m 644 -t "$DESTDIR$PREFIX/share/doc/bulkmem" kmod/install/60-bulkmem.rules kmod/install/bulkmem.conf
install -D -m 644 -t "$DESTDIR$PREFIX/include" kmod/bulkmem_ioctl.h
install -d "$DESTDIR/usr/lib/systemd/system"
sed "s|@PREFIX@|$PREFIX|" kmod/install/bulkmem-kmod.service >"$DESTDIR/usr/lib/systemd/system/bulkmem-kmod.service"
chmod 644 "$DESTDIR/usr/lib/systemd/system/bulkmem-kmod.service"

if ((${#dkms[@]} > 0)); then
    [[ -z $new ]] || "${dkms[@]}" add "bulkmem/$version"
    "${dkms[@]}" install "bulkmem/$version" -k "$KVER"
    echo "installed bulkmem $version with DKMS for kernel $KVER; DKMS builds it again for kernels to come"
elif [[ -z $DESTDIR ]]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    cp "${files[@]}" "$build"
    make -C "$build" "KDIR=$headers"
    install -D -m 644 "$build/bulkmem.ko" "/lib/modules/$KVER/updates/bulkmem.ko"
    depmod "$KVER"
    echo "installed bulkmem $version for kernel $KVER only; with DKMS (Debian: apt-get install dkms) it would follow kernel updates"
else
    echo "put bulkmem's sources into $sources; \`dkms install bulkmem/$version\` on the machine builds them"
fi
[[ -n $DESTDIR ]] || echo "now: modprobe bulkmem, or systemctl enable --now bulkmem-kmod to load it at every start with what was measured"
