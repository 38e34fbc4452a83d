//! The report of loading -> what the user is told of it.

use espalier_engine::load::{LoadReport, WeightCache};
use espalier_engine::observer::{Event, Observer};

/// Tells of weights from the cache, of those that it keeps from now on, and of weights that are
/// packed wrongly.
pub(super) fn tell(report: &LoadReport, cache: Option<&WeightCache>, observer: &dyn Observer) {
    let (cached, encoded) = (report.cached, report.encoded);
    tell_packed(
        [(cached + encoded) as usize, cached as usize],
        cache,
        observer,
    );
    warn(report, observer);
}

/// Tells that `cached` of `packed` weights are from the cache, and of those that it keeps from now
/// on.
pub(crate) fn tell_packed(
    [packed, cached]: [usize; 2],
    cache: Option<&WeightCache>,
    observer: &dyn Observer,
) {
    if cached > 0 {
        observer.observe(&Event::Note(&format!(
            "took {cached} of {packed} packed weights from the cache of earlier runs"
        )));
    }
    if let Some(line) = cache.and_then(WeightCache::told) {
        observer.observe(&Event::Note(&line));
    }
}

/// Warns of quantizers whose weights do not decode to their original values: training continues
/// with the decoded values.
fn warn(report: &LoadReport, observer: &dyn Observer) {
    let wrong = || report.decode_checks.iter().filter(|check| check.is_wrong());
    let mut told: Vec<&str> = Vec::new();
    for check in wrong() {
        let quantizer = check.quantizer.as_str();
        if told.contains(&quantizer) {
            continue;
        }
        told.push(quantizer);
        let others = wrong().filter(|one| one.quantizer == quantizer).count() - 1;
        let others = match others {
            0 => String::new(),
            _ => format!(", and so do weights of {others} more formats of it"),
        };
        let text =
            format!("{check}{others}; see what is wrong with `host plugins check {quantizer}`");
        observer.observe(&Event::Warning(&text));
    }
}
