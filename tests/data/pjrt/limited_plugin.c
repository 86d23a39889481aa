/* SIMULATED limits: a PJRT plugin in front of a real CPU plugin (LIMITED_BASE), whose table it gives on without what
 * LIMITED names, separated by commas:
 *   no-copies  refuses to compile the program that copies donated inputs
 *   no-whole   copies no whole array to the host
 *   no-parts   its table has no function that copies parts of arrays
 *   memory     says that 3 of the 16 GiB of its device's memory are taken
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* words of the table */
enum { COMPILE = 25, MEMORY_STATS = 39, TO_HOST = 75, COPY_RAW = 105, TABLE_WORDS = 512 };

struct program {
  size_t struct_size;
  void *extension_start;
  const char *code;
  size_t code_size;
  const char *format;
  size_t format_size;
};

struct compile_args {
  size_t struct_size;
  void *extension_start;
  void *client;
  const struct program *program;
};

struct to_host_args {
  size_t struct_size;
  void *extension_start;
  void *buffer;
  void *host_layout;
  void *destination;
  size_t destination_size;
};

/* the first words of `PJRT_Device_MemoryStats_Args` */
struct memory_args {
  size_t struct_size;
  void *extension_start;
  void *device;
  int64_t bytes_in_use;
  /* three numbers, each with whether it is told */
  int64_t not_told[6];
  int64_t bytes_limit;
  char has_bytes_limit;
};

static void *(*real_compile)(struct compile_args *);
static void *(*real_to_host)(struct to_host_args *);

static int has(const char *limit) {
  const char *limits = getenv("LIMITED");
  return limits != NULL && strstr(limits, limit) != NULL;
}

/* errors are the real plugin's own: of a program that ends early, and of a destination that is too small */
static void *compile(struct compile_args *args) {
  struct program program = *args->program;
  if (memmem(program.code, program.code_size, "autotune_lowered_restore", 24) == NULL) return real_compile(args);
  program.code_size = 8;
  const struct program *given = args->program;
  args->program = &program;
  void *error = real_compile(args);
  args->program = given;
  return error;
}

static void *to_host(struct to_host_args *args) {
  if (args->destination != NULL) args->destination_size = 0;
  return real_to_host(args);
}

static void *memory_stats(struct memory_args *args) {
  args->bytes_in_use = (int64_t)3 << 30;
  args->bytes_limit = (int64_t)16 << 30;
  args->has_bytes_limit = 1;
  return NULL;
}

const void *GetPjrtApi(void) {
  static void *table[TABLE_WORDS];
  const char *base = getenv("LIMITED_BASE");
  void *library = base ? dlopen(base, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
  if (symbol == NULL) {
    fprintf(stderr, "LIMITED_BASE names no plugin\n");
    return NULL;
  }
  void *const *real = ((void *const *(*)(void))symbol)();
  size_t size = (size_t)real[0];
  if (size > sizeof table) size = sizeof table;
  memcpy(table, real, size);
  table[0] = (void *)size;
  real_compile = (void *(*)(struct compile_args *))table[COMPILE];
  real_to_host = (void *(*)(struct to_host_args *))table[TO_HOST];
  if (has("no-copies")) table[COMPILE] = compile;
  if (has("no-whole")) table[TO_HOST] = to_host;
  if (has("no-parts")) table[COPY_RAW] = NULL;
  if (has("memory")) table[MEMORY_STATS] = memory_stats;
  return table;
}
