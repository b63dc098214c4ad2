# The kernel of `make test-kmod-debug`: Debian's source package with KASAN, lockdep and other checks, by debug.config.
# Sourced by kernels.sh.
# shellcheck shell=bash

# fetch_debug_kernel NAME: builds the kernel NAME, such as 6.1-debug, from the newest source package of Debian 12, unless it
# is in the cache. An interrupted build continues. The release contains a checksum of the configuration.
fetch_debug_kernel() {
    local name=$1 package=linux-source-${1%-debug} version release work part
    local log=$KMOD_CACHE/$name.log
    local remedy="Connect to the network and try again, or copy $KMOD_CACHE/$name from a machine that has it."
    command -v apt-get >/dev/null && refresh_lists ''
    version=$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9].*\)/\1/p')
    if [[ -z $version ]]; then
        [[ -n $(cached_release "$name") ]] || fail "unavailable: kernel $name: apt knows no $package. $remedy"
        missing "$package; $(cached_release "$name") from the cache is used"
        return
    fi
    release=${version%%-*}-debug-$(sha256sum kmod/tests/debug.config | head -c 8)
    [[ ! -d $KMOD_CACHE/$name/$release ]] || return 0
    debug_kernel_programs

    work=$KMOD_CACHE/$name.build
    if [[ $(cat "$work/version" 2>/dev/null) != "$version" ]]; then
        rm -rf "$work"
        mkdir -p "$work"
        echo "fetching the source of kernel ${version%%-*}"
        (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package=$version") >"$log" 2>&1 || {
            tail -n 3 "$log" >&2
            fail "unavailable: $package could not be downloaded: see above. $remedy"
        }
        mkdir "$work/source"
        if ! dpkg -x "$work"/*.deb "$work/package" ||
            ! tar -xf "$work/package/usr/src/$package.tar.xz" -C "$work/source" --strip-components 1; then
            fail "$package is damaged, or the disk is full; see above"
        fi
        rm -rf "$work"/*.deb "$work/package"
        echo "$version" >"$work/version"
    fi
    echo "building kernel $release (once; 12 minutes of processor time): tail -f $log"
    if ! (debug_kernel_build "$work" "$release") >"$log" 2>&1; then
        grep -E 'error|Error|debug.config' "$log" | head -n 10 >&2
        fail "kernel $release does not build; complete log: $log"
    fi
    part=$KMOD_CACHE/$name/$release.part
    (debug_kernel_install "$work/source" "$release" "$part") >>"$log" 2>&1 ||
        fail "kernel $release could not be installed in the cache; complete log: $log"
    # Those of other configurations: cached_release could not tell which one is wanted.
    find "$KMOD_CACHE/$name" -mindepth 1 -maxdepth 1 ! -name "$release.part" -exec rm -rf {} +
    mv "$part" "$KMOD_CACHE/$name/$release"
    rm -rf "$work"
}

# debug_kernel_programs: installs what the build of a kernel needs besides gcc-12.
debug_kernel_programs() {
    local program package
    local -a packages=()
    while read -r program package; do
        command -v "$program" >/dev/null || [[ -e $program ]] || packages+=("$package")
    done <<'END_OF_PROGRAMS'
flex flex
bison bison
bc bc
/usr/include/libelf.h libelf-dev
END_OF_PROGRAMS
    ((${#packages[@]} == 0)) || install_packages "${packages[@]}" ||
        fail "unavailable: the debug kernel: these Debian packages could not be installed: ${packages[*]}"
}

# debug_kernel_build FOLDER RELEASE: configures and compiles FOLDER/source.
debug_kernel_build() {
    local line
    local -a make=(nice make -C "$1/source" CC=gcc-12 HOSTCC=gcc-12)
    {
        cat kmod/tests/debug.config
        echo "CONFIG_LOCALVERSION=\"-${2#*-}\""
    } >"$1/wanted"
    "${make[@]}" "KCONFIG_ALLCONFIG=$1/wanted" allnoconfig || return
    # A check that the configuration leaves out silently would find nothing.
    while read -r line; do
        grep -qx "$line" "$1/source/.config" || {
            echo "error: debug.config: $line has no effect in this kernel"
            return 1
        }
    done < <(grep '^CONFIG_' "$1/wanted")
    "${make[@]}" -j "$(nproc)" bzImage modules
}

# debug_kernel_install SOURCE RELEASE PART: lays the kernel and what modules are built with out as in Debian's packages.
debug_kernel_install() {
    local source=$1 release=$2 part=$3 headers=$3/usr/src/linux-headers-$2
    rm -rf "$part"
    mkdir -p "$part/boot" "$headers"
    make -C "$source" "INSTALL_MOD_PATH=$part" INSTALL_MOD_STRIP=1 modules_install || return
    cp "$source/arch/x86/boot/bzImage" "$part/boot/vmlinuz-$release" || return
    (cd "$source" && cp -a --parents Makefile .config Module.symvers include arch/x86 scripts tools/objtool/objtool "$headers") || return
    find "$headers/arch" "$headers/include" \( -name '*.o' -o -name '*.a' -o -name '*.c' -o -name '*.cmd' \) -delete
    rm -rf "$headers"/arch/x86/boot/{bzImage,vmlinux.bin,compressed}
    ln -srfn "$headers" "$part/lib/modules/$release/build"
    rm -f "$part/lib/modules/$release/source"
    depmod -b "$part" "$release"
}
