#!/usr/bin/env bash
# Checks bulkmem's figures: measures the same function on the same memory with bulkmem and with another program, in
# alternation. Prints a Markdown table for docs/agreement.md, and progress to stderr.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

RUNS=${BULKMEM_AGREEMENT_RUNS:-9}
SIZES=${BULKMEM_AGREEMENT_SIZES:-1M,16M,128M,1G}
# Minimum bytes per sample, so that the clock and the start of a process are negligible.
VOLUME=$((2 << 30))
# Largest difference from a ratio of 1 that counts as agreement, percent.
WITHIN=5

usage() {
    cat <<'END'
Usage: scripts/agreement.sh perf
       scripts/agreement.sh fio FOLDER…

Measures in turns what both can do, with bulkmem and with perf bench mem or fio (on a file in each
folder). Prints a Markdown table of medians and their ratio.

  BULKMEM_AGREEMENT_RUNS   runs of each side, at least 9 for figures worth keeping [default: 9]
  BULKMEM_AGREEMENT_SIZES  sizes for perf, with K, M or G [default: 1M,16M,128M,1G]
END
}

# say TEXT: prints progress to stderr.
say() { printf '%s\n' "$*" >&2; }

# middle: prints the median of the numbers on stdin, one per line.
middle() {
    sort -g | awk '{ value[NR] = $1 } END {
        if (NR == 0) exit 1
        print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2
    }'
}

# spread: prints the larger distance of the quartiles on stdin from their median, percent.
spread() {
    sort -g | awk '{ value[NR] = $1 } END {
        middle = value[int((NR + 1) / 2)]
        low = middle - value[int((NR + 3) / 4)]
        high = value[int((3 * NR + 1) / 4)] - middle
        printf "%.1f\n", 100 * (low > high ? low : high) / middle
    }'
}

# alternate RUNS A B: calls the functions A and B in alternation, A B B A, each of which prints a number. Writes the
# numbers to $scratch/a and $scratch/b. One warm-up of each before is not counted.
alternate() {
    local runs=$1 a=$2 b=$3 run
    "$a" >/dev/null
    "$b" >/dev/null
    : >"$scratch/a"
    : >"$scratch/b"
    for ((run = 0; run < runs; run++)); do
        if ((run % 2 == 0)); then
            "$a" >>"$scratch/a"
            "$b" >>"$scratch/b"
        else
            "$b" >>"$scratch/b"
            "$a" >>"$scratch/a"
        fi
    done
}

# row NAME…: prints a table row of $scratch/a (the other program) and $scratch/b (bulkmem), after the given cells.
row() {
    local theirs ours
    theirs=$(middle <"$scratch/a")
    ours=$(middle <"$scratch/b")
    printf '| %s ' "$@"
    awk -v theirs="$theirs" -v ours="$ours" -v within="$WITHIN" \
        -v spread_theirs="$(spread <"$scratch/a")" -v spread_ours="$(spread <"$scratch/b")" 'BEGIN {
        ratio = ours / theirs
        apart = ratio > 1 ? ratio - 1 : 1 - ratio
        printf "| %.2f ±%s%% | %.2f ±%s%% | %.3f | %s |\n", theirs, spread_theirs, ours, spread_ours, ratio,
            100 * apart <= within ? "yes" : "**no**"
    }'
}

# bytes SIZE: prints 16M as a number.
bytes() {
    numfmt --from=iec "$1"
}

# ours FUNCTION ARGUMENT…: prints one sample of a function by bulkmem bench, GB/s. One process per sample, like the
# other programs, so that each has different memory.
ours() {
    local function=$1
    shift
    "$bulkmem" bench "$@" --method "$function" --peers none --runs 1 --csv - 2>/dev/null |
        awk -F, -v who="$function" 'NR == 1 { for (at = 1; at <= NF; at++) column[$at] = at }
            $column["name"] == who { print $column["median"] }'
}

