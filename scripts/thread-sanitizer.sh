#!/usr/bin/env bash
# Runs threads of a C program under ThreadSanitizer, with the library and Rust's standard library built for it, and checks
# that it reports a race. Needs a nightly toolchain with rust-src. The first build takes some minutes.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

target=x86_64-unknown-linux-gnu
folder=$TARGET_DIR/thread-sanitizer
RUSTFLAGS=-Zsanitizer=thread cargo +nightly build -Zbuild-std --locked --target $target --target-dir "$folder" -p bulkmem-c
runtime=$(rustc +nightly --print sysroot)/lib/rustlib/$target/lib/librustc-nightly_rt.tsan.a

# run NAME: compiles a program and runs it.
run() {
    cc -std=c11 -O1 -g -fsanitize=thread -pthread -I crates/bulkmem-c/include -c "crates/bulkmem-c/tests/c/$1.c" -o "$folder/$1.o"
    cc -pthread -o "$folder/$1" "$folder/$1.o" -Wl,--whole-archive "$folder/$target/debug/libbulkmem_c.a" "$runtime" \
        -Wl,--no-whole-archive -ldl -lm -lrt
    scripts/isolated.sh env "POLICY=$folder/looking.policy" "$folder/$1"
}

awk -F '\t*: ' '$1 == "processor" && seen++ { exit } { about[$1] = $2 } END {
    print "bulkmem-policy 4\ncpu", about["cpu family"], about["model"], about["stepping"], about["vendor_id"]
    print "rule fill throughput 0 c_library\nrule fill cached 0 c_library\nrule fill uncached 0 portable"
    print "look fill 8192 1 4000000000 c_library\nend"
}' /proc/cpuinfo >"$folder/looking.policy"
run threads
if report=$(run race 2>&1); then fail "ThreadSanitizer does not report the race in race.c"; fi
[[ $report == *"data race"* ]] || fail "race.c fails without a race: $report"
# As cargo reports tests; `make test` adds them up.
echo "test result: ok. 2 passed; 0 failed; 0 ignored: no race in threads.c, and the one in race.c"
