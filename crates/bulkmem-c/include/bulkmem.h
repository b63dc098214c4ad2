/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * bulkmem: clears, fills, copies and persists large memory. bulkmem(3) is the overview.
 *
 * Functions that can fail return a negative enum bulkmem_error if they do. No function prints, changes errno, or ends the
 * process, but for a lack of memory that bulkmem(3) describes. All can be called by several threads at the same time,
 * and in the child of a fork. If the program has loaded the library by dlopen, a call that fails is not async-signal-safe.
 */

#ifndef BULKMEM_H
#define BULKMEM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BULKMEM_MUST_USE __attribute__((warn_unused_result))
#else
#define BULKMEM_MUST_USE
#endif

// Default options.
#define BULKMEM_OPTIONS_INIT { sizeof(struct bulkmem_options), 0, 0, 0, 0, 0, NULL, NULL, NULL }

// Default options of a prefault.
#define BULKMEM_PREFAULT_OPTIONS_INIT { sizeof(struct bulkmem_prefault_options), 0, 0, NULL, 0, 0, 0, NULL, NULL }

// Default options of a request for memory of the pool.
#define BULKMEM_POOL_OPTIONS_INIT { sizeof(struct bulkmem_pool_options), 0, 0, 0, 0, NULL }

// Counts to pass to bulkmem_look_counts.
#define BULKMEM_LOOKS_INIT { sizeof(struct bulkmem_looks), 0, 0, 0 }

// Version of this header.
#define BULKMEM_VERSION_MAJOR 0

// Version of this header.
#define BULKMEM_VERSION_MINOR 1

// Version of this header.
#define BULKMEM_VERSION_PATCH 0

// Kind of pages: the smallest size, and no transparent huge pages.
#define BULKMEM_PAGES_BASE 0

// Kind of pages: transparent huge pages, if the kernel has some free.
#define BULKMEM_PAGES_TRANSPARENT 1

// Flag: the operation may leave the fence to a later bulkmem_fence() of the same thread. Until then, other threads may
// see later stores of the thread before those of the operation, and the bytes are not durable.
#define BULKMEM_NO_FENCE 1

// Flag: do not look at the cache state of the memory. The same arguments always lead to the same method.
#define BULKMEM_NO_LOOK 2

// Flag: use as many threads as saturate memory, if the length of the call is worth starting them.
#define BULKMEM_AUTO_THREADS 4

// Flag: if the operation looks at the cache state and finds that the pages of the memory are not mapped yet, have the kernel map
// many of them by one system call, madvise(), instead of one page fault for each.
#define BULKMEM_POPULATE 8

// Flag: the memory comes from the NUMA node `node`.
#define BULKMEM_POOL_ON_NODE 1

// Flag: lock the memory (mlock): all of it or nothing. Not for files.
#define BULKMEM_PREFAULT_LOCK 1

// Flag: use a thread for each processor that the process may use.
#define BULKMEM_PREFAULT_ALL_PROCESSORS 2

// Flag: take the pages from the nodes in turn, page by page; without `nodes`, from all.
#define BULKMEM_PREFAULT_INTERLEAVE 4

// Results of functions. An operation that fails has written nothing, and `bulkmem_last_error` says more.
enum bulkmem_error {
    // Success.
    BULKMEM_ERROR_OK = 0,
    // A null pointer, and a length that is not 0; or a null pointer where an object is needed.
    BULKMEM_ERROR_NULL = -1,
    // A range that is longer than PTRDIFF_MAX or ends beyond the address space; a number of 0 where at least 1 is needed.
    BULKMEM_ERROR_LENGTH = -2,
    // Ranges of a copy that overlap. bulkmem_move copies those.
    BULKMEM_ERROR_OVERLAP = -3,
    // A value that this version does not know: a flag, an intent, a durability, or options of a later version.
    BULKMEM_ERROR_ARGUMENT = -4,
    // A method that is unknown, does not support the operation, or needs instructions that the machine does not have.
    BULKMEM_ERROR_METHOD = -5,
    // The bytes cannot be made durable: the architecture has no instruction that writes cache lines back.
    BULKMEM_ERROR_NOT_DURABLE = -6,
    // Too little memory, or too few huge pages.
    BULKMEM_ERROR_MEMORY = -7,
    // The operating system refused a request.
    BULKMEM_ERROR_SYSTEM = -8,
    // An environment variable has an invalid value.
    BULKMEM_ERROR_ENVIRONMENT = -9,
    // A defect of the library. Please report it.
    BULKMEM_ERROR_INTERNAL = -10,
    // A policy file that cannot be used: there is none, it is invalid, or it was measured on another processor model.
    BULKMEM_ERROR_POLICY = -11,
    // The callback of the caller cancelled.
    BULKMEM_ERROR_CANCELLED = -12,
};

