//! Adapters whose params begin from a weight and fail in it, or that read the weight wrongly: the
//! run is refused with the plugin, the callback and the site.

use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site, SiteKind};
use espalier_interface::graph::{Dim, Graph, Source};
use espalier_interface::{
    Adapter, Component, Create, DType, Init, InitialiseCall, Instance, Options, PluginError,
    Result as PluginResult, Role, op,
};
use espalier_registry::PluginFailure;
use espalier_tests::{Rig, golden_path};
use espalier_trainer::Error;
use serde_json::{Value as Json, json};

/// A way to go wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    /// A value that is not finite.
    NotANumber,
    /// No method `initialise`.
    Missing,
    /// More workspace than can be addressed.
    Workspace,
    /// One param for the weights of two sites.
    TwoSites,
    /// The weight in another shape.
    Shape,
}

/// An adapter on `q_proj` and `o_proj`: `y = base(x) * m`, with `m` from the weight.
struct Begins(Wrong);

impl Begins {
    fn fragment(&self, [rows, cols]: [u64; 2]) -> Graph {
        let mut graph = Graph::new("begins");
        let shape = [Dim::Tokens, Dim::Fixed(cols)];
        let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
        let factor = graph.param("m", [rows]);
        if self.0 == Wrong::Shape {
            op::base_weight(&mut graph, [cols + 1, rows]);
        }
        let base = op::base(&mut graph, x, rows);
        let out = op::scale_channels(&mut graph, base, factor);
        graph.output("output", out);
        graph
    }
}

impl Adapter for Begins {
    fn adapt(&self, sites: &[Site]) -> PluginResult<Adaptation> {
        let mut made = Adaptation::default();
        let named = |site: &Site| site.name.ends_with("q_proj") || site.name.ends_with("o_proj");
        let linear = |site: &Site| site.kind == SiteKind::Linear && named(site);
        for (index, site) in sites.iter().enumerate().filter(|(_, site)| linear(site)) {
            if self.0 != Wrong::TwoSites || made.params.is_empty() {
                made.params.push(AdapterParam {
                    name: format!("{}.m", site.name),
                    shape: vec![site.shape[0]],
                    init: Init::FromWeight,
                });
            }
            made.joins.push(Join {
                site: index,
                fragment: self.fragment(site.shape),
                params: vec![made.params.len() - 1],
            });
        }
        Ok(made)
    }

    fn saved_config(&self, _: &[Site], _: &str) -> PluginResult<Json> {
        Ok(json!({}))
    }

    fn options_from_saved(&self, _: &Json) -> PluginResult<Options> {
        Ok(Options::default())
    }

    fn initialise(&self, mut call: InitialiseCall<'_>) -> PluginResult<()> {
        if self.0 == Wrong::Missing {
            return Err(PluginError::unsupported(
                "nothing begins from a weight here",
            ));
        }
        call.params[0].values[3] = f32::NAN;
        Ok(())
    }

    fn initialise_workspace(&self, _: &Site) -> PluginResult<u64> {
        Ok(if self.0 == Wrong::Workspace {
            u64::MAX
        } else {
            64
        })
    }
}

const fn begins(name: &'static str, create: Create) -> Component {
    Component {
        name,
        role: Role::ADAPTER,
        doc: "for tests",
        options: &[],
        capabilities: &[],
        create,
    }
}

fn made(wrong: Wrong) -> PluginResult<Instance> {
    Ok(Instance::Adapter(Box::new(Begins(wrong))))
}

const NAN: Component = begins("begins-nan", |_, _| made(Wrong::NotANumber));
const MISSING: Component = begins("begins-missing", |_, _| made(Wrong::Missing));
const WORKSPACE: Component = begins("begins-workspace", |_, _| made(Wrong::Workspace));
const TWO: Component = begins("begins-two", |_, _| made(Wrong::TwoSites));
const SHAPE: Component = begins("begins-shape", |_, _| made(Wrong::Shape));

espalier_interface::declare_plugin! {
    name: "begins",
    components: &[NAN, MISSING, WORKSPACE, TWO, SHAPE]
}

#[test]
fn a_faulty_beginning_is_refused_with_plugin_callback_and_site() {
    for (component, callback, words) in [
        ("begins-nan", "initialise", "q_proj.m`: element 3 is NaN"),
        ("begins-missing", "initialise", "q_proj`: nothing begins"),
        (
            "begins-workspace",
            "initialise_workspace",
            "q_proj`, expected at most",
        ),
        ("begins-two", "adapt", "fragments of 4 sites read it"),
        (
            "begins-shape",
            "adapt",
            "its site's weight as [[65, 64]], expected [64, 64]",
        ),
    ] {
        let plugins = format!("[{component:?}]");
        let keys = [
            ("plugins", plugins.as_str()),
            ("model.compute", "\"f32\""),
            ("data.max_seq_len", "16"),
        ];
        let loaded = Rig::try_new(&golden_path("llama/tiny-trained"), &keys);
        let error = loaded.map(|_| ()).expect_err(component);
        assert_eq!(error.exit_code(), 5, "{component}: {error}");
        let Error::Plugin(PluginFailure {
            plugin,
            callback: found,
            source,
            ..
        }) = &error
        else {
            panic!("{component}: {error:?}")
        };
        assert_eq!((plugin.as_str(), found.as_str()), (component, callback));
        assert!(source.message.contains(words), "{component}: {source}");
    }
}
