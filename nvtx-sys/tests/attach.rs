//! A handler that records its calls, in a program that uses two copies of NVTX.
#![allow(unsafe_code, reason = "plays a C program")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use nvtx_sys::abi::{
    EventAttributes, PayloadData, STATIC_SCHEMAS, color_type, export_table, message_type, payload_type,
};
use nvtx_sys::program::Program;
use nvtx_sys::{AttachError, Attributes, Domain, Extended, Handler, Message, Payload, RegisteredString, Text, attach};

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The handler and the copies are global to the process, so the tests run one at a time.
static TURN: Mutex<()> = Mutex::new(());

fn hear(line: String) {
    HEARD.lock().unwrap().push(line);
}

fn heard() -> Vec<String> {
    std::mem::take(&mut *HEARD.lock().unwrap())
}

fn say(event: &Attributes<'_>) -> String {
    let message = match event.message {
        Message::None => "-".to_owned(),
        Message::Text(text) => format!("{:?}", text.to_string_lossy()),
        Message::Registered(string) => format!("#{}", string.0),
    };
    let payload = match event.payload {
        Payload::None => String::new(),
        payload => format!(" {payload:?}"),
    };
    format!("{message} {} {:x}{payload}", event.category, event.color)
}

struct Notebook;

impl Handler for Notebook {
    fn mark(domain: Domain, event: &Attributes<'_>) {
        if event.message == Message::Text(Text::Narrow(b"panic")) {
            panic!("as asked");
        }
        hear(format!("mark {} {}", domain.0, say(event)));
    }
    fn push(domain: Domain, event: &Attributes<'_>) -> i32 {
        hear(format!("push {} {}", domain.0, say(event)));
        3
    }
    fn pop(domain: Domain) -> i32 {
        hear(format!("pop {}", domain.0));
        4
    }
    fn start(domain: Domain, event: &Attributes<'_>) -> u64 {
        hear(format!("start {} {}", domain.0, say(event)));
        1 << 40
    }
    fn end(range: u64) {
        hear(format!("end {range}"));
    }
    fn name_category(domain: Domain, category: u32, name: Text<'_>) {
        hear(format!("category {} {category} {}", domain.0, name.to_string_lossy()));
    }
    fn name_thread(thread: u32, name: Text<'_>) {
        hear(format!("thread {thread} {}", name.to_string_lossy()));
    }
    fn create_domain(name: Text<'_>) -> Domain {
        hear(format!("domain {}", name.to_string_lossy()));
        Domain(77)
    }
    fn register_string(text: Text<'_>) -> RegisteredString {
        hear(format!("string {}", text.to_string_lossy()));
        RegisteredString(99)
    }
}

fn attached<const COPY: usize>() -> (MutexGuard<'static, ()>, Program<COPY>) {
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = Program::<COPY>;
    // SAFETY: the function is that of a copy, and this is the point at which the copy would call.
    unsafe { attach::<Notebook>(program.export_tables()) }.unwrap();
    heard();
    (turn, program)
}

