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

extern const char plugin_version[]; /* defined by scripts/nbdkit-plugin.sh */

void report_error(const char *text);
void report_debug(const char *text);
int wait_for_quit(void); /* waits up to 250 ms; -1 if nbdkit is ending */
