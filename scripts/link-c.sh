#!/usr/bin/env bash
# Makes the C libraries from the static library that cargo builds: scripts/link-c.sh ARCHIVE FOLDER
# cargo could link the shared library itself, but passes a version script of its own to the linker, which then ignores
# the versions in ours. In the static library, everything is in one object: the constructor cannot be left out, and
# Rust's standard library does not collide with that of another library.
set -euo pipefail
archive=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

map=crates/bulkmem-c/libbulkmem.map
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
soname=libbulkmem.so.${version%%.*}
mapfile -t symbols < <(sed -n 's/^ *\(bulkmem_[a-z_]*\);$/\1/p' "$map")

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
object=$temporary/bulkmem.o
cc -r -nostdlib -o "$object" "${symbols[@]/#/-Wl,-u,}" -Wl,--gc-sections \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive
# Bitcode, which std has, would confuse tools with a plugin of an older LLVM.
objcopy --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${symbols[@]/#/--keep-global-symbol=}" "$object"
rm -f "$folder/libbulkmem.a"
ar -crsD "$folder/libbulkmem.a" "$object"
# It is never unloaded, because it has threads and thread-local memory.
cc -shared -o "$folder/libbulkmem.so.$version" -Wl,-soname,"$soname" -Wl,--version-script="$map" \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete "$object" -pthread -ldl -lm
ln -sf "libbulkmem.so.$version" "$folder/$soname"
ln -sf "$soname" "$folder/libbulkmem.so"
