#!/usr/bin/env bash
# Makes a C library from the static library that cargo builds: scripts/link-c.sh bulkmem|libpmem|preload ARCHIVE FOLDER
# `bulkmem` is libbulkmem, shared and static; `libpmem` is libpmem.so.1; `preload` is libbulkmem_preload.so.
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
    preload)
        map=crates/bulkmem-preload/preload.map
        soname=libbulkmem_preload.so
        shared=$soname
        ;;
    *) fail "$which is not a library of this project: bulkmem, libpmem, preload" ;;
esac
mapfile -t symbols < <(sed -n 's/^ *\([a-z_]*\);$/\1/p' "$map")
roots=("${symbols[@]}")
rename=()
archives=("$archive")
libraries=(-pthread -ldl -lm)
if [[ $which == preload ]]; then
    # The object's own calls of these functions must not come back to it, so they get other names first.
    own=(memcpy memmove memset prctl)
    roots=("${symbols[@]/#/preload_}" "${own[@]/#/c_library_}")
    for name in "${own[@]}"; do rename+=("--redefine-sym=$name=c_library_$name" "--keep-global-symbol=c_library_$name"); done
    for name in "${symbols[@]}"; do rename+=("--redefine-sym=preload_$name=$name"); done
    # A program with another C library does not start if a library or symbol is missing there. So this one needs no library
    # but the C library; and the two symbols, which only thread-local memory and unwinding need, may be missing.
    archives+=("$(cc -print-file-name=libgcc_eh.a)")
    rename+=(--weaken-symbol=__tls_get_addr --weaken-symbol=_dl_find_object)
    libraries=(-static-libgcc -ldl)
fi

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
object=$temporary/bulkmem.o
cc -r -nostdlib -o "$object" "${roots[@]/#/-Wl,-u,}" -Wl,--gc-sections \
    -Wl,--whole-archive "${archives[@]}" -Wl,--no-whole-archive
# Bitcode, which std has, would confuse tools with a plugin of an older LLVM.
objcopy --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "${rename[@]}" \
    "${symbols[@]/#/--keep-global-symbol=}" "$object"
# It is never unloaded, because it has threads and thread-local memory.
cc -shared -o "$folder/$shared" -Wl,-soname,"$soname" -Wl,--version-script="$map" \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete "$object" "${libraries[@]}"
if [[ $which == bulkmem ]]; then
    rm -f "$folder/libbulkmem.a"
    ar -crsD "$folder/libbulkmem.a" "$object"
    ln -sf "$shared" "$folder/$soname"
    ln -sf "$soname" "$folder/libbulkmem.so"
fi
