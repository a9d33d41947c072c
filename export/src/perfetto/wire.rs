//! The subset of the protobuf encoding and of Perfetto's trace messages that is needed here.
//!
//! Two dozen fields do not justify a code generator. Numbers are those of Perfetto's `protos/perfetto/trace`.

/// Field numbers by message.
pub mod field {
    pub const TRACE_PACKET: u32 = 1;
    pub mod packet {
        pub const TIMESTAMP: u32 = 8;
        pub const SEQUENCE_ID: u32 = 10;
        pub const TRACK_EVENT: u32 = 11;
        pub const INTERNED_DATA: u32 = 12;
        pub const SEQUENCE_FLAGS: u32 = 13;
        pub const TRACK_DESCRIPTOR: u32 = 60;
    }
    pub mod event {
        pub const CATEGORY_IIDS: u32 = 3;
        pub const DEBUG_ANNOTATIONS: u32 = 4;
        pub const TYPE: u32 = 9;
        pub const NAME_IID: u32 = 10;
        pub const TRACK_UUID: u32 = 11;
        pub const COUNTER_VALUE: u32 = 30;
        pub const DOUBLE_COUNTER_VALUE: u32 = 44;
        pub const FLOW_IDS: u32 = 47;
        pub const TERMINATING_FLOW_IDS: u32 = 48;
    }
    pub mod interned {
        pub const CATEGORIES: u32 = 1;
        pub const NAMES: u32 = 2;
        pub const ANNOTATION_NAMES: u32 = 3;
        /// Used by all three messages.
        pub const IID: u32 = 1;
        /// Used by all three messages.
        pub const TEXT: u32 = 2;
    }
    pub mod annotation {
        pub const NAME_IID: u32 = 1;
        pub const UINT_VALUE: u32 = 3;
        pub const STRING_VALUE: u32 = 6;
    }
    pub mod track {
        pub const UUID: u32 = 1;
        pub const NAME: u32 = 2;
        pub const PROCESS: u32 = 3;
        pub const THREAD: u32 = 4;
        pub const PARENT: u32 = 5;
        pub const COUNTER: u32 = 8;
    }
    /// Used by processes and threads.
    pub const PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    pub const PROCESS_NAME: u32 = 6;
    pub const COUNTER_UNIT_NAME: u32 = 6;
}

/// A message under construction.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// Adds a number as a varint.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds a fixed eight-byte number.
    pub fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a nested message.
    pub fn message(&mut self, field: u32, inner: &Self) -> &mut Self {
        self.bytes(field, &inner.0)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_encoding_guide() {
        // Example of protobuf.dev, "Encoding": a = 150 in field 1, "testing" in field 2, the first inside
        // field 3.
        let mut inner = Message::default();
        inner.number(1, 150);
        assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.text(2, "testing").message(3, &inner).fixed64(1, 1);
        let wanted = b"\x12\x07testing\x1a\x03\x08\x96\x01\x09\x01\0\0\0\0\0\0\0";
        assert_eq!(outer.as_bytes(), wanted);
    }
}
