//! The result of a search -> the text that `host plan --auto` prints before the plan.

use std::fmt;

use super::super::seconds::seconds;
use super::Auto;
use super::tried::Tried;

impl fmt::Display for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "searched   {} plans, of which {} fit",
            self.tried, self.fitting
        )?;
        for refused in &self.refused {
            writeln!(f, "           left out: {refused}")?;
        }
        if self.chosen.device.is_some() {
            writeln!(
                f,
                "           (where a device's memory is an estimate, a twentieth is left free)"
            )?;
        }
        for (number, rung) in (1..).zip(&self.ladder.0) {
            let Some(best) = &rung.best else { continue };
            writeln!(f, "\n  {number} {}: {}", rung.step.words(), verdict(best))?;
            writeln!(f, "    {}", best.choice)?;
        }
        let chosen = &self.chosen;
        match &self.advice {
            Some(advice) => writeln!(f, "\n{advice}\n")?,
            None => writeln!(
                f,
                "\nchosen     {}\n           the fastest that fits: {}\n",
                chosen.choice,
                verdict(chosen)
            )?,
        }
        for line in self.config.lines() {
            writeln!(f, "    {line}")?;
        }
        writeln!(f)
    }
}

/// Its speed and its memory, or the missing memory.
fn verdict(tried: &Tried) -> String {
    if let Some(lacks) = tried.lacks() {
        return format!("does not fit, {lacks}");
    }
    let device = tried
        .device
        .map_or(String::new(), |room| format!("{room} on a device, "));
    format!(
        "{} a step, {:.1} tokens/s; {device}{} on the host",
        seconds(tried.time.secs, 2),
        tried.time.tokens_per_sec,
        tried.host
    )
}
