// One call of attend.cu without Python: call CLUSTER TOKEN..., a token is ranges of slots with valid entries: 0-2,64-66
#include "attend.cu"
#include <cmath>
#include <cstring>
#include <string>
#include <vector>
static uint32_t state = 1;
static float uniform() { state = state * 1664525u + 1013904223u; return (state >> 8) / 8388608.0f - 1.0f; }
static float normal() { return (uniform() + uniform() + uniform()) * 1.0f; }
static std::vector<__nv_bfloat16> values(size_t n) { std::vector<__nv_bfloat16> x(n); for (auto& v : x) v = __float2bfloat16(normal()); return x; }
template <typename T> static T* on_device(const std::vector<T>& x) { T* p; if (cudaMalloc(&p, x.size() * sizeof(T)) || cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice)) exit(4); return p; }
int main(int argc, char** argv) {
  const int cluster = atoi(argv[1]), tokens = argc - 2, pages = 40, rows = pages * 64;
  auto qn = values(size_t(tokens) * 16 * 512), qp = values(size_t(tokens) * 16 * 64), ckv = values(size_t(rows) * 512), kpe = values(size_t(rows) * 64);
  std::vector<int> slots(size_t(tokens) * 2048, -1);
  for (int t = 0; t < tokens; ++t) for (char* part = strtok(strdup(argv[2 + t]), ","); part; part = strtok(nullptr, ",")) {
    int a, b; if (sscanf(part, "%d-%d", &a, &b) != 2) return 2;
    for (int s = a; s < b; ++s) slots[t * 2048 + s] = (s * 1237 + 11 * t + 5) % rows;
  }
  std::vector<__nv_bfloat16> out(size_t(tokens) * 16 * 512); std::vector<float> lse(tokens * 16, NAN);
  auto *o = on_device(out); auto* l = on_device(lse);
  attend({on_device(qn), {tokens, 16, 512}}, {on_device(qp), {tokens, 16, 64}}, {on_device(ckv), {pages, 64, 512}}, {on_device(kpe), {pages, 64, 64}}, {on_device(slots), {tokens, 2048}}, 0.1352337788608801, {o, {tokens, 16, 512}}, {l, {tokens, 16}}, cluster);
  const cudaError_t error = cudaDeviceSynchronize();
  cudaMemcpy(out.data(), o, out.size() * 2, cudaMemcpyDeviceToHost); cudaMemcpy(lse.data(), l, lse.size() * 4, cudaMemcpyDeviceToHost);
  double worst = 0, worst_lse = 0;
  for (int t = 0; t < tokens; ++t) for (int h = 0; h < 16; ++h) {
    std::vector<int> chosen; for (int s = 0; s < 2048; ++s) if (slots[t * 2048 + s] >= 0) chosen.push_back(slots[t * 2048 + s]);
    std::vector<double> weight; double top = -INFINITY, total = 0;
    for (int row : chosen) { double s = 0; for (int i = 0; i < 512; ++i) s += double(__bfloat162float(qn[(t * 16 + h) * 512 + i])) * __bfloat162float(ckv[size_t(row) * 512 + i]); for (int i = 0; i < 64; ++i) s += double(__bfloat162float(qp[(t * 16 + h) * 64 + i])) * __bfloat162float(kpe[size_t(row) * 64 + i]); weight.push_back(s * 0.1352337788608801); top = fmax(top, weight.back()); }
    for (auto& w : weight) total += w = exp(w - top);
    worst_lse = fmax(worst_lse, fabs((top + log(total)) / log(2.0) - lse[t * 16 + h]));
    for (int c = 0; c < 512; ++c) { double want = 0; for (size_t j = 0; j < chosen.size(); ++j) want += weight[j] / total * __bfloat162float(ckv[size_t(chosen[j]) * 512 + c]); worst = fmax(worst, fabs(want - __bfloat162float(out[(t * 16 + h) * 512 + c]))); }
  }
  printf("ended: %s, output off by %.4f, lse by %.5f: %s\n", cudaGetErrorString(error), worst, worst_lse, worst < 0.03 && worst_lse < 1e-3 ? "right" : "WRONG");
}
