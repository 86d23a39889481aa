/* Mistakes of a careless caller: NULL everywhere, wrong sizes, invalid text, short buffers.
 *
 *   attack CACHE
 *
 * capi/tests/run makes CACHE from capi/tests/odd.jsonl. Exit code 0: every result is the documented one. */
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune_lowered.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type);
#define MEMBER(type, member, at) _Static_assert(offsetof(type, member) == (at), #type "." #member);
#include "layout.h"

static int failures;
static char message[512];
#define AT message, sizeof message
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      fprintf(stderr, "attack.c:%d: %s (`%s`)\n", __LINE__, #condition, message); \
      failures++;                                                                 \
    }                                                                             \
  } while (0)
/* Expects a status, and a line of text that names the mistake. */
#define SAYS(status, part, call)                   \
  do {                                             \
    memset(message, 'x', sizeof message);          \
    CHECK((call) == (status));                     \
    CHECK(strstr(message, (part)) != NULL);        \
    CHECK(strchr(message, '\n') == NULL);          \
  } while (0)

static atl_open_options options_of(const char *path) {
  atl_open_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.path = atl_text(path);
  return options;
}

static atl_query query_of(const atl_device *device, const char *key) {
  atl_query query;
  memset(&query, 0, sizeof query);
  query.struct_size = sizeof query;
  query.device = device;
  query.operation = atl_text("odd@v1");
  query.key = atl_text(key);
  query.match = ATL_MATCH_KIND;
  return query;
}

