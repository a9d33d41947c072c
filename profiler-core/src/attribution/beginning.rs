//! Start of a recording: only one that began with its process has a start-up.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiFunctionId, Timestamp};

use super::Attributor;
use super::devices::Devices;
use crate::api::ApiClass;

impl Attributor {
    /// The measurement starts at `at`: earlier counter samples are left out.
    pub fn begin(&mut self, at: Timestamp) {
        self.devices.counters.begin(at);
    }

    /// The recording began while the program ran: nothing in it is start-up, unless a call that initializes CUDA is
    /// among its records. Must come before the first record.
    pub fn begun_midway(&mut self) {
        self.devices.set_midway(true);
    }
}

impl Devices {
    fn set_midway(&mut self, midway: bool) {
        self.midway = midway;
        self.accounts_mut().for_each(|account| account.set_midway(midway));
    }

    /// The program called `function`.
    #[inline]
    pub(super) fn called(&mut self, function: ApiFunctionId, dictionary: &Dictionary) {
        if self.midway
            && let Some(known) = dictionary.api_function(function)
            && ApiClass::initializes(dictionary.name(known.name))
        {
            self.set_midway(false);
        }
    }
}
