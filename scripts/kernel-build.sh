#!/usr/bin/env bash
# Times a part of a Linux build next to clearing, by methods and by the kernel, at 1 GB/s and without a limit, and judges
# the published 2 % by it. Sources: Debian's linux-source, in target/kernel-build.
# Usage: scripts/kernel-build.sh [ARGUMENT...], further arguments of `bulkmem bench corun`: --runs 10
# PARTS: the folders to build, of the smallest configuration [mm/]; all but drivers: PARTS="arch/ block/ fs/ kernel/ lib/ mm/"
# BULKMEM: the command [target/release/bulkmem, which is built]
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

folder=$TARGET_DIR/kernel-build
read -ra parts <<<"${PARTS:-mm/}"
bulkmem=${BULKMEM:-$TARGET_DIR/release/bulkmem}

if [[ -z ${BULKMEM-} ]]; then
    need_tools
    cargo build --release --locked -p bulkmem-cli
fi
bulkmem=$(realpath "$bulkmem")
[[ -x $bulkmem ]] || fail "$bulkmem is not a program. Set BULKMEM to the command, or leave it unset to build it."

packages=()
for tool in gcc make flex bison bc xz; do
    command -v "$tool" >/dev/null || packages+=("${tool/#xz/xz-utils}")
done
((${#packages[@]} == 0)) || install_packages "${packages[@]}" ||
    fail "a kernel build needs ${packages[*]}. Install them (Debian: apt-get install ${packages[*]}), and try again."

if [[ ! -e $folder/linux/.config ]]; then
    command -v apt-get >/dev/null || fail "there is no apt-get to fetch the sources of Linux with: unpack them in $folder/linux."
    # The oldest version is the smallest.
    package=$(apt-cache search --names-only '^linux-source-6\.[0-9]+$' | sed 's/ .*//' | sort -V | head -n 1)
    [[ -n $package ]] || fail "apt knows no linux-source-6.*. Run apt-get update, or unpack the sources in $folder/linux."
    printf 'fetching %s (140 MB, unpacked 1.4 GB)\n' "$package"
    rm -rf "$folder/part"
    mkdir -p "$folder/part"
    (cd "$folder/part" && apt-get -qq -o APT::Sandbox::User=root download "$package") ||
        fail "$package could not be downloaded: see above"
    dpkg --fsys-tarfile "$folder"/part/*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
        tar -xJ -C "$folder/part" --strip-components=1 || fail "the disk is full, or $package holds no sources: see above"
    rm "$folder"/part/*.deb
    make -s -C "$folder/part" tinyconfig
    rm -rf "$folder/linux"
    mv "$folder/part" "$folder/linux"
fi
make -s -C "$folder/linux" prepare

cd "$folder/linux"
# `make clean` would also remove what `make prepare` made.
# shellcheck disable=SC2016 # the shell that is measured expands it
build='find "$@" -name "*.o" -delete && make -s -j2 "$@"'
"$bulkmem" bench corun --clearing kernel --rate 1,max --method rep_stosb,movnti --peers none --output ../found.json "$@" \
    -- sh -c "$build" sh "${parts[@]}"
exec "$bulkmem" reproduce ../found.json
