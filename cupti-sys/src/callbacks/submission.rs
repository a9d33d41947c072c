//! Contents of a callback about a copy between host and device, or about the launch of a CUDA graph.
//!
//! The functions that copy in one direction have three parameters in common: destination, source, bytes. Runtime
//! functions call these driver functions (seen with CUPTI 13.0 for `cudaMemcpyAsync`), so none is reported twice.

use crate::abi::{ApiCallbackData, CallbackSite, Domain};

/// Work that a call submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// A copy from device to host, of this many bytes.
    ToHost(u64),
    /// A copy from host to device, of this many bytes.
    FromHost(u64),
    /// A CUDA graph.
    Graph,
}

/// Functions that submit such work: domain, callback id, name, and the work with 0 bytes. A graph may be reported
/// twice, by the runtime and by the driver function that it calls.
pub const SUBMISSIONS: [(Domain, u32, &str, Submission); 12] = [
    (Domain::DRIVER, 276, "cuMemcpyHtoD_v2", Submission::FromHost(0)),
    (Domain::DRIVER, 277, "cuMemcpyHtoDAsync_v2", Submission::FromHost(0)),
    (Domain::DRIVER, 278, "cuMemcpyDtoH_v2", Submission::ToHost(0)),
    (Domain::DRIVER, 279, "cuMemcpyDtoHAsync_v2", Submission::ToHost(0)),
    (Domain::DRIVER, 397, "cuMemcpyHtoD_v2_ptds", Submission::FromHost(0)),
    (Domain::DRIVER, 398, "cuMemcpyDtoH_v2_ptds", Submission::ToHost(0)),
    (Domain::DRIVER, 421, "cuMemcpyHtoDAsync_v2_ptsz", Submission::FromHost(0)),
    (Domain::DRIVER, 422, "cuMemcpyDtoHAsync_v2_ptsz", Submission::ToHost(0)),
    (Domain::DRIVER, 514, "cuGraphLaunch", Submission::Graph),
    (Domain::DRIVER, 515, "cuGraphLaunch_ptsz", Submission::Graph),
    (Domain::RUNTIME, 311, "cudaGraphLaunch_v10000", Submission::Graph),
    (Domain::RUNTIME, 312, "cudaGraphLaunch_ptsz_v10000", Submission::Graph),
];

/// Offset of the number of bytes: destination and source come first.
const BYTES: usize = 16;

/// The work that this callback reports, with 0 bytes.
pub(super) fn kind(domain: Domain, callback: u32) -> Option<Submission> {
    SUBMISSIONS.iter().find(|row| (row.0, row.1) == (domain, callback)).map(|row| row.3)
}

/// The work of this kind that a callback reports at entry; `None` at exit, and if CUPTI provides no parameters.
///
/// # Safety
/// `data` is what CUPTI passes to a callback with this [`kind`], and lives until the callback returns.
pub(super) unsafe fn submission(kind: Submission, data: &ApiCallbackData) -> Option<Submission> {
    if data.site != CallbackSite::ENTER || data.parameters.is_null() {
        return None;
    }
    // SAFETY: the parameters of a copy are the struct of its function, laid out as in CUPTI's generated headers.
    let bytes = || unsafe { data.parameters.byte_add(BYTES).cast::<u64>().read_unaligned() };
    Some(match kind {
        Submission::ToHost(_) => Submission::ToHost(bytes()),
        Submission::FromHost(_) => Submission::FromHost(bytes()),
        Submission::Graph => Submission::Graph,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn direction_and_bytes_are_those_of_the_function() {
        let parameters = [0x1000u64, 0x2000, 384, 7];
        let mut data = ApiCallbackData {
            site: CallbackSite::ENTER,
            function: ptr::null(),
            parameters: parameters.as_ptr().cast(),
            result: ptr::null_mut(),
            symbol: ptr::null(),
            context: ptr::null_mut(),
            context_id: 0,
            correlation_data: ptr::null_mut(),
            correlation: 0,
        };
        for (domain, callback, name, of) in SUBMISSIONS {
            assert_eq!(kind(domain, callback), Some(of));
            let expected = match name {
                name if name.contains("DtoH") => Submission::ToHost(384),
                name if name.contains("HtoD") => Submission::FromHost(384),
                _ => Submission::Graph,
            };
            // SAFETY: the data belongs to this call, and its parameters to this function.
            assert_eq!(unsafe { submission(of, &data) }, Some(expected), "{name}");
        }
        assert_eq!([kind(Domain::DRIVER, 307), kind(Domain::RUNTIME, 276)], [None; 2]);
        data.site = CallbackSite::EXIT;
        // SAFETY: as above.
        assert_eq!(unsafe { submission(Submission::ToHost(0), &data) }, None);
        (data.site, data.parameters) = (CallbackSite::ENTER, ptr::null());
        // SAFETY: as above.
        assert_eq!(unsafe { submission(Submission::ToHost(0), &data) }, None, "no parameters");
    }
}
