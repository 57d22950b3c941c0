/* Functions of plugin.c that Go calls. */
#pragma once

#include <stdint.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

/* value is a parameter of the command line. */
struct value {
	char *name;
	char *text;
	struct value *next;
};

extern struct value *values; /* parameters in the order of the command line */

/* read_call is a read that a thread of nbdkit waits for. */
struct read_call {
	struct read_call *next; /* read that was queued before; NULL for the first one */
	void *buf;
	uint32_t count;
	uint64_t offset;
	int error;      /* errno of a read that failed; otherwise 0 */
	char *message;  /* error message, from malloc; otherwise NULL */
	uint32_t ended; /* 1 when the fields above are set; a futex */
};

extern int reads_queued; /* eventfd that is readable if reads are queued; Go sets it */

struct read_call *take_reads(void); /* removes all queued reads, the last one first */
void finish_read(struct read_call *call, int error, char *message); /* the caller must not use call and message afterwards */

extern const char plugin_version[]; /* defined by scripts/nbdkit-plugin.sh */

void report_error(const char *text);
void report_debug(const char *text);
int wait_for_quit(void); /* waits up to 250 ms; -1 if nbdkit is ending */
