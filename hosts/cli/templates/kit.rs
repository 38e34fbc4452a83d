//! The conformance kit on this plugin: what any plugin of its role must pass, with all its options.
//! A failed check says what was expected and what was found. Add tests of your own beside it.

use my_plugin::COMPONENT;

#[test]
fn it_passes_the_kit() {
    espalier_conformance::check(&COMPONENT).assert_passed();
}
