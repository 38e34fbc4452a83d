//! The arms' numbers -> a table for the terminal and the page.

use espalier_interface::bytes::Bytes;
use espalier_system::number::{count, percent, signed, significant};
use serde::Serialize;

use super::facts::Standing;
use super::pair::{shown, shown_width};
use super::quality::Quality;
use super::row::ArmRow;

/// Columns of cells, one line per arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// The columns' names.
    pub heads: Vec<&'static str>,
    /// The cells of each arm; empty where a number is unknown.
    pub lines: Vec<Vec<String>>,
}

/// A column: its name, and a cell of an arm.
type Column = (&'static str, fn(&ArmRow) -> Option<String>);

const COLUMNS: [Column; 15] = [
    ("arm", |row| Some(row.name.clone())),
    ("verdict", |row| Some(verdict(row.standing).to_owned())),
    ("above the lowest", |row| {
        let above = row.above.as_ref()?;
        let estimate = signed(above.estimate, shown_width(above.together));
        Some(format!("{estimate} ({})", shown(above.together)))
    }),
    ("bits/weight", |row| {
        row.bits_per_weight.map(|bits| significant(bits, 4))
    }),
    ("of all frozen", |row| {
        row.bits_per_frozen_weight.map(|bits| significant(bits, 4))
    }),
    ("encode s", |row| {
        row.encode_secs.map(|secs| significant(secs, 3))
    }),
    ("weight error", |row| {
        row.weight_error.map(|error| significant(error, 3))
    }),
    ("KL to dense", |row| {
        row.divergence.map(|mean| significant(mean, 3))
    }),
    ("held-out loss", |row| {
        before_after(row, |quality| significant(quality.loss, 4))
    }),
    ("perplexity", |row| {
        before_after(row, |quality| significant(quality.perplexity, 3))
    }),
    ("accuracy", |row| {
        before_after(row, |quality| percent(quality.token_accuracy))
    }),
    ("noise (sd)", |row| {
        row.noise.map(|noise| significant(noise.deviation, 2))
    }),
    ("tokens/s", |row| {
        row.tokens_per_sec.map(|rate| count(rate as u64))
    }),
    ("peak memory", |row| {
        let peak = row.memory.as_ref()?.observed_peak_bytes;
        (peak > 0).then(|| Bytes(peak).to_string())
    }),
    ("seeds", |row| {
        (!row.seeds.is_empty()).then(|| row.seeds.len().to_string())
    }),
];

fn before_after(row: &ArmRow, text: fn(&Quality) -> String) -> Option<String> {
    match (&row.before, &row.after) {
        (Some(before), Some(after)) => Some(format!("{} \u{2192} {}", text(before), text(after))),
        (before, after) => after.as_ref().or(before.as_ref()).map(text),
    }
}

/// The conclusion about an arm, in one or two words.
fn verdict(standing: Standing) -> &'static str {
    match standing {
        Standing::Best => "best",
        Standing::Lowest => "lowest",
        Standing::NotToldApart => "not told apart",
        Standing::Worse => "worse",
        Standing::DenseBaseline => "baseline",
        Standing::NoVerdict => "no verdict",
    }
}

impl Table {
    /// The table of `rows`, without empty columns.
    pub fn new(rows: &[ArmRow]) -> Self {
        let mut table = Table {
            heads: Vec::new(),
            lines: vec![Vec::new(); rows.len()],
        };
        for (head, cell) in COLUMNS {
            let cells: Vec<Option<String>> = rows.iter().map(cell).collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            table.heads.push(head);
            for (line, cell) in table.lines.iter_mut().zip(cells) {
                line.push(cell.unwrap_or_default());
            }
        }
        table
    }

    /// The table as lines of text, numbers right-aligned.
    pub fn to_text(&self) -> String {
        let letters = |cell: &str| cell.chars().count();
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|column| {
                let cells = self.lines.iter().map(|line| letters(&line[column]));
                cells.fold(letters(self.heads[column]), usize::max)
            })
            .collect();
        let aligned = |cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.zip(&widths).enumerate();
            let padded = cells.map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        let mut text = aligned(&mut self.heads.iter().copied());
        for line in &self.lines {
            text += &aligned(&mut line.iter().map(String::as_str));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let row = |name: &str, bits| ArmRow {
            name: name.to_owned(),
            bits_per_weight: bits,
            ..ArmRow::default()
        };
        let table = Table::new(&[row("dense", Some(16.0)), row("hqq:bits=3", None)]);
        let expected = "arm            verdict  bits/weight\ndense       no verdict           16\n\
                        hqq:bits=3  no verdict\n";
        assert_eq!(table.to_text(), expected);
        assert_eq!(Table::new(&[]).to_text(), "\n");
    }
}
