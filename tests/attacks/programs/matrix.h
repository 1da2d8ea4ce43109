/* What the two halves of the matrix share: matrix.c knows routes and actors, verbs.c what is done. */
#pragma once
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PATH_SIZE = 400, NONE = 1 };
enum kind { PRESENT, ABSENT, SOCKET };    /* what must be at the path */
enum { FOLLOWS = 1, AT = 2, EMPTY = 4 };  /* follows a link at the end, takes a directory, takes AT_EMPTY_PATH */

struct place { long at; char path[PATH_SIZE]; int flags, held; };

struct verb {
	const char *name;
	enum kind kind;
	int takes;
	int (*act)(const struct place *place, const char *true_path); /* 0, minus the errno, or NONE */
};

extern char own[PATH_SIZE], spare[PATH_SIZE], scratch[PATH_SIZE]; /* a file of ours, a free name, our folder */
const struct verb *find_verb(const char *name);
