//! Rows of text -> lines with aligned columns.

use std::io::{self, Write};

/// Writes rows with every column but the last as wide as its widest entry.
pub fn write<const N: usize>(rows: &[[String; N]], out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    for row in rows {
        let mut line = String::new();
        for (column, entry) in row.iter().enumerate() {
            let width = if column + 1 == N {
                0
            } else {
                width(column) + 2
            };
            line.push_str(&format!("{entry:<width$}"));
        }
        writeln!(out, "  {}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned_and_no_line_ends_in_spaces() {
        let rows = [["a", "bb", "c"], ["long", "b", ""]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        super::write(&rows, &mut out).expect("a vector takes all");
        assert_eq!(out, b"  a     bb  c\n  long  b\n");
    }
}
