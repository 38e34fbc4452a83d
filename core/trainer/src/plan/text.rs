//! A plan in numbers -> the text that `host plan` prints.

use std::fmt;

use super::PlanReport;
use crate::bytes::Bytes;
use crate::report::number::duration;

/// Columns of the longest bar beside a category.
const BAR_COLUMNS: u64 = 24;

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run(f)?;
        self.memory(f)?;
        self.time(f)
    }
}

impl PlanReport {
    fn run(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.num_trained_params as f64 / self.num_params.max(1) as f64;
        let packed = self.packed_by.as_ref();
        let packed = packed.map_or(String::new(), |name| {
            format!(" (packed already, by {name})")
        });
        writeln!(f, "model      {}{packed}", self.model)?;
        writeln!(f, "plugins    {}", self.plugins.join(", "))?;
        writeln!(
            f,
            "params     {} in all, {} trained ({percent:.2} %)",
            self.num_params, self.num_trained_params
        )?;
        writeln!(
            f,
            "run        {}; at most {} tokens of {} sequences at once",
            match self.rows_read {
                true => format!("{} steps", self.total_steps),
                false => "no rows were read".to_owned(),
            },
            self.max_tokens,
            self.max_sequences
        )
    }

    /// The categories that take anything, the peaks, and whether that fits.
    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nmemory on {} (one rank)", self.device)?;
        let categories = self.memory.categories();
        let largest = categories.iter().map(|(_, bytes)| *bytes).max();
        let largest = largest.unwrap_or(0).max(1);
        for (name, bytes) in categories.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let share = 100.0 * bytes as f64 / self.step_peak_bytes as f64;
            let bar = "#".repeat((bytes * BAR_COLUMNS).div_ceil(largest) as usize);
            let size = Bytes(bytes).to_string();
            writeln!(f, "  {name:<20} {size:>12}  {share:>5.1} %  {bar}")?;
            if name == "weights" {
                for (layout, bytes) in &self.weights_by_layout {
                    let size = Bytes(*bytes).to_string();
                    writeln!(f, "    as {layout:<15} {size:>12}")?;
                }
            }
        }
        writeln!(f, "  {:-<33}", "")?;
        row(f, "peak of a step", self.step_peak_bytes)?;
        row(f, "peak while loading", self.loading_peak_bytes)?;
        if let Some(host) = &self.host {
            writeln!(f, "\nmemory on its host")?;
            row(f, "program", host.program)?;
            row(f, "weights on their way", host.loading)?;
        }
        let verdict = if self.fits { "fits" } else { "does not fit" };
        write!(
            f,
            "  {verdict}: {} more needed, {} available{}",
            Bytes(self.memory.needed()),
            Bytes(self.available_bytes),
            match (&self.stand_in, self.exact) {
                (Some(_), _) => " (assumed)",
                (None, true) => "",
                (None, false) => " (an estimate)",
            }
        )?;
        if let Some(host) = &self.host {
            let available = host.available.map_or_else(
                || "not asked for: see --host-memory".to_owned(),
                |bytes| format!("{} available", Bytes(bytes)),
            );
            write!(f, "; on the host {}, {available}", Bytes(host.needed()))?;
        }
        writeln!(f)
    }

    fn time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = &self.stand_in {
            return writeln!(
                f,
                "\nThe device is not here: workspace of kernels as the {backend} backend needs it, \
                 and no prediction of time."
            );
        }
        let (Some(rate), Some(step_secs)) = (self.gemm_flops_per_sec, self.light_step_secs) else {
            return Ok(());
        };
        writeln!(
            f,
            "\ntime at the speed of light ({:.1} GFLOP/s, measured): nothing is faster",
            rate / 1e9
        )?;
        writeln!(
            f,
            "  first step           {:>10.3} s  {:.2} GFLOP",
            step_secs,
            self.step_flops as f64 / 1e9,
        )?;
        if self.total_steps > 0 {
            let all = step_secs * self.total_steps as f64;
            let steps = self.total_steps;
            let all = duration(all);
            writeln!(f, "  {:<20} {all:>12}", format!("{steps} such steps"))?;
        }
        let moved = Bytes(self.bytes_moved_per_step).to_string();
        match self.bytes_moved_per_step {
            0 => Ok(()),
            _ => writeln!(
                f,
                "  bytes moved a step   {moved:>12}  between host and device"
            ),
        }
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, bytes: u64) -> fmt::Result {
    writeln!(f, "  {name:<20} {:>12}", Bytes(bytes).to_string())
}
