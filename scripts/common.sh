# What the other scripts share; sourced, never run.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# rustup's own place, for shells that never read the profile it was added to.
if ! command -v cargo >/dev/null && [[ -x "$HOME/.cargo/bin/cargo" ]]; then
    PATH="$HOME/.cargo/bin:$PATH"
fi

# Where cargo builds.
# shellcheck disable=SC2034 # the sourcing scripts use it
TARGET_DIR=${CARGO_TARGET_DIR:-target}

# heading TEXT: what happens next.
heading() { printf '\n== %s\n' "$*"; }

# missing TEXT: something is not there; what follows goes on without it.
missing() { printf 'missing: %s\n' "$*" >&2; }

# fail TEXT: the cause and the remedy, and the end.
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# as_root COMMAND…: as root, directly or through sudo; 1 where neither is possible.
as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
        sudo "$@"
    else
        return 1
    fi
}

# install_packages PACKAGE…: Debian packages, from the network; the output only where it fails.
install_packages() {
    command -v apt-get >/dev/null || return 1
    if ! as_root true; then
        missing "the right to install $* (neither root nor sudo)"
        return 1
    fi
    local log
    log=$(mktemp)
    printf 'installing: %s\n' "$*"
    # Package lists may be absent or old on a fresh machine; without a network the update fails, and says so.
    if { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
        rm -f "$log"
    else
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

# need_tools: what no build can do without.
need_tools() {
    if ! command -v cargo >/dev/null; then
        fail "cargo is not there. Install Rust from https://rustup.rs, open a new shell, and try again."
    fi
    if ! command -v cc >/dev/null; then
        install_packages gcc libc6-dev ||
            fail "a C compiler is needed to link. Install one (Debian: apt-get install gcc libc6-dev), and try again."
    fi
    # The pinned toolchain: rustup fetches it here, with its own progress, rather than in the middle of a build.
    if ! cargo --version >/dev/null; then
        fail "the pinned Rust toolchain (rust-toolchain.toml) could not be installed; see the message above."
    fi
}
