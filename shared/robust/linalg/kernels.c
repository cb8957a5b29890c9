/* Passes over rows of numbers: one library per element type.
 *
 * native.py builds this file with -DREAL=float|double (the type of the rows' numbers) and
 * -DWIDE=float|double (the type that products are computed in). A call gets pointers to `count`
 * rows of `width` numbers, splits the columns into parts, and adds up the sums of the parts in
 * order. The same input and the same number of parts therefore give the same bits, whichever
 * threads do the work. Every function returns 0, or 1 if it cannot allocate memory.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES (BYTES / sizeof(WIDE))
#define MOST_THREADS 256
#define MOST_PARTS 64
#define SMALL (1 << 17) /* numbers that are not worth waking a second thread for */
#define SPAN 1024 /* columns that one block of products covers */
#define STRIDE (SPAN + 16) /* keeps the rows of a tile apart in the cache's sets */

typedef WIDE vec __attribute__((vector_size(BYTES)));

typedef struct {
  const REAL *const *rows;
  int64_t count, begin, end;
  const int64_t *mix_starts; /* of every mixed row in the two lists below; null: rows as they are */
  const int32_t *mix_from;
  const REAL *mix_by;
  int64_t mixed;
  const double *centre;  /* subtracted from every row, or null */
  const REAL *about;     /* one of the rows, subtracted from every row, or null */
  const double *weights;
  const int64_t *columns;
  const int16_t *ops;
  int64_t n_ops, first, last;
  double tie;
  REAL *out;
  double *sums;
  int failed;
} part;

/* libgomp's entry point, so that torch's own threads, which may still be awake, do the work. */
typedef void gomp_parallel(void (*)(void *), void *, unsigned, unsigned);

typedef struct {
  int threads;
  int parts;                /* number of parts of the columns; decides the order of additions */
  gomp_parallel *parallel;  /* null: threads of our own */
} crew;

typedef struct {
  part parts[MOST_PARTS];
  int count, next;
  void (*work)(part *);
} job;

static void take_parts(void *argument) {
  job *j = argument;
  for (;;) {
    int t = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED);
    if (t >= j->count) return;
    j->work(&j->parts[t]);
  }
}

static void *take_parts_alone(void *argument) {
  take_parts(argument);
  return 0;
}

/* Splits the columns into parts of whole grains, runs the work on them, and adds up their sums. */
static int run(part whole, int64_t width, int64_t grain, const crew *by, double *partial,
               int64_t sums, void (*work)(part *)) {
  job j = {.work = work};
  int64_t grains = (width + grain - 1) / grain;
  int threads = by->threads < MOST_THREADS ? by->threads : MOST_THREADS;
  int64_t parts = by->parts < MOST_PARTS ? by->parts : MOST_PARTS;
  if (parts > grains) parts = grains;
  if (threads > parts) threads = (int)parts;
  if (whole.count * width < SMALL) threads = 1;
  for (int64_t t = 0; t < parts; t++) {
    j.parts[t] = whole;
    j.parts[t].begin = grains * t / parts * grain;
    j.parts[t].end = t + 1 == parts ? width : grains * (t + 1) / parts * grain;
    j.parts[t].sums = partial + t * sums;
  }
  j.count = (int)parts;
  if (threads > 1 && by->parallel) {
    by->parallel(take_parts, &j, (unsigned)threads, 0);
  } else {
    pthread_t ids[MOST_THREADS];
    int started = 0;
    while (started < threads - 1 && !pthread_create(&ids[started], 0, take_parts_alone, &j))
      started++;
    take_parts(&j);
    for (int t = 0; t < started; t++) pthread_join(ids[t], 0);
  }
  int failed = 0;
  for (int64_t t = 0; t < parts; t++) failed |= j.parts[t].failed;
  for (int64_t t = 1; t < parts && sums; t++)
    for (int64_t k = 0; k < sums; k++) partial[k] += partial[t * sums + k];
  return failed;
}

/* Whether one of these numbers is not finite. The test uses exponent bits, because the build flags
 * promise the compiler that all numbers are finite. Adding 1 to the exponent carries into the sign
 * bit only if all bits of the exponent are ones. */
