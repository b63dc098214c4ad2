/*
 * Shows what a single pass of `perf bench mem memset` measures. Writes a fresh
 * allocation once, which faults its pages in, as perf does, and then as often
 * again as the second argument says; times one clear after that. Prints
 * bytes per nanosecond.
 *
 * Usage: single-pass BYTES EXTRA-PASSES default|stosb OFFSET
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* volatile: no compiler may replace or drop the calls. */
static void *(*volatile c_library)(void *, int, size_t) = memset;

static void *rep_stosb(void *at, int byte, size_t length)
{
	void *end = at;

	__asm__ volatile("rep stosb" : "+D"(end), "+c"(length) : "a"(byte) : "memory");
	return at;
}

int main(int argc, char **argv)
{
	void *(*set)(void *, int, size_t);
	struct timespec start, end;
	size_t length, offset;
	char *memory;
	int extra;

	if (argc != 5)
		return 2;
	length = strtoull(argv[1], NULL, 10);
	extra = atoi(argv[2]);
	set = strcmp(argv[3], "stosb") ? c_library : rep_stosb;
	/* An allocation this large starts 16 bytes after a page. */
	offset = strtoull(argv[4], NULL, 10);
	memory = calloc(1, length + 4096);
	if (!memory)
		return 1;
	if (!offset)
		memory += 4096 - 16;
	for (; extra >= 0; extra--)
		set(memory, 255, length);
	clock_gettime(CLOCK_MONOTONIC, &start);
	set(memory, 0, length);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.4f\n", (double)length / ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)));
	return 0;
}
