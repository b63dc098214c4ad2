// SPDX-License-Identifier: GPL-2.0
/*
 * bulkmem: an external engine for fio. Reads and writes are copies from and to
 * a mapping, by the methods of libbulkmem.
 *
 * A mapping is of a regular file, of a block or DAX device, or of the memory
 * that /dev/bulkmem-memory provides with a chosen cache attribute.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fio.h"
#include "optgroup.h"

#include "bulkmem.h"
#include "bulkmem_ioctl.h"

struct bulkmem_engine_options {
	void *pad;	/* fio does not accept an option at offset 0 */
	char *method;
	char *read_method;
	unsigned int intent;
	unsigned int persist;
	unsigned int attribute;	/* 0: not set; else 1 more than an enum bulkmem_attribute */
	unsigned int huge_pages;
};

/* Of a job. */
struct bulkmem_data {
	struct bulkmem_policy *read_policy;	/* NULL: that of the process */
	struct bulkmem_policy *write_policy;
	struct bulkmem_options read;
	struct bulkmem_options write;
	struct bulkmem_map *device_maps;	/* unmapped when the job ends */
	bool persist;
};

/* Of a file. */
struct bulkmem_map {
	unsigned char *start;
	size_t length;
	size_t dirty_start;	/* written since the last sync; empty if it is dirty_end */
	size_t dirty_end;
	bool durable;	/* copy_persist makes it durable: DAX */
	struct bulkmem_map *next;	/* in device_maps */
};

#define OPTION(member)	.off1 = offsetof(struct bulkmem_engine_options, member), \
			.category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

static struct fio_option options[] = {
	{
		.name	= "method",
		.lname	= "Method of writes",
		.type	= FIO_OPT_STR_STORE,
		.help	= "Method that writes (bulkmem methods lists them) [the policy's choice]",
		OPTION(method),
	},
	{
		.name	= "read_method",
		.lname	= "Method of reads",
		.type	= FIO_OPT_STR_STORE,
		.help	= "Method that reads [the policy's choice]",
		OPTION(read_method),
	},
	{
		.name	= "intent",
		.lname	= "Intent",
		.type	= FIO_OPT_STR,
		.help	= "What happens next to what is written",
		.def	= "throughput",
		.posval	= {
			{ .ival = "throughput", .oval = BULKMEM_INTENT_THROUGHPUT,
			  .help = "Not known" },
			{ .ival = "reuse", .oval = BULKMEM_INTENT_REUSE,
			  .help = "It is read soon" },
			{ .ival = "stream", .oval = BULKMEM_INTENT_STREAM,
			  .help = "It is not read soon" },
		},
		OPTION(intent),
	},
	{
		.name	= "persist",
		.lname	= "Persist",
		.type	= FIO_OPT_BOOL,
		.help	= "Writes are durable, one by one (on DAX)",
		.def	= "0",
		OPTION(persist),
	},
	{
		.name	= "attribute",
		.lname	= "Cache attribute",
		.type	= FIO_OPT_STR,
		.help	= "Cache attribute of the memory of /dev/bulkmem-memory",
		.posval	= {
			{ .ival = "wb", .oval = 1 + BULKMEM_WB, .help = "Write-back" },
			{ .ival = "wc", .oval = 1 + BULKMEM_WC, .help = "Write-combining" },
			{ .ival = "uc", .oval = 1 + BULKMEM_UC, .help = "Uncached" },
		},
		OPTION(attribute),
	},
	{
		.name	= "huge_pages",
		.lname	= "Huge pages",
		.type	= FIO_OPT_BOOL,
		.help	= "Pages of 2 MiB for the memory of /dev/bulkmem-memory [4 KiB]",
		.def	= "0",
		OPTION(huge_pages),
	},
	{
		.name	= NULL,
	},
};

/*
 * Sets the options of a direction: its method is parsed once, not by each copy.
 * The method and an operation that it does not have are refused here.
 */
