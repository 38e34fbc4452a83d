//! Attention compared with the textbook's formula in f64, its gradients with finite differences.
//! Both must not depend on threads, on instruction sets of packing or on windows.

use espalier_conformance::{largest, largest_difference};
use espalier_interface::{Serial, Services};
use half::bf16;

use super::*;
use crate::element::{Real, convert};
use crate::matmul::tests::numbers;
use crate::matmul::{Isa, Scalar};

mod instructions;
mod threads;

/// Operands of one attention, owned.
pub(super) struct Case<E> {
    isa: Isa,
    pub(super) shape: AttentionShape,
    pub(super) q: Vec<E>,
    pub(super) k: Vec<E>,
    pub(super) v: Vec<E>,
    dout: Vec<E>,
    pub(super) cu_seqlens: Vec<i32>,
}

/// `out`, `lse`, `dq`, `dk`, `dv`.
type Results<E> = (Vec<E>, Vec<<E as Element>::Acc>, Vec<E>, Vec<E>, Vec<E>);

impl<E: Element> Case<E>
where
    E::Acc: Scalar,
{
    pub(super) fn new(shape: AttentionShape, lens: &[usize]) -> Self {
        let tokens: usize = lens.iter().sum();
        let mut cu_seqlens = vec![0];
        for len in lens {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + *len as i32);
        }
        let (wide, narrow) = (tokens * shape.q_width(), tokens * shape.kv_width());
        Case {
            isa: Isa::detect(),
            shape,
            q: numbers(wide, 1),
            k: numbers(narrow, 2),
            v: numbers(narrow, 3),
            dout: numbers(wide, 4),
            cu_seqlens,
        }
    }

    fn inputs(&self) -> Inputs<'_, E> {
        Inputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            cu_seqlens: &self.cu_seqlens,
        }
    }

    pub(super) fn forward(&self, services: &dyn Services) -> (Vec<E>, Vec<E::Acc>) {
        let tokens = self.q.len() / self.shape.q_width();
        let mut out = vec![E::default(); self.q.len()];
        let mut lse = vec![E::Acc::default(); tokens * self.shape.heads];
        let bytes = forward_workspace_bytes::<E>(&self.shape, services.threads());
        let to = (&mut out[..], &mut lse[..]);
        forward(
            self.isa,
            services,
            &self.shape,
            self.inputs(),
            to,
            &mut vec![0xFF; bytes],
        );
        (out, lse)
    }

    fn run(&self, services: &dyn Services) -> Results<E> {
        let (out, lse) = self.forward(services);
        let tokens = self.q.len() / self.shape.q_width();
        let (mut dq, mut dk) = (
            vec![E::default(); self.q.len()],
            vec![E::default(); self.k.len()],
        );
        let mut dv = dk.clone();
        let bytes = backward_workspace_bytes::<E>(&self.shape, tokens, services.threads());
        let gradients = Gradients {
            dout: &self.dout,
            out: &out,
            lse: &lse,
            dq: &mut dq,
            dk: &mut dk,
            dv: &mut dv,
        };
        backward(
            self.isa,
            services,
            &self.shape,
            self.inputs(),
            gradients,
            &mut vec![0xFF; bytes],
        );
        (out, lse, dq, dk, dv)
    }

    /// The same in f64.
    fn exact(&self) -> Case<f64> {
        let exact = |x: &[E]| x.iter().map(|&x| convert(x)).collect();
        Case {
            isa: self.isa,
            shape: self.shape,
            q: exact(&self.q),
            k: exact(&self.k),
            v: exact(&self.v),
            dout: exact(&self.dout),
            cu_seqlens: self.cu_seqlens.clone(),
        }
    }
}

impl Case<f64> {
    /// `out` and `lse` by the formula, one query at a time.
    fn reference(&self) -> (Vec<f64>, Vec<f64>) {
        let shape = &self.shape;
        let (width, mut out) = (shape.head_dim, vec![0.0; self.q.len()]);
        let mut lse = Vec::new();
        for bounds in self.cu_seqlens.windows(2) {
            let (start, end) = (bounds[0] as usize, bounds[1] as usize);
            for i in start..end {
                for head in 0..shape.heads {
                    let q = &self.q[i * shape.q_width() + head * width..][..width];
                    let at = |j: usize| j * shape.kv_width() + head / shape.group() * width;
                    let seen = |j: &usize| {
                        (shape.future == Future::Visible || *j <= i)
                            && shape.window.is_none_or(|w| i < *j + w)
                    };
                    let weights: Vec<(usize, f64)> = (start..end)
                        .filter(seen)
                        .map(|j| {
                            let k = &self.k[at(j)..][..width];
                            let dot: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                            let logit = dot * shape.scale;
                            (
                                j,
                                shape
                                    .softcap
                                    .map_or(logit, |c| c * (logit / c).tanh())
                                    .exp(),
                            )
                        })
                        .collect();
                    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
                    lse.push(sum.ln());
                    let out = &mut out[i * shape.q_width() + head * width..][..width];
                    for (j, weight) in weights {
                        for (out, v) in out.iter_mut().zip(&self.v[at(j)..]) {
                            *out += weight / sum * v;
                        }
                    }
                }
            }
        }
        (out, lse)
    }
}

pub(super) fn shapes() -> Vec<AttentionShape> {
    let plain = AttentionShape {
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        scale: 0.25,
        future: Future::Hidden,
        window: None,
        softcap: None,
    };
    vec![
        plain,
        AttentionShape {
            heads: 3,
            kv_heads: 3,
            head_dim: 10,
            scale: 1.7,
            ..plain
        },
        AttentionShape {
            heads: 20,
            kv_heads: 1,
            head_dim: 8,
            window: Some(150),
            ..plain
        },
        AttentionShape {
            window: Some(1),
            ..plain
        },
        AttentionShape {
            softcap: Some(2.0),
            scale: 2.0,
            ..plain
        },
        AttentionShape {
            future: Future::Visible,
            ..plain
        },
        AttentionShape {
            future: Future::Visible,
            window: Some(3),
            ..plain
        },
    ]
}

