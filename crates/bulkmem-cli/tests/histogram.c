/* Makes known calls, for the tests of `bulkmem run --histogram`. Compiled without builtins, so that every call is a call. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void *__memcpy_chk(void *dst, const void *src, size_t length, size_t size);

static char from[1 << 21], to[1 << 21];

static void each(void)
{
	for (int i = 0; i < 3; i++)
		memcpy(to, from, 100);
	__memcpy_chk(to, from, 127, 200);
	memcpy(to, from, 0);
	memmove(to + 1, to, 1000);
	for (int i = 0; i < 5; i++)
		mempcpy(to, from, 1);
	for (int i = 0; i < 4; i++)
		memset(to, 0, 1 << 20);
	memset(to, 1, 5000);
	for (int i = 0; i < 6; i++)
		bzero(to, 64);
	explicit_bzero(to, 1 << 20);
}

/* Three copies of 32 KiB behind a header of 8 bytes, and one that is not. */
static void aliased(void)
{
	for (int i = 0; i < 3; i++)
		memcpy(to + 4096 - (size_t)to % 4096 + 8, from + 4096 - (size_t)from % 4096, 32 << 10);
	memcpy(to + 4096 - (size_t)to % 4096 + 64, from + 4096 - (size_t)from % 4096, 32 << 10);
}

static void *of_thread(void *unused)
{
	for (int i = 0; i < 10000; i++)
		memcpy(to, from, 8);
	return unused;
}

static void threads(void)
{
	pthread_t them[4];

	for (int i = 0; i < 4; i++)
		if (pthread_create(&them[i], NULL, of_thread, NULL))
			abort();
	for (int i = 0; i < 4; i++)
		pthread_join(them[i], NULL);
}

/* A child copies 11 times and exits with 0, or is killed. */
static int child(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0) {
		for (int i = 0; i < 11; i++)
			memcpy(to, from, 8);
		_exit(0);
	}
	memcpy(to, from, 8);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return status;
}

/* From now on any other system call than those of fork, wait and exit kills the process. */
static void forbid(void)
{
#define ALLOW(number) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_clone),	    ALLOW(SYS_set_robust_list), ALLOW(SYS_rt_sigprocmask),
		ALLOW(SYS_wait4),	    ALLOW(SYS_exit_group),	ALLOW(SYS_rseq),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof lines / sizeof *lines, lines };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		abort();
}

/* More processes than there are records, one after the other. */
static void many(void)
{
	for (int i = 0; i < 4200; i++)
		if (child())
			abort();
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";

	if (!strcmp(what, "each"))
		each();
	else if (!strcmp(what, "aliased"))
		aliased();
	else if (!strcmp(what, "threads"))
		threads();
	else if (!strcmp(what, "many"))
		many();
	else if (!strcmp(what, "fork"))
		return child();
	else if (!strcmp(what, "forbidden")) {
		forbid();
		_exit(child());
	} else if (!strcmp(what, "exec")) {
		pid_t pid = fork();
		int status = 1;

		if (pid == 0) {
			execl(arguments[0], arguments[0], "fork", NULL);
			_exit(1);
		}
		return waitpid(pid, &status, 0) == pid ? status : 1;
	} else
		return 2;
	return 0;
}
