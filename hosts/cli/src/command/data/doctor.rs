//! `host data doctor`: all faults of the rows at once.

use std::io::{self, Write};

use anyhow::Result;
use espalier_config::Origin;
use espalier_data::checkup::{Checkup, Lengths, Part};
use espalier_data::{DataError, TooLongIs, describe_split_tokens, grouped, percent};
use espalier_system::threads::HostServices;
use espalier_trainer::error::Error;

use crate::arguments::RowDoctorArguments;

/// Letters of the longest bar.
const BAR: usize = 40;

/// Checks the rows and prints the findings.
pub fn run(arguments: &RowDoctorArguments, out: &mut dyn Write) -> Result<()> {
    let resolved = super::resolved(&arguments.source)?;
    let config = resolved.config();
    config.data.validate().map_err(Error::from)?;
    let vocabulary = super::vocabulary(config)?;
    let services = HostServices::start(config.run.threads)?;
    let too_long = match resolved.origin("data.too_long") {
        Origin::Default => TooLongIs::Default,
        _ => TooLongIs::Chosen,
    };
    let check = || Checkup::of(&config.data, &vocabulary, too_long);
    let found = services.install(check);
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &found)?;
        writeln!(out)?;
    } else {
        print(&found, arguments.rows, config.data.max_seq_len, out)?
    }
    if found.stops.is_empty() {
        Ok(())
    } else {
        out.flush()?;
        let faults = found.stops.join("; ");
        Err(Error::from(DataError::Checked { faults }).into())
    }
}

fn print(
    found: &Checkup,
    listed: usize,
    max_seq_len: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    print_part("training", &found.training, listed, max_seq_len, out)?;
    if let Some(held_out) = &found.held_out {
        print_part("held-out", held_out, listed, max_seq_len, out)?;
    }
    if let Some(both @ 1..) = found.held_out_trained {
        writeln!(
            out,
            "{both} held-out rows are also trained on: their metrics measure memorisation"
        )?;
    }
    if found.stops.is_empty() {
        writeln!(out, "nothing would stop a run")
    } else {
        writeln!(out, "what would stop a run:")?;
        found
            .stops
            .iter()
            .try_for_each(|stop| writeln!(out, "  {stop}"))
    }
}

fn print_part(
    which: &str,
    part: &Part,
    listed: usize,
    max_seq_len: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let counts = part.counts;
    writeln!(out, "{which} rows: {}", grouped(counts.rows))?;
    for file in &part.files {
        let (path, rows, format) = (file.path.display(), grouped(file.rows), file.format);
        writeln!(out, "  {path}: {rows} rows of {format}")?;
    }
    if counts.kept() > 0 {
        writeln!(
            out,
            "  trains {}: {} of {} tokens",
            counts.trains,
            grouped(counts.trained_tokens),
            grouped(counts.tokens)
        )?;
    }
    let bad = part.bad_rows.total();
    if !part.faults.is_empty() {
        writeln!(
            out,
            "bad: {} rows, {} files",
            grouped(bad),
            part.file_faults
        )?;
        for fault in part.faults.iter().take(listed) {
            writeln!(out, "  {fault}")?;
        }
        let left = (bad + part.file_faults).saturating_sub(listed as u64);
        if left > 0 {
            writeln!(out, "  and {} more (--rows N lists N)", grouped(left))?;
        }
    }
    print_lost(part, out)?;
    print_turns(part, out)?;
    if part.repeated > 0 {
        writeln!(
            out,
            "repeated: {} rows duplicate an earlier row",
            grouped(part.repeated)
        )?;
        for [row, first] in part.repeats.iter().take(3) {
            writeln!(out, "  {row} repeats {first}")?;
        }
    }
    print_lengths(&part.lengths, max_seq_len, out)?;
    writeln!(out)
}

/// Prints lost tokens and rows by reason.
fn print_lost(part: &Part, out: &mut dyn Write) -> io::Result<()> {
    let counts = part.counts;
    let reasons = counts.reasons();
    if reasons.is_empty() {
        return Ok(());
    }
    writeln!(out, "lost: {} of the trained tokens", part.lost())?;
    for reason in reasons {
        let share = reason.lost_tokens.map(|lost| percent(counts.share(lost)));
        let share = share.unwrap_or_default();
        writeln!(
            out,
            "  {:>9} rows {} {share}",
            grouped(reason.rows),
            reason.what
        )?;
    }
    Ok(())
}

/// Prints turns that are not trained, or not as expected.
fn print_turns(part: &Part, out: &mut dyn Write) -> io::Result<()> {
    if let Some(text) = describe_split_tokens(&part.split_tokens) {
        writeln!(out, "split special tokens: {text}")?;
    }
    let trains = part.counts.trains;
    if trains.untrained_answers > 0 {
        let untrained = grouped(trains.untrained_answers);
        writeln!(
            out,
            "untrained: {untrained} earlier answers of conversations (data.train_on = \"assistant\" trains them)"
        )?;
    }
    if trains.last_alone > 0 {
        let last_alone = grouped(trains.last_alone);
        writeln!(
            out,
            "untrained: of {last_alone} conversations all but the last answer, which the chat template writes otherwise \
             once more turns follow (mark answers with {{% generation %}} in it)"
        )?;
    }
    if trains.empty_answers > 0 {
        let empty = grouped(trains.empty_answers);
        writeln!(
            out,
            "empty: {empty} trained answers of conversations have no text"
        )?;
    }
    Ok(())
}

fn print_lengths(lengths: &Lengths, max_seq_len: usize, out: &mut dyn Write) -> io::Result<()> {
    if lengths.rows == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "tokens a row: {} to {}, half have at most {}, 95 % at most {}",
        lengths.shortest, lengths.longest, lengths.median, lengths.percentile_95
    )?;
    let most = lengths.histogram.iter().map(|bin| bin.rows).max();
    let most = most.unwrap_or(0).max(1);
    for bin in &lengths.histogram {
        let bar = "█".repeat((bin.rows as usize * BAR).div_ceil(most as usize));
        let (last, rows) = (bin.to - 1, grouped(bin.rows));
        writeln!(out, "  {:>6} - {last:<6} {bar} {rows}", bin.from)?;
    }
    writeln!(
        out,
        "  max_seq_len  longer rows  prompt fills it  lost if cut  lost if left out"
    )?;
    for at in &lengths.at {
        let own = if at.max_seq_len == max_seq_len {
            "  <- data.max_seq_len"
        } else {
            ""
        };
        writeln!(
            out,
            "  {:>11}  {:>11}  {:>15}  {:>11}  {:>16}{own}",
            at.max_seq_len,
            grouped(at.longer),
            grouped(at.prompt_fills),
            percent(at.lost_truncated),
            percent(at.lost_dropped)
        )?;
    }
    Ok(())
}
