//! The C functions of CUPTI's profiler and of its metrics.

use std::ffi::c_char;
use std::ptr;

use cupti_sys::CuptiResult;
use cupti_sys::counters::abi::{
    DeviceGetChipName, HostConfigAddMetrics, HostDeinitialize, HostEvaluateToGpuValues, HostGetBaseMetrics,
    HostGetConfigImage, HostGetConfigImageSize, HostGetMetricProperties, HostGetNumOfPasses, HostGetSupportedChips,
    HostInitialize, ProfilerInitialize, RANGE_PROFILER,
};

use super::parameters::{bytes, checked, checked_anywhere, names, register_exit};
use crate::counters::Recorded;
use crate::counters::image;
use crate::counters::unit::HostObject;
use crate::ffi;
use crate::instance::answer;
use crate::violation::Rule;

/// Each call opens another pass, and ranges take as many passes as the file states.
fn passes(host: &HostObject, recorded: &Recorded) -> u8 {
    if host.of_ranges { recorded.passes(host.metrics.len()).saturating_add(host.calls - 1) } else { host.calls }
}

/// `cuptiProfilerInitialize`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerInitialize(parameters: *mut ProfilerInitialize) -> CuptiResult {
    answer("cuptiProfilerInitialize", |player| {
        // SAFETY: guaranteed by the caller.
        unsafe { checked(player, "cuptiProfilerInitialize", parameters, ProfilerInitialize::SIZE) }?;
        player.unit.recorded().map(drop)?;
        register_exit();
        Ok(())
    })
}

/// `cuptiDeviceGetChipName`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiDeviceGetChipName(parameters: *mut DeviceGetChipName) -> CuptiResult {
    answer("cuptiDeviceGetChipName", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiDeviceGetChipName", parameters, DeviceGetChipName::SIZE) }?;
        let recorded = player.unit.recorded()?;
        if parameters.device != 0 {
            return Err(CuptiResult::INVALID_DEVICE);
        }
        parameters.chip = recorded.chip.as_ptr();
        Ok(())
    })
}

/// `cuptiProfilerHostGetSupportedChips`: one chip.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostGetSupportedChips(parameters: *mut HostGetSupportedChips) -> CuptiResult {
    answer("cuptiProfilerHostGetSupportedChips", |player| {
        let name = "cuptiProfilerHostGetSupportedChips";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostGetSupportedChips::SIZE) }?;
        let chip: *const c_char = player.unit.recorded()?.chip.as_ptr();
        // Leaks one pointer per call, which lives as long as the library.
        parameters.chips = Box::leak(Box::new(chip));
        parameters.count = 1;
        Ok(())
    })
}

/// `cuptiProfilerHostGetBaseMetrics`: the metrics of the file, those with a suffix of ratios as ratios, others as
/// counters.
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostGetBaseMetrics(parameters: *mut HostGetBaseMetrics) -> CuptiResult {
    answer("cuptiProfilerHostGetBaseMetrics", |player| {
        let name = "cuptiProfilerHostGetBaseMetrics";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostGetBaseMetrics::SIZE) }?;
        let bases = player.unit.recorded()?.base_metrics(parameters.kind);
        let texts: Vec<*const c_char> = bases.into_iter().map(|text| text.into_raw().cast_const()).collect();
        parameters.count = texts.len();
        // Leaks the names of each call, which live as long as the library.
        parameters.names = texts.leak().as_ptr();
        Ok(())
    })
}

/// `cuptiProfilerHostGetMetricProperties`: the same for each metric of the file.
///
/// # Safety
/// NULL or a struct with a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostGetMetricProperties(parameters: *mut HostGetMetricProperties) -> CuptiResult {
    answer("cuptiProfilerHostGetMetricProperties", |player| {
        let name = "cuptiProfilerHostGetMetricProperties";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostGetMetricProperties::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let metric = unsafe { names(&raw const parameters.name, 1) }?;
        let recorded = player.unit.recorded()?;
        let known =
            |kind| recorded.base_metrics(kind).iter().any(|base| metric[0].as_bytes().starts_with(base.as_bytes()));
        parameters.kind = (0..2).find(|kind| known(*kind)).ok_or(CuptiResult::INVALID_PARAMETER)?;
        [parameters.description, parameters.unit, parameters.dimension] = [c"played".as_ptr(); 3];
        Ok(())
    })
}

/// `cuptiProfilerHostInitialize`
///
/// # Safety
/// NULL or a struct whose texts are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostInitialize(parameters: *mut HostInitialize) -> CuptiResult {
    answer("cuptiProfilerHostInitialize", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, "cuptiProfilerHostInitialize", parameters, HostInitialize::SIZE) }?;
        let recorded = player.unit.recorded()?;
        // SAFETY: guaranteed by the caller.
        let chip = unsafe { names(&raw const parameters.chip, 1) }?;
        if parameters.kind > 1 || chip.first().map(String::as_bytes) != Some(recorded.chip.as_bytes()) {
            return Err(CuptiResult::INVALID_PARAMETER);
        }
        let mut objects = player.unit.objects();
        let handle = objects.handle();
        objects
            .hosts
            .insert(handle, HostObject { of_ranges: parameters.kind == RANGE_PROFILER, ..HostObject::default() });
        parameters.object = ptr::without_provenance_mut(handle);
        Ok(())
    })
}

