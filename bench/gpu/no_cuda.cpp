// Takes the place of a benchmark in a build without CUDA.
#include <cstdio>

int main() {
  std::fprintf(stderr, "this build has no CUDA: configure again with nvcc 12.4 or newer\n");
  return 2;
}
