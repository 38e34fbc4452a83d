//! A registry -> the answers of each role's shipped plugin.

#[cfg(feature = "embedded")]
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::schedule::{ShardingRequest, UnitBytes};
use espalier_interface::{Serial, Services};
#[cfg(feature = "embedded")]
use espalier_registry::Registry;
#[cfg(feature = "embedded")]
use serde_json::json;
use serde_json::{Map, Value as Json};

pub static SERVICES: &dyn Services = &Serial;

pub fn options(json: Json) -> Map<String, Json> {
    json.as_object().expect("an object").clone()
}

#[cfg(feature = "embedded")]
fn config() -> Json {
    json!({
        "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 176,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    })
}

#[cfg(feature = "embedded")]
fn sites() -> Vec<Site> {
    let site = |name: &str, kind| Site {
        name: name.to_owned(),
        kind,
        shape: [32, 64],
        tied_to: None,
        has_bias: false,
    };
    vec![
        site("model.layers.0.self_attn.q_proj", SiteKind::Linear),
        site("lm_head", SiteKind::Head),
    ]
}

pub fn request(world: u32) -> ShardingRequest {
    let unit = |(index, name): (usize, &str)| UnitBytes {
        name: name.to_owned(),
        frozen: 8,
        trainable: 4,
        gradients: 4,
        optimizer: 8,
        saved: 16,
        forward_reads: vec![index],
        backward_reads: vec![index],
    };
    let names = ["embedding", "layer", "head"];
    ShardingRequest {
        units: names.into_iter().enumerate().map(unit).collect(),
        world,
        ranks_per_machine: world,
        ..ShardingRequest::default()
    }
}

/// The answers of each role as JSON: both ways to load must give the same.
#[cfg(feature = "embedded")]
pub fn answers(registry: &Registry) -> Json {
    let (family, _) = registry
        .create_family("llama", &Map::new(), SERVICES)
        .expect("llama");
    let given = options(json!({"rank": 4, "dropout": 0.1, "targets": ["q_proj", "lm_head"]}));
    let (adapter, _) = registry
        .create_adapter("lora", &given, SERVICES)
        .expect("lora");
    let (sharding, _) = registry
        .create_sharding("single", &Map::new(), SERVICES)
        .expect("single");
    let given = options(json!({"offload": "params+optimizer", "reduce_dtype": "bf16"}));
    let (fsdp, _) = registry
        .create_sharding("fsdp", &given, SERVICES)
        .expect("fsdp");
    let given = options(json!({"block_size": 32}));
    let (quantizer, _) = registry
        .create_quantizer("nf4", &given, SERVICES)
        .expect("nf4");
    let format = quantizer.format([8, 48]).expect("a shape that fits");
    let weight: Vec<f32> = (0..8 * 48)
        .map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0)
        .collect();
    let sizes = format
        .segments
        .iter()
        .map(|segment| segment.bytes() as usize);
    let mut segments: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
    let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    let mut workspace = vec![0; quantizer.encode_workspace([8, 48]).expect("bytes") as usize];
    quantizer
        .encode(&weight, [8, 48], &mut views, &mut workspace)
        .expect("finite weights");
    let mut decoded = vec![0.0f32; 3 * 7];
    let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    quantizer
        .decode(&views, [8, 48], 2..5, 40..47, &mut decoded)
        .expect("its own bytes");
    json!({
        "model": family.describe(&config()).expect("a whole config"),
        "adaptation": adapter.adapt(&sites()).expect("both sites exist"),
        "saved": adapter.saved_config(&sites(), "models/tiny").expect("both sites exist"),
        "schedule": sharding.schedule(&request(1)).expect("one rank"),
        "sharded": fsdp.schedule(&request(4)).expect("four ranks"),
        "format": format,
        "segments": segments,
        "decoded": decoded,
    })
}
