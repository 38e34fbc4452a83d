//! The time of a step -> text.

use espalier_system::number::duration;

/// Seconds with `decimals`; a minute and more as `3 min 20 s` or `2 h 05 min`.
pub(super) fn seconds(secs: f64, decimals: usize) -> String {
    if secs < 60.0 {
        format!("{secs:.decimals$} s")
    } else {
        duration(secs)
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn long_times_have_minutes_and_hours() {
        let shown = [0.0425, 59.5, 61.0, 10_443.0].map(|secs| seconds(secs, 3));
        assert_eq!(shown, ["0.043 s", "59.500 s", "1 min 01 s", "2 h 54 min"]);
    }
}
