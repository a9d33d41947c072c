//! The state of a running process: what libprof.so sends, and what displays, exporters and agents read.
//!
//! Each object is declared once. libprof.so writes it without a library. The command reads it from programs of
//! other versions, from other machines and from files: a missing field, or one with the wrong type, counts as
//! absent; numbers, texts and lists are bounded, and texts are escaped for terminals.
//! `docs/guide/control.md` defines every field.
#![expect(missing_docs, reason = "the guide defines the fields")]

use std::collections::BTreeMap;

use gpuwhy_trace::json_text::{Json, Object};

/// Declares objects with their fields in the order in which they are written.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident {$($(#[$about:meta])* $field:ident: $type:ty,)*})*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl $name {
            /// The fields, to which others can be added.
            pub fn object(&self) -> Object {
                Object::new()$(.field(stringify!($field), &self.$field))*
            }
        }

        impl Json for $name {
            fn put(&self, out: &mut String) {
                self.object().put(out);
            }
        }

        #[cfg(feature = "serde")]
        impl read::Read for $name {
            fn read(json: &serde_json::Value) -> Option<Self> {
                json.is_object().then(|| Self { $($field: read::field(json, stringify!($field)),)* })
            }
        }
    )*};
}

objects! {
    /// Fields common to most responses; those that a response lacks have their default.
    Status {
        pid: u64,
        command: String,
        /// `waiting`, `capturing`, `watching`, `finished` or, in the last metrics of a process, `ended`.
        state: String,
        captures: u64,
        /// Steps that have started; `None` if they are not counted.
        steps_begun: Option<u64>,
        /// Step at which a capture starts.
        starts_at_step: Option<u64>,
        /// Name of the bottleneck, and its share, 0 to 1.
        bottleneck: String,
        share: f64,
        /// The live line.
        line: String,
        kernels: u64,
        /// Number of lost records and range events.
        lost: u64,
        unobserved_ns: u64,
        holds_cupti: bool,
        trace: Option<String>,
    }

    /// Additional fields of a response to `live`.
    Live {
        host: String,
        run: Option<String>,
        rank: Option<u64>,
        mode: Option<String>,
        observed_ns: u64,
        until_unix_ns: u64,
        starting_up: bool,
        /// Name of the cause to display, and its share, 0 to 1.
        live_bottleneck: String,
        live_share: f64,
        /// Speedup of the program in the best case, and its interval, as factors.
        best_case: Option<f64>,
        best_case_low: Option<f64>,
        best_case_high: Option<f64>,
        /// 0 to 1.
        busy: Option<f64>,
        /// Maximum slowdown of launching threads by tracing, 0 to 1.
        cost: Option<f64>,
        /// Number of bursts in mode auto.
        bursts: Option<u64>,
        cores: Option<f64>,
        steps: Option<Steps>,
        ranking: Vec<RankedCause>,
        evidence: Vec<String>,
        missing: Vec<String>,
        advice: String,
        /// Names of the causes, in the order of [`DeviceState::windows`].
        causes: Vec<String>,
        devices: Vec<DeviceState>,
        devices_beyond: u64,
        memory: Vec<MemoryState>,
        top_kernels: Vec<KernelTotal>,
        lines: Vec<LineTotal>,
        ranges: Vec<RangeTotal>,
    }

    /// Steps of the device with the longest window.
    Steps {
        device: u64,
        noun: String,
        source: String,
        seen: u64,
        median_ns: u64,
        /// Durations of the most recent steps, oldest first.
        newest_ns: Vec<u64>,
        /// Iterations of a server by kind; empty for other programs.
        kinds: Vec<IterationsOfKind>,
    }

    /// Iterations of one kind.
    IterationsOfKind {
        kind: String,
        count: u64,
        median_ns: u64,
        p99_ns: u64,
        /// Sequences of the median one.
        sequences: Option<u64>,
        /// Generated tokens per second of their time.
        tokens_per_second: Option<f64>,
    }

    /// A cause of the ranking; shares are 0 to 1.
    RankedCause {
        cause: String,
        share: f64,
        recoverable: f64,
    }

    /// Time of a device.
    DeviceState {
        id: u64,
        name: String,
        window_ns: u64,
        /// Nanoseconds by leaf.
        leaves: BTreeMap<String, u64>,
        /// Intervals of at least a second, oldest first: the end, nanoseconds since the Unix epoch, then
        /// microseconds by cause.
        windows: Vec<Vec<u64>>,
    }

    /// Memory of a device at the last reading, of all processes.
    MemoryState {
        id: u64,
        used_bytes: u64,
        total_bytes: Option<u64>,
        /// Growth per step, if there is any.
        growth_bytes: Option<f64>,
    }

    /// A kernel.
    KernelTotal {
        name: String,
        count: u64,
        total_ns: u64,
    }

    /// A line of code with its idle time.
    LineTotal {
        file: String,
        line: u64,
        function: String,
        cause: String,
        total_ns: u64,
    }

    /// A range.
    RangeTotal {
        domain: String,
        name: String,
        count: u64,
        host_ns: u64,
        device_ns: u64,
    }

    /// Additional fields of a response to `metrics`.
    Metrics {
        host: String,
        program: String,
        /// Distinguishes processes that reuse an id.
        start_unix_ns: u64,
        run: Option<String>,
        rank: Option<u64>,
        world_size: Option<u64>,
        attempt: Option<u64>,
        mode: Option<String>,
        gpuwhy_version: String,
        driver_version: String,
        cupti_version: u64,
        live_bottleneck: String,
        live_share: f64,
        ranking: Vec<Recoverable>,
        /// Iterations of a server by kind, in the capture that a report would cover.
        iterations: Vec<IterationsOfKind>,
        /// Lost records and samples by kind.
        loss: BTreeMap<String, u64>,
        tracing: Option<Tracing>,
        devices: Vec<DeviceMetrics>,
        devices_beyond: u64,
        memory: Vec<MemoryState>,
    }

    /// Recoverable time of a cause, 0 to 1.
    Recoverable {
        cause: String,
        recoverable: f64,
    }

    /// Overhead of tracing by source.
    Tracing {
        records_ns: u64,
        cupti_ns: u64,
        callbacks_ns: u64,
        threads_ns: u64,
    }

    /// Totals of a device over all captures.
    DeviceMetrics {
        id: u64,
        uuid: Option<String>,
        /// Nanoseconds by leaf.
        leaves: BTreeMap<String, u64>,
        kernels: u64,
        steps: u64,
        step_median_ns: Option<u64>,
        /// Bytes by direction.
        copied_bytes: BTreeMap<String, u64>,
        collectives: Vec<Collectives>,
        operations: Vec<Operations>,
    }

    /// Communication kernels of one function.
    Collectives {
        function: String,
        count: u64,
        total_ns: u64,
    }

    /// Operations of one function that NCCL reported.
    Operations {
        function: String,
        count: u64,
        bytes: u64,
        exposed_ns: u64,
    }
}