static int not_finite(const REAL *x, int64_t count) {
#define CARRIES(type, sign, one)                  \
  {                                               \
    type bits, seen = 0;                          \
    for (int64_t k = 0; k < count; k++) {         \
      memcpy(&bits, x + k, sizeof bits);          \
      seen |= (bits & ~(type)(sign)) + (one);     \
    }                                             \
    return (seen & (sign)) != 0;                  \
  }
  if (sizeof(REAL) == 4) CARRIES(uint32_t, 0x80000000u, 0x00800000u)
  else CARRIES(uint64_t, 0x8000000000000000ull, 0x0010000000000000ull)
}

/* ---- ranks: a pruned sorting network on tiles of columns, then a mean over ranks ---- */

enum { KEEP_MIN = 1, KEEP_MAX = 2 };

#define NETWORK(W)                                                                        \
  static void network_##W(REAL *tile, const int16_t *ops, int64_t n_ops) {                \
    for (int64_t o = 0; o < n_ops; o++) {                                                 \
      REAL *restrict a = __builtin_assume_aligned(tile + (int64_t)ops[3 * o] * W, 64);     \
      REAL *restrict b = __builtin_assume_aligned(tile + (int64_t)ops[3 * o + 1] * W, 64); \
      int kind = ops[3 * o + 2];                                                          \
      if (kind == (KEEP_MIN | KEEP_MAX))                                                  \
        for (int k = 0; k < W; k++) {                                                     \
          REAL x = a[k], y = b[k];                                                        \
          a[k] = x < y ? x : y;                                                           \
          b[k] = x < y ? y : x;                                                           \
        }                                                                                 \
      else if (kind == KEEP_MIN)                                                          \
        for (int k = 0; k < W; k++) a[k] = a[k] < b[k] ? a[k] : b[k];                     \
      else                                                                                \
        for (int k = 0; k < W; k++) b[k] = a[k] < b[k] ? b[k] : a[k];                     \
    }                                                                                     \
  }
NETWORK(64)
NETWORK(128)
NETWORK(256)

/* Mean of the ranks first .. last - 1. */
static void mean_of_ranks(const REAL *tile, int64_t w, const part *p, double *sum, REAL *out) {
  for (int64_t k = 0; k < w; k++) sum[k] = 0;
  for (int64_t r = p->first; r < p->last; r++)
    for (int64_t k = 0; k < w; k++) sum[k] += tile[r * w + k];
  double share = 1.0 / (double)(p->last - p->first);
  for (int64_t k = 0; k < w; k++) out[k] = (REAL)(sum[k] * share);
}

/* Mean of the `keep` ranks nearest the median; of two equally near ranks, the lower is used. In
 * sorted order these ranks are contiguous: rank j + keep replaces rank j while
 * x[j] + x[j+keep] < 2 median by more than the share `tie` of both. */
static void mean_near_median(const REAL *tile, int64_t w, const part *p, double *sum,
                             unsigned char *left, REAL *out) {
  int64_t m = p->count, keep = p->last, spare = m - keep;
  const REAL *low = tile + (m - 1) / 2 * w, *high = tile + m / 2 * w;
  for (int64_t j = 0; j < spare; j++)
    for (int64_t k = 0; k < w; k++) {
      double one = tile[j * w + k], other = tile[(j + keep) * w + k];
      double nearer = (double)low[k] + high[k] - (one + other);
      left[j * w + k] = nearer > p->tie * (__builtin_fabs(one) + __builtin_fabs(other));
    }
  for (int64_t k = 0; k < w; k++) sum[k] = 0;
  for (int64_t j = 0; j < m; j++) {
    const REAL *x = tile + j * w;
    const unsigned char *out_left = j < spare ? left + j * w : 0;
    const unsigned char *in_right = j >= keep ? left + (j - keep) * w : 0;
    if (out_left && in_right)
      for (int64_t k = 0; k < w; k++) sum[k] += in_right[k] > out_left[k] ? x[k] : (REAL)0;
    else if (out_left)
      for (int64_t k = 0; k < w; k++) sum[k] += out_left[k] ? (REAL)0 : x[k];
    else if (in_right)
      for (int64_t k = 0; k < w; k++) sum[k] += in_right[k] ? x[k] : (REAL)0;
    else
      for (int64_t k = 0; k < w; k++) sum[k] += x[k];
  }
  for (int64_t k = 0; k < w; k++) out[k] = (REAL)(sum[k] / (double)keep);
}

