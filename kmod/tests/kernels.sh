# Finds, fetches and unpacks the kernels that the module is tested on, and builds the module for each.
# Sourced, never run, after scripts/common.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the sourcing scripts use these variables

# For depmod and modprobe.
PATH=$PATH:/usr/sbin:/sbin

# Our name of each kernel, and the end of the name of Debian's package that depends on the newest kernel of that kind.
declare -A KERNELS=([5.10]=amd64 [6.1]=amd64 [6.12]=6.12-amd64 [6.12-cloud]=6.12-cloud-amd64 [6.1-rt]=rt-amd64
    [6.12-rt]=6.12-rt-amd64 [7.2]=amd64 [7.3]=amd64
    [6.1-debug]='built from linux-source-6.1')
# The archive and suite of those that Debian 12, which the tests run on, does not have. Later releases move to a newer
# kernel; then the cached one is used.
declare -A SUITES=([5.10]='debian-security bullseye-security' [7.2]='debian sid' [7.3]='debian trixie-backports')
# The compiler of those that Debian 12's gcc-12 cannot build.
declare -A COMPILERS=([7.2]=gcc-16 [7.3]=gcc-14)

# $KMOD_CACHE/NAME/RELEASE contains an unpacked kernel with its headers, laid out like / of a machine that has it.
KMOD_CACHE=$(realpath -m "${BULKMEM_KMOD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bulkmem/kmod}")
KMOD_TARGET=$(mkdir -p "$TARGET_DIR/kmod" && cd "$TARGET_DIR/kmod" && pwd)
# The tests' own modules, in probe/: one that reads page tables, a livepatch that replaces all others, one that steps
# through copies to persistent memory, and one with faults that a debug kernel must report.
HELPERS=(bulkmem_probe bulkmem_cumulative bulkmem_steps bulkmem_report)
# Contains the compilers, laid out like /.
KMOD_ROOT=$KMOD_CACHE/root

# shellcheck source=kmod/tests/debug-kernel.sh
. kmod/tests/debug-kernel.sh

# with_suite SUITE COMMAND…: runs apt with this machine's configuration, or with one in the cache that knows only SUITE
# ("ARCHIVE SUITE") and no installed package.
with_suite() {
    local archive suite folder=''
    if [[ -n $1 ]]; then
        read -r archive suite <<<"$1"
        folder=$KMOD_CACHE/apt/$suite
    fi
    if [[ -n $folder && ! -f $folder/apt.conf ]]; then
        mkdir -p "$folder"/{lists,cache}/partial
        : >"$folder/status"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/$archive $suite main" \
            >"$folder/sources.list"
        cat >"$folder/apt.conf" <<END
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Status "$folder/status";
Dir::State::Lists "$folder/lists";
Dir::Cache "$folder/cache";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Architecture "amd64";
APT::Install-Recommends "false";
END
    fi
    shift
    env ${folder:+APT_CONFIG="$folder/apt.conf"} "$@"
}

