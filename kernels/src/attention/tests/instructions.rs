//! Attention and its gradients by several instruction sets.

use super::*;
use crate::matmul::threads::Threads;

/// The results by `isa`.
fn by<E: Element>(isa: Isa, shape: AttentionShape) -> Results<E>
where
    E::Acc: Scalar,
{
    let case = Case::<E>::new(shape, &[3, 151, 0, 40]);
    Case { isa, ..case }.run(&Threads(2))
}

#[test]
fn instructions_for_bf16_give_the_bits_of_their_model() {
    for (isa, model) in [
        (Isa::Avx512Bf16, Isa::Bf16Model),
        (Isa::AmxBf16, Isa::AmxModel),
    ] {
        if !Isa::available().contains(&isa) {
            continue;
        }
        for shape in shapes() {
            let [found, expected] = [isa, model].map(|isa| by::<bf16>(isa, shape));
            assert!(found == expected, "{isa:?} {shape:?}");
        }
    }
}

#[test]
fn instructions_for_bf16_change_no_bit_of_f32() {
    for shape in shapes() {
        let expected = by::<f32>(Isa::Portable, shape);
        assert!(by::<f32>(Isa::Bf16Model, shape) == expected, "{shape:?}");
        if Isa::available().contains(&Isa::Avx512Bf16) {
            let [wide, plain] = [Isa::Avx512Bf16, Isa::Avx512].map(|isa| by::<f32>(isa, shape));
            assert!(wide == plain, "{shape:?}");
        }
    }
}

#[test]
fn gradients_in_bf16_are_those_of_f64_with_each_way_of_multiplying() {
    for shape in shapes() {
        let exact = Case::<bf16>::new(shape, &[3, 151, 0, 40])
            .exact()
            .run(&Serial);
        for isa in [Isa::Portable, Isa::Bf16Model, Isa::AmxModel] {
            let found = by::<bf16>(isa, shape);
            for (found, exact) in [
                (&found.0, &exact.0),
                (&found.2, &exact.2),
                (&found.3, &exact.3),
                (&found.4, &exact.4),
            ] {
                let most = largest(exact.iter().map(|x| x.abs()));
                assert!(
                    apart(found, exact) < 1e-2 * most.max(1.0),
                    "{shape:?} {isa:?}"
                );
            }
        }
    }
}