/* Loads one tile of every row, and prefetches the next tile. */
static void load_tile(const part *p, int64_t c, int64_t w, REAL *tile) {
  int64_t have = p->end - c < w ? p->end - c : w;
  for (int64_t i = 0; i < p->count; i++) {
    const REAL *row = p->rows[i] + c;
    if (c + 2 * w <= p->end)
      for (int64_t k = 0; k < w; k += 64 / sizeof(REAL)) __builtin_prefetch(row + w + k);
    if (have < w) memset(tile + i * w, 0, (size_t)w * sizeof(REAL));
    memcpy(tile + i * w, row, (size_t)have * sizeof(REAL));
  }
}

typedef REAL lanes __attribute__((vector_size(BYTES)));
#define MIX_LANES ((int64_t)(BYTES / sizeof(REAL)))

/* Computes mixed rows. The first row becomes an additional source row for the other rows. */
static void mix_tile(const part *p, int64_t w, REAL *source, REAL *tile) {
  for (int64_t i = 0; i <= p->mixed; i++) {
    REAL *to = i ? tile + (i - 1) * w : source + p->count * w;
    for (int64_t c = 0; c < w; c += 4 * MIX_LANES) {
      lanes s[4];
      memset(s, 0, sizeof s);
      for (int64_t k = p->mix_starts[i]; k < p->mix_starts[i + 1]; k++) {
        const lanes *x = (const lanes *)(source + p->mix_from[k] * w + c);
        REAL weight = p->mix_by[k];
        s[0] += weight * x[0];
        s[1] += weight * x[1];
        s[2] += weight * x[2];
        s[3] += weight * x[3];
      }
      memcpy(to + c, s, sizeof s);
    }
  }
}

static void ranks(part *p) {
  int mix = p->mix_starts != 0;
  int64_t pool = p->count, n = mix ? p->mixed : pool, held = mix ? n + pool : n;
  int64_t w = held <= 40 ? 256 : held <= 80 ? 128 : 64;
  part view = *p;
  view.count = n;
  REAL *tile = aligned_alloc(64, (size_t)(n * w) * sizeof(REAL));
  REAL *source = mix ? aligned_alloc(64, (size_t)((pool + 1) * w) * sizeof(REAL)) : tile;
  unsigned char *left = malloc((size_t)(n * w));
  double sum[256];
  REAL result[256];
  p->failed = !tile || !source || !left;
  for (int64_t c = p->begin; !p->failed && c < p->end; c += w) {
    load_tile(p, c, w, source);
    *p->sums += not_finite(source, pool * w);
    if (mix) mix_tile(p, w, source, tile);
    if (w == 256) network_256(tile, p->ops, p->n_ops);
    else if (w == 128) network_128(tile, p->ops, p->n_ops);
    else network_64(tile, p->ops, p->n_ops);
    if (p->first >= 0) mean_of_ranks(tile, w, &view, sum, result);
    else mean_near_median(tile, w, &view, sum, left, result);
    memcpy(p->out + c, result, (size_t)(p->end - c < w ? p->end - c : w) * sizeof(REAL));
  }
  if (source != tile) free(source);
  free(tile);
  free(left);
}

/* first < 0 asks for the mean of the `last` ranks nearest the median. partial: one zero per part;
 * afterwards, the first number is above 0 if a number that is not finite was read. */
int rampart_ranks(const REAL *const *rows, int64_t count, int64_t width, const int64_t *mix_starts,
                  const int32_t *mix_from, const REAL *mix_by, int64_t mixed, const int16_t *ops,
                  int64_t n_ops, int64_t first, int64_t last, double tie, REAL *out,
                  double *partial, const crew *by) {
  part whole = {.rows = rows, .count = count, .mix_starts = mix_starts, .mix_from = mix_from,
                .mix_by = mix_by, .mixed = mixed, .ops = ops, .n_ops = n_ops, .first = first,
                .last = last, .tie = tie, .out = out};
  return run(whole, width, 1024, by, partial, 1, ranks);
}

/* ---- sums ---- */

