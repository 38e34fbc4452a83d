//! Conversion between a tensor's bytes and a number, a list of numbers or a text.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::DType;

/// A tensor that describes a packed weight, such as its number of bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedConstant {
    /// A number; a list of numbers, in a tensor of one axis; or a text of ASCII letters, each a u8.
    /// A boolean is 0 or 1.
    pub value: Json,
    /// A checkpoint may hold another value.
    #[serde(default)]
    pub free: bool,
}

impl SavedConstant {
    /// The bytes of the value, with its numbers stored as `dtype`; none where `dtype` cannot hold
    /// it.
    pub fn bytes(&self, dtype: DType) -> Option<Vec<u8>> {
        match &self.value {
            Json::String(text) if dtype == DType::U8 && text.is_ascii() => {
                Some(text.clone().into_bytes())
            }
            Json::Array(numbers) => {
                let numbers = numbers.iter().map(|number| number_bytes(number, dtype));
                Some(numbers.collect::<Option<Vec<_>>>()?.concat())
            }
            number => number_bytes(number, dtype),
        }
    }

    /// The shape of the value's tensor.
    pub fn shape(&self) -> Vec<u64> {
        match &self.value {
            Json::String(text) => vec![text.len() as u64],
            Json::Array(numbers) => vec![numbers.len() as u64],
            _ => vec![],
        }
    }

    /// The value of a tensor: a number without axes, a text of u8 with one axis, else a list. None
    /// where it is none of these.
    pub fn read(dtype: DType, shape: &[u64], bytes: &[u8]) -> Option<Json> {
        let width = dtype.bytes().max(1) as usize;
        match shape {
            [] if bytes.len() == width => number(dtype, bytes),
            [_] if dtype == DType::U8 => {
                let text = std::str::from_utf8(bytes).ok()?;
                Some(Json::from(text))
            }
            [_] => {
                let numbers = bytes.chunks(width).map(|bytes| number(dtype, bytes));
                numbers.collect::<Option<Vec<_>>>().map(Json::from)
            }
            _ => None,
        }
    }
}

fn number_bytes(number: &Json, dtype: DType) -> Option<Vec<u8>> {
    if dtype == DType::F32 {
        return Some((number.as_f64()? as f32).to_le_bytes().to_vec());
    }
    let number = number.as_i64()?;
    Some(match dtype {
        DType::U8 => vec![u8::try_from(number).ok()?],
        DType::I8 => vec![i8::try_from(number).ok()? as u8],
        DType::I16 => i16::try_from(number).ok()?.to_le_bytes().to_vec(),
        DType::I32 => i32::try_from(number).ok()?.to_le_bytes().to_vec(),
        DType::I64 => number.to_le_bytes().to_vec(),
        _ => return None,
    })
}

fn number(dtype: DType, bytes: &[u8]) -> Option<Json> {
    Some(match dtype {
        DType::U8 => Json::from(*bytes.first()?),
        DType::I8 => Json::from(*bytes.first()? as i8),
        DType::I16 => Json::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        DType::I32 => Json::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        DType::I64 => Json::from(i64::from_le_bytes(bytes.try_into().ok()?)),
        DType::F32 => Json::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_back_from_their_bytes() {
        for (value, dtype, bytes) in [
            (json!(4), DType::I32, 4i32.to_le_bytes().to_vec()),
            (json!(1), DType::U8, vec![1]),
            (json!(-3), DType::I8, vec![253]),
            (json!(-3), DType::I16, vec![253, 255]),
            (json!(0.5), DType::F32, 0.5f32.to_le_bytes().to_vec()),
            (
                json!([64, 192]),
                DType::I64,
                [64i64, 192].map(i64::to_le_bytes).concat(),
            ),
            (json!("4bit_u8"), DType::U8, b"4bit_u8".to_vec()),
        ] {
            let constant = SavedConstant { value, free: false };
            assert_eq!(constant.bytes(dtype).as_ref(), Some(&bytes));
            let read = SavedConstant::read(dtype, &constant.shape(), &bytes);
            assert_eq!(read.as_ref(), Some(&constant.value));
        }
    }

    #[test]
    fn what_does_not_fit_is_nothing() {
        for (value, dtype) in [
            (json!(256), DType::U8),
            (json!(40_000), DType::I16),
            (json!(0.5), DType::I32),
            (json!("é"), DType::U8),
            (json!("text"), DType::I32),
            (json!(1), DType::BF16),
            (json!(null), DType::I32),
            (json!([1, "a"]), DType::I64),
        ] {
            let constant = SavedConstant { value, free: false };
            assert_eq!(constant.bytes(dtype), None, "{constant:?}");
        }
        assert_eq!(SavedConstant::read(DType::I32, &[], &[1, 2]), None);
        assert_eq!(SavedConstant::read(DType::I32, &[1], &[1, 2, 3]), None);
        assert_eq!(SavedConstant::read(DType::U8, &[1], &[0xff]), None);
        assert_eq!(SavedConstant::read(DType::U8, &[1, 1], &[1]), None);
    }
}