# perf_agreement: perf bench mem memset and memcpy against bulkmem bench clear, fill and copy.
#
# perf prefaults by calling the function once, and then times `loops` calls. The first timed call of memset writes
# zeros over bytes of 255, the second over zeros, and so on. So one loop is a clear, and many are fills: --loops 1 is
# compared with bench clear, more with bench fill. memcpy copies zeros onto zeros: --zeros.
perf_agreement() {
    if ! command -v perf >/dev/null && ! install_packages linux-perf >&2; then
        missing "perf, to compare with (Debian: apt-get install linux-perf)"
        return 1
    fi
    local pages=4K offset=16 size loops
    # Newer versions map whole pages; older ones use memory from calloc, 16 bytes after a page boundary.
    local help
    help=$(perf bench mem memset -h 2>&1 || true)
    if [[ $help == *--page* ]]; then
        offset=0
    fi
    if grep -q '\[always\]' /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null; then
        pages=thp
    fi
    printf '\n%s against bulkmem, %s runs each in turns, pages of %s, %s bytes past a page; GB/s (10⁹), median and quartiles:\n\n' \
        "$(perf --version)" "$RUNS" "$pages" "$offset"
    echo "| operation | size | function | perf bench mem | bulkmem bench | ratio | within $WITHIN % |"
    echo '|---|---|---|---|---|---|---|'
    for size in ${SIZES//,/ }; do
        loops=$((VOLUME / $(bytes "$size")))
        # The first pass is a clear, because perf writes the number of the pass: of 16 passes, it accounts for 2 %.
        ((loops >= 16)) || loops=16
        # perf's clock counts microseconds, so a single pass over fewer bytes is too short.
        if (($(bytes "$size") >= 16 << 20)); then
            perf_pair memset clear "$size" 1 default c_library
            single_pass "$size" default c_library
            perf_pair memset clear "$size" 1 x86-64-stosb rep_stosb
            single_pass "$size" stosb rep_stosb
        fi
        perf_pair memset fill "$size" "$loops" default c_library
        perf_pair memset fill "$size" "$loops" x86-64-stosb rep_stosb
        perf_pair memset fill "$size" "$loops" x86-64-stosq rep_stosq
        perf_pair memcpy copy "$size" "$loops" default c_library
        perf_pair memcpy copy "$size" "$loops" x86-64-movsb rep_movsb
        perf_pair memcpy copy "$size" "$loops" x86-64-movsq rep_movsq
    done
}

# perf_pair BENCHMARK OPERATION SIZE LOOPS THEIRS OURS: prints one row.
perf_pair() {
    local benchmark=$1 operation=$2 size=$3 loops=$4 theirs=$5 here=$6
    local arguments=("$operation" --size "$size" --loops "$loops" --page-size "$pages" --offset "$offset")
    if [[ $operation == copy ]]; then
        arguments+=(--zeros)
    fi
    local known
    known=$(perf bench mem "$benchmark" -f help 2>&1 || true)
    if [[ $known != *"$theirs "* ]]; then
        say "perf's $benchmark has no $theirs on this machine: left out"
        return
    fi
    # shellcheck disable=SC2317 # alternate calls it by name
    perf_side() {
        # Bytes per second, after a comment.
        perf bench -f simple mem "$benchmark" -s "${size}B" -l "$loops" -f "$theirs" | awk '/^[0-9]/ { printf "%.4f\n", $1 / 1e9 }'
    }
    # shellcheck disable=SC2317 # as above
    our_side() { ours "$here" "${arguments[@]}"; }
    say "$benchmark, $size, $loops loops: $theirs and $here"
    alternate "$RUNS" perf_side our_side
    row "$operation" "$size" "$theirs, $here"
}

# single_pass SIZE THEIRS OURS: prints two rows that explain a single pass of perf. perf times the first pass after the
# one that faulted the memory in; bulkmem, one after three more. single-pass.c does either.
single_pass() {
    local size=$1 theirs=$2 here=$3 length
    length=$(bytes "$size")
    [[ -x $scratch/single-pass ]] || "${CC:-cc}" -O2 -o "$scratch/single-pass" scripts/single-pass.c
    # shellcheck disable=SC2317 # alternate calls them by name
    perf_side() {
        perf bench -f simple mem memset -s "${size}B" -l 1 -f "${theirs/#stosb/x86-64-stosb}" |
            awk '/^[0-9]/ { printf "%.4f\n", $1 / 1e9 }'
    }
    # shellcheck disable=SC2317 # as above
    first() { "$scratch/single-pass" "$length" 0 "$theirs" "$offset"; }
    # shellcheck disable=SC2317 # as above
    fourth() { "$scratch/single-pass" "$length" 3 "$theirs" "$offset"; }
    # shellcheck disable=SC2317 # as above
    our_side() { ours "$here" clear --size "$size" --loops 1 --page-size "$pages" --offset "$offset"; }
    say "single pass, $size: $theirs"
    alternate "$RUNS" perf_side first
    row "perf, the pass after faulting" "$size" "$theirs"
    alternate "$RUNS" fourth our_side
    row "the fourth pass after it, bulkmem" "$size" "$here"
}

# fio_agreement FOLDER…: compares fio with bulkmem bench iops, on the same file in each folder.
if [[ -f scripts/agreement-fio.sh ]]; then
    # shellcheck source=/dev/null
    . scripts/agreement-fio.sh
fi

case ${1-} in
perf) (($# == 1)) || { usage >&2 && exit 2; } ;;
fio) (($# >= 2)) || { usage >&2 && exit 2; } ;;
-h | --help)
    usage
    exit
    ;;
*)
    usage >&2
    exit 2
    ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
need_tools
cargo build --release --locked -p bulkmem-cli >&2
bulkmem=${TARGET_DIR}/release/bulkmem

part=$1
shift
case $part in
perf) perf_agreement ;;
fio) fio_agreement "$@" ;;
esac
