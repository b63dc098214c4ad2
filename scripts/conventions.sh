#!/usr/bin/env bash
# Checks what no compiler does: the length of files, versions in two places, assertions about durations, links between
# pages. Takes a second.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

status=0
problem() {
    printf '%s\n' "$*" >&2
    status=1
}

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

# headings FILE: the anchors of its headings, as GitHub and GitLab form them.
headings() {
    awk '/^```/ { code = !code } !code && sub(/^#+ +/, "")' "$1" | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
}

# Links between pages lead to files and headings that exist.
while IFS=: read -r file link; do
    path=${link%%#*}
    target=$file
    [[ -z $path ]] || target=$(dirname "$file")/$path
    if [[ ! -e $target ]]; then
        problem "$file: broken link to $link"
    elif [[ $link == *\#* && $target == *.md ]] && ! headings "$target" | grep -xF -- "${link#*#}" >/dev/null; then
        problem "$file: no heading for the link to $link"
    fi
done < <(git ls-files -- '*.md' | xargs grep -oHP '\]\(\K(?!https?:|mailto:)[^) ]+')

exit "$status"
