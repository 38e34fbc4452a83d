//! Values -> their runs times Sylvester's Hadamard matrix, by sums and differences of halves.

use espalier_interface::Result;

use crate::Tensors;

/// The values, `[n]`, of which each `size` that follow each other are multiplied by the matrix, as
/// [`hadamard`](espalier_interface::format::hadamard) does. `size` is a power of two and divides n.
pub fn multiplied<L: Tensors>(library: &L, values: L::Tensor, size: usize) -> Result<L::Tensor> {
    let n = library.shape(&values)[0];
    let (mut values, mut distance) = (values, 1);
    while distance < size {
        // Pairs `(a, b)` at that distance become `(a + b, a - b)`.
        let pairs = library.reshape(&values, &[n / (2 * distance), 2, distance])?;
        let (low, high) = (
            library.narrow(&pairs, 1, 0, 1)?,
            library.narrow(&pairs, 1, 1, 1)?,
        );
        let both = [library.add(&low, &high)?, library.sub(&low, &high)?];
        values = library.reshape(&library.concat(&both, 1)?, &[n])?;
        distance *= 2;
    }
    Ok(values)
}
