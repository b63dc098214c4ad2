#!/usr/bin/env bash
# Makes a C library from the static library that cargo builds: scripts/link-c.sh bulkmem|libpmem ARCHIVE FOLDER
# `bulkmem` is libbulkmem, shared and static; `libpmem` is libpmem.so.1.
# cargo could link a shared library itself, but passes a version script of its own to the linker, which then ignores
# the versions in ours. In the static library, everything is in one object: the constructor cannot be left out, and
# Rust's standard library does not collide with that of another library.
set -euo pipefail
which=$1
archive=$(realpath "$2")
mkdir -p "$3"
folder=$(realpath "$3")
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
case $which in
    bulkmem)
        map=crates/bulkmem-c/libbulkmem.map
        soname=libbulkmem.so.${version%%.*}
        shared=libbulkmem.so.$version
        ;;
    libpmem)
        map=crates/bulkmem-libpmem/libpmem.map
        soname=libpmem.so.1
        shared=$soname
        ;;
    *) fail "$which is not a library of this project: bulkmem, libpmem" ;;
esac
mapfile -t symbols < <(sed -n 's/^ *\([a-z]*_[a-z_]*\);$/\1/p' "$map")

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
object=$temporary/bulkmem.o
cc -r -nostdlib -o "$object" "${symbols[@]/#/-Wl,-u,}" -Wl,--gc-sections \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive
# Bitcode, which std has, would confuse tools with a plugin of an older LLVM.
objcopy --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${symbols[@]/#/--keep-global-symbol=}" "$object"
# It is never unloaded, because it has threads and thread-local memory.
cc -shared -o "$folder/$shared" -Wl,-soname,"$soname" -Wl,--version-script="$map" \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete "$object" -pthread -ldl -lm
if [[ $which == bulkmem ]]; then
    rm -f "$folder/libbulkmem.a"
    ar -crsD "$folder/libbulkmem.a" "$object"
    ln -sf "$shared" "$folder/$soname"
    ln -sf "$soname" "$folder/libbulkmem.so"
fi
