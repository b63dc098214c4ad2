#!/usr/bin/env bash
# Runs larger programs without the preloaded library and with it, and compares what they print: NumPy's own tests, Redis, a
# Java virtual machine. Skips those that are not installed. Takes some minutes. scripts/preload-programs.sh [ARCHIVE]
# ARCHIVE is the static library that cargo built [default: builds the release].
set -euo pipefail
archive=${1:+$(realpath "$1")}
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

need_tools
if [[ -z $archive ]]; then
    cargo build --release --locked -p bulkmem-preload
    archive=$TARGET_DIR/release/libbulkmem_preload.a
fi
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
scripts/link-c.sh preload "$archive" "$temporary"
library=$temporary/libbulkmem_preload.so
failed=0

# shellcheck source=scripts/looking-policy.sh
. scripts/looking-policy.sh
# With calls counted, by methods of either kind for every long call, and as calibrated, with looks and new pages mapped ahead.
ways=(without counted non-temporal strings calibrated)

# counted COMMAND…: runs a command and counts the calls that the library would replace.
counted() {
    mkdir -p "$temporary/counts"
    BULKMEM_LIBDIR=$temporary BULKMEM_PROFILE=$policy "$bulkmem" run --from 16384 --histogram --json \
        --output "$(mktemp -u -p "$temporary/counts")" -- "$@"
}

# calls: the number of these calls since the last time.
calls() {
    /usr/bin/python3 -c 'import json, sys
print(sum(it["total"]["above_threshold"]["calls"] for name in sys.argv[1:] for it in json.load(open(name))["processes"]))' "$temporary"/counts/*
    rm -r "$temporary/counts"
}

# same NAME FUNCTION: runs the function, in a folder of its own, without the library and with it.
same() {
    local name=$1 function=$2 way folder replaced=0
    local -a variables command
    export LC_ALL=C
    heading "$name"
    for way in "${ways[@]}"; do
        folder=$(mktemp -d -p "$temporary")
        command=("$function")
        if [[ $way == counted ]]; then
            command+=(counted)
        elif [[ $way != without ]]; then
            case $way in
                non-temporal) variables=("BULKMEM_METHOD=clear:nontemporal_sse2,fill:nontemporal_sse2,copy:nontemporal_sse2") ;;
                strings) variables=("BULKMEM_METHOD=clear:rep_stosb,fill:rep_stosb,copy:rep_movsb") ;;
                calibrated) variables=("BULKMEM_PROFILE=$policy" BULKMEM_FROM=16384 BULKMEM_POPULATE=on) ;;
            esac
            command+=(env "LD_PRELOAD=$library" "${variables[@]}")
        fi
        # NumPy's tests leave thousands of temporary folders.
        mkdir "$folder/tmp"
        if ! (cd "$folder" && TMPDIR=$folder/tmp "${command[@]}") >"$folder.log" 2>&1; then
            echo "$name, $way: FAILED"
            tail -n 20 "$folder.log"
            failed=1
        elif [[ $way == without ]]; then
            mv "$folder.log" "$temporary/$name"
            echo "$name without the library: $(wc -l <"$temporary/$name") lines"
        elif diff "$temporary/$name" "$folder.log"; then
            echo "$name, $way: the same"
            [[ $way != counted ]] || replaced=$(calls)
        else
            echo "$name, $way: FAILED: different output"
            failed=1
        fi
        rm -rf "$folder"
    done
    echo "$name: the library replaces $replaced calls"
    ((replaced > 0)) || failed=1
}

# The verdict of each test, and their numbers without times. Each package in a process of its own: many tests collect garbage, which takes
# longer the more of others are loaded. Without distutils, f2py and typing, which run compilers and linters.
numpy() {
    local package
    for package in array_api compat core fft lib linalg ma matrixlib polynomial random testing tests; do
        "$@" /usr/bin/python3 -c 'import numpy, sys
extra = ["-p", "no:cacheprovider", "-rA", "--show-capture=no"]
raise SystemExit(not numpy.test(verbose=0, tests=["numpy." + sys.argv[1]], extra_argv=extra))' "$package" >all 2>&1 || tail -n 40 all
        grep -qE '^[0-9]* passed' all || return 1
        sed -nE "s/(, [0-9]* warning.*)? in [0-9.]*s.*//; /^(PASSED|FAILED|ERROR|XFAIL|XPASS) / { s/ - .*//; s,^,$package: ,; p }; s,^[0-9]* (passed|failed),$package: &,p" all >>verdicts
    done
    sort verdicts
}

