//! Bytes -> a TFRecord, and back: length, its checksum, the bytes, their checksum.
//!
//! # Source
//! `tensorflow/core/lib/io/record_writer.h`; the checksums are CRC-32C, rotated and offset.

/// Length and its checksum; a checksum follows the bytes.
const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;
/// Added to a checksum, so that checksums of data that contains checksums stay strong.
const MASK: u32 = 0xa282_ead8;

/// `data` as a record.
pub fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let checksum = |bytes: &[u8]| masked(bytes).to_le_bytes();
    [&length[..], &checksum(&length), data, &checksum(data)].concat()
}

/// The records of `bytes` with the end offset of each, up to the first that is torn or damaged.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let (data, length) = first(bytes.get(begin..)?)?;
        begin += length;
        Some((data, begin))
    })
}

/// The first record's data, and the record's length.
fn first(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*checksum) != masked(length) {
        return None;
    }
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (data, rest) = rest.split_at_checked(length)?;
    let (checksum, _) = rest.split_first_chunk::<4>()?;
    let whole = u32::from_le_bytes(*checksum) == masked(data);
    whole.then_some((data, HEADER_BYTES + length + CHECKSUM_BYTES))
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_one_is_torn_or_damaged() {
        let mut bytes = [framed(b"one"), framed(b""), framed(b"three")].concat();
        let read = |bytes: &[u8]| -> Vec<(Vec<u8>, usize)> {
            let owned = records(bytes).map(|(data, end)| (data.to_vec(), end));
            owned.collect()
        };
        let whole = read(&bytes);
        let ends: Vec<usize> = whole.iter().map(|(_, end)| *end).collect();
        assert_eq!(
            (ends, whole[2].0.as_slice()),
            (vec![19, 35, 56], &b"three"[..])
        );
        assert_eq!(read(&bytes[..55]), whole[..2]);
        bytes[12] ^= 1;
        assert_eq!(read(&bytes), []);
    }
}
