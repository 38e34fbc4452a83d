//! A site's kind and shape -> the graph that takes its place.
//!
//! Legend: `T` tokens, `M` width in, `N` width out, `R` rank, `V` vocab, `D` width of an embedding.

mod dora;

use espalier_interface::DType;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, ParamId, Source, ValueId};
use espalier_interface::op::{self, EmbeddingLayout};

use crate::settings::{Settings, Variant};

pub use dora::MAGNITUDE;

/// Local names of the two params, as the saved keys end: down to the rank, and up from it.
pub fn param_names(kind: SiteKind) -> [&'static str; 2] {
    match kind {
        // PEFT holds an embedding's matrices as bare params, so their keys have no `.weight`.
        SiteKind::Embedding => ["lora_embedding_A", "lora_embedding_B"],
        _ => ["lora_A.weight", "lora_B.weight"],
    }
}

/// Shapes of the two params: `[R, M]` and `[N, R]`; of an embedding `[R, V]` and `[D, R]`.
pub fn param_shapes(site: &Site, rank: u64) -> [[u64; 2]; 2] {
    let [rows, cols] = site.shape;
    match site.kind {
        SiteKind::Embedding => [[rank, rows], [cols, rank]],
        _ => [[rank, cols], [rows, rank]],
    }
}

/// The fragment of a site. Sites of one kind, shape and
/// rank give equal fragments, but for a bias.
pub fn build(site: &Site, settings: &Settings) -> Graph {
    match (site.kind, settings.variant) {
        (SiteKind::Embedding, _) => embedding(site, settings),
        (_, Variant::Lora) => linear(site, settings),
        (_, Variant::Dora) => dora::linear(site, settings),
    }
}

/// `x` `[T, M]` -> `base(x) + s B A dropout(x)` `[T, N]`.
fn linear(site: &Site, settings: &Settings) -> Graph {
    let mut graph = Graph::new("lora.linear");
    let [width, from] = site.shape;
    let shape = [Dim::Tokens, Dim::Fixed(from)];
    let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
    let [down, up] = params(&mut graph, site, settings);
    let base = op::base(&mut graph, x, width);
    let kept = dropped(&mut graph, x, settings);
    let narrow = op::linear(&mut graph, kept, down, None);
    let update = op::linear(&mut graph, narrow, up, None);
    let out = op::add(&mut graph, base, update, settings.factor(site));
    graph.output("output", out);
    graph
}

/// tokens `[T]` -> `base(tokens) + s B A[:, tokens]` `[T, D]`; PEFT drops nothing here.
fn embedding(site: &Site, settings: &Settings) -> Graph {
    let mut graph = Graph::new("lora.embedding");
    let source = Source::Previous("input".to_owned());
    let tokens = graph.input(source, [Dim::Tokens], DType::I32);
    let [down, up] = params(&mut graph, site, settings);
    let base = op::base(&mut graph, tokens, site.shape[1]);
    let narrow = op::embedding(&mut graph, tokens, down, EmbeddingLayout::ByColumn);
    let update = op::linear(&mut graph, narrow, up, None);
    let out = op::add(&mut graph, base, update, settings.factor(site));
    graph.output("output", out);
    graph
}

/// The input of the update: `x`, or what dropout leaves of it.
fn dropped(graph: &mut Graph, x: ValueId, settings: &Settings) -> ValueId {
    if settings.dropout > 0.0 {
        op::dropout(graph, x, settings.dropout)
    } else {
        x
    }
}

fn params(graph: &mut Graph, site: &Site, settings: &Settings) -> [ParamId; 2] {
    let [down, up] = param_names(site.kind);
    let [down_shape, up_shape] = param_shapes(site, settings.rank(site));
    [graph.param(down, down_shape), graph.param(up, up_shape)]
}
