/* autotune_lowered.h: finds the best config of a call, from C and C++. The guide is docs/capi.md.
 *
 * Errors. A function that can fail returns an atl_status. Its last two parameters are the caller's buffer for one line of
 * text that says what failed and what to do. The text ends in NUL, is cut if the buffer is too short, and is empty if
 * there is nothing to report. Pass `NULL, 0` to get no text. A required pointer that is NULL gives ATL_BAD_ARGUMENT. No
 * function ends the process or lets a Rust panic out.
 *
 * Ownership. The caller owns what atl_..._open, _from_..., _lookup and _retain return, and ends it with the matching
 * _close, _free or _release. These three do nothing with NULL. A hit outlives the cache and any refresh. A returned
 * text belongs to the handle that it came from. It ends in a NUL that its size does not count.
 *
 * Threads. Any number of threads may use a handle at once. Close or free it once, after its last use in any thread. The
 * library starts no threads and reads no environment variables. A hit for a call that was looked up before allocates
 * nothing.
 *
 * Versions. The caller sets `struct_size` of a struct to its sizeof and zeroes the members that it does not use. Later
 * versions add members at the end; a library accepts structs of older and newer headers. Members called `reserved` must
 * be 0. */
#ifndef AUTOTUNE_LOWERED_H
#define AUTOTUNE_LOWERED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI version of this header. The library's, from atl_abi_version(), must not be smaller. */
#define ATL_ABI_VERSION 1u

typedef int32_t atl_status;
enum {
  ATL_OK = 0,
  ATL_MISS = 1,          /* no config applies: use the kernel's default; atl_cache_explain says why */
  ATL_BAD_ARGUMENT = 2,  /* NULL, a wrong size, a reserved member, text that is not UTF-8 */
  ATL_IO = 3,            /* a file cannot be opened or read */
  ATL_DAMAGED = 4,       /* a file's content is not what was written */
  ATL_OTHER_VERSION = 5, /* a snapshot written by a later version */
  ATL_NOT_PINNED = 6,    /* the snapshot is not the pinned one */
  ATL_NO_MEMBER = 7,     /* the config has no member at this path */
  ATL_WRONG_TYPE = 8,    /* the member has another type */
  ATL_INTERNAL = 9       /* a bug in the library */
};

/* UTF-8 text of `size` bytes, which may contain NUL. Text from the caller need not end in NUL. */
typedef struct atl_string {
  const char *data;
  size_t size;
} atl_string;

/* Converts text that ends in NUL to an atl_string. */
static inline atl_string atl_text(const char *text) {
  atl_string string;
  string.data = text;
  string.size = text ? strlen(text) : 0;
  return string;
}

typedef struct atl_cache atl_cache;   /* an open cache */
typedef struct atl_device atl_device; /* the device that a look-up is for; never changes */
typedef struct atl_hit atl_hit;       /* a config that was found; never changes */

/* The library's version, such as "0.1.0"; its ABI; a status in one word, such as "miss". The texts live forever. */
const char *atl_version(void);
uint32_t atl_abi_version(void);
const char *atl_status_name(atl_status status);

/* ---- Caches ---- */

enum {
  /* Read the snapshot into memory instead of mapping it. Replace a mapped snapshot only by a rename: a copy over it
   * ends the process with SIGBUS. On network file systems it is always read. */
  ATL_OPEN_READ = 1u,
  /* The look-ups are for runs with cold hardware caches. Hits measured with warm caches are then stale, and those
   * measured with cold caches are not. */
  ATL_OPEN_FOR_COLD_CACHES = 2u,
  /* Look-ups also find what replayed samples decided (`--timer replay:`), which this device may never have run. */
  ATL_OPEN_REPLAYED = 4u
};

typedef struct atl_open_options {
  size_t struct_size;
  atl_string path;  /* a cache folder, or a snapshot; no URL. A folder without one has the shipped configs alone */
  atl_string shipped; /* a folder of configs, used before the library's own; {NULL, 0}: none */
  atl_string pin;   /* the digest that the snapshot must have, 64 hexadecimal digits; {NULL, 0}: any */
  uint32_t flags;   /* ATL_OPEN_... */
  uint32_t reserved;
} atl_open_options;

/* Opens a cache. It takes no lock and writes nothing. With ATL_OK the text notes what was left out; usually empty. */
atl_status atl_cache_open(const atl_open_options *options, atl_cache **cache, char *message, size_t message_size);
void atl_cache_close(atl_cache *cache);

/* Loads the snapshot published since, if any. *changed (may be NULL) is 1 if there is a new one, else 0. Look-ups in
 * other threads continue meanwhile. An error leaves the cache unchanged. */
atl_status atl_cache_refresh(atl_cache *cache, int32_t *changed, char *message, size_t message_size);

typedef struct atl_cache_info {
  size_t struct_size;
  uint64_t entries;   /* of the snapshot */
  uint32_t published; /* 1 if there is a snapshot */
  uint32_t mapped;    /* 1 if it is mapped */
  char digest[72];    /* digest of its content, 64 hexadecimal digits; empty if there is none */
} atl_cache_info;

