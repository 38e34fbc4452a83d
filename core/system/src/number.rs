//! Human-readable numbers and times.

/// `value` with at most `digits` significant digits, without trailing zeros.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..9.0).contains(&magnitude) {
        return format!("{value:.*e}", digits.saturating_sub(1)).replace(".0e", "e");
    }
    let decimals = (digits as f64 - 1.0 - magnitude).max(0.0) as usize;
    trimmed(format!("{value:.decimals$}"))
}

/// `text` without trailing zeros of its decimal fraction.
fn trimmed(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A count in thousands, millions or billions: `3.77 M`.
pub fn count(value: u64) -> String {
    let scaled = |unit: f64| value as f64 / unit;
    match value {
        0..10_000 => value.to_string(),
        10_000..1_000_000 => format!("{} k", significant(scaled(1e3), 3)),
        1_000_000..1_000_000_000 => format!("{} M", significant(scaled(1e6), 3)),
        _ => format!("{} B", significant(scaled(1e9), 3)),
    }
}

/// A share as `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A relative change as `-12.3 %` or `+4.0 %`; empty where there is none.
pub fn change(before: f64, after: f64) -> String {
    if !(before > 0.0 && after.is_finite()) {
        return String::new();
    }
    let text = format!("{:+.1} %", (after / before - 1.0) * 100.0);
    text.replace('-', "\u{2212}")
}

/// A number with its sign and the decimals that suit `width`, the width of its interval.
pub fn signed(value: f64, width: f64) -> String {
    let decimals = decimals(width);
    let text = format!("{value:+.decimals$}");
    text.replace('-', "\u{2212}")
}

/// Decimals that show `width` with two digits.
pub fn decimals(width: f64) -> usize {
    let magnitude = width.abs().log10().floor();
    if magnitude.is_finite() {
        (1.0 - magnitude).clamp(0.0, 8.0) as usize
    } else {
        3
    }
}

/// Seconds as `4.2 s`, `3 min 20 s`, `2 h 05 min`.
pub fn duration(secs: f64) -> String {
    let whole = secs.max(0.0).round() as u64;
    match whole {
        0..10 => format!("{secs:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_are_kept() {
        let shown = [0.0, 3e-4, 2.5e-5, 4.409_21, 1234.5, 1e-7, f64::NAN]
            .map(|value| significant(value, 4));
        let expected = [
            "0",
            "0.0003",
            "2.500e-5",
            "4.409",
            "1234",
            "1.000e-7",
            "not a number",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn counts_shares_and_times_are_short() {
        assert_eq!(
            [120, 298_000, 3_774_720].map(count),
            ["120", "298 k", "3.77 M"]
        );
        assert_eq!(percent(0.219_4), "21.9 %");
        assert_eq!(change(4.0, 3.0), "\u{2212}25.0 %");
        let differences = [(0.0412, 0.02), (-1.26, 3.0), (0.5, 0.0)].map(|(x, w)| signed(x, w));
        assert_eq!(differences, ["+0.041", "\u{2212}1.3", "+0.500"]);
        let times = [4.24, 62.0, 7500.0].map(duration);
        assert_eq!(times, ["4.2 s", "1 min 02 s", "2 h 05 min"]);
    }
}
