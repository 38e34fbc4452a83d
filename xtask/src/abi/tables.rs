//! The `repr(C)` tables of the boundary -> a line for each field: its place, its size and its type.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::{offset_of, size_of};

use abi_stable::StableAbi;
use abi_stable::type_layout::{TLField, TLFunction, TypeLayout};
use espalier_interface::abi::{
    BACKEND_VERSION, BackendTable, CALIBRATED_QUANTIZER_VERSION, COLLECTIVE_VERSION,
    COMPLETION_VERSION, COMPONENT_VERSION, CalibratedQuantizerTable, CollectiveTable,
    CompletionTable, ComponentTable, HOST_MEMORY_VERSION, HostMemoryTable, INITIALISE_VERSION,
    InitialiseTable, NATIVE_VERSION, NativeTable, PluginRoot, QUANTIZER_VERSION, QuantizerTable,
    TableRef, descriptor,
};

/// The root and every table, with all types that they use.
pub fn describe() -> String {
    let mut text = root();
    let mut seen = BTreeSet::new();
    let tables = [
        (
            "component",
            COMPONENT_VERSION,
            <ComponentTable as StableAbi>::LAYOUT,
        ),
        (
            "quantizer",
            QUANTIZER_VERSION,
            <QuantizerTable as StableAbi>::LAYOUT,
        ),
        (
            "backend",
            BACKEND_VERSION,
            <BackendTable as StableAbi>::LAYOUT,
        ),
        (
            "host_memory",
            HOST_MEMORY_VERSION,
            <HostMemoryTable as StableAbi>::LAYOUT,
        ),
        (
            "completion",
            COMPLETION_VERSION,
            <CompletionTable as StableAbi>::LAYOUT,
        ),
        ("native", NATIVE_VERSION, <NativeTable as StableAbi>::LAYOUT),
        (
            "initialise",
            INITIALISE_VERSION,
            <InitialiseTable as StableAbi>::LAYOUT,
        ),
        (
            "calibrated_quantizer",
            CALIBRATED_QUANTIZER_VERSION,
            <CalibratedQuantizerTable as StableAbi>::LAYOUT,
        ),
        (
            "collective",
            COLLECTIVE_VERSION,
            <CollectiveTable as StableAbi>::LAYOUT,
        ),
    ];
    for (name, version, layout) in tables {
        line(
            &mut text,
            &format!("query(\"{name}\", {version}) -> {}", layout.name()),
        );
        fields(layout, &mut text, &mut seen);
    }
    text
}

/// The version of the crate of these types.
#[cfg(test)]
pub fn crate_version() -> String {
    <ComponentTable as StableAbi>::LAYOUT
        .package_version()
        .to_string()
}

/// The root, written by hand: no layout can be requested before it.
fn root() -> String {
    let mut text = String::new();
    let (section, magic) = (
        descriptor::SECTION,
        String::from_utf8_lossy(descriptor::MAGIC),
    );
    line(
        &mut text,
        &format!("section {section}: `{magic}`, length u32, Descriptor as JSON"),
    );
    line(&mut text, "symbol espalier_root_NAME -> *const PluginRoot");
    line(
        &mut text,
        &format!("PluginRoot, {} bytes", size_of::<PluginRoot>()),
    );
    let places = [
        ("abi_major", offset_of!(PluginRoot, abi_major)),
        ("abi_minor", offset_of!(PluginRoot, abi_minor)),
        ("descriptor", offset_of!(PluginRoot, descriptor)),
        ("context", offset_of!(PluginRoot, context)),
        ("query", offset_of!(PluginRoot, query)),
    ];
    for (name, place) in places {
        line(&mut text, &format!("  {place:>3} {name}"));
    }
    line(
        &mut text,
        &format!("TableRef, {} bytes", size_of::<TableRef>()),
    );
    for (name, place) in [
        ("table", offset_of!(TableRef, table)),
        ("layout", offset_of!(TableRef, layout)),
    ] {
        line(&mut text, &format!("  {place:>3} {name}"));
    }
    text
}

/// The fields of a type of the interface, and then all types that it uses.
fn fields(layout: &'static TypeLayout, text: &mut String, seen: &mut BTreeSet<String>) {
    if !seen.insert(shown(layout)) {
        return;
    }
    if is_ours(layout) {
        let (name, size, alignment) = (layout.name(), layout.size(), layout.alignment());
        line(
            text,
            &format!("{name}, {size} bytes, aligned to {alignment}"),
        );
        let mut place: usize = 0;
        for field in members(layout) {
            let inner = field.layout();
            place = place.next_multiple_of(inner.alignment());
            let function = field.function_range().iter().next();
            let ty = function.map_or_else(|| shown(inner), |function| signature(&function));
            line(text, &format!("  {place:>3} {}: {ty}", field.name()));
            place += inner.size();
        }
    }
    for inner in layout.shared_vars().type_layouts() {
        fields(inner(), text, seen);
    }
}

fn signature(function: &TLFunction) -> String {
    let taken = function
        .param_type_layouts
        .iter()
        .map(|layout| shown(layout()));
    let taken: Vec<String> = taken.collect();
    let given = function.return_type_layout();
    let given = given.map_or(String::new(), |layout| format!(" -> {}", shown(layout())));
    format!("fn({}){given}", taken.join(", "))
}

/// A type in a line. A type of abi_stable is followed by its parameters, which its name leaves out.
fn shown(layout: &'static TypeLayout) -> String {
    if is_ours(layout) {
        return layout.name().to_owned();
    }
    let inner = members(layout).map(|field| field.layout());
    let parts: Vec<String> = inner
        .filter(|inner| inner.name() != "PhantomData")
        .map(shown)
        .collect();
    if parts.is_empty() || layout.name().contains("c_void") {
        layout.full_type().to_string().trim_end().to_owned()
    } else {
        format!("{}({})", layout.name(), parts.join(", "))
    }
}

fn members(layout: &'static TypeLayout) -> impl Iterator<Item = TLField> {
    layout
        .get_fields()
        .into_iter()
        .flat_map(|fields| fields.to_vec())
}

fn is_ours(layout: &TypeLayout) -> bool {
    layout.package().as_str() == "espalier-interface"
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}
