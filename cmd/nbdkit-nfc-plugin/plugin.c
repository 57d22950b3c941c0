/* The callbacks of nbdkit. They store the parameters, start the Go runtime when nbdkit has forked, and call
   Go for the rest. */
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "plugin.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

struct value *values;
static int started; /* the Go runtime runs in this process */

/* Arguments of the process, which the Go runtime reads when it starts. */
static int process_argc;
static char **process_argv, **process_envp;

__attribute__((constructor)) static void save_arguments(int argc, char **argv, char **envp)
{
	process_argc = argc;
	process_argv = argv;
	process_envp = envp;
}

/* start_go runs the constructors that late.ld collects. Calls into Go wait until the runtime is ready. */
typedef void (*constructor)(int, char **, char **);
extern constructor __start_go_init_array[], __stop_go_init_array[];

static void start_go(void)
{
	for (constructor *c = __start_go_init_array; c < __stop_go_init_array; c++)
		(*c)(process_argc, process_argv, process_envp);
	started = 1;
}

void report_error(const char *text) { nbdkit_error("%s", text); }
void report_debug(const char *text) { nbdkit_debug("%s", text); }
int wait_for_quit(void) { return nbdkit_nanosleep(0, 50000000); }

/* add_value appends a parameter. It owns text. */
static int add_value(const char *name, char *text)
{
	struct value **end = &values;
	struct value *v = calloc(1, sizeof *v);
	if (v != NULL)
		v->name = strdup(name);
	if (v == NULL || v->name == NULL || text == NULL) {
		nbdkit_error("out of memory");
		free(v);
		free(text);
		return -1;
	}
	v->text = text;
	while (*end != NULL)
		end = &(*end)->next;
	*end = v;
	return 0;
}

/* nfc_config reads secrets and makes paths absolute, because nbdkit changes the folder later. */
static int nfc_config(const char *key, const char *value)
{
	char *text = NULL;
	if (strcmp(key, "password") == 0 || strcmp(key, "cookie") == 0) {
		if (nbdkit_read_password(value, &text) == -1)
			return -1;
	} else if (strcmp(key, "known-hosts") == 0 && value[0] != '\0') {
		text = nbdkit_absolute_path(value);
		if (text == NULL)
			return -1;
	} else {
		text = strdup(value);
	}
	return add_value(key, text);
}

/* nfc_config_complete checks the parameters in a child process, because the Go runtime must not start here
   before nbdkit forks. */