# refresh_lists [SUITE]: updates Debian's package lists, once a day; without a network the old ones are used.
refresh_lists() {
    local suite=${1-} stamp=$KMOD_CACHE/lists${1:+-${1#* }}
    local -a via=(as_root)
    [[ -n $(find "$stamp" -mtime -1 2>/dev/null) ]] && return
    [[ -z $suite ]] || via=(with_suite "$suite")
    if "${via[@]}" flock /var/lib/apt timeout 120 apt-get -o APT::Sandbox::User=root update -qq >/dev/null 2>&1; then
        touch "$stamp"
    else
        missing "new package lists${suite:+ of $suite} (apt-get update failed: no network, or neither root nor sudo); the old ones are used"
    fi
}

# newest_release NAME: prints the release of the newest kernel that apt can install, or nothing.
newest_release() {
    with_suite "${SUITES[$1]-}" apt-cache depends "linux-image-${KERNELS[$1]}" 2>/dev/null |
        sed -n 's/^ *Depends: linux-image-\(.*amd64\)$/\1/p' | grep "^${1%%-*}[.]" | head -n 1
}

# cached_release NAME: prints the release of the newest kernel in the cache.
cached_release() {
    find "$KMOD_CACHE/$1" -mindepth 1 -maxdepth 1 -type d ! -name '*.part' -printf '%f\n' 2>/dev/null | sort -V | tail -n 1
}

# fetch_kernel NAME: fetches the newest available release into the cache.
fetch_kernel() {
    local name=$1 suite=${SUITES[$1]-} release part header
    local -a packages
    local remedy="Connect to the network and try again, or copy $KMOD_CACHE/$name from a machine that has it."
    mkdir -p "$KMOD_CACHE/$name"
    if [[ $name == *-debug ]]; then
        fetch_debug_kernel "$name"
        return
    fi
    fetch_compiler "$name"
    if ! command -v apt-get >/dev/null; then
        [[ -n $(cached_release "$name") ]] ||
            fail "kernel $name is not in $KMOD_CACHE, and there is no apt-get to fetch Debian's with. $remedy"
        return
    fi
    refresh_lists "$suite"
    release=$(newest_release "$name") || true
    if [[ -z $release ]]; then
        [[ -n $(cached_release "$name") ]] ||
            fail "unavailable: kernel $name: apt knows no linux-image-${KERNELS[$name]} of this version in ${suite:-Debian 12 with its security updates}. $remedy"
        [[ -z $suite ]] || missing "kernel $name in $suite; $(cached_release "$name") from the cache is used"
        return
    fi
    [[ -d $KMOD_CACHE/$name/$release ]] && return

    # 7.x has separate packages for the image, the modules and the configuration.
    mapfile -t packages < <(
        printf '%s\n' "linux-image-$release" "linux-headers-$release"
        with_suite "$suite" apt-cache depends "linux-image-$release" "linux-headers-$release" |
            sed -n 's/^ *Depends: \(linux-\(base\|binary\|headers\|kbuild\|modules\)-.*\)$/\1/p' | sort -u
    )
    part=$KMOD_CACHE/$name/$release.part
    rm -rf "$part"
    mkdir -p "$part/debs"
    printf 'fetching kernel %s\n' "$release"
    if ! (cd "$part/debs" && with_suite "$suite" apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}") \
        >"$KMOD_CACHE/fetch.log" 2>&1; then
        # The lists may name packages that Debian has replaced since.
        rm -rf "$part" "$KMOD_CACHE/lists${suite:+-${suite#* }}"
        tail -n 3 "$KMOD_CACHE/fetch.log" >&2
        [[ -n $(cached_release "$name") ]] || fail "kernel $release could not be downloaded: see above. $remedy"
        missing "kernel $release (the download failed: see above); $(cached_release "$name") from the cache is used"
        return
    fi
    for header in "$part"/debs/*.deb; do
        dpkg -x "$header" "$part" || fail "$header is damaged, or the disk is full; see above"
    done
    rm -rf "$part/debs"
    # Packages for systems whose /lib is a link to /usr/lib.
    [[ -d $part/lib/modules ]] || { mkdir -p "$part/lib" && ln -s ../usr/lib/modules "$part/lib/modules"; }
    # Packages that keep the image with the modules.
    [[ -d $part/boot ]] || { mkdir "$part/boot" && ln -s "../lib/modules/$release/vmlinuz" "$part/boot/vmlinuz-$release"; }
    # These makefiles contain absolute paths.
    for header in "$part"/usr/src/linux-headers-*/Makefile; do
        # shellcheck disable=SC2016 # for make
        sed -i -e 's|^include /usr/src/\(linux-headers-[^/]*\)/Makefile$|include $(dir $(lastword $(MAKEFILE_LIST)))../\1/Makefile|' \
            -e 's|^KBUILD_OUTPUT=/usr/src/.*|KBUILD_OUTPUT := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))|' "$header"
    done
    ln -srfn "$part/usr/src/linux-headers-$release" "$part/lib/modules/$release/build"
    depmod -b "$part" "$release" || fail "depmod failed on kernel $release: see above"
    mv "$part" "$KMOD_CACHE/$name/$release"
    find "$KMOD_CACHE/$name" -mindepth 1 -maxdepth 1 ! -name "$release" -mtime +1 -exec rm -rf {} +
}

# fetch_compiler NAME: provides the compiler of the kernel NAME, if it needs one that Debian 12 does not have. All of them
# are in one root of Debian sid, which is unpacked and not installed.
fetch_compiler() {
    local compiler=${COMPILERS[$1]-} suite='debian sid' part=$KMOD_ROOT.part deb
    local remedy="Connect to the network and try again, or copy $KMOD_ROOT from a machine that has it."
    [[ -n $compiler && ! -x $KMOD_ROOT/usr/bin/$compiler ]] || return 0
    command -v apt-get >/dev/null || fail "unavailable: $compiler, for kernel $1: there is no apt-get to fetch it with. $remedy"
    refresh_lists "$suite"
    rm -rf "$part"
    mkdir -p "$part/debs/partial"
    printf 'fetching %s\n' "${COMPILERS[*]}"
    with_suite "$suite" apt-get -qq -y -o APT::Sandbox::User=root -o Dir::Cache::Archives="$part/debs" --download-only install \
        "${COMPILERS[@]}" base-files make dash coreutils sed grep gawk findutils libelf1t64 libssl3t64 >"$KMOD_CACHE/fetch.log" 2>&1 || {
        tail -n 3 "$KMOD_CACHE/fetch.log" >&2
        rm -rf "$part" "$KMOD_CACHE/lists-sid"
        fail "unavailable: ${COMPILERS[*]}: see above. $remedy"
    }
    for deb in "$part"/debs/*.deb; do
        dpkg -x "$deb" "$part" || fail "$deb is damaged, or the disk is full; see above"
    done
    rm -rf "$part/debs"
    # What the packages' scripts would do.
    ln -sf gawk "$part/usr/bin/awk"
    rm -rf "$KMOD_ROOT"
    mv "$part" "$KMOD_ROOT"
}

# with_compiler NAME COMMAND…: runs the command with the compiler of the kernel NAME, in the root if it is there. The
# folders of the kernels and of the builds have the same paths in the root.
with_compiler() {
    local compiler=${COMPILERS[$1]-}
    shift
    if [[ -z $compiler ]]; then
        "$@"
        return
    fi
    # shellcheck disable=SC2016 # for the inner shell
    unshare --map-root-user --mount bash -euc 'root=$1
        for folder in /dev /proc "$2" "$3"; do
            mkdir -p "$root$folder"
            mount --rbind "$folder" "$root$folder"
        done
        shift 3
        PATH=/usr/bin:/usr/sbin exec chroot "$root" "$@"' with_compiler "$KMOD_ROOT" "$KMOD_CACHE" "$KMOD_TARGET" "$@"
}

# use_kernel NAME: sets kernel_release and kernel_root to the cached kernel, and kernel_image to the file that QEMU boots.
use_kernel() {
    kernel_release=$(cached_release "$1")
    [[ -n $kernel_release ]] || fail "kernel $1 is not in $KMOD_CACHE; scripts/test-kmod.sh fetches it"
    kernel_root=$KMOD_CACHE/$1/$kernel_release
    kernel_image=$kernel_root/boot/vmlinux
    [[ -f $kernel_image ]] || kernel_image=$kernel_root/boot/vmlinuz-$kernel_release
}

# unpack_image: unpacks the image of the kernel in use, which takes an emulated processor seconds at every boot. QEMU boots
# it by the kernel's PVH entry.
unpack_image() {
    local compressed=$kernel_root/boot/vmlinuz-$kernel_release image=$kernel_root/boot/vmlinux setup start length
    local -a unpack
    [[ -f $image ]] && return
    # Where the compressed image is, and its length without the size at its end: Documentation/arch/x86/boot.rst.
    setup=$(od -An -tu1 -j497 -N1 "$compressed")
    start=$(((setup + 1) * 512 + $(od -An -tu4 -j584 -N4 "$compressed")))
    length=$(($(od -An -tu4 -j588 -N4 "$compressed") - 4))
    case $(od -An -tx1 -j"$start" -N4 "$compressed") in
    ' fd 37 7a 58') unpack=(xz -dc --single-stream) ;;
    ' 28 b5 2f fd') unpack=(zstd -dcq) ;;
    *) unpack=(false) ;;
    esac
    if head -c $((start + length)) "$compressed" | tail -c +$((start + 1)) | "${unpack[@]}" >"$image.part" &&
        readelf -n "$image.part" 2>/dev/null | grep -q Xen; then
        mv "$image.part" "$image"
    else
        rm -f "$image.part"
        missing "a way to unpack $compressed; the guests do, which takes longer"
    fi
}

# build_variant KERNEL VARIANT: builds the unchanged module (`plain`), one module per fault of planted.sh (`planted`), or the
# one that runs.sh's variant_VARIANT makes.
build_variant() {
    local row name file expression failed=0
    if [[ $2 == plain ]]; then
        build_module "$1" plain
        return
    elif [[ $2 != planted ]]; then
        build_module "$1" "$2" "variant_${2//-/_}"
        return
    fi
    for row in "${PLANTED[@]}"; do
        IFS='|' read -r name file expression _ <<<"$row"
        (build_module "$1" "$name" plant "$file" "$expression") || failed=1
    done
    return "$failed"
}

# plant FILE EXPRESSION: changes the file by sed; fails if that changes nothing.
plant() {
    cp "$1" "$1.plain"
    sed -i "$2" "$1"
    ! cmp -s "$1" "$1.plain" || fail "planted.sh: $2 changes nothing in $1; adapt it"
    rm "$1.plain"
}

# build_module KERNEL VARIANT [COMMAND…]: copies the module's sources, runs COMMAND in the copy (which may change them), and
# builds, with the parameters for tests; every warning is an error. module_file prints where the module is afterwards. The
# variant `plain` comes first.
build_module() {
    local kernel=$1 variant=$2 folder plain log file module compiler sum
    shift 2
    use_kernel "$kernel"
    # All variants are built at one path, which the results contain, and each begins with a copy of the unchanged module's
    # objects, so that only the changed files are compiled.
    folder=$KMOD_TARGET/build/$kernel/folder
    plain=$KMOD_TARGET/build/$kernel/plain
    log=$KMOD_TARGET/build/$kernel/$variant.log
    rm -rf "$folder.new"
    mkdir -p "$folder.new"
    cp kmod/Kbuild kmod/Makefile kmod/*.[ch] "$folder.new"
    # Also the tests' own modules.
    cp kmod/tests/probe/bulkmem_*.c "$folder.new"
    echo "obj-m += ${HELPERS[*]/%/.o}" >>"$folder.new/Kbuild"
    if (($# > 0)); then
        # A run must not use an earlier one.
        (cd "$folder.new" && "$@") || { rm -f "$(module_file "$kernel" "$variant")"{,.sum} && fail "the sources of the module's variant $variant could not be generated: see above"; }
    fi
    # Nothing to do if the module was built from the same sources in the same way.
    module=$(module_file "$kernel" "$variant")
    compiler=${COMPILERS[$kernel]-}
    sum=$({
        (cd "$folder.new" && sha256sum -- *)
        sha256sum kmod/tests/kernels.sh
        echo "$kernel_release"
        stat -L -c '%n %s %Y' "${compiler:+$KMOD_ROOT}/usr/bin/${compiler:-gcc-12}"
    } | sha256sum)
    if [[ -f $module && -f $module.sum && $(<"$module.sum") == "$sum" ]]; then
        rm -rf "$folder.new"
        return
    fi
    # As above.
    rm -f "$module.sum" "$module"
    if [[ -d $plain ]]; then
        rm -rf "$folder"
        cp -a --reflink=auto "$plain" "$folder"
    fi
    mkdir -p "$folder"
    # Replace only files that changed.
    for file in "$folder"/*.[ch]; do
        [[ $file == *.mod.c || -e $folder.new/${file##*/} ]] || rm -f "$file"
    done
    for file in "$folder.new"/*; do
        cmp -s "$file" "$folder/${file##*/}" || mv "$file" "$folder/"
    done
    rm -rf "$folder.new"
    # Without BTF, which needs pahole and which the tests do not use.
    if ! with_compiler "$kernel" make -j "$(nproc)" -C "$kernel_root/lib/modules/$kernel_release/build" "M=$folder" W=1 \
        "CC=${COMPILERS[$kernel]-gcc-12}" KCFLAGS=-Werror BULKMEM_TESTS=y CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$log" 2>&1 || grep -i 'warning:' "$log" | grep -qv 'pahole version differs'; then
        grep -iE 'error|warning:' "$log" | head -n 20 >&2
        echo "complete log: $log" >&2
        # Otherwise the next build would not repeat the warning.
        rm -rf "$folder"
        return 1
    fi
    cp "$folder/bulkmem.ko" "$module" || return
    if [[ $variant == plain ]]; then
        for file in "${HELPERS[@]}"; do
            cp "$folder/$file.ko" "$(helpers "$kernel")/" || return
        done
        rm -rf "$plain"
        mv "$folder" "$plain"
    fi
    echo "$sum" >"$module.sum"
}

# module_file KERNEL VARIANT: prints the path of the module.
module_file() { printf '%s\n' "$KMOD_TARGET/build/$1/$2.ko"; }

# helpers KERNEL: prints the folder of the tests' own modules, which are built with the unchanged module.
helpers() { printf '%s\n' "$KMOD_TARGET/build/$1"; }
