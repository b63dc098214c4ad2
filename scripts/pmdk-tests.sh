#!/usr/bin/env bash
# Runs PMDK's own tests of libpmem, and its pmembench, with Debian's libpmem1 and with ours. Fails if a test fails with ours, or a
# benchmark does: those of libpmem, and of libpmemobj, libpmemblk and libpmemlog, which are Debian's and use it. Takes some
# minutes. scripts/pmdk-tests.sh [ARCHIVE [POLICY]]
# ARCHIVE is the static library that cargo built [default, or -: builds the release]; POLICY is the policy file with which
# pmembench runs [default: none]. Fetches the source that Debian's pmdk package is
# made of, once, to BULKMEM_PMDK_CACHE [default: ~/.cache/bulkmem/pmdk]; its checksum is below. PMDK's test framework runs the
# tests: on memory that passes for persistent (PMEM_IS_PMEM_FORCE=1), and on a file system that does not.
set -euo pipefail
archive=${1:--}
[[ $archive == - ]] || archive=$(realpath "$archive")
policy=${2:+$(realpath "$2")}
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

version=1.13.1
checksum=d5e5eded825cd6d742ec836352001e8cb262e428926e767f55498f16c2d977e1
address=https://deb.debian.org/debian/pool/main/p/pmdk/pmdk_$version.orig.tar.gz
# Of pmembench: interleaved runs with each library, and operations of each case; the benchmarks of the other libraries run once, with
# fewer.
rounds=5
operations=4000
few=100

skip() {
    echo "skipped: PMDK's tests of libpmem: $*"
    exit 0
}

# Those that run in a virtual machine with an NVDIMM.
on_device_dax=(pmem_deep_persist/TEST2 pmem_deep_persist/TEST3 pmem_map_file/TEST2)

# Prints the reason why a test cannot run; fails if it can.
not_runnable() {
    case $1 in
        pmem_deep_persist/TEST[5-9]) echo "tests a function inside of libpmemobj, which it compiles in" ;;
        pmem_is_pmem_posix/*) echo "tests a function inside of PMDK's libpmem, which it compiles in" ;;
        pmem_eADR_functions/*) echo "searches the log of PMDK's debug build for functions inside of it" ;;
        pmem_movnt_align/TEST1 | pmem_valgr_simple/*) echo "needs pmemcheck, which Debian's Valgrind does not have" ;;
        pmem_has_auto_flush/*) ! unshare --map-root-user --mount true 2>/dev/null && echo "needs a mount namespace" ;;
        *) return 1 ;;
    esac
}

need_tools
[[ $(uname -m) == x86_64 ]] || skip "the library is for x86-64"
[[ $(stat -f -c %T /dev/shm) == tmpfs ]] || skip "/dev/shm is not in memory"
packages=(make g++ pkg-config libglib2.0-dev python3 strace curl ca-certificates libpmem1 libpmemobj1 libpmemblk1 libpmemlog1 libpmempool1)
dpkg --status "${packages[@]}" >/dev/null 2>&1 || install_packages "${packages[@]}" ||
    skip "packages are missing; remedy: apt-get install ${packages[*]}"

cache=${BULKMEM_PMDK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bulkmem/pmdk}
file=$cache/${address##*/}
right() { [[ -f $1 ]] && echo "$checksum  $1" | sha256sum --check --status; }
if ! right "$file"; then
    mkdir -p "$cache"
    curl --silent --show-error --fail --location --retry 2 --output "$file.part" "$address" ||
        skip "$address cannot be fetched; remedy: put that file into $cache"
    right "$file.part" || fail "$address is not the file that these tests were written for: its checksum differs. Delete $file.part."
    mv "$file.part" "$file"
fi

temporary=$(mktemp -d)
memory=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$temporary" "$memory"' EXIT
if [[ $archive == - ]]; then
    cargo build --release --locked -p bulkmem-libpmem
    archive=$TARGET_DIR/release/libbulkmem_libpmem.a
fi
scripts/link-c.sh libpmem "$archive" "$temporary"
declare -A library=(
    [debian]=$(/sbin/ldconfig -p | sed -n 's/.*libpmem\.so\.1 (libc6,x86-64) => //p' | head -n 1)
    [ours]=$temporary/libpmem.so.1
)
isolated=$PWD/scripts/isolated.sh
source=$temporary/pmdk
tests=$source/src/test
mkdir -p "$source"
tar -xzf "$file" -C "$source" --strip-components=1
names_of() { sed -n 's/^[[:space:]]*\(pmem_[a-z_]*\);.*/\1/p' "$1" | sort; }
diff <(names_of "$source/src/libpmem/libpmem.link.in") <(names_of crates/bulkmem-libpmem/libpmem.map) ||
    fail "ours does not export the functions of PMDK $version: see above"

