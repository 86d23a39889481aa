/* SIMULATED: no device is profiled here. A PJRT plugin in front of a real CPU plugin (SIMULATED_PROFILER_BASE), whose
 * table it gives on with a profiler extension added and `execute` counted. The profile is made up: the n-th launch of a
 * session takes 1000·n ns, and 64 times SIMULATED_PROFILER_STEP ns (0), once less for each program that was run first.
 *
 * SIMULATED_PROFILER_MODE: good (the default), exact, two-calls, twice (each launch in two kernels of one name), drop,
 * drop-later, lossy (each launch in two kernels, of which the second launch lacks the second), counted (events are
 * reported as lost that no launch lacks), no-plane, subscriber, huge, small-extension, small-api, long-api, no-programs, shared-id, crash,
 * now (profiles are of the present, others of the year 2023), named (a launch takes as many nanoseconds as the name of its
 * module says: `takes_80000`; where XLA_FLAGS or the options of the compilation hold SIMULATED_PROFILER_FLAG, `takes_8…`
 * becomes `takes_4…`; where this library's file name holds `slower_8`, `takes_8…` takes half as long
 * again, and with `slower_86` `takes_6…` too; where it holds `unreadable_8`, `takes_8…` cannot be read, and where it holds
 * `endless_8`, its compilation does not end).
 * SIMULATED_PLATFORM: what the platform is called, in place of `cpu`.
 * SIMULATED_HELD: a folder. Processes of one library hold the device, and those of another one are refused meanwhile.
 * SIMULATED_FALLBACK: what the platform is called then, in place of a refusal.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LAUNCHES = 100000, PROFILER = 1, TABLE_WORDS = 512 };
/* places of functions in the table */
enum {
  PLATFORM_NAME = 17,
  COMPILE = 25,
  EXECUTABLE_DESTROY = 45,
  EXECUTABLE_NAME = 46,
  LOADED_DESTROY = 55,
  GET_EXECUTABLE = 56,
  EXECUTE = 60
};

struct base {
  size_t struct_size;
  int type;
  struct base *next;
};

struct create_args {
  size_t struct_size;
  const char *options;
  size_t options_size;
  void *profiler;
};

struct session_args {
  size_t struct_size;
  void *profiler;
};

struct collect_args {
  size_t struct_size;
  void *profiler;
  uint8_t *buffer;
  size_t size;
};

struct error_args {
  size_t struct_size;
  void *priv;
  const char *error;
  const char *message;
  size_t size;
};

struct code_args {
  size_t struct_size;
  void *priv;
  const char *error;
  int code;
};

/* the first words of `PJRT_LoadedExecutable_Execute_Args` */
struct execute_args {
  size_t struct_size;
  void *extension_start;
  void *executable;
};

struct text_args {
  size_t struct_size;
  void *extension_start;
  void *client;
  const char *text;
  size_t size;
};

struct program {
  size_t struct_size;
  void *extension_start;
  char *code;
  size_t code_size;
};

/* the first words of `PJRT_Client_Compile_Args` */
struct compile_args {
  size_t struct_size;
  void *extension_start;
  void *client;
  struct program *program;
  const char *options;
  size_t options_size;
};

/* of `PJRT_LoadedExecutable_GetExecutable`, and with fewer words of both `Destroy` */
struct executable_args {
  size_t struct_size;
  void *extension_start;
  void *of;
  void *executable;
};

typedef void *execute_fn(struct execute_args *);
typedef void *compile_fn(struct compile_args *);
typedef void *executable_fn(struct executable_args *);
typedef void *text_fn(struct text_args *);

static const char *mode = "good";
static execute_fn *real_execute;
static compile_fn *real_compile;
static executable_fn *get_executable, *executable_destroy, *real_loaded_destroy;
static text_fn *executable_name;
static uint64_t named_ns[MAX_LAUNCHES];
static int running, sessions;
static void *executables[MAX_LAUNCHES];
static int programs;
static int launched[MAX_LAUNCHES], launches;
static uint8_t *profile;
static size_t profile_size;

static int is(const char *name) { return strcmp(mode, name) == 0; }

static const char takes[] = "takes_";

/* whether the name of this library's file says this of programs whose number begins so */
static int is_said(const char *word, const char *number) {
  Dl_info own;
  const char *file = dladdr((void *)is_said, &own) ? strrchr(own.dli_fname, '/') : NULL;
  const char *at = file ? strstr(file, word) : NULL;
  for (at = at ? at + strlen(word) : ""; *at >= '0' && *at <= '9'; at++)
    if (*at == number[0]) return 1;
  return 0;
}