static int set_method(struct bulkmem_options *call, struct bulkmem_policy **policy,
		      const char *operation, const char *method)
{
	char forced[256];
	int length;

	*call = (struct bulkmem_options)BULKMEM_OPTIONS_INIT;
	if (!method)
		return 0;

	length = snprintf(forced, sizeof(forced), "%s:%s", operation, method);
	if (length >= (int)sizeof(forced)) {
		log_err("bulkmem: the name of the method is too long: %s\n", method);
		return 1;
	}
	if (bulkmem_policy_defaults(policy) ||
	    bulkmem_policy_force(*policy, forced)) {
		log_err("bulkmem: %s\n", bulkmem_last_error());
		return 1;
	}
	call->policy = *policy;
	return 0;
}

static void bulkmem_cleanup(struct thread_data *td);

static int bulkmem_init_job(struct thread_data *td)
{
	struct bulkmem_engine_options *o = td->eo;
	struct bulkmem_data *data = calloc(1, sizeof(*data));

	if (!data) {
		td_verror(td, ENOMEM, "bulkmem");
		return 1;
	}
	td->io_ops_data = data;
	data->persist = o->persist;
	if (bulkmem_init()) {
		log_err("bulkmem: %s\n", bulkmem_last_error());
		goto failed;
	}
	if (set_method(&data->read, &data->read_policy, "copy", o->read_method) ||
	    set_method(&data->write, &data->write_policy,
		       o->persist ? "copy_persist" : "copy", o->method))
		goto failed;
	data->write.intent = o->intent;
	return 0;

failed:
	bulkmem_cleanup(td);
	return 1;
}

static void unmap(struct bulkmem_map *map)
{
	if (map)
		munmap(map->start, map->length);
	free(map);
}

static void bulkmem_cleanup(struct thread_data *td)
{
	struct bulkmem_data *data = td->io_ops_data;

	if (data) {
		/* fio has already freed the files. */
		while (data->device_maps) {
			struct bulkmem_map *map = data->device_maps;

			data->device_maps = map->next;
			unmap(map);
		}
		bulkmem_policy_free(data->read_policy);
		bulkmem_policy_free(data->write_policy);
		free(data);
	}
	td->io_ops_data = NULL;
}

/* The size of a DAX device; 0 if the device is none. */
static uint64_t dax_size(struct fio_file *f)
{
	unsigned long long size = 0;
	char path[PATH_MAX];
	struct stat st;
	FILE *file;

	if (stat(f->file_name, &st))
		return 0;
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size",
		 major(st.st_rdev), minor(st.st_rdev));
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%llu", &size) != 1)
		size = 0;
	fclose(file);
	return size;
}

static int bulkmem_get_file_size(struct thread_data *td, struct fio_file *f)
{
	struct bulkmem_engine_options *o = td->eo;

	if (fio_file_size_known(f))
		return 0;
	if (o->attribute && f->filetype != FIO_TYPE_CHAR) {
		log_err("bulkmem: attribute is for memory of the device: filename=/dev/bulkmem-memory, not %s\n",
			f->file_name);
		return 1;
	}
	if (f->filetype != FIO_TYPE_CHAR)
		return generic_get_file_size(td, f);

	f->real_file_size = dax_size(f);
	if (!f->real_file_size) {
		/* /dev/bulkmem-memory allocates what is mapped, which must start at 0. */
		f->real_file_size = td->o.size;
		if (!td->o.size) {
			log_err("bulkmem: %s has no size of its own: say size=\n", f->file_name);
			return 1;
		}
		if (get_start_offset(td, f)) {
			log_err("bulkmem: %s is new memory for each job: offset= and offset_increment= cannot be used\n",
				f->file_name);
			return 1;
		}
	}
	fio_file_set_size_known(f);
	return 0;
}

static int describe(struct thread_data *td, struct fio_file *f)
{
	struct bulkmem_engine_options *o = td->eo;
	struct bulkmem_memory memory = {
		.size = sizeof(memory),
		.attribute = o->attribute - 1,
		.page_shift = o->huge_pages ? 21 : 12,
		.node = -1,
	};

	if (!o->attribute)
		return 0;
	if (!ioctl(f->fd, BULKMEM_IOC_MEMORY, &memory))
		return 0;
	td_verror(td, errno, "the cache attribute of the memory");
	if (errno == ENOTTY)
		log_err("bulkmem: attribute is for memory of the device: filename=/dev/bulkmem-memory, not %s\n",
			f->file_name);
	return 1;
}

