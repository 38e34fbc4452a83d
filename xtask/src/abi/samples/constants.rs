//! Single numbers and words at the boundary -> each with its name.

use espalier_interface::{CollectiveOp, DType, ErrorCode, LogLevel, MemoryKind, OptionKind};

pub fn option_kinds() -> String {
    let kinds = [
        OptionKind::BOOL,
        OptionKind::INTEGER,
        OptionKind::NUMBER,
        OptionKind::TEXT,
        OptionKind::TEXTS,
        OptionKind::INTEGER_TABLE,
        OptionKind::NUMBER_TABLE,
    ];
    kinds.map(|kind| kind.0).join(" ")
}

/// Every named id.
pub fn dtypes() -> String {
    let known = (0..1024)
        .map(DType)
        .filter(|dtype| DType::from_name(&dtype.name()).is_some());
    let shown: Vec<String> = known
        .map(|dtype| format!("{}={}", dtype.name(), dtype.0))
        .collect();
    shown.join(" ")
}

pub fn codes() -> String {
    let codes = [
        ("invalid", ErrorCode::INVALID),
        ("unsupported", ErrorCode::UNSUPPORTED),
        ("out_of_memory", ErrorCode::OUT_OF_MEMORY),
        ("cancelled", ErrorCode::CANCELLED),
        ("not_finite", ErrorCode::NOT_FINITE),
        ("panic", ErrorCode::PANIC),
        ("device", ErrorCode::DEVICE),
        ("protocol", ErrorCode::PROTOCOL),
        ("peer", ErrorCode::PEER),
    ];
    let levels = [
        ("error", LogLevel::ERROR),
        ("warn", LogLevel::WARN),
        ("info", LogLevel::INFO),
        ("debug", LogLevel::DEBUG),
    ];
    let kinds = [
        ("device", MemoryKind::DEVICE),
        ("pinned", MemoryKind::PINNED),
        ("mapped", MemoryKind::MAPPED),
    ];
    let shown = |name: &str, id: u32| format!("{name}={id}");
    let codes: Vec<_> = codes
        .iter()
        .map(|(name, code)| shown(name, code.0))
        .collect();
    let levels: Vec<_> = levels
        .iter()
        .map(|(name, level)| shown(name, level.0))
        .collect();
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(name, kind)| shown(name, kind.0))
        .collect();
    let ops = [
        ("all_gather", CollectiveOp::ALL_GATHER),
        ("reduce_scatter", CollectiveOp::REDUCE_SCATTER),
        ("all_reduce", CollectiveOp::ALL_REDUCE),
        ("broadcast", CollectiveOp::BROADCAST),
    ];
    let ops: Vec<_> = ops.iter().map(|(name, op)| shown(name, op.0)).collect();
    format!(
        "{}; log levels: {}; memory kinds: {}; collective ops: {}",
        codes.join(" "),
        levels.join(" "),
        kinds.join(" "),
        ops.join(" ")
    )
}
