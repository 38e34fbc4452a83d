//! `layer_norm` and `gelu` launched through the device equal their kernels.

use espalier_interface::Serial;
use espalier_interface::op::GeluForm;
use espalier_kernels as kernels;
use espalier_kernels::element::{Element, convert};
use half::{bf16, f16};

use super::{flat, normal, rows};
use crate::rig::{Rig, numbers};

const EPS: f64 = 1e-5;

/// With a weight and a bias of different stored types, and without a bias.
fn norms<E: Element>() {
    let (t, d) = (5, 24);
    let (x, dy) = (normal::<E>(t * d, 1), normal::<E>(t * d, 2));
    let (w, b) = (normal::<f32>(d, 3), normal::<f16>(d, 4));
    let wide: Vec<E::Acc> = w.iter().map(|&w| convert(w)).collect();
    let wide_bias: Vec<E::Acc> = b.iter().map(|&b| convert(b)).collect();
    let mut y = vec![E::default(); t * d];
    for bias in [None, Some(&wide_bias[..])] {
        kernels::layer_norm::layer_norm(&Serial, &x, &wide, bias, EPS, &mut y);
        let rig = Rig::new("layer_norm", t).input(rows(&x, d));
        let rig = rig.param(&[d as u64], &w).with("eps", EPS);
        let rig = match bias {
            Some(_) => rig.param(&[d as u64], &b),
            None => rig,
        };
        let rig = rig.output(rows(&normal::<E>(t * d, 9), d));
        assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);
    }
    kernels::layer_norm::layer_norm_backward(&Serial, &x, &wide, &dy, EPS, &mut y);
    let rig = Rig::new("layer_norm_backward", t).input(rows(&dy, d));
    let rig = rig.input(rows(&x, d)).param(&[d as u64], &w);
    let rig = rig.output(rows(&x, d)).with("eps", EPS);
    assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);
    let start: Vec<E::Acc> = normal(d, 5);
    let (mut dw, mut found) = (start.clone(), vec![Default::default(); 2 * t]);
    kernels::layer_norm::layer_norm_backward_weight(&Serial, &x, &dy, EPS, &mut found, &mut dw);
    let rig = Rig::new("layer_norm_weight_backward", t).input(rows(&dy, d));
    let rig = rig.input(rows(&x, d)).output(flat(&start)).with("eps", EPS);
    assert_eq!(numbers::<E::Acc>(&rig.run().unwrap()[0]), dw);
}

#[test]
fn layer_norms_in_every_dtype() {
    norms::<f32>();
    norms::<bf16>();
    norms::<f64>();
}

fn gelus<E: Element>() {
    let (t, d) = (3, 50);
    let (x, dy) = (normal::<E>(t * d, 1), normal::<E>(t * d, 2));
    for form in GeluForm::ALL {
        let mut y = vec![E::default(); t * d];
        kernels::gelu::gelu(&Serial, form, &x, &mut y);
        let rig = Rig::new("gelu", t).input(rows(&x, d)).output(rows(&dy, d));
        let rig = rig.with("approximate", form.name());
        assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);
        kernels::gelu::gelu_backward(&Serial, form, &x, &dy, &mut y);
        let rig = Rig::new("gelu_backward", t).input(rows(&dy, d));
        let rig = rig.input(rows(&x, d)).output(rows(&x, d));
        let rig = rig.with("approximate", form.name());
        assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);
    }
}

#[test]
fn gelus_in_every_dtype() {
    gelus::<f32>();
    gelus::<bf16>();
    gelus::<f64>();
}
