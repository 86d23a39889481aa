// Looks one config up from C++17, with classes that free what they own.
//
//   lookup CACHE DEVICE.json OPERATION KEY [exact|kind|any [PATH...]]
//
// Its output and exit codes are those of lookup.c.
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "autotune_lowered.h"

namespace tuned {

class Error : public std::runtime_error {
 public:
  Error(atl_status code, const std::string& message) : std::runtime_error(message), status(code) {}
  const atl_status status;
};

inline atl_string text(std::string_view view) { return {view.data() ? view.data() : "", view.size()}; }

// Calls with a buffer for a message, and throws if the call failed. A miss is no failure.
template <typename Call>
atl_status checked(Call call, std::string* said = nullptr) {
  char message[512];
  const atl_status status = call(message, sizeof message);
  if (status != ATL_OK && status != ATL_MISS) throw Error(status, message);
  if (said) *said = message;
  return status;
}

class Device {
 public:
  explicit Device(std::string_view json) {
    atl_device* device = nullptr;
    checked([&](char* at, size_t size) { return atl_device_from_json(text(json), &device, at, size); });
    device_.reset(device, atl_device_free);
  }
  const atl_device* get() const { return device_.get(); }

 private:
  std::shared_ptr<atl_device> device_;
};

class Hit {
 public:
  explicit Hit(const atl_hit* hit) : hit_(hit, atl_hit_release) {}

  atl_hit_info info() const {
    atl_hit_info info{};
    info.struct_size = sizeof info;
    checked([&](char* at, size_t size) { return atl_hit_describe(hit_.get(), &info, at, size); });
    return info;
  }

  // The value at a path; nothing if there is none of this type.
  template <typename T>
  std::optional<T> get(std::string_view path) const {
    if constexpr (std::is_same_v<T, bool>) {
      int32_t truth;
      if (atl_hit_bool(hit_.get(), text(path), &truth, nullptr, 0) == ATL_OK) return truth != 0;
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      atl_string value;
      if (atl_hit_string(hit_.get(), text(path), &value, nullptr, 0) == ATL_OK) return T(value.data, value.size);
    } else if constexpr (std::is_same_v<T, double>) {
      double value;
      if (atl_hit_double(hit_.get(), text(path), &value, nullptr, 0) == ATL_OK) return value;
    } else {
      static_assert(std::is_same_v<T, int64_t>, "int64_t, double, bool or std::string_view");
      int64_t value;
      if (atl_hit_int64(hit_.get(), text(path), &value, nullptr, 0) == ATL_OK) return value;
    }
    return std::nullopt;
  }

 private:
  std::shared_ptr<const atl_hit> hit_;
};

class Cache {
 public:
  explicit Cache(std::string_view path) {
    atl_open_options options{};
    options.struct_size = sizeof options;
    options.path = text(path);
    atl_cache* cache = nullptr;
    checked([&](char* at, size_t size) { return atl_cache_open(&options, &cache, at, size); }, &note);
    cache_.reset(cache);
  }

  std::optional<Hit> lookup(const Device& device, std::string_view operation, std::string_view key,
                            uint32_t match = ATL_MATCH_EXACT) const {
    const atl_query query = query_of(device, operation, key, match);
    const atl_hit* hit = nullptr;
    checked([&](char* at, size_t size) { return atl_cache_lookup(cache_.get(), &query, &hit, at, size); });
    if (!hit) return std::nullopt;
    return Hit(hit);
  }

  std::string explain(const Device& device, std::string_view operation, std::string_view key, uint32_t match) const {
    const atl_query query = query_of(device, operation, key, match);
    std::string said;
    checked([&](char* at, size_t size) { return atl_cache_explain(cache_.get(), &query, at, size); }, &said);
    return said;
  }

  // What was left out when the cache was opened; usually empty.
  std::string note;

 private:
  static atl_query query_of(const Device& device, std::string_view operation, std::string_view key, uint32_t match) {
    atl_query query{};
    query.struct_size = sizeof query;
    query.match = match;
    query.device = device.get();
    query.operation = text(operation);
    query.key = text(key);
    return query;
  }

  struct Close {
    void operator()(atl_cache* cache) const { atl_cache_close(cache); }
  };
  std::unique_ptr<atl_cache, Close> cache_;
};

}  // namespace tuned

int main(int argc, char** argv) try {
  if (argc < 5) {
    std::cerr << "usage: lookup CACHE DEVICE.json OPERATION KEY [exact|kind|any [PATH...]]\n";
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  if (!file) throw std::runtime_error(std::string("cannot read ") + argv[2]);
  const tuned::Device device(std::string(std::istreambuf_iterator<char>(file), {}));
  const tuned::Cache cache(argv[1]);
  if (!cache.note.empty()) std::cerr << "lookup: note: " << cache.note << '\n';
  const std::string_view word = argc > 5 ? argv[5] : "exact";
  const uint32_t match = word == "any" ? ATL_MATCH_ANY : word == "kind" ? ATL_MATCH_KIND : ATL_MATCH_EXACT;

  const std::optional<tuned::Hit> hit = cache.lookup(device, argv[3], argv[4], match);
  if (!hit) {
    std::cerr << "lookup: the kernel's default is used: " << cache.explain(device, argv[3], argv[4], match) << '\n';
    return 3;
  }
  const atl_hit_info info = hit->info();
  std::cout << info.config.data << '\n';
  if (info.flags) std::cerr << "lookup: take it with care: " << info.notes.data << '\n';
  std::cout.precision(17);
  for (int i = 6; i < argc; i++) {
    std::cout << argv[i] << '=';
    if (const auto integer = hit->get<int64_t>(argv[i])) {
      std::cout << *integer;
    } else if (const auto number = hit->get<double>(argv[i])) {
      std::cout << *number;
    } else if (const auto truth = hit->get<bool>(argv[i])) {
      std::cout << (*truth ? "true" : "false");
    } else if (const auto value = hit->get<std::string_view>(argv[i])) {
      std::cout << *value;
    } else {
      std::cout << "(nothing)";
    }
    std::cout << '\n';
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "lookup: " << error.what() << '\n';
  return 1;
}
