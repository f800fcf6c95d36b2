// SPDX-License-Identifier: Apache-2.0
// The peer of bench/allreduce.py: MPI_Allreduce in place, float32, timed as
// starling-allreduce-bench times. Arguments: SECONDS BYTES...; built by bench/allreduce.py.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

double Timed(std::vector<float>& data) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const double seconds = std::atof(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const long bytes = std::atol(argv[i]);
    std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float), 1.0F);
    double last = 0;
    for (int call = 0; call < 3; ++call) last = Timed(data);
    int calls = std::clamp(static_cast<int>(seconds / last), 5, 2000);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::vector<double> times;
    for (int call = 0; call < calls; ++call) times.push_back(Timed(data));
    std::sort(times.begin(), times.end());
    if (rank == 0) {
      std::printf("{\"bytes\": %ld, \"seconds\": %.9f}\n", bytes, times[times.size() / 2]);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