static void null_in_every_place(const char *path, atl_cache *cache, const atl_device *device, const atl_hit *hit) {
  atl_open_options options = options_of(path);
  atl_query query = query_of(device, "plain");
  atl_cache *opened = cache;
  atl_device *made = NULL;
  const atl_hit *found = hit;
  atl_string text = {NULL, 0};
  int64_t integer = 7;
  double number = 7;
  int32_t truth = 7;
  SAYS(ATL_BAD_ARGUMENT, "`atl_open_options` is NULL", atl_cache_open(NULL, &opened, AT));
  CHECK(opened == NULL);
  SAYS(ATL_BAD_ARGUMENT, "`cache` is NULL", atl_cache_open(&options, NULL, AT));
  options.path.data = NULL;
  options.path.size = 0;
  SAYS(ATL_BAD_ARGUMENT, "`path` is NULL", atl_cache_open(&options, &opened, AT));
  SAYS(ATL_BAD_ARGUMENT, "`cache` is NULL", atl_cache_refresh(NULL, &truth, AT));
  CHECK(atl_cache_refresh(cache, NULL, AT) == ATL_OK);
  SAYS(ATL_BAD_ARGUMENT, "`cache` is NULL", atl_cache_describe(NULL, &(atl_cache_info){.struct_size = 96}, AT));
  SAYS(ATL_BAD_ARGUMENT, "`atl_cache_info` is NULL", atl_cache_describe(cache, NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`json` is NULL", atl_device_from_json(text, &made, AT));
  SAYS(ATL_BAD_ARGUMENT, "`device` is NULL", atl_device_from_json(atl_text("{}"), NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`atl_device_parts` is NULL", atl_device_from_parts(NULL, &made, AT));
  atl_device_parts parts = {.struct_size = sizeof parts, .platform = atl_text("cpu"), .kind = atl_text("cpu")};
  SAYS(ATL_BAD_ARGUMENT, "`device` is NULL", atl_device_from_parts(&parts, NULL, AT));
  parts.hardware_count = 1;
  SAYS(ATL_BAD_ARGUMENT, "`hardware` is NULL", atl_device_from_parts(&parts, &made, AT));
  parts.hardware = &(atl_field){.name = atl_text("cores")};
  SAYS(ATL_BAD_ARGUMENT, "`hardware's value` is NULL", atl_device_from_parts(&parts, &made, AT));
  parts.hardware_count = (size_t)-1;
  SAYS(ATL_BAD_ARGUMENT, "at most 1024", atl_device_from_parts(&parts, &made, AT));
  parts.hardware_count = 0;
  parts.kind.data = NULL;
  SAYS(ATL_BAD_ARGUMENT, "`kind` is NULL", atl_device_from_parts(&parts, &made, AT));
  CHECK(made == NULL);
  SAYS(ATL_BAD_ARGUMENT, "`cache` is NULL", atl_cache_lookup(NULL, &query, &found, AT));
  CHECK(found == NULL);
  SAYS(ATL_BAD_ARGUMENT, "`atl_query` is NULL", atl_cache_lookup(cache, NULL, &found, AT));
  SAYS(ATL_BAD_ARGUMENT, "`hit` is NULL", atl_cache_lookup(cache, &query, NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`cache` is NULL", atl_cache_explain(NULL, &query, AT));
  SAYS(ATL_BAD_ARGUMENT, "`atl_query` is NULL", atl_cache_explain(cache, NULL, AT));
  query.device = NULL;
  SAYS(ATL_BAD_ARGUMENT, "`device` is NULL", atl_cache_lookup(cache, &query, &found, AT));
  query.device = device;
  query.key.data = NULL;
  SAYS(ATL_BAD_ARGUMENT, "`key` is NULL", atl_cache_lookup(cache, &query, &found, AT));
  query.operation.data = NULL;
  SAYS(ATL_BAD_ARGUMENT, "`operation` is NULL", atl_cache_lookup(cache, &query, &found, AT));
  SAYS(ATL_BAD_ARGUMENT, "`hit` is NULL", atl_hit_int64(NULL, atl_text("a"), &integer, AT));
  SAYS(ATL_BAD_ARGUMENT, "`hit` is NULL", atl_hit_double(NULL, atl_text("a"), &number, AT));
  SAYS(ATL_BAD_ARGUMENT, "`hit` is NULL", atl_hit_bool(NULL, atl_text("a"), &truth, AT));
  SAYS(ATL_BAD_ARGUMENT, "`hit` is NULL", atl_hit_string(NULL, atl_text("a"), &text, AT));
  SAYS(ATL_BAD_ARGUMENT, "`hit` is NULL", atl_hit_describe(NULL, &(atl_hit_info){.struct_size = 88}, AT));
  SAYS(ATL_BAD_ARGUMENT, "`path` is NULL", atl_hit_int64(hit, text, &integer, AT));
  SAYS(ATL_BAD_ARGUMENT, "`value` is NULL", atl_hit_int64(hit, atl_text("block"), NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`value` is NULL", atl_hit_double(hit, atl_text("block"), NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`value` is NULL", atl_hit_bool(hit, atl_text("on"), NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`value` is NULL", atl_hit_string(hit, atl_text("name"), NULL, AT));
  SAYS(ATL_BAD_ARGUMENT, "`atl_hit_info` is NULL", atl_hit_describe(hit, NULL, AT));
  CHECK(integer == 7 && number == 7 && truth == 7 && text.data == NULL);
  atl_cache_close(NULL);
  atl_device_free(NULL);
  atl_hit_release(NULL);
  CHECK(atl_hit_retain(NULL) == NULL);
}

static void sizes_of_other_versions(const char *path, atl_cache *cache, const atl_device *device, const atl_hit *hit) {
  const size_t wrong[] = {0, 1, 8, sizeof(atl_query) - 1, 4097, (size_t)-1};
  atl_query query = query_of(device, "plain");
  const atl_hit *found = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    query.struct_size = wrong[i];
    SAYS(ATL_BAD_ARGUMENT, "sizeof(atl_query)", atl_cache_lookup(cache, &query, &found, AT));
  }
  atl_open_options options = options_of(path);
  options.struct_size = 8;
  atl_cache *opened = NULL;
  SAYS(ATL_BAD_ARGUMENT, "sizeof(atl_open_options)", atl_cache_open(&options, &opened, AT));

  /* a newer header's struct: its additional members must be zero on input, and become zero on output */
  struct {
    atl_query query;
    uint64_t more;
  } newer;
  newer.query = query_of(device, "plain");
  newer.query.struct_size = sizeof newer;
  newer.more = 0;
  CHECK(atl_cache_lookup(cache, &newer.query, &found, AT) == ATL_OK);
  atl_hit_release(found);
  newer.more = 1;
  SAYS(ATL_BAD_ARGUMENT, "use a newer one", atl_cache_lookup(cache, &newer.query, &found, AT));
  struct {
    atl_hit_info info;
    uint64_t more;
  } out;
  memset(&out, 0x55, sizeof out);
  out.info.struct_size = sizeof out;
  CHECK(atl_hit_describe(hit, &out.info, AT) == ATL_OK);
  CHECK(out.info.struct_size == sizeof out && out.more == 0 && out.info.reserved == 0);
  out.info.struct_size = sizeof(atl_hit_info) - 1;
  SAYS(ATL_BAD_ARGUMENT, "sizeof(atl_hit_info)", atl_hit_describe(hit, &out.info, AT));

  query = query_of(device, "plain");
  query.reserved = 1;
  SAYS(ATL_BAD_ARGUMENT, "`reserved`", atl_cache_lookup(cache, &query, &found, AT));
  query = query_of(device, "plain");
  query.by = 1;
  SAYS(ATL_BAD_ARGUMENT, "`by`", atl_cache_lookup(cache, &query, &found, AT));
  query = query_of(device, "plain");
  query.match = 3;
  SAYS(ATL_BAD_ARGUMENT, "`match`", atl_cache_lookup(cache, &query, &found, AT));
  query = query_of(device, "plain");
  query.direction = 3;
  SAYS(ATL_BAD_ARGUMENT, "`direction`", atl_cache_lookup(cache, &query, &found, AT));
  options = options_of(path);
  options.flags = 8;
  SAYS(ATL_BAD_ARGUMENT, "`flags`", atl_cache_open(&options, &opened, AT));
  options = options_of(path);
  options.reserved = 2;
  SAYS(ATL_BAD_ARGUMENT, "`reserved`", atl_cache_open(&options, &opened, AT));
  alignas(16) char bytes[sizeof(atl_query) + 8];
  memcpy(bytes + 1, &query, sizeof query);
  SAYS(ATL_BAD_ARGUMENT, "aligned", atl_cache_lookup(cache, (const atl_query *)(const void *)(bytes + 1), &found, AT));
  CHECK(found == NULL && opened == NULL);
}

static void text_that_is_none(atl_cache *cache, const atl_device *device, const atl_hit *hit) {
  const atl_hit *found = NULL;
  int64_t integer = 0;
  atl_query query = query_of(device, "\xff\xfe");
  SAYS(ATL_BAD_ARGUMENT, "`key` is not UTF-8", atl_cache_lookup(cache, &query, &found, AT));
  SAYS(ATL_BAD_ARGUMENT, "`key` is not UTF-8", atl_cache_explain(cache, &query, AT));
  query = query_of(device, "plain");
  query.operation = atl_text("odd@v1\xc3");
  SAYS(ATL_BAD_ARGUMENT, "`operation` is not UTF-8", atl_cache_lookup(cache, &query, &found, AT));
  SAYS(ATL_BAD_ARGUMENT, "`path` is not UTF-8", atl_hit_int64(hit, atl_text("\xff"), &integer, AT));
  query = query_of(device, "plain");
  query.key.size = (size_t)-1;
  SAYS(ATL_BAD_ARGUMENT, "`key` has a size", atl_cache_lookup(cache, &query, &found, AT));
  /* NUL is a character like any other: this is another key */
  query = query_of(device, "plain");
  query.key.data = "plain\0";
  query.key.size = 6;
  CHECK(atl_cache_lookup(cache, &query, &found, AT) == ATL_MISS);
  /* a key need not end in NUL, and an empty one misses */
  query.key.data = (const char[]){'p', 'l', 'a', 'i', 'n'};
  query.key.size = 5;
  CHECK(atl_cache_lookup(cache, &query, &found, AT) == ATL_OK);
  atl_hit_release(found);
  query.key.size = 0;
  CHECK(atl_cache_lookup(cache, &query, &found, AT) == ATL_MISS && found == NULL);
  /* a reason is one line without control characters */
  query = query_of(device, "plain");
  query.operation = (atl_string){"o\x1b[31m\n\0d@v1", 12};
  SAYS(ATL_MISS, "`o\\u{1b}[31m \\u{0}d@v1`", atl_cache_explain(cache, &query, AT));

  atl_open_options options = options_of("no\0thing");
  options.path.size = 8;
  atl_cache *opened = NULL;
  SAYS(ATL_IO, "`no\\u{0}thing/best-v1.snapshot`", atl_cache_open(&options, &opened, AT));
  options.path = atl_text("");
  SAYS(ATL_BAD_ARGUMENT, "`path` is empty", atl_cache_open(&options, &opened, AT));
  atl_device *made = NULL;
  SAYS(ATL_BAD_ARGUMENT, "not a device fingerprint", atl_device_from_json(atl_text("{\"identity\":7}"), &made, AT));
  SAYS(ATL_BAD_ARGUMENT, "not a device fingerprint", atl_device_from_json(atl_text("{"), &made, AT));
  SAYS(ATL_BAD_ARGUMENT, "`json` is not UTF-8", atl_device_from_json(atl_text("\"\xff\""), &made, AT));
  char *deep = malloc(100001);
  memset(deep, '[', 100000);
  deep[100000] = 0;
  SAYS(ATL_BAD_ARGUMENT, "recursion limit", atl_device_from_json(atl_text(deep), &made, AT));
  free(deep);
  CHECK(made == NULL);
}

static void short_buffers(atl_cache *cache, const atl_device *device) {
  atl_query query = query_of(device, "plain");
  query.operation = atl_text("gr\xc3\xb6\xc3\x9f\xc3\xa4@v1");
  char line[160];
  CHECK(atl_cache_explain(cache, &query, line, sizeof line) == ATL_MISS);
  const size_t whole = strlen(line);
  for (size_t size = 0; size <= sizeof line; size++) {
    char *cut = malloc(size + 1);
    memset(cut, 'x', size + 1);
    CHECK(atl_cache_explain(cache, &query, cut, size) == ATL_MISS);
    CHECK(cut[size] == 'x');
    if (size > 0) {
      const size_t length = strlen(cut);
      CHECK(length < size && strncmp(cut, line, length) == 0);
      CHECK(length + 2 >= size || length == whole);
      CHECK(length == 0 || (cut[length - 1] & 0xc0) != 0xc0); /* not cut within a character */
    }
    free(cut);
  }
}

static void every_type(const atl_hit *hit) {
  int64_t integer = 7;
  double number = 7;
  int32_t truth = 7;
  atl_string text = {NULL, 0};
#define PATH(path) hit, atl_text(path)
  CHECK(atl_hit_int64(PATH("block"), &integer, AT) == ATL_OK && integer == 64 && message[0] == 0);
  CHECK(atl_hit_double(PATH("block"), &number, AT) == ATL_OK && number == 64);
  CHECK(atl_hit_int64(PATH("least"), &integer, AT) == ATL_OK && integer == INT64_MIN);
  SAYS(ATL_WRONG_TYPE, "beyond 64 bits", atl_hit_int64(PATH("beyond"), &integer, AT));
  CHECK(atl_hit_double(PATH("beyond"), &number, AT) == ATL_OK && number == ldexp(1, 63));
  CHECK(atl_hit_double(PATH("ratio"), &number, AT) == ATL_OK && number == 0.1);
  SAYS(ATL_WRONG_TYPE, "`ratio` of the config is a number that is not an integer", atl_hit_int64(PATH("ratio"), &integer, AT));
  SAYS(ATL_WRONG_TYPE, "a number that is not an integer", atl_hit_int64(PATH("whole"), &integer, AT)); /* 1.0 */
  CHECK(atl_hit_bool(PATH("on"), &truth, AT) == ATL_OK && truth == 1);
  CHECK(atl_hit_bool(PATH("off"), &truth, AT) == ATL_OK && truth == 0);
  SAYS(ATL_WRONG_TYPE, "an integer", atl_hit_bool(PATH("block"), &truth, AT));
  SAYS(ATL_WRONG_TYPE, "is null", atl_hit_bool(PATH("none"), &truth, AT));
  SAYS(ATL_WRONG_TYPE, "a text", atl_hit_double(PATH("name"), &number, AT));
  SAYS(ATL_WRONG_TYPE, "an object", atl_hit_string(PATH("nested"), &text, AT));
  SAYS(ATL_WRONG_TYPE, "a list", atl_hit_int64(PATH("tile"), &integer, AT));
  SAYS(ATL_NO_MEMBER, "the config has no `blok`: it is {", atl_hit_int64(PATH("blok"), &integer, AT));
  CHECK(atl_hit_int64(PATH(""), &integer, AT) == ATL_NO_MEMBER);
  /* text with escapes, NUL and multi-byte characters */
  CHECK(atl_hit_string(PATH("name"), &text, AT) == ATL_OK && text.size == 12);
  CHECK(text.data && memcmp(text.data, "a\"\\\n\0\xc3\x9f\xf0\x9f\x98\x80z", 12) == 0 && text.data[12] == 0);
  CHECK(atl_hit_string(PATH("empty"), &text, AT) == ATL_OK && text.size == 0 && text.data && text.data[0] == 0);
  /* paths */
  CHECK(atl_hit_int64(PATH("nested.block"), &integer, AT) == ATL_OK && integer == 1);
  CHECK(atl_hit_int64(PATH("nested.deep.block"), &integer, AT) == ATL_OK && integer == 2);
  CHECK(atl_hit_int64(PATH("with.points"), &integer, AT) == ATL_OK && integer == 3);
  CHECK(atl_hit_int64(PATH("with.other"), &integer, AT) == ATL_OK && integer == 5);
  CHECK(atl_hit_int64(PATH("tile.1"), &integer, AT) == ATL_OK && integer == 16);
  CHECK(atl_hit_string(PATH("tile.2.kind"), &text, AT) == ATL_OK && strcmp(text.data, "t") == 0);
  CHECK(atl_hit_int64(PATH("tile.3"), &integer, AT) == ATL_NO_MEMBER);
  CHECK(atl_hit_int64(PATH("tile.-1"), &integer, AT) == ATL_NO_MEMBER);
  CHECK(atl_hit_int64(PATH("block.x"), &integer, AT) == ATL_NO_MEMBER);
  char *points = malloc(1 << 16);
  memset(points, '.', 1 << 16);
  CHECK(atl_hit_int64(hit, (atl_string){points, 1 << 16}, &integer, AT) == ATL_NO_MEMBER);
  free(points);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  atl_open_options options = options_of(argv[1]);
  atl_cache *cache = NULL;
  atl_device *device = NULL;
  const atl_hit *hit = NULL;
  const atl_field hardware[] = {{atl_text("cores"), atl_text("2")}};
  const atl_device_parts parts = {
      .struct_size = sizeof parts,
      .platform = atl_text("cpu"),
      .kind = atl_text("cpu"),
      .hardware = hardware,
      .hardware_count = 1,
      .environment = atl_text("{\"platform_version\":\"cpu\"}"),
  };
  CHECK(atl_abi_version() >= ATL_ABI_VERSION && strlen(atl_version()) >= 5);
  CHECK(strcmp(atl_status_name(ATL_WRONG_TYPE), "wrong-type") == 0);
  CHECK(strcmp(atl_status_name(-1), "unknown") == 0);
  CHECK(atl_device_from_parts(&parts, &device, AT) == ATL_OK && device);
  CHECK(atl_cache_open(&options, &cache, AT) == ATL_OK && cache);
  const atl_query query = query_of(device, "plain");
  CHECK(atl_cache_lookup(cache, &query, &hit, AT) == ATL_OK && hit);
  if (!hit) return 1;
  /* the device of a hand-written line has no hardware part, so it is another one, which the match mode accepts */
  atl_hit_info info = {.struct_size = sizeof info};
  CHECK(atl_hit_describe(hit, &info, AT) == ATL_OK && info.flags == ATL_OTHER_DEVICE);
  CHECK(strstr(info.notes.data, "other-device: other hardware: cpu:cpu") && strlen(info.notes.data) == info.notes.size);
  CHECK(info.tier == ATL_TIER_SNAPSHOT && info.direction == ATL_FORWARD && info.config.data[0] == '{');

  null_in_every_place(argv[1], cache, device, hit);
  sizes_of_other_versions(argv[1], cache, device, hit);
  text_that_is_none(cache, device, hit);
  short_buffers(cache, device);
  every_type(hit);

  atl_cache_close(cache); /* the hit remains valid */
  CHECK(atl_hit_retain(hit) == hit);
  atl_hit_release(hit);
  every_type(hit);
  atl_hit_release(hit);
  atl_device_free(device);
  if (failures == 0) puts("attack: every answer is the documented one");
  return failures != 0;
}