#[cfg(feature = "serde")]
pub use read::{MOST_LETTERS, read, sanitized};

#[cfg(feature = "serde")]
mod read {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use crate::text_format::printable;

    /// Maximum number of characters of a text.
    pub const MOST_LETTERS: usize = 600;
    /// Maximum number of elements of a list.
    const MOST_ROWS: usize = 64;

    /// A value from an untrusted response; `None` if it has another type.
    pub trait Read: Sized {
        fn read(json: &Value) -> Option<Self>;
    }

    /// Reads the fields of an object from a response.
    pub fn read<T: Read + Default>(json: &Value) -> T {
        T::read(json).unwrap_or_default()
    }

    pub(super) fn field<T: Read + Default>(json: &Value, name: &str) -> T {
        read(&json[name])
    }

    /// Text escaped for a terminal, of bounded length.
    pub fn sanitized(text: &str) -> String {
        let end = text.char_indices().nth(MOST_LETTERS).map_or(text.len(), |(index, _)| index);
        printable(&text[..end]).chars().take(MOST_LETTERS).collect()
    }

    /// At most half of the range, so that the sum of two values does not overflow.
    impl Read for u64 {
        fn read(json: &Value) -> Option<Self> {
            json.as_u64().map(|number| number.min(Self::MAX / 2))
        }
    }

    /// A share or a factor.
    impl Read for f64 {
        fn read(json: &Value) -> Option<Self> {
            json.as_f64().filter(|share| share.is_finite() && *share >= 0.0)
        }
    }

    impl Read for bool {
        fn read(json: &Value) -> Option<Self> {
            json.as_bool()
        }
    }

    impl Read for String {
        fn read(json: &Value) -> Option<Self> {
            json.as_str().map(sanitized)
        }
    }

    impl<T: Read> Read for Option<T> {
        fn read(json: &Value) -> Option<Self> {
            Some(T::read(json))
        }
    }

    impl<T: Read + Default> Read for Vec<T> {
        fn read(json: &Value) -> Option<Self> {
            Some(json.as_array()?.iter().take(MOST_ROWS).map(read).collect())
        }
    }

    impl<T: Read + Default> Read for BTreeMap<String, T> {
        fn read(json: &Value) -> Option<Self> {
            Some(json.as_object()?.iter().take(MOST_ROWS).map(|(name, value)| (sanitized(name), read(value))).collect())
        }
    }
}
