//! A matrix -> its transpose.

/// Rows and columns copied at once, so that both matrices stay in the nearest cache.
const TILE: usize = 16;

/// A matrix in a list of numbers, row major.
#[derive(Clone, Copy, Debug)]
pub struct Rows<T> {
    /// The numbers from the first of the matrix on.
    pub numbers: T,
    /// Numbers from a row to the next.
    pub stride: usize,
}

/// Copies `from`, `[rows, cols]`, to `to`, `[cols, rows]`.
pub fn transpose([rows, cols]: [usize; 2], from: Rows<&[f32]>, to: Rows<&mut [f32]>) {
    for first_row in (0..rows).step_by(TILE) {
        for first_col in (0..cols).step_by(TILE) {
            for col in first_col..cols.min(first_col + TILE) {
                for row in first_row..rows.min(first_row + TILE) {
                    to.numbers[col * to.stride + row] = from.numbers[row * from.stride + col];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_goes_to_its_place_and_no_other_changes() {
        let [rows, cols] = [TILE + 3, 2 * TILE + 1];
        let [wide, tall] = [cols + 5, rows + 2];
        let source: Vec<f32> = (0..rows * wide).map(|x| x as f32).collect();
        let mut turned = vec![-1.0; cols * tall];
        let from = Rows {
            numbers: &source[2..],
            stride: wide,
        };
        let to = Rows {
            numbers: &mut turned[..],
            stride: tall,
        };
        transpose([rows, cols], from, to);
        for (at, &found) in turned.iter().enumerate() {
            let [col, row] = [at / tall, at % tall];
            let expected = if row < rows {
                (row * wide + col + 2) as f32
            } else {
                -1.0
            };
            assert_eq!(found, expected, "row {row}, column {col}");
        }
    }
}
