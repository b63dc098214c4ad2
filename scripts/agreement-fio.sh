# Compares the random reads and writes of bulkmem with those of fio, on the same file. Sourced, never run.
# shellcheck shell=bash
# agreement.sh, which sources this, sets bulkmem, RUNS and scratch, and has say and middle.
# shellcheck disable=SC2154

# fio_iops ENGINE FILE BYTES BLOCK DIRECTION SECONDS: prints operations per second, as counted by fio. fio keeps no
# latencies (gtod_reduce), writes only the data (no scrambling, no sync), and touches every page before the clock
# starts (ramp_time). ENGINE bulkmem is ours, with memcpy.
fio_iops() {
    local field=8 engine=$1
    local -a own=()
    [[ $5 == write ]] && field=49
    [[ $engine != bulkmem ]] || { engine=external:$fio_engine && own=(--method=c_library --read_method=c_library); }
    fio --name=agreement --filename="$2" --size="$3" --bs="$4" --rw="rand$5" --ioengine="$engine" "${own[@]}" --iodepth=1 --thread \
        --time_based --runtime="$6" --ramp_time=1 --norandommap --gtod_reduce=1 --scramble_buffers=0 --invalidate=0 \
        --fallocate=none --overwrite=1 --output-format=terse --terse-version=3 2>/dev/null |
        awk -F';' -v field="$field" '$1 == 3 && $field > 0 { print $field; found = 1 } END { exit !found }'
}

# bulkmem_iops FILE BYTES BLOCK DIRECTION: prints the same for bulkmem, with memcpy in one thread.
bulkmem_iops() {
    "$bulkmem" bench iops --target "$1" --working-set "$2" --overwrite --block "$3" --direction "$4" \
        --threads 1 --method c_library --peers none --runs 3 --csv - 2>/dev/null |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "median") at = i }
                 $3 == "c_library" { print $at; found = 1 } END { exit !found }'
}

# fio_row FOLDER ENGINE BLOCK DIRECTION: prints a row of the table; for fio_agreement, whose variables it uses.
fio_row() {
    local folder=$1 engine=$2 block=$3 direction=$4 run
    say "fio's $engine and bulkmem: $folder, blocks of $block bytes, $direction"
    : >"$scratch/fio"
    : >"$scratch/null"
    : >"$scratch/ours"
    for ((run = 0; run < RUNS; run++)); do
        fio_iops "$engine" "$fio_file" "$bytes" "$block" "$direction" "$seconds" >>"$scratch/fio"
        bulkmem_iops "$fio_file" "$bytes" "$block" "$direction" >>"$scratch/ours"
        fio_iops null "$fio_file" "$bytes" "$block" "$direction" "$seconds" >>"$scratch/null"
    done
    awk -v folder="$folder" -v engine="$engine" -v block="$block" -v direction="$direction" \
        -v fio="$(middle <"$scratch/fio")" -v own="$(middle <"$scratch/null")" -v ours="$(middle <"$scratch/ours")" 'BEGIN {
            printf "| `%s` | %s | %d KiB | %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.0f | %.0f |\n", folder, engine,
                block / 1024, direction, fio, ours, ours / fio, 1e9 / fio, 1e9 / own, 1e9 / fio - 1e9 / own, 1e9 / ours
        }'
}

# fio_agreement FOLDER…: prints a Markdown table. Creates a file in each folder, measures it with fio and bulkmem in
# alternation, and removes it. Subtracts from fio's time that of its engine `null`, which copies nothing. FIO_BYTES
# (268435456) and FIO_SECONDS (2) may be set.
fio_agreement() {
    local bytes=${FIO_BYTES:-268435456} seconds=${FIO_SECONDS:-2} folder engine other block direction fio_engine
    if ! command -v fio >/dev/null && ! install_packages fio >&2; then
        missing "fio, to compare with (Debian: apt-get install fio)"
        return 1
    fi
    fio_engine=$(scripts/build-fio.sh) || return
    printf '\n%s against bulkmem, %s runs each in turns, %s MiB, one thread; medians:\n\n' "$(fio --version)" "$RUNS" \
        "$((bytes >> 20))"
    echo '| file in | engine | block | | fio, IOPS | bulkmem, IOPS | ratio | fio, ns | its own share, ns | the copy, ns | bulkmem, ns |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|'
    for folder in "$@"; do
        fio_file=$(mktemp "$folder/bulkmem-agreement.XXXXXX") || return
        trap 'rm -rf "$scratch"; rm -f "$fio_file"' EXIT
        head -c "$bytes" /dev/urandom >"$fio_file" || return
        # The engine libpmem needs files on DAX.
        other=libpmem
        fio_iops libpmem "$fio_file" "$bytes" 4096 read 1 >/dev/null || other=mmap
        for block in 4096 65536 1048576; do
            for direction in read write; do
                for engine in "$other" bulkmem; do
                    fio_row "$folder" "$engine" "$block" "$direction"
                done
            done
        done
        rm -f "$fio_file"
    done
}
