#!/usr/bin/env bash
# Checks the source without running tests.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

need_tools
status=0
problem() {
    printf '%s\n' "$*" >&2
    status=1
}

heading "format"
cargo fmt --all -- --check || status=1
if [[ -f fuzz/Cargo.toml ]]; then
    cargo fmt --manifest-path fuzz/Cargo.toml -- --check || status=1
fi

heading "clippy"
cargo clippy --workspace --all-targets --locked -- -D warnings || status=1

heading "the library without features"
# Elsewhere the tests and the command enable its features.
cargo clippy -p bulkmem --locked -- -D warnings || status=1

heading "the oldest supported compiler"
scripts/msrv.sh || status=1

heading "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked || status=1
RUSTDOCFLAGS="-D warnings" cargo doc -p bulkmem --no-deps --locked || status=1

heading "scripts"
if command -v shellcheck >/dev/null; then
    shellcheck --external-sources .ci/run scripts/*.sh kmod/tests/*.sh kmod/tests/init || status=1
else
    missing "shellcheck; the scripts were not checked (Debian: apt-get install shellcheck)"
fi

heading "import cycles"
if command -v python3 >/dev/null || install_packages python3-minimal; then
    scripts/check-cycles.sh || problem "scripts/cycles.py does not find what it must: see above"
    scripts/cycles.py || status=1
else
    problem "import cycles were not looked for, because python3 is missing (Debian: apt-get install python3-minimal)"
fi

heading "the module's fences"
kmod/tests/check.sh || status=1

heading "the module's style"
kmod/tests/checkpatch.sh || status=1

heading "the manual pages of the module and of the C library"
if command -v mandoc >/dev/null; then
    mandoc -T lint -W warning kmod/*.4 crates/bulkmem-c/man/*.3 || status=1
else
    missing "mandoc; these manual pages were not checked (Debian: apt-get install mandoc)"
fi

heading "conventions"
# A longer file says why on a line near its top: `// Longer than 600 lines: …`.
while IFS= read -r file; do
    if (($(wc -l <"$file") > 600)) && ! head -n 30 "$file" | grep -q 'Longer than 600 lines:'; then
        problem "$file: more than 600 lines, and no \`// Longer than 600 lines: …\` near its top says why"
    fi
done < <(git ls-files -- '*.rs')

# The module's version is in two files that can read neither each other nor Cargo.toml.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
grep -qx "PACKAGE_VERSION=\"$version\"" kmod/dkms.conf || problem "kmod/dkms.conf: PACKAGE_VERSION is not Cargo.toml's $version"
grep -qx "MODULE_VERSION(\"$version\");" kmod/main.c || problem "kmod/main.c: MODULE_VERSION is not Cargo.toml's $version"

# A test that limits a duration passes on one machine and fails on another.
if git grep -nE 'assert[a-z_]*!\(.*(elapsed\(\)|as_(nanos|micros|millis|secs)[a-z0-9_]*\(\))[^"]* <' -- '*.rs' >&2; then
    problem "the assertions above judge a duration; compare within one run in \`bulkmem bench\` instead"
fi

# Links between pages lead to files that exist.
while IFS=: read -r file link; do
    path=${link%%#*}
    if [[ -n $path && ! -e $(dirname "$file")/$path ]]; then
        problem "$file: broken link to $link"
    fi
done < <(git ls-files -- '*.md' | xargs grep -oHP '\]\(\K(?!https?:|mailto:)[^) ]+')

((status == 0)) || fail "lint found problems: see above"
printf '\nlint: no problems\n'
