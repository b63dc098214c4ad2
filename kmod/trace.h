/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoint bulkmem:bulkmem_extent: an event for each contiguous range that
 * was cleared, with the numbers that stats.c adds to the counters.
 *
 * Older kernels, such as 6.1, refuse the tracepoints of a livepatch. There, a
 * kprobe on bulkmem_stats_count() yields the same event.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM bulkmem

#if !defined(_BULKMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _BULKMEM_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/types.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
# define BULKMEM_TRACEPOINT
#endif

#ifdef BULKMEM_TRACEPOINT
/* Copies of the names, because the trace may outlive the module. */
TRACE_EVENT(bulkmem_extent,
	    TP_PROTO(const char *function, const char *method, u64 bytes, u64 ns, bool hinted),
	    TP_ARGS(function, method, bytes, ns, hinted),
	    TP_STRUCT__entry(__array(char, function, 24)
			     __array(char, method, 12)
			     __field(u64, bytes)
			     __field(u64, ns)
			     __field(bool, hinted)),
	    TP_fast_assign(strscpy_pad(__entry->function, function, sizeof(__entry->function));
			   strscpy_pad(__entry->method, method, sizeof(__entry->method));
			   __entry->bytes = bytes;
			   __entry->ns = ns;
			   __entry->hinted = hinted;),
	    TP_printk("function=%s method=%s bytes=%llu ns=%llu hinted=%d",
		      __entry->function, __entry->method, __entry->bytes, __entry->ns,
		      __entry->hinted)
);
#else
static inline void trace_bulkmem_extent(const char *function, const char *method, u64 bytes,
					u64 ns, bool hinted)
{
}
#endif

#endif /* _BULKMEM_TRACE_H */

#ifdef BULKMEM_TRACEPOINT
# undef TRACE_INCLUDE_PATH
# define TRACE_INCLUDE_PATH .
# undef TRACE_INCLUDE_FILE
# define TRACE_INCLUDE_FILE trace
# include <trace/define_trace.h>
#endif