static int nfc_config_complete(void)
{
	int status;
	pid_t child = fork();
	if (child == -1) {
		nbdkit_error("fork: %m");
		return -1;
	}
	if (child == 0) {
		start_go();
		_exit(nfcCheck() == 0 ? 0 : 1);
	}
	while (waitpid(child, &status, 0) == -1) {
		if (errno != EINTR) {
			nbdkit_error("waitpid: %m");
			return -1;
		}
	}
	if (WIFSIGNALED(status))
		nbdkit_error("the check of the parameters ended by signal %d", WTERMSIG(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int nfc_after_fork(void)
{
	start_go();
	return nfcStart();
}

static void nfc_unload(void)
{
	if (started)
		nfcStop();
	while (values != NULL) {
		struct value *v = values;
		values = v->next;
		explicit_bzero(v->text, strlen(v->text));
		free(v->name);
		free(v->text);
		free(v);
	}
}

static void nfc_dump_plugin(void)
{
	printf("nfc_transports=nfc,https\n");
}

static void *nfc_open(int readonly)
{
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t nfc_get_size(void *handle)
{
	(void)handle;
	return nfcSize();
}

static int nfc_can_multi_conn(void *handle)
{
	(void)handle;
	return 1;
}

static int nfc_can_extents(void *handle)
{
	(void)handle;
	return 1;
}

static int nfc_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	(void)handle;
	*minimum = 1;
	*preferred = 64 * 1024;       /* a block of the cache */
	*maximum = 32 * 1024 * 1024;
	return 0;
}

/* The threads of nbdkit wait for reads outside of the Go runtime. A wait inside of it costs two more changes of
   threads. */
static struct read_call *queued; /* reads that Go has not taken, the last one first */
int reads_queued = -1;

struct read_call *take_reads(void) { return __atomic_exchange_n(&queued, NULL, __ATOMIC_ACQUIRE); }

/* queue_read adds a read. The first of several reads wakes Go. */
static void queue_read(struct read_call *call)
{
	const uint64_t one = 1;
	call->next = __atomic_load_n(&queued, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&queued, &call->next, call, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	if (call->next == NULL && write(reads_queued, &one, sizeof one) == -1)
		abort(); /* an eventfd accepts 2^64 - 2 */
}

void finish_read(struct read_call *call, int error, char *message)
{
	call->error = error;
	call->message = message;
	__atomic_store_n(&call->ended, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &call->ended, FUTEX_WAKE_PRIVATE, 1); /* the thread may have freed call: the kernel uses the address only */
}

static int nfc_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	struct read_call call = {.buf = buf, .count = count, .offset = offset};
	(void)handle;
	(void)flags;
	queue_read(&call);
	while (__atomic_load_n(&call.ended, __ATOMIC_ACQUIRE) == 0)
		syscall(SYS_futex, &call.ended, FUTEX_WAIT_PRIVATE, 0, NULL);
	if (call.error == 0)
		return 0;
	report_error(call.message);
	free(call.message);
	nbdkit_set_error(call.error);
	return -1;
}

static int nfc_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags, struct nbdkit_extents *extents)
{
	(void)handle;
	return nfcExtents(count, offset, (flags & NBDKIT_FLAG_REQ_ONE) != 0, extents);
}

static const char *nfc_export_description(void *handle)
{
	char *text = nfcDescription();
	const char *kept = nbdkit_strdup_intern(text);
	(void)handle;
	free(text);
	return kept;
}

static struct nbdkit_plugin plugin = {
	.name = "nfc",
	.longname = "decamp NFC plugin",
	.version = plugin_version,
	.description = "serves a disk of a VM on VMware ESXi or vCenter",
	.config_help =
		"server=HOST          (required) name or address of the vCenter or ESXi\n"
		"vm=moref=MOREF       (required) reference of the VM\n"
		"file=[DS] DIR/X.vmdk (required) disk of the VM\n"
		"user=USER            user name (default: root)\n"
		"password=+FILE|-|-FD|PASSWORD\n"
		"                     password: from a file, the terminal or a file descriptor\n"
		"cookie=+FILE|-|-FD|COOKIE\n"
		"                     cookie of an open session, in place of a login\n"
		"thumbprint=AA:BB:... SHA-1 or SHA-256 of the certificate of the server\n"
		"known-hosts=FILE     file in which the certificate is pinned at its first use\n"
		"insecure=true        accept any certificate without thumbprint and known-hosts\n"
		"port=PORT            port of the API (default: 443)\n"
		"nfchostport=PORT     port of NFC on the ESXi host (default: by the host, 902)\n"
		"snapshot=MOREF       snapshot to read; required if the VM runs\n"
		"transport=nfc|https  way to read the disk (default: nfc)\n"
		"plain=true           read over NFC without encryption\n"
		"connections=N        sessions for the disk, 1 to 16 (default: 4; https: 8)",
	.magic_config_key = "file",
	.errno_is_preserved = 1,
	.config = nfc_config,
	.config_complete = nfc_config_complete,
	.after_fork = nfc_after_fork,
	.unload = nfc_unload,
	.dump_plugin = nfc_dump_plugin,
	.open = nfc_open,
	.get_size = nfc_get_size,
	.block_size = nfc_block_size,
	.can_multi_conn = nfc_can_multi_conn,
	.can_extents = nfc_can_extents,
	.export_description = nfc_export_description,
	.pread = nfc_pread,
	.extents = nfc_extents,
};

NBDKIT_REGISTER_PLUGIN(plugin)