#define BLOCK 1024    /* columns that are never split between threads */
#define TILE 64       /* columns of a sum that stays in registers */
#define NEXT 256      /* how far ahead of its use a row of a tile is fetched */
#define AHEAD 1024    /* how far ahead of its use a row is fetched */
#define STRETCH 16384 /* columns of a row that are read in one go */

static void weighted_sum(part *p) {
  for (int64_t c = p->begin; c < p->end; c += TILE) {
    int64_t w = p->end - c < TILE ? p->end - c : TILE;
    double sum[TILE] = {0};
    for (int64_t i = 0; i < p->count && w == TILE; i++) {
      const REAL *restrict row = p->rows[i] + c;
      double weight = p->weights[i];
      for (int64_t k = 0; k < TILE; k += 64 / sizeof(REAL)) __builtin_prefetch(row + NEXT + k);
      for (int64_t k = 0; k < TILE; k++) sum[k] += weight * row[k];
    }
    for (int64_t i = 0; i < p->count && w < TILE; i++)
      for (int64_t k = 0; k < w; k++) sum[k] += p->weights[i] * p->rows[i][c + k];
    for (int64_t k = 0; k < w; k++) p->out[c + k] = (REAL)sum[k];
    *p->sums += not_finite(p->out + c, w);
  }
}

/* partial: as above, but for the numbers of the result instead of those that were read. */
int rampart_weighted_sum(const REAL *const *rows, int64_t count, int64_t width,
                         const double *weights, REAL *out, double *partial, const crew *by) {
  part whole = {.rows = rows, .count = count, .weights = weights, .out = out};
  return run(whole, width, BLOCK, by, partial, 1, weighted_sum);
}

/* Rows are widened to double, one register at a time, before any computation. */
#define DOUBLES ((int64_t)(BYTES / sizeof(double)))
typedef REAL reals __attribute__((vector_size(BYTES / sizeof(double) * sizeof(REAL))));
typedef double doubles __attribute__((vector_size(BYTES)));

static inline doubles widened(const REAL *from) {
  reals x;
  memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, doubles);
}

static inline double lanes_sum(doubles v) {
  double total = 0;
  for (int l = 0; l < DOUBLES; l++) total += v[l];
  return total;
}

/* sums[2i] += |row_i - centre|², sums[2i+1] += <row_i, centre> (0 without a centre). */
static void products(part *p) {
  static const double zeros[STRETCH];
  for (int64_t c = p->begin; c < p->end; c += STRETCH) {
    int64_t w = p->end - c < STRETCH ? p->end - c : STRETCH, step = 2 * DOUBLES, k;
    const double *centre = p->centre ? p->centre + c : zeros;
    for (int64_t i = 0; i < p->count; i++) {
      const REAL *row = p->rows[i] + c;
      doubles square[2] = {{0}}, product[2] = {{0}};
      if (!p->centre)
        for (k = 0; k + step <= w; k += step) {
          __builtin_prefetch(row + k + AHEAD);
          for (int h = 0; h < 2; h++) {
            doubles x = widened(row + k + h * DOUBLES);
            square[h] += x * x;
          }
        }
      else
        for (k = 0; k + step <= w; k += step) {
          __builtin_prefetch(row + k + AHEAD);
          for (int h = 0; h < 2; h++) {
            doubles x = widened(row + k + h * DOUBLES), z;
            memcpy(&z, centre + k + h * DOUBLES, sizeof z);
            square[h] += (x - z) * (x - z);
            product[h] += x * z;
          }
        }
      double a = lanes_sum(square[0] + square[1]), b = lanes_sum(product[0] + product[1]);
      for (; k < w; k++) {
        double x = row[k], z = centre[k];
        a += (x - z) * (x - z);
        b += x * z;
      }
      p->sums[2 * i] += a;
      p->sums[2 * i + 1] += b;
    }
  }
}

/* partial: parts x 2 count zeros; the result is left in its first 2 count numbers. */
int rampart_products(const REAL *const *rows, int64_t count, int64_t width, const double *centre,
                     double *partial, const crew *by) {
  part whole = {.rows = rows, .count = count, .centre = centre};
  return run(whole, width, STRETCH, by, partial, 2 * count, products);
}

