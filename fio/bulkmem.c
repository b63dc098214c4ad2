// SPDX-License-Identifier: GPL-2.0
/*
 * bulkmem: an external engine for fio. Reads and writes are copies from and to
 * a mapping, by the methods of libbulkmem.
 *
 * A mapping is of a regular file, of a DAX device, or of the memory that
 * /dev/bulkmem provides with a chosen cache attribute.
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
	unsigned int attribute;	/* 0: none is asked for; else 1 more than an enum bulkmem_attribute */
	unsigned int huge_pages;
};

/* Of a job. */
struct bulkmem_data {
	struct bulkmem_policy *read_policy;	/* NULL: that of the process */
	struct bulkmem_policy *write_policy;
	struct bulkmem_options read;
	struct bulkmem_options write;
	bool persist;
};

/* Of a file. */
struct bulkmem_map {
	unsigned char *start;
	size_t length;
	bool durable;	/* copy_persist makes it durable: DAX */
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
		.help	= "Cache attribute of the memory of /dev/bulkmem",
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
		.help	= "Pages of 2 MiB for the memory of /dev/bulkmem [4 KiB]",
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

static void unmap(struct fio_file *f)
{
	struct bulkmem_map *map = FILE_ENG_DATA(f);

	if (map) {
		munmap(map->start, map->length);
		free(map);
	}
	FILE_SET_ENG_DATA(f, NULL);
}

static void bulkmem_cleanup(struct thread_data *td)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct fio_file *f;
	unsigned int i;

	for_each_file(td, f, i)
		unmap(f);
	if (data) {
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
		log_err("bulkmem: attribute is for memory of the device: filename=/dev/bulkmem, not %s\n",
			f->file_name);
		return 1;
	}
	if (f->filetype != FIO_TYPE_CHAR)
		return generic_get_file_size(td, f);

	f->real_file_size = dax_size(f);
	/* /dev/bulkmem has as much as a mapping asks for. */
	if (!f->real_file_size)
		f->real_file_size = f->file_offset + td->o.size;
	if (f->real_file_size <= f->file_offset) {
		log_err("bulkmem: %s has no size of its own: say size=\n", f->file_name);
		return 1;
	}
	fio_file_set_size_known(f);
	return 0;
}

static int describe(struct thread_data *td, struct fio_file *f)
{
	struct bulkmem_engine_options *o = td->eo;
	struct bulkmem_memory memory = {
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
		log_err("bulkmem: attribute is for memory of the device: filename=/dev/bulkmem, not %s\n",
			f->file_name);
	return 1;
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
	if (f->filetype == FIO_TYPE_CHAR && describe(td, f))
		goto close;

	map = calloc(1, sizeof(*map));
	if (!map) {
		td_verror(td, ENOMEM, "bulkmem");
		goto close;
	}
	map->length = f->file_offset + f->io_size;
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
	FILE_SET_ENG_DATA(f, map);
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
	if (f->filetype != FIO_TYPE_CHAR)
		unmap(f);
	return generic_close_file(td, f);
}

/* fio writes data for jobs that read; memory of a device stays as it is. */
static int bulkmem_prepopulate_file(struct thread_data *td, struct fio_file *f)
{
	return f->filetype == FIO_TYPE_FILE ? generic_prepopulate_file(td, f) : 0;
}

/* Waits until what was written to the file is durable. */
static int sync_file(struct thread_data *td, struct fio_file *f)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct bulkmem_map *map = FILE_ENG_DATA(f);

	if (data->persist && (map->durable || f->filetype == FIO_TYPE_CHAR))
		return 0;
	if (f->filetype == FIO_TYPE_CHAR)
		return bulkmem_persist(map->start, map->length) ? EIO : 0;
	return msync(map->start, map->length, MS_SYNC) ? errno : 0;
}

static enum fio_q_status bulkmem_queue(struct thread_data *td, struct io_u *io_u)
{
	struct bulkmem_data *data = td->io_ops_data;
	struct bulkmem_map *map = FILE_ENG_DATA(io_u->file);
	unsigned char *place = map->start + io_u->offset;
	int result = 0;

	fio_ro_check(td, io_u);
	io_u->error = 0;

	switch (io_u->ddir) {
	case DDIR_READ:
		result = bulkmem_copy_with(io_u->xfer_buf, place,
					   io_u->xfer_buflen, &data->read);
		break;
	case DDIR_WRITE:
		if (data->persist)
			result = bulkmem_copy_persist_with(place, io_u->xfer_buf,
							   io_u->xfer_buflen, &data->write);
		else
			result = bulkmem_copy_with(place, io_u->xfer_buf,
						   io_u->xfer_buflen, &data->write);
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
	.prepopulate_file	= bulkmem_prepopulate_file,
	.flags			= FIO_SYNCIO | FIO_NOEXTEND | FIO_MEMALIGN,
	.options		= options,
	.option_struct_size	= sizeof(struct bulkmem_engine_options),
};
