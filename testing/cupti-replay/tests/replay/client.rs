//! A minimal client: a copy of the library, loaded for one test, and the buffers it exchanges with it.
//!
//! CUPTI's buffer callbacks carry no user data, so each test has its own functions, made from its number.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use cupti_replay::player::Counts;
use cupti_sys::abi::{self, Context};
use cupti_sys::{Attribute, CuptiResult, Kind};
use libloading::os::unix::Library;

use crate::recording::SIZES;

/// Misuse of buffers by a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Habit {
    #[default]
    Good,
    /// Provides no buffer.
    Null,
    /// Provides an address that is off by four bytes.
    Misaligned,
    /// Provides the same buffer again, although it was not returned.
    Twice,
    /// Writes to the buffer it has just lent when the next one is requested.
    Touch,
    /// Calls `cuptiActivityFlushAll` from `bufferRequested`.
    FlushInside,
}

/// A record as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub kind: u32,
    pub bytes: Vec<u8>,
    pub name: Option<String>,
    pub thread: String,
}

impl Got {
    /// The 4-byte number at `offset`.
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes[offset..offset + 4].try_into().unwrap())
    }

    /// The 8-byte number at `offset`.
    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes[offset..offset + 8].try_into().unwrap())
    }
}

/// Data that the callbacks of one test collect.
#[derive(Default)]
pub struct State {
    pub habit: Habit,
    /// Size of a buffer in bytes.
    pub size: usize,
    /// Maximum number of records per buffer; 0 is no limit.
    pub most: usize,
    /// Records of each buffer.
    pub got: Vec<Vec<Got>>,
    /// Runs in `bufferCompleted`, once.
    pub on_completed: Option<Box<dyn FnOnce() + Send>>,
    flush: Option<abi::Flush>,
    /// Memory that was lent and not returned; always kept alive.
    lent: Vec<Box<[u64]>>,
}

const TESTS: usize = 64;
static STATES: [Mutex<Option<State>>; TESTS] = [const { Mutex::new(None) }; TESTS];

/// Runs `with` on the state of test `ID`.
pub fn state<const ID: usize, T>(with: impl FnOnce(&mut State) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<State>> = STATES[ID].lock().unwrap();
    with(guard.get_or_insert_with(|| State { size: 4096, ..State::default() }))
}

extern "C" fn requested<const ID: usize>(address: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let flush = state::<ID, _>(|state| state.flush.filter(|_| state.habit == Habit::FlushInside));
    if let Some(flush) = flush {
        // SAFETY: takes a number.
        let answer = unsafe { flush(0) };
        assert_eq!(answer, CuptiResult::INVALID_OPERATION);
    }
    state::<ID, _>(|state| {
        if state.habit == Habit::Touch
            && let Some(lent) = state.lent.last_mut()
        {
            // A field of the first record other than its kind: the walk continues.
            lent[1] ^= 1;
        }
        if state.habit != Habit::Twice || state.lent.is_empty() {
            state.lent.push(vec![0; state.size.div_ceil(8) + 1].into());
        }
        let memory = state.lent.last_mut().unwrap().as_mut_ptr().cast::<u8>();
        let memory = match state.habit {
            Habit::Null => ptr::null_mut(),
            Habit::Misaligned => memory.wrapping_add(4),
            _ => memory,
        };
        // SAFETY: the library passes pointers to its locals.
        unsafe {
            address.write(memory);
            size.write(state.size);
            most.write(state.most);
        }
    });
}

extern "C" fn completed<const ID: usize>(_: Context, _: u32, address: *mut u8, size: usize, valid: usize) {
    assert!(valid <= size);
    // SAFETY: the library returns the client's own memory, and reports `valid` written bytes.
    let mut left = unsafe { std::slice::from_raw_parts(address, valid) };
    // Read from the system: the library has a different copy of the Rust runtime.
    let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim_end().to_owned();
    let mut got = Vec::new();
    while !left.is_empty() {
        let kind = u32::from_le_bytes(left[..4].try_into().unwrap());
        let length = SIZES.iter().find(|(known, _)| known.0 == kind).expect("a known kind").1 as usize;
        let (record, rest) = left.split_at(length);
        let name = if kind == Kind::CONCURRENT_KERNEL.0 {
            u64::from_le_bytes(record[104..112].try_into().unwrap())
        } else {
            0
        };
        let name = (name != 0).then(|| {
            // SAFETY: names point to texts of the library, which stays loaded.
            unsafe { CStr::from_ptr(ptr::with_exposed_provenance(name as usize)) }.to_str().unwrap().to_owned()
        });
        got.push(Got { kind, bytes: record.to_vec(), name, thread: thread.clone() });
        left = rest;
    }
    let then = state::<ID, _>(|state| {
        state.lent.retain(|memory| memory.as_ptr().cast() != address.cast_const());
        state.got.push(got);
        state.on_completed.take()
    });
    if let Some(then) = then {
        then();
    }
}

/// The copy of the library of test `ID`.
#[derive(Clone, Copy)]
pub struct Client<const ID: usize> {
    library: &'static Library,
    file: &'static Path,
}

/// The library as cargo built it for this test.
pub fn library_file() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().join("libcupti_replay.so")
}

