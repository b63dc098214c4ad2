/*
 * A table of objects in a pool of libpmemobj, which writes by libpmem: allocates, copies, fills, replaces and frees them in
 * transactions, some of which are aborted.
 *
 *   objects write POOL SEED STEPS   creates the pool, prints "ready", then executes that many steps
 *   objects check POOL SEED         opens the pool, checks it, and prints how many steps it has
 *
 * A step is a transaction. The bytes of each object depend only on the seed and the step that wrote it, so the contents of the
 * table are known after any number of steps. The check fails if only a part of a step is found, or anything of an aborted step.
 * Killing the program does not show a missing flush or fence, because the kernel keeps what was stored: see docs/libpmem.md.
 */
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 32, LONGEST = 512 << 10 };

struct table {
	uint64_t steps;
	struct {
		PMEMoid object;
		uint64_t step;
		uint64_t length;
	} slots[SLOTS];
};

static unsigned char expected[LONGEST];

static void fail(const char *what, uint64_t step)
{
	fprintf(stderr, "%s, step %lu: %s\n", what, (unsigned long)step, pmemobj_errormsg());
	exit(1);
}

/* Hashes the seed, the step, and what the number is used for. */
static uint64_t mix(uint64_t seed, uint64_t step, uint64_t use)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15 + step * 0xbf58476d1ce4e5b9 + use * 0x94d049bb133111eb;

	for (int i = 0; i < 3; i++) {
		x ^= x >> 29;
		x *= 0xd6e8feb86659fd93;
	}
	return x ^ x >> 32;
}

static uint64_t slot_of(uint64_t seed, uint64_t step) { return mix(seed, step, 1) % SLOTS; }
static int is_aborted(uint64_t seed, uint64_t step) { return mix(seed, step, 2) % 4 == 0; }
static int is_filled(uint64_t seed, uint64_t step) { return mix(seed, step, 3) % 3 == 0; }
static int is_freed(uint64_t seed, uint64_t step) { return mix(seed, step, 4) % 8 == 0; }

/* Few lengths: the allocator keeps a part of the pool for each. */
static size_t length_of(uint64_t seed, uint64_t step)
{
	static const size_t lengths[] = {1, 64, 200, 4096, 5000, 65536, 300001, LONGEST};

	return lengths[mix(seed, step, 5) % (sizeof(lengths) / sizeof(*lengths))];
}

/* Leaves the bytes of a step's object in `expected`. */
static void bytes_of(uint64_t seed, uint64_t step)
{
	size_t length = length_of(seed, step);

	if (is_filled(seed, step)) {
		memset(expected, (int)(step & 0xff), length);
		return;
	}
	for (size_t at = 0; at < length; at++)
		expected[at] = (unsigned char)(mix(seed, step, 7) >> at % 8 * 8) + (unsigned char)(at / 8 * 31);
}

/* One transaction: replaces or frees the object of a slot, and counts. */
static void take_step(PMEMobjpool *pool, struct table *table, uint64_t seed, uint64_t step)
{
	uint64_t slot = slot_of(seed, step);
	size_t length = length_of(seed, step);

	bytes_of(seed, step);
	TX_BEGIN(pool) {
		TX_ADD_DIRECT(&table->slots[slot]);
		TX_ADD_DIRECT(&table->steps);
		if (table->slots[slot].step != 0)
			pmemobj_tx_free(table->slots[slot].object);
		table->slots[slot].step = 0;
		if (!is_freed(seed, step)) {
			PMEMoid object = pmemobj_tx_alloc(length, 1);
			void *direct = pmemobj_direct(object);

			if (is_filled(seed, step))
				pmemobj_memset(pool, direct, (int)(step & 0xff), length, 0);
			else if (step % 2)
				pmemobj_memcpy(pool, direct, expected, length, PMEMOBJ_F_MEM_NODRAIN);
			else
				pmemobj_memcpy_persist(pool, direct, expected, length);
			table->slots[slot].object = object;
			table->slots[slot].step = step;
			table->slots[slot].length = length;
		}
		table->steps = step;
		if (is_aborted(seed, step))
			pmemobj_tx_abort(ECANCELED);
	} TX_ONABORT {
		if (!is_aborted(seed, step))
			fail("aborted", step);
		/* It counts, and leaves nothing else. */
		table->steps = step;
		pmemobj_persist(pool, &table->steps, sizeof(table->steps));
	} TX_END
}

/* Compares the table with what it must be after as many steps as it counts. */
static void check(const struct table *table, uint64_t seed)
{
	uint64_t last[SLOTS] = {0};

	for (uint64_t step = 1; step <= table->steps; step++)
		if (!is_aborted(seed, step))
			last[slot_of(seed, step)] = is_freed(seed, step) ? 0 : step;
	for (int slot = 0; slot < SLOTS; slot++) {
		uint64_t step = table->slots[slot].step;

		if (step != last[slot])
			fail("a slot of another step", step);
		if (step == 0)
			continue;
		bytes_of(seed, step);
		if (table->slots[slot].length != length_of(seed, step))
			fail("another length", step);
		if (memcmp(pmemobj_direct(table->slots[slot].object), expected, length_of(seed, step)) != 0)
			fail("other bytes", step);
	}
}

int main(int argc, char **argv)
{
	int writes = argc == 5 && strcmp(argv[1], "write") == 0;

	if (!writes && !(argc == 4 && strcmp(argv[1], "check") == 0)) {
		fprintf(stderr, "usage: objects write POOL SEED STEPS | objects check POOL SEED\n");
		return 2;
	}
	PMEMobjpool *pool =
		writes ? pmemobj_create(argv[2], "objects", 32 << 20, 0600) : pmemobj_open(argv[2], "objects");
	if (pool == NULL)
		fail("no pool", 0);
	uint64_t seed = strtoull(argv[3], NULL, 10);
	struct table *table = pmemobj_direct(pmemobj_root(pool, sizeof(struct table)));

	if (table == NULL)
		fail("no table", 0);
	if (writes) {
		uint64_t steps = strtoull(argv[4], NULL, 10);

		puts("ready");
		fflush(stdout);
		for (uint64_t step = 1; step <= steps; step++)
			take_step(pool, table, seed, step);
	}
	check(table, seed);
	printf("%lu steps\n", (unsigned long)table->steps);
	pmemobj_close(pool);
	return 0;
}
