#!/usr/bin/env bash
# Installs the release build, or the one that BULKMEM names, under DESTDIR/PREFIX.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

PREFIX=${PREFIX:-/usr/local}
root=${DESTDIR:-}$PREFIX

bulkmem=${BULKMEM:-$TARGET_DIR/release/bulkmem}
if [[ -z ${BULKMEM:-} ]]; then
    need_tools
    cargo build --release --locked -p bulkmem-cli
fi

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$bulkmem" man --output "$pages" >/dev/null
for shell in bash zsh fish; do
    "$bulkmem" completions "$shell" >"$pages/bulkmem.$shell"
done

install -D -m 755 "$bulkmem" "$root/bin/bulkmem"
install -D -m 644 -t "$root/share/man/man1" "$pages"/*.1
install -D -m 644 "$pages/bulkmem.bash" "$root/share/bash-completion/completions/bulkmem"
install -D -m 644 "$pages/bulkmem.zsh" "$root/share/zsh/site-functions/_bulkmem"
install -D -m 644 "$pages/bulkmem.fish" "$root/share/fish/vendor_completions.d/bulkmem.fish"
for unit in crates/bulkmem-pool/systemd/bulkmem-pool.{service,socket}; do
    sed "s|@PREFIX@|$PREFIX|" "$unit" >"$pages/${unit##*/}"
    install -D -m 644 -t "$root/lib/systemd/system" "$pages/${unit##*/}"
done
install -D -m 644 -t "$root/lib/sysusers.d" crates/bulkmem-pool/systemd/bulkmem-pool.conf
echo "installed bulkmem, its manual pages, completions and units of systemd under $root"
