/* A PJRT plugin of an older API: the real one's functions in a table of BYTES bytes, which ends where memory ends. Whoever reads
 * on dies of SIGSEGV. Compile with -DBYTES=N and -DPLUGIN="PATH". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const void *GetPjrtApi(void) {
  void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  const void *(*get)(void) = plugin ? (const void *(*)(void))dlsym(plugin, "GetPjrtApi") : NULL;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = BYTES;
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!get || pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) return NULL;
  char *table = pages + page - bytes;
  memcpy(table, get(), bytes);
  memcpy(table, &bytes, sizeof bytes); /* `struct_size` */
  return table;
}
