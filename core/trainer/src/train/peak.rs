//! A step's rate -> its share of the peak, which is measured again when a step exceeds it.

use super::runner::Runner;
use crate::Error;

impl Runner<'_> {
    /// The share of the peak of step `step`, which ran at `flops_per_sec`. A higher peak is
    /// recorded.
    ///
    /// # Errors
    /// A failure to write the record.
    pub(super) fn share_of_peak(&mut self, step: u64, flops_per_sec: f64) -> Result<f64, Error> {
        let known = self.peaks.0.len();
        let team = &self.live.team;
        let share = self.peaks.share(step, flops_per_sec, || {
            let world = team.world();
            if !world.writes() {
                return None;
            }
            let measured = team.each(|executor| Ok::<_, Error>(executor.product_rate()));
            // If one rank cannot be measured, the sum is unknown.
            let sum: Option<f64> = measured.ok()?.into_iter().sum();
            Some(sum? * f64::from(world.processes))
        });
        if self.peaks.0.len() > known {
            self.run["machine"]["peak_rates"] =
                serde_json::to_value(&self.peaks).expect("rates are plain data");
            self.put_on_record()?;
        }
        Ok(share)
    }
}
