/* The interface of libpmem.so.1, for machines without PMDK's header. */
#include <stddef.h>
#include <sys/types.h>

#define PMEM_FILE_CREATE 1
#define PMEM_FILE_EXCL 2
#define PMEM_FILE_SPARSE 4
#define PMEM_FILE_TMPFILE 8

void *pmem_map_file(const char *, size_t, int, mode_t, size_t *, int *);
int pmem_unmap(void *, size_t);
int pmem_is_pmem(const void *, size_t);
void pmem_persist(const void *, size_t);
int pmem_msync(const void *, size_t);
int pmem_has_auto_flush(void);
void pmem_flush(const void *, size_t);
void pmem_deep_flush(const void *, size_t);
int pmem_deep_drain(const void *, size_t);
int pmem_deep_persist(const void *, size_t);
void pmem_drain(void);
int pmem_has_hw_drain(void);
void *pmem_memmove_persist(void *, const void *, size_t);
void *pmem_memcpy_persist(void *, const void *, size_t);
void *pmem_memset_persist(void *, int, size_t);
void *pmem_memmove_nodrain(void *, const void *, size_t);
void *pmem_memcpy_nodrain(void *, const void *, size_t);
void *pmem_memset_nodrain(void *, int, size_t);
void *pmem_memmove(void *, const void *, size_t, unsigned);
void *pmem_memcpy(void *, const void *, size_t, unsigned);
void *pmem_memset(void *, int, size_t, unsigned);
const char *pmem_check_version(unsigned, unsigned);
const char *pmem_errormsg(void);
