//! The functions of one loaded libcupti.
//!
//! Mandatory functions exist in every library from 11.8 on; a file that lacks one is not a libcupti that can
//! trace. Optional functions came later and are `None` in older libraries. Only functions that are called are
//! looked up.

use crate::abi;
use libloading::os::unix::Library;

macro_rules! symbols {
    (
        mandatory { $($required:ident: $required_type:ident = $required_name:literal;)* }
        optional { $($optional:ident: $optional_type:ident = $optional_name:literal;)* }
    ) => {
        /// Function pointers into a library that is never unloaded.
        #[derive(Clone, Copy)]
        pub(crate) struct Symbols {
            $(pub $required: abi::$required_type,)*
            $(pub $optional: Option<abi::$optional_type>,)*
        }

        impl Symbols {
            /// Optional names that this library lacks.
            pub(crate) fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if self.$optional.is_none() { missing.push($optional_name); })*
                missing
            }

            /// Looks up every function; on failure returns the names of the mandatory functions that are
            /// missing.
            pub(crate) fn resolve(library: &Library) -> Result<Self, Vec<&'static str>> {
                // SAFETY: each name is resolved with the type of the C function of that name, which NVIDIA
                // has not changed since CUDA 11.8. The copied pointer outlives `library` because the caller
                // leaks it.
                unsafe {
                    $(let $required = library.get::<abi::$required_type>($required_name).map(|symbol| *symbol);)*
                    match ($($required,)*) {
                        ($(Ok($required),)*) => Ok(Self {
                            $($required,)*
                            $($optional: library.get::<abi::$optional_type>($optional_name).ok().map(|symbol| *symbol),)*
                        }),
                        ($($required,)*) => {
                            let mut missing = Vec::new();
                            $(if $required.is_err() { missing.push($required_name); })*
                            Err(missing)
                        }
                    }
                }
            }
        }
    };
}

symbols! {
    mandatory {
        get_version: GetVersion = "cuptiGetVersion";
        get_timestamp: GetTimestamp = "cuptiGetTimestamp";
        get_callback_name: GetCallbackName = "cuptiGetCallbackName";
        subscribe: Subscribe = "cuptiSubscribe";
        unsubscribe: Unsubscribe = "cuptiUnsubscribe";
        enable_callback: EnableCallback = "cuptiEnableCallback";
        register_callbacks: RegisterCallbacks = "cuptiActivityRegisterCallbacks";
        enable: SetKind = "cuptiActivityEnable";
        disable: SetKind = "cuptiActivityDisable";
        flush_all: Flush = "cuptiActivityFlushAll";
        next_record: GetNextRecord = "cuptiActivityGetNextRecord";
        dropped_records: GetNumDroppedRecords = "cuptiActivityGetNumDroppedRecords";
        set_thread_id_type: SetThreadIdType = "cuptiSetThreadIdType";
    }
    optional {
        enable_runtime_api: EnableApi = "cuptiActivityEnableRuntimeApi";
        enable_driver_api: EnableApi = "cuptiActivityEnableDriverApi";
        configure_unified_memory: ConfigureUnifiedMemory = "cuptiActivityConfigureUnifiedMemoryCounter";
        struct_size: GetStructSize = "cuptiActivityGetStructSize";
        get_graph_exec_id: GetGraphExecId = "cuptiGetGraphExecId";
        get_graph_node_id: GetGraphNodeId = "cuptiGetGraphNodeId";
    }
}
