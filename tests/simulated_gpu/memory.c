// The device's memory: host memory that is reserved and costs nothing until it is touched, and an account of it.
#include "simulated.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- the account ----------------------------------------------------------------------------------------------------

enum { ACCOUNT_ENTRIES = 1023 };

// The layout of SIMULATED_GPU_ACCOUNT, a file of 24 KiB that processes share: numbers of 64 bits, little endian.
struct account {
    uint64_t processes;
    uint64_t graph_launches;
    uint64_t reserved;
    struct entry {
        uint64_t process;
        uint64_t bytes;
        uint64_t peak_bytes;
    } entries[ACCOUNT_ENTRIES];
};

static struct account unshared = {.processes = 1};
static struct account *account = &unshared;
static struct entry *own = &unshared.entries[0];
static uint64_t total_bytes = 85899345920 - 956366848; // as an H100 of 80 GB reports it

__attribute__((constructor)) static void open_account(void)
{
    const char *bytes = sim_setting("MEMORY_BYTES");
    if (bytes)
        total_bytes = strtoull(bytes, NULL, 10);
    own->process = (uint64_t)getpid();
    const char *path = sim_setting("ACCOUNT");
    if (!path)
        return;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct account *shared = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof *shared) == 0)
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (shared == MAP_FAILED) {
        fprintf(stderr, "simulated GPU: cannot use the account %s: %s\n", path, strerror(errno));
        abort();
    }
    uint64_t index = __atomic_fetch_add(&shared->processes, 1, __ATOMIC_SEQ_CST);
    if (index >= ACCOUNT_ENTRIES) {
        fprintf(stderr, "simulated GPU: the account %s is full: remove it\n", path);
        abort();
    }
    account = shared;
    own = &shared->entries[index];
    own->process = (uint64_t)getpid();
}

// What all processes that live hold.
static uint64_t held_bytes(void)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < account->processes && i < ACCOUNT_ENTRIES; i++) {
        struct entry *entry = &account->entries[i];
        bool lives = entry == own || kill((pid_t)entry->process, 0) == 0 || errno == EPERM;
        if (lives)
            sum += __atomic_load_n(&entry->bytes, __ATOMIC_SEQ_CST);
    }
    return sum;
}

