//! The C functions of the range profiler: auto range and user replay, one pass per launch.
//!
//! Strict about order: an image is initialized before it is configured, passes start and stop alternately,
//! and data are decoded once all passes have run. Values are those of the file for the kernel that was
//! launched. Further launches in a pass drop ranges, and a pass without a launch returns `UNKNOWN`, as on an
//! H200 with CUPTI 13.0. These functions may be called from inside a callback if the real ones may.

use std::ptr;

use cupti_sys::CuptiResult;
use cupti_sys::counters::abi::{
    AUTO_RANGE, ProfilerGetCounterAvailability, RangeDecodeData, RangeDisable, RangeEnable, RangeGetCounterDataInfo,
    RangeGetCounterDataSize, RangeImageInitialize, RangeSetConfig, RangeStart, RangeStop, USER_REPLAY,
};

use super::parameters::{bytes, checked_anywhere, names, store};
use crate::counters::image;
use crate::counters::unit::RangeObject;
use crate::instance::answer;
use crate::violation::Rule;

fn need(condition: bool, otherwise: CuptiResult) -> Result<(), CuptiResult> {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// `cuptiProfilerGetCounterAvailability`: its image is one byte.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerGetCounterAvailability(
    parameters: *mut ProfilerGetCounterAvailability,
) -> CuptiResult {
    answer("cuptiProfilerGetCounterAvailability", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, ProfilerGetCounterAvailability::SIZE) }?;
        player.unit.recorded()?;
        need(!player.unit.objects().is_taken(), CuptiResult::HARDWARE_BUSY)?;
        parameters.size = 1;
        Ok(())
    })
}

/// `cuptiRangeProfilerEnable`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerEnable(parameters: *mut RangeEnable) -> CuptiResult {
    answer("cuptiRangeProfilerEnable", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeEnable::SIZE) }?;
        player.unit.recorded()?;
        let mut objects = player.unit.objects();
        let handle = objects.handle();
        objects.ranges.insert(handle, RangeObject::default());
        parameters.object = ptr::without_provenance_mut(handle);
        Ok(())
    })
}

/// `cuptiRangeProfilerDisable`: not while a pass is open.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerDisable(parameters: *mut RangeDisable) -> CuptiResult {
    answer("cuptiRangeProfilerDisable", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeDisable::SIZE) }?;
        let removed = player.unit.objects().ranges.remove(&parameters.object.addr());
        let object = removed.ok_or(CuptiResult::INVALID_PARAMETER)?;
        if object.is_started {
            player.violations.note(Rule::OpenPass, || "disabled between start and stop".to_owned());
        }
        Ok(())
    })
}

/// `cuptiRangeProfilerGetCounterDataSize`
///
/// # Safety
/// NULL or a struct with the stated number of NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerGetCounterDataSize(parameters: *mut RangeGetCounterDataSize) -> CuptiResult {
    answer("cuptiRangeProfilerGetCounterDataSize", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeGetCounterDataSize::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let metrics = unsafe { names(parameters.names, parameters.count) }?;
        player.unit.objects().range(parameters.object.addr())?;
        need(parameters.ranges == 1 && parameters.nodes >= 1, CuptiResult::INVALID_PARAMETER)?;
        parameters.size = image::bytes(1, metrics.len());
        Ok(())
    })
}

/// `cuptiRangeProfilerCounterDataImageInitialize`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerCounterDataImageInitialize(
    parameters: *mut RangeImageInitialize,
) -> CuptiResult {
    answer("cuptiRangeProfilerCounterDataImageInitialize", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeImageInitialize::SIZE) }?;
        need(!player.unit.objects().range(parameters.object.addr())?.is_started, CuptiResult::INVALID_OPERATION)?;
        need(!parameters.image.is_null(), CuptiResult::INVALID_PARAMETER)?;
        let metrics = (parameters.size / 8).saturating_sub(image::HEADER + 2);
        // SAFETY: the caller guarantees the size.
        unsafe { store(parameters.image, parameters.size, &image::Data::ready(1, metrics)) };
        Ok(())
    })
}

