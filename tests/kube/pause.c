// SPDX-License-Identifier: Apache-2.0
// The first process of a pod's sandbox in the test cluster: it holds the pod's namespaces, collects
// orphans and waits until it is told to end.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void End(int number) {
  (void)number;
  _exit(0);
}

static void Collect(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

int main(void) {
  signal(SIGTERM, End);
  signal(SIGINT, End);
  signal(SIGCHLD, Collect);
  for (;;) pause();
}
