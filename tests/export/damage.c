/* Opens a model thousands of times with something wrong in it, and ranks with what opens all the same.

   damage MODEL RUNS SEED; prints how many opened, and how many times each error came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckh.h"

enum { HEADER = 32, CHECKSUM = 24, ERRORS = 11, MOST = 4096 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33) % below;
}

static uint32_t crc32_of(const unsigned char *data, size_t bytes) {
  static uint32_t table[256];
  uint32_t crc = 0xffffffffu;
  for (uint32_t i = 0; !table[255] && i < 256; i++) {
    uint32_t entry = i;
    for (int bit = 0; bit < 8; bit++) entry = entry >> 1 ^ (entry & 1 ? 0xedb88320u : 0);
    table[i] = entry;
  }
  for (size_t i = 0; i < bytes; i++) crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xff];
  return ~crc;
}

static void put(unsigned char *data, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) data[at + i] = (unsigned char)(value >> 8 * i);
}

/* Puts something wrong anywhere, but mostly where counts and indices are. */
static void damage(unsigned char *data, size_t bytes) {
  static const uint32_t values[] = {0, 1, 2, 3, 7, 63, 64, 65, 255, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe,
                                    0x10000000, 0x3fffffff, 4095, 4096, 4097};
  const uint32_t words = (uint32_t)(bytes / 4);
  for (uint32_t times = 1 + draw(3); times; times--) {
    const size_t at = 4 * (size_t)draw(words);
    const uint32_t how = draw(4);
    uint32_t old;
    memcpy(&old, data + at, 4);
    if (how == 0)
      put(data, at, values[draw(sizeof values / sizeof *values)], 4);
    else if (how == 1)
      put(data, at, old + 1, 4);
    else if (how == 2)
      put(data, at, old - 1, 4);
    else
      put(data, at, old ^ (uint32_t)1 << draw(32), 4);
  }
}

static void rank(const ckh_model *model, int *errors) {
  static ckh_choice choices[MOST];
  ckh_conv_problem conv;
  ckh_gemm_problem gemm;
  size_t count;
  int error;
  ckh_conv_defaults(&conv);
  conv.n = 2, conv.c = conv.k = 64, conv.g = 2, conv.hi = conv.wi = 14, conv.y = conv.x = 3;
  ckh_gemm_defaults(&gemm);
  gemm.m = 100, gemm.n = 256, gemm.k = 512;
  for (int i = 0; i < 4; i++) {
    conv.ndim = 2 + (i & 1);
    conv.dtype = i & 2 ? CKH_BF16 : CKH_FP32;
    gemm.layout = i;
    error = ckh_rank_conv(model, &conv, 0, choices, MOST, &count);
    errors[error]++;
    for (size_t k = 0; !error && k < count; k++)
      if (!ckh_kernel_name(model, choices[k].kernel)) abort();
    error = ckh_rank_gemm(model, &gemm, 0, choices, MOST, &count);
    errors[error]++;
  }
}

int main(int argc, char **argv) {
  FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
  static int opened[ERRORS], ranked[ERRORS];
  unsigned char *whole, *data;
  size_t bytes;
  int runs;
  if (!file || fseek(file, 0, SEEK_END)) return 2;
  bytes = (size_t)ftell(file);
  rewind(file);
  runs = atoi(argv[2]);
  state = (uint64_t)atoi(argv[3]);
  whole = (unsigned char *)malloc(bytes);
  if (!whole || fread(whole, 1, bytes, file) != bytes) return 2;
  fclose(file);
  for (int i = 0; i < runs; i++) {
    ckh_model *model;
    size_t left = bytes;
    int error;
    if (i % 4 == 3) left = i % 8 == 3 ? draw((uint32_t)bytes) : draw(200); /* cut off */
    data = (unsigned char *)malloc(left ? left : 1); /* of this size, so that a sanitizer sees what lies beyond */
    if (!data) return 2;
    memcpy(data, whole, left);
    if (left == bytes) damage(data, bytes);
    if (left >= HEADER && i % 5) { /* mostly with sizes and checksums that are right */
      put(data, 16, left, 8);
      put(data, CHECKSUM, crc32_of(data + HEADER, left - HEADER), 4);
    }
    error = ckh_open_memory(data, left, &model);
    opened[error]++;
    if (!error) rank(model, ranked);
    ckh_close(model);
    free(data);
  }
  for (int i = 0; i < ERRORS; i++) printf("%d %d %d\n", i, opened[i], ranked[i]);
  free(whole);
  return 0;
}
