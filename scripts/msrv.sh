#!/usr/bin/env bash
# Builds the library crates with the oldest supported compiler: that of Debian (rustc-web on Debian 12, rustc on Debian
# 13), else a rustup toolchain of that version. Says so if there is neither and Debian's packages cannot be installed.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

mapfile -t manifests < <(grep -l '^rust-version = "' crates/*/Cargo.toml)
version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "${manifests[@]}" | sort -u)
[[ $version =~ ^[0-9]+\.[0-9]+$ ]] || fail "the library crates name different rust-versions: $version"

packages=()
for manifest in "${manifests[@]}"; do
    packages+=(-p "$(basename "$(dirname "$manifest")")")
done

# debian: true if Debian's compiler of that version is installed.
debian() { [[ $(/usr/bin/rustc --version 2>/dev/null) == "rustc $version."* && -x /usr/bin/cargo ]]; }

# toolchain: the rustup toolchain of that version.
toolchain() { rustup toolchain list 2>/dev/null | sed -n "s/^\($version\(\.[0-9]*\)\{0,1\}-[^ ]*\).*/\1/p" | head -n 1; }

if debian; then
    cargo=(env RUSTC=/usr/bin/rustc /usr/bin/cargo)
elif [[ -n $(toolchain) ]]; then
    cargo=(rustup run "$(toolchain)" cargo)
elif install_packages "rustc-web=$version*" "cargo-web=$version*" "libstd-rust-web-dev=$version*" && debian; then
    cargo=(env RUSTC=/usr/bin/rustc /usr/bin/cargo)
else
    echo "skipped: the build with Rust $version: neither Debian's packages (rustc-web or rustc, cargo-web or cargo) nor" \
        "rustup's toolchain of that version can be used; remedy: rustup toolchain install $version"
    exit 0
fi
"${cargo[@]}" --version
# The only build in which nothing enables features of the library: what is unused without them is an error.
RUSTFLAGS="-D warnings" "${cargo[@]}" check --locked --target-dir "$TARGET_DIR/msrv" "${packages[@]}"
