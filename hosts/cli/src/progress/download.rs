//! A download as it advances -> a bar, or lines where none is drawn.

use std::time::Instant;

use espalier_hub::Transfer;
use espalier_system::number::duration;
use espalier_trainer::bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};

use super::{LinePace, WORK, text};
use crate::display;

/// Shows one download after the other.
#[derive(Default)]
pub struct DownloadProgress {
    present: Option<Download>,
}

/// A download that is shown.
struct Download {
    begin: Instant,
    /// Bytes that were there before.
    before: u64,
    bar: Option<ProgressBar>,
    lines: LinePace,
}

impl Download {
    fn new(first: &Transfer) -> Self {
        let bar = display::draws().then(|| {
            let style = ProgressStyle::with_template(WORK).expect("a fixed template");
            let bar = display::add(ProgressBar::new(first.total_bytes));
            bar.set_style(style.progress_chars("━╸─"));
            bar.set_prefix("downloading");
            bar
        });
        Download {
            begin: Instant::now(),
            before: first.bytes,
            bar,
            lines: LinePace::default(),
        }
    }
}

impl DownloadProgress {
    /// Shows how far the present download is; none once it ended.
    pub fn show(&mut self, transfer: Option<&Transfer>) {
        let Some(transfer) = transfer else {
            if let Some(bar) = self.present.take().and_then(|present| present.bar) {
                bar.finish_and_clear();
            }
            return;
        };
        let present = self.present.get_or_insert_with(|| Download::new(transfer));
        let (now, total) = (present.begin.elapsed(), transfer.total_bytes);
        let arrived = transfer.bytes.saturating_sub(present.before);
        let line = line(transfer, arrived, now.as_secs_f64());
        match &present.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(transfer.bytes);
                bar.set_message(line);
            }
            None if present.lines.due(now, transfer.bytes, total) => {
                display::show(&format!("downloading {line}"));
            }
            None => {}
        }
    }
}

/// The file, its bytes, their speed and the time that is left; `arrived` bytes took `secs`.
fn line(transfer: &Transfer, arrived: u64, secs: f64) -> String {
    let left = transfer.total_bytes.saturating_sub(transfer.bytes);
    let left = match arrived {
        0 => String::new(),
        _ => format!("  {} left", duration(left as f64 * secs / arrived as f64)),
    };
    format!(
        "{}  {} of {}{}{left}",
        transfer.file,
        Bytes(transfer.bytes),
        Bytes(transfer.total_bytes),
        text::rate(arrived, secs)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_bytes_speed_and_time() {
        let transfer = Transfer {
            repository: "org/name".into(),
            file: "model.safetensors".into(),
            bytes: 3 << 20,
            total_bytes: 4 << 20,
        };
        let shown = line(&transfer, 2 << 20, 4.0);
        let expected = "model.safetensors  3.00 MiB of 4.00 MiB";
        assert!(shown.starts_with(expected), "{shown}");
        assert!(shown.ends_with("2.0 s left"), "{shown}");
        assert!(!line(&transfer, 0, 0.0).contains("left"));
    }
}