atl_status atl_cache_describe(const atl_cache *cache, atl_cache_info *info, char *message, size_t message_size);

/* ---- Devices ---- */

/* From the output of `autotune-lowered device --format json`, or one fingerprint of it. The first device is taken. */
atl_status atl_device_from_json(atl_string json, atl_device **device, char *message, size_t message_size);

typedef struct atl_field {
  atl_string name, value;
} atl_field;

typedef struct atl_device_parts {
  size_t struct_size;
  atl_string platform;       /* PJRT's name in lower case: cpu, cuda, rocm, tpu */
  atl_string kind;           /* PJRT's device kind: NVIDIA H200 */
  const atl_field *hardware; /* CPU: cpu_model, cores. GPU: compute_capability, sm_count, mig. NULL if there is none */
  size_t hardware_count;
  atl_string environment; /* the software as that command prints it, in JSON; {NULL, 0}: unknown, so hits are stale */
} atl_device_parts;

atl_status atl_device_from_parts(const atl_device_parts *parts, atl_device **device, char *message, size_t message_size);
void atl_device_free(atl_device *device);

/* ---- Look-ups ---- */

enum { ATL_BY_KEY = 0 }; /* atl_query.by */
/* atl_query.match: which devices' results count */
enum { ATL_MATCH_EXACT = 0, ATL_MATCH_KIND = 1, ATL_MATCH_ANY = 2 };
/* atl_query.direction; any: prefers forward-vjp to forward */
enum { ATL_ANY_DIRECTION = 0, ATL_FORWARD = 1, ATL_FORWARD_VJP = 2 };

typedef struct atl_query {
  size_t struct_size;
  uint32_t by; /* ATL_BY_KEY; look-ups by shapes will have another number, and members after `key` */
  uint32_t match;
  uint32_t direction;
  uint32_t reserved;
  const atl_device *device;
  atl_string operation; /* flash_attention@v2 */
  atl_string key;       /* the call key */
} atl_query;

/* Returns ATL_OK with a hit, ATL_MISS with NULL, or an error with NULL. */
atl_status atl_cache_lookup(atl_cache *cache, const atl_query *query, const atl_hit **hit, char *message,
                            size_t message_size);

/* Says in one line why a look-up misses (ATL_MISS), or what it finds (ATL_OK). This may read every key of the cache. */
atl_status atl_cache_explain(atl_cache *cache, const atl_query *query, char *message, size_t message_size);

/* ---- Hits ---- */

/* Adds an owner of the hit, and returns the hit. */
const atl_hit *atl_hit_retain(const atl_hit *hit);
void atl_hit_release(const atl_hit *hit);

/* A value of the config. A path is the name of a parameter, or names joined with points, where a number is an index:
 * bwd_params.block_q, tile.0. A name that contains points has priority. An error leaves *value unchanged. An integer
 * can be read as a double, but not the reverse; an integer that does not fit in int64_t has the wrong type. */
atl_status atl_hit_int64(const atl_hit *hit, atl_string path, int64_t *value, char *message, size_t message_size);
atl_status atl_hit_double(const atl_hit *hit, atl_string path, double *value, char *message, size_t message_size);
atl_status atl_hit_bool(const atl_hit *hit, atl_string path, int32_t *value, char *message, size_t message_size);
atl_status atl_hit_string(const atl_hit *hit, atl_string path, atl_string *value, char *message, size_t message_size);

enum { /* atl_hit_info.flags: reasons for caution */
  ATL_STALE_ENVIRONMENT = 1u, /* this device, measured with another driver, plugin, XLA_FLAGS or cache state */
  ATL_OTHER_DEVICE = 2u,      /* another device's result, which `match` accepts */
  ATL_OTHER_BATCH = 4u,       /* measured under another vmap, or without one */
  ATL_OTHER_CAUTION = 8u      /* a reason unknown to this header; see `notes` */
};
enum { ATL_TIER_SNAPSHOT = 1, ATL_TIER_SHIPPED = 2 }; /* atl_hit_info.tier */

typedef struct atl_hit_info {
  size_t struct_size;
  uint32_t flags;
  uint32_t tier;
  uint32_t direction; /* in which it was tuned: ATL_FORWARD or ATL_FORWARD_VJP */
  uint32_t reserved;
  atl_string config; /* the config as JSON, with sorted keys and no blanks */
  atl_string entry;  /* the whole stored entry as JSON: config, provenance; docs/json.md */
  atl_string device; /* the device on which it was tuned, as JSON */
  atl_string notes;  /* what the flags mean here, in words; empty without flags */
} atl_hit_info;

/* Fills the members that both sides know, and leaves the caller's struct_size as it is. */
atl_status atl_hit_describe(const atl_hit *hit, atl_hit_info *info, char *message, size_t message_size);

#ifdef __cplusplus
}
#endif

#endif