#[test]
fn every_function_arrives_with_its_arguments() {
    let (_turn, program) = attached::<0>();
    let text = c"gr\u{f6}\u{df}e";
    let wide: Vec<u32> = "wide \u{1f600}\0".chars().map(u32::from).collect();
    // SAFETY: strings end with NUL, attributes state their size.
    unsafe {
        program.mark_a(text.as_ptr());
        program.mark_w(wide.as_ptr());
        assert_eq!((program.push_a(text.as_ptr()), program.pop()), (3, 4));
        assert_eq!(program.start_a(text.as_ptr()), 1 << 40);
        program.end(5);
        let domain = program.domain_create_a(c"net".as_ptr());
        assert_eq!(domain.addr(), 77);
        let string = program.register_string_a(domain, c"step".as_ptr());
        program.name_category_a(domain, 6, c"io".as_ptr());
        let event = EventAttributes {
            category: 6,
            color_type: color_type::ARGB,
            color: 0xff00_ff00,
            payload_type: payload_type::INT32,
            payload: u64::from(u32::MAX - 1) | 7 << 32,
            message_type: message_type::REGISTERED,
            message: string.cast(),
            ..EventAttributes::new()
        };
        assert_eq!(program.domain_push_ex(domain, &raw const event), 3);
        assert_eq!(program.domain_pop(domain), 4);
        assert_eq!(program.domain_start_ex(domain, &raw const event), 1 << 40);
        program.domain_end(domain, 8);
        program.domain_mark_ex(ptr::null(), &raw const event);
        program.name_os_thread_a(11, text.as_ptr());
        program.name_os_thread_w(12, wide.as_ptr());
        // Without a tool's function NVTX returns its default.
        assert!(program.resource_create(domain, ptr::null_mut()).is_null());
    }
    assert_eq!(
        heard(),
        [
            "mark 0 \"größe\" 0 0",
            "mark 0 \"wide \u{1f600}\" 0 0",
            "push 0 \"größe\" 0 0",
            "pop 0",
            "start 0 \"größe\" 0 0",
            "end 5",
            "domain net",
            "string step",
            "category 77 6 io",
            "push 77 #99 6 ff00ff00 Signed(-2)",
            "pop 77",
            "start 77 #99 6 ff00ff00 Signed(-2)",
            "end 8",
            "mark 0 #99 6 ff00ff00 Signed(-2)",
            "thread 11 größe",
            "thread 12 wide \u{1f600}",
        ]
    );
    assert_eq!(program.tool_version(), 3);
}

#[test]
fn payloads_are_of_their_type() {
    let (_turn, program) = attached::<0>();
    for (payload_type, payload, expected) in [
        (payload_type::UNSIGNED_INT64, u64::MAX, "Unsigned(18446744073709551615)"),
        (payload_type::INT64, u64::MAX, "Signed(-1)"),
        (payload_type::DOUBLE, 1.5f64.to_bits(), "Float(1.5)"),
        (payload_type::UNSIGNED_INT32, u64::MAX, "Unsigned(4294967295)"),
        (payload_type::FLOAT, u64::from(2.5f32.to_bits()), "Float(2.5)"),
    ] {
        let event = EventAttributes { payload_type, payload, ..EventAttributes::new() };
        // SAFETY: the attributes state their size.
        unsafe { program.mark_ex(&raw const event) };
        assert_eq!(heard(), [format!("mark 0 - 0 0 {expected}")]);
    }
    // The extension's type, a future type, a color without a type, a message of an unknown type.
    for event in [
        EventAttributes { payload_type: 0xdfbd_0009_u32.cast_signed(), payload: 8, ..EventAttributes::new() },
        EventAttributes { payload_type: 7, payload: 8, ..EventAttributes::new() },
        EventAttributes { color: 5, ..EventAttributes::new() },
        EventAttributes { message_type: 4, message: ptr::without_provenance(16), ..EventAttributes::new() },
    ] {
        // SAFETY: as above.
        unsafe { program.mark_ex(&raw const event) };
        assert_eq!(heard(), ["mark 0 - 0 0"]);
    }
}

#[test]
fn nothing_is_read_behind_the_stated_size() {
    let (_turn, program) = attached::<0>();
    let text = c"never read";
    // SAFETY: the attributes are longer than they state, and null is allowed.
    unsafe {
        for (size, expected) in [
            (48, "\"never read\" 6 7 Unsigned(9)"),
            (40, "- 6 7 Unsigned(9)"),
            (32, "- 6 7 Unsigned(9)"),
            (24, "- 6 7"),
            (16, "- 6 7"),
            (8, "- 6 0"),
            (0, "- 0 0"),
        ] {
            let event = EventAttributes {
                size,
                category: 6,
                color_type: color_type::ARGB,
                color: 7,
                payload_type: payload_type::UNSIGNED_INT64,
                payload: 9,
                ..EventAttributes::text(text)
            };
            program.push_ex(&raw const event);
            assert_eq!(heard(), [format!("push 0 {expected}")], "{size}");
        }
        program.push_ex(ptr::null());
        program.mark_a(ptr::null());
    }
    assert_eq!(heard(), ["push 0 - 0 0", "mark 0 \"\" 0 0"]);
}

