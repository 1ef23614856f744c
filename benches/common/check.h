/* Ends a program whose calls fail. */
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(ok) ((ok) ? (void)0 : fail(#ok))
