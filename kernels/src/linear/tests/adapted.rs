//! Products with what an adapter adds have the bits of two calls.

use super::*;
use crate::added::Added;

/// Tokens, out, in, rank.
type Size = [usize; 4];

/// Few rows; several tasks; one task that packs its own columns; several passes with a bias; a rank
/// of more steps than tasks add, and a depth in several parts.
const SIZES: [Size; 6] = [
    [0, 3, 4, 2],
    [3, 70, 33, 16],
    [130, 300, 40, 16],
    [40, 620, 1030, 7],
    [70, 50, 4700, 33],
    [90, 45, 600, 300],
];

/// A rank that a product takes, and the low-rank weight's shape by it.
fn sides<E: Element>(size: Size, forward: bool) -> (Vec<E>, Vec<E>, [usize; 2], usize) {
    let [tokens, n, m, rank] = size;
    let width = if forward { n } else { m };
    let shape = if forward { [n, rank] } else { [rank, m] };
    let narrow = numbers::<E>(tokens * rank, 5);
    (narrow, numbers::<E>(width * rank, 6), shape, width)
}

/// What forward or backward writes: with an adapter, or by a call of its own for the low-rank
/// product.
fn adapted<E: Element>(
    isa: Isa,
    size: Size,
    forward_pass: bool,
    whole: bool,
    threads: usize,
) -> Vec<E>
where
    E::Acc: Scalar,
{
    let [tokens, n, m, rank] = size;
    let (narrow, low_rank, shape, width) = sides::<E>(size, forward_pass);
    let low_rank = Dense::new(&low_rank, shape[0], shape[1]);
    let weight = numbers::<bf16>(n * m, 1);
    let weight = Dense::new(&weight, n, m);
    let from = numbers::<E>(tokens * if forward_pass { m } else { n }, 2);
    let other = numbers::<E>(tokens * width, 3);
    let bias = numbers::<f32>(n, 4);
    let bias = Dense::new(&bias, 1, n);
    let depth = if forward_pass { m } else { n };
    let bytes = adapted_workspace_bytes::<E>(isa, threads, [tokens, width, depth], rank);
    let mut workspace = vec![0xFF; bytes];
    // Gradients are added to earlier ones in their memory.
    let mut values = other.clone();
    let on_output = Sum {
        added: Added::Output,
        ..Sum::PRODUCT
    };
    let (alpha, residual, product) = if forward_pass {
        (-0.3, Some(&other[..]), Sum::PRODUCT)
    } else {
        (-0.5, None, on_output)
    };
    let sum = Sum {
        alpha,
        residual,
        ..on_output
    };
    let adapter = Adapter {
        narrow: &narrow,
        weight: &low_rank,
        sum,
    };
    let mut run = |from: &[E], of: &dyn Rows<E::Acc>, bias, onto: Onto<'_, E>| {
        let call = (isa, &Threads(threads), &mut workspace[..]);
        if forward_pass {
            forward(call.0, call.1, from, of, bias, onto, call.2);
        } else {
            input_backward(call.0, call.1, from, of, onto, call.2);
        }
    };
    let calls: [(&[E], &dyn Rows<E::Acc>, _, _); 2] = [
        (&from, &weight, Some(&bias), product),
        (&narrow, &low_rank, None, sum),
    ];
    let turns: &[usize] = match (whole, forward_pass) {
        (true, _) => &[0],
        (false, true) => &[0, 1],
        (false, false) => &[1, 0],
    };
    for &turn in turns {
        let (from, of, bias, sum) = calls[turn];
        let onto = Onto {
            values: &mut values,
            sum,
            adapter: whole.then_some(adapter),
        };
        run(from, of, bias.map(|bias| bias as _), onto);
    }
    values
}

#[test]
fn an_adapter_s_product_has_the_bits_of_a_call_of_its_own() {
    fn check<E: Element>()
    where
        E::Acc: Scalar,
    {
        // A backend asks for products of any dtype by the set that it found.
        let sets = sets_for(E::DTYPE).into_iter().chain([Isa::detect()]);
        for (isa, size) in sets.flat_map(|isa| SIZES.map(|size| (isa, size))) {
            for pass in [true, false] {
                let apart = adapted::<E>(isa, size, pass, false, 2);
                // Two threads with too little memory run as one, one would fail.
                for threads in [1, 2] {
                    let whole = adapted::<E>(isa, size, pass, true, threads);
                    assert!(whole == apart, "{isa:?}, {size:?}, forward: {pass}");
                }
                let [tokens, ..] = size;
                assert!(tokens == 0 || apart.iter().any(|&x| x != E::default()));
            }
        }
    }
    check::<f32>();
    check::<bf16>();
    check::<f64>();
}
