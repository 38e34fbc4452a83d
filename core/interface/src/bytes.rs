//! A size in bytes, shown in powers of two.

use std::fmt;
use std::str::FromStr;

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

impl FromStr for Bytes {
    type Err = String;

    /// Parses `24GiB`, `512 MiB`, `1.5TiB`; the unit is required.
    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
        let expected = || format!("expected a size such as 24GiB or 512MiB, found `{text}`");
        let text = text.trim();
        let (number, shift) = UNITS
            .into_iter()
            .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
            .ok_or_else(expected)?;
        let number: f64 = number.trim().parse().map_err(|_| expected())?;
        let bytes = number * (1u64 << shift) as f64;
        // Sizes above 2^63 or below one byte are refused as mistakes.
        if !(1.0..=(1u64 << 63) as f64).contains(&bytes) {
            return Err(expected());
        }
        Ok(Bytes(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_are_read_as_they_are_shown() {
        assert_eq!("24GiB".parse(), Ok(Bytes(24 << 30)));
        assert_eq!(" 1.5 TiB".parse(), Ok(Bytes(3 << 39)));
        for text in ["24", "24GB", "-1GiB", "nanGiB", "0MiB", "1e30TiB", "GiB"] {
            let error = text.parse::<Bytes>().expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }

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
