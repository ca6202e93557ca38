// Takes the place of kernels_bench in a build without CUDA.
#include <cstdio>

int main() {
  std::fprintf(stderr, "kernels_bench: this build has no CUDA: configure again with nvcc 12.4 or newer\n");
  return 2;
}
