/* autotune_lowered.h: finds the best config of a call, from C and C++. The guide is docs/capi.md.
 *
 * Errors. A function that can fail returns an atl_status. Its last two parameters are the caller's buffer for one line of
 * text that says what failed and what to do. The text ends in NUL, is cut where the buffer is short, and is empty where
 * there is nothing to say. `NULL, 0` asks for no text. A required pointer that is NULL is ATL_BAD_ARGUMENT. No function
 * ends the process or lets a Rust panic out.
 *
 * Ownership. What atl_..._open, _from_..., _lookup and _retain give is the caller's, until the matching _close, _free or
 * _release. These three take NULL and then do nothing. A hit outlives the cache and any refresh. Text that a function gives
 * belongs to the handle that it was asked of, and is ended by a NUL which its size does not count.
 *
 * Threads. Any number of threads may use a handle at once. Close or free it once, when no thread uses it any more. The
 * library starts no threads and reads no environment variables. A hit of a call that was looked up before takes no memory.
 *
 * Versions. The caller sets `struct_size` of a struct to its sizeof and zeroes what it does not set. Later versions add
 * members at the end; a library takes structs of older and newer headers. Members called `reserved` must be 0. */
#ifndef AUTOTUNE_LOWERED_H
#define AUTOTUNE_LOWERED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. atl_abi_version() tells the library's, which must not be smaller. */
#define ATL_ABI_VERSION 1u

typedef int32_t atl_status;
enum {
  ATL_OK = 0,
  ATL_MISS = 1,          /* no config applies: use the kernel's default; atl_cache_explain says why */
  ATL_BAD_ARGUMENT = 2,  /* NULL, a wrong size, a reserved member, text that is not UTF-8 */
  ATL_IO = 3,            /* a file cannot be opened or read */
  ATL_DAMAGED = 4,       /* a file is not what was written */
  ATL_OTHER_VERSION = 5, /* a snapshot of a later program */
  ATL_NOT_PINNED = 6,    /* the snapshot is not the pinned one */
  ATL_NO_MEMBER = 7,     /* the config has nothing at this path */
  ATL_WRONG_TYPE = 8,    /* what it has there is of another type */
  ATL_INTERNAL = 9       /* a bug in the library */
};

/* UTF-8 text of `size` bytes, which may hold NUL. What the caller gives need not end in NUL. */
typedef struct atl_string {
  const char *data;
  size_t size;
} atl_string;

/* Text that ends in NUL as an atl_string. */
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
  /* Read the snapshot into memory instead of mapping it. A mapped snapshot may only be replaced by a rename: a copy over it
   * ends the process with SIGBUS. On network file systems it is read in any case. */
  ATL_OPEN_READ = 1u,
  /* The look-ups are for runs that find the hardware's caches cold. A hit measured with warm caches is then stale, and one
   * measured with cold caches is not. */
  ATL_OPEN_FOR_COLD_CACHES = 2u
};

typedef struct atl_open_options {
  size_t struct_size;
  atl_string path;  /* a cache folder, or a snapshot; no URL. A folder in which nothing was published yet has the seeds */
  atl_string seeds; /* a folder of seed files, asked before the shipped ones; {NULL, 0}: none */
  atl_string pin;   /* the digest that the snapshot must have, 64 hexadecimal digits; {NULL, 0}: any */
  uint32_t flags;   /* ATL_OPEN_... */
  uint32_t reserved;
} atl_open_options;

/* Opens a cache. It takes no lock and writes nothing. With ATL_OK the text is a note of what was left out, mostly empty. */
atl_status atl_cache_open(const atl_open_options *options, atl_cache **cache, char *message, size_t message_size);
void atl_cache_close(atl_cache *cache);

/* Takes what was published since. *changed (may be NULL) is 1 where that is something new, else 0. Look-ups of other threads
 * go on meanwhile. After an error the cache is what it was. */
atl_status atl_cache_refresh(atl_cache *cache, int32_t *changed, char *message, size_t message_size);

typedef struct atl_cache_info {
  size_t struct_size;
  uint64_t entries;   /* of the snapshot */
  uint32_t published; /* 1 where there is a snapshot */
  uint32_t mapped;    /* 1 where it is mapped */
  char digest[72];    /* what names its content, 64 hexadecimal digits; empty where there is none */
} atl_cache_info;

atl_status atl_cache_describe(const atl_cache *cache, atl_cache_info *info, char *message, size_t message_size);

/* ---- Devices ---- */

