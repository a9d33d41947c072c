//! The C functions of PM sampling.

use std::ptr;

use cupti_sys::CuptiResult;
use cupti_sys::counters::abi::{
    PmDecodeData, PmDisable, PmEnable, PmGetCounterAvailability, PmGetCounterDataInfo, PmGetCounterDataSize,
    PmGetSampleInfo, PmImageInitialize, PmSetConfig, PmStart, PmStop, STOPPED_FULL, STOPPED_OTHER,
};

use super::parameters::{bytes, checked, names, opening_begins, opening_ends, store};
use crate::counters::image;
use crate::counters::unit::SamplingObject;
use crate::instance::answer;
use crate::player::Player;

/// Play time since the start of the recording in nanoseconds.
fn now(player: &Player) -> u64 {
    player.clock.now().saturating_sub(player.session.origin.start)
}

fn need(condition: bool, otherwise: CuptiResult) -> Result<(), CuptiResult> {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// `cuptiPmSamplingGetCounterAvailability`: its image is one byte.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingGetCounterAvailability(
    parameters: *mut PmGetCounterAvailability,
) -> CuptiResult {
    answer("cuptiPmSamplingGetCounterAvailability", |player| {
        let name = "cuptiPmSamplingGetCounterAvailability";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, PmGetCounterAvailability::SIZE) }?;
        player.unit.recorded()?;
        need(parameters.device == 0, CuptiResult::INVALID_DEVICE)?;
        need(!player.unit.objects().is_taken(), CuptiResult::HARDWARE_BUSY)?;
        parameters.size = 1;
        Ok(())
    })
}

/// `cuptiPmSamplingEnable`: succeeds even while another object samples.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingEnable(parameters: *mut PmEnable) -> CuptiResult {
    answer("cuptiPmSamplingEnable", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiPmSamplingEnable", parameters, PmEnable::SIZE) }?;
        player.unit.recorded()?;
        need(parameters.device == 0, CuptiResult::INVALID_DEVICE)?;
        let mut objects = player.unit.objects();
        let handle = objects.handle();
        objects.samplers.insert(handle, SamplingObject::default());
        parameters.object = ptr::without_provenance_mut(handle);
        Ok(())
    })
}

/// `cuptiPmSamplingDisable`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingDisable(parameters: *mut PmDisable) -> CuptiResult {
    answer("cuptiPmSamplingDisable", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiPmSamplingDisable", parameters, PmDisable::SIZE) }?;
        opening_ends();
        let removed = player.unit.objects().samplers.remove(&parameters.object.addr());
        removed.map(drop).ok_or(CuptiResult::INVALID_PARAMETER)
    })
}

/// `cuptiPmSamplingSetConfig`: one pass, one client.
///
/// # Safety
/// NULL or a struct with a configuration of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingSetConfig(parameters: *mut PmSetConfig) -> CuptiResult {
    answer("cuptiPmSamplingSetConfig", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiPmSamplingSetConfig", parameters, PmSetConfig::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let image = unsafe { bytes(parameters.config, parameters.config_size) }?;
        let (passes, metrics) = image::parse_configuration(image).ok_or(CuptiResult::INVALID_PARAMETER)?;
        need(passes == 1, CuptiResult::NOT_SUPPORTED)?;
        need(parameters.interval > 0 && parameters.hardware_buffer > 0, CuptiResult::INVALID_PARAMETER)?;
        let mut objects = player.unit.objects();
        need(!objects.is_taken(), CuptiResult::HARDWARE_BUSY)?;
        let sampler = objects.sampler(parameters.object.addr())?;
        sampler.metrics = metrics;
        sampler.interval = parameters.interval;
        opening_begins();
        Ok(())
    })
}

/// `cuptiPmSamplingStart`: once, after the configuration.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingStart(parameters: *mut PmStart) -> CuptiResult {
    answer("cuptiPmSamplingStart", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiPmSamplingStart", parameters, PmStart::SIZE) }?;
        let now = now(player);
        let recorded = player.unit.recorded()?;
        let mut objects = player.unit.objects();
        let sampler = objects.sampler(parameters.object.addr())?;
        need(!sampler.metrics.is_empty() && sampler.next.is_none(), CuptiResult::INVALID_OPERATION)?;
        sampler.next = Some(recorded.rows.partition_point(|row| row.begin < now));
        opening_ends();
        Ok(())
    })
}