/*
 * Allocates the memory of /dev/bulkmem-memory before the job's time starts. Other
 * devices do not know the request.
 */
static int populate(struct thread_data *td, struct fio_file *f, struct bulkmem_map *map)
{
	size_t page = getpagesize();
	struct bulkmem_populate range = {
		.size = sizeof(range),
		.addr = (uintptr_t)map->start,
		.length = (map->length + page - 1) / page * page,
	};

	if (f->filetype != FIO_TYPE_CHAR || !ioctl(f->fd, BULKMEM_IOC_POPULATE, &range) ||
	    errno == ENOTTY)
		return 0;
	td_verror(td, errno, "the memory of the device");
	return 1;
}

/*
 * The number of bytes to map: everything, because offsets can be outside the
 * range of offset= and size=, for example with zonemode=strided. 0 after an
 * error: access beyond the end of a file would end the process with SIGBUS.
 */
static uint64_t map_length(struct thread_data *td, struct fio_file *f)
{
	uint64_t needed = f->file_offset + f->io_size;
	struct stat st;

	if (f->filetype != FIO_TYPE_FILE)
		return f->real_file_size;
	if (fstat(f->fd, &st)) {
		td_verror(td, errno, "fstat");
		return 0;
	}
	if (st.st_size > 0 && (uint64_t)st.st_size >= needed)
		return st.st_size;
	log_err("bulkmem: %s has %lld bytes, and the job needs %llu: create it first\n", f->file_name,
		(long long)st.st_size, needed ? (unsigned long long)needed : 1ULL);
	td_verror(td, EINVAL, "bulkmem");
	return 0;
}

static int bulkmem_open_file(struct thread_data *td, struct fio_file *f)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct bulkmem_map *map;
	int protection = PROT_READ | (td_write(td) ? PROT_WRITE : 0);

	/*
	 * Memory of a device belongs to the mapping, which therefore stays while
	 * fio closes and opens the file between writing and verifying.
	 */
	if (FILE_ENG_DATA(f))
		return generic_open_file(td, f);
	if (generic_open_file(td, f))
		return 1;
	/* fio opens a block device to find out its size, also before bulkmem_init_job. */
	if (f->filetype == FIO_TYPE_BLOCK && !fio_file_size_known(f))
		return 0;
	if (f->filetype == FIO_TYPE_CHAR && describe(td, f))
		goto close;

	map = calloc(1, sizeof(*map));
	if (!map) {
		td_verror(td, ENOMEM, "bulkmem");
		goto close;
	}
	map->length = map_length(td, f);
	if (!map->length) {
		free(map);
		goto close;
	}
	map->durable = true;
	map->start = mmap(NULL, map->length, protection,
			  MAP_SHARED_VALIDATE | MAP_SYNC, f->fd, 0);
	if (map->start == MAP_FAILED) {
		map->durable = false;
		map->start = mmap(NULL, map->length, protection, MAP_SHARED, f->fd, 0);
	}
	if (map->start == MAP_FAILED) {
		td_verror(td, errno, "mmap");
		free(map);
		goto close;
	}
	if (populate(td, f, map)) {
		unmap(map);
		goto close;
	}
	FILE_SET_ENG_DATA(f, map);
	if (f->filetype == FIO_TYPE_CHAR) {
		map->next = data->device_maps;
		data->device_maps = map;
	}
	if (data->persist && !map->durable)
		log_info("bulkmem: %s is not on DAX: persist=1 only writes the processor's caches back\n",
			 f->file_name);
	return 0;

close:
	/* The error of opening is the one to report. */
	(void)!generic_close_file(td, f);
	return 1;
}

static int bulkmem_close_file(struct thread_data *td, struct fio_file *f)
{
	if (f->filetype != FIO_TYPE_CHAR) {
		unmap(FILE_ENG_DATA(f));
		FILE_SET_ENG_DATA(f, NULL);
	}
	return generic_close_file(td, f);
}