/// The largest difference.
fn apart<A: Element, B: Element>(found: &[A], expected: &[B]) -> f64 {
    let found: Vec<f64> = found.iter().map(|x| x.load().to_f64()).collect();
    let expected: Vec<f64> = expected.iter().map(|x| x.load().to_f64()).collect();
    largest_difference(&found, &expected)
}

#[test]
fn equals_the_formula() {
    for shape in shapes() {
        for lens in [&[1][..], &[], &[1, 0, 260, 1, 1, 17], &[129, 128, 3]] {
            let exact = Case::<f64>::new(shape, lens);
            let (out, lse) = exact.forward(&Serial);
            let (expected, expected_lse) = exact.reference();
            assert!(apart(&out, &expected) < 1e-13, "{shape:?} {lens:?}");
            assert!(apart(&lse, &expected_lse) < 1e-12, "{shape:?} {lens:?}");
            let single = Case::<f32>::new(shape, lens);
            let (out, lse) = single.forward(&Serial);
            let (expected, expected_lse) = single.exact().reference();
            assert!(apart(&out, &expected) < 2e-6, "{shape:?} {lens:?}");
            assert!(apart(&lse, &expected_lse) < 5e-6, "{shape:?} {lens:?}");
            let half = Case::<bf16>::new(shape, lens);
            let (out, _) = half.forward(&Serial);
            assert!(
                apart(&out, &half.exact().reference().0) < 4e-3,
                "{shape:?} {lens:?}"
            );
        }
    }
}

#[test]
fn gradients_are_finite_differences() {
    for shape in shapes() {
        let case = Case::<f64>::new(shape, &[1, 140, 0, 21]);
        let (_, _, dq, dk, dv) = case.run(&Serial);
        let loss = |case: &Case<f64>| -> f64 {
            let (out, _) = case.reference();
            out.iter()
                .zip(&case.dout)
                .map(|(out, dout)| out * dout)
                .sum()
        };
        // Along a random direction in each operand, where the loss is smooth.
        for (operand, gradient) in [(0, &dq), (1, &dk), (2, &dv)] {
            let direction = numbers::<f64>(gradient.len(), 40 + operand);
            let moved = |step: f64| {
                let mut case = case.exact();
                let values = match operand {
                    0 => &mut case.q,
                    1 => &mut case.k,
                    _ => &mut case.v,
                };
                values
                    .iter_mut()
                    .zip(&direction)
                    .for_each(|(x, d)| *x += step * d);
                loss(&case)
            };
            let step = 1e-5;
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            let found: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let limit = 1e-7 * (1.0 + expected.abs());
            assert!(
                (found - expected).abs() < limit,
                "{shape:?} {operand}: {found} {expected}"
            );
        }
    }
}

#[test]
fn lower_precision_gradients_are_those_of_f64() {
    for shape in shapes() {
        let lens = [150, 1, 40];
        let case = Case::<f32>::new(shape, &lens);
        let (found, expected) = (case.run(&Serial), case.exact().run(&Serial));
        for (found, expected) in [
            (&found.2, &expected.2),
            (&found.3, &expected.3),
            (&found.4, &expected.4),
        ] {
            assert!(
                apart(found, expected) < 3e-5,
                "{shape:?}: {}",
                apart(found, expected)
            );
        }
        let case = Case::<bf16>::new(shape, &lens);
        let (found, expected) = (case.run(&Serial), case.exact().run(&Serial));
        for (found, expected) in [
            (&found.2, &expected.2),
            (&found.3, &expected.3),
            (&found.4, &expected.4),
        ] {
            let largest = largest(expected.iter().map(|x| x.abs()));
            assert!(
                apart(found, expected) < 2e-2 * largest.max(1.0),
                "{shape:?}"
            );
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_what_it_is_packed_with() {
    for shape in shapes() {
        let packed = Case::<f32>::new(shape, &[37, 161, 5]);
        let all = packed.run(&Serial);
        let (wide, narrow) = (shape.q_width(), shape.kv_width());
        let cut = |x: &[f32], width: usize| x[37 * width..198 * width].to_vec();
        let alone = Case {
            isa: packed.isa,
            shape,
            q: cut(&packed.q, wide),
            k: cut(&packed.k, narrow),
            v: cut(&packed.v, narrow),
            dout: cut(&packed.dout, wide),
            cu_seqlens: vec![0, 161],
        };
        let one = alone.run(&Serial);
        assert_eq!(one.0, cut(&all.0, wide));
        assert_eq!(one.1, cut(&all.1, shape.heads));
        assert_eq!(one.2, cut(&all.2, wide));
        assert_eq!(one.3, cut(&all.3, narrow));
        assert_eq!(one.4, cut(&all.4, narrow));
    }
}

#[test]
fn large_logits_do_not_overflow() {
    let mut case = Case::<f32>::new(
        AttentionShape {
            scale: 300.0,
            ..shapes()[0]
        },
        &[64],
    );
    let (out, lse, dq, dk, dv) = case.run(&Serial);
    let all = [&out, &lse, &dq, &dk, &dv];
    assert!(all.iter().all(|x| x.iter().all(|x| x.is_finite())));
    // One key far above the others: its value is the output.
    case.q.fill(1.0);
    case.k.fill(0.0);
    case.k[..case.shape.kv_width()].fill(1.0);
    let (out, _) = case.forward(&Serial);
    assert_eq!(out[63 * case.shape.q_width()..][..16], case.v[..16]);
}
