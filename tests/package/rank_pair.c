/* A program of somebody else's: two ranks, processes of one fork, sum their ranks' numbers. Exit
 * status 0: both were right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unisono/unisono.h>
#include <unistd.h>

#define COUNT 1000

static int check(uniResult_t result, const char* what) {
  if (result == uniSuccess) return 1;
  fprintf(stderr, "%s: %s: %s\n", what, uniGetErrorString(result), uniGetLastError(NULL));
  return 0;
}

static int run_rank(int rank, uniUniqueId id) {
  static float send[COUNT], recv[COUNT];
  uniComm_t comm = NULL;
  int i;
  int wrong = 0;
  for (i = 0; i < COUNT; i++) send[i] = (float)(i + 1000 * rank);
  if (!check(uniCommInitRank(&comm, 2, id, rank), "uniCommInitRank")) return 1;
  if (!check(uniAllReduce(send, recv, COUNT, uniFloat32, uniSum, comm, NULL), "uniAllReduce")) {
    return 1;
  }
  for (i = 0; i < COUNT; i++) wrong += recv[i] != (float)(2 * i + 1000);
  if (!check(uniCommDestroy(comm), "uniCommDestroy")) return 1;
  printf("rank %d: %d of %d sums wrong\n", rank, wrong, COUNT);
  fflush(stdout);
  return wrong != 0;
}

int main(void) {
  int pipe_ends[2];
  uniUniqueId id;
  pid_t child;
  int status = 0;
  int mine;
  memset(&id, 0, sizeof id);
  if (pipe(pipe_ends) != 0) return 1;
  child = fork(); /* Before any call of the library: a forked child may not use its parent's. */
  if (child < 0) return 1;
  if (child == 0) {
    close(pipe_ends[1]);
    if (read(pipe_ends[0], &id, sizeof id) != (ssize_t)sizeof id) return 1;
    return run_rank(1, id);
  }
  close(pipe_ends[0]);
  if (!check(uniGetUniqueId(&id), "uniGetUniqueId")) return 1;
  if (write(pipe_ends[1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
  close(pipe_ends[1]);
  mine = run_rank(0, id);
  if (waitpid(child, &status, 0) != child) return 1;
  return mine != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
