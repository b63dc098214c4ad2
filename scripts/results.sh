# Runs test commands and adds up their results; sourced after common.sh, never run.
# shellcheck shell=bash
# `beside` passes results on in a file.
# shellcheck disable=SC2030,SC2031

logs=$TARGET_DIR/test-logs
mkdir -p "$logs"
rm -f "$logs"/*

passed=0
failed=0
ignored=0
skips=()
# "NAME: COMMAND": a failed test, and the command that reruns it.
failures=()
# "NAME MINUTES:SECONDS MINUTES:SECONDS" of each part: its time, and that of its processors, which other work on the machine changes less.
times=()

# measured NAME COMMAND…: runs the command of a part. In a subshell, so that its processors' time is that of the command alone.
measured() (
    result=0
    "${@:2}" || result=$?
    times >"$logs/$1.times"
    exit "$result"
)

# took NAME START: notes how long a part took that began when SECONDS was START.
took() {
    local seconds=$((SECONDS - $2)) worked
    worked=$(seconds_in "$logs/$1.times")
    times+=("$(printf '%s %d:%02d %d:%02d' "$1" $((seconds / 60)) $((seconds % 60)) $((worked / 60)) $((worked % 60)))")
}

# tests NAME KIND RERUN COMMAND…: runs a command that prints cargo's test results, and adds them up. failed.awk
# describes KIND and RERUN.
tests() {
    local name=$1 kind=$2 rerun=$3 log=$logs/$1.log status=0 start=$SECONDS sums line listed=0
    shift 3
    heading "$name: $*"
    # The output of tests that pass goes to the log only.
    measured "$name" "$@" 2>&1 | tee "$log" |
        sed --unbuffered -E '/^successes:$/,/^(failures:|test result:)/ { /^(failures:|test result:)/!d }' ||
        status=$?
    took "$name" "$start"
    read -r -a sums < <(awk -f scripts/tally.awk "$log")
    passed=$((passed + sums[0]))
    failed=$((failed + sums[1]))
    ignored=$((ignored + sums[2]))
    if ((status != 0 && sums[1] == 0)); then
        echo "error: $name ended with status $status and no failed test: see above" >&2
        failed=$((failed + 1))
    elif ((sums[0] + sums[1] + sums[2] == 0)); then
        echo "error: $name ran no test" >&2
        failed=$((failed + 1))
        status=1
    fi
    ((status != 0)) || return 0
    while IFS= read -r line; do
        failures+=("$line")
        listed=1
    done < <(awk -v kind="$kind" -v rerun="$rerun" -f scripts/failed.awk "$log")
    ((listed)) || failures+=("$name: $*")
}

# lint NAME COMMAND…: runs a command that must succeed; counts as one test.
lint() {
    local name=$1 log=$logs/$1.log start=$SECONDS
    shift
    heading "$name: $*"
    if measured "$name" "$@" 2>&1 | tee "$log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        failures+=("$name: $*: $(tail -n 1 "$log")")
    fi
    took "$name" "$start"
}

# beside FUNCTION: runs parts of the tests next to those that follow, at a lower priority. `joined` waits for them, and prints what
# they printed. They have a process group of their own, so that they end together with this script.
beside() {
    set -m
    (
        renice -n 5 -p "$BASHPID" >/dev/null
        passed=0 failed=0 ignored=0 skips=() failures=() times=()
        trap 'passed_on >"$logs/beside.results"' EXIT
        "$@"
    ) >"$logs/beside.out" 2>&1 </dev/null &
    beside=$!
    set +m
    # shellcheck disable=SC2064 # the number of now
    trap "kill -- -$beside 2>/dev/null || true; cat '$logs/beside.out'" EXIT
}

# passed_on: prints the results for `joined`.
passed_on() {
    printf '%s\n' "passed $passed" "failed $failed" "ignored $ignored" "${skips[@]/#/skip }" "${failures[@]/#/failure }" "${times[@]/#/time }"
}

joined() {
    local kind text result=0
    wait "$beside" || result=$?
    trap - EXIT
    cat "$logs/beside.out"
    while read -r kind text; do
        case $kind in
        passed) passed=$((passed + text)) ;;
        failed) failed=$((failed + text)) ;;
        ignored) ignored=$((ignored + text)) ;;
        skip) skips+=("$text") ;;
        failure) failures+=("$text") ;;
        time) times+=("$text") ;;
        esac
    done < <(cat "$logs/beside.results" || true)
    if ((result != 0)); then
        failed=$((failed + 1))
        failures+=("parts next to others: ended with status $result before their end: $logs/beside.out")
    fi
}

# summary: prints how long each part took, what was skipped, and what failed with the commands that rerun it. The last
# line has the sums. Returns 1 if something failed. BULKMEM_PROGRAMS_REQUIRED=1, for continuous integration, makes a test that
# was skipped because a program is not installed a failure.
summary() {
    local line
    while IFS= read -r line; do
        skips+=("$line")
        if [[ -n ${BULKMEM_PROGRAMS_REQUIRED-} && $line == *"not installed"* ]]; then
            failures+=("$line")
            failed=$((failed + 1))
        fi
    done < <(sed -n 's/^skipped: //p; s/^test \([^[].*\) \.\.\. ignored,\{0,1\} *\(.*\)$/\1: ignored: \2/p' "$logs"/*.log | sort -u)

    heading "minutes:seconds of each part, and of processors"
    printf '%s\n' "${times[@]}"

    heading "skipped"
    if ((${#skips[@]} == 0)); then
        echo "nothing"
    else
        printf -- '- %s\n' "${skips[@]}"
    fi

    if ((${#failures[@]})); then
        heading "failed; each with the command that reruns it"
        printf -- '- %s\n' "${failures[@]}"
    fi

    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "${#skips[@]}"
    ((failed == 0))
}
