# bulkmem's random input and output beside fio's, on the same file. Sourced, never run.
# shellcheck shell=bash

# fio_iops ENGINE FILE BYTES BLOCK DIRECTION SECONDS: operations a second, as fio counts them. No latencies are kept
# (gtod_reduce), nothing is written but the data (no scrambling, no sync), and every page was touched before the clock
# runs (ramp_time).
fio_iops() {
    local field=8
    [[ $5 == write ]] && field=49
    fio --name=agreement --filename="$2" --size="$3" --bs="$4" --rw="rand$5" --ioengine="$1" --iodepth=1 --thread \
        --time_based --runtime="$6" --ramp_time=1 --norandommap --gtod_reduce=1 --scramble_buffers=0 --invalidate=0 \
        --fallocate=none --overwrite=1 --output-format=terse --terse-version=3 2>/dev/null |
        awk -F';' -v field="$field" '$1 == 3 { print $field; found = 1 } END { exit !found }'
}

# bulkmem_iops FILE BYTES BLOCK DIRECTION: the same of bulkmem, by memcpy in one thread.
bulkmem_iops() {
    "$TARGET_DIR/release/bulkmem" bench iops --target "$1" --working-set "$2" --overwrite --block "$3" --direction "$4" \
        --threads 1 --method c_library --runs 3 --csv - 2>/dev/null |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "median") at = i }
                 $3 == "c_library" { print $at; found = 1 } END { exit !found }'
}

# median NUMBER…
median() {
    printf '%s\n' "$@" | sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

# fio_agreement FOLDER…: a Markdown table. In each folder a file is made, and removed; fio and bulkmem work on it in
# turns. Of fio, the time that its engine `null` takes, which moves no data, is what an operation costs it besides the
# copy. FIO_ROUNDS (5), FIO_BYTES (268435456) and FIO_SECONDS (2) may be set.
fio_agreement() {
    local rounds=${FIO_ROUNDS:-5} bytes=${FIO_BYTES:-268435456} seconds=${FIO_SECONDS:-2}
    local folder file engine block direction round
    command -v fio >/dev/null || install_packages fio || fail "fio is not installed (Debian: apt-get install fio)"
    printf '| file | engine | block | | fio IOPS | bulkmem IOPS | ratio | fio ns | of that its own | the copy | bulkmem ns |\n'
    printf '|---|---|---|---|---|---|---|---|---|---|---|\n'
    for folder in "$@"; do
        file=$(mktemp "$folder/bulkmem-agreement.XXXXXX") || fail "no file can be made in $folder"
        # shellcheck disable=SC2064 # this file, whatever comes later
        trap "rm -f '$file'" EXIT
        head -c "$bytes" /dev/urandom >"$file" || fail "$folder has no room for $bytes bytes"
        # The engine libpmem takes files on DAX only.
        engine=libpmem
        fio_iops libpmem "$file" "$bytes" 4096 read 1 >/dev/null || engine=mmap
        for block in 4096 65536 1048576; do
            for direction in read write; do
                local fio=() own=() ours=()
                for ((round = 0; round < rounds; round++)); do
                    fio+=("$(fio_iops "$engine" "$file" "$bytes" "$block" "$direction" "$seconds")")
                    ours+=("$(bulkmem_iops "$file" "$bytes" "$block" "$direction")")
                    own+=("$(fio_iops null "$file" "$bytes" "$block" "$direction" "$seconds")")
                done
                awk -v folder="$folder" -v engine="$engine" -v block="$block" -v direction="$direction" \
                    -v fio="$(median "${fio[@]}")" -v own="$(median "${own[@]}")" -v ours="$(median "${ours[@]}")" 'BEGIN {
                        printf "| %s | %s | %d KiB | %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.0f | %.0f |\n", folder, engine,
                            block / 1024, direction, fio, ours, fio / ours, 1e9 / fio, 1e9 / own, 1e9 / fio - 1e9 / own,
                            1e9 / ours
                    }'
            done
        done
        rm -f "$file"
    done
}
