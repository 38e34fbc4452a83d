//! Ids of element types: integers across the boundary, names in JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An element type. Ids are never reused, and unknown ids give an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DType(pub u32);

impl DType {
    /// 64-bit IEEE float.
    pub const F64: DType = DType(1);
    /// 32-bit IEEE float.
    pub const F32: DType = DType(2);
    /// bfloat16.
    pub const BF16: DType = DType(3);
    /// 16-bit IEEE float.
    pub const F16: DType = DType(4);
    /// 8-bit float, 4 exponent bits (reserved).
    pub const F8_E4M3: DType = DType(5);
    /// 8-bit float, 5 exponent bits (reserved).
    pub const F8_E5M2: DType = DType(6);
    /// 64-bit signed integer.
    pub const I64: DType = DType(16);
    /// 32-bit signed integer.
    pub const I32: DType = DType(17);
    /// 8-bit signed integer.
    pub const I8: DType = DType(18);
    /// 16-bit signed integer; also packed codes of 9 to 16 bits, whose sign has no meaning.
    pub const I16: DType = DType(19);
    /// 8-bit unsigned integer; also packed codes.
    pub const U8: DType = DType(24);
    /// In a graph: the compute dtype of the run, resolved by the core.
    pub const COMPUTE: DType = DType(256);
    /// In a graph: the dtype of norms, softmax and loss, which is f32, or f64 in the reference
    /// mode.
    pub const REDUCE: DType = DType(257);

    const NAMES: [(DType, &'static str); 13] = [
        (DType::F64, "f64"),
        (DType::F32, "f32"),
        (DType::BF16, "bf16"),
        (DType::F16, "f16"),
        (DType::F8_E4M3, "f8_e4m3"),
        (DType::F8_E5M2, "f8_e5m2"),
        (DType::I64, "i64"),
        (DType::I32, "i32"),
        (DType::I16, "i16"),
        (DType::I8, "i8"),
        (DType::U8, "u8"),
        (DType::COMPUTE, "compute"),
        (DType::REDUCE, "reduce"),
    ];

    /// The name, as in configs and files; `dtype#N` for an id this version does not know.
    pub fn name(self) -> String {
        match Self::NAMES.iter().find(|entry| entry.0 == self) {
            Some(entry) => entry.1.to_owned(),
            None => format!("dtype#{}", self.0),
        }
    }

    /// The dtype called `name`.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::NAMES
            .iter()
            .find(|entry| entry.1 == name)
            .map(|entry| entry.0)
    }

    /// Bytes of one element; 0 for the symbolic dtypes and for unknown ids.
    #[inline]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::BF16 | Self::F16 | Self::I16 => 2,
            Self::F8_E4M3 | Self::F8_E5M2 | Self::I8 | Self::U8 => 1,
            _ => 0,
        }
    }

    /// True for floating-point dtypes, symbolic ones included.
    pub fn is_float(self) -> bool {
        self.0 < 16 || self == Self::COMPUTE || self == Self::REDUCE
    }
}

impl std::fmt::Debug for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        DType::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("unknown dtype `{name}`")))
    }
}
