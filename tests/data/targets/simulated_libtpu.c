/* SIMULATED: a plugin with the few functions that compiling for absent TPUs takes. It compiles nothing. It refuses a program that
 * holds the words `too large`, in the words that libtpu has for vector memory, cannot read one that holds `newer kernel`, and
 * gives of any other the optimized program that SIMULATED_OPTIMIZED names. Its executable holds the compile options; it refuses
 * `xla_backend_optimization_level` at 9. It never ends with a program that holds `endless`. One that holds `interrupt` ends the run as Ctrl-C does. As libtpu does, it writes what it "scheduled" into the folder of LIBTPU_INIT_ARGS. It fails
 * where a real one would ask the network, or a lock file, before it answers. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* places of functions in the table */
enum {
  ERROR_DESTROY = 0, ERROR_MESSAGE = 1, ERROR_CODE = 2, CLIENT_CREATE = 10, DESCRIPTION_ID = 23, DESCRIPTION_ATTRIBUTES = 25,
  DESCRIPTION_KIND = 26, EXECUTABLE_DESTROY = 40, OPTIMIZED_PROGRAM = 48, SERIALIZE = 49, TOPOLOGY_CREATE = 82,
  TOPOLOGY_DESTROY = 83, PLATFORM_NAME = 84, PLATFORM_VERSION = 85, DESCRIPTIONS = 86, COMPILE = 89, MEMORY_STATS = 96,
  FUNCTIONS = 105
};

struct head { size_t struct_size; void *extension_start; };
struct error { int code; char message[256]; };
struct error_args { struct head head; struct error *error; const char *message; size_t message_size; };
struct code_args { struct head head; struct error *error; int code; };
struct create_args { struct head head; const char *name; size_t name_size; const void *options; size_t num_options; void *topology; };
struct text_args { struct head head; void *of; const char *text; size_t text_size; };
struct id_args { struct head head; void *description; int id; };
struct attributes_args { struct head head; void *description; size_t num_attributes; const void *attributes; };
struct devices_args { struct head head; void *topology; void **descriptions; size_t num_descriptions; };
struct program { struct head head; char *code; size_t code_size; const char *format; size_t format_size; };
struct compile_args {
  struct head head; void *topology; const struct program *program; const char *options; size_t options_size; void *client;
  void *executable;
};
struct optimized_args { struct head head; void *executable; struct program *program; };
struct serialize_args {
  struct head head; void *executable; const char *bytes; size_t bytes_size; void *owner; void (*deleter)(void *);
};
struct memory_args { struct head head; void *executable; int64_t code, argument, output, alias, temporary, host[5], peak; };

static int something;
#define EXECUTABLE "SIMULATED executable for "
static char executable[1 << 16] = EXECUTABLE;
static size_t executable_size;

static struct error *failed(int code, const char *message) {
  struct error *error = calloc(1, sizeof *error);
  error->code = code;
  snprintf(error->message, sizeof error->message, "%s", message);
  return error;
}

static void error_destroy(struct error_args *args) { free(args->error); }

static void error_message(struct error_args *args) {
  args->message = args->error->message;
  args->message_size = strlen(args->error->message);
}

static struct error *error_code(struct code_args *args) {
  args->code = args->error->code;
  return NULL;
}

static struct error *nothing(void *args) {
  (void)args;
  return NULL;
}

static struct error *client_create(void *args) {
  (void)args;
  return failed(5, "TPU initialization failed: No jellyfish device found.");
}

static struct error *topology_create(struct create_args *args) {
  if (getenv("TPU_SKIP_MDS_QUERY") == NULL) return failed(14, "would ask the metadata server for a minute");
  if (getenv("ALLOW_MULTIPLE_LIBTPU_LOAD") == NULL) return failed(10, "Internal error when accessing libtpu multi-process lockfile.");
  if (args->name_size != 7 || memcmp(args->name, "v5e:2x2", 7) != 0) return failed(3, "the simulated libtpu knows v5e:2x2 alone");
  args->topology = &something;
  return NULL;
}

static struct error *text(struct text_args *args, const char *text) {
  args->text = text;
  args->text_size = strlen(text);
  return NULL;
}

static struct error *platform_name(struct text_args *args) { return text(args, "tpu"); }
static struct error *platform_version(struct text_args *args) { return text(args, "SIMULATED libtpu"); }
static struct error *description_kind(struct text_args *args) { return text(args, "TPU v5 lite"); }

static struct error *description_id(struct id_args *args) {
  args->id = 0;
  return NULL;
}

static struct error *description_attributes(struct attributes_args *args) {
  args->num_attributes = 0;
  return NULL;
}

static struct error *descriptions(struct devices_args *args) {
  static void *devices[] = {&something, &something, &something, &something};
  args->descriptions = devices;
  args->num_descriptions = 4;
  return NULL;
}

