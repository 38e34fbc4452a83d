//! A size in bytes, shown in powers of two.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of bytes; shown as `1.50 GiB`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut scaled = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.995 would be shown as 1024.00.
        while scaled >= 1023.995 && unit + 1 < UNITS.len() {
            scaled /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{scaled:.2} {}", UNITS[unit]))
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn units_are_powers_of_two() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1024).to_string(), "1.00 KiB");
        assert_eq!(Bytes((1 << 20) - 1).to_string(), "1.00 MiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
        assert_eq!(format!("{:>10}|", Bytes(2048)), "  2.00 KiB|");
    }
}