/* From a fingerprint as `autotune-lowered device --format json` prints it. Of all that it prints, the first device. */
atl_status atl_device_from_json(atl_string json, atl_device **device, char *message, size_t message_size);

typedef struct atl_field {
  atl_string name, value;
} atl_field;

typedef struct atl_device_parts {
  size_t struct_size;
  atl_string platform;       /* in lower case as PJRT has it: cpu, cuda, rocm, tpu */
  atl_string kind;           /* PJRT's device kind: NVIDIA H200 */
  const atl_field *hardware; /* CPU: cpu_model, cores. GPU: compute_capability, sm_count, mig. NULL where there is none */
  size_t hardware_count;
  atl_string environment; /* the software as that command prints it, in JSON; {NULL, 0}: not known, so that hits are stale */
} atl_device_parts;

atl_status atl_device_from_parts(const atl_device_parts *parts, atl_device **device, char *message, size_t message_size);
void atl_device_free(atl_device *device);

/* ---- Look-ups ---- */

enum { ATL_BY_KEY = 0 }; /* atl_query.by */
/* atl_query.match: whose results may stand for the device's */
enum { ATL_MATCH_EXACT = 0, ATL_MATCH_KIND = 1, ATL_MATCH_ANY = 2 };
/* atl_query.direction; any: forward-vjp before forward */
enum { ATL_ANY_DIRECTION = 0, ATL_FORWARD = 1, ATL_FORWARD_VJP = 2 };

typedef struct atl_query {
  size_t struct_size;
  uint32_t by; /* ATL_BY_KEY; look-ups by shapes will have another number and members behind `key` */
  uint32_t match;
  uint32_t direction;
  uint32_t reserved;
  const atl_device *device;
  atl_string operation; /* flash_attention@v2 */
  atl_string key;       /* the call key */
} atl_query;

/* ATL_OK and a hit, ATL_MISS and NULL, or an error and NULL. */
atl_status atl_cache_lookup(atl_cache *cache, const atl_query *query, const atl_hit **hit, char *message,
                            size_t message_size);

/* Says in one line why a look-up misses (ATL_MISS), or what it finds (ATL_OK). This may read every key of the cache. */
atl_status atl_cache_explain(atl_cache *cache, const atl_query *query, char *message, size_t message_size);

/* ---- Hits ---- */

/* One more owner of the hit, which it returns. */
const atl_hit *atl_hit_retain(const atl_hit *hit);
void atl_hit_release(const atl_hit *hit);

/* A value of the config. A path is the name of a parameter, or names joined with points, where numbers count items:
 * bwd_params.block_q, tile.0. A name that has points itself goes first. On errors *value stays what it was. A double may be
 * written as an integer, but not the reverse; an integer beyond 64 bits with a sign is of the wrong type. */
atl_status atl_hit_int64(const atl_hit *hit, atl_string path, int64_t *value, char *message, size_t message_size);
atl_status atl_hit_double(const atl_hit *hit, atl_string path, double *value, char *message, size_t message_size);
atl_status atl_hit_bool(const atl_hit *hit, atl_string path, int32_t *value, char *message, size_t message_size);
atl_status atl_hit_string(const atl_hit *hit, atl_string path, atl_string *value, char *message, size_t message_size);

enum { /* atl_hit_info.flags: why to take a hit with care */
  ATL_STALE_ENVIRONMENT = 1u, /* this device, measured under another driver, plugin, XLA_FLAGS or state of its caches */
  ATL_OTHER_DEVICE = 2u,      /* another device's result, which `match` let pass */
  ATL_OTHER_BATCH = 4u,       /* measured under another vmap, or under none */
  ATL_OTHER_CAUTION = 8u      /* something that this header does not know; see `notes` */
};
enum { ATL_TIER_SNAPSHOT = 1, ATL_TIER_SEED = 2 }; /* atl_hit_info.tier */

typedef struct atl_hit_info {
  size_t struct_size;
  uint32_t flags;
  uint32_t tier;
  uint32_t direction; /* that it was tuned in: ATL_FORWARD or ATL_FORWARD_VJP */
  uint32_t reserved;
  atl_string config; /* the config as JSON, keys sorted, without blanks */
  atl_string entry;  /* all that is stored as JSON: config, provenance; docs/json.md */
  atl_string device; /* the device that it was tuned on, as JSON */
  atl_string notes;  /* what the flags mean here, in words; empty without any */
} atl_hit_info;

/* Fills the members that both sides know; the caller's struct_size stays. */
atl_status atl_hit_describe(const atl_hit *hit, atl_hit_info *info, char *message, size_t message_size);

#ifdef __cplusplus
}
#endif

#endif