/// `cuptiProfilerHostDeinitialize`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostDeinitialize(parameters: *mut HostDeinitialize) -> CuptiResult {
    answer("cuptiProfilerHostDeinitialize", |player| {
        // SAFETY: guaranteed by the caller.
        let parameters =
            unsafe { checked(player, "cuptiProfilerHostDeinitialize", parameters, HostDeinitialize::SIZE) }?;
        let removed = player.unit.objects().hosts.remove(&parameters.object.addr());
        removed.map(drop).ok_or(CuptiResult::INVALID_PARAMETER)
    })
}

/// `cuptiProfilerHostConfigAddMetrics`: a metric that the chip lacks fails the complete call.
///
/// # Safety
/// NULL or a struct with the stated number of NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostConfigAddMetrics(parameters: *mut HostConfigAddMetrics) -> CuptiResult {
    answer("cuptiProfilerHostConfigAddMetrics", |player| {
        let name = "cuptiProfilerHostConfigAddMetrics";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostConfigAddMetrics::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let added = unsafe { names(parameters.names, parameters.count) }?;
        let recorded = player.unit.recorded()?;
        if !added.iter().all(|metric| recorded.knows(metric)) {
            return Err(CuptiResult::UNKNOWN);
        }
        let mut objects = player.unit.objects();
        let host = objects.host(parameters.object.addr())?;
        host.metrics.extend(added);
        host.calls = host.calls.saturating_add(1);
        Ok(())
    })
}

/// `cuptiProfilerHostGetConfigImageSize`
///
/// # Safety
/// NULL or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostGetConfigImageSize(parameters: *mut HostGetConfigImageSize) -> CuptiResult {
    answer("cuptiProfilerHostGetConfigImageSize", |player| {
        let name = "cuptiProfilerHostGetConfigImageSize";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostGetConfigImageSize::SIZE) }?;
        let mut objects = player.unit.objects();
        let host = objects.host(parameters.object.addr())?;
        parameters.size = image::configuration(passes(host, player.unit.recorded()?), &host.metrics).len();
        Ok(())
    })
}

/// `cuptiProfilerHostGetConfigImage`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostGetConfigImage(parameters: *mut HostGetConfigImage) -> CuptiResult {
    answer("cuptiProfilerHostGetConfigImage", |player| {
        let name = "cuptiProfilerHostGetConfigImage";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostGetConfigImage::SIZE) }?;
        let mut objects = player.unit.objects();
        let host = objects.host(parameters.object.addr())?;
        let image = image::configuration(passes(host, player.unit.recorded()?), &host.metrics);
        if parameters.image.is_null() || parameters.size < image.len() {
            return Err(CuptiResult::PARAMETER_SIZE_NOT_SUFFICIENT);
        }
        // SAFETY: long enough, as guaranteed by the caller.
        unsafe { parameters.image.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        Ok(())
    })
}

/// `cuptiProfilerHostGetNumOfPasses`
///
/// # Safety
/// NULL or a struct with an image of the stated size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostGetNumOfPasses(parameters: *mut HostGetNumOfPasses) -> CuptiResult {
    answer("cuptiProfilerHostGetNumOfPasses", |player| {
        let name = "cuptiProfilerHostGetNumOfPasses";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked(player, name, parameters, HostGetNumOfPasses::SIZE) }?;
        player.unit.recorded()?;
        // SAFETY: guaranteed by the caller.
        let image = unsafe { bytes(parameters.image, parameters.size) }?;
        let (passes, _) = image::parse_configuration(image).ok_or(CuptiResult::INVALID_PARAMETER)?;
        parameters.passes = passes.into();
        Ok(())
    })
}

/// `cuptiProfilerHostEvaluateToGpuValues`: for samples, and for ranges also from inside a callback.
///
/// # Safety
/// NULL or a struct with counter data, texts and room for values of the stated sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiProfilerHostEvaluateToGpuValues(parameters: *mut HostEvaluateToGpuValues) -> CuptiResult {
    answer("cuptiProfilerHostEvaluateToGpuValues", |player| {
        let name = "cuptiProfilerHostEvaluateToGpuValues";
        // SAFETY: guaranteed by the caller.
        let parameters = unsafe { checked_anywhere(parameters, HostEvaluateToGpuValues::SIZE) }?;
        // SAFETY: guaranteed by the caller.
        let (data, wanted) =
            unsafe { (bytes(parameters.image, parameters.size)?, names(parameters.names, parameters.count)?) };
        let HostObject { metrics: known, of_ranges, .. } =
            player.unit.objects().host(parameters.object.addr())?.clone();
        if let Some(callback) = ffi::callback_on_this_thread().filter(|_| !of_ranges) {
            player.violations.note(Rule::CountersInCallback, || format!("{name}, from {callback}"));
        }
        let sample = image::Data::read(data).sample(parameters.index).ok_or(CuptiResult::INVALID_PARAMETER)?;
        for (place, metric) in wanted.iter().enumerate() {
            let found = known.iter().position(|known| known == metric).and_then(|at| sample.2.get(at));
            let value = found.copied().ok_or(CuptiResult::INVALID_PARAMETER)?;
            // SAFETY: the caller guarantees room for as many values as names.
            unsafe { parameters.values.add(place).write(value) };
        }
        Ok(())
    })
}
