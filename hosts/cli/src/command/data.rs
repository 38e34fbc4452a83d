//! `host data`: rows as the trainer sees them, and their faults.

mod doctor;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use espalier_config::{Config, Need, ResolvedConfig, resolve};
use espalier_data::{
    Dataset, Preview, ShownToken, Vocabulary, describe_split_tokens, serve_templates,
};
use espalier_system::files::ModelDirectory;
use espalier_system::threads::HostServices;
use espalier_trainer::error::Error;
use serde_json::json;

use crate::arguments::{DataCommand, RowArguments, ShowArguments};
use crate::output::has_colours;
use crate::visible::visible;

/// Runs a command about data.
pub fn run(command: &DataCommand, out: &mut dyn Write) -> Result<()> {
    match command {
        DataCommand::Show(arguments) => show(arguments, out),
        DataCommand::Doctor(arguments) => doctor::run(arguments, out),
        DataCommand::Render => Ok(serve_templates()?),
    }
}

fn show(arguments: &ShowArguments, out: &mut dyn Write) -> Result<()> {
    let resolved = resolved(&arguments.source)?;
    let config = resolved.config();
    let vocabulary = vocabulary(config)?;
    let services = HostServices::start(config.run.threads)?;
    let read = || Dataset::load(&config.data.files, &config.data, &vocabulary, &mut |_| ());
    let dataset = services.install(read).map_err(Error::from)?;
    let rows = (0..dataset.num_sequences().min(arguments.rows))
        .map(|index| Preview::of(&dataset, &vocabulary, index))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::from)?;
    if arguments.json {
        let shown = json!({
            "counts": dataset.counts(),
            "files": dataset.files(),
            "split_tokens": dataset.split_tokens(),
            "rows": rows,
        });
        serde_json::to_writer(&mut *out, &shown)?;
        writeln!(out)?;
        return Ok(());
    }
    let marks = if has_colours() {
        Marks::COLOURS
    } else {
        Marks::PLAIN
    };
    for row in &rows {
        print(row, &marks, out)?;
    }
    let counts = dataset.counts();
    writeln!(out, "{counts}")?;
    writeln!(out, "trains {}", counts.trains)?;
    if let Some(text) = describe_split_tokens(dataset.split_tokens()) {
        writeln!(out, "warning: {text}")?;
    }
    Ok(())
}

/// The config of a command that needs a model and rows.
fn resolved(arguments: &RowArguments) -> Result<ResolvedConfig> {
    arguments.check()?;
    let resolved = resolve(&arguments.sources()).map_err(Error::from)?;
    let needs = [Need::Model, Need::Data];
    resolved.require(&needs).map_err(Error::from)?;
    Ok(resolved)
}

fn vocabulary(config: &Config) -> Result<Vocabulary> {
    let path = config.model.path.as_deref();
    let directory =
        ModelDirectory::open(path.context("the config has a model")?).map_err(Error::from)?;
    Ok(Vocabulary::of_model(&directory).map_err(Error::from)?)
}

/// What is printed between two tokens.
const BETWEEN: char = '│';

/// Marks that separate trained tokens from the rest, and tokens from each other.
struct Marks {
    trained: Style,
    special: Style,
    between: Style,
    begin: &'static str,
    end: &'static str,
}

impl Marks {
    const COLOURS: Marks = Marks {
        trained: AnsiColor::Green.on_default().bold(),
        special: Style::new().underline(),
        between: Style::new().dimmed(),
        begin: "",
        end: "",
    };
    const PLAIN: Marks = Marks {
        trained: Style::new(),
        special: Style::new(),
        between: Style::new(),
        begin: "«",
        end: "»",
    };
}

fn print(row: &Preview, marks: &Marks, out: &mut dyn Write) -> io::Result<()> {
    let cut = if row.full_length > row.length {
        format!(", cut from {}", row.full_length)
    } else {
        String::new()
    };
    writeln!(
        out,
        "{}: {} tokens{cut}, {} trained ({}trained{}, not trained; {BETWEEN} between tokens)",
        row.place,
        row.length,
        row.trained_tokens,
        format_args!("{}{}", marks.trained.render(), marks.begin),
        format_args!("{}{}", marks.end, marks.trained.render_reset()),
    )?;
    let mut line_begins = true;
    for run in row.tokens.chunk_by(|a, b| a.trained == b.trained) {
        let (style, begin, end) = if run[0].trained {
            (marks.trained, marks.begin, marks.end)
        } else {
            (Style::new(), "", "")
        };
        for (index, token) in run.iter().enumerate() {
            if !line_begins {
                let style = marks.between;
                write!(out, "{style}{BETWEEN}{style:#}")?;
            }
            if index == 0 {
                write!(out, "{begin}")?;
            }
            print_token(token, style, marks.special, out)?;
            line_begins = token.text.ends_with('\n');
        }
        write!(out, "{end}")?;
    }
    if row.full_length > row.length {
        write!(
            out,
            " [{} more tokens are cut off]",
            row.full_length - row.length
        )?;
    }
    writeln!(out, "\n")
}

/// Prints the token's text, or its id in brackets where it has none. A line end is shown and
/// printed.
fn print_token(
    token: &ShownToken,
    style: Style,
    special: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let style = if token.special {
        style | special.get_effects()
    } else {
        style
    };
    if token.text.is_empty() {
        return write!(out, "{style}[{}]{style:#}", token.id);
    }
    // A line end inside a style would colour the rest of a terminal's line.
    for (number, line) in token.text.split('\n').enumerate() {
        if number > 0 {
            writeln!(out, "⏎")?;
        }
        let shown: String = line.chars().map(visible).collect();
        write!(out, "{style}{shown}{style:#}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, trained: bool) -> ShownToken {
        ShownToken {
            id: 1,
            text: text.to_owned(),
            trained,
            special: text.starts_with('<'),
        }
    }

    #[test]
    fn trained_tokens_are_marked_with_and_without_colours() {
        let row = Preview {
            place: "f.jsonl:1".to_owned(),
            length: 5,
            full_length: 7,
            trained_tokens: 3,
            tokens: vec![
                token("<s>", false),
                token("a\n", false),
                token("b\x1b[2J", true),
                token("", true),
                token("</s>", true),
            ],
        };
        let printed = |marks: &Marks| {
            let mut out = Vec::new();
            print(&row, marks, &mut out).expect("memory takes all");
            String::from_utf8(out).expect("text")
        };
        let plain = printed(&Marks::PLAIN);
        let expected = "f.jsonl:1: 5 tokens, cut from 7, 3 trained («trained», not trained; \
                        │ between tokens)\n\
                        <s>│a⏎\n«b␛[2J│[1]│</s>» [2 more tokens are cut off]\n\n";
        assert_eq!(plain, expected);
        let coloured = printed(&Marks::COLOURS);
        assert!(coloured.contains("\x1b[32mb␛[2J\x1b[0m"), "{coloured:?}");
        assert!(!coloured.contains('«'));
    }
}
