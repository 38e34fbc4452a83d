//! JSON values at the boundary -> one sample of each kind with every field and every variant.

mod adapting;
mod constants;
mod saved_form;
mod steps;

use std::fmt::Write;

use espalier_interface::abi::METHODS;
use espalier_interface::abi::descriptor::{ComponentDescriptor, Descriptor, OptionDescriptor};
use espalier_interface::calibration::{Calibration, InputsFrom, Statistic};
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, DeviceCode, Format, SegmentSpec, TableScale,
};
use espalier_interface::graph::{Attributes, Dim, Graph, Source};
use espalier_interface::model::{Model, ParamKind, ParamSpec, Unit, UnitKind};
use espalier_interface::schedule::{
    Act, Action, Part, Place, Placement, Schedule, ShardingRequest, UnitBytes, When,
};
use espalier_interface::{
    CollectiveInfo, DType, DeviceInfo, Init, JoinRequest, KernelRequest, MemberDevice, Members,
    OpId, Operand, OptionKind, ParamOperand, Role, WeightLayout, op,
};
use serde::Serialize;
use serde_json::json;

use self::adapting::{adaptation, sites};
use self::constants::{codes, dtypes, option_kinds};
use self::saved_form::{saved_description, saved_form, saved_model};

/// The methods of every role, then a sample of every description.
pub fn describe() -> String {
    let mut text = String::new();
    for (role, methods) in METHODS {
        line(&mut text, &format!("{role} call: {}", methods.join(" ")));
    }
    let roles = Role::ALL.map(|role| role.0).join(" ");
    line(&mut text, &format!("roles: {roles}"));
    line(&mut text, &format!("option types: {}", option_kinds()));
    line(&mut text, &format!("dtypes: {}", dtypes()));
    line(&mut text, &format!("error codes: {}", codes()));
    for (name, sample) in samples() {
        line(&mut text, &format!("{name} {sample}"));
    }
    text
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}

fn samples() -> Vec<(&'static str, String)> {
    vec![
        ("Descriptor", shown(&descriptor())),
        ("Format", shown(&formats())),
        ("Calibration", shown(&calibrations())),
        ("DeviceCode", shown(&DeviceCode::cuda("a text"))),
        ("Model", shown(&model())),
        ("Adaptation", shown(&adaptation())),
        ("Site", shown(&sites())),
        ("ShardingRequest", shown(&request())),
        ("Schedule", shown(&schedule())),
        ("SavedForm", shown(&saved_form())),
        ("SavedModel", shown(&saved_model())),
        ("SavedDescription", shown(&saved_description())),
        ("DeviceInfo", shown(&device())),
        ("OpId", shown(&[OpId::first("linear")])),
        ("KernelRequest", shown(&kernel())),
        ("CollectiveInfo", shown(&collectives())),
        ("JoinRequest", shown(&join())),
    ]
}

fn shown(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("descriptions are plain data")
}

fn descriptor() -> Descriptor {
    Descriptor {
        abi: [0, 0],
        name: "sample".to_owned(),
        version: "1.2.3".to_owned(),
        components: vec![ComponentDescriptor {
            name: "sample".to_owned(),
            role: Role::QUANTIZER.0.to_owned(),
            doc: "a line".to_owned(),
            options: vec![OptionDescriptor {
                name: "bits".to_owned(),
                kind: OptionKind::INTEGER.0.to_owned(),
                default: json!(4),
                range: "1..=8".to_owned(),
                doc: "a line".to_owned(),
            }],
            capabilities: [("quant_methods".to_owned(), "sample".to_owned())].into(),
        }],
    }
}

fn formats() -> Vec<Format> {
    let stored = BlockValues::Stored { segment: 1 };
    let nested = BlockValues::Nested {
        codes: 1,
        table: vec![0.5],
        scales: 2,
        size: 256,
        offset: 3,
    };
    let codes = |order| Codes {
        segment: 0,
        bits: 4,
        order,
    };
    let grouped = BlockValues::Affine {
        codes: 1,
        groups: BlockMap::Rows,
        scales: 2,
        zeros: 3,
    };
    let split = Decoding::Affine {
        codes: codes(BitOrder::Split { words: 2 }),
        blocks: BlockMap::Rows,
        scale: stored.clone(),
        zero: grouped,
    };
    let codebook = |blocks| Decoding::Codebook {
        codes: codes(BitOrder::HighFirst),
        table: vec![0.5],
        blocks,
        scale: nested.clone(),
    };
    let affine = |blocks| Decoding::Affine {
        codes: codes(BitOrder::LowFirst),
        blocks,
        scale: stored.clone(),
        zero: stored.clone(),
    };
    let table = |scale| BlockValues::Table {
        codes: codes(BitOrder::LowFirst),
        table: vec![0.5],
        not_numbers: vec![255],
        scale,
    };
    let by_table = Decoding::Affine {
        codes: codes(BitOrder::LowFirst),
        blocks: BlockMap::Rows,
        scale: table(Some(TableScale::Over { segment: 2 })),
        zero: table(Some(TableScale::Times { segment: 2 })),
    };
    let decodings = [
        codebook(BlockMap::Flat { size: 64 }),
        codebook(BlockMap::Strided { count: 2 }),
        affine(BlockMap::Rows),
        affine(BlockMap::Columns),
        split,
        by_table,
    ];
    let format = |decoding| Format {
        quantizer: "sample".to_owned(),
        shape: [2, 3],
        segments: vec![SegmentSpec::new("codes", DType::U8, 3)],
        decoding,
    };
    let decodings = decodings.into_iter().chain(steps::decodings());
    decodings.chain([Decoding::Callback]).map(format).collect()
}

