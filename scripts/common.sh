# Functions for the other scripts; sourced, never run.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# The folder of rustup, for shells that have not read the profile that adds it.
if ! command -v cargo >/dev/null && [[ -x "$HOME/.cargo/bin/cargo" ]]; then
    PATH="$HOME/.cargo/bin:$PATH"
fi

# The folder that cargo builds in.
# shellcheck disable=SC2034 # the sourcing scripts use it
TARGET_DIR=${CARGO_TARGET_DIR:-target}

# heading TEXT: prints a heading.
heading() { printf '\n== %s\n' "$*"; }

# missing TEXT: reports something that is missing and not required.
missing() { printf 'missing: %s\n' "$*" >&2; }

# fail TEXT: prints the cause and the remedy, and exits.
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# has_library NAME: true if the dynamic linker knows a library. Debian's users do not have /sbin in PATH. grep reads all of the list:
# `grep -q` stops at the first match, which ends ldconfig by SIGPIPE, and pipefail makes that a failure.
has_library() { PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -F "$1" >/dev/null; }

# as_root COMMAND…: runs a command as root, directly or through sudo. Returns 1 if neither is possible.
as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
        sudo "$@"
    else
        return 1
    fi
}

# has NAME: true if there is a program, a file (a path or pattern with a slash), or a library (with .so.) of that name. Debian's users do
# not have /usr/sbin in PATH.
has() {
    case $1 in
    */*) compgen -G "$1" >/dev/null ;;
    *.so.*) has_library "$1" ;;
    *) command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 ]] ;;
    esac
}

# install_packages PACKAGE…: installs Debian packages. Prints the output only if it fails.
install_packages() {
    command -v apt-get >/dev/null || return 1
    if ! as_root true; then
        missing "the right to install $* (neither root nor sudo)"
        return 1
    fi
    local log
    log=$(mktemp)
    printf 'installing: %s\n' "$*"
    # Package lists may be absent or old on a new machine, which the first try tells. Without a network, the update fails and says so.
    if { apt_get install -y --no-install-recommends "$@" || { apt_get update && apt_get install -y --no-install-recommends "$@"; }; } >"$log" 2>&1; then
        rm -f "$log"
    else
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

# apt_get ARGUMENT…: as root. Parts of the tests that run next to each other wait for each other here; apt-get itself would not.
apt_get() { as_root env DEBIAN_FRONTEND=noninteractive flock /var/lib/apt apt-get -qq "$@"; }

# install_missing NAME[:PACKAGE]…: installs the packages of what is not there, in one call; if that fails, those that it can.
install_missing() {
    local it
    local -a packages=()
    for it; do
        has "${it%%:*}" || packages+=("${it#*:}")
    done
    if ((${#packages[@]} == 0)) || install_packages "${packages[@]}" || ((${#packages[@]} == 1)); then return; fi
    as_root true || return 0
    for it in "${packages[@]}"; do
        apt_get install -y --no-install-recommends "$it" >/dev/null 2>&1 || true
    done
}

# seconds_in FILE: prints the processor time, in seconds, of the commands that have ended, from the output of `times`. Its first line is of the
# shell.
seconds_in() { awk 'NR == 2 { gsub("m", " "); gsub("s", ""); printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$1"; }

# need_tools: checks for the tools that every build needs.
need_tools() {
    if ! command -v cargo >/dev/null; then
        fail "cargo is not there. Install Rust from https://rustup.rs, open a new shell, and try again."
    fi
    if ! command -v cc >/dev/null; then
        install_packages gcc libc6-dev ||
            fail "a C compiler is needed to link. Install one (Debian: apt-get install gcc libc6-dev), and try again."
    fi
    # Makes rustup fetch the pinned toolchain here, with its own progress, instead of during a build.
    if ! cargo --version >/dev/null; then
        fail "the pinned Rust toolchain (rust-toolchain.toml) could not be installed; see the message above."
    fi
}
