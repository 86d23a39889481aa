/* 64 threads that look up, read and refresh, beside a writer that publishes.
 *
 *   threads FOLDER ONE.snapshot TWO.snapshot LOOKUPS
 *
 * The snapshots have the keys k0 to k99 of `threads@v1`, each with {"block": B, "name": "generation B"}, where B is 1
 * or 2. The writer replaces FOLDER's snapshot by renames until all threads have made their look-ups. Each hit must
 * belong completely to one generation, even long after its snapshot is gone. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autotune_lowered.h"

enum { THREADS = 64, KEYS = 100 };

static atl_cache *cache;
static atl_device *device;
static int lookups;
static const char *folder;
static atomic_int running = THREADS;
static atomic_int failures;
static atomic_int seen[3];
static atomic_int refreshed;

static void fail(const char *what, const char *message) {
  if (atomic_fetch_add(&failures, 1) < 5) fprintf(stderr, "threads: %s: %s\n", what, message);
}

/* The block size of a hit, after a check that all its parts agree. */
static int64_t block_of(const atl_hit *hit) {
  char message[256] = "", expected[64];
  int64_t block = 0;
  atl_string name = {NULL, 0};
  atl_hit_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  if (atl_hit_int64(hit, atl_text("block"), &block, message, sizeof message) != ATL_OK || block < 1 || block > 2 ||
      atl_hit_string(hit, atl_text("name"), &name, message, sizeof message) != ATL_OK ||
      atl_hit_describe(hit, &info, message, sizeof message) != ATL_OK) {
    fail("a value", message);
    return 0;
  }
  snprintf(expected, sizeof expected, "generation %d", (int)block);
  if (strcmp(name.data, expected) != 0) fail("two generations in one hit", name.data);
  snprintf(expected, sizeof expected, "{\"block\":%d,\"name\":\"generation %d\"}", (int)block, (int)block);
  if (strcmp(info.config.data, expected) != 0 || !strstr(info.entry.data, expected)) fail("JSON", info.config.data);
  return block;
}

static void *look_up(void *argument) {
  unsigned random = 2654435761u * (1u + (unsigned)(size_t)argument);
  const atl_hit *kept = NULL;
  int64_t kept_block = 0;
  char message[256];
  for (int i = 0; i < lookups; i++) {
    char key[16];
    random = random * 1664525u + 1013904223u;
    snprintf(key, sizeof key, "k%u", (random >> 16) % KEYS);
    atl_query query;
    memset(&query, 0, sizeof query);
    query.struct_size = sizeof query;
    query.match = ATL_MATCH_KIND;
    query.device = device;
    query.operation = atl_text("threads@v1");
    query.key = atl_text(key);
    const atl_hit *hit = NULL;
    if (atl_cache_lookup(cache, &query, &hit, message, sizeof message) != ATL_OK) {
      fail("a look-up", message);
      continue;
    }
    int64_t block = block_of(hit);
    atomic_fetch_add(&seen[block], 1);
    if (i % 97 == 0) { /* kept across refreshes, and released by the last owner */
      if (kept && block_of(kept) != kept_block) fail("a kept hit", "changed");
      atl_hit_release(kept);
      kept = atl_hit_retain(hit);
      kept_block = block;
    }
    atl_hit_release(hit);
    if (random >> 26 == 0) {
      int32_t changed = 0;
      if (atl_cache_refresh(cache, &changed, message, sizeof message) != ATL_OK) fail("a refresh", message);
      atomic_fetch_add(&refreshed, changed);
    }
  }
  atl_hit_release(kept);
  atomic_fetch_sub(&running, 1);
  return NULL;
}

static void publish(const char *snapshot) {
  char next[4096], place[4096];
  snprintf(next, sizeof next, "%s/next", folder);
  snprintf(place, sizeof place, "%s/best-v1.snapshot", folder);
  unlink(next);
  if (link(snapshot, next) != 0 || rename(next, place) != 0) fail("publishing", snapshot);
}

static int threads_of_this_process(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *task; tasks && (task = readdir(tasks));) count += task->d_name[0] != '.';
  if (tasks) closedir(tasks);
  return count;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  folder = argv[1];
  lookups = atoi(argv[4]);
  char message[256];
  const int before = threads_of_this_process(); /* a sanitizer may have added one */
  const char json[] = "{\"identity\":{\"platform\":\"cpu\",\"device_kind\":\"cpu\",\"hardware\":{\"cores\":\"2\"}}}";
  publish(argv[2]);
  atl_open_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.path = atl_text(folder);
  if (atl_device_from_json(atl_text(json), &device, message, sizeof message) != ATL_OK ||
      atl_cache_open(&options, &cache, message, sizeof message) != ATL_OK) {
    fprintf(stderr, "threads: %s\n", message);
    return 1;
  }
  if (atl_cache_refresh(cache, NULL, message, sizeof message) != ATL_OK) fail("a refresh", message);
  if (threads_of_this_process() != before) fail("the library", "started a thread");

  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, look_up, (void *)i) != 0) return 1;
  }
  int published = 1;
  for (; atomic_load(&running) > 0; published++) {
    publish(argv[2 + published % 2]);
    usleep(200);
  }
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atl_cache_close(cache);
  atl_device_free(device);
  printf("threads: %d look-ups of %d threads, %d and %d of the generations; %d published, %d refreshed; %d failures\n",
         THREADS * lookups, THREADS, atomic_load(&seen[1]), atomic_load(&seen[2]), published, atomic_load(&refreshed),
         atomic_load(&failures));
  if (atomic_load(&seen[1]) == 0 || atomic_load(&seen[2]) == 0) fail("the look-ups", "saw one generation only");
  return atomic_load(&failures) != 0;
}