/* how long a program takes by its name; a millisecond if that does not say it */
static uint64_t ns_by_name(void *loaded) {
  struct executable_args get = {sizeof get, NULL, loaded, NULL};
  if (get_executable(&get) != NULL) return 1000000;
  struct text_args name = {sizeof name, NULL, get.executable, NULL, 0};
  uint64_t ns = 1000000;
  char text[256];
  if (executable_name(&name) == NULL && name.size < sizeof text) {
    memcpy(text, name.text, name.size);
    text[name.size] = 0;
    const char *at = strstr(text, takes);
    if (at) {
      const char *number = at + sizeof takes - 1;
      ns = strtoull(number, NULL, 10);
      if (is_said("slower_", number)) ns += ns / 2;
    }
  }
  struct executable_args destroy = {sizeof destroy - sizeof(void *), NULL, get.executable, NULL};
  executable_destroy(&destroy);
  return ns;
}

static void *compile(struct compile_args *args) {
  const char *flag = getenv("SIMULATED_PROFILER_FLAG"), *flags = getenv("XLA_FLAGS");
  int of_process = flag && flags && strstr(flags, flag);
  int is_asked = of_process || (flag && memmem(args->options, args->options_size, flag, strlen(flag)));
  struct program program = *args->program;
  program.code = malloc(program.code_size);
  memcpy(program.code, args->program->code, program.code_size);
  char *at = memmem(program.code, program.code_size, takes, sizeof takes - 1);
  char *number = at && (size_t)(at - program.code) + sizeof takes <= program.code_size ? at + sizeof takes - 1 : NULL;
  if (is_asked && number && *number == '8') *number = '4';
  if (number && is_said("unreadable_", number)) memset(program.code, '?', program.code_size / 2);
  while (number && is_said("endless_", number)) pause();
  struct program *given = args->program;
  args->program = (struct program *)memcpy(malloc(given->struct_size), given, given->struct_size);
  args->program->code = program.code;
  void *error = real_compile(args);
  free(args->program);
  free(program.code);
  args->program = given;
  return error;
}

static void *execute(struct execute_args *args) {
  int program = 0;
  while (program < programs && executables[program] != args->executable) program++;
  if (program == programs && programs < MAX_LAUNCHES) {
    if (is("named")) named_ns[programs] = ns_by_name(args->executable);
    executables[programs++] = args->executable;
  }
  if (running && launches < MAX_LAUNCHES) launched[launches++] = program;
  return real_execute(args);
}

/* the next executable may be at the same address, and is another one */
static void *loaded_destroy(struct executable_args *args) {
  for (int program = 0; program < programs; program++)
    if (executables[program] == args->of) executables[program] = NULL;
  return real_loaded_destroy(args);
}

/* protobuf by hand: buffers that grow, varints, and fields of varints and bytes */
struct bytes {
  uint8_t *at;
  size_t size;
};

static void put(struct bytes *to, const void *from, size_t size) {
  to->at = realloc(to->at, to->size + size);
  memcpy(to->at + to->size, from, size);
  to->size += size;
}

static void varint(struct bytes *to, uint64_t value) {
  do {
    uint8_t byte = (value & 0x7f) | (value > 0x7f ? 0x80 : 0);
    put(to, &byte, 1);
    value >>= 7;
  } while (value);
}

static void number(struct bytes *to, int field, uint64_t value) {
  varint(to, (uint64_t)field << 3);
  varint(to, value);
}

static void part(struct bytes *to, int field, const void *from, size_t size) {
  varint(to, (uint64_t)field << 3 | 2);
  varint(to, size);
  put(to, from, size);
}

static void text(struct bytes *to, int field, const char *text) { part(to, field, text, strlen(text)); }

static void message(struct bytes *to, int field, struct bytes *inner) {
  part(to, field, inner->at, inner->size);
  free(inner->at);
  inner->at = NULL;
  inner->size = 0;
}

/* an entry of a plane's event or stat metadata */
static void metadata(struct bytes *plane, int field, int id, const char *name) {
  struct bytes value = {0}, entry = {0};
  number(&value, 1, id);
  text(&value, 2, name);
  number(&entry, 1, id);
  message(&entry, 2, &value);
  message(plane, field, &entry);
}

enum { STAT_PROGRAM = 1, STAT_MODULE, STAT_OPERATION, STAT_MODULE_NAME, STAT_SIMULATED, STAT_OPERATION_NAME, STAT_DROPPED };