/* sums[2i] += how many numbers of a row are above 0, sums[2i+1] += how many are below. */
static void signs(part *p) {
  for (int64_t i = 0; i < p->count; i++) {
    const REAL *row = p->rows[i];
    int64_t above = 0, below = 0;
    if (p->columns)
      for (int64_t k = p->begin; k < p->end; k++) {
        above += row[p->columns[k]] > 0;
        below += row[p->columns[k]] < 0;
      }
    else
      for (int64_t k = p->begin; k < p->end; k++) {
        above += row[k] > 0;
        below += row[k] < 0;
      }
    p->sums[2 * i] += (double)above;
    p->sums[2 * i + 1] += (double)below;
  }
}

/* Reads the `width` columns in `columns`, or the first `width` columns if `columns` is null.
 * partial: parts x 2 count zeros. */
int rampart_signs(const REAL *const *rows, int64_t count, int64_t width, const int64_t *columns,
                  double *partial, const crew *by) {
  part whole = {.rows = rows, .count = count, .columns = columns};
  return run(whole, width, BLOCK, by, partial, 2 * count, signs);
}

/* ---- Gram matrix: products of 4 x 4 rows held in registers, sums over blocks in double ---- */

static void load_span(const part *p, int64_t c, int64_t w, WIDE *tile, int64_t padded) {
  for (int64_t i = 0; i < padded; i++) {
    WIDE *restrict to = tile + i * STRIDE;
    if (i >= p->count) {
      if (c == p->begin) memset(to, 0, SPAN * sizeof(WIDE));
      continue;
    }
    const REAL *restrict row = p->rows[i] + c;
    const REAL *restrict about = p->about ? p->about + c : 0;
    if (about)
      for (int64_t k = 0; k < w; k++) to[k] = (WIDE)row[k] - (WIDE)about[k];
    else
      for (int64_t k = 0; k < w; k++) to[k] = (WIDE)row[k];
    for (int64_t k = w; k < SPAN; k++) to[k] = 0;
  }
}

static void gram(part *p) {
  int64_t n = p->count, padded = (n + 3) / 4 * 4;
  WIDE *tile = aligned_alloc(64, (size_t)(padded * STRIDE) * sizeof(WIDE));
  if (!tile) {
    p->failed = 1;
    return;
  }
  for (int64_t c = p->begin; c < p->end; c += SPAN) {
    int64_t w = p->end - c < SPAN ? p->end - c : SPAN;
    load_span(p, c, w, tile, padded);
    for (int64_t i = 0; i < padded; i += 4)
      for (int64_t j = 0; j <= i; j += 4) {
        const vec *a[4], *b[4];
        vec s[4][4];
        memset(s, 0, sizeof s);
        for (int q = 0; q < 4; q++) {
          a[q] = (const vec *)(tile + (i + q) * STRIDE);
          b[q] = (const vec *)(tile + (j + q) * STRIDE);
        }
        for (int64_t k = 0; k < (int64_t)(SPAN / LANES); k++) {
          vec y0 = b[0][k], y1 = b[1][k], y2 = b[2][k], y3 = b[3][k];
#define ROW(q)                  \
  {                             \
    vec x = a[q][k];            \
    s[q][0] += x * y0;          \
    s[q][1] += x * y1;          \
    s[q][2] += x * y2;          \
    s[q][3] += x * y3;          \
  }
          ROW(0) ROW(1) ROW(2) ROW(3)
        }
        for (int q = 0; q < 4 && i + q < n; q++)
          for (int r = 0; r < 4 && j + r <= i + q; r++) {
            WIDE lane[LANES];
            memcpy(lane, &s[q][r], sizeof lane);
            for (int half = LANES / 2; half; half /= 2)
              for (int l = 0; l < half; l++) lane[l] += lane[l + half];
            p->sums[(i + q) * n + j + r] += lane[0];
          }
      }
  }
  free(tile);
}

/* Lower triangle of <row_i - about, row_j - about>; partial: parts x count² zeros. */
int rampart_gram(const REAL *const *rows, int64_t count, int64_t width, const REAL *about,
                 double *partial, const crew *by) {
  part whole = {.rows = rows, .count = count, .about = about};
  return run(whole, width, SPAN, by, partial, count * count, gram);
}
