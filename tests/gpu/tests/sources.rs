//! The list of compilations has every source in `kernels/cuda`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use espalier_backend_cuda::variants;
use espalier_tests_gpu::formats;

#[test]
fn every_source_is_compiled() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/cuda");
    let mut files = BTreeSet::new();
    for folder in fs::read_dir(kernels).expect("a folder") {
        let folder = folder.expect("an entry").path();
        for file in folder.read_dir().into_iter().flatten() {
            let name = file.expect("an entry").file_name();
            let name = name.to_string_lossy().into_owned();
            if name.ends_with(".cu") {
                files.insert(name);
            }
        }
    }
    let variants = variants(&formats()).expect("described formats");
    let compiled = variants.iter().map(|variant| variant.source().to_owned());
    assert_eq!(compiled.collect::<BTreeSet<_>>(), files);
}
