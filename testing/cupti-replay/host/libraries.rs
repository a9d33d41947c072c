//! The two libraries in this process: the profiler, loaded as the driver loads it, and the replay library,
//! which the profiler has loaded.
#![expect(unsafe_code, reason = "loads libraries and calls their C functions")]

use std::ffi::{CString, OsStr, c_char};
use std::sync::OnceLock;

use cupti_replay::player::Counts;
use libloading::os::unix::{Library, RTLD_LAZY, Symbol};

/// How long launches wait for a subscriber, in milliseconds.
const PATIENCE_MS: u32 = 60_000;
/// How long to wait for flushes, in milliseconds: there are many per second, but the host may be busy.
const FLUSH_PATIENCE_MS: u32 = 120_000;
/// Maximum length of an error or violation that is printed.
const TEXT: usize = 4096;

/// Loads the profiler without initializing it: events that it receives earlier have to wait in it.
pub fn load_profiler() -> Result<(), String> {
    let path = std::env::var_os("CUDA_INJECTION64_PATH").ok_or("CUDA_INJECTION64_PATH is not set")?;
    // SAFETY: as in `inject`.
    let library = unsafe { Library::open(Some(&path), RTLD_LAZY) };
    // The driver never unloads it.
    Box::leak(Box::new(library.map_err(|error| format!("{}: {error}", path.to_string_lossy()))?));
    Ok(())
}

/// Loads the profiler and initializes it on this thread, as `cuInit` does. Returns its return value.
pub fn inject(path: &OsStr) -> Result<i32, String> {
    let shown = path.to_string_lossy();
    // SAFETY: the user of this program requests that this library's initializers run.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY) }.map_err(|error| format!("{shown}: {error}"))?;
    // The driver never unloads it, and it may have started threads.
    let library = Box::leak(Box::new(library));
    // SAFETY: the name belongs to a function of this type: the driver's contract with injected libraries.
    let initialize: Symbol<extern "C" fn() -> i32> =
        unsafe { library.get("InitializeInjection") }.map_err(|error| format!("{shown}: {error}"))?;
    Ok(initialize())
}

type Copy = unsafe extern "C" fn(*mut u8, usize) -> usize;
type CopyAt = unsafe extern "C" fn(usize, *mut u8, usize) -> usize;

/// The replay library.
#[derive(Debug)]
pub struct Replay {
    play: extern "C" fn(u64) -> i32,
    call: unsafe extern "C" fn(*const c_char) -> i32,
    submit: unsafe extern "C" fn(*const c_char, u64) -> i32,
    memory: unsafe extern "C" fn(*const c_char, u32, *const u64, usize) -> i32,
    launch: unsafe extern "C" fn(*const c_char, *const u32, u32, u32) -> u32,
    flushes: extern "C" fn(u32, u32) -> i32,
    error: Copy,
    violation: CopyAt,
    counts: unsafe extern "C" fn(*mut Counts) -> i32,
}

/// Found once, and never unloaded.
static REPLAY: OnceLock<Replay> = OnceLock::new();

