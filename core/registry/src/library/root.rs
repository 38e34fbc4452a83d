//! A plugin's root, linked or loaded -> its tables, each layout-checked before its pointer is used.
#![allow(unsafe_code)] // Opening a library and following the pointers it hands over.

use std::fs;
use std::io::{self, Write};
use std::mem::ManuallyDrop;

use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::check_layout_compatibility;
use abi_stable::type_layout::TypeLayout;
use espalier_interface::abi::descriptor::{self, Descriptor};
use espalier_interface::abi::{
    BACKEND_VERSION, BackendTable, CALIBRATED_QUANTIZER_VERSION, COLLECTIVE_VERSION,
    COMPLETION_VERSION, COMPONENT_VERSION, CalibratedQuantizerTable, CollectiveTable,
    CompletionTable, ComponentTable, HOST_MEMORY_VERSION, HostMemoryTable, INITIALISE_VERSION,
    InitialiseTable, NATIVE_VERSION, NativeTable, Opaque, PluginRoot, QUANTIZER_VERSION,
    QuantizerTable, is_served,
};
use espalier_system::failure::one_line;
use espalier_system::files::hash_bytes;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tempfile::NamedTempFile;

use super::fault::LibraryFault;
use super::mapping::populate;
use super::opened::PlacedLibrary;
use crate::data_dir::data_dir;

/// The function of a plugin's one symbol.
type RootFn = extern "C" fn() -> *const PluginRoot;

/// A plugin that is ready to make components.
#[derive(Clone, Copy)]
pub struct Root {
    root: &'static PluginRoot,
    component: ComponentTable,
}

impl Root {
    /// The root of a plugin that is linked into this program.
    ///
    /// # Errors
    /// [`LibraryFault::Descriptor`] for a null root and [`LibraryFault::Abi`] for another version,
    /// as for a library.
    pub fn linked(root: RootFn) -> Result<Self, LibraryFault> {
        Root::of(root)
    }

    fn of(root: RootFn) -> Result<Self, LibraryFault> {
        // SAFETY: `declare_plugin!` returns a pointer to a static; libraries are never unloaded.
        let Some(root) = (unsafe { root().as_ref() }) else {
            return Err(LibraryFault::Descriptor("its root is null".to_owned()));
        };
        let found = [root.abi_major, root.abi_minor];
        if !is_served(found) {
            return Err(LibraryFault::Abi { found });
        }
        let component = table::<ComponentTable>(root, "component", COMPONENT_VERSION)?;
        Ok(Root { root, component })
    }

    /// The plugin's descriptor.
    ///
    /// # Errors
    /// [`LibraryFault::Descriptor`] where it cannot be read.
    pub fn descriptor(&self) -> Result<Descriptor, LibraryFault> {
        descriptor::read(self.root.descriptor.as_slice()).map_err(LibraryFault::Descriptor)
    }

    /// The table of all components.
    pub fn component(&self) -> ComponentTable {
        self.component
    }

    /// The first argument of that table's `create`.
    pub fn context(&self) -> Opaque {
        self.root.context
    }

    /// The table of quantizers.
    ///
    /// # Errors
    /// [`LibraryFault::NoTable`] where it is missing. [`LibraryFault::Layout`] where its layout
    /// differs.
    pub fn quantizer(&self) -> Result<QuantizerTable, LibraryFault> {
        table(self.root, "quantizer", QUANTIZER_VERSION)
    }

    /// The table of quantizers that pack with statistics of inputs; none where the plugin has none.
    ///
    /// # Errors
    /// [`LibraryFault::Layout`] where its layout differs.
    pub fn calibrated_quantizer(&self) -> Result<Option<CalibratedQuantizerTable>, LibraryFault> {
        optional(table(
            self.root,
            "calibrated_quantizer",
            CALIBRATED_QUANTIZER_VERSION,
        ))
    }

    /// The table of adapters whose params begin from a weight; none where the plugin has none.
    ///
    /// # Errors
    /// [`LibraryFault::Layout`] where its layout differs.
    pub fn initialise(&self) -> Result<Option<InitialiseTable>, LibraryFault> {
        optional(table(self.root, "initialise", INITIALISE_VERSION))
    }

    /// The table of backends.
    ///
    /// # Errors
    /// [`LibraryFault::NoTable`] where it is missing. [`LibraryFault::Layout`] where its layout
    /// differs.
    pub fn backend(&self) -> Result<BackendTable, LibraryFault> {
        table(self.root, "backend", BACKEND_VERSION)
    }

    /// The table of backends that can import host memory; none where the plugin has none.
    ///
    /// # Errors
    /// [`LibraryFault::Layout`] where its layout differs.
    pub fn host_memory(&self) -> Result<Option<HostMemoryTable>, LibraryFault> {
        optional(table(self.root, "host_memory", HOST_MEMORY_VERSION))
    }

    /// The table of backends whose devices finish later; none where the plugin has none.
    ///
    /// # Errors
    /// [`LibraryFault::Layout`] where its layout differs.
    pub fn completion(&self) -> Result<Option<CompletionTable>, LibraryFault> {
        optional(table(self.root, "completion", COMPLETION_VERSION))
    }

