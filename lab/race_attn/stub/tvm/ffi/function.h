// As much of the binding as attend.cu names, for a program without Python.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
struct DLDevice { int device_type, device_id; };
inline void* TVMFFIEnvGetStream(int, int) { return nullptr; }
namespace tvm::ffi {
struct TensorView {
  void* data; int64_t sizes[3];
  void* data_ptr() const { return data; }
  int64_t size(int i) const { return sizes[i]; }
  DLDevice device() const { return {2, 0}; }
};
struct Check {
  bool good;
  template <typename T> const Check& operator<<(const T& x) const { if (!good) say(x); return *this; }
  static void say(const char* x) { fprintf(stderr, "%s", x); }
  static void say(int64_t x) { fprintf(stderr, "%ld", long(x)); }
  ~Check() { if (!good) fprintf(stderr, "\n"), exit(3); }
};
}  // namespace tvm::ffi
#define TVM_FFI_ICHECK(x) tvm::ffi::Check{bool(x)}
#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function)