redis() {
    local status=0
    # The server takes commands for debugging from this machine only.
    "$@" redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --save '' --loglevel warning --enable-debug-command yes >server.log &
    until ask ping >/dev/null 2>&1; do
        kill -0 $! 2>/dev/null || { cat server.log && return 1; }
        sleep 0.1
    done
    redis_work || status=1
    ask shutdown nosave || true
    wait
    return "$status"
}
# Fails if the server refuses a command.
ask() { redis-cli -e -s "$PWD/socket" "$@"; }
redis_work() {
    local keys
    ask debug populate 20000 key 3000 &&
        head -c 9000000 /dev/zero | tr '\0' x | ask -x set large &&
        ask setrange large 4000000 "$(head -c 100000 /dev/zero | tr '\0' y)" &&
        ask append large "$(head -c 100000 /dev/zero | tr '\0' z)" &&
        ask eval 'for i = 1, 2000 do redis.call("rpush", "list", string.rep(i, 9000)) end return redis.call("llen", "list")' 0 &&
        keys=$(ask dbsize) && [[ $keys == 20002 ]] &&
        ask debug digest &&
        ask save &&
        ask debug reload &&
        ask bgrewriteaof &&
        ask debug digest &&
        ask get large | sha1sum
}

java_machine() {
    cat >Main.java <<'END'
import java.security.MessageDigest;
import java.util.*;
import java.util.stream.*;

public class Main {
    static void show(String name, byte[] bytes) throws Exception {
        System.out.println(name + " " + bytes.length + " " + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes)));
    }
    public static void main(String[] arguments) throws Exception {
        byte[] bytes = new byte[20_000_000];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) (i * 31 % 251);
        for (int round = 0; round < 50; round++) {
            byte[] copy = Arrays.copyOf(bytes, bytes.length + round);
            System.arraycopy(copy, 0, copy, round + 1, bytes.length - 1);
            System.arraycopy(copy, 100_000, bytes, round, 5_000_000);
            Arrays.fill(copy, 1000, 9_000_000, (byte) round);
            if (round % 10 == 0) show("copy", copy);
        }
        show("bytes", bytes);
        java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(30_000_000);
        direct.put(bytes);
        direct.flip();
        byte[] back = new byte[direct.remaining()];
        direct.get(back);
        show("direct", back);
        String text = IntStream.range(0, 2_000_000).mapToObj(Integer::toString).collect(Collectors.joining(","));
        show("text", text.replace("99", "-").getBytes("UTF-8"));
        List<Integer> list = new Random(7).ints(1_000_000).boxed().sorted().collect(Collectors.toList());
        System.out.println(list.hashCode());
        java.util.zip.CRC32 sum = new java.util.zip.CRC32();
        sum.update(text.getBytes());
        System.out.println(sum.getValue());
    }
}
END
    for collector in Serial G1 Parallel; do
        "$@" java -Xmx1g "-XX:+Use${collector}GC" Main.java
    done
}

# available NAME PACKAGE COMMAND…: true if the command succeeds.
available() {
    local name=$1 package=$2
    shift 2
    "$@" >/dev/null 2>&1 || { echo "skipped: $name with the preloaded library: not installed; remedy: apt-get install $package" && false; }
}

! available NumPy "python3-numpy python3-pytest python3-hypothesis python3-typing-extensions" \
    /usr/bin/python3 -c 'import numpy, pytest, hypothesis, typing_extensions' || same numpy numpy
! available Redis redis-server redis-server --version || same redis redis
! available Java default-jdk-headless javac -version || same java java_machine
((failed == 0)) || fail "a program printed something else with the library"