static void make_profile(void) {
  struct bytes space = {0}, plane = {0}, line = {0};
  const char *step_text = getenv("SIMULATED_PROFILER_STEP");
  uint64_t step = step_text ? strtoull(step_text, NULL, 10) : 0;
  uint64_t at = 1000000;
  int dropped = is("drop") || (is("drop-later") && sessions > 1) ? 1 : 0;
  number(&line, 1, 1);
  text(&line, 2, "Stream #1(Compute)");
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  number(&line, 3, is("now") ? (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec : 1700000000000000000);
  for (int n = 0; n < launches; n++) {
    uint64_t ns = 1000 * (uint64_t)(n + 1) + step * (uint64_t)(launched[n] < 63 ? 64 - launched[n] : 1);
    if (is("named")) ns = named_ns[launched[n]] + 10 * (uint64_t)(n % 7);
    int kernels = is("twice") || is("lossy") ? 2 : 1;
    for (int kernel = 0; kernel < kernels; kernel++) {
      struct bytes event = {0}, stat = {0};
      number(&event, 1, is("lossy") && kernel == 1 ? 2 : 1);
      number(&event, 2, (at + ns / kernels * kernel) * 1000);
      number(&event, 3, ns / kernels * 1000);
      if (!is("no-programs")) {
        number(&stat, 1, STAT_PROGRAM);
        number(&stat, 4, is("shared-id") ? 100 : 100 + launched[n]);
        message(&event, 4, &stat);
      }
      number(&stat, 1, STAT_MODULE);
      number(&stat, 7, STAT_MODULE_NAME);
      message(&event, 4, &stat);
      number(&stat, 1, STAT_OPERATION);
      number(&stat, 7, STAT_OPERATION_NAME);
      message(&event, 4, &stat);
      /* the second launch is the one that gets lost */
      if (n == 1 && (dropped || (is("lossy") && kernel == 1))) {
        free(event.at);
      } else {
        message(&line, 4, &event);
      }
    }
    at += ns + 500;
  }
  number(&plane, 1, 1);
  text(&plane, 2, is("no-plane") ? "/host:SIMULATED" : "/device:GPU:0");
  metadata(&plane, 4, 1, "simulated_kernel");
  metadata(&plane, 4, 2, "simulated_second_kernel");
  metadata(&plane, 5, STAT_PROGRAM, "program_id");
  metadata(&plane, 5, STAT_MODULE, "hlo_module");
  metadata(&plane, 5, STAT_OPERATION, "hlo_op");
  metadata(&plane, 5, STAT_MODULE_NAME, "simulated_module");
  metadata(&plane, 5, STAT_SIMULATED, "simulated");
  metadata(&plane, 5, STAT_OPERATION_NAME, "simulated_fusion");
  metadata(&plane, 5, STAT_DROPPED, "dropped_events");
  if (!is("no-plane")) message(&plane, 3, &line);
  struct bytes simulated = {0};
  number(&simulated, 1, STAT_SIMULATED);
  text(&simulated, 5, "no device was profiled: tests/data/pjrt/profiled_plugin.c");
  message(&plane, 6, &simulated);
  if (is("exact")) {
    /* the profile's last byte is a zero of its own */
    number(&simulated, 1, STAT_SIMULATED);
    number(&simulated, 3, 0);
    message(&plane, 6, &simulated);
  }
  if (is("lossy") || is("counted")) {
    struct bytes lost = {0};
    number(&lost, 1, STAT_DROPPED);
    number(&lost, 4, 5);
    message(&plane, 6, &lost);
  }
  message(&space, 1, &plane);
  free(profile);
  free(line.at);
  profile_size = space.size;
  put(&space, "", 1);
  profile = space.at;
}

static const char *const subscriber_error =
    "INTERNAL: simulated: cuptiSubscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";

/* an error is its message; nothing is to be freed */
static void error_destroy(struct error_args *args) { (void)args; }

static void error_message(struct error_args *args) {
  args->message = args->error;
  args->size = strlen(args->error);
}

static void *error_get_code(struct code_args *args) {
  args->code = 13;
  return NULL;
}

static void *create(struct create_args *args) {
  static int the_session;
  static const char expected[] = {0x28, 1, 0x18, 1};
  if (args->options_size != sizeof expected || memcmp(args->options, expected, sizeof expected) != 0)
    return "simulated: other options than `version: 1, device_tracer_level: 1`";
  if (args->struct_size != sizeof *args) return "simulated: another size of the arguments";
  args->profiler = &the_session;
  return NULL;
}

static void *destroy(struct session_args *args) {
  (void)args;
  running = 0;
  return NULL;
}

static void *start(struct session_args *args) {
  (void)args;
  if (is("subscriber")) return (void *)subscriber_error;
  if (is("crash")) abort();
  if (running) return "simulated: a session is running";
  running = 1;
  launches = 0;
  sessions++;
  return NULL;
}

static void *stop(struct session_args *args) {
  (void)args;
  running = 0;
  make_profile();
  return NULL;
}

/* As XLA's plugins do it: the first call, without a buffer, gives one of the plugin's own and counts a NUL behind the
 * profile; a second call would write nothing. With `two-calls` as the header has it: the size first, then a copy. */
static void *collect(struct collect_args *args) {
  size_t size = is("exact") ? profile_size : profile_size + 1;
  if (args->buffer == NULL) {
    if (!is("two-calls")) args->buffer = profile;
  } else if (is("two-calls")) {
    memcpy(args->buffer, profile, size);
  }
  args->size = is("huge") ? (size_t)1 << 62 : size;
  return NULL;
}

static const char *platform;

static void *platform_name(struct text_args *args) {
  args->text = platform;
  args->size = strlen(args->text);
  return NULL;
}

static struct {
  size_t struct_size;
  void *functions[12];
} profiler_api;

static struct {
  struct base base;
  void *api;
  int64_t traceme_context_id;
} extension;

/* takes the device for this library's processes; whether another library's hold it */
static int is_held_by_another(const char *folder) {
  Dl_info own;
  const char *name = dladdr((void *)is_held_by_another, &own) ? strrchr(own.dli_fname, '/') + 1 : "?";
  DIR *all = opendir(folder);
  struct dirent *one;
  char path[PATH_MAX];
  int is_held = 0;
  while (all && (one = readdir(all))) {
    if (one->d_name[0] == '.' || strcmp(one->d_name, name) == 0) continue;
    snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) is_held = 1;
    if (file >= 0) close(file);
  }
  if (all) closedir(all);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  /* stays open until the process ends */
  int file = is_held ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  return is_held || file < 0 || flock(file, LOCK_SH) != 0;
}

