// Modules and their functions. The figures of kernels are read from cubins, the ELF files that ptxas writes.
#include "simulated.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    // attributes of `.nv.info`: a symbol's index and a number
    EIATTR_MIN_STACK_SIZE = 0x12,
    EIATTR_REGCOUNT = 0x2f,
    // the attribute's value follows it, with a length of two bytes
    EIFMT_SVAL = 4,
    // from compute capability 9.0 on, the driver's bytes begin the section of a kernel's shared memory
    RESERVED_SHARED_BYTES = 1024,
    // of a kernel whose code is not read
    UNKNOWN_REGISTERS = 32,
    DEFAULT_DYNAMIC_SHARED_BYTES = 48 << 10,
};

struct global {
    char *name;
    CUdeviceptr address;
    size_t bytes;
    struct global *next;
};

struct kernel {
    struct CUfunc_st function;
    struct kernel *next;
};

struct CUmod_st {
    // whether its kernels and globals are known; PTX and fat binaries are not read
    bool is_read;
    struct kernel *kernels;
    struct global *globals;
};

static CUfunction add_kernel(CUmodule module, const char *name)
{
    struct kernel *kernel = calloc(1, sizeof *kernel);
    kernel->function = (struct CUfunc_st){
        .name = strdup(name),
        .module = module,
        .registers = UNKNOWN_REGISTERS,
        .max_dynamic_shared_bytes = DEFAULT_DYNAMIC_SHARED_BYTES,
    };
    if (module) {
        kernel->next = module->kernels;
        module->kernels = kernel;
    }
    return &kernel->function;
}

CUfunction sim_named_function(const char *name)
{
    return add_kernel(NULL, name);
}

// ---- cubins ---------------------------------------------------------------------------------------------------------

struct cubin {
    const char *bytes;
    const Elf64_Shdr *sections;
    size_t section_count;
    const char *names;
};

static bool open_cubin(struct cubin *cubin, const void *image)
{
    const Elf64_Ehdr *header = image;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
        return false;
    cubin->bytes = image;
    cubin->sections = (const Elf64_Shdr *)(cubin->bytes + header->e_shoff);
    cubin->section_count = header->e_shnum;
    cubin->names = cubin->bytes + cubin->sections[header->e_shstrndx].sh_offset;
    return true;
}

static const Elf64_Shdr *section(const struct cubin *cubin, const char *prefix, const char *name)
{
    size_t length = strlen(prefix);
    for (size_t i = 0; i < cubin->section_count; i++) {
        const char *of = cubin->names + cubin->sections[i].sh_name;
        if (strncmp(of, prefix, length) == 0 && strcmp(of + length, name) == 0)
            return &cubin->sections[i];
    }
    return NULL;
}

// The number that an attribute gives for a symbol, or the default.
static int attribute(const struct cubin *cubin, int wanted, uint32_t symbol, int otherwise)
{
    const Elf64_Shdr *info = section(cubin, ".nv.info", "");
    if (!info)
        return otherwise;
    const uint8_t *at = (const uint8_t *)cubin->bytes + info->sh_offset;
    const uint8_t *end = at + info->sh_size;
    while (at + 4 <= end) {
        uint16_t length = at[0] == EIFMT_SVAL ? (uint16_t)(at[2] | at[3] << 8) : 0;
        uint32_t value[2];
        if (at[1] == wanted && length == sizeof value) {
            memcpy(value, at + 4, sizeof value);
            if (value[0] == symbol)
                return (int)value[1];
        }
        at += 4 + length;
    }
    return otherwise;
}

static void read_symbol(CUmodule module, const struct cubin *cubin, const Elf64_Sym *symbol, uint32_t index,
                        const char *name)
{
    if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && section(cubin, ".text.", name)) {
        CUfunction function = add_kernel(module, name);
        const Elf64_Shdr *shared = section(cubin, ".nv.shared.", name);
        int reserved = section(cubin, ".nv.shared.reserved.0", "") ? RESERVED_SHARED_BYTES : 0;
        function->registers = attribute(cubin, EIATTR_REGCOUNT, index, UNKNOWN_REGISTERS);
        function->local_bytes = attribute(cubin, EIATTR_MIN_STACK_SIZE, index, 0);
        function->static_shared_bytes = shared ? (int)shared->sh_size - reserved : 0;
    } else if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && symbol->st_size) {
        struct global *global = malloc(sizeof *global);
        *global = (struct global){strdup(name), 0, symbol->st_size, module->globals};
        module->globals = global;
    }
}

static void read_cubin(CUmodule module, const struct cubin *cubin)
{
    module->is_read = true;
    for (size_t i = 0; i < cubin->section_count; i++) {
        const Elf64_Shdr *table = &cubin->sections[i];
        if (table->sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(cubin->bytes + table->sh_offset);
        const char *names = cubin->bytes + cubin->sections[table->sh_link].sh_offset;
        for (uint32_t index = 0; index < table->sh_size / sizeof *symbols; index++)
            read_symbol(module, cubin, &symbols[index], index, names + symbols[index].st_name);
    }
}

// ---- modules --------------------------------------------------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule *handle, const void *image)
{
    CUmodule module = calloc(1, sizeof *module);
    struct cubin cubin;
    if (open_cubin(&cubin, image))
        read_cubin(module, &cubin);
    *handle = module;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *handle, const void *image, unsigned count, CUjit_option *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(handle, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *handle, const void *image)
{
    return cuModuleLoadData(handle, image);
}

// Its kernels stay, because CUPTI's records refer to their names.
CUresult cuModuleUnload(CUmodule module)
{
    while (module->globals) {
        struct global *global = module->globals;
        module->globals = global->next;
        if (global->address)
            cuMemFree_v2(global->address);
        free(global->name);
        free(global);
    }
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    for (struct kernel *kernel = module->kernels; kernel; kernel = kernel->next)
        if (strcmp(kernel->function.name, name) == 0) {
            *function = &kernel->function;
            return CUDA_SUCCESS;
        }
    if (module->is_read)
        return CUDA_ERROR_NOT_FOUND;
    *function = add_kernel(module, name);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    for (struct global *global = module->globals; global; global = global->next) {
        if (strcmp(global->name, name) != 0)
            continue;
        CUresult result = global->address ? CUDA_SUCCESS : cuMemAlloc_v2(&global->address, global->bytes);
        if (address)
            *address = global->address;
        if (bytes)
            *bytes = global->bytes;
        return result;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

// ---- libraries: modules whose kernels belong to no context ----------------------------------------------------------

// The handles of libraries and kernels are those of modules and functions.
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned count,
                           CUlibraryOption *library_options, void **library_values, unsigned library_count)
{
    (void)options;
    (void)values;
    (void)count;
    (void)library_options;
    (void)library_values;
    (void)library_count;
    return cuModuleLoadData((CUmodule *)library, code);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    return cuModuleUnload((CUmodule)library);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    return cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    return cuModuleGetGlobal_v2(address, bytes, (CUmodule)library, name);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

// ---- functions ------------------------------------------------------------------------------------------------------

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = SIM_THREADS_PER_BLOCK;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = function->static_shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = function->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = function->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->max_dynamic_shared_bytes;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_SUCCESS;
    if (value < 0 || value + function->static_shared_bytes > SIM_SHARED_BYTES_PER_BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic_shared_bytes = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    (void)function;
    (void)config;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    (void)device;
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

// What a kernel with TMA reads; it reads nothing here.
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    (void)type;
    (void)rank;
    (void)address;
    (void)sizes;
    (void)strides;
    (void)box;
    (void)element_strides;
    (void)interleave;
    (void)swizzle;
    (void)promotion;
    (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}