/// `cuptiPmSamplingStop`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingStop(parameters: *mut PmStop) -> CuptiResult {
    answer("cuptiPmSamplingStop", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiPmSamplingStop", parameters, PmStop::SIZE) }?;
        let now = now(player);
        let mut objects = player.unit.objects();
        let sampler = objects.sampler(parameters.object.addr())?;
        need(sampler.next.is_some() && sampler.until.is_none(), CuptiResult::INVALID_OPERATION)?;
        sampler.until = Some(now);
        Ok(())
    })
}

/// `cuptiPmSamplingGetCounterDataSize`: for the configured metrics.
///
/// # Safety
/// NULL or a struct with the stated number of NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingGetCounterDataSize(parameters: *mut PmGetCounterDataSize) -> CuptiResult {
    answer("cuptiPmSamplingGetCounterDataSize", |player| {
        let name = "cuptiPmSamplingGetCounterDataSize";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, PmGetCounterDataSize::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let metrics = unsafe { names(parameters.names, parameters.count) }?;
        let mut objects = player.unit.objects();
        let sampler = objects.sampler(parameters.object.addr())?;
        need(sampler.metrics == metrics && parameters.samples > 0, CuptiResult::INVALID_PARAMETER)?;
        parameters.size = image::bytes(parameters.samples as usize, metrics.len());
        Ok(())
    })
}

/// `cuptiPmSamplingCounterDataImageInitialize`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingCounterDataImageInitialize(parameters: *mut PmImageInitialize) -> CuptiResult {
    answer("cuptiPmSamplingCounterDataImageInitialize", |player| {
        let name = "cuptiPmSamplingCounterDataImageInitialize";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, PmImageInitialize::SIZE) }?;
        let metrics = player.unit.objects().sampler(parameters.object.addr())?.metrics.len();
        need(metrics > 0 && !parameters.image.is_null(), CuptiResult::INVALID_PARAMETER)?;
        let room = (parameters.size / 8).saturating_sub(image::HEADER) / (2 + metrics);
        // SAFETY: the caller guarantees the size.
        unsafe { store(parameters.image, parameters.size, &image::Data::ready(room, metrics)) };
        Ok(())
    })
}

/// `cuptiPmSamplingDecodeData`: into an initialized image.
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingDecodeData(parameters: *mut PmDecodeData) -> CuptiResult {
    answer("cuptiPmSamplingDecodeData", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiPmSamplingDecodeData", parameters, PmDecodeData::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let mut data = image::Data::read(unsafe { bytes(parameters.image, parameters.size) }?);
        need(data.is_ready(), CuptiResult::INVALID_PARAMETER)?;
        let now = now(player);
        let origin = player.session.origin.start;
        let recorded = player.unit.recorded()?;
        let mut objects = player.unit.objects();
        let sampler = objects.sampler(parameters.object.addr())?;
        need(sampler.next.is_some(), CuptiResult::INVALID_OPERATION)?;
        let [room, ..] = data.counts();
        let mut found = sampler.take(recorded, now, room);
        for (begin, end, _) in &mut found.samples {
            (*begin, *end) = (origin.wrapping_add(*begin), origin + *end);
        }
        data.fill(found.populated, &found.samples);
        // SAFETY: the caller guarantees the size.
        unsafe { store(parameters.image, parameters.size, &data) };
        parameters.stopped = if found.full { STOPPED_FULL } else { STOPPED_OTHER };
        parameters.overflow = 0;
        Ok(())
    })
}

/// `cuptiPmSamplingGetCounterDataInfo`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingGetCounterDataInfo(parameters: *mut PmGetCounterDataInfo) -> CuptiResult {
    answer("cuptiPmSamplingGetCounterDataInfo", |player| {
        let name = "cuptiPmSamplingGetCounterDataInfo";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, PmGetCounterDataInfo::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let data = image::Data::read(unsafe { bytes(parameters.image, parameters.size) }?);
        need(data.is_known(), CuptiResult::INVALID_PARAMETER)?;
        [parameters.total, parameters.populated, parameters.completed] = data.counts();
        Ok(())
    })
}

/// `cuptiPmSamplingCounterDataGetSampleInfo`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiPmSamplingCounterDataGetSampleInfo(parameters: *mut PmGetSampleInfo) -> CuptiResult {
    answer("cuptiPmSamplingCounterDataGetSampleInfo", |player| {
        let name = "cuptiPmSamplingCounterDataGetSampleInfo";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, PmGetSampleInfo::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let data = image::Data::read(unsafe { bytes(parameters.image, parameters.size) }?);
        let (begin, end, _) = data.sample(parameters.index).ok_or(CuptiResult::INVALID_PARAMETER)?;
        (parameters.start, parameters.end) = (begin, end);
        Ok(())
    })
}
