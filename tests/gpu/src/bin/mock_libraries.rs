//! `mock_libraries FOLDER`: builds the mock libraries into a folder, for programs that open the
//! driver and the compiler by their names.

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = &arguments[..] else {
        panic!("expected FOLDER, found {arguments:?}");
    };
    espalier_tests_gpu::build_libraries(Path::new(folder));
}