// An operation.
enum bulkmem_operation {
    // bulkmem_clear.
    BULKMEM_OPERATION_CLEAR = 0,
    // bulkmem_fill.
    BULKMEM_OPERATION_FILL = 1,
    // bulkmem_copy, and bulkmem_move of ranges that do not overlap.
    BULKMEM_OPERATION_COPY = 2,
    // bulkmem_fill_persist and bulkmem_clear_persist.
    BULKMEM_OPERATION_FILL_PERSIST = 3,
    // bulkmem_copy_persist.
    BULKMEM_OPERATION_COPY_PERSIST = 4,
    // bulkmem_persist.
    BULKMEM_OPERATION_PERSIST = 5,
};

// The caller's intent for the bytes after the operation.
enum bulkmem_intent {
    // Not known: the fastest method for the operation itself.
    BULKMEM_INTENT_THROUGHPUT = 0,
    // Reads them soon: the fastest method for the operation and reading the bytes.
    BULKMEM_INTENT_REUSE = 1,
    // Does not read them soon: the method that leaves the cache to others.
    BULKMEM_INTENT_STREAM = 2,
};

// The contents that survive a power failure.
enum bulkmem_durability {
    // As the machine's policy file says; without one, memory and not the caches.
    BULKMEM_DURABILITY_POLICY = 0,
    // Memory, and not the caches (ADR): cache lines are written back.
    BULKMEM_DURABILITY_FLUSH_TO_MEMORY = 1,
    // Caches too (eADR): a fence suffices. On a machine where caches do not survive, a power failure loses data.
    BULKMEM_DURABILITY_CACHES_INCLUDED = 2,
};

// The source of memory.
enum bulkmem_pool_source {
    // A unit of the pool: zeroed, with all its pages.
    BULKMEM_POOL_SOURCE_UNIT = 0,
    // A fresh file of the requested page size, whose pages are allocated at page faults.
    BULKMEM_POOL_SOURCE_FRESH = 1,
    // A fresh file of base pages, because there are too few huge pages.
    BULKMEM_POOL_SOURCE_FRESH_BASE = 2,
};

// Private memory from the operating system.
struct bulkmem_mapping;

// Selects the method of an operation by its length. Several threads can use the same policy.
struct bulkmem_policy;

// Threads that wait for work. Several threads can use the same workers: a call that finds them busy does not wait for
// them. After fork(), a child has none, and its calls do all the work; it may free them.
struct bulkmem_workers;

// How often operations of a kind have found memory in each state, since the process started. Initialize it with
// BULKMEM_LOOKS_INIT.
struct bulkmem_looks {
    // sizeof(struct bulkmem_looks). Later versions of the library add members at the end. A library that does not
    // know a member sets it to 0.
    size_t size;
    // Cached memory.
    uint64_t cached;
    // Uncached memory.
    uint64_t uncached;
    // Memory whose pages were not mapped yet.
    uint64_t unmapped;
};

