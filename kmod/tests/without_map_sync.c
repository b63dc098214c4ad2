// SPDX-License-Identifier: GPL-2.0
/*
 * A planted fault for programs with libpmem: MAP_SYNC is granted and has no
 * effect. pmem.sh preloads it.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *start, size_t length, int access, int flags, int file, off_t offset)
{
	if (flags & MAP_SYNC)
		flags = MAP_SHARED;
	return (void *)syscall(SYS_mmap, start, length, access, flags, file, offset);
}
