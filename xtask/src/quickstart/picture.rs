//! A command and what it printed -> a picture of the terminal, in SVG.

use std::fmt::Write;

/// Columns of the terminal; longer lines are wrapped.
const COLUMNS: usize = 100;
/// Width and height of a letter, and the margin, in pixels.
const LETTER: [f64; 2] = [8.4, 19.0];
const MARGIN: f64 = 18.0;
/// Lines that begin so are drawn on a terminal as bars, which are gone in the end.
const BARS: [&str; 7] = [
    "step ",
    "reading ",
    "loading ",
    "writing ",
    "evaluating ",
    "answering ",
    "measuring ",
];

/// The lines that a terminal keeps of `printed`.
pub fn kept(printed: &str) -> impl Iterator<Item = &str> {
    let bar = |line: &&str| BARS.iter().any(|begin| line.starts_with(begin));
    printed.lines().filter(move |line| !bar(line))
}

/// The picture of `command` and the lines behind it.
pub fn draw<'a>(command: &str, lines: impl Iterator<Item = &'a str>) -> String {
    let styled = |line: &str| -> Vec<(Style, String)> {
        let style = Style::of(line);
        wrapped(line).into_iter().map(|row| (style, row)).collect()
    };
    let mut rows = styled(&format!("$ {command}"));
    rows.extend(lines.flat_map(styled));
    let width = COLUMNS as f64 * LETTER[0] + 2.0 * MARGIN;
    let height = rows.len() as f64 * LETTER[1] + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n\
         <style>text {{ font: 14px ui-monospace, \"SF Mono\", Menlo, Consolas, \"DejaVu Sans Mono\", \
         monospace; white-space: pre; fill: #e6ebe8; }} .command {{ fill: #4fc795; }} \
         .result {{ fill: #f2d08a; }} .soft {{ fill: #98a59e; }}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#121614\"/>\n"
    );
    for (index, (style, row)) in rows.iter().enumerate() {
        let y = MARGIN + (index as f64 + 0.75) * LETTER[1];
        let (class, text) = (style.class(), escaped(row));
        writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y:.1}\"{class} xml:space=\"preserve\">{text}</text>"
        )
        .expect("a string takes everything");
    }
    svg + "</svg>\n"
}

/// The role of a line.
#[derive(Clone, Copy)]
enum Style {
    Command,
    /// A value before and after, or an answer.
    Result,
    /// A line that is only context.
    Soft,
    Plain,
}

impl Style {
    fn of(line: &str) -> Self {
        match line {
            _ if line.starts_with("$ ") => Style::Command,
            _ if line.contains(" -> ") || line.starts_with("  after ") => Style::Result,
            _ if line.starts_with("  ") || line.starts_with("question ") => Style::Plain,
            _ => Style::Soft,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Style::Command => " class=\"command\"",
            Style::Result => " class=\"result\"",
            Style::Soft => " class=\"soft\"",
            Style::Plain => "",
        }
    }
}

/// A line cut into rows of the terminal.
fn wrapped(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    match letters.len() {
        0 => vec![String::new()],
        _ => letters
            .chunks(COLUMNS)
            .map(|row| row.iter().collect())
            .collect(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_every_line_that_a_terminal_keeps() {
        let printed = "reading 2 rows\nthe plan\nstep 1/2  loss 3\n\nexact match 0/3 -> 3/3 <&>\n";
        let long = "x".repeat(COLUMNS + 1);
        let lines = kept(printed).chain([long.as_str()]);
        let svg = draw("host train", lines);
        assert!(svg.contains(">$ host train</text>") && svg.contains(">the plan</text>"));
        assert!(svg.contains("class=\"result\" xml:space=\"preserve\">exact match 0/3 -&gt; 3/3"));
        assert!(svg.contains("&lt;&amp;&gt;") && svg.contains(">x</text>"));
        assert!(!svg.contains("reading") && !svg.contains("step 1"));
        // The command, the plan, an empty line, the result and the two rows of the long line.
        assert_eq!(svg.matches("<text ").count(), 6);
    }
}