// Options of an operation. Initialize them with BULKMEM_OPTIONS_INIT, or set all bytes to 0 and then `size`. A member
// that is 0 has its default.
struct bulkmem_options {
    // sizeof(struct bulkmem_options). Later versions of the library add members at the end. A library that does not know
    // a member accepts it if it is 0.
    size_t size;
    // BULKMEM_NO_FENCE, BULKMEM_NO_LOOK, BULKMEM_AUTO_THREADS, BULKMEM_POPULATE.
    uint64_t flags;
    // An enum bulkmem_intent.
    uint32_t intent;
    // An enum bulkmem_durability. Only operations that persist use it.
    uint32_t durability;
    // Length in bytes of the whole job that the call is part of, if that is longer than the call.
    size_t total_len;
    // Threads that the call may use, with the calling one, but at most one for each whole page. 0 is one thread, or all
    // workers if there are some. Without workers, the call starts the threads, and they end before it returns.
    size_t threads;
    // Threads that are kept for many calls; see bulkmem_workers_new.
    const struct bulkmem_workers *workers;
    // Method to use instead of the one that the policy chooses: "rep_movsb", or with tunables
    // "write_prefetch_avx[write_distance=512]". `bulkmem methods` lists them. For tests and experiments.
    const char *method;
    // Policy to use instead of the one of the process; see bulkmem_policy_load.
    const struct bulkmem_policy *policy;
};

// Options of a request for memory of the pool. Initialize them with BULKMEM_POOL_OPTIONS_INIT, or set all bytes to 0 and then
// `size`. A member that is 0 has its default.
struct bulkmem_pool_options {
    // sizeof(struct bulkmem_pool_options). Later versions of the library add members at the end. A library that does not
    // know a member accepts it if it is 0.
    size_t size;
    // BULKMEM_POOL_ON_NODE.
    uint64_t flags;
    // Page size in bytes: 2097152, 1073741824, or 4096 for the kernel's base pages of any size; 0 is 4096.
    uint64_t page_size;
    // NUMA node, with BULKMEM_POOL_ON_NODE. Without the flag, any.
    uint64_t node;
    // Time to wait for the pool, milliseconds; 0 is 50.
    uint64_t patience_ms;
    // Path of the daemon's socket. By default, /run/bulkmem-pool/UID.socket with this user's number if it exists, else
    // /run/bulkmem-pool/socket.
    const char *socket;
};

// A state of a prefault.
struct bulkmem_prefault_progress {
    // Bytes that are ready.
    uint64_t ready;
    // Bytes to prefault.
    uint64_t total;
    // Time since the start, nanoseconds.
    uint64_t elapsed_ns;
    // Remaining time at the average rate, nanoseconds; UINT64_MAX if unknown.
    uint64_t remaining_ns;
};

// A function that receives the progress of a prefault. A result that is not 0 cancels.
typedef int (*bulkmem_prefault_callback)(const struct bulkmem_prefault_progress *progress, void *context);

