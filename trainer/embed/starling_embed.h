/* SPDX-License-Identifier: Apache-2.0
 *
 * Starling for programs with a loop of their own: a process that opens this library is a member of
 * a job, and each iteration of its loop is a step that the members make together, or that none of
 * them has made. Plain C, so that any language can call it; python/starling/embed is the example.
 *
 *   starling_open(flags, n, &run);                      as early as possible: the job may look now
 *   starling_set_samples(...); starling_add_state(...); starling_add_bucket(...);
 *   starling_start(run);
 *   while (starling_next(run, &step) == STARLING_OK) {
 *     compute the gradients of step.ids; starling_add(run, bucket, ...) for each bucket;
 *     starling_reduce(run, weight, &outcome);
 *     if (outcome == STARLING_COMMITTED) apply the mean gradients to the state;
 *   }
 *   starling_close(run); starling_free(run);
 *
 * Three rules. The library reads and writes the bytes of the state in starling_next and
 * starling_close only, on threads of its own: while they run, and only then, they are the
 * library's, and they must be up to date. A step counts only if starling_reduce says
 * STARLING_COMMITTED: otherwise the state stays as it was, and the same step is given again, cut
 * for whoever is there. All calls come from one thread, but for starling_add, starling_ready and
 * starling_log and starling_log_sum (another thread may make gradients), and starling_order,
 * starling_portions, starling_view and starling_leave (any).
 *
 * A state that lies where the library cannot read it, such as on a GPU, is added as a copy
 * (STARLING_COPIED). The copy need not be up to date: starling_next and starling_close return
 * STARLING_STATE_WANTED when it is about to be read, and are then called again:
 *
 *   while ((code = starling_next(run, &step)) == STARLING_STATE_WANTED) bring the copies up to
 * date;
 *
 * Every function that returns int returns one of the codes; starling_last_error() tells why. To add
 * a function: here, in starling_embed.cc, and in the table of python/starling/embed/_library.py.
 */
#ifndef STARLING_EMBED_H_
#define STARLING_EMBED_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this header says; it grows with each change that older callers could not live with. */
#define STARLING_ABI 1

enum {
  STARLING_OK = 0,
  STARLING_OVER = 1,        /* training is over: leave the loop */
  STARLING_LEFT = 2,        /* the job needs this process no more: end it with 0 */
  STARLING_BAD_INPUT = 3,   /* flags, files or declarations are wrong: end the process with 2 */
  STARLING_FAILED = 4,      /* training cannot go on: end the process with 1 */
  STARLING_MISUSE = 5,      /* calls that do not fit: a mistake in the program */
  STARLING_STATE_WANTED = 6 /* bring what is STARLING_COPIED up to date, and call again */
};

/* Flags of starling_add_state. */
enum {
  STARLING_MODEL = 1, /* stands in the result's model file too */
  STARLING_COPIED = 2 /* the memory is a copy, brought up to date on STARLING_STATE_WANTED */
};
/* Flags of a step. */
enum {
  STARLING_STATE_REPLACED = 1, /* the state was overwritten since the step before: by others' */
  STARLING_REPEATED = 2,       /* the step was given before, and did not count */
  STARLING_INTERRUPTED = 4,    /* a view has broken: some member may have been given the step in it;
                                * all members are told so of a step, or none is */
  STARLING_LAST = 8            /* of training, if its end stays where it is; as well: all or none */
};
/* What became of a step. */
enum {
  STARLING_DROPPED = 0,   /* nothing: it will be given again */
  STARLING_COMMITTED = 1, /* it counts, and the gradients are the mean over all members */
  STARLING_PARTIAL = 2    /* it has another portion for this member, which comes next */
};

typedef struct starling_run starling_run;

typedef struct starling_step {
  int64_t number;        /* from 1 */
  int64_t epoch;         /* from 1 */
  int64_t step_of_epoch; /* from 0 */
  int64_t steps_per_epoch;
  int64_t batch;      /* samples of all members together */
  int64_t position;   /* of this member's first sample, in the order of the epoch */
  int64_t count;      /* this member's samples; perhaps none: then its weight is 0 */
  const int64_t* ids; /* of them; until the next call of starling_next */
  uint64_t view;      /* in which the step is made; 0: none yet */
  int32_t rank;       /* of this member, from 0 */
  int32_t members;
  uint32_t flags;
} starling_step;

int starling_abi(void);
/* Of the last call that failed on this thread; "" if none has. */
const char* starling_last_error(void);

/* Flags and environment are those of the job's roles. From here on the job's coordinator is
 * answered, but this process is no member before starling_start. */
int starling_open(const char* const* arguments, size_t count, starling_run** run);
/* Ends what has not ended, as starling_abandon does. Null is allowed. */
void starling_free(starling_run* run);
/* The job's resolved spec, JSON; as long as the run lives. */
const char* starling_spec(starling_run* run);