const void *GetPjrtApi(void) {
  static void *table[TABLE_WORDS];
  const char *base = getenv("SIMULATED_PROFILER_BASE");
  void *library = base ? dlopen(base, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
  if (symbol == NULL) {
    fprintf(stderr, "SIMULATED_PROFILER_BASE names no plugin\n");
    return NULL;
  }
  platform = getenv("SIMULATED_PLATFORM");
  int is_held = getenv("SIMULATED_HELD") && is_held_by_another(getenv("SIMULATED_HELD"));
  if (is_held && getenv("SIMULATED_FALLBACK")) {
    platform = getenv("SIMULATED_FALLBACK");
  } else if (is_held) {
    fprintf(stderr, "the device is held by another process\n");
    return NULL;
  }
  void *const *real = ((void *const *(*)(void))symbol)();
  size_t size = (size_t)real[0];
  if (getenv("SIMULATED_PROFILER_MODE")) mode = getenv("SIMULATED_PROFILER_MODE");
  if (size > sizeof table) size = sizeof table;
  memcpy(table, real, size);
  table[0] = (void *)size;
  void *functions[] = {NULL, error_destroy, error_message, error_get_code, create, destroy, start, stop, collect};
  memcpy(profiler_api.functions, functions, sizeof functions);
  profiler_api.struct_size = is("small-api") ? 72 : is("long-api") ? 104 : 80;
  extension.base.struct_size = is("small-extension") ? 24 : 40;
  extension.base.type = PROFILER;
  extension.base.next = table[1];
  extension.api = &profiler_api;
  table[1] = &extension;
  real_execute = (execute_fn *)table[EXECUTE];
  table[EXECUTE] = execute;
  get_executable = (executable_fn *)table[GET_EXECUTABLE];
  executable_destroy = (executable_fn *)table[EXECUTABLE_DESTROY];
  real_loaded_destroy = (executable_fn *)table[LOADED_DESTROY];
  table[LOADED_DESTROY] = loaded_destroy;
  executable_name = (text_fn *)table[EXECUTABLE_NAME];
  if (is("named")) {
    real_compile = (compile_fn *)table[COMPILE];
    table[COMPILE] = compile;
  }
  if (platform) table[PLATFORM_NAME] = platform_name;
  return table;
}
