#!/usr/bin/env bash
# Builds the engine for fio: scripts/build-fio.sh [ARCHIVE]. Prints its path.
# ARCHIVE is the static library of bulkmem-c that cargo built [default: builds the release]. fio loads only engines that were
# built against its own version's headers. Fetches the source that Debian's fio package is made of, once; its checksum is below.
# FIO_SOURCE=FOLDER uses another source, of another version of fio.
set -euo pipefail
archive=${1:+$(realpath "$1")}
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

version=3.33
checksum=d2410e13e0f379d061d077cc5ae325835bb7c6186aa7bafc1df954cbc9b014fc
address=https://deb.debian.org/debian/pool/main/f/fio/fio_$version.orig.tar.gz

need_tools
if [[ -z $archive ]]; then
    cargo build --release --locked -p bulkmem-c >&2
    archive=$TARGET_DIR/release/libbulkmem_c.a
fi
built=$TARGET_DIR/fio
mkdir -p "$built"
exec 9>"$built/lock"
flock 9

source=${FIO_SOURCE:-}
if [[ -z $source ]]; then
    installed=$(fio --version 2>/dev/null || true)
    [[ -z $installed || $installed == fio-$version ]] || fail "$installed is installed, and this builds an engine for fio-$version.
Unpack the source of $installed, and set FIO_SOURCE to its folder."
    file=$built/${address##*/}
    right() { [[ -f $1 ]] && echo "$checksum  $1" | sha256sum --check --status; }
    if ! right "$file"; then
        command -v curl >/dev/null || install_packages curl ca-certificates >&2 || fail "curl is missing. Install it (Debian: apt-get install curl)."
        curl --silent --show-error --fail --location --retry 2 --output "$file.part" "$address" ||
            fail "$address cannot be fetched. Put that file into $built."
        right "$file.part" || fail "$address is not the file that this was written for: its checksum differs. Delete $file.part."
        mv "$file.part" "$file"
    fi
    source=$built/fio-$version
    if [[ ! -f $source/config-host.h ]]; then
        rm -rf "$source"
        tar -xf "$file" -C "$built"
    fi
fi
[[ -f $source/fio.h ]] || fail "$source is not a folder of fio's source: it has no fio.h."
# configure writes config-host.h step by step: after an interruption or an error, it must run again.
if [[ ! -f $source/config-host.h || -f $source/bulkmem-configuring ]]; then
    touch "$source/bulkmem-configuring"
    (cd "$source" && ./configure --disable-native >configure.log 2>&1) || fail "fio's configure failed; see $source/configure.log."
    rm "$source/bulkmem-configuring"
fi

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
scripts/link-c.sh bulkmem "$archive" "$temporary"
# fio's headers are not written for these warnings; the engine is.
cc -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare -D_GNU_SOURCE \
    -include "$source/config-host.h" -isystem "$source" -Icrates/bulkmem-c/include -Ikmod -fPIC -shared -o "$temporary/bulkmem-fio.so" \
    fio/bulkmem.c "$temporary/libbulkmem.a" -Wl,--exclude-libs,ALL -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete -pthread -ldl -lm
mv "$temporary/bulkmem-fio.so" "$built/"
echo "$built/bulkmem-fio.so"
