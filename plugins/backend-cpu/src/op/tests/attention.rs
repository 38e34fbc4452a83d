//! Attention launched through the device equals its kernel, in both directions.

use espalier_interface::Serial;
use espalier_interface::graph::Dim::Boundaries;
use espalier_kernels::attention as kernel;
use espalier_kernels::element::Element;
use espalier_kernels::matmul::{Isa, Scalar};
use half::bf16;

use super::{normal, rows};
use crate::rig::{Array, Rig, integers, numbers};

const T: usize = 5;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 8;
const WIDE: usize = HEADS * HEAD_DIM;
const NARROW: usize = KV_HEADS * HEAD_DIM;
const CU_SEQLENS: [i32; 3] = [0, 3, 5];

/// Two packed sequences, four query heads on two key/value heads, and the kernels' results on them.
struct Sample<E: Element> {
    q: Vec<E>,
    k: Vec<E>,
    v: Vec<E>,
    dout: Vec<E>,
    out: Vec<E>,
    lse: Vec<E::Acc>,
    dq: Vec<E>,
    dk: Vec<E>,
    dv: Vec<E>,
}

impl<E: Element> Sample<E>
where
    E::Acc: Scalar,
{
    fn new() -> Self {
        let [q, dout]: [Vec<E>; 2] = [1, 2].map(|stream| normal(T * WIDE, stream));
        let [k, v]: [Vec<E>; 2] = [3, 4].map(|stream| normal(T * NARROW, stream));
        let shape = kernel::AttentionShape {
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            scale: 0.3,
            future: kernel::Future::Hidden,
            window: Some(2),
            softcap: Some(20.0),
        };
        let inputs = kernel::Inputs {
            q: &q,
            k: &k,
            v: &v,
            cu_seqlens: &CU_SEQLENS,
        };
        let (mut out, mut lse) = (q.clone(), vec![E::Acc::default(); T * HEADS]);
        let mut space = vec![0; kernel::forward_workspace_bytes::<E>(&shape, 1)];
        kernel::forward(
            Isa::detect(),
            &Serial,
            &shape,
            inputs,
            (&mut out, &mut lse),
            &mut space,
        );
        let (mut dq, mut dk, mut dv) = (q.clone(), k.clone(), v.clone());
        let gradients = kernel::Gradients {
            dout: &dout,
            out: &out,
            lse: &lse,
            dq: &mut dq,
            dk: &mut dk,
            dv: &mut dv,
        };
        let mut space = vec![0; kernel::backward_workspace_bytes::<E>(&shape, T, 1)];
        kernel::backward(
            Isa::detect(),
            &Serial,
            &shape,
            inputs,
            gradients,
            &mut space,
        );
        Sample {
            q,
            k,
            v,
            dout,
            out,
            lse,
            dq,
            dk,
            dv,
        }
    }

    /// A launch of the forward pass over sequences with these bounds.
    fn forward(&self, cu_seqlens: &[i32]) -> Rig {
        let rig = Rig {
            sequences: 2,
            ..Rig::new("attention", T)
        };
        let rig = rig
            .input(rows(&self.q, WIDE))
            .input(rows(&self.k, NARROW))
            .input(rows(&self.v, NARROW));
        let rig = rig
            .input(boundaries(cu_seqlens))
            .output(rows(&self.q, WIDE));
        with_attributes(rig.output(rows(&[E::Acc::default(); T * HEADS], HEADS)))
    }

    fn check_forward(&self) {
        let error = self
            .forward(&CU_SEQLENS)
            .with("softcap", 0.0)
            .run()
            .unwrap_err();
        let message = error.message;
        assert!(message.contains("`softcap` is 0, expected"), "{message}");
        let made = self.forward(&CU_SEQLENS).run().unwrap();
        assert_eq!(numbers::<E>(&made[0]), self.out);
        assert_eq!(numbers::<E::Acc>(&made[1]), self.lse);
        for lying in [[0, 4, 3], [0, 3, 6], [1, 3, 5]] {
            let error = self.forward(&lying).run().unwrap_err();
            assert!(error.message.contains("cu_seqlens"), "{error}");
        }
    }

    fn check_backward(&self) {
        let rig = Rig {
            sequences: 2,
            ..Rig::new("attention_backward", T)
        };
        let rig = rig
            .input(rows(&self.dout, WIDE))
            .input(rows(&self.q, WIDE))
            .input(rows(&self.k, NARROW));
        let rig = rig
            .input(rows(&self.v, NARROW))
            .input(rows(&self.out, WIDE))
            .input(rows(&self.lse, HEADS));
        let rig = rig
            .input(boundaries(&CU_SEQLENS))
            .output(rows(&self.q, WIDE));
        let rig = rig
            .output(rows(&self.k, NARROW))
            .output(rows(&self.v, NARROW));
        let made = with_attributes(rig).run().unwrap();
        assert_eq!(numbers::<E>(&made[0]), self.dq);
        assert_eq!(numbers::<E>(&made[1]), self.dk);
        assert_eq!(numbers::<E>(&made[2]), self.dv);
    }
}

fn with_attributes(rig: Rig) -> Rig {
    let rig = rig
        .with("heads", HEADS)
        .with("kv_heads", KV_HEADS)
        .with("head_dim", HEAD_DIM);
    rig.with("scale", 0.3)
        .with("causal", true)
        .with("window", 2)
        .with("softcap", 20.0)
}

fn boundaries(values: &[i32]) -> Array {
    let mut array = integers(values);
    array.operand.shape = vec![Boundaries];
    array
}

fn attentions<E: Element>()
where
    E::Acc: Scalar,
{
    let sample = Sample::<E>::new();
    sample.check_forward();
    sample.check_backward();
}

#[test]
fn attentions_in_every_dtype() {
    attentions::<f32>();
    attentions::<bf16>();
    attentions::<f64>();
}
