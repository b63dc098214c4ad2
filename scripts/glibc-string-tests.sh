#!/usr/bin/env bash
# Runs glibc's own tests of memcpy, memset and their relatives as ordinary programs: without the preloaded library, and with
# it by a calibration and by several methods. scripts/glibc-string-tests.sh [ARCHIVE]
# ARCHIVE is the static library that cargo built [default: builds the release]. Fetches the source that Debian's glibc package is made
# of, once, to BULKMEM_GLIBC_CACHE [default: ~/.cache/bulkmem/glibc]; its checksum is below.
set -euo pipefail
archive=${1:+$(realpath "$1")}
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

version=2.36
checksum=a543c02070d46ccaf866957efd13f10c924daa74c86a90a0254db09a92a708ee
source=https://deb.debian.org/debian/pool/main/g/glibc/glibc_$version.orig.tar.xz
tests=(test-memcpy test-memcpy-large test-mempcpy test-memmove test-memset test-bzero test-explicit_bzero tester testcopy stratcliff
    tst-xbzero-opt tst-memmove-overflow tst-fortify-1 tst-fortify-2 tst-fortify-3)

skip() {
    echo "skipped: glibc's string tests: $*"
    for name in "${tests[@]}"; do echo "test $name ... ignored"; done
    echo "test result: ok. 0 passed; 0 failed; ${#tests[@]} ignored; 0 measured; 0 filtered out"
    exit 0
}

need_tools
[[ $(uname -m) == x86_64 ]] || skip "the library is for x86-64"
getconf GNU_LIBC_VERSION >/dev/null 2>&1 || skip "this is not the GNU C library"

cache=${BULKMEM_GLIBC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/bulkmem/glibc}
file=$cache/${source##*/}
right() { [[ -f $1 ]] && echo "$checksum  $1" | sha256sum --check --status; }
if ! right "$file"; then
    command -v curl >/dev/null || install_packages curl ca-certificates || skip "curl is not installed; remedy: apt-get install curl"
    mkdir -p "$cache"
    curl --silent --show-error --fail --location --retry 2 --output "$file.part" "$source" ||
        skip "$source cannot be fetched; remedy: put that file into $cache"
    right "$file.part" || fail "$source is not the file that these tests were written for: its checksum differs. Delete $file.part."
    mv "$file.part" "$file"
fi

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
tar -xJf "$file" -C "$temporary" --strip-components=1 "glibc-$version"/{string,debug,support,include}

if [[ -z $archive ]]; then
    cargo build --release --locked -p bulkmem-preload
    archive=$TARGET_DIR/release/libbulkmem_preload.a
fi
scripts/link-c.sh preload "$archive" "$temporary"
library=$temporary/libbulkmem_preload.so

# What the tests need of glibc's own build: nothing that they test.
mkdir -p "$temporary/build/support"
cat >"$temporary/build/config.h" <<'END'
#define HAVE_CC_INHIBIT_LOOP_TO_LIBCALL 1
END
cat >"$temporary/build/ifunc-impl-list.h" <<'END'
#include <stdbool.h>
#include <stddef.h>
struct libc_ifunc_impl { const char *name; void (*fn) (void); bool usable; };
/* Only the functions under their public names are tested. */
static inline size_t __libc_ifunc_impl_list (const char *name, struct libc_ifunc_impl *all, size_t most)
{
  return (void) name, (void) all, (void) most, 0;
}
END
cat >"$temporary/build/support/support.h" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static inline void *xmalloc (size_t size)
{
  void *memory = malloc (size);
  if (memory == NULL)
    abort ();
  return memory;
}
END
cat >"$temporary/build/support/check.h" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define FAIL_EXIT1(...) (printf (__VA_ARGS__), exit (1))
#define FAIL_UNSUPPORTED(...) (printf (__VA_ARGS__), exit (77))
#define TEST_COMPARE(a, b) ((a) == (b) ? (void) 0 : FAIL_EXIT1 ("line %d\n", __LINE__))
#define TEST_COMPARE_BLOB(a, size, b, same) (memcmp (a, b, size) == 0 ? (void) 0 : FAIL_EXIT1 ("line %d\n", __LINE__))
#define TEST_VERIFY_EXIT(it) ((it) ? (void) 0 : FAIL_EXIT1 ("line %d\n", __LINE__))
#define verify(it) _Static_assert (it, "verify")
END
cat >"$temporary/build/support/xunistd.h" <<'END'
#include <support/check.h>
#include <sys/mman.h>
#include <unistd.h>
#include <stdarg.h>
#define test_dir "/tmp"
static inline long xsysconf (int name) { return sysconf (name); }
static inline void xclose (int file) { TEST_VERIFY_EXIT (close (file) == 0); }
static inline void xunlink (const char *path) { TEST_VERIFY_EXIT (unlink (path) == 0); }
static inline void xmunmap (void *address, size_t length) { TEST_VERIFY_EXIT (munmap (address, length) == 0); }
static inline char *xasprintf (const char *format, ...)
{
  char *text;
  va_list list;
  va_start (list, format);
  TEST_VERIFY_EXIT (vasprintf (&text, format, list) >= 0);
  va_end (list);
  return text;
}
static inline void *xmmap (void *address, size_t length, int protection, int flags, int file)
{
  void *mapped = mmap (address, length, protection, flags, file, 0);
  if (mapped == MAP_FAILED)
    FAIL_EXIT1 ("mmap: %m\n");
  return mapped;
}
END
echo '#define EXIT_UNSUPPORTED 77' >"$temporary/build/support/test-driver.h"
cat >"$temporary/build/support/test-driver.c" <<'END'
#ifndef TEST_FUNCTION
# define TEST_FUNCTION do_test
#endif
int main (void) { return TEST_FUNCTION (); }
END
cat >"$temporary/test-skeleton.c" <<'END'
#include <paths.h>
static void set_fortify_handler (void (*handler) (int))
{
  struct sigaction action = { .sa_handler = handler, .sa_flags = SA_NODEFER };
  sigaction (SIGABRT, &action, NULL);
}
static int create_temp_file (const char *base, char **name)
{
  static char path[4096];
  const char *folder = getenv ("TMPDIR");
  snprintf (path, sizeof (path), "%s/%sXXXXXX", folder != NULL ? folder : "/tmp", base);
  *name = path;
  return mkstemp (path);
}
int main (int argc, char **argv)
{
  int result;
  PREPARE (argc, argv);
  result = TEST_FUNCTION;
  unlink (temp_filename);
  return result;
}
END

cp "$temporary"/include/{libc-diag,array_length}.h "$temporary/build/"
cp "$temporary/support/blob_repeat.h" "$temporary/build/support/"

# build NAME: builds a test.
build() {
    local name=$1 source=$temporary/string/$1.c flags=(-fno-builtin -fno-tree-loop-distribute-patterns) more=()
    case $name in
        # As glibc builds them: they test what the compiler makes of the calls. The first call of a function is bound at the start:
        # the dynamic linker would save the vector registers, and with them what is to be cleared, on the stack that is searched.
        tst-xbzero-opt) flags=("-Wl,-z,now") ;;
        tst-fortify-*)
            source=$temporary/debug/tst-fortify.c
            # glibc makes this locale for its tests. Any with UTF-8 will do.
            sed -i 's/de_DE\.UTF-8/C.UTF-8/' "$source"
            flags=(-U_FORTIFY_SOURCE "-D_FORTIFY_SOURCE=${name##*-}")
            ;;
        tst-memmove-overflow) more=("$temporary/support/blob_repeat.c") ;;
    esac
    gcc -std=gnu11 -O2 -w -D_GNU_SOURCE "${flags[@]}" -I"$temporary/build" -o "$temporary/$name" "$source" "${more[@]}"
}

