//! A size -> a JSONL file of that size, to test a run on data larger than memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

/// Rows have 20 to 340 words or ids.
const SHORTEST: u64 = 20;
const LONGER: u64 = 321;

const WORDS: [&str; 16] = [
    "and",
    "the",
    "it",
    "was",
    "not",
    "a",
    "of",
    "letter",
    "should",
    "Mr.",
    "Elizabeth,",
    "to",
    "house",
    "had",
    "been",
    "said:",
];

/// Options of `cargo xtask big-data`.
#[derive(Args)]
pub struct BigDataOptions {
    /// Size in GiB
    #[arg(long, value_name = "N")]
    gib: f64,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Contents of the rows
    #[arg(long, value_enum, default_value = "text")]
    rows: Rows,
}

#[derive(Clone, Copy, ValueEnum)]
enum Rows {
    /// `text`
    Text,
    /// `input_ids` below 512, which need no tokenizer
    Ids,
}

/// Writes the file; the same options give the same bytes.
///
/// # Errors
/// A file that cannot be written.
pub fn write(options: &BigDataOptions) -> Result<()> {
    let context = || format!("cannot write {}", options.out.display());
    let file = File::create(&options.out).with_context(context)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let size = (options.gib * (1u64 << 30) as f64) as u64;
    let (mut written, mut rows) = (0, 0u64);
    let mut line = String::new();
    while written < size {
        line.clear();
        row(options.rows, rows, &mut line);
        out.write_all(line.as_bytes()).with_context(context)?;
        written += line.len() as u64;
        rows += 1;
    }
    out.flush().with_context(context)?;
    println!("{}: {rows} rows, {written} bytes", options.out.display());
    Ok(())
}

/// Row `number`, with its line end.
fn row(kind: Rows, number: u64, line: &mut String) {
    let mut state = number;
    // SplitMix64 (Steele, Lea and Flood 2014).
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let count = SHORTEST + random() % LONGER;
    let (open, close) = match kind {
        Rows::Text => ("{\"text\": \"", "\"}\n"),
        Rows::Ids => ("{\"input_ids\": [", "]}\n"),
    };
    line.push_str(open);
    line.push_str(&(number % 509).to_string());
    for _ in 0..count {
        match kind {
            Rows::Text => {
                line.push(' ');
                line.push_str(WORDS[(random() >> 60) as usize]);
            }
            Rows::Ids => {
                line.push(',');
                line.push_str(&(random() >> 55).to_string());
            }
        }
    }
    line.push_str(close);
}
