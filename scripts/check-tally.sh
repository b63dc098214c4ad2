#!/usr/bin/env bash
# Checks tally.awk, on which the verdict of `make test` rests, against outputs with known sums.
# Prints its own result in cargo's form.
set -euo pipefail
cd "$(dirname "$0")"

passed=0
failed=0

# expect NAME SUMS: tallies standard input.
expect() {
    local name=$1 want=$2 got
    got=$(awk -f tally.awk)
    if [[ $got == "$want" ]]; then
        passed=$((passed + 1))
        echo "test tally::$name ... ok"
    else
        failed=$((failed + 1))
        echo "test tally::$name ... FAILED: $got instead of $want"
    fi
}

expect sums_every_harness '5 0 1' <<'INPUT'
     Running unittests src/lib.rs (target/debug/deps/a-0)
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests bulkmem
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
INPUT

expect counts_failures '3 2 0' <<'INPUT'
     Running unittests src/lib.rs (target/debug/deps/a-0)
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
INPUT

expect counts_a_crash '1 1 0' <<'INPUT'
     Running unittests src/lib.rs (target/debug/deps/a-0)
running 7 tests
     Running tests/oracle.rs (target/debug/deps/oracle-0)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
INPUT

expect counts_nothing_as_nothing '0 0 0' </dev/null

verdict=ok
((failed == 0)) || verdict=FAILED
echo "test result: $verdict. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
((failed == 0))
