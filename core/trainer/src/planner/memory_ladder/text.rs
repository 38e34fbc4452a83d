//! The plans of a ladder -> the text that `host plan --ladder` prints.

use std::fmt;

use super::{LadderPlan, LadderRung, MemoryLadder, MemoryPart, PublishedPeak};
use crate::bytes::Bytes;

/// Smaller changes of a part are not shown.
const SHOWN_BYTES: u64 = 1 << 20;

impl fmt::Display for MemoryLadder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ladder     {}: {}", self.ladder, self.about)?;
        writeln!(f, "source     {}", self.source)?;
        let each = if self.ranks > 1 {
            format!("; memory of each of {} ranks", self.ranks)
        } else {
            String::new()
        };
        writeln!(
            f,
            "model      {}, {} params{each}",
            self.model, self.num_params
        )?;
        self.table(f)?;
        for (index, rung) in self.rungs.iter().enumerate() {
            self.step(f, index, rung)?;
        }
        writeln!(
            f,
            "\nThe options of a line `all` are beside your own, and --plugins is in place of yours: `host plan` with them\n\
             gives that rung's plan. Parts that change by less than 1 MiB are left out."
        )
    }
}

impl MemoryLadder {
    /// A line for each rung.
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["rung", "from", "step's peak", "change"];
        let [rung, from, peak, change_of] = header;
        write!(f, "\n     {rung:<32} {from:>4} {peak:>12} {change_of:>13}")?;
        let published = self.rungs.iter().find_map(|rung| rung.published);
        writeln!(f, "{}", published.map_or("", |_| "   published, and ours"))?;
        for (index, rung) in self.rungs.iter().enumerate() {
            let from = rung
                .from
                .map_or(String::new(), |from| (from + 1).to_string());
            write!(f, "  {:>2} {:<32} {from:>4}", index + 1, rung.name)?;
            let Some(plan) = &rung.plan else {
                writeln!(f, " {:>12}", "refused")?;
                continue;
            };
            let peak = plan.step_peak_bytes;
            let below = self.below(rung);
            let change = below.map_or(String::new(), |below| change(below.step_peak_bytes, peak));
            write!(f, " {:>12} {change:>13}", Bytes(peak).to_string())?;
            if let Some(PublishedPeak {
                peak: theirs,
                unit,
                unit_bytes,
            }) = rung.published
            {
                let ours = peak as f64 / unit_bytes;
                write!(f, "   {theirs:>6} {unit}, {ours:.2} {unit}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// The plan of the rung that `rung` changes.
    fn below(&self, rung: &LadderRung) -> Option<&LadderPlan> {
        self.rungs[rung.from?].plan.as_ref()
    }

    /// The options of a rung, and its parts or the parts that it changes.
    fn step(&self, f: &mut fmt::Formatter<'_>, index: usize, rung: &LadderRung) -> fmt::Result {
        write!(f, "\n{} {}", index + 1, rung.name)?;
        match rung.from {
            Some(from) => {
                let changes = match self.changes(rung, from) {
                    words if words.is_empty() => "no option: every run has it".to_owned(),
                    words => words.join(" "),
                };
                writeln!(f, ", from {}: {changes}", from + 1)?;
            }
            None => writeln!(f)?,
        }
        let below = self.below(rung);
        for part in rung.plan.iter().flat_map(|plan| &plan.parts) {
            let before =
                below.and_then(|below| below.parts.iter().find(|old| old.name == part.name));
            match before {
                Some(before) => changed(f, before, part)?,
                None if part.bytes >= SHOWN_BYTES => whole(f, part)?,
                None => {}
            }
        }
        if let Some(plan) = rung
            .plan
            .as_ref()
            .filter(|plan| plan.peak_bytes > plan.step_peak_bytes)
        {
            writeln!(
                f,
                "  while loading    {:>12}",
                Bytes(plan.peak_bytes).to_string()
            )?;
        }
        if let Some(refused) = &rung.refused {
            writeln!(f, "  refused: {refused}")?;
        }
        if rung.all_logits {
            writeln!(
                f,
                "  the logits of all tokens at once, for comparison: every run has them in chunks"
            )?;
        }
        writeln!(f, "  all: {}", rung.options.words().join(" "))
    }

    /// The words of the options that change the rung `from`.
    fn changes(&self, rung: &LadderRung, from: usize) -> Vec<String> {
        let mut step = rung.step.clone();
        if step.plugins == self.rungs[from].options.plugins {
            step.plugins.clear();
        }
        step.words()
    }
}

/// A part of the first rung.
fn whole(f: &mut fmt::Formatter<'_>, part: &MemoryPart) -> fmt::Result {
    let size = Bytes(part.bytes).to_string();
    let line = format!("  {:<16} {size:>12}  {}", part.name, products(part));
    writeln!(f, "{}", line.trim_end())
}

/// A part that changes.
fn changed(f: &mut fmt::Formatter<'_>, before: &MemoryPart, part: &MemoryPart) -> fmt::Result {
    if before.bytes.abs_diff(part.bytes) < SHOWN_BYTES {
        return Ok(());
    }
    let by = change(before.bytes, part.bytes);
    let [was, is] = [before, part].map(|part| match part.bytes {
        0 => "nothing".to_owned(),
        bytes => match products(part) {
            words if words.is_empty() => Bytes(bytes).to_string(),
            words => words,
        },
    });
    writeln!(f, "  {:<16} {by:>12}  {was} -> {is}", part.name)
}

/// The products of a part as a sum.
fn products(part: &MemoryPart) -> String {
    let products = part.products.iter().map(ToString::to_string);
    products.collect::<Vec<_>>().join(" + ")
}

/// A change with its sign.
fn change(before: u64, after: u64) -> String {
    let sign = if after < before { '-' } else { '+' };
    format!("{sign}{}", Bytes(before.abs_diff(after)))
}
