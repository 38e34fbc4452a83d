//! A plan in numbers -> the text that `host plan` prints.

use std::fmt;

use espalier_engine::measure;
use espalier_plan::plan::Source;
use espalier_registry::ComponentSource;

use super::PlanReport;
use super::seconds::seconds;
use crate::bytes::Bytes;

/// Columns of the longest bar beside a category.
const BAR_COLUMNS: u64 = 24;

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(auto) = &self.auto {
            write!(f, "{auto}")?;
        }
        self.run(f)?;
        self.memory(f)?;
        if self.explains {
            write!(f, "{}{}", self.arithmetic, self.launches)?;
        }
        self.moved(f)?;
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
        self.places(f)?;
        if !self.decomposed.is_empty() {
            let ops = self.decomposed.join(", ");
            writeln!(f, "decomposed {ops}: the backend lacks them")?;
        }
        writeln!(
            f,
            "params     {} in all, {} trained ({percent:.2} %)",
            self.num_params, self.num_trained_params
        )?;
        writeln!(f, "optimizer  {}", self.optimizer)?;
        for group in &self.param_groups {
            writeln!(
                f,
                "  group    {}: {} params of {} elements, learning rate {}, weight decay {}",
                group.name(),
                group.params,
                group.elements,
                group.learning_rate,
                group.weight_decay
            )?;
        }
        if self.world.ranks > 1 {
            let machines = match self.world.machines() {
                1 => "one machine".to_owned(),
                machines => format!("{machines} machines"),
            };
            writeln!(f, "world      {} ranks on {machines}", self.world.ranks)?;
        }
        if let Some(idle) = &self.idle_ranks {
            writeln!(f, "note       {idle}")?;
        }
        writeln!(
            f,
            "run        {}; at most {} tokens of {} sequences at once",
            if self.rows_read {
                format!("{} steps", self.total_steps)
            } else {
                "no rows were read".to_owned()
            },
            self.max_tokens,
            self.max_sequences
        )?;
        self.calibration(f)
    }

    /// Before the first step, where a quantizer wants statistics.
    fn calibration(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(calibration) = &self.calibration else {
            return Ok(());
        };
        let operations = calibration.flops as f64;
        let on_device = match calibration.device_bytes {
            0 => String::new(),
            bytes => format!(" and {} on the device", Bytes(bytes)),
        };
        writeln!(
            f,
            "calibrate  `{}` on at most {} rows of {} tokens: {}{on_device}, {:.3} TFLOP ({}) and what its \
             encoder takes; none of it for weights in the cache",
            calibration.quantizer,
            calibration.rows,
            calibration.tokens / calibration.rows.max(1),
            Bytes(calibration.bytes),
            operations / 1e12,
            seconds(operations / self.speeds.flops, 1),
        )
    }

    /// The sources of the plugins.
    fn places(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = &self.plugin_places;
        let is_linked =
            |place: &&ComponentSource| place.from == "linked" && place.also_found.is_empty();
        let linked: Vec<&str> = places
            .used
            .iter()
            .filter(is_linked)
            .map(|place| place.component.as_str())
            .collect();
        if !linked.is_empty() {
            writeln!(f, "  linked   {}", linked.join(", "))?;
        }
        for place in places.used.iter().filter(|place| !is_linked(place)) {
            writeln!(f, "  found    {place}")?;
        }
        for unusable in &places.unusable {
            writeln!(
                f,
                "  left out {}: {}",
                unusable.file.display(),
                unusable.reason
            )?;
        }
        Ok(())
    }

    /// The categories above 0, the peaks, and whether the plan fits.
    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = match self.world.ranks {
            1 => "one rank".to_owned(),
            ranks => format!("each of {ranks} ranks"),
        };
        writeln!(f, "\nmemory on {} ({ranks})", self.device)?;
        let categories = self.memory.categories();
        self.categories(f, &categories, self.step_peak_bytes)?;
        row(f, "peak of a step", self.step_peak_bytes)?;
        row(f, "peak while loading", self.loading_peak_bytes)?;
        if let Some(host) = &self.host {
            match self.world.machines() {
                1 => writeln!(f, "\nmemory of the machine")?,
                machines => writeln!(f, "\nmemory of each of {machines} machines")?,
            }
            let peak = host.step_peak();
            self.categories(f, &host.categories(), peak)?;
            row(f, "peak of a step", peak)?;
            row(f, "peak while loading", host.loading_peak)?;
        }
        self.verdict(f)
    }

    fn categories(
        &self,
        f: &mut fmt::Formatter<'_>,
        categories: &[(&str, u64)],
        peak: u64,
    ) -> fmt::Result {
        let largest = categories.iter().map(|(_, bytes)| *bytes).max();
        let largest = largest.unwrap_or(0).max(1);
        let whole: u64 = self.weights_by_layout.values().sum();
        for &(name, bytes) in categories.iter().filter(|(_, bytes)| *bytes > 0) {
            let share = 100.0 * bytes as f64 / peak as f64;
            let bar = "#".repeat((bytes * BAR_COLUMNS).div_ceil(largest) as usize);
            let size = Bytes(bytes).to_string();
            writeln!(f, "  {name:<20} {size:>12}  {share:>5.1} %  {bar}")?;
            if name == "weights" && bytes == whole {
                for (layout, bytes) in &self.weights_by_layout {
                    let size = Bytes(*bytes).to_string();
                    writeln!(f, "    as {layout:<15} {size:>12}")?;
                }
            }
        }
        writeln!(f, "  {:-<33}", "")
    }

    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.fits { "fits" } else { "does not fit" };
        let note = match (&self.stand_in, self.exact) {
            (Some(_), _) => " (assumed)",
            (None, true) => "",
            (None, false) => " (an estimate)",
        };
        let on_device = |needed| {
            let there = Bytes(self.available_bytes);
            format!("{} more needed, {there} available{note}", Bytes(needed))
        };
        let Some(host) = &self.host else {
            let needed = on_device(self.memory.needed());
            return writeln!(f, "  {verdict}: {needed}");
        };
        let available = host.available.map_or_else(
            || "not asked for: see --host-memory".to_owned(),
            |bytes| format!("{} available", Bytes(bytes)),
        );
        let on_host = format!("on the host {}, {available}", Bytes(host.needed()));
        match host.devices {
            0 => {
                let needed = on_device(self.memory.on_device());
                writeln!(f, "  {verdict}: {needed}; {on_host}")
            }
            _ => writeln!(f, "  {verdict}: {on_host}{note}"),
        }
    }

    fn moved(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = &self.time.moved;
        if moved.total() == 0 {
            return Ok(());
        }
        writeln!(f, "\nmoved in a step, by each rank")?;
        for (link, bytes) in [
            ("host to device", moved.host_to_device),
            ("device to host", moved.device_to_host),
            ("from other ranks", moved.between_ranks),
            ("from other machines", moved.between_machines),
        ] {
            if bytes > 0 {
                row(f, link, bytes)?;
            }
        }
        Ok(())
    }

    fn time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = &self.stand_in {
            writeln!(
                f,
                "\nThe device is not here: workspace of kernels as the {backend} backend needs it."
            )?;
        }
        self.at_peak(f)?;
        if self.work.step_tokens == 0 {
            return Ok(());
        }
        let of_head = match self.work.step_head_tokens() {
            all if all == self.work.step_tokens => String::new(),
            some => format!(" ({some} of them in the head)"),
        };
        let speeds = &self.speeds;
        let source = match speeds.source {
            Source::Measured => "measured",
            Source::Assumed => "assumed",
        };
        writeln!(
            f,
            "\ntime of a step of {} tokens{of_head}, predicted ({source}: {:.3} TFLOP/s a rank, {:.1} GB/s to its host)",
            self.work.step_tokens,
            speeds.flops / 1e12,
            speeds.link / 1e9,
        )?;
        let time = &self.time;
        time_row(f, "products", time.compute_secs)?;
        if time.other_secs > 0.0 {
            time_row(f, "other kernels", time.other_secs)?;
        }
        if time.moving_secs > 0.0 {
            time_row(f, "moving bytes", time.moving_secs)?;
            time_row(f, "  beside computing", time.hidden_secs)?;
        }
        time_row(f, "step", time.secs)?;
        if self.total_steps > 0 {
            let name = format!("{} such steps", self.total_steps);
            time_row(f, &name, time.secs * self.total_steps as f64)?;
        }
        writeln!(f, "  {:<20} {:>12.1}", "tokens/s", time.tokens_per_sec)
    }

    /// The time of a step at the peak matrix-product rate.
    fn at_peak(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(rate), Some(step_secs)) = (self.gemm_flops_per_sec, self.light_step_secs) else {
            return Ok(());
        };
        let each = if self.world.ranks > 1 { " a rank" } else { "" };
        writeln!(
            f,
            "\ntime at peak ({:.1} GFLOP/s{each}: {}, timed now)",
            rate / 1e9,
            measure::HOW
        )?;
        writeln!(
            f,
            "  {:<20} {:>12}  {:.2} GFLOP",
            "first step",
            seconds(step_secs, 3),
            self.step_flops as f64 / 1e9,
        )?;
        if self.total_steps > 0 {
            let name = format!("{} such steps", self.total_steps);
            time_row(f, &name, step_secs * self.total_steps as f64)?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, bytes: u64) -> fmt::Result {
    writeln!(f, "  {name:<20} {:>12}", Bytes(bytes).to_string())
}

fn time_row(f: &mut fmt::Formatter<'_>, name: &str, secs: f64) -> fmt::Result {
    writeln!(f, "  {name:<20} {:>12}", seconds(secs, 3))
}
