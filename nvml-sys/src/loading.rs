//! Function lookup.

use libloading::os::unix::Library;

/// The function of this name. `F` must be its type.
pub(crate) fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: callers in this crate name the type that the reference documents.
    unsafe { library.get::<F>(name).ok().map(|found| *found) }
}
