//! The process: its exit and its forks, its environment, and other libraries in it.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::cell::Cell;
use std::env;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::sys::threads;

/// Maximum number of registrations of the exit handler.
const REGISTRATIONS: u32 = 16;

/// Functions that the exit handler and the fork handlers call. Set before those are registered.
static EXIT: OnceLock<fn()> = OnceLock::new();

static PYTHON_END: OnceLock<fn()> = OnceLock::new();

static FORK: OnceLock<ForkHandlers> = OnceLock::new();

/// Functions that are called at a fork, on the thread that forks.
#[derive(Clone, Copy, Debug)]
pub struct ForkHandlers {
    pub before: fn(),
    /// After the fork, in the parent.
    pub in_parent: fn(),
    /// After the fork, in the child: stores atomics, or checks a descriptor and closes it, which is safe in
    /// the child of a process with threads.
    pub in_child: fn(),
}

extern "C" fn on_exit() {
    if let Some(handler) = EXIT.get() {
        let _ = catch_unwind(handler);
    }
}

extern "C" fn on_python_end() {
    if let Some(handler) = PYTHON_END.get() {
        let _ = catch_unwind(handler);
    }
}

extern "C" fn before_fork() {
    if let Some(handlers) = FORK.get() {
        let _ = catch_unwind(handlers.before);
    }
}

extern "C" fn after_fork_in_parent() {
    if let Some(handlers) = FORK.get() {
        let _ = catch_unwind(handlers.in_parent);
    }
}

extern "C" fn after_fork_in_child() {
    if let Some(handlers) = FORK.get() {
        let _ = catch_unwind(handlers.in_child);
    }
}

