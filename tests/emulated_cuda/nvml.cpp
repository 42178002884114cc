// libnvidia-ml.so.1 of a machine with one H200 (device/nvml_probe.cpp has the calls).
#include <cstdio>

namespace {

constexpr int kSuccess = 0;
int card = 0;

int text(char* out, unsigned length, const char* value) {
  std::snprintf(out, length, "%s", value);
  return kSuccess;
}

struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** handle) {
  *handle = &card;
  return kSuccess;
}
int nvmlDeviceGetName(void*, char* out, unsigned length) {
  return text(out, length, "NVIDIA H200 (emulated)");
}
int nvmlDeviceGetUUID(void*, char* out, unsigned length) {
  return text(out, length, "GPU-00000000-0000-0000-0000-000000000000");
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  constexpr unsigned long long kBytes = 141ull << 30;
  *memory = {kBytes, kBytes, 0};
  return kSuccess;
}
int nvmlSystemGetDriverVersion(char* out, unsigned length) { return text(out, length, "emulated"); }

}  // extern "C"