impl Replay {
    /// The replay library in the file `path`, if the profiler has loaded it.
    pub fn find(path: &OsStr) -> Result<&'static Self, String> {
        let found = Self::look_up(path)?;
        Ok(REPLAY.get_or_init(|| found))
    }

    /// The replay library, if it was found before.
    pub fn found() -> Option<&'static Self> {
        REPLAY.get()
    }

    fn look_up(path: &OsStr) -> Result<Self, String> {
        let shown = path.to_string_lossy().into_owned();
        CString::new(path.as_encoded_bytes()).map_err(|_| format!("{shown:?}: a path cannot hold a NUL"))?;
        // SAFETY: RTLD_NOLOAD only finds libraries that are already loaded; no code runs.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | libc::RTLD_NOLOAD) }
            .map_err(|_| format!("{shown} is not loaded: the profiler uses another CUPTI, or none"))?;
        let library = Box::leak(Box::new(library));
        // SAFETY: each name belongs to a function of this type; this program and the library are built
        // together.
        unsafe {
            let missing = |error: libloading::Error| format!("{shown} is no replay library: {error}");
            Ok(Self {
                play: *library.get("gpuwhy_replay_play").map_err(missing)?,
                call: *library.get("gpuwhy_replay_call").map_err(missing)?,
                submit: *library.get("gpuwhy_replay_submit").map_err(missing)?,
                memory: *library.get("gpuwhy_replay_memory").map_err(missing)?,
                launch: *library.get("gpuwhy_replay_launch").map_err(missing)?,
                flushes: *library.get("gpuwhy_replay_flushes").map_err(missing)?,
                error: *library.get("gpuwhy_replay_error").map_err(missing)?,
                violation: *library.get("gpuwhy_replay_violation").map_err(missing)?,
                counts: *library.get("gpuwhy_replay_counts").map_err(missing)?,
            })
        }
    }

    /// Succeeds if there is a recording to play; otherwise returns the reason.
    pub fn ready(&self) -> Result<(), String> {
        // SAFETY: `receive` passes memory of the stated length.
        receive(|text, capacity| unsafe { (self.error)(text, capacity) }).map_or(Ok(()), Err)
    }

    /// Plays on to `until` nanoseconds after the start. Returns the reason if that is impossible.
    pub fn play(&self, until: u64) -> Result<(), String> {
        if (self.play)(until) == 0 {
            return Ok(());
        }
        self.ready()?;
        Err("the replay library cannot play in this process".to_owned())
    }

    /// Calls an API function on this thread, for any subscriber.
    pub fn call(&self, name: &str) -> Result<(), String> {
        let text = CString::new(name).map_err(|_| format!("{name:?}: a name cannot hold a NUL"))?;
        // SAFETY: a NUL-terminated text that lives until the call returns.
        if unsafe { (self.call)(text.as_ptr()) } == 0 {
            return Ok(());
        }
        Err(format!("the recording has no function {name}"))
    }

    /// Calls functions that submit copies or graphs, as specified by `FUNCTION;BYTES,...`.
    pub fn submit(&self, what: &str) -> Result<(), String> {
        for work in what.split(',') {
            let (name, bytes) = work.split_once(';').unwrap_or((work, "0"));
            let (name, bytes) = (CString::new(name), bytes.parse());
            let (Ok(name), Ok(bytes)) = (name, bytes) else {
                return Err(format!("submit={work}: give FUNCTION;BYTES"));
            };
            // SAFETY: a NUL-terminated text that lives until the call returns.
            if unsafe { (self.submit)(name.as_ptr(), bytes) } != 0 {
                return Err(format!("submit={work}: there is no such function"));
            }
        }
        Ok(())
    }

    /// Calls functions that take or give device memory, as specified by `FUNCTION;RESULT;WORD;...,...`: a word is a
    /// number or, with `&`, the address of such words with `:` between them.
    pub fn memory(&self, what: &str) -> Result<(), String> {
        for call in what.split(',') {
            let wrong = || format!("memory={call}: give FUNCTION;RESULT;WORD;...");
            let mut parts = call.split(';');
            let name = parts.next().and_then(|name| CString::new(name).ok()).ok_or_else(wrong)?;
            let result = parts.next().and_then(|result| result.parse().ok()).ok_or_else(wrong)?;
            let numbers = |text: &str| text.split(':').map(|word| word.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
            let mut pointed = Vec::new();
            let mut words = Vec::new();
            for word in parts {
                match word.strip_prefix('&') {
                    Some(behind) => {
                        pointed.push(numbers(behind).ok_or_else(wrong)?);
                        words.extend(pointed.last().map(|behind| behind.as_ptr().expose_provenance() as u64));
                    }
                    None => words.extend(numbers(word).ok_or_else(wrong)?),
                }
            }
            // A function reads at most eight words of parameters.
            words.resize(words.len().max(8), 0);
            // SAFETY: a NUL-terminated text, and words that live until the call returns, as those that they point to.
            if unsafe { (self.memory)(name.as_ptr(), result, words.as_ptr(), words.len()) } != 0 {
                return Err(format!("memory={call}: there is no such function"));
            }
        }
        Ok(())
    }

    /// Launches a kernel as specified by `SYMBOL;GRID;BLOCK;SHARED;TIMES`, sizes as `X,Y,Z`, once there is a
    /// subscriber.
    pub fn launch(&self, what: &str) -> Result<(), String> {
        let wrong = || format!("launch={what}: give SYMBOL;X,Y,Z;X,Y,Z;SHARED;TIMES");
        let fields: Vec<_> = what.split(';').collect();
        let [symbol, grid, block, shared, times] = fields[..] else { return Err(wrong()) };
        let numbers = [grid, block, shared].join(",");
        let shape: Vec<u32> = numbers.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let (symbol, times) = (CString::new(symbol), times.parse::<u32>());
        let (Ok(symbol), Ok(times), 7) = (symbol, times, shape.len()) else { return Err(wrong()) };
        // SAFETY: a NUL-terminated text and seven numbers that live until the call returns.
        let heard = unsafe { (self.launch)(symbol.as_ptr(), shape.as_ptr(), times, PATIENCE_MS) };
        eprintln!("gpuwhy-replay-host: {heard} of {times} launches were listened to");
        Ok(())
    }

    /// Waits until the profiler has flushed this many times.
    pub fn flushes(&self, times: &str) -> Result<(), String> {
        let number = times.parse().map_err(|_| format!("flushes={times}: give a number"))?;
        match (self.flushes)(number, FLUSH_PATIENCE_MS) {
            0 => Ok(()),
            _ => Err(format!("flushes={times}: the profiler does not flush")),
        }
    }

    /// Violations by the profiler in this process.
    pub fn violations(&self) -> Vec<String> {
        // SAFETY: `receive` passes memory of the stated length.
        let at = |index| receive(|text, capacity| unsafe { (self.violation)(index, text, capacity) });
        (0..).map_while(at).collect()
    }

    /// Counts of the records by their outcome.
    pub fn counts(&self) -> Option<Counts> {
        let mut counts = Counts::default();
        // SAFETY: the pointer is to a live local.
        let answer = unsafe { (self.counts)(&raw mut counts) };
        (answer == 0).then_some(counts)
    }
}

/// A text that a function of the replay library writes; `None` if it is empty.
fn receive(write: impl FnOnce(*mut u8, usize) -> usize) -> Option<String> {
    let mut text = vec![0; TEXT];
    let length = write(text.as_mut_ptr(), text.len());
    text.truncate(length);
    (length > 0).then(|| String::from_utf8_lossy(&text).into_owned())
}