/// A descriptor of this process, which can be read when it has ended; it stays that of the process if that becomes
/// another program. Fails before Linux 5.3, and if a system call filter forbids it.
pub fn descriptor() -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers and returns a descriptor or -1.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    match i32::try_from(answer) {
        // SAFETY: the descriptor was just opened and is not used anywhere else.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn loaded(address: *const c_void) -> Option<libc::Dl_info> {
    let mut object = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the struct is live; an address outside all objects returns 0.
    if unsafe { libc::dladdr(address, object.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: written by the successful call above.
    Some(unsafe { object.assume_init() })
}

/// Keeps the object that contains this code mapped until the process ends: CUPTI, NVTX and handlers continue
/// to call into it. libprof.so is linked that way (`-z nodelete`); a plugin that has linked this crate may
/// not be.
fn stay_mapped() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(object) = loaded(on_exit as *const c_void) else { return };
    let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the dynamic linker supplied the name of an object that is already loaded, so `dlopen` loads
    // nothing and runs no initializer. A failure means that it is the program itself, which is never unloaded;
    // the error text is removed from the program's thread.
    unsafe {
        if libc::dlopen(object.dli_fname, how).is_null() {
            libc::dlerror();
        }
    }
}

/// Registers `handler` to be called when the process exits normally. Fails if the C library has no room for
/// it.
pub fn at_exit(handler: fn()) -> io::Result<()> {
    let _ = EXIT.set(handler);
    stay_mapped();
    // SAFETY: `on_exit` is a plain function of an object that stays mapped.
    match unsafe { libc::atexit(on_exit) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

/// Registers `handler` for the end of Python, if the program is Python itself. After Ctrl-C it ends itself by the
/// signal, so no exit handler runs. A program that embeds Python may end it early and go on: no effect there.
pub fn at_python_exit(handler: fn()) {
    type IsInitialized = unsafe extern "C" fn() -> c_int;
    type Arguments = unsafe extern "C" fn(*mut c_int, *mut *mut *mut libc::wchar_t);
    type Register = unsafe extern "C" fn(extern "C" fn()) -> c_int;
    let find = |name: &CStr| {
        // SAFETY: only searches objects that are loaded; the error text is removed from the program's thread.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if found.is_null() {
            // SAFETY: as above.
            unsafe { libc::dlerror() };
        }
        (!found.is_null()).then_some(found)
    };
    let symbols = [find(c"Py_IsInitialized"), find(c"Py_GetArgcArgv"), find(c"Py_AtExit")];
    let [Some(is_initialized), Some(arguments), Some(register)] = symbols else { return };
    let _ = PYTHON_END.set(handler);
    // SAFETY: these are the declarations in every CPython since 3.2. The first may always be called. The others read
    // the arguments of Python's own `main`, and store a pointer, of an interpreter that is initialized: they need no
    // thread state. `on_python_end` is a plain function of an object that stays mapped.
    unsafe {
        if std::mem::transmute::<*mut c_void, IsInitialized>(is_initialized)() == 0 {
            return;
        }
        let (mut count, mut values) = (0, std::ptr::null_mut());
        std::mem::transmute::<*mut c_void, Arguments>(arguments)(&raw mut count, &raw mut values);
        if count > 0 {
            // If there is no room for it, only the exit handler remains.
            std::mem::transmute::<*mut c_void, Register>(register)(on_python_end);
        }
    }
}

/// Registers the handler of [`at_exit`] once more, if there is one. Handlers run last in, first out: ours
/// then runs before those that libraries have registered until now. After [`REGISTRATIONS`] calls it has no
/// effect: the C library keeps each registration. Fails as [`at_exit`].
pub fn at_exit_again() -> io::Result<()> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    match EXIT.get() {
        Some(&handler) if MADE.fetch_add(1, Ordering::Relaxed) < REGISTRATIONS => at_exit(handler),
        Some(_) => {
            MADE.store(REGISTRATIONS, Ordering::Relaxed);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Registers `handler` to be called when the main thread ends, which is usually by `exit`: then it runs
/// before any exit handler, as destructors of thread-local variables do. Has no effect on another thread, or
/// before glibc 2.18.
pub fn before_exit(handler: fn()) {
    struct Ends(Cell<Option<fn()>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            if let Some(handler) = self.0.get() {
                // A panic here would end the process.
                let _ = catch_unwind(handler);
            }
        }
    }
    thread_local!(static ENDS: Ends = const { Ends(Cell::new(None)) });
    if threads::thread_id() == std::process::id() {
        // Fails only while the thread is ending.
        let _ = ENDS.try_with(|ends| ends.0.set(Some(handler)));
    }
}

/// Registers handlers to be called at every fork. A second call has no effect. Fails if the C library has no
/// room for them.
pub fn at_fork(handlers: ForkHandlers) -> io::Result<()> {
    if FORK.set(handlers).is_err() {
        return Ok(());
    }
    stay_mapped();
    // SAFETY: plain functions of an object that stays mapped.
    match unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Time since the process began, by a clock of hundredths of a second; also that of other programs that it was before.
pub fn age() -> Option<Duration> {
    let read = |file: &str| fs::read_to_string(file).ok();
    let uptime: f64 = read("/proc/uptime")?.split(' ').next()?.parse().ok()?;
    // The 22nd field of proc(5), the 20th behind the name, which may contain anything.
    let status = read("/proc/self/stat")?;
    let start: f64 = status.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    // SAFETY: takes a number and returns one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // Both are rounded down, so that a process of this hundredth may seem to begin later.
    Duration::try_from_secs_f64((uptime - start / ticks as f64).max(0.0)).ok().filter(|_| ticks > 0)
}

/// True if the program has more rights than whoever started it (setuid, setgid, file capabilities).
pub fn is_privileged() -> bool {
    // SAFETY: takes a number and returns one.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Sets a variable of this process if no other thread could be reading the environment. Returns true if it
/// did.
pub fn set_variable_if_alone(name: &str, value: &OsStr) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    if threads.map(str::trim) != Some("1") {
        return false;
    }
    // SAFETY: this is the only thread, so no other thread reads the environment now or can be started.
    // Pointers that the program got from `getenv` before stay valid: the C library frees no string that it
    // did not allocate.
    unsafe { env::set_var(name, value) };
    true
}