static void dump(const char *pass, const char *content) {
  const char *flags = getenv("LIBTPU_INIT_ARGS"), *folder = flags ? strstr(flags, "--xla_jf_dump_to=") : NULL;
  if (folder == NULL || strstr(flags, "--xla_jf_dump_llo_text=true") == NULL) return;
  folder += strlen("--xla_jf_dump_to=");
  char path[4096];
  snprintf(path, sizeof path, "%.*s/1772746582910387391-%s.txt", (int)strcspn(folder, " "), folder, pass);
  FILE *file = fopen(path, "w");
  if (file == NULL) return;
  fputs(content, file);
  fclose(file);
}

/* the run started the supervisor, which started this process */
static void interrupt_run(void) {
  char path[64], line[256];
  int run = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)getppid());
  FILE *status = fopen(path, "r");
  if (status == NULL) return;
  while (run == 0 && fgets(line, sizeof line, status) != NULL) sscanf(line, "PPid: %d", &run);
  fclose(status);
  if (run > 1) kill(run, SIGINT);
}

static struct error *compile(struct compile_args *args) {
  if (memmem(args->program->code, args->program->code_size, "too large", 9) != NULL)
    return failed(8, "Scoped allocation with size 18.36M and limit 16.00M exceeded scoped vmem limit by 2.36M");
  if (memmem(args->program->code, args->program->code_size, "newer kernel", 12) != NULL)
    return failed(13, "Failed to deserialize the Mosaic module: INTERNAL: Unsupported version: expected <= 7 but got 8");
  if (memmem(args->options, args->options_size, "optimization_level\x12\x02\x18\x09", 22) != NULL)
    return failed(3, "While setting option xla_backend_optimization_level, 9 is out of its range.");
  while (memmem(args->program->code, args->program->code_size, "endless", 7) != NULL) pause();
  if (memmem(args->program->code, args->program->code_size, "interrupt", 9) != NULL) interrupt_run();
  size_t start = strlen(EXECUTABLE), size = args->options_size;
  if (size > sizeof executable - start) size = sizeof executable - start;
  memcpy(executable + start, args->options, size);
  executable_size = start + size;
  dump("pallas_call.1-78-schedule-analysis_final_bundles",
       "Schedule analysis:\n    total scheduled bundles:    298\n    empty scheduled bundles:    14\n");
  dump("pallas_call.1-60-post-ra",
       "#allocation0 [shape = 'u8[3145728]{0}', space=vmem, size = 0x300000, scoped, tag = 'scoped memory for pallas_call.1']\n");
  args->executable = &something;
  return NULL;
}

static struct error *optimized_program(struct optimized_args *args) {
  const char *path = getenv("SIMULATED_OPTIMIZED");
  FILE *file = path ? fopen(path, "rb") : NULL;
  if (file == NULL) return failed(12, "no SIMULATED_OPTIMIZED");
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  if (args->program->code != NULL) size = fread(args->program->code, 1, args->program->code_size, file);
  fclose(file);
  args->program->code_size = size;
  args->program->format = "hlo";
  args->program->format_size = 3;
  return NULL;
}

static struct error *serialize(struct serialize_args *args) {
  args->bytes = executable;
  args->bytes_size = executable_size;
  return NULL;
}

static struct error *memory_stats(struct memory_args *args) {
  args->argument = 1 << 20;
  args->temporary = 1 << 10;
  args->peak = (1 << 20) + (1 << 10);
  return NULL;
}

const void *GetPjrtApi(void) {
  static struct {
    struct head head;
    struct { struct head head; int major, minor; } version;
    void *functions[FUNCTIONS];
  } table = {.head = {sizeof table, NULL}, .version = {{sizeof table.version, NULL}, 0, 112}};
  void **functions = table.functions;
  functions[ERROR_DESTROY] = error_destroy;
  functions[ERROR_MESSAGE] = error_message;
  functions[ERROR_CODE] = error_code;
  functions[CLIENT_CREATE] = client_create;
  functions[DESCRIPTION_ID] = description_id;
  functions[DESCRIPTION_ATTRIBUTES] = description_attributes;
  functions[DESCRIPTION_KIND] = description_kind;
  functions[EXECUTABLE_DESTROY] = functions[TOPOLOGY_DESTROY] = nothing;
  functions[OPTIMIZED_PROGRAM] = optimized_program;
  functions[SERIALIZE] = serialize;
  functions[TOPOLOGY_CREATE] = topology_create;
  functions[PLATFORM_NAME] = platform_name;
  functions[PLATFORM_VERSION] = platform_version;
  functions[DESCRIPTIONS] = descriptions;
  functions[COMPILE] = compile;
  functions[MEMORY_STATS] = memory_stats;
  return &table;
}