heading "build of PMDK $version"
# build FOLDER ARGUMENT…: runs make in that folder.
build() {
    "$isolated" make -C "$source/src/$1" -j "$(nproc)" NDCTL_ENABLE=n EXTRA_CFLAGS=-Wno-error EXTRA_CXXFLAGS=-Wno-error \
        "${@:2}" >"$temporary/log" 2>&1 && return
    tail -n 20 "$temporary/log"
    fail "src/$1 of PMDK does not build: see above"
}
# Tests for the debug build run with the release, because there is no debug build of ours.
mkdir "$source/src/nondebug"
ln -s nondebug "$source/src/debug"
build core
build common
build test/unittest libut.a

# use LIBRARY: links and runs programs with it from now on.
use() {
    ln -sf "${library[$1]}" "$source/src/nondebug/libpmem.so.1"
    ln -sf libpmem.so.1 "$source/src/nondebug/libpmem.so"
}

# The programs that replace functions inside of the library get what these functions would, from outside.
mkdir "$temporary/instead"
cat >"$temporary/instead/pmem_has_auto_flush" <<'END'
#!/bin/sh
# The test's regions in place of the system's.
exec unshare --map-root-user --mount sh -c 'mount -t tmpfs none /sys/bus && mkdir /sys/bus/nd || exit
    if [ -d "$BUS_DEVICE_PATH" ]; then
        mkdir /sys/bus/nd/devices && mount --bind "$BUS_DEVICE_PATH" /sys/bus/nd/devices || exit
    fi
    exec "$0.program"' "$0"
END
cat >"$temporary/instead/pmem_deep_persist" <<'END'
#!/bin/sh
# The system calls in place of the lines in the log of the debug build.
strace --output=calls --trace=msync "$0.program" "$@"
status=$?
sed -n 's/^msync.*/<libpmemobj>: <15> pmem.c pmem_msync/p' calls >"$PMEMOBJ_LOG_FILE"
exit "$status"
END
chmod +x "$temporary"/instead/*
# What the modes of pmem_deep_persist call that do not run; and the length of a file or device, which PMDK asks libndctl for.
cat >"$tests/pmem_deep_persist/instead.c" <<'END'
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
FILE *os_fopen(const char *path, const char *mode);
void pmem_init(void) {}
void *pmemobj_create(void) { return 0; }
void pmemobj_close(void) {}
ssize_t length_of(int fd)
{
    struct stat status;
    char path[80];
    long long length = -1;
    if (fstat(fd, &status) != 0)
        return -1;
    if (S_ISREG(status.st_mode))
        return status.st_size;
    snprintf(path, sizeof path, "/sys/dev/char/%u:%u/size", major(status.st_rdev), minor(status.st_rdev));
    FILE *file = os_fopen(path, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%lld", &length) != 1)
        length = -1;
    fclose(file);
    return length;
}
END

# link FOLDER: links a test's program.
link() {
    local arguments=()
    case $1 in
        pmem_has_auto_flush) arguments=(LIBPMEM=y LIBPMEMCOMMON= OBJS="$1.o" LDFLAGS=) ;;
        pmem_deep_persist)
            arguments=(LIBPMEM=y LIBPMEMOBJ= LDFLAGS= EXTRA_CFLAGS="-Wno-error -Dutil_fd_get_size=length_of"
                OBJS="$1.o instead.o ../../debug/libpmemcommon.a ../../debug/libpmemcore.a")
            ;;
    esac
    rm -f "$tests/$1/$1"
    build "test/$1" "$1" "${arguments[@]}"
    if [[ -e $temporary/instead/$1 ]]; then
        mv "$tests/$1/$1" "$tests/$1/$1.program"
        cp "$temporary/instead/$1" "$tests/$1/$1"
    fi
}

mkdir -p "$temporary/disk" "$tests"/tools/{pmemdetect,gran_detecto}
printf 'GLOBAL_LIB_PATH=\nGLOBAL_PATH=\nGLOBAL_PKG_CONFIG_PATH=\n' >"$tests/envconfig.sh"
printf '%s\n' "PMEM_FS_DIR=$memory" PMEM_FS_DIR_FORCE_PMEM=2 "NON_PMEM_FS_DIR=$temporary/disk" >"$tests/testconfig.sh"
cat >"$tests/testconfig.py" <<END
config = {
    'unittest_log_level': 1, 'test_type': 'check', 'build': 'release', 'granularity': 'all', 'timeout': '3m', 'tm': False,
    'cacheline_fs_dir': '$memory', 'force_cacheline': True, 'page_fs_dir': '$temporary/disk', 'force_page': True,
    'force_byte': False, 'fs_dir_force_pmem': 1, 'keep_going': False, 'fail_on_skip': False, 'dump_lines': 30,
    'force_enable': None, 'device_dax_path': [], 'enable_admin_tests': False,
}
END
# The framework's questions to libpmem2: is a file system persistent memory (no), and does it pass for that (yes)?
printf '#!/bin/sh\nexit 1\n' | install /dev/stdin "$tests/tools/pmemdetect/pmemdetect.static-nondebug"
printf '#!/bin/sh\nexit 0\n' | install /dev/stdin "$tests/tools/gran_detecto/gran_detecto"

# run NAME: runs a test.
run() {
    local folder=${1%/*} name=${1#*/} kind=nondebug command
    if [[ $name == program ]]; then
        command=(env LD_LIBRARY_PATH=../nondebug sh -c "./$folder/$folder && echo : PASS")
    elif [[ -e $tests/$folder/TESTS.py ]]; then
        command=(./RUNTESTS.py -b release -u "${name#TEST}" -- "$folder")
    else
        grep -q '^require_build_type debug' "$tests/$1" && ! grep -qw nondebug "$tests/$1" && kind=debug
        command=(./RUNTESTS -b "$kind" -s "$name" "$folder")
    fi
    (cd "$tests" && "$isolated" env LD_DEBUG=files LD_DEBUG_OUTPUT="$temporary/loaded/by" "${command[@]}") >"$temporary/log" 2>&1 &&
        grep -q ': .*PASS' "$temporary/log"
}

