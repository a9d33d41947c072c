/* Measuring a part of a program with gpuwhy, from C, C++ or another language: link libgpuwhy_c.so.
 *
 * Made from capi/src/lib.rs; `GPUWHY_BLESS=1 cargo test -p gpuwhy-c --test main` renews it.
 * All functions can be called from every thread. None writes to stdout or ends the program. */

#ifndef GPUWHY_H
#define GPUWHY_H

#include <stddef.h>
#include <stdint.h>

/**
 * What a function answers. More values may come: anything but GPUWHY_OK is a failure.
 */
typedef enum gpuwhy_status {
  /**
   * Done.
   */
  GPUWHY_OK = 0,
  /**
   * There is no libcupti that can be used, as on a machine without CUDA.
   */
  GPUWHY_NO_CUPTI = 1,
  /**
   * Another profiler holds CUPTI in this process.
   */
  GPUWHY_OTHER_PROFILER = 2,
  /**
   * CUPTI or the system refused.
   */
  GPUWHY_REFUSED = 3,
  /**
   * A session is open already.
   */
  GPUWHY_BUSY = 4,
  /**
   * No session is open, or measuring is over in this process, or it is the child of a fork.
   */
  GPUWHY_NOT_OPEN = 5,
  /**
   * The last records did not come in time.
   */
  GPUWHY_TIMED_OUT = 6,
  /**
   * The trace cannot be written or read.
   */
  GPUWHY_TRACE = 7,
  /**
   * An error in gpuwhy.
   */
  GPUWHY_INTERNAL = 8,
} gpuwhy_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Starts the collector without measuring. Call it before the first CUDA call of the process, if the first session
 * comes later.
 */
enum gpuwhy_status gpuwhy_prepare(void);

/**
 * Starts measuring what this process launches. Call it before the first CUDA call of the process, or after
 * gpuwhy_prepare. `trace` is the file that keeps the trace, or NULL.
 *
 * `trace` is NULL or a text that ends with NUL.
 */
enum gpuwhy_status gpuwhy_start(const char *trace);

/**
 * Stops measuring and makes the report. Device work that is still under way is waited for, 2 s at most.
 */
enum gpuwhy_status gpuwhy_stop(void);

/**
 * Returns when all device work that was complete is in the trace.
 */
enum gpuwhy_status gpuwhy_flush(void);

/**
 * Begins a range of this name on this thread; ranges nest. It is an NVTX range.
 *
 * `name` is NULL or a text that ends with NUL.
 */
enum gpuwhy_status gpuwhy_range_push(const char *name);

/**
 * Ends the innermost range of this thread.
 */
enum gpuwhy_status gpuwhy_range_pop(void);

/**
 * The next step of the program begins here, and the one before ends.
 */
enum gpuwhy_status gpuwhy_step(void);

/**
 * Writes the report of the session that was stopped last, as JSON (docs/reference/report.md), to `text`: at most
 * `capacity` bytes with the NUL at the end. Answers the length of the whole without the NUL; 0 when there is no
 * report.
 *
 * `capacity` bytes at `text` are writable.
 */
size_t gpuwhy_report_json(char *text,
                          size_t capacity);

/**
 * As `gpuwhy_report_json`, the report for people.
 *
 * `capacity` bytes at `text` are writable.
 */
size_t gpuwhy_report_text(char *text, size_t capacity);

/**
 * As `gpuwhy_report_json`, why the last call that failed did, and what to do.
 *
 * `capacity` bytes at `text` are writable.
 */
size_t gpuwhy_last_error(char *text, size_t capacity);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUWHY_H */
