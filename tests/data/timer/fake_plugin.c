/* A library that passes for a PJRT plugin until it is looked at closely. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MAJOR
#define MAJOR 0
#endif
#ifndef MINOR
#define MINOR 0
#endif
#ifndef TABLE_BYTES
#define TABLE_BYTES sizeof(struct table)
#endif

struct table {
  size_t struct_size;
  void *extension_start;
  struct {
    size_t struct_size;
    void *extension_start;
    int major, minor;
  } version;
  void *functions[100];
};

#ifdef ABORTS
__attribute__((constructor)) static void aborts(void) { abort(); }
#endif

const void *GetPjrtApi(void) {
#ifdef NO_TABLE
  return NULL;
#else
  static struct table table;
#ifdef SPEAKS
  puts("a plugin that prints to stdout");
  fflush(stdout);
#endif
  table.struct_size = TABLE_BYTES;
  table.version.struct_size = sizeof table.version;
  table.version.major = MAJOR;
  table.version.minor = MINOR;
  /* what lies behind the told end of the table is not there */
  memset(table.functions, TABLE_BYTES < sizeof table ? 0x5a : 0, sizeof table.functions);
  return &table;
#endif
}