// Options of a prefault. Initialize them with BULKMEM_PREFAULT_OPTIONS_INIT, or set all bytes to 0 and then `size`. A
// member that is 0 has its default.
struct bulkmem_prefault_options {
    // sizeof(struct bulkmem_prefault_options). Later versions of the library add members at the end. A library that does
    // not know a member accepts it if it is 0.
    size_t size;
    // BULKMEM_PREFAULT_LOCK, BULKMEM_PREFAULT_ALL_PROCESSORS, BULKMEM_PREFAULT_INTERLEAVE.
    uint64_t flags;
    // Threads that divide the work; 0 is one. The calling thread waits and calls `progress`.
    size_t threads;
    // NUMA nodes that new pages come from, as "0-3,8". Each thread runs on the node of its piece. By default, the memory's
    // own policy decides.
    const char *nodes;
    // Highest rate of all threads together, bytes per second; 0 is no limit.
    uint64_t rate;
    // Highest share of its processor that each thread uses, in percent, 1 to 100; 0 is 100.
    uint64_t cpu_percent;
    // Bytes that stay free below every memory limit; 0 is 16 MiB, and none of huge pages.
    uint64_t keep_free;
    // Called by the calling thread about every five milliseconds and at the end, with `context`. A result that is not 0
    // cancels. It must return.
    bulkmem_prefault_callback progress;
    // Passed to `progress`.
    void *context;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the text of the last error of the calling thread, or an empty string if there was none. It is valid until the
// thread's next call of a bulkmem function that fails. At most 511 bytes, UTF-8. bulkmem_pool_memory also stores a text if
// it succeeds with fresh memory.
//
// Async-signal-safe, except in a program that has loaded the library by dlopen.
const char *bulkmem_last_error(void);

// Returns a short description of an error code, for example "null pointer". The string is static.
//
// Async-signal-safe.
const char *bulkmem_strerror(int code);

// Returns the version of the library that is in use, for example "0.1.0". The string is static.
//
// Async-signal-safe.
const char *bulkmem_version(void);

// Loads the policy now instead of at the first operation. Optional. Afterwards, operations on one thread make no system
// call. Fails with BULKMEM_ERROR_ENVIRONMENT if BULKMEM_PROFILE, BULKMEM_METHOD or BULKMEM_LOOK has an invalid value; the library
// is ready nevertheless and uses the defaults instead. bulkmem_problems returns all problems.
//
// Not async-signal-safe.
int bulkmem_init(void);

// Writes the problems found while loading the policy to `text`: environment variables with an invalid value, and policy
// files that were found and not used. Each is a line with the reason and the remedy. Writes at most `size` bytes, with a 0
// at the end, and returns the length of the whole text, as snprintf does. 0: there are no problems.
//
// Not async-signal-safe.
int bulkmem_problems(char *text, size_t size);

// Stops looks at the cache state in this process for good: operations choose by length alone. For programs that forbid
// themselves the instruction RDTSC.
//
// Async-signal-safe.
void bulkmem_stop_looking(void);

// Returns 1 if operations may look at the cache state, else 0: no policy with looks has been loaded, looks have been stopped,
// or the clock cannot be used.
//
// Async-signal-safe.
int bulkmem_is_looking(void);

// Stores in `*counts` how often operations of a kind, an enum bulkmem_operation, have found memory in each state, over all
// threads and policies.
//
// Async-signal-safe.
int bulkmem_look_counts(uint32_t operation, struct bulkmem_looks *counts);

// Maps `length` bytes of zeroed memory and stores the mapping in `*mapping`. `pages` is BULKMEM_PAGES_BASE,
// BULKMEM_PAGES_TRANSPARENT, or the size in bytes of explicit huge pages (hugetlb), which the administrator must have
// reserved. Mappings of base and transparent pages have an inaccessible page before and after them.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_map(size_t length, uint64_t pages, struct bulkmem_mapping **mapping);

// Unmaps the memory. `mapping` may be a null pointer.
//
// Not async-signal-safe.
void bulkmem_unmap(struct bulkmem_mapping *mapping);

// Returns the first byte of a mapping, or a null pointer if `mapping` is one.
//
// Async-signal-safe.
void *bulkmem_mapping_memory(const struct bulkmem_mapping *mapping);

// Maps every page of a mapping now, so that later operations take no page faults. Keeps the contents. Fails with
// BULKMEM_ERROR_MEMORY if memory runs out; before Linux 5.14 the kernel kills the process then.
//
// Not async-signal-safe. No other thread may use the same `mapping` during the call; they may use its memory.
BULKMEM_MUST_USE int bulkmem_mapping_prefault(struct bulkmem_mapping *mapping);

// Stores in `*size` the size in bytes of the pages that back most of a mapping. Call bulkmem_mapping_prefault first,
// because only touched memory has pages.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_mapping_page_size(const struct bulkmem_mapping *mapping, size_t *size);

// Sets `length` bytes from `dst` to zero, as memset does. The compiler never removes the call.
//
// Async-signal-safe.
int bulkmem_clear(void *dst, size_t length);

// As bulkmem_clear, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
int bulkmem_clear_with(void *dst, size_t length, const struct bulkmem_options *options);

// Sets `length` bytes from `dst` to the lowest eight bits of `byte`, as memset does.
//
// Async-signal-safe.
int bulkmem_fill(void *dst, int byte, size_t length);

// As bulkmem_fill, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
int bulkmem_fill_with(void *dst, int byte, size_t length, const struct bulkmem_options *options);

// Copies `length` bytes from `src` to `dst`, as memcpy does. Fails with BULKMEM_ERROR_OVERLAP if the ranges overlap;
// nothing is copied then.
//
// Async-signal-safe.
int bulkmem_copy(void *dst, const void *src, size_t length);

// As bulkmem_copy, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
int bulkmem_copy_with(void *dst, const void *src, size_t length, const struct bulkmem_options *options);

// Copies `length` bytes from `src` to `dst`, as memmove does: the ranges may overlap. Ranges that overlap are copied by the
// C library's memmove, whatever the options say.
//
// Async-signal-safe.
int bulkmem_move(void *dst, const void *src, size_t length);

// As bulkmem_move, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
int bulkmem_move_with(void *dst, const void *src, size_t length, const struct bulkmem_options *options);

// Copies `length` bytes from `src` to `dst` and makes them durable: when it returns, they have left the processor's caches,
// as with pmem_memcpy_persist. Fails with BULKMEM_ERROR_OVERLAP if the ranges overlap; nothing is copied then.
//
// Async-signal-safe.
BULKMEM_MUST_USE int bulkmem_copy_persist(void *dst, const void *src, size_t length);

// As bulkmem_copy_persist, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
BULKMEM_MUST_USE int bulkmem_copy_persist_with(void *dst, const void *src, size_t length, const struct bulkmem_options *options);

// Sets `length` bytes from `dst` to the lowest eight bits of `byte` and makes them durable, as pmem_memset_persist does.
//
// Async-signal-safe.
BULKMEM_MUST_USE int bulkmem_fill_persist(void *dst, int byte, size_t length);

// As bulkmem_fill_persist, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
BULKMEM_MUST_USE int bulkmem_fill_persist_with(void *dst, int byte, size_t length, const struct bulkmem_options *options);

// Sets `length` bytes from `dst` to zero and makes them durable: bulkmem_fill_persist with the byte 0.
//
// Async-signal-safe.
BULKMEM_MUST_USE int bulkmem_clear_persist(void *dst, size_t length);

// As bulkmem_clear_persist, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
BULKMEM_MUST_USE int bulkmem_clear_persist_with(void *dst, size_t length, const struct bulkmem_options *options);

// Makes durable what ordinary stores wrote to `length` bytes from `start`, as pmem_persist does.
//
// Async-signal-safe.
BULKMEM_MUST_USE int bulkmem_persist(const void *start, size_t length);

// As bulkmem_persist, with options. A null pointer stands for the default ones.
//
// Async-signal-safe, unless the options have threads, workers or a method.
BULKMEM_MUST_USE int bulkmem_persist_with(const void *start, size_t length, const struct bulkmem_options *options);

// Sets `length` bytes from `dst` to zero. `hot_length` bytes from the offset `hot_offset` are touched next: they are cleared
// last, by the calling thread, and stay in its cache; the others bypass it. Ignores the intent of the options and
// BULKMEM_NO_FENCE. A null pointer stands for the default options.
//
// Async-signal-safe, unless the options have threads, workers or a method.
int bulkmem_clear_hot(void *dst, size_t length, size_t hot_offset, size_t hot_length, const struct bulkmem_options *options);

// Fences: the operations with BULKMEM_NO_FENCE that this thread has called become visible before its later stores, and
// those that persist are durable when it returns. SFENCE on x86-64.
//
// Async-signal-safe.
void bulkmem_fence(void);

// Loads a policy file, and stores the policy in `*policy`, for the member of that name of options. Environment variables do
// not change it, and what the file says about durability counts. Fails with BULKMEM_ERROR_POLICY if the file cannot be
// used.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_policy_load(const char *path, struct bulkmem_policy **policy);

// Stores in `*policy` the defaults for this machine, which operations use if there is no policy file.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_policy_defaults(struct bulkmem_policy **policy);

// Forces methods for every length and intent: "clear:movnti,copy:rep_movsb", as BULKMEM_METHOD does. Fails with
// BULKMEM_ERROR_METHOD and changes nothing if one cannot be used.
//
// Not async-signal-safe. No other thread may use the policy during the call.
BULKMEM_MUST_USE int bulkmem_policy_force(struct bulkmem_policy *policy, const char *methods);

// Writes the method that a policy chooses for an operation (an enum bulkmem_operation), a total length in bytes and an enum
// bulkmem_intent to `text`, for example "write_prefetch_avx[write_distance=4096]". A null pointer stands for the policy of
// the process. Looks at the cache state may lead to another method. Writes at most `size` bytes, with a 0 at the end, and
// returns the length of the whole text, as snprintf does.
//
// Not async-signal-safe.
int bulkmem_policy_choose(const struct bulkmem_policy *policy, uint32_t operation, size_t length, uint32_t intent, char *text, size_t size);

// Releases a policy. No call may use it any more. `policy` may be a null pointer.
//
// Not async-signal-safe.
void bulkmem_policy_free(struct bulkmem_policy *policy);

// Stores in `*fd` a descriptor of a memory file with `length` zeroed bytes, a multiple of the page size. It is a unit of the
// pool if the pool gives one in time, and otherwise a fresh file, so that a program is never worse off than without a pool.
// Stores in `*source`, if that is not a null pointer, an enum bulkmem_pool_source. If the memory is fresh,
// bulkmem_last_error returns why. A null pointer stands for the default options. Fails with BULKMEM_ERROR_MEMORY or
// BULKMEM_ERROR_SYSTEM if the kernel cannot create a memory file.
//
// Not async-signal-safe. Map the file as shared. The descriptor is closed on exec, and the caller closes it. No one else has
// the memory of a unit; it returns to the kernel when the last descriptor and the last mapping are gone.
BULKMEM_MUST_USE int bulkmem_pool_memory(uint64_t length, const struct bulkmem_pool_options *options, int *fd, int *source);

// Maps every page that `length` bytes from `start` touch, for writing, so that later accesses take no page faults. Keeps the
// contents, also those that others write at the same time. A page that the kernel cannot provide is an error and no
// SIGBUS. Stores in `*ready`, if that is not a null pointer, how many bytes are ready, also after an error:
// BULKMEM_ERROR_MEMORY if memory or huge pages run out, or a limit is near; BULKMEM_ERROR_LENGTH if a file is too short;
// BULKMEM_ERROR_CANCELLED. A null pointer stands for the default options.
//
// Not async-signal-safe. The range must stay mapped during the call.
BULKMEM_MUST_USE int bulkmem_prefault(void *start, size_t length, const struct bulkmem_prefault_options *options, uint64_t *ready);

// Allocates the pages of `length` bytes from `offset` of a regular file: on hugetlbfs, a tmpfs, a disk or DAX, or a memfd.
// `fd` must be open for reading and writing. Keeps the contents and the length of the file. Otherwise as bulkmem_prefault.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_prefault_file(int fd, uint64_t offset, uint64_t length, const struct bulkmem_prefault_options *options, uint64_t *ready);

// Starts `count` threads and stores them in `*workers`. With the calling thread, a call has one thread more. Fails with
// BULKMEM_ERROR_SYSTEM if the system does not start that many. They block all signals except those of their own faults.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_workers_new(size_t count, struct bulkmem_workers **workers);

// Starts one thread for each of `count` processors, pins it there, and stores the threads in `*workers`. Processors are
// numbered as in /sys/devices/system/cpu. Leave one for the calling thread, which is not pinned.
//
// Not async-signal-safe.
BULKMEM_MUST_USE int bulkmem_workers_new_pinned(const size_t *processors, size_t count, struct bulkmem_workers **workers);

// Ends the threads and waits for that. No call may use them any more. `workers` may be a null pointer.
//
// Not async-signal-safe.
void bulkmem_workers_free(struct bulkmem_workers *workers);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BULKMEM_H */
