// An XLA FFI handler that picks its block sizes from the cache: a product of two f32 matrices in blocks, on the CPU.
// xla_ffi.py builds it and calls it from JAX.
//
// The engine opens cache and device once, with engine_open, before JAX calls a handler. Each execution then looks its
// call up, so that newly published configs apply after engine_refresh, without another trace or compilation.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "autotune_lowered.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static atl_cache* cache = nullptr;
static atl_device* device = nullptr;

extern "C" int32_t engine_open(const char* path, const char* fingerprint, char* message, size_t message_size) {
  atl_open_options options{};
  options.struct_size = sizeof options;
  options.path = atl_text(path);
  const atl_status status = atl_device_from_json(atl_text(fingerprint), &device, message, message_size);
  return status == ATL_OK ? atl_cache_open(&options, &cache, message, message_size) : status;
}

extern "C" int32_t engine_refresh(char* message, size_t message_size) {
  return atl_cache_refresh(cache, nullptr, message, message_size);
}

namespace {

struct Blocks {
  int64_t m = 32, n = 32, k = 32;  // the kernel's default
};

// The tuned block sizes of a call. A call that nobody tuned keeps the default; a cache that cannot be read is an error.
ffi::Error pick(std::string_view key, Blocks& blocks) {
  char message[512];
  atl_query query{};
  query.struct_size = sizeof query;
  query.device = device;
  query.operation = atl_text("blocked_matmul@v1");
  query.key = {key.data() ? key.data() : "", key.size()};
  const atl_hit* hit = nullptr;
  atl_status status = atl_cache_lookup(cache, &query, &hit, message, sizeof message);
  if (status == ATL_MISS) return ffi::Error::Success();
  if (status != ATL_OK) return ffi::Error::Internal(message);
  Blocks tuned;
  const struct {
    const char* name;
    int64_t* value;
  } wanted[] = {{"block_m", &tuned.m}, {"block_n", &tuned.n}, {"block_k", &tuned.k}};
  for (const auto& [name, value] : wanted) {
    status = atl_hit_int64(hit, atl_text(name), value, message, sizeof message);
    if (status != ATL_OK || *value < 1) break;
  }
  atl_hit_release(hit);
  if (status != ATL_OK) return ffi::Error::InvalidArgument(message);
  if (tuned.m < 1 || tuned.n < 1 || tuned.k < 1) return ffi::Error::InvalidArgument("a block size is not positive");
  blocks = tuned;
  return ffi::Error::Success();
}

// Also returns the block sizes that it used.
ffi::Error matmul(ffi::Buffer<ffi::F32> a, ffi::Buffer<ffi::F32> b, std::string_view key,
                  ffi::ResultBuffer<ffi::F32> product, ffi::ResultBuffer<ffi::S32> taken) {
  if (a.dimensions().size() != 2 || b.dimensions().size() != 2 || a.dimensions()[1] != b.dimensions()[0]) {
    return ffi::Error::InvalidArgument("the shapes are not [m,k] and [k,n]");
  }
  const int64_t rows = a.dimensions()[0], inner = a.dimensions()[1], columns = b.dimensions()[1];
  if (product->element_count() != static_cast<size_t>(rows * columns) || taken->element_count() != 3) {
    return ffi::Error::InvalidArgument("the results are not [m,n] and [3]");
  }
  Blocks blocks;
  if (ffi::Error error = pick(key, blocks); error.failure()) return error;
  const float* left = a.typed_data();
  const float* right = b.typed_data();
  float* out = product->typed_data();
  std::fill(out, out + rows * columns, 0.0f);
  for (int64_t i0 = 0; i0 < rows; i0 += blocks.m)
    for (int64_t k0 = 0; k0 < inner; k0 += blocks.k)
      for (int64_t j0 = 0; j0 < columns; j0 += blocks.n)
        for (int64_t i = i0; i < std::min(i0 + blocks.m, rows); i++)
          for (int64_t k = k0; k < std::min(k0 + blocks.k, inner); k++)
            for (int64_t j = j0; j < std::min(j0 + blocks.n, columns); j++)
              out[i * columns + j] += left[i * inner + k] * right[k * columns + j];
  const int64_t told[] = {blocks.m, blocks.n, blocks.k};
  std::copy(told, told + 3, taken->typed_data());
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(matmul_handler, matmul,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Attr<std::string_view>("key")
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::S32>>());
