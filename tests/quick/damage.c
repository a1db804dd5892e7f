/* Opens a prepared model thousands of times with something wrong in it, and ranks with what opens all the same.

   damage MODEL RUNS SEED KEY… -- SIZE…; prints how many opened, and how many ranked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckh_internal.h"

enum { HEADER = 32, CHECKSUM = 24, MOST = 4096 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33) % below;
}

static void put(unsigned char *data, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) data[at + i] = (unsigned char)(value >> 8 * i);
}

static uint32_t crc32_of(const unsigned char *data, size_t bytes) {
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

/* Most damage goes where the program is: behind the names, before the forests. */
static void damage(unsigned char *data, size_t bytes, size_t from, size_t until) {
  static const uint32_t values[] = {0, 1, 2, 3, 4, 5, 7, 63, 64, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 4096};
  for (uint32_t times = 1 + draw(3); times; times--) {
    const int is_program = draw(8) != 0;
    const size_t low = is_program ? from / 4 : HEADER / 4, high = is_program ? until / 4 : bytes / 4;
    const size_t at = 4 * (low + draw((uint32_t)(high - low)));
    uint32_t old;
    memcpy(&old, data + at, 4);
    switch (draw(4)) {
      case 0: put(data, at, values[draw(sizeof values / sizeof *values)], 4); break;
      case 1: put(data, at, old + 1, 4); break;
      case 2: put(data, at, old - 1, 4); break;
      default: put(data, at, old ^ (uint32_t)1 << draw(32), 4);
    }
  }
}

int main(int argc, char **argv) {
  static ckh_choice choices[MOST];
  int32_t key[CKH_KEYS];
  int64_t size[CKH_MOST_SIZES] = {0};
  const size_t from = argc > 6 ? (size_t)atoll(argv[4]) : 0, until = argc > 6 ? (size_t)atoll(argv[5]) : 0;
  FILE *file = argc > 6 + CKH_KEYS ? fopen(argv[1], "rb") : NULL;
  int opened = 0, ranked = 0, runs;
  unsigned char *whole, *data;
  size_t bytes, count;
  if (!file || fseek(file, 0, SEEK_END)) return 2;
  bytes = (size_t)ftell(file);
  rewind(file);
  runs = atoi(argv[2]);
  state = (uint64_t)atoi(argv[3]);
  for (int i = 0; i < CKH_KEYS; i++) key[i] = atoi(argv[6 + i]);
  for (int i = 6 + CKH_KEYS; i < argc; i++) size[i - 6 - CKH_KEYS] = atoll(argv[i]);
  whole = (unsigned char *)malloc(bytes);
  if (!whole || fread(whole, 1, bytes, file) != bytes) return 2;
  fclose(file);
  for (int i = 0; i < runs; i++) {
    ckh_model *model;
    const size_t left = i % 8 == 7 ? draw((uint32_t)bytes) : bytes;
    data = (unsigned char *)malloc(left ? left : 1); /* of this size, so that a sanitizer sees what lies beyond */
    if (!data) return 2;
    memcpy(data, whole, left);
    if (left == bytes && i) damage(data, bytes, from, until);
    if (left >= HEADER) {
      put(data, 16, left, 8);
      put(data, CHECKSUM, crc32_of(data + HEADER, left - HEADER), 4);
    }
    if (!ckh_open_memory(data, left, &model)) {
      opened++;
      ranked += !ckh_rank_sizes(model, key, size, 0, choices, MOST, &count);
      ckh_close(model);
    }
    free(data);
  }
  printf("%d %d\n", opened, ranked);
  free(whole);
  return 0;
}