impl<const ID: usize> Client<ID> {
    /// Loads a copy of the library and opens the recording. Nothing is enabled.
    pub fn open(folder: &Path, recording: &Path, speed: &str) -> Result<Self, String> {
        // A new name each time: the dynamic linker treats the same name as the same library.
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let copy = folder.join(format!("libcupti_replay_{}.so", COPIES.fetch_add(1, Ordering::SeqCst)));
        std::fs::copy(library_file(), &copy).unwrap();
        // SAFETY: our own library has no initializers.
        let library = Box::leak(Box::new(unsafe { Library::new(&copy) }.unwrap()));
        let client = Self { library, file: Box::leak(copy.into_boxed_path()) };
        let path = CString::new(recording.to_str().unwrap()).unwrap();
        let speed = CString::new(speed).unwrap();
        // SAFETY: two NUL-terminated texts.
        let answer = unsafe {
            client.function::<unsafe extern "C" fn(*const c_char, *const c_char) -> i32>("gpuwhy_replay_open")(
                path.as_ptr(),
                speed.as_ptr(),
            )
        };
        if answer == 0 { Ok(client) } else { Err(client.text(0, "gpuwhy_replay_error")) }
    }

    /// A client with buffer callbacks and these kinds enabled.
    pub fn start(folder: &Path, recording: &Path, kinds: &[Kind]) -> Self {
        let client = Self::open(folder, recording, "max").unwrap();
        client.register();
        for &kind in kinds {
            assert_eq!(client.enable(kind), CuptiResult::SUCCESS);
        }
        client
    }

    /// The copy that was loaded.
    pub fn file(&self) -> PathBuf {
        self.file.to_owned()
    }

    /// A function of the library.
    pub fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: callers name the type of the C function.
        *unsafe { self.library.get::<F>(name) }.unwrap()
    }

    pub fn register(&self) {
        let register: abi::RegisterCallbacks = self.function("cuptiActivityRegisterCallbacks");
        state::<ID, _>(|state| state.flush = Some(self.function("cuptiActivityFlushAll")));
        // SAFETY: both functions keep the contract of buffers, unless a test breaks it on purpose.
        let answer = unsafe { register(Some(requested::<ID>), Some(completed::<ID>)) };
        assert_eq!(answer, CuptiResult::SUCCESS);
    }

    pub fn enable(&self, kind: Kind) -> CuptiResult {
        // SAFETY: takes a number.
        unsafe { self.function::<abi::SetKind>("cuptiActivityEnable")(kind) }
    }

    pub fn enable_runtime(&self, function: u32, on: bool) -> CuptiResult {
        // SAFETY: takes numbers.
        unsafe { self.function::<abi::EnableApi>("cuptiActivityEnableRuntimeApi")(function, on.into()) }
    }

    pub fn flush(&self, flag: u32) -> CuptiResult {
        // SAFETY: takes a number.
        unsafe { self.function::<abi::Flush>("cuptiActivityFlushAll")(flag) }
    }

    pub fn dropped(&self) -> usize {
        let mut dropped = usize::MAX;
        let function: abi::GetNumDroppedRecords = self.function("cuptiActivityGetNumDroppedRecords");
        // SAFETY: a pointer to a local.
        assert_eq!(unsafe { function(ptr::null_mut(), 0, &raw mut dropped) }, CuptiResult::SUCCESS);
        dropped
    }

    pub fn now(&self) -> u64 {
        let mut now = 0;
        // SAFETY: a pointer to a local.
        let answer = unsafe { self.function::<abi::GetTimestamp>("cuptiGetTimestamp")(&raw mut now) };
        assert_eq!(answer, CuptiResult::SUCCESS);
        now
    }

    pub fn set_switch(&self, attribute: Attribute, mut value: u8) -> CuptiResult {
        let mut size = 1;
        let function: abi::SetAttribute = self.function("cuptiActivitySetAttribute");
        // SAFETY: pointers to locals.
        unsafe { function(attribute, &raw mut size, (&raw mut value).cast()) }
    }

    /// Plays up to `until` nanoseconds after the start.
    pub fn play(&self, until: u64) {
        assert_eq!(self.function::<extern "C" fn(u64) -> i32>("gpuwhy_replay_play")(until), 0);
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let function: unsafe extern "C" fn(*mut Counts) -> i32 = self.function("gpuwhy_replay_counts");
        // SAFETY: a pointer to a local.
        assert_eq!(unsafe { function(&raw mut counts) }, 0);
        counts
    }

    /// Violations by this client.
    pub fn violations(&self) -> Vec<String> {
        let at = |index| self.text(index, "gpuwhy_replay_violation");
        (0..).map(at).take_while(|text| !text.is_empty()).collect()
    }

    fn text(&self, index: usize, function: &str) -> String {
        let mut text = vec![0; 4096];
        let (memory, capacity) = (text.as_mut_ptr(), text.len());
        // SAFETY: the memory has the size passed.
        let length = unsafe {
            if function == "gpuwhy_replay_error" {
                self.function::<unsafe extern "C" fn(*mut u8, usize) -> usize>(function)(memory, capacity)
            } else {
                self.function::<unsafe extern "C" fn(usize, *mut u8, usize) -> usize>(function)(index, memory, capacity)
            }
        };
        text.truncate(length);
        String::from_utf8(text).unwrap()
    }

    /// Takes all records received.
    pub fn take(&self) -> Vec<Got> {
        state::<ID, _>(|state| std::mem::take(&mut state.got)).into_iter().flatten().collect()
    }

    /// Takes all records received, and returns the correlation ids of the kernels.
    pub fn take_kernels(&self) -> Vec<u32> {
        let kernels = |got: &Got| got.kind == Kind::CONCURRENT_KERNEL.0;
        self.take().iter().filter(|got| kernels(got)).map(|got| got.u32(92)).collect()
    }
}
