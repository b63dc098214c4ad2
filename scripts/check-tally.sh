#!/usr/bin/env bash
# Checks tally.awk, failed.awk, results.sh and matrix.awk, from which `make test` derives its result, with outputs whose sums and failures are
# known. Prints its own result in cargo's form.
set -euo pipefail
cd "$(dirname "$0")"

passed=0
failed=0

# compare NAME WANT GOT
compare() {
    if [[ $3 == "$2" ]]; then
        passed=$((passed + 1))
        echo "test tally::$1 ... ok"
    else
        failed=$((failed + 1))
        echo "test tally::$1 ... FAILED: $3 instead of $2"
    fi
}

# expect NAME SUMS: tallies standard input.
expect() { compare "$1" "$2" "$(awk -f tally.awk)"; }

# lists NAME KIND RERUN LINES: lists what failed in standard input.
lists() { compare "$1" "$4" "$(awk -v kind="$2" -v rerun="$3" -f failed.awk)"; }

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

# results SCRIPT: runs a script with the functions of results.sh and an empty folder of logs.
results() {
    local scratch
    scratch=$(mktemp -d)
    CARGO_TARGET_DIR=$scratch bash -c ". ./common.sh; . scripts/results.sh; $1"
    rm -r "$scratch"
}

# shellcheck disable=SC2016 # expanded by the script
skipped='echo "skipped: a client: fio is not installed" >"$logs/a.log"; summary | tail -n 1'
compare counts_skips '0 passed, 0 failed, 1 skipped' "$(BULKMEM_PROGRAMS_REQUIRED='' results "$skipped")"
compare programs_may_be_required '0 passed, 1 failed, 1 skipped' "$(BULKMEM_PROGRAMS_REQUIRED=1 results "$skipped")"

strict='set -euo pipefail; '
ok='tests outer whole again echo "test result: ok. 2 passed; 0 failed; 0 ignored;"'
inner='tests inner whole again bash -c "echo \"test a ... FAILED\"; echo \"test result: FAILED. 1 passed; 1 failed; 0 ignored;\"; exit 1"; skips+=("a part"); '
# ends NAME WANT SCRIPT: compares the end of the output.
ends() { compare "$1" "$2" "$(results "$strict$3" | sed -n '/^== failed/,$p' | grep -v '^$' | sed 1d | paste -sd '|')"; }
ends parts_beside_others_count '- a: again|3 passed, 1 failed, 1 skipped' "part() { $inner }; beside part; $ok; joined; summary"
ends parts_beside_others_must_end \
    '- a: again|- parts next to others: ended with status 1 before their end: LOG|3 passed, 2 failed, 1 skipped' \
    "part() { $inner false; }; beside part; $ok; joined; summary | sed 's|/[^ ]*beside.out|LOG|'"
compare parts_beside_others_are_timed '2' "$(results "${strict}part() { $inner }; beside part; $ok; joined; summary" | grep -c '^\(inner\|outer\) 0:0')"

# What the tests that passed printed goes to the log only.
compare output_of_passed_tests_is_left_out "$(printf 'test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored')" \
    "$(results "tests name cargo rerun printf '%s\\n' 'test a ... ok' successes: '---- a stdout ----' 'test noise ... ok' successes: \
        'test result: ok. 1 passed; 0 failed; 0 ignored' | tail -n +3")"

# A test with output of its own, one that failed, one that crashed, and a kernel without one of the groups.
compare tells_kernels_apart "$(printf '%-12s%12s%12s\n' '' 6.1 7.3 build 1 - hints 2 1/3 guest 1 0/1)" \
    "$(awk -f ../kmod/tests/matrix.awk <<'INPUT'
6.1	test build::6.1::plain ... ok
6.1	test hints::one   ... ok
6.1	test hints::two ... two: BULKMEM_SEED=1
6.1	ok
6.1	test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
6.1	test 6.1::reaches_its_end ... ok
7.3	test hints::one ... ok
7.3	test hints::two ... FAILED
7.3	test hints::left_out ... ignored
7.3	test hints::three ...
7.3	test 7.3::reaches_its_end ... FAILED
INPUT
)"

lists names_what_failed_and_its_rerun cargo 'cargo test' \
    "plan::tests::overlap: cargo test -p bulkmem --lib -- --exact 'plan::tests::overlap'
crates/bulkmem/src/lib.rs - (line 4): cargo test -p bulkmem --doc -- --exact 'crates/bulkmem/src/lib.rs - (line 4)'" <<'INPUT'
     Running unittests src/lib.rs (target/debug/deps/a-0)
test plan::tests::overlap ... FAILED
test plan::tests::other ... ok

successes:
    plan::tests::other

failures:

---- plan::tests::overlap stdout ----
    indented words of a test

failures:
    plan::tests::overlap

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p bulkmem --lib`
     Running tests/oracle.rs (target/debug/deps/oracle-0)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests bulkmem

failures:
    crates/bulkmem/src/lib.rs - (line 4)

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: doctest failed, to rerun pass `-p bulkmem --doc`
error: 2 targets failed:
    `-p bulkmem --lib`
    `-p bulkmem --doc`
INPUT

lists names_a_program_that_crashed cargo 'cargo test' \
    'tests/oracle.rs (did not reach its end): cargo test -p bulkmem --test oracle' <<'INPUT'
     Running unittests src/lib.rs (target/debug/deps/a-0)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/oracle.rs (target/debug/deps/oracle-0)
running 7 tests
error: test failed, to rerun pass `-p bulkmem --test oracle`
INPUT

lists names_the_kernel_of_a_module_test kmod scripts/test-kmod.sh \
    "build::6.1::plain: scripts/test-kmod.sh
clearing::bytes: scripts/test-kmod.sh bare-6.1 --tests 'clearing::bytes'
bare-6.1::reaches_its_end: scripts/test-kmod.sh bare-6.1
build::6.12::planted: scripts/test-kmod.sh
planted::no fence is seen by clearing::bytes: scripts/test-kmod.sh planted
dkms (did not reach its end): scripts/test-kmod.sh dkms" <<'INPUT'
test build::6.1::plain ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

     Running bare-6.1
test clearing::bytes     ... FAILED
test clearing::counters  ... ok
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test bare-6.1::reaches_its_end ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

     Running changed-modules
test build::6.12::planted ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

     Running planted
test planted::no fence is seen by clearing::bytes ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

     Running dkms
INPUT

lists names_what_can_only_be_rerun_whole whole scripts/check-tally.sh \
    'tally::a: scripts/check-tally.sh' <<'INPUT'
test tally::a ... FAILED: 1 instead of 2
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
INPUT

verdict=ok
((failed == 0)) || verdict=FAILED
echo "test result: $verdict. $passed passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
((failed == 0))