    /// The table of backends whose devices other libraries use; none where the plugin has none.
    ///
    /// # Errors
    /// [`LibraryFault::Layout`] where its layout differs.
    pub fn native(&self) -> Result<Option<NativeTable>, LibraryFault> {
        optional(table(self.root, "native", NATIVE_VERSION))
    }

    /// The table of collectives.
    ///
    /// # Errors
    /// [`LibraryFault::NoTable`] where it is missing. [`LibraryFault::Layout`] where its layout
    /// differs.
    pub fn collective(&self) -> Result<CollectiveTable, LibraryFault> {
        table(self.root, "collective", COLLECTIVE_VERSION)
    }
}

fn optional<T>(found: Result<T, LibraryFault>) -> Result<Option<T>, LibraryFault> {
    match found {
        Err(LibraryFault::NoTable { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// Opens the library at `place`. It is never closed.
pub(super) fn open(place: PlacedLibrary, expected: &Descriptor) -> Result<Root, LibraryFault> {
    // SAFETY: opening runs the library's initialisers. It is a plugin by its section, for this
    // machine and interface, and the user named it or put it where plugins are looked for.
    let library = unsafe { Library::open(Some(&place.path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| LibraryFault::Open(chain(&error)))?;
    super::notify_opened();
    // Never unloaded: instances, leaked services and thread-locals of its runtime outlive every
    // scope.
    let library = ManuallyDrop::new(library);
    let symbol = format!("espalier_root_{}", expected.name);
    // SAFETY: `declare_plugin!` gives the symbol this type in every interface of this major.
    let root = unsafe { library.get::<RootFn>(symbol.as_bytes()) };
    let root = root.map_err(|_| LibraryFault::NoRoot { symbol })?;
    let address = *root as *const () as usize;
    place.check(address)?;
    populate(address).map_err(|error| LibraryFault::Open(error.to_string()))?;
    let root = Root::of(*root)?;
    if root.descriptor()? != *expected {
        let message = "its root describes another plugin than its section";
        return Err(LibraryFault::Descriptor(message.to_owned()));
    }
    Ok(root)
}

/// An error and its sources as text: libloading's own message says only that `dlopen` failed.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => chain(source),
        // It may quote garbage that a damaged library has in place of a name.
        None => one_line(&error.to_string()),
    }
}

fn table<T: StableAbi + Copy>(
    root: &PluginRoot,
    name: &'static str,
    version: u32,
) -> Result<T, LibraryFault> {
    let found = (root.query)(name.into(), version);
    // SAFETY: a layout is a static of the plugin, which is never unloaded.
    let layout = unsafe { found.layout.as_ref() };
    let (Some(layout), false) = (layout, found.table.is_null()) else {
        let table = name.to_owned();
        return Err(LibraryFault::NoTable { table, version });
    };
    check_layout(T::LAYOUT, layout, name)?;
    // SAFETY: the pointer is not null, and its type was just found to be laid out as `T`.
    Ok(unsafe { *found.table.cast::<T>() })
}

fn check_layout(
    expected: &'static TypeLayout,
    found: &'static TypeLayout,
    table: &str,
) -> Result<(), LibraryFault> {
    let Err(errors) = check_layout_compatibility(expected, found) else {
        return Ok(());
    };
    let count: usize = errors.errors.iter().map(|one| one.errs.len()).sum();
    let summary = format!(
        "{count} differences between `{}` here and `{}` there",
        expected.name(),
        found.name()
    );
    Err(LibraryFault::Layout {
        table: table.to_owned(),
        summary,
        details: details(table, &errors.to_string()),
    })
}

/// Writes a text that is too long for a message to a file in the user's data directory. Returns the
/// path; equal texts have the same file.
fn details(table: &str, text: &str) -> String {
    let Some(folder) = data_dir() else {
        return "no file, as neither XDG_DATA_HOME nor HOME names a folder for it".to_owned();
    };
    let name = format!("layout-{table}-{}.txt", &hash_bytes(text.as_bytes())[..16]);
    let path = folder.join(name);
    // Written under a temporary name: another process may write at the same time.
    let write = || {
        fs::create_dir_all(&folder)?;
        let mut file = NamedTempFile::new_in(&folder)?;
        file.write_all(text.as_bytes())?;
        file.persist(&path)?;
        Ok::<_, io::Error>(())
    };
    match write() {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("{}, which cannot be written: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_layout_is_refused_in_one_line() {
        let here = <ComponentTable as StableAbi>::LAYOUT;
        check_layout(here, here, "component").expect("its own layout");
        let there = <QuantizerTable as StableAbi>::LAYOUT;
        let fault = check_layout(here, there, "component").expect_err("another table");
        let message = fault.to_string();
        assert!(
            message.lines().count() == 1 && message.len() < 400,
            "{message}"
        );
        assert!(
            message.contains("`ComponentTable` here and `QuantizerTable` there"),
            "{message}"
        );
        let LibraryFault::Layout { details, .. } = fault else {
            panic!("another fault");
        };
        let text = std::fs::read_to_string(&details).expect("just written");
        assert!(text.contains("QuantizerTable"));
        std::fs::remove_file(details).expect("ours");
    }
}