/* Before starling_start. */

/* Samples are numbered from 0. `batch` is of all members together; 0: spec.dataset.globalBatchSize.
 * `digest` names the data: members with another one are not let in. Null: it is not compared. */
int starling_set_samples(starling_run* run, int64_t samples, int64_t batch, const char* digest);
/* Training ends after so many passes or steps, where spec.stop says neither; 0: not given. */
int starling_set_end(starling_run* run, int64_t epochs, int64_t steps);
/* What results depend on beside the inputs: compared among the members of a reproducible job. */
int starling_set_identity(starling_run* run, const char* identity);
/* A metric beside "loss", which is number 0; the next one is 1, and there are 8 at most. */
int starling_add_metric(starling_run* run, const char* name);
/* A part of the state: memory that stays where it is until starling_close. Names, types, shapes and
 * order are the same at all members. `type` as in safetensors: BOOL U8 I8 I16 F16 BF16 I32 F32 I64
 * F64. What members begin with may differ: the first one's is everybody's. A member whose parts,
 * buckets or metrics are others is not let in. */
int starling_add_state(starling_run* run, const char* name, const char* type, size_t dimensions,
                       const int64_t* shape, void* data, uint32_t flags);
/* So many 32-bit floats of gradients that are reduced as one; bucket 0 first. */
int starling_add_bucket(starling_run* run, int64_t elements);

int starling_start(starling_run* run);

/* The loop. */

/* Waits for the next step. STARLING_OVER, STARLING_LEFT or STARLING_FAILED: there is none. With
 * STARLING_OVER the step has flags and nothing else: STARLING_STATE_REPLACED, or none.
 * STARLING_STATE_WANTED: there may be one, but first somebody needs the state as it is now. The
 * next call says that all copies hold it. Never without a part that is STARLING_COPIED. */
int starling_next(starling_run* run, starling_step* step);
/* The buckets, one after another. They are the caller's from starling_next to starling_reduce, but
 * for those that are ready, and again from a STARLING_COMMITTED to the next starling_next. A child
 * of a fork does not have them. */
int starling_gradients(starling_run* run, float** data, int64_t* elements);
/* This bucket holds the gradients of the mean loss over this member's samples, times its weight. */
int starling_ready(starling_run* run, int64_t bucket);
/* Copies `elements` values, F32 or F64, times `scale` into the bucket, which is ready then. */
int starling_add(starling_run* run, int64_t bucket, const char* type, const void* values,
                 int64_t elements, double scale);
/* A metric's mean over this member's samples of the step. */
int starling_log(starling_run* run, int64_t metric, double value);
/* What a metric's sum over all members gets from this one, and its count, by which the whole sum is
 * divided: for what members compute of other data than the step's. Not of metric 0. */
int starling_log_sum(starling_run* run, int64_t metric, double sum, double count);
/* A metric's mean over all members, after a STARLING_COMMITTED. */
int starling_mean(starling_run* run, int64_t metric, double* value);
/* Ends this member's part of the step and waits for all others'. Buckets that are not ready count
 * as zero. `weight`: mostly the number of samples; the mean is over the weights of all members. */
int starling_reduce(starling_run* run, double weight, int32_t* outcome);
/* Copies the mean gradients of a bucket, after a STARLING_COMMITTED. */
int starling_take(starling_run* run, int64_t bucket, const char* type, void* into,
                  int64_t elements);

/* The samples that member `rank` of `members` computes of a step, whatever the present view is:
 * for whoever reads ahead. `count` are their number; no more than `capacity` are written. */
int starling_order(starling_run* run, int64_t step, int64_t rank, int64_t members, int64_t* ids,
                   int64_t capacity, int64_t* count);
/* How many of these samples come with each starling_next: all of them, or in a reproducible job
 * those of one of the batch's groups after another, perhaps of none. `count` are the portions; no
 * more than `capacity` are written. */
int starling_portions(starling_run* run, int64_t step, int64_t rank, int64_t members,
                      int64_t* samples, int64_t capacity, int64_t* count);
/* The view that steps are made in: view, rank, members; number is the step that is at hand. */
int starling_view(starling_run* run, starling_step* step);

/* The end. */

/* Asks to be let go, as SIGTERM does; starling_next then returns STARLING_LEFT. */
int starling_leave(starling_run* run);
/* After STARLING_OVER: the result is written now, by one member, and this call waits until the job
 * needs this process no more. Before it: STARLING_MISUSE, and everything ends here at once.
 * STARLING_STATE_WANTED: nothing has ended; as with starling_next. */
int starling_close(starling_run* run);
/* Everything ends here at once, without goodbye: the program has failed. */
void starling_abandon(starling_run* run);

#ifdef __cplusplus
}
#endif

#endif /* STARLING_EMBED_H_ */
