/* Looks one config up, the way an engine would before it launches a kernel.
 *
 *   lookup CACHE DEVICE.json OPERATION KEY [exact|kind|any [PATH...]]
 *
 * DEVICE.json is what `autotune-lowered device --format json` printed on this machine. Prints the config as JSON, and each
 * PATH with its value. Exit code 0: a config applies; 3: none does; 1: something failed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune_lowered.h"

/* Reads a file; the caller frees the bytes. */
static char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  char *text = NULL;
  if (fseek(file, 0, SEEK_END) == 0) {
    long length = ftell(file);
    rewind(file);
    text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text) *size = fread(text, 1, (size_t)length, file);
  }
  fclose(file);
  return text;
}

static int match_of(const char *word) {
  return strcmp(word, "any") == 0 ? ATL_MATCH_ANY : strcmp(word, "kind") == 0 ? ATL_MATCH_KIND : ATL_MATCH_EXACT;
}

/* Prints `path=value`, whatever type the value has. */
static void print_value(const atl_hit *hit, const char *path) {
  char message[256];
  int64_t integer;
  double number;
  int32_t truth;
  atl_string text;
  printf("%s=", path);
  if (atl_hit_int64(hit, atl_text(path), &integer, NULL, 0) == ATL_OK) {
    printf("%" PRId64 "\n", integer);
  } else if (atl_hit_double(hit, atl_text(path), &number, NULL, 0) == ATL_OK) {
    printf("%.17g\n", number);
  } else if (atl_hit_bool(hit, atl_text(path), &truth, NULL, 0) == ATL_OK) {
    puts(truth ? "true" : "false");
  } else if (atl_hit_string(hit, atl_text(path), &text, message, sizeof message) == ATL_OK) {
    fwrite(text.data, 1, text.size, stdout); /* it may hold NUL */
    putchar('\n');
  } else {
    printf("(%s)\n", message);
  }
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: lookup CACHE DEVICE.json OPERATION KEY [exact|kind|any [PATH...]]\n");
    return 2;
  }
  char message[512];
  int code = 1;
  atl_cache *cache = NULL;
  atl_device *device = NULL;
  const atl_hit *hit = NULL;

  size_t size = 0;
  char *json = read_file(argv[2], &size);
  if (!json) {
    fprintf(stderr, "lookup: cannot read %s\n", argv[2]);
    return 1;
  }
  atl_string fingerprint = {json, size};

  /* once, when the engine starts; any number of threads may then use both */
  atl_open_options options = {.struct_size = sizeof options, .path = atl_text(argv[1])};
  if (atl_device_from_json(fingerprint, &device, message, sizeof message) != ATL_OK ||
      atl_cache_open(&options, &cache, message, sizeof message) != ATL_OK) {
    fprintf(stderr, "lookup: %s\n", message);
    goto done;
  }
  if (message[0]) fprintf(stderr, "lookup: note: %s\n", message);

  /* for each call */
  atl_query query = {
      .struct_size = sizeof query,
      .match = (uint32_t)match_of(argc > 5 ? argv[5] : "exact"),
      .device = device,
      .operation = atl_text(argv[3]),
      .key = atl_text(argv[4]),
  };
  switch (atl_cache_lookup(cache, &query, &hit, message, sizeof message)) {
    case ATL_OK: {
      atl_hit_info info = {.struct_size = sizeof info};
      atl_hit_describe(hit, &info, NULL, 0);
      puts(info.config.data);
      if (info.flags) fprintf(stderr, "lookup: take it with care: %s\n", info.notes.data);
      for (int i = 6; i < argc; i++) print_value(hit, argv[i]);
      code = 0;
      break;
    }
    case ATL_MISS:
      atl_cache_explain(cache, &query, message, sizeof message);
      fprintf(stderr, "lookup: the kernel's default is used: %s\n", message);
      code = 3;
      break;
    default:
      fprintf(stderr, "lookup: %s\n", message);
  }

done:
  atl_hit_release(hit);
  atl_cache_close(cache);
  atl_device_free(device);
  free(json);
  return code;
}