/* Waits until a range of the mapping is durable. */
static int sync_range(struct thread_data *td, struct fio_file *f, size_t start, size_t end)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct bulkmem_map *map = FILE_ENG_DATA(f);

	if (data->persist && (map->durable || f->filetype == FIO_TYPE_CHAR))
		return 0;
	if (f->filetype == FIO_TYPE_CHAR)
		return bulkmem_persist(map->start + start, end - start) ? EIO : 0;
	start -= start & page_mask;
	return msync(map->start + start, end - start, MS_SYNC) ? errno : 0;
}

/*
 * Waits until everything that was written is durable. A file is synced as a
 * whole: fio can have closed it since. Of a device, which can be much larger
 * than what was written, only that is written back.
 */
static int sync_file(struct thread_data *td, struct fio_file *f)
{
	struct bulkmem_map *map = FILE_ENG_DATA(f);
	int error;

	if (f->filetype != FIO_TYPE_CHAR)
		return sync_range(td, f, 0, map->length);
	error = sync_range(td, f, map->dirty_start, map->dirty_end);
	if (!error)
		map->dirty_start = map->dirty_end = 0;
	return error;
}

static int write_block(struct thread_data *td, struct io_u *io_u)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct bulkmem_map *map = FILE_ENG_DATA(io_u->file);
	size_t start = io_u->offset, end = start + io_u->xfer_buflen;
	int result;

	if (map->dirty_start == map->dirty_end)
		map->dirty_start = start;
	map->dirty_start = min(map->dirty_start, start);
	map->dirty_end = max(map->dirty_end, end);
	if (data->persist)
		result = bulkmem_copy_persist_with(map->start + start, io_u->xfer_buf,
						   io_u->xfer_buflen, &data->write);
	else
		result = bulkmem_copy_with(map->start + start, io_u->xfer_buf,
					   io_u->xfer_buflen, &data->write);
	if (!result && td->o.sync_io)
		io_u->error = sync_range(td, io_u->file, start, end);
	return result;
}

static enum fio_q_status bulkmem_queue(struct thread_data *td, struct io_u *io_u)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct bulkmem_map *map = FILE_ENG_DATA(io_u->file);
	int result = 0;

	fio_ro_check(td, io_u);
	io_u->error = 0;

	if (ddir_rw(io_u->ddir) &&
	    (io_u->offset > map->length || io_u->xfer_buflen > map->length - io_u->offset)) {
		log_err("bulkmem: %llu bytes at offset %llu are beyond the end of %s, which has %zu bytes\n",
			io_u->xfer_buflen, io_u->offset, io_u->file->file_name, map->length);
		io_u->error = EINVAL;
		td_verror(td, EINVAL, "bulkmem");
		return FIO_Q_COMPLETED;
	}

	switch (io_u->ddir) {
	case DDIR_READ:
		result = bulkmem_copy_with(io_u->xfer_buf, map->start + io_u->offset,
					   io_u->xfer_buflen, &data->read);
		break;
	case DDIR_WRITE:
		result = write_block(td, io_u);
		break;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
	case DDIR_SYNC_FILE_RANGE:
		io_u->error = sync_file(td, io_u->file);
		break;
	default:
		io_u->error = EINVAL;
		break;
	}
	if (result) {
		log_err("bulkmem: %s\n", bulkmem_last_error());
		io_u->error = EIO;
	}
	if (io_u->error)
		td_verror(td, io_u->error, "bulkmem");
	return FIO_Q_COMPLETED;
}

/* fio finds it by this name. */
struct ioengine_ops ioengine = {
	.name			= "bulkmem",
	.version		= FIO_IOOPS_VERSION,
	.init			= bulkmem_init_job,
	.cleanup		= bulkmem_cleanup,
	.queue			= bulkmem_queue,
	.open_file		= bulkmem_open_file,
	.close_file		= bulkmem_close_file,
	.get_file_size		= bulkmem_get_file_size,
	.flags			= FIO_SYNCIO | FIO_NOEXTEND | FIO_MEMALIGN,
	.options		= options,
	.option_struct_size	= sizeof(struct bulkmem_engine_options),
};