// Charges before it compares, so that two processes cannot both take the last bytes.
static CUresult charge(uint64_t bytes)
{
    uint64_t now = __atomic_add_fetch(&own->bytes, bytes, __ATOMIC_SEQ_CST);
    if (bytes > total_bytes || held_bytes() > total_bytes) {
        __atomic_sub_fetch(&own->bytes, bytes, __ATOMIC_SEQ_CST);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t peak = __atomic_load_n(&own->peak_bytes, __ATOMIC_SEQ_CST);
    while (now > peak &&
           !__atomic_compare_exchange_n(&own->peak_bytes, &peak, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
    return CUDA_SUCCESS;
}

// A context holds memory of its own as long as its process lives.
CUresult sim_charge_context(void)
{
    enum { CONTEXT_BYTES = 128 << 20 };
    static bool is_charged;
    pthread_mutex_lock(&lock);
    CUresult result = is_charged ? CUDA_SUCCESS : charge(CONTEXT_BYTES);
    is_charged |= result == CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

void sim_count_graph_launch(void)
{
    __atomic_add_fetch(&account->graph_launches, 1, __ATOMIC_SEQ_CST);
}

static void refund(uint64_t bytes)
{
    __atomic_sub_fetch(&own->bytes, bytes, __ATOMIC_SEQ_CST);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = total_bytes;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    uint64_t held = held_bytes();
    *free_bytes = held < total_bytes ? total_bytes - held : 0;
    *total = total_bytes;
    return CUDA_SUCCESS;
}

// ---- ranges of addresses --------------------------------------------------------------------------------------------

// Memory that the driver knows: the device's, or the host's that it may access.
struct range {
    char *start;
    size_t bytes;
    CUmemorytype type;
    // a registered range belongs to the caller
    bool mapped;
    struct range *next;
};

static struct range *ranges;

static void add_range(void *start, size_t bytes, CUmemorytype type, bool mapped)
{
    struct range *range = malloc(sizeof *range);
    pthread_mutex_lock(&lock);
    *range = (struct range){start, bytes, type, mapped, ranges};
    ranges = range;
    pthread_mutex_unlock(&lock);
}

static bool take_range(void *start, struct range *taken)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct range **at = &ranges; *at && !found; at = &(*at)->next)
        if ((*at)->start == start) {
            struct range *range = *at;
            *taken = *range;
            *at = range->next;
            free(range);
            found = true;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool range_of(CUdeviceptr address, struct range *found)
{
    bool inside = false;
    pthread_mutex_lock(&lock);
    for (struct range *range = ranges; range && !inside; range = range->next)
        if ((inside = address >= (CUdeviceptr)range->start && address - (CUdeviceptr)range->start < range->bytes))
            *found = *range;
    pthread_mutex_unlock(&lock);
    return inside;
}

// Pages that read as zero and take no memory until they are written.
static void *reserve(size_t bytes, int protection)
{
    void *start = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = charge(bytes);
    if (result != CUDA_SUCCESS)
        return result;
    void *start = reserve(bytes, PROT_READ | PROT_WRITE);
    if (!start) {
        refund(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    add_range(start, bytes, CU_MEMORYTYPE_DEVICE, true);
    *address = (CUdeviceptr)start;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct sim_call call = SIM_CALL(cuMemAlloc_v2, NULL, address, bytes);
    sim_enter(&call);
    return sim_leave(&call, allocate(address, bytes));
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    struct sim_call call = SIM_CALL(cuMemAllocManaged, NULL, address, bytes, flags);
    sim_enter(&call);
    return sim_leave(&call, allocate(address, bytes));
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct sim_call call = SIM_CALL(cuMemFree_v2, NULL, address);
    sim_enter(&call);
    struct range range;
    if (!address)
        return sim_leave(&call, CUDA_SUCCESS);
    if (!take_range((void *)address, &range))
        return sim_leave(&call, CUDA_ERROR_INVALID_VALUE);
    sim_wait_until(sim_end_of_all_streams());
    munmap(range.start, range.bytes);
    refund(range.bytes);
    return sim_leave(&call, CUDA_SUCCESS);
}

CUresult cuMemHostAlloc(void **start, size_t bytes, unsigned flags)
{
    (void)flags;
    *start = bytes ? reserve(bytes, PROT_READ | PROT_WRITE) : NULL;
    if (!*start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    add_range(*start, bytes, CU_MEMORYTYPE_HOST, true);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **start, size_t bytes)
{
    return cuMemHostAlloc(start, bytes, 0);
}

CUresult cuMemFreeHost(void *start)
{
    struct range range;
    if (!take_range(start, &range) || !range.mapped)
        return CUDA_ERROR_INVALID_VALUE;
    munmap(range.start, range.bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags)
{
    (void)flags;
    add_range(start, bytes, CU_MEMORYTYPE_HOST, false);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *start)
{
    struct range range;
    return take_range(start, &range) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *start, unsigned flags)
{
    (void)flags;
    *address = (CUdeviceptr)start;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    struct range range;
    if (!range_of(address, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (start)
        *start = (CUdeviceptr)range.start;
    if (bytes)
        *bytes = range.bytes;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct range range;
    if (!range_of(address, &range))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = &sim_context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)value = range.type;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(CUdeviceptr *)value = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(bool *)value = false;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = (CUdeviceptr)range.start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = range.bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// Unlike the function for one attribute, this one succeeds for any address.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr address)
{
    for (unsigned i = 0; i < count; i++)
        if (cuPointerGetAttribute(values[i], attributes[i], address) != CUDA_SUCCESS)
            memset(values[i], 0, attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? sizeof(CUmemorytype) : 1);
    return CUDA_SUCCESS;
}

// ---- virtual memory: addresses, and apart from them the memory that is mapped there ---------------------------------

enum { GRANULARITY = 2 << 20 };

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    (void)properties;
    (void)option;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    (void)wanted;
    (void)flags;
    if (alignment < GRANULARITY)
        alignment = GRANULARITY;
    char *start = reserve(bytes + alignment, PROT_NONE);
    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    // give back what lies before and after the aligned range
    char *aligned = (char *)(((uintptr_t)start + alignment - 1) / alignment * alignment);
    if (aligned > start)
        munmap(start, (size_t)(aligned - start));
    munmap(aligned + bytes, (size_t)(start + alignment - aligned));
    add_range(aligned, bytes, CU_MEMORYTYPE_DEVICE, true);
    *address = (CUdeviceptr)aligned;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    struct range range;
    if (!take_range((void *)address, &range))
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)address, bytes);
    return CUDA_SUCCESS;
}

// A handle is its size: the memory itself is made where it is mapped, so that it can be mapped only once.
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    (void)properties;
    (void)flags;
    *handle = bytes;
    return charge(bytes);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    refund(handle);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    (void)offset;
    (void)handle;
    (void)flags;
    return mprotect((void *)address, bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    (void)address;
    (void)bytes;
    (void)access;
    (void)count;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    sim_wait_until(sim_end_of_all_streams());
    madvise((void *)address, bytes, MADV_DONTNEED);
    mprotect((void *)address, bytes, PROT_NONE);
    return CUDA_SUCCESS;
}