fn graph() -> Graph {
    let mut graph = Graph::new("sample");
    let shape = [Dim::Tokens, Dim::Boundaries, Dim::Fixed(4)];
    let hidden = graph.input(Source::Previous("hidden".to_owned()), shape, DType::COMPUTE);
    graph.batch("tokens");
    let weight = graph.param("proj.weight", [4, 4]);
    let out = op::linear(&mut graph, hidden, weight, None);
    graph.output("hidden", out);
    graph
}

fn model() -> Model {
    let kinds = [
        (ParamKind::Linear, Init::Normal { std: 0.5 }),
        (ParamKind::Embedding, Init::Uniform { bound: 0.5 }),
        (ParamKind::Head, Init::Zeros),
        (ParamKind::Norm, Init::Ones),
        (ParamKind::Bias, Init::Zeros),
    ];
    let param = |(kind, init)| ParamSpec {
        name: "proj.weight".to_owned(),
        aliases: vec!["tied.weight".to_owned()],
        shape: vec![4, 4],
        kind,
        init,
    };
    let unit = |kind| Unit {
        name: "layer".to_owned(),
        kind,
        graph: 0,
        prefix: "layer.".to_owned(),
        params: vec![0],
    };
    Model {
        family: "sample".to_owned(),
        hidden_size: 4,
        vocab_size: 8,
        max_positions: 16,
        params: kinds.map(param).to_vec(),
        graphs: vec![graph()],
        units: [UnitKind::Embedding, UnitKind::Layer, UnitKind::Head]
            .map(unit)
            .to_vec(),
    }
}

fn request() -> ShardingRequest {
    ShardingRequest {
        units: vec![UnitBytes {
            name: "layer".to_owned(),
            frozen: 1,
            trainable: 2,
            gradients: 3,
            optimizer: 4,
            saved: 5,
            forward_reads: vec![0],
            backward_reads: vec![0],
        }],
        world: 1,
        ranks_per_machine: 1,
        micro_batches: 2,
        update_in_backward: true,
        device_bytes: Some(5),
        host_bytes: Some(6),
    }
}

fn schedule() -> Schedule {
    let acts = [
        Act::Fetch,
        Act::Gather,
        Act::Forward,
        Act::Backward,
        Act::Release,
        Act::Reduce,
        Act::Norm,
        Act::Offload,
        Act::Optimize,
    ];
    let moments = [When::Every, When::First, When::Last];
    let action = |(index, act): (usize, Act)| Action {
        when: moments[index % moments.len()],
        after: vec![0],
        parts: vec![
            Part::Frozen,
            Part::Trainable,
            Part::Gradients,
            Part::Optimizer,
            Part::Saved,
        ],
        ..Action::new(act, 0)
    };
    let actions: Vec<Action> = acts.into_iter().enumerate().map(action).collect();
    Schedule {
        placements: vec![
            Placement {
                frozen: Place::Replicated,
                trainable: Place::Sharded,
                optimizer: Place::Host,
            },
            Placement {
                frozen: Place::Host,
                trainable: Place::ShardedOnHost,
                optimizer: Place::ShardedOnHost,
            },
        ],
        shard_ranks: 2,
        reduce_dtype: Some(DType::BF16),
        micro_batch: actions.clone(),
        micro_batches_per_fetch: 3,
        update: actions,
    }
}

fn device() -> DeviceInfo {
    DeviceInfo {
        name: "cpu".to_owned(),
        description: "a processor".to_owned(),
        memory_bytes: 1,
        free_bytes: 2,
        instruction_set: "avx2".to_owned(),
        shares_host_memory: true,
        exact_memory: true,
        head_chunk_bytes: Some(3),
    }
}

fn calibrations() -> [Calibration; 2] {
    let grams = [DType::F32, DType::F64].map(|dtype| Statistic::Gram { dtype });
    let by_channel = {
        use Statistic::{AbsoluteMaximum, MeanAbsolute, MeanSquare};
        [MeanSquare, AbsoluteMaximum, MeanAbsolute]
    };
    let statistics: Vec<Statistic> = by_channel.into_iter().chain(grams).collect();
    [InputsFrom::Dense, InputsFrom::PackedLayers].map(|inputs| Calibration {
        statistics: statistics.clone(),
        inputs,
    })
}

fn collectives() -> [CollectiveInfo; 2] {
    [Members::Threads, Members::Processes].map(|members| CollectiveInfo {
        members,
        dtypes: vec![DType::F32],
        memory: vec!["host".to_owned()],
        max_bytes: 1,
        description: "a sample".to_owned(),
    })
}

fn join() -> JoinRequest {
    JoinRequest {
        group: "shards".to_owned(),
        members: vec![0, 2],
        member: 1,
        size: 4,
        timeout_secs: 5,
        device: Some(MemberDevice {
            backend: "sample".to_owned(),
            number: 1,
        }),
        invitation: vec![7, 8],
    }
}

fn kernel() -> KernelRequest {
    let operand = |dtype| Operand {
        shape: vec![Dim::Tokens, Dim::Fixed(4)],
        dtype,
    };
    let param = |layout| ParamOperand {
        shape: vec![4, 4],
        layout,
    };
    let format = formats().pop().expect("several");
    KernelRequest {
        op: "linear".to_owned(),
        version: 1,
        attributes: Attributes::new().with("site", "layer.proj"),
        inputs: vec![
            operand(DType::F32),
            operand(DType::F64),
            operand(DType::I32),
        ],
        params: vec![
            param(WeightLayout::Dense(DType::BF16)),
            param(WeightLayout::Packed(Box::new(format))),
        ],
        device_code: vec![None, Some(DeviceCode::cuda("a text"))],
        outputs: vec![operand(DType::REDUCE)],
        max_tokens: 7,
        max_sequences: 8,
    }
}
