#!/usr/bin/env bash
# Runs the test suites of SQLite (veryquick), git (a part) and Perl (the core) without the preloaded library and with it, by
# non-temporal stores, and compares the verdict of every test. A test that fails both ways, for example because root runs it, does
# not count. Takes half an hour on two processors, and some minutes to build. scripts/preload-suites.sh [ARCHIVE [SUITE…]]
# ARCHIVE is the static library that cargo built [default, or -: builds the release]; SUITE is sqlite, git or perl [default: all].
# Fetches the sources that Debian's packages are made of, once, to suites/ in cargo's target folder, and builds them there.
set -euo pipefail
archive=${1:--}
[[ $archive == - ]] || archive=$(realpath "$archive")
suites=("${@:2}")
((${#suites[@]})) || suites=(sqlite git perl)
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

mirror=https://deb.debian.org/debian/pool/main
declare -A address=(
    [sqlite]=$mirror/s/sqlite3/sqlite3_3.40.1.orig.tar.xz
    [git]=$mirror/g/git/git_2.39.5.orig.tar.xz
    [perl]=$mirror/p/perl/perl_5.36.0.orig.tar.xz
)
declare -A checksum=(
    [sqlite]=aaa776260ab4dc976db34aa7891819484c8676b5b2783123ebc6301e2ca5d655
    [git]=c58da92c378df4a986ca33266897a7397e86c22ee266a284d8c2432c39066b59
    [perl]=0f386dccbee8e26286404b2cca144e1005be65477979beb9b1ba272d4819bcf0
)
declare -A packages=([sqlite]="make tcl-dev zlib1g-dev" [git]="make perl zlib1g-dev" [perl]=make)
method=clear:nontemporal_sse2,fill:nontemporal_sse2,copy:nontemporal_sse2
jobs=$(nproc)
# Seconds after which a file of tests counts as hanging.
patience=1800

# For each suite: build_SUITE; tests_SUITE prints the files of tests; run_SUITE FILE SCRATCH runs one of them, with an empty folder for
# what it writes, and prints its verdicts. All start in the suite's source.
build_sqlite() {
    ./configure --enable-all --disable-readline && make -j "$jobs" testfixture
}
tests_sqlite() {
    ./testfixture /dev/stdin <<'END_OF_LIST'
set argv0 test/veryquick.test
source test/permutations.test
array set suite $testspec(veryquick)
foreach file [lsort $suite(-files)] { puts [file tail $file] }
END_OF_LIST
}
run_sqlite() {
    local source=$PWD
    cd "$2"
    "$source/testfixture" "$source/test/permutations.test" veryquick "$1" |&
        sed -n 's/([0-9.]* *ms[^)]*)//; /\.\.\. /p; /^! /p; / errors out of /p'
}

build_git() {
    make -j "$jobs" CFLAGS=-O1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_OPENSSL=1 NO_PYTHON=1 NO_TCLTK=1
}
# Basics, objects and the index; diff and apply; packs.
tests_git() {
    (cd t && printf '%s\n' t10*.sh t[04]*.sh t53*.sh)
}
# Its check of malloc would replace what LD_PRELOAD has.
run_git() {
    cd t
    TEST_NO_MALLOC_CHECK=1 GIT_TEST_CHAIN_LINT=0 sh "$1" --root="$2" | sed -nE "s,$2,scratch,g; /^(not )?ok |^1\.\./p"
}

build_perl() {
    sh Configure -des -Dusethreads -Doptimize=-O1 -Dman1dir=none -Dman3dir=none && make -j "$jobs" test_prep
}
# The core, the modules in lib/, and those that work on long strings.
tests_perl() {
    printf '%s\n' t/{base,comp,cmd,io,lib,mro,op,opbasic,perf,re,run,uni}/*.t lib/*.t lib/*/*.t lib/*/t/*.t \
        cpan/{Compress-Raw-*,Digest-*,Encode,MIME-Base64}/t/*.t dist/Storable/t/*.t ext/PerlIO-*/t/*.t
}
run_perl() {
    local status=0
    cd t
    PERL_TEST_CHARNAMES_SEED=1 PERL_TEST_HARNESS_DUMP_TAP=$2/tap/t ./perl harness "$1" >"$2/log" || status=$?
    # Without the descriptions, some of which have addresses or times.
    sed -nE 's/^((not )?ok [0-9]+|1\.\.[0-9]+).*# *(skip|todo).*/\1 \3/Ip; t; s/^((not )?ok [0-9]+|1\.\.[0-9]+).*/\1/p' "$2/tap/$1"
    return "$status"
}

skip() {
    echo "skipped: $suite's own tests with the preloaded library: $*"
}

# prepare: fetches and builds the suite's source, if that has not been done.
prepare() {
    local url=${address[$suite]} file=$store/${address[$suite]##*/} missing
    read -ra missing <<<"${packages[$suite]}"
    source=${file%.orig.tar.xz}
    [[ ! -e $source/built ]] || return 0
    dpkg --status curl xz-utils "${missing[@]}" >/dev/null 2>&1 || install_packages curl ca-certificates xz-utils "${missing[@]}" ||
        { skip "packages are missing; remedy: apt-get install curl ca-certificates xz-utils ${missing[*]}" && return 1; }
    right() { [[ -f $1 ]] && echo "${checksum[$suite]}  $1" | sha256sum --check --status; }
    if ! right "$file"; then
        curl --silent --show-error --fail --location --retry 2 --output "$file.part" "$url" ||
            { skip "$url cannot be fetched; remedy: put that file into $store" && return 1; }
        right "$file.part" || fail "$url is not the file that these tests were written for: its checksum differs. Delete $file.part."
        mv "$file.part" "$file"
    fi
    rm -rf "$source"
    mkdir "$source"
    tar -xJf "$file" -C "$source" --strip-components=1
    echo "building ${source##*/}"
    (cd "$source" && "build_$suite") >"$temporary/log" 2>&1 ||
        { tail -n 20 "$temporary/log" && fail "${source##*/} does not build: see above"; }
    touch "$source/built"
}

# verdicts FILE FOLDER [VARIABLE…]: runs one file of tests with these variables, and stores its verdicts and status.
verdicts() {
    local scratch status=0
    scratch=$(mktemp -d -p "$temporary")
    mkdir -p "$(dirname "$2/$1")"
    (cd "$source" && "$isolated" env "${@:3}" timeout --kill-after=10 "$patience" bash -c "set -o pipefail; $(declare -f "run_$suite")
        run_$suite \"\$@\"" run "$1" "$scratch") >"$2/$1" 2>"$scratch.log" || status=$?
    echo "status $status" >>"$2/$1"
    rm -rf "$scratch" "$scratch.log"
}

# all FOLDER [VARIABLE…]: runs every file of tests.
all() {
    local file start=$SECONDS
    for file in "${files[@]}"; do
        while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
        verdicts "$file" "$@" &
    done
    wait
    echo "$suite $([[ $# == 1 ]] && echo without || echo with) the library: ${#files[@]} files, $(find "$1" -type f -exec cat {} + | grep -vc '^status') verdicts," \
        "$(((SECONDS - start + 30) / 60)) minutes"
}

need_tools
isolated=$PWD/scripts/isolated.sh
mkdir -p "$TARGET_DIR/suites"
store=$(realpath "$TARGET_DIR/suites")
temporary=$(mktemp -d)
# end PROCESS: ends a process and those that it started. Ctrl-C does not reach them.
end() {
    local child
    kill -STOP "$1" 2>/dev/null || return 0
    for child in $(pgrep -P "$1"); do end "$child"; done
    kill -KILL "$1"
}
clean_up() {
    local job
    for job in $(jobs -rp); do end "$job"; done
    wait
    rm -rf "$temporary"
}
trap clean_up EXIT
if [[ $archive == - ]]; then
    cargo build --release --locked -p bulkmem-preload
    archive=$TARGET_DIR/release/libbulkmem_preload.a
fi
scripts/link-c.sh preload "$archive" "$temporary"
variables=("LD_PRELOAD=$temporary/libbulkmem_preload.so" "BULKMEM_METHOD=$method")

# loaded FILE: this file of tests runs programs of the suite, and all of them load the library.
loaded() {
    local folder=$temporary/loaded programs
    mkdir "$folder"
    verdicts "$1" "$temporary/$suite/loaded" "${variables[@]}" LD_DEBUG=files LD_DEBUG_OUTPUT="$folder/by"
    programs=$(grep -lE "initialize program: (.*/)?(testfixture|git|perl)$" "$folder"/by.* | wc -l) || true
    ((programs > 0)) || fail "$1 runs none of the suite's programs"
    programs=$(grep -L "calling init: $temporary/libbulkmem_preload.so" "$folder"/by.* | wc -l) || true
    ((programs == 0)) || fail "$programs programs that $1 runs do not load the library"
    rm -r "$folder"
}

# excused FILE: its verdicts with the library, also when repeated, are all among those without.
excused() {
    local round with without ok
    for round in 1 2 3; do
        verdicts "$1" "$folder/alone.$round"
        verdicts "$1" "$folder/preloaded.$round" "${variables[@]}"
    done
    for with in "$folder"/preloaded*/"$1"; do
        ok=0
        for without in "$folder"/alone*/"$1"; do
            ! cmp --silent "$with" "$without" || ok=1
        done
        ((ok)) || return 1
    done
}

failed=0
for suite in "${suites[@]}"; do
    [[ -n ${address[$suite]:-} ]] || fail "$suite is not a suite: ${!address[*]}"
    heading "$suite"
    prepare || continue
    mapfile -t files < <(cd "$source" && "tests_$suite")
    folder=$temporary/$suite
    loaded "${files[0]}"
    all "$folder/alone"
    all "$folder/preloaded" "${variables[@]}"
    grep -rqE '^(not )?ok |\.\.\. ' "$folder/alone" || fail "$suite's tests print no verdicts"
    different=0
    for file in "${files[@]}"; do
        cmp --silent "$folder/alone/$file" "$folder/preloaded/$file" && continue
        diff "$folder/alone/$file" "$folder/preloaded/$file" || true
        if excused "$file"; then
            echo "$suite, $file: varies, without the library too"
        else
            echo "$suite, $file: FAILED: other verdicts with the library"
            different=$((different + 1))
            failed=1
        fi
    done
    mapfile -t both < <(cd "$folder/alone" && grep -rLx 'status 0' .)
    echo "$suite: $different files differ; ${#both[@]} have failures without the library too: ${both[*]#./}"
done
((failed == 0)) || fail "tests have other verdicts with the library: see above"
