#!/usr/bin/env bash
# Runs the kernel's style checker on the module. `make lint` runs this; `--fetch` fetches the checker, which Debian has only
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
    # The oldest kernel's archive is the smallest.
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

# Checks that are wrong for a module outside the kernel's tree.
ignored=(
    # One source supports several kernels, and this macro distinguishes them.
    LINUX_VERSION_CODE
    # checkpatch takes LINUX_VERSION_CODE for a constant.
    CONSTANT_COMPARISON
    # It counts token pasting as a use of the argument's value.
    MACRO_ARG_REUSE
)

# Our annotation before the star of a pointer, which checkpatch would take for a multiplication.
types=$(mktemp)
trap 'rm -f "$types" "$types.c"' EXIT
echo __incoherent >"$types"

mapfile -t files < <(git ls-files -- 'kmod/*.[ch]' 'kmod/*.S' kmod/Kbuild kmod/Makefile)
((${#files[@]} > 10)) || fail "git knows only ${#files[@]} files of the module"

# check FILE…: prints nothing if there is nothing to report.
check() {
    "$checker/checkpatch.pl" --no-tree --strict --terse --show-types --no-summary --max-line-length=100 \
        --typedefsfile "$types" --ignore "$(IFS=, && echo "${ignored[*]}")" --file "$@"
}

check "${files[@]}" || fail "checkpatch found the above"
# Check that the checker reports faults at all.
fault=$types.c
printf '%s\n' '// SPDX-License-Identifier: GPL-2.0' 'static int f(void) {' '    return 0;' '}' >"$fault"
said=$(check "$fault") && fail "checkpatch does not report spaces instead of tabs and a misplaced brace"
[[ $said == *ERROR:OPEN_BRACE* && $said == *WARNING:LEADING_SPACE* ]] ||
    fail "for spaces instead of tabs and a misplaced brace checkpatch only reports: $said"
echo "${#files[@]} files: no findings; planted faults were found"
