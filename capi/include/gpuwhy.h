/* Measures a part of a program with gpuwhy, from C, C++ or another language: link libgpuwhy_c.so.
 *
 * Generated from capi/src/lib.rs by `GPUWHY_BLESS=1 cargo test -p gpuwhy-c --test main`.
 * All functions can be called from any thread. None writes to stdout or ends the program. */

#ifndef GPUWHY_H
#define GPUWHY_H

#include <stddef.h>
#include <stdint.h>

/**
 * Return value of a function. More values may be added: anything but GPUWHY_OK is a failure.
 */
typedef enum gpuwhy_status {
  /**
   * Success.
   */
  GPUWHY_OK = 0,
  /**
   * There is no usable libcupti, as on a host without CUDA.
   */
  GPUWHY_NO_CUPTI = 1,
  /**
   * Another profiler holds CUPTI in this process.
   */
  GPUWHY_OTHER_PROFILER = 2,
  /**
   * CUPTI or the operating system refused.
   */
  GPUWHY_REFUSED = 3,
  /**
   * A session is already open.
   */
  GPUWHY_BUSY = 4,
  /**
   * No session is open, measuring has ended in this process, or the process is the child of a fork.
   */
  GPUWHY_NOT_OPEN = 5,
  /**
   * The last records did not arrive in time.
   */
  GPUWHY_TIMED_OUT = 6,
  /**
   * The trace cannot be written or read.
   */
  GPUWHY_TRACE = 7,
  /**
   * An internal error of gpuwhy.
   */
  GPUWHY_INTERNAL = 8,
} gpuwhy_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Starts the collector without measuring. Call it before the first CUDA call of the process if the first
 * session starts later.
 */
enum gpuwhy_status gpuwhy_prepare(void);

/**
 * Starts measuring the launches of this process. Call it before the first CUDA call of the process, or after
 * gpuwhy_prepare. `trace` is the path of the trace file, or NULL.
 *
 * `trace` is NULL or a text that ends with NUL.
 */
enum gpuwhy_status gpuwhy_start(const char *trace);

/**
 * Stops measuring and creates the report. Waits up to 2 s for device work in progress.
 */
enum gpuwhy_status gpuwhy_stop(void);

/**
 * Returns once all device work that was complete is in the trace.
 */
enum gpuwhy_status gpuwhy_flush(void);

/**
 * Pushes a range with this name on this thread; ranges nest. It is an NVTX range.
 *
 * `name` is NULL or a text that ends with NUL.
 */
enum gpuwhy_status gpuwhy_range_push(const char *name);

/**
 * Ends the innermost range of this thread.
 */
enum gpuwhy_status gpuwhy_range_pop(void);

/**
 * Starts the next step of the program and ends the previous one.
 */
enum gpuwhy_status gpuwhy_step(void);

/**
 * Writes the report of the last stopped session, as JSON (docs/reference/report.md), to `text`: at most
 * `capacity` bytes including the NUL at the end. Returns the length of the complete report without the NUL;
 * 0 if there is no report.
 *
 * `capacity` bytes at `text` are writable.
 */
size_t gpuwhy_report_json(char *text,
                          size_t capacity);

/**
 * Like `gpuwhy_report_json`, but writes the report as text for a reader.
 *
 * `capacity` bytes at `text` are writable.
 */
size_t gpuwhy_report_text(char *text, size_t capacity);

/**
 * Like `gpuwhy_report_json`, but writes why the last failed call failed, and what to do.
 *
 * `capacity` bytes at `text` are writable.
 */
size_t gpuwhy_last_error(char *text, size_t capacity);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GPUWHY_H */
