//! A rank's elements of a trained param <-> a tensor in that rank's checkpoint file.

use std::ops::Range;

/// A contiguous range of elements of a stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The name.
    pub name: String,
    /// The elements.
    pub elements: Range<u64>,
}

impl Piece {
    /// The name of its tensor: `layers.0.weight[0..128]`.
    pub fn tensor(&self) -> String {
        let Range { start, end } = self.elements;
        format!("{}[{start}..{end}]", self.name)
    }

    /// The piece with this tensor name.
    pub fn parse(tensor: &str) -> Option<Self> {
        let (name, elements) = tensor.strip_suffix(']')?.rsplit_once('[')?;
        let (start, end) = elements.split_once("..")?;
        let piece = Piece {
            name: name.to_owned(),
            elements: start.parse().ok()?..end.parse().ok()?,
        };
        (piece.tensor() == tensor && piece.elements.start < piece.elements.end).then_some(piece)
    }
}

/// The name of rank `rank`'s part of `file`, one of `ranks` parts:
/// `params-00002-of-00004.safetensors`.
pub(super) fn file_of_rank(file: &str, rank: u32, ranks: u32) -> String {
    let (stem, extension) = file.split_once('.').expect("a file has an extension");
    format!("{stem}-{rank:05}-of-{ranks:05}.{extension}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_names_of_pieces_round_trip() {
        let piece = Piece {
            name: "a[0..2].weight.first_moment".to_owned(),
            elements: 64..100,
        };
        assert_eq!(piece.tensor(), "a[0..2].weight.first_moment[64..100]");
        assert_eq!(Piece::parse(&piece.tensor()), Some(piece));
        for stranger in ["weight", "w[1]", "w[1..]", "w[2..2]", "w[01..2]", "w[1..2"] {
            assert_eq!(Piece::parse(stranger), None, "{stranger}");
        }
        let file = file_of_rank("params.safetensors", 2, 4);
        assert_eq!(file, "params-00002-of-00004.safetensors");
    }
}
