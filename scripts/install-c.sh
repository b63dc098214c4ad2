#!/usr/bin/env bash
# Installs the C library, its header, pkg-config file and manual pages under DESTDIR/PREFIX; the libraries in LIBDIR. And
# libpmem.so.1 and libbulkmem_preload.so in PREFIX/lib/bulkmem, where only `bulkmem run` finds them.
# Builds the release, or installs the static libraries that cargo built: scripts/install-c.sh [ARCHIVE [LIBPMEM-ARCHIVE
# [PRELOAD-ARCHIVE]]]
set -euo pipefail
archive=${1:+$(realpath "$1")}
libpmem=${2:+$(realpath "$2")}
preload=${3:+$(realpath "$3")}
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

PREFIX=${PREFIX:-/usr/local}
LIBDIR=${LIBDIR:-$PREFIX/lib}
DESTDIR=${DESTDIR:-}
crate=crates/bulkmem-c
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

need_tools
if [[ -z $archive ]]; then
    cargo build --release --locked -p bulkmem-c
    archive=$TARGET_DIR/release/libbulkmem_c.a
    if [[ $(uname -m) == x86_64 ]]; then
        cargo build --release --locked -p bulkmem-libpmem -p bulkmem-preload
        libpmem=$TARGET_DIR/release/libbulkmem_libpmem.a
        preload=$TARGET_DIR/release/libbulkmem_preload.a
    fi
fi

scripts/link-c.sh bulkmem "$archive" "$DESTDIR$LIBDIR"
if [[ -n $libpmem ]]; then
    scripts/link-c.sh libpmem "$libpmem" "$DESTDIR$PREFIX/lib/bulkmem"
fi
if [[ -n $preload ]]; then
    scripts/link-c.sh preload "$preload" "$DESTDIR$PREFIX/lib/bulkmem"
fi
install -D -m 644 -t "$DESTDIR$PREFIX/include" $crate/include/bulkmem.h
install -d "$DESTDIR$LIBDIR/pkgconfig"
sed "s|@PREFIX@|$PREFIX|; s|@LIBDIR@|$LIBDIR|; s|@VERSION@|$version|" $crate/bulkmem.pc.in >"$DESTDIR$LIBDIR/pkgconfig/bulkmem.pc"

man=$DESTDIR$PREFIX/share/man/man3
install -D -m 644 -t "$man" $crate/man/*.3
for page in "$crate"/man/*.3; do
    # Each function of a page has a page that leads to it.
    sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z_]*\).*/\1/p' "$page" | while IFS= read -r name; do
        [[ -e $man/$name.3 ]] || echo ".so man3/${page##*/}" >"$man/$name.3"
    done
done
echo "installed libbulkmem, its header, pkg-config file and manual pages${libpmem:+, libpmem}${preload:+, libbulkmem_preload} under $DESTDIR$PREFIX"
if [[ -z $DESTDIR ]]; then
    # Only root can, and only the linker's own folders need it.
    ldconfig 2>/dev/null || true
fi