# shellcheck source=scripts/looking-policy.sh
. scripts/looking-policy.sh

# Methods that store in different ways, and as calibrated, with looks and new pages mapped ahead; without the library first, so that a
# failure that is not the library's shows.
stores() { echo "clear:$1,fill:$1,copy:$1"; }
variants=(alone none calibrated "$(stores nontemporal_sse2)" "$(stores store_sse2)" "clear:rep_stosb,fill:rep_stosb,copy:rep_movsb")
grep -qw avx512f /proc/cpuinfo && variants+=("$(stores nontemporal_avx512)")
grep -qw clzero /proc/cpuinfo && variants+=("clear:clzero,fill:nontemporal_sse2,copy:nontemporal_sse2")

passed=0
failed=0
ignored=0
for name in "${tests[@]}"; do
    build "$name"
    for variant in "${variants[@]}"; do
        case $variant in
            alone) set -- env ;;
            none) set -- env "LD_PRELOAD=$library" ;;
            calibrated) set -- env "LD_PRELOAD=$library" "BULKMEM_PROFILE=$policy" BULKMEM_FROM=16384 BULKMEM_POPULATE=on ;;
            *) set -- env "LD_PRELOAD=$library" "BULKMEM_METHOD=$variant" ;;
        esac
        status=0
        scripts/isolated.sh "$@" "$temporary/$name" >"$temporary/log" 2>&1 || status=$?
        if ((status == 0)); then
            echo "test $name, $variant ... ok"
            passed=$((passed + 1))
        elif ((status == 77)); then
            echo "skipped: $name, $variant: $(tail -n 1 "$temporary/log")"
            echo "test $name, $variant ... ignored"
            ignored=$((ignored + 1))
        else
            echo "test $name, $variant ... FAILED"
            tail -n 20 "$temporary/log"
            echo "status $status"
            failed=$((failed + 1))
        fi
    done
done
result=ok
((failed == 0)) || result=FAILED
echo "test result: $result. $passed passed; $failed failed; $ignored ignored; 0 measured; 0 filtered out"
((failed == 0))