#[test]
fn texts_are_cut_and_broken_ones_are_shown() {
    let (_turn, program) = attached::<0>();
    let long = std::ffi::CString::new("x".repeat(5000)).unwrap();
    program.mark(&long);
    program.mark(c"\xff");
    // SAFETY: ends with NUL; no character has this number.
    unsafe { program.mark_w([0xdddd_dddd, 0].as_ptr()) };
    let lines = heard();
    assert_eq!(lines[0].len(), "mark 0 \"\" 0 0".len() + 4096);
    assert_eq!(&lines[1..], ["mark 0 \"\u{fffd}\" 0 0", "mark 0 \"\u{fffd}\" 0 0"]);
}

#[test]
fn copies_are_independent_and_a_panic_stays_inside() {
    let second = Program::<1>;
    assert_eq!(second.push(c"nobody listens"), -2);
    let (_turn, second) = attached::<1>();
    assert_eq!(second.push(c"now"), 3);
    second.mark(c"panic");
    second.mark(c"goes on");
    assert_eq!(heard(), ["push 0 \"now\" 0 0", "mark 0 \"goes on\" 0 0"]);
}

#[test]
fn a_copy_without_tables_is_refused() {
    unsafe extern "C" fn nothing(_: u32) -> *const c_void {
        ptr::null()
    }
    unsafe extern "C" fn short(table: u32) -> *const c_void {
        static SIZE: usize = 8;
        if table == export_table::CALLBACKS { (&raw const SIZE).cast() } else { ptr::null() }
    }
    for table in [nothing, short] {
        // SAFETY: behaves as a copy of NVTX that has no tables.
        assert_eq!(unsafe { attach::<Notebook>(table) }, Err(AttachError::NoCallbacks));
    }
}

#[test]
fn of_an_extended_payload_no_more_is_read_than_its_size_says() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = Program::<0>;
    // SAFETY: the tables of this copy.
    unsafe { attach::<Notebook>(program.export_tables()) }.unwrap();
    heard();
    let bytes: [u8; 32] = std::array::from_fn(|at| at as u8 + 1);
    let place = |schema, size, payload: *const u8| [PayloadData { schema, size, payload: payload.cast() }; 2];
    let push = |structs, address: u64| {
        let attributes = EventAttributes {
            payload_type: payload_type::EXTENDED,
            reserved: structs,
            payload: address,
            ..EventAttributes::text(c"x")
        };
        // SAFETY: attributes of the size that they state, with a payload of their type or none.
        unsafe { program.push_ex(&raw const attributes) };
        heard().remove(0)
    };
    let address = |places: &[PayloadData; 2]| places.as_ptr().expose_provenance() as u64;
    let said = |size: u32, words: [u64; 3]| {
        let payload = Payload::Extended(Extended { schema: 5, size, words });
        format!("push 0 \"x\" 0 0 {payload:?}")
    };
    let word = |at: usize, length: usize| {
        let mut word = [0; 8];
        word[..length].copy_from_slice(&bytes[at..at + length]);
        u64::from_ne_bytes(word)
    };
    let whole = [word(0, 8), word(8, 8), word(16, 8)];
    for (size, words) in [(0, [0; 3]), (3, [word(0, 3), 0, 0]), (20, [whole[0], whole[1], word(16, 4)]), (32, whole)] {
        // The struct may be unaligned.
        let given = place(STATIC_SCHEMAS + 5, size, bytes.as_ptr());
        assert_eq!(push(2, address(&given)), said(size as u32, words), "{size}");
    }
    let good = place(STATIC_SCHEMAS + 5, 8, bytes.as_ptr());
    for (structs, address) in [
        (0, address(&good)),
        (-1, address(&good)),
        (1 << 20, address(&good)),
        (1, 0),
        (1, address(&good) + 1),
        (1, address(&place(STATIC_SCHEMAS + 5, usize::MAX, bytes.as_ptr()))),
        (1, address(&place(STATIC_SCHEMAS - 1, 8, bytes.as_ptr()))),
        (1, address(&place(u64::MAX, 8, bytes.as_ptr()))),
        (1, address(&place(STATIC_SCHEMAS + 5, 8, ptr::null()))),
    ] {
        assert_eq!(push(structs, address), "push 0 \"x\" 0 0", "{structs} {address:x}");
    }
}