/// `cuptiRangeProfilerSetConfig`
///
/// # Safety
/// NULL or a struct with a configuration and an image of the stated sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerSetConfig(parameters: *mut RangeSetConfig) -> CuptiResult {
    answer("cuptiRangeProfilerSetConfig", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeSetConfig::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let (config, data) = unsafe {
            (bytes(parameters.config, parameters.config_size)?, bytes(parameters.image, parameters.image_size)?)
        };
        let (passes, metrics) = image::parse_configuration(config).ok_or(CuptiResult::INVALID_PARAMETER)?;
        need(image::Data::read(data).is_ready(), CuptiResult::INVALID_PARAMETER)?;
        let is_played = parameters.range == AUTO_RANGE && parameters.replay == USER_REPLAY;
        need(is_played, CuptiResult::NOT_SUPPORTED)?;
        let ranges = [parameters.max_ranges, parameters.levels.into(), parameters.min_level.into()];
        need(ranges == [1; 3] && parameters.target_level == 1, CuptiResult::INVALID_PARAMETER)?;
        let mut objects = player.unit.objects();
        let handle = parameters.object.addr();
        need(!objects.is_taken_but_by(handle), CuptiResult::HARDWARE_BUSY)?;
        let object = objects.range(handle)?;
        need(!object.is_started, CuptiResult::INVALID_OPERATION)?;
        // As an H100 with CUPTI 13.0 does: no error, and the first configuration stays in effect.
        let (metrics, passes) = if object.metrics.is_empty() {
            (metrics, passes.into())
        } else {
            if object.metrics != metrics {
                player.violations.note(Rule::SecondConfiguration, || metrics.join(", "));
            }
            (std::mem::take(&mut object.metrics), object.passes)
        };
        *object = RangeObject {
            metrics,
            passes,
            image: Some((parameters.image.expose_provenance(), parameters.image_size)),
            ..RangeObject::default()
        };
        Ok(())
    })
}

/// `cuptiRangeProfilerStart`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerStart(parameters: *mut RangeStart) -> CuptiResult {
    answer("cuptiRangeProfilerStart", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeStart::SIZE) }?;
        let mut objects = player.unit.objects();
        let object = objects.range(parameters.object.addr())?;
        need(!object.is_started && object.done < object.passes, CuptiResult::INVALID_OPERATION)?;
        object.is_started = true;
        object.launched.clear();
        Ok(())
    })
}

/// `cuptiRangeProfilerStop`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerStop(parameters: *mut RangeStop) -> CuptiResult {
    answer("cuptiRangeProfilerStop", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeStop::SIZE) }?;
        let mut objects = player.unit.objects();
        let object = objects.range(parameters.object.addr())?;
        need(std::mem::take(&mut object.is_started), CuptiResult::INVALID_OPERATION)?;
        let launched = std::mem::take(&mut object.launched);
        let Some((first, others)) = launched.split_first() else { return Err(CuptiResult::UNKNOWN) };
        object.dropped += others.len();
        if object.kernel.get_or_insert_with(|| first.clone()) != first {
            player.violations.note(Rule::MixedPasses, || first.clone());
        }
        object.done += 1;
        parameters.pass = object.done;
        parameters.level = 1;
        parameters.all_submitted = u8::from(object.done == object.passes);
        Ok(())
    })
}

/// `cuptiRangeProfilerDecodeData`
///
/// # Safety
/// NULL or a struct; the image that was configured still exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerDecodeData(parameters: *mut RangeDecodeData) -> CuptiResult {
    answer("cuptiRangeProfilerDecodeData", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeDecodeData::SIZE) }?;
        let recorded = player.unit.recorded()?;
        let mut objects = player.unit.objects();
        let object = objects.range(parameters.object.addr())?;
        let all_ran = object.done == object.passes && object.passes > 0;
        need(all_ran && !object.is_started, CuptiResult::INVALID_OPERATION)?;
        let (Some((address, size)), Some(kernel)) = (object.image, &object.kernel) else {
            return Err(CuptiResult::INVALID_OPERATION);
        };
        let values = object.metrics.iter().map(|metric| recorded.kernel_value(kernel, metric)).collect();
        let mut data = image::Data::ready(1, object.metrics.len());
        data.fill(1, &[(0, 0, values)]);
        // SAFETY: the client keeps the image that it configured until it configures another or disables the object.
        unsafe { store(ptr::with_exposed_provenance_mut(address), size, &data) };
        parameters.dropped = object.dropped;
        Ok(())
    })
}

/// `cuptiRangeProfilerGetCounterDataInfo`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiRangeProfilerGetCounterDataInfo(parameters: *mut RangeGetCounterDataInfo) -> CuptiResult {
    answer("cuptiRangeProfilerGetCounterDataInfo", |_| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, RangeGetCounterDataInfo::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let data = image::Data::read(unsafe { bytes(parameters.image, parameters.size) }?);
        need(data.is_known(), CuptiResult::INVALID_PARAMETER)?;
        [_, _, parameters.ranges] = data.counts();
        Ok(())
    })
}
