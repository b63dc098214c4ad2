#!/usr/bin/env bash
# The kernel's own style checker on the module. `make lint` runs it; `--fetch` instead gets it: Debian has it nowhere but
# in the archive of the kernel's sources.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../../scripts/common.sh"
# shellcheck source=kmod/tests/kernels.sh
. kmod/tests/kernels.sh

checker=$KMOD_CACHE/checkpatch

has_perl() { perl -MTerm::ANSIColor -e 1 2>/dev/null; }

if [[ ${1-} == --fetch ]]; then
    has_perl || install_packages perl || fail "perl is missing (Debian: apt-get install perl)"
    mkdir -p "$KMOD_CACHE"
    exec {lock}>"$KMOD_CACHE/lock"
    flock "$lock"
    [[ ! -x $checker/checkpatch.pl ]] || exit 0
    remedy="Connect to the network and try again, or copy $checker from a machine that has it."
    command -v apt-get >/dev/null || fail "there is no apt-get to fetch checkpatch with. $remedy"
    refresh_lists
    # The oldest kernel's, which is the smallest to fetch.
    package=$(apt-cache search --names-only '^linux-source-6\.[0-9]+$' | sed 's/ .*//' | sort -V | head -n 1)
    [[ -n $package ]] || fail "apt knows no linux-source-6.*. $remedy"
    rm -rf "$checker.part"
    mkdir -p "$checker.part"
    printf 'fetching %s\n' "$package"
    (cd "$checker.part" && apt-get -qq -o APT::Sandbox::User=root download "$package") ||
        fail "$package could not be downloaded: see above. $remedy"
    dpkg --fsys-tarfile "$checker.part"/*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
        tar -xJ -C "$checker.part" --wildcards --strip-components=2 \
            '*/scripts/checkpatch.pl' '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch' ||
        fail "$package holds no checkpatch, or the disk is full: see above"
    rm "$checker.part"/*.deb
    rm -rf "$checker"
    mv "$checker.part" "$checker"
    exit
fi

if [[ ! -x $checker/checkpatch.pl ]] || ! has_perl; then
    missing "checkpatch; the module's style was not checked (kmod/tests/checkpatch.sh --fetch)"
    exit
fi

# What it is wrong about in a module outside the kernel's tree.
ignored=(
    # One source serves several kernels, and that is how they are told apart;
    LINUX_VERSION_CODE
    # it takes LINUX_VERSION_CODE for a constant, too.
    CONSTANT_COMPARISON
    # It counts what is pasted into a name as a use of an argument's value.
    MACRO_ARG_REUSE
)

# What it would take for a multiplication: annotations of ours before a pointer's star.
types=$(mktemp)
trap 'rm -f "$types" "$types.c"' EXIT
echo __incoherent >"$types"

mapfile -t files < <(git ls-files -- 'kmod/*.[ch]' 'kmod/*.S' kmod/Kbuild kmod/Makefile)
((${#files[@]} > 10)) || fail "git knows only ${#files[@]} files of the module"

# check FILE…: nothing where all is well.
check() {
    "$checker/checkpatch.pl" --no-tree --strict --terse --show-types --no-summary --max-line-length=100 \
        --typedefsfile "$types" --ignore "$(IFS=, && echo "${ignored[*]}")" --file "$@"
}

check "${files[@]}" || fail "checkpatch found the above"
# That nothing was found says little of a checker that finds nothing.
fault=$types.c
printf '%s\n' '// SPDX-License-Identifier: GPL-2.0' 'static int f(void) {' '    return 0;' '}' >"$fault"
said=$(check "$fault") && fail "checkpatch has nothing to say of spaces for tabs and a brace out of place"
[[ $said == *ERROR:OPEN_BRACE* && $said == *WARNING:LEADING_SPACE* ]] ||
    fail "of spaces for tabs and a brace out of place checkpatch says only: $said"
echo "${#files[@]} files: nothing found; planted faults were"