folders=()
names=()
for folder in "$tests"/pmem_*; do
    folder=${folder##*/}
    # Tests for Windows.
    [[ $folder != *_win* ]] || continue
    mapfile -t of_folder < <(find "$tests/$folder" -name 'TEST[0-9]*' ! -name '*.PS1' -printf '%f\n' | sort -V
        [[ ! -e $tests/$folder/TESTS.py ]] || sed -n 's/^class \(TEST[0-9]*\)(.*/\1/p' "$tests/$folder/TESTS.py")
    ((${#of_folder[@]})) || of_folder=(program)
    names+=("${of_folder[@]/#/$folder/}")
    not_runnable "$folder/program" >/dev/null || folders+=("$folder")
done

declare -A result reason
for name in "${names[@]}"; do
    if reason[$name]=$(not_runnable "$name"); then result[$name]="- - "; fi
done
for which in debian ours; do
    heading "PMDK's tests with ${library[$which]}"
    use "$which"
    for folder in "${folders[@]}"; do link "$folder"; done
    mkdir "$temporary/loaded"
    for name in "${names[@]}"; do
        [[ -z ${reason[$name]} && " ${on_device_dax[*]} " != *" $name "* ]] || continue
        if run "$name"; then
            result[$name]+="passed "
        else
            result[$name]+="FAILED "
            echo "$name FAILED:"
            tail -n 20 "$temporary/log"
        fi
    done
    # Every program has loaded this library and no other.
    loaded=$(sed -n 's/.*calling init: \(.*libpmem\.so.*\)/\1/p' "$temporary"/loaded/*)
    ! grep -v 'debug/libpmem\.so\.1$' <<<"$loaded" || fail "a program loaded another libpmem, or none did: see above"
    echo "$(wc -l <<<"$loaded") programs loaded it"
    rm -r "$temporary/loaded"
done

heading "PMDK's tests on device DAX, in a virtual machine"
status=0
scripts/pmdk-device-dax.sh "$tests" "${library[debian]}" "${library[ours]}" >"$temporary/device-dax" || status=$?
case $status in
    0) while read -r name which verdict; do result[$name]+="$verdict "; done <"$temporary/device-dax" ;;
    3)
        for name in "${on_device_dax[@]}"; do
            result[$name]="- - "
            reason[$name]="needs device DAX, and there is no virtual machine: $(<"$temporary/device-dax")"
        done
        ;;
    *) for name in "${on_device_dax[@]}"; do result[$name]="FAILED FAILED "; done ;;
esac

heading "pmembench"
# It subtracts an estimate of what reading the clock takes, and ends if that was too much. So it subtracts nothing here.
sed -i 's/^\treturn avg;/\treturn 0;/' "$source/src/benchmarks/benchmark_time.cpp"
benchmarks=()
for name in pmembench benchmark_time benchmark_worker clo clo_vec config_reader scenario poolset_util pmem_memset pmem_memcpy pmem_flush \
    pmemobj_gen pmemobj_persist pmemobj_tx pmemobj_tx_add_range pmemobj_atomic_lists map_bench blk log; do
    benchmarks+=("$name.o")
done
libraries=()
for name in pmemobj pmemblk pmemlog pmempool; do
    ln -s "${library[debian]%/*}/lib$name.so.1" "$source/src/nondebug/lib$name.so"
    libraries+=("-l$name")
done
# The maps of the benchmark "map", one after another: their targets share files.
build examples/libpmemobj/map map -j 1
build benchmarks pmembench OBJS="${benchmarks[*]}" LIBS="../nondebug/libpmemcommon.a ../nondebug/libpmemcore.a ${libraries[*]} -lpmem \
    $(pkg-config --libs glib-2.0) -pthread -lm -ldl"
# One of them names a file outside of the folder that it runs in.
sed -i 's,^file = /dev/shm/,file = ,' "$source"/src/benchmarks/*.cfg
mkdir "$temporary/results"
# bench CONFIG ROUNDS OPERATIONS [VARIABLE…]: runs the benchmarks of a configuration, interleaved.
bench() {
    local config=$1 round which name=pmembench_$1.cfg
    local -A status=([debian]=passed [ours]=passed)
    for ((round = 0; round < $2; round++)); do
        for which in debian ours; do
            use "$which"
            (cd "$memory" && "$isolated" env ${policy:+"BULKMEM_PROFILE=$policy"} LD_LIBRARY_PATH="$source/src/nondebug" "${@:4}" \
                "$source/src/benchmarks/pmembench" "$source/src/benchmarks/$name" --ops-per-thread="$3" --threads=1 --repeats=1) \
                >"$temporary/results/$config.$round.$which" 2>"$temporary/log" || {
                status[$which]=FAILED
                echo "$name with ${library[$which]} FAILED:"
                tail -n 20 "$temporary/log"
            }
            rm -rf "${memory:?}"/*
        done
    done
    names+=("$name")
    reason[$name]=""
    result[$name]="${status[debian]} ${status[ours]} "
}
for config in memset memcpy flush; do bench "$config" "$rounds" "$operations"; done
for config in obj_persist obj_gen tx tx_add_range atomic_lists map blk log; do bench "$config" 1 "$few" PMEM_IS_PMEM_FORCE=1; done
for config in obj_pmalloc obj_locks obj_lanes; do
    names+=("pmembench_$config.cfg")
    reason[pmembench_$config.cfg]="calls functions inside of libpmemobj, which it compiles in"
    result[pmembench_$config.cfg]="- - "
done
echo "Median latency with ours, divided by that with Debian's: median, smallest and largest of the cases. Each case is the median of"
echo "$rounds interleaved runs (of libpmemobj, libpmemblk and libpmemlog: one) on tmpfs, and includes the time of reading the clock. It shows that they run and promises nothing."
python3 - "$temporary/results" <<'END'
import collections, pathlib, statistics, sys

cases = collections.defaultdict(lambda: collections.defaultdict(list))
for file in pathlib.Path(sys.argv[1]).iterdir():
    scenario = ""
    for line in file.read_text().splitlines():
        fields = line.split(";")
        if len(fields) == 1:
            scenario, row = file.name.split(".")[0] + " " + line.split(":")[0], 0
        elif fields[0][0].isdigit():
            cases[scenario, row][file.suffix].append(float(fields[10]))
            row += 1
scenarios = collections.defaultdict(list)
for (scenario, _), runs in sorted(cases.items()):
    if not (runs[".ours"] and runs[".debian"]):
        continue
    scenarios[scenario].append(statistics.median(runs[".ours"]) / statistics.median(runs[".debian"]))
for scenario, ratios in scenarios.items():
    print(f"{scenario:44} {len(ratios):3} cases  {statistics.median(ratios):5.2f}  {min(ratios):5.2f} to {max(ratios):5.2f}")
END

heading "summary: libpmem1 $(dpkg-query --show --showformat '${Version}' libpmem1), and ours"
declare -A count=([passed]=0 [failed]=0 [both]=0 [skipped]=0)
for name in "${names[@]}"; do
    case ${result[$name]} in
        "passed passed " | "FAILED passed ") class=passed ;;
        "passed FAILED ") class=failed ;;
        "FAILED FAILED ") class=both reason[$name]="fails with both" ;;
        *) class=skipped ;;
    esac
    count[$class]=$((count[$class] + 1))
    read -r debian ours <<<"${result[$name]}"
    printf '%-30s %-8s %-8s %s\n' "$name" "$debian" "$ours" "${reason[$name]}"
done
echo "${count[both]} fail with both"
echo "${count[passed]} passed, ${count[failed]} failed, $((count[skipped] + count[both])) skipped"
# What fails with both is not known to work, and where nothing passes, the framework is broken.
((count[failed] + count[both] == 0 && count[passed] > 0))
