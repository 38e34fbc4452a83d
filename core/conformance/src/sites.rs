//! The sites of a small model, as an adapter gets them.

use espalier_interface::adaptation::{Site, SiteKind};

/// The head of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Its weight is the embedding's.
    Tied,
    /// It has a weight of its own.
    Own,
}

/// The sites of a Llama with two layers and grouped queries: hidden 64, feed-forward 176, keys and
/// values 32, vocabulary 512.
pub fn llama(head: Head) -> Vec<Site> {
    let site = |name: String, kind, shape, tied_to| Site {
        name,
        kind,
        shape,
        tied_to,
        has_bias: false,
    };
    let table = "model.embed_tokens".to_owned();
    let mut sites = vec![site(table.clone(), SiteKind::Embedding, [512, 64], None)];
    for layer in 0..2 {
        for (name, shape) in [
            ("self_attn.q_proj", [64, 64]),
            ("self_attn.k_proj", [32, 64]),
            ("self_attn.v_proj", [32, 64]),
            ("self_attn.o_proj", [64, 64]),
            ("mlp.gate_proj", [176, 64]),
            ("mlp.up_proj", [176, 64]),
            ("mlp.down_proj", [64, 176]),
        ] {
            let name = format!("model.layers.{layer}.{name}");
            sites.push(site(name, SiteKind::Linear, shape, None));
        }
    }
    let tied_to = (head == Head::Tied).then_some(table);
    sites.push(site(
        "lm_head".to_owned(),
        SiteKind::Head,
        [512, 64],
        tied_to,
    ));
    sites
}
