//! Changes of a file's data -> the file's contents if some of them are lost.

/// The state of data that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is kept.
    Kept,
    /// It is missing, and the file keeps its length.
    Missing,
    /// Its space exists and holds zeros.
    Zero,
    /// Half of it is kept.
    Cut,
}

#[derive(Clone, Debug)]
pub enum DataStep {
    Write(usize, Vec<u8>),
    Length(usize),
    /// The length is at least this.
    Extend(usize),
}

/// The contents of a file of `data` whose first `synced` steps are durable.
pub fn content(data: &[DataStep], synced: usize, loss: Loss) -> Vec<u8> {
    let mut bytes = Vec::new();
    for step in &data[..synced] {
        step.apply(&mut bytes, |bytes| bytes.to_vec());
    }
    let open = &data[synced..];
    let last = open.len().saturating_sub(1);
    for (number, step) in open.iter().enumerate() {
        match loss {
            Loss::Missing => {}
            Loss::Kept => step.apply(&mut bytes, |bytes| bytes.to_vec()),
            Loss::Zero => step.apply(&mut bytes, |bytes| vec![0; bytes.len()]),
            Loss::Cut if number < last => step.apply(&mut bytes, |bytes| bytes.to_vec()),
            Loss::Cut => step.apply(&mut bytes, |bytes| bytes[..bytes.len() / 2].to_vec()),
        }
    }
    bytes
}

impl DataStep {
    fn apply(&self, to: &mut Vec<u8>, as_lost: impl Fn(&[u8]) -> Vec<u8>) {
        match self {
            DataStep::Write(at, bytes) => {
                let bytes = as_lost(bytes);
                let end = at + bytes.len();
                to.resize(to.len().max(end), 0);
                to[*at..end].copy_from_slice(&bytes);
            }
            DataStep::Length(length) => to.resize(*length, 0),
            DataStep::Extend(length) => to.resize(to.len().max(*length), 0),
        }
    }
}
