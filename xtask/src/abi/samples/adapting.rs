//! What an adapter is given and answers.

use espalier_interface::Init;
use espalier_interface::adaptation::{
    Adaptation, AdapterParam, BaseChange, FrozenParam, Join, ReplacedNorm, Site, SiteKind,
};

use super::graph;

pub(super) fn adaptation() -> Adaptation {
    Adaptation {
        params: [
            Init::FromWeight,
            Init::Constant { value: 0.1 },
            Init::TorchUniform {
                bound: 0.5,
                key: 7,
                skip: 8,
            },
        ]
        .map(|init| AdapterParam {
            name: "lora_A.weight".to_owned(),
            shape: vec![2, 4],
            init,
        })
        .to_vec(),
        joins: vec![Join {
            site: 0,
            fragment: graph(),
            params: vec![0],
        }],
        learning_rate_ratios: vec![2.0],
        norms: vec![ReplacedNorm { site: 3, param: 0 }],
        base_change: Some(BaseChange {
            joins: vec![0],
            rounds: 1,
            option: "init".to_owned(),
        }),
        frozen: vec![FrozenParam {
            param: 1,
            part_of: Some(2),
        }],
    }
}

pub(super) fn sites() -> Vec<Site> {
    let site = |kind| Site {
        name: "layer.proj".to_owned(),
        kind,
        shape: [4, 4],
        tied_to: Some("embedding".to_owned()),
        has_bias: true,
    };
    let kinds = [
        SiteKind::Linear,
        SiteKind::Embedding,
        SiteKind::Head,
        SiteKind::Norm,
    ];
    kinds.map(site).to_vec()
}
