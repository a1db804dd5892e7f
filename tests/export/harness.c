/* Ranks the problems on stdin, one a line: "conv" or "gemm", then its fields in the order of the header.
   Prints for each the error, how many kernels apply, and of each its number, score, TFLOPS and ms. C11 and C++17.

   harness MODEL [threads]   MODEL is a file, or a name after "embedded:" */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckh.h"

enum { MOST = 16384, MOST_LINES = 4096, FIELDS = 23 };

typedef struct {
  int is_conv, error;
  ckh_conv_problem conv;
  ckh_gemm_problem gemm;
  ckh_choice *choices;
  size_t count;
} job;

static ckh_model *model;
static job jobs[MOST_LINES];
static int job_count;

static int parse(char *line, job *made) {
  int64_t v[FIELDS];
  int count = 0;
  char *word = strtok(line, " \n");
  if (!word) return 0;
  made->is_conv = !strcmp(word, "conv");
  while (count < FIELDS && (word = strtok(NULL, " \n")) != NULL) v[count++] = strtoll(word, NULL, 10);
  if (made->is_conv) {
    ckh_conv_problem p = {(int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3], v[4],  v[5],  v[6],  v[7],
                          v[8],          v[9],          v[10],         v[11],         v[12], v[13], v[14], v[15],
                          v[16],         v[17],         v[18],         v[19],         v[20], v[21], v[22]};
    made->conv = p;
    return count == 23;
  }
  {
    ckh_gemm_problem p = {(int32_t)v[0], (int32_t)v[1], v[2], v[3], v[4], v[5]};
    made->gemm = p;
  }
  return count == 6;
}

static void run(job *one) {
  if (one->is_conv)
    one->error = ckh_rank_conv(model, &one->conv, 0, one->choices, MOST, &one->count);
  else
    one->error = ckh_rank_gemm(model, &one->gemm, 0, one->choices, MOST, &one->count);
}

static void *run_all(void *result) {
  job mine;
  int *differing = (int *)result;
  mine.choices = (ckh_choice *)malloc(MOST * sizeof *mine.choices);
  for (int i = 0; mine.choices && i < job_count; i++) {
    ckh_choice *own = mine.choices;
    mine = jobs[i];
    mine.choices = own;
    run(&mine);
    *differing += mine.error != jobs[i].error || mine.count != jobs[i].count;
    for (size_t k = 0; k < mine.count; k++)
      *differing += own[k].kernel != jobs[i].choices[k].kernel || own[k].score < jobs[i].choices[k].score ||
                    own[k].score > jobs[i].choices[k].score;
  }
  free(mine.choices);
  return NULL;
}

static int run_threads(int threads) {
  pthread_t started[64];
  int differing[64] = {0}, all = 0;
  for (int i = 0; i < threads; i++)
    if (pthread_create(started + i, NULL, run_all, differing + i)) return -1;
  for (int i = 0; i < threads; i++) {
    pthread_join(started[i], NULL);
    all += differing[i];
  }
  return all;
}

int main(int argc, char **argv) {
  static char line[1024];
  const char *embedded = "embedded:";
  const int threads = argc > 2 ? atoi(argv[2]) : 0;
  int error;
  if (argc < 2) return 2;
  error = strncmp(argv[1], embedded, strlen(embedded)) ? ckh_open_file(argv[1], &model)
                                                       : ckh_open_embedded(argv[1] + strlen(embedded), &model);
  printf("open %d %s\n", error, ckh_error_string(error));
  if (error) return 0;
  printf("model %s: %s\n", ckh_model_name(model), ckh_model_purpose(model));
  while (job_count < MOST_LINES && fgets(line, sizeof line, stdin)) {
    job *one = jobs + job_count++;
    if (!parse(line, one)) return 2;
    one->choices = (ckh_choice *)malloc(MOST * sizeof *one->choices);
    if (!one->choices) return 2;
    run(one);
    printf("problem %d %lu\n", one->error, (unsigned long)one->count);
    for (size_t k = 0; k < one->count; k++)
      printf("%s %a %a %a\n", ckh_kernel_name(model, one->choices[k].kernel), one->choices[k].score,
             one->choices[k].tflops, one->choices[k].latency_ms);
    if (!threads) {
      free(one->choices);
      one->choices = NULL;
    }
  }
  if (threads) printf("differing %d\n", run_threads(threads));
  for (int i = 0; i < job_count; i++) free(jobs[i].choices);
  ckh_close(model);
  return 0;
}
