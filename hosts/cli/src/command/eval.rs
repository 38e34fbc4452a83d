//! `host eval`: evaluates a model on rows that it is not trained on.

use std::fmt::{self, Write};

use anyhow::Result;
use espalier_config::{Need, resolve};
use espalier_trainer::bytes::Bytes;
use espalier_trainer::error::Error;
use espalier_trainer::evaluate::{self, Evaluation};

use crate::arguments::EvalArguments;
use crate::output::Output;
use crate::watch::{Showing, watched};

/// Evaluates and prints the result.
pub fn run(arguments: &EvalArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    let resolved = resolve(&arguments.sources()?).map_err(Error::from)?;
    let needs = [Need::Model, Need::Data];
    resolved.require(&needs).map_err(Error::from)?;
    let found = watched(
        Showing::unless_quiet(arguments.quiet),
        None,
        |observer, stop| evaluate::run(&resolved, observer, stop),
    )?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&found)? + "\n"
    } else {
        lines(&found)?
    };
    Ok(out.print_result(&text)?)
}

/// The result in words.
fn lines(found: &Evaluation) -> Result<String, fmt::Error> {
    let mut lines = String::new();
    let out = &mut lines;
    writeln!(
        out,
        "loss {:.4}, perplexity {:.2}, token accuracy {:.1} %",
        found.loss,
        found.perplexity,
        found.token_accuracy * 100.0
    )?;
    if let (Some(share), Some(asked)) = (found.exact_match, found.answers) {
        writeln!(out, "exact match {:.0}/{asked}", share * asked as f64)?;
    }
    if let (Some(bytes), Some(bits)) = (found.packed_bytes, found.bits_per_weight) {
        let bytes = Bytes(bytes);
        writeln!(out, "weights packed into {bytes}, {bits:.2} bits each")?;
    }
    writeln!(
        out,
        "{} sequences, {} tokens, {} of them counted, {:.1} s, {:.0} tokens/s",
        found.sequences, found.tokens, found.trained_tokens, found.secs, found.tokens_per_sec
    )?;
    if !found.counts.reasons().is_empty() {
        writeln!(out, "rows: {}", found.counts)?;
    }
    Ok(lines)
}
